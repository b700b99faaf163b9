package sim

import (
	"sync"
	"sync/atomic"
	"time"
	_ "unsafe"

	_ "github.com/nats-io/nats-server/v2/server/ats"
)

// The server decides about expiry by a clock of the whole process. Its goroutine waits for a channel that was
// created outside the bubble, so it would neither follow the time of the bubble nor let that time advance. These
// variables are its time and the number of its users.

//go:linkname atsTime github.com/nats-io/nats-server/v2/server/ats.utime
var atsTime atomic.Int64

//go:linkname atsUsers github.com/nats-io/nats-server/v2/server/ats.refs
var atsUsers atomic.Int64

// runClock makes that clock follow the time of the bubble, until the returned function is called.
func runClock() (stop func()) {
	atsUsers.Add(1) // prevents the clock from starting its goroutine
	done := make(chan struct{})
	var work sync.WaitGroup
	atsTime.Store(time.Now().UnixNano())
	work.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				atsTime.Store(time.Now().UnixNano())
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		work.Wait()
		atsUsers.Add(-1)
	}
}
