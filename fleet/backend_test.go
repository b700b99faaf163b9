package fleet

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/hubtest"
)

var (
	oneServer = sync.OnceValues(func() (*server.Server, error) {
		return StartServer(ServerConfig{Name: "test", Dir: serverDir})
	})
	serverDir string
	fleets    atomic.Int64
)

// place returns a function that opens backends of one fleet, as processes would.
func place(t testing.TB) func() *Backend {
	s, err := oneServer()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprint("t", fleets.Add(1))
	return func() *Backend {
		nc := connect(t, s)
		b, err := Open(t.Context(), Config{Conn: nc, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
}

func connect(t testing.TB, s *server.Server) *nats.Conn {
	nc, err := Connect(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestBackend(t *testing.T) {
	t.Parallel()
	hubtest.Run(t, func(t *testing.T) func() hub.Backend {
		open := place(t)
		return func() hub.Backend { return open() }
	})
}
