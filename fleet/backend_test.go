package fleet

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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

// place returns a function that opens backends of one fleet, each like a process of its own.
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

// No stream is compressed: neither a new one, nor one that an earlier version created. See uncompress.
func TestNothingIsCompressed(t *testing.T) {
	s, err := oneServer()
	if err != nil {
		t.Fatal(err)
	}
	nc, name := connect(t, s), fmt.Sprint("t", fleets.Add(1))
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: name + "-" + logStream, Subjects: []string{name + "." + logStream + ".>"}, AllowDirect: true, Duplicates: 2 * time.Minute, Compression: jetstream.S2Compression,
		RePublish: &jetstream.RePublish{Source: name + "." + logStream + ".>", Destination: name + ".live." + logStream + ".>"},
	}); err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), Config{Conn: nc, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, stream := range keptStreams(name) {
		about, err := js.Stream(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		if c := about.CachedInfo().Config.Compression; c != jetstream.NoCompression {
			t.Errorf("%s has the compression %v", stream, c)
		}
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

// A new fleet in a cluster that exists is stored by three of its servers, so that one may fail.
func TestReplicasOfAnExistingCluster(t *testing.T) {
	for name, want := range map[string]int{"": 1, "theirs": 3} {
		opts := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true}
		if name != "" {
			opts.Cluster = server.ClusterOpts{Name: name, Host: "127.0.0.1", Port: server.RANDOM_PORT}
		}
		s, err := server.NewServer(opts)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		if got := replicasOf(connect(t, s)); got != want {
			t.Errorf("in the cluster %q: %d replicas, want %d", name, got, want)
		}
		stop(s)
	}
}

func TestBackend(t *testing.T) {
	t.Parallel()
	hubtest.Run(t, func(t *testing.T) func() hub.Backend {
		open := place(t)
		return func() hub.Backend { return open() }
	})
}

// TestClosedBackendStartsNothing checks that a closed backend starts nothing, because nothing would
// end it.
func TestClosedBackendStartsNothing(t *testing.T) {
	t.Parallel()
	b := place(t)()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Announce(t.Context(), "test", 1); err != errClosed {
		t.Errorf("Announce returned %v", err)
	}
	if err := b.Answer(t.Context(), nil); err != errClosed {
		t.Errorf("Answer returned %v", err)
	}
}
