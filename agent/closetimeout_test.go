package agent_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
)

// A slowStore calls a function before it gives up a session.
type slowStore struct {
	session.Store
	wait func()
}

func (s slowStore) Lease(ctx context.Context, key session.Key) (session.Lease, error) {
	l, err := s.Store.Lease(ctx, key)
	return slowLease{l, s.wait}, err
}

type slowLease struct {
	session.Lease
	wait func()
}

func (l slowLease) Close() error {
	l.wait()
	return l.Lease.Close()
}

// TestCloseTimeoutOfAnAgentInThisProcess closes a client whose agent needs half a minute to end.
func TestCloseTimeoutOfAnAgentInThisProcess(t *testing.T) {
	for _, test := range []struct {
		timeout, least, most time.Duration
		cut                  bool
	}{
		{0, 10 * time.Second, 11 * time.Second, true}, // two steps of five seconds
		{time.Second, 2 * time.Second, 3 * time.Second, true},
		{time.Minute, 30 * time.Second, 31 * time.Second, false},
	} {
		t.Run(test.timeout.String(), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				cfg := agent.Config{Home: dir, Model: parleytest.Script(parleytest.Say("Hello.")).Model(), Store: slowStore{&session.Memory{}, func() { time.Sleep(30 * time.Second) }}}
				c, err := parley.Connect(t.Context(), &parley.Options{Cwd: dir, CloseTimeout: test.timeout, Dialer: agent.InProcess(cfg)})
				if err != nil {
					t.Fatal(err)
				}
				if r, err := run(t, c, "hello"); err != nil || r.Result != "Hello." {
					t.Fatalf("got %+v, %v, want an answer", r, err)
				}
				began := time.Now()
				err = c.Close()
				if d := time.Since(began); d < test.least || d > test.most || (err != nil) != test.cut {
					t.Errorf("Close took %v and returned %v, want %v to %v, and an error: %v", d, err, test.least, test.most, test.cut)
				}
				time.Sleep(time.Minute) // an agent that was cut off ends
			})
		})
	}
}
