package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/session"
)

// TestRenewal checks that a lease is renewed in time, whatever fails, until it is lost
// or closed, and that nothing is written with it afterwards.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released, appended := 0, 0
		var renewals atomic.Int32
		l := session.Renewal{
			Length: 30 * time.Second,
			Renew: func(context.Context) error {
				switch renewals.Add(1) {
				case 2:
					return errors.New("the network is away")
				case 4:
					return session.ErrLeaseLost
				}
				return nil
			},
			Append:  func(context.Context, string, []json.RawMessage) error { appended++; return nil },
			Release: func(context.Context) error { released++; return errors.New("too late") },
		}.Lease()
		time.Sleep(35 * time.Second)
		if n := renewals.Load(); n != 3 {
			t.Errorf("%d renewals in 35 seconds", n)
		}
		if err := l.Append(t.Context(), "", nil); err != nil || appended != 1 {
			t.Errorf("%v, %d", err, appended)
		}
		time.Sleep(time.Hour)
		if n := renewals.Load(); n != 4 {
			t.Errorf("%d renewals of a lease that was lost", n)
		}
		for range 2 {
			if err := l.Close(); err == nil || err.Error() != "too late" {
				t.Error(err)
			}
		}
		if err := l.Append(t.Context(), "", nil); !errors.Is(err, session.ErrClosed) || appended != 1 || released != 1 {
			t.Errorf("%v, %d, %d", err, appended, released)
		}
	})
}
