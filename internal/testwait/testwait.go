// Package testwait lets tests wait in real time, for events that send no signal and cannot
// run in the virtual time of testing/synctest: other processes, files, the network. Tests
// have no time limits of their own, because they would fail on a busy machine. The only limit
// is the deadline of the test binary. [Address] is for programs that such tests start.
package testwait

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// Until returns when f returns true. If it does not before the deadline of the test binary is
// near, the test fails with what.
func Until(t testing.TB, what string, f func() bool) {
	t.Helper()
	end := end(t)
	for pause := time.Millisecond; !f(); pause = min(2*pause, 50*time.Millisecond) {
		if !end.IsZero() && time.Now().After(end) {
			t.Fatalf("still waiting: %s", what)
		}
		time.Sleep(pause)
	}
}

// Late returns a channel for a select that waits for events: it receives when the deadline of
// the test binary is near.
func Late(t testing.TB) <-chan time.Time {
	if end := end(t); !end.IsZero() {
		return time.After(time.Until(end))
	}
	return nil
}

// Context returns the context of a test, which also ends when the deadline of the test binary
// is near.
func Context(t testing.TB) context.Context {
	end := end(t)
	if end.IsZero() {
		return t.Context()
	}
	ctx, cancel := context.WithDeadlineCause(t.Context(), end, errors.New("the deadline of the test binary is near"))
	t.Cleanup(cancel)
	return ctx
}

// end returns when a test gives up, or zero for never. In the virtual time of a bubble, where
// a test has no deadline, it is a day.
func end(t testing.TB) (at time.Time) {
	defer func() {
		if recover() != nil {
			at = time.Now().Add(24 * time.Hour)
		}
	}()
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, ok := d.Deadline(); ok {
			return at.Add(-10 * time.Second)
		}
	}
	return time.Time{}
}

// Pause makes one party of a test slow. The test must pass for any d, even if the pause is
// much longer or the other parties are slower still.
func Pause(d time.Duration) { time.Sleep(d) }

// Hang blocks a helper process until it is ended. A leftover process ends after ten minutes.
func Hang() { time.Sleep(10 * time.Minute) }

// lastPort is the last port of [Address], from 10000.
var lastPort atomic.Uint32

func init() { lastPort.Store(rand.Uint32N(1 << 30)) }

// Address returns a loopback address where nobody listens, for a program that will listen there,
// perhaps several times. Its port is lower than those that systems choose themselves (from 32768):
// another program could get such a port while nobody listens there. It is a new one for each call.
func Address() string {
	for {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10000+lastPort.Add(1)%20000))
		if err == nil {
			l.Close()
			return l.Addr().String()
		}
	}
}
