package testwait

import (
	"testing"
	"testing/synctest"
	"time"
)

// endless is a test that ends in an hour.
type endless struct {
	testing.TB
	end    time.Time
	failed bool
}

func (e *endless) Helper() {}

func (e *endless) Deadline() (time.Time, bool) { return e.end, true }

func (e *endless) Fatalf(string, ...any) {
	e.failed = true
	panic("failed")
}

func TestUntilEndsWithTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		e := &endless{TB: t, end: start.Add(time.Hour)}
		n := 0
		Until(e, "three looks", func() bool { n++; return n == 3 })
		func() {
			defer func() { recover() }()
			Until(e, "never", func() bool { return false })
		}()
		if took := time.Since(start); !e.failed || took < 59*time.Minute || took >= time.Hour {
			t.Errorf("failed %v after %v", e.failed, took)
		}
	})
}

func TestLateInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		<-Late(t)
		if took := time.Since(start); took != 24*time.Hour {
			t.Errorf("after %v", took)
		}
	})
	if d, ok := t.Deadline(); ok && time.Until(d) > time.Minute {
		select {
		case <-Late(t):
			t.Error("the deadline is not near")
		default:
		}
	}
}
