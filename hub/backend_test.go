package hub_test

import (
	"testing"
	"testing/synctest"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/hubtest"
	"github.com/parley-go/parley/session"
)

func TestMemory(t *testing.T) {
	hubtest.Run(t, func(*testing.T) func() hub.Backend {
		m := &hub.Memory{}
		return func() hub.Backend { return m }
	})
}

func TestFiles(t *testing.T) {
	for name, d := range map[string]session.Durability{"Fsync": session.Fsync, "Write": session.Write} {
		t.Run(name, func(t *testing.T) {
			hubtest.Run(t, func(t *testing.T) func() hub.Backend {
				dir := t.TempDir()
				return func() hub.Backend { return &hub.Files{Dir: dir, Durability: d} }
			})
		})
	}
}

// TestBackendsInBubble checks that the backends use only the time of timers, so that
// they run in a bubble.
func TestBackendsInBubble(t *testing.T) {
	for name, b := range map[string]hub.Backend{"Memory": &hub.Memory{}, "Files": &hub.Files{Dir: t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				id := session.NewID()
				read := make(chan hub.Entry)
				go func() {
					defer close(read)
					for e, err := range b.Read(t.Context(), id, 0, true) {
						if err != nil {
							t.Error(err)
							return
						}
						read <- e
						if e.N == 3 {
							return
						}
					}
				}()
				for n := range uint64(3) {
					if err := b.Append(t.Context(), id, n, hubtest.Entries(n, 1)); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					if e := <-read; e.N != n+1 {
						t.Errorf("got %d, want %d", e.N, n+1)
					}
				}
				<-read
			})
		})
	}
}
