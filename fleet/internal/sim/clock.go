package sim

import (
	"sync"
	"sync/atomic"
	"time"
	_ "unsafe"

	_ "github.com/nats-io/nats-server/v2/server/ats"
)

// The server reads the time that decides what has expired from a clock of the whole process, whose goroutine
// waits for a channel that was made outside of the bubble. So it would neither follow the time of the
// bubble nor let that advance. These are its time and the number of its users.

//go:linkname atsTime github.com/nats-io/nats-server/v2/server/ats.utime
var atsTime atomic.Int64

//go:linkname atsUsers github.com/nats-io/nats-server/v2/server/ats.refs
var atsUsers atomic.Int64

// runClock has that clock follow the time of the bubble, until the function that it returns is called.
func runClock() (stop func()) {
	atsUsers.Add(1) // it starts no goroutine of its own then
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
