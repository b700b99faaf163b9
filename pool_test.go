package parley_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/parleytest/peer"
	"github.com/parley-go/parley/transport"
)

// TestPool checks that a pool connects in advance, replaces the agents that Get returns, skips agents that ended in the
// pool, and reports one that could not be started.
func TestPool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const answers = hello + "< {\"type\":\"user\"}\n" + done + "< eof\n"
		scripts := []string{hello, answers, "", answers, answers, answers, answers} // the first one ends at once, the third cannot be started
		dialed := make(chan int, len(scripts))
		broken := errors.New("no such agent")
		pool := parley.NewPool(1, &parley.Options{Dialer: transport.DialerFunc(func(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
			n := len(dialed)
			dialed <- n
			if scripts[n] == "" {
				return nil, broken
			}
			script, err := peer.Parse(t.Name(), []byte("-- steps --\n"+scripts[n]))
			if err != nil {
				return nil, err
			}
			return (&peer.Dialer{Script: script}).Dial(ctx, spec)
		})})
		defer pool.Close()
		dials := func(want int) {
			t.Helper()
			if synctest.Wait(); len(dialed) != want {
				t.Errorf("%d agents were started, want %d", len(dialed), want)
			}
		}
		dials(1)
		c, err := pool.Get(t.Context()) // the first one has ended
		if err != nil {
			t.Fatal(err)
		}
		if o := turn(t, c, "hi"); o.err != nil {
			t.Error(o.err)
		}
		c.Close()
		dials(3)
		if _, err := pool.Get(t.Context()); !errors.Is(err, broken) {
			t.Errorf("the error is %v, want %v", err, broken)
		}
		c, err = pool.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		dials(5)
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
		if o := turn(t, c, "hi"); o.err != nil {
			t.Errorf("an agent ended with the pool that it was taken from: %v", o.err)
		}
		c.Close()
		if _, err := pool.Get(t.Context()); !errors.Is(err, parley.ErrClosed) {
			t.Errorf("after Close the error is %v", err)
		}
		dials(5)
	})
}
