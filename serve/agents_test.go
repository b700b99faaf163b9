package serve

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/remote"
)

// A broken connection that ends after its successor began does not start the time after which
// an agent counts as gone.
func TestLateEndOfAConnectionKeepsTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x Agents
		a := &remoteAgent{name: "laptop", stream: "s", link: remote.NewLink()}
		x.add("id", a)
		x.connect("id", a) // breaks
		x.connect("id", a) // its successor
		x.disconnect("id", a)
		time.Sleep(2 * awayTime)
		if over(a.link) {
			t.Fatal("the agent counts as gone although it is connected")
		}
		x.disconnect("id", a)
		time.Sleep(awayTime / 2)
		if over(a.link) {
			t.Fatal("the agent counts as gone too early")
		}
		time.Sleep(awayTime)
		if !over(a.link) {
			t.Fatal("the agent never counts as gone")
		}
	})
}
