package gate

import (
	"testing"
	"testing/synctest"
)

// TestCloseBesideGo checks that Close waits for what has started, and that nothing starts
// afterwards, whichever comes first.
func TestCloseBesideGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		release := make(chan struct{})
		if !g.Go(func() { <-release }) || !g.Enter() {
			t.Fatal("an open gate let nothing start")
		}
		beside := make(chan bool)
		go func() { beside <- g.Go(func() { <-release }) }()
		started := <-beside
		idle := g.Close()
		if !started || g.Enter() || g.Go(func() { t.Error("ran after Close") }) {
			t.Error("a closed gate let a call start")
		}
		g.Leave()
		synctest.Wait()
		select {
		case <-idle:
			t.Error("idle although calls run")
		default:
		}
		close(release)
		<-idle
		<-g.Close() // once more
	})
}
