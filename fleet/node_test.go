package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/hubtest"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/session"
)

const secret = "a secret that nodes share"

// freeAddresses returns unused addresses.
func freeAddresses(n int) (all []string) {
	for range n {
		all = append(all, testwait.Address())
	}
	return all
}

// backendOf opens the fleet of a node.
func backendOf(t *testing.T, s *server.Server, replicas int) *Backend {
	t.Helper()
	nc, err := Connect(s, nats.Token(secret))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), Config{Conn: nc, Replicas: replicas})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close(); nc.Close() })
	return b
}

func stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// journal returns all entries of a session as lines.
func journal(t *testing.T, b *Backend, id string) (lines []string) {
	t.Helper()
	for e, err := range b.Read(t.Context(), id, 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(e.AppendTo(nil)))
	}
	return lines
}

// A single node becomes one of three, and is stopped at every step. Its sessions keep their
// numbers and continue, and a node whose first route is dead joins again.
//
// The test waits for elections, which need an idle machine: see make long.
func TestMigrationToThreeNodes(t *testing.T) {
	if os.Getenv("PARLEY_TEST_LONG") == "" {
		t.Skip("PARLEY_TEST_LONG is not set")
	}
	t.Parallel()
	dir, addresses := t.TempDir(), freeAddresses(3)
	node := func(i int) NodeConfig {
		return NodeConfig{Name: "same", Dir: filepath.Join(dir, string(rune('a'+i))), Cluster: addresses[i], Join: addresses, Token: secret} // machines can have the same host name
	}
	quiet := func(string) {}
	alone := node(0)
	alone.Join, alone.Cluster = nil, ""
	s, replicas, err := StartNode(t.Context(), alone, quiet)
	if err != nil || replicas != 1 {
		t.Fatal(replicas, err)
	}
	b, id := backendOf(t, s, 1), session.NewID()
	entries := hubtest.Entries(0, 5)
	entries[2].Data, _ = json.Marshal(strings.Repeat("large ", 60_000))
	for i := range entries {
		if err := b.Append(t.Context(), id, uint64(i), entries[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Put(t.Context(), id, hub.Item{Key: "prompt", Data: json.RawMessage(`"hello"`)}); err != nil {
		t.Fatal(err)
	}
	if err := b.Wake(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	want := journal(t, b, id)
	b.Close()
	stop(s)

	two := node(0)
	two.Join = addresses[:2]
	if _, _, err := StartNode(t.Context(), two, quiet); err == nil || !strings.Contains(err.Error(), "use one or three") {
		t.Errorf("two nodes: %v", err)
	}
	var servers [3]*server.Server
	type started struct {
		i   int
		s   *server.Server
		err error
	}
	up := make(chan started, 3)
	start := func(i int) {
		s, _, err := StartNode(t.Context(), node(i), quiet)
		up <- started{i, s, err}
	}
	go start(1)
	go start(2)
	// The first node is stopped when it reports its progress, each time one step later.
	for _, step := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 99} { // step 99 does not exist
		ctx, cancel := context.WithCancelCause(t.Context())
		n, at := 0, ""
		killed := errors.New("killed")
		s, _, err := StartNode(ctx, node(0), func(what string) {
			if n++; n == step {
				at = what
				cancel(killed)
			}
		})
		cancel(nil)
		if step == 99 && err != nil {
			t.Fatal(err)
		}
		if t.Logf("step %d: %s: %v", step, at, err); err == nil {
			servers[0] = s
			break
		}
	}
	for range 2 {
		x := <-up
		if x.err != nil {
			t.Fatal(x.err)
		}
		servers[x.i] = x.s
	}
	defer func() {
		for _, s := range servers {
			stop(s)
		}
	}()
	b = backendOf(t, servers[1], 3)
	if got := journal(t, b, id); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the journal has %d entries after the migration, want the same %d", len(got), len(want))
	}
	if err := b.Append(t.Context(), id, 5, hubtest.Entries(5, 1)); err != nil {
		t.Errorf("the session goes on: %v", err)
	}
	for item, err := range b.Inbox(t.Context(), id, 0, false) {
		if err != nil || item.Number != 1 || string(item.Data) != `"hello"` {
			t.Errorf("the inbox holds %+v, %v", item, err)
		}
	}
	if queued, err := b.queued(t.Context(), id); err != nil || !queued {
		t.Errorf("the session has work: %v, %v", queued, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a", asideDirName)); err != nil {
		t.Errorf("the directory of before is gone: %v", err)
	}

	// The first node, which is the first route of all nodes, dies. The others continue, and a node
	// that is restarted without flags joins again.
	stop(servers[0])
	stop(servers[2])
	again := node(2)
	again.Join, again.Cluster, again.Name = nil, "", "renamed"
	if servers[2], _, err = StartNode(t.Context(), again, quiet); err != nil {
		t.Fatal(err)
	}
	if err := backendOf(t, servers[2], 3).Append(t.Context(), id, 6, hubtest.Entries(6, 1)); err != nil {
		t.Errorf("without the first node: %v", err)
	}
	if servers[0], _, err = StartNode(t.Context(), node(0), quiet); err != nil {
		t.Fatal(err)
	}
	if got := journal(t, backendOf(t, servers[0], 3), id); len(got) != 7 {
		t.Errorf("the first node sees %d entries, want 7", len(got))
	}
}

// An empty stream counts as the same after a migration, though its first sequence differs.
func TestEmptyStreamsAreTheSame(t *testing.T) {
	for _, x := range []struct {
		a, b streamState
		same bool
	}{
		{streamState{}, streamState{FirstSeq: 1}, true},
		{streamState{LastSeq: 7}, streamState{FirstSeq: 8, LastSeq: 7}, true},
		{streamState{}, streamState{Messages: 1, FirstSeq: 1, LastSeq: 1, Subjects: 1}, false},
		{streamState{LastSeq: 7}, streamState{LastSeq: 8}, false},
		{streamState{Messages: 1, FirstSeq: 1, LastSeq: 2, Subjects: 1}, streamState{Messages: 1, FirstSeq: 2, LastSeq: 2, Subjects: 1}, false},
	} {
		if got := x.a.same(x.b); got != x.same {
			t.Errorf("%+v and %+v: %v, want %v", x.a, x.b, got, x.same)
		}
	}
}

func TestJoinErrors(t *testing.T) {
	own := t.TempDir()
	if err := os.Mkdir(filepath.Join(own, serverDirName), 0o700); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	used := taken.Addr().String()
	three := NodeConfig{Dir: t.TempDir()}
	if err := three.remember(&membership{Cluster: "a:1", Routes: []string{"a:1", "b:1", "c:1"}}); err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]NodeConfig{
		"cannot listen on " + used:   {Dir: own, Cluster: used, Join: []string{used, "b:1", "c:1"}},
		"address already in use":     {Dir: t.TempDir(), Listen: used},
		"add --join":                 {Dir: t.TempDir(), Cluster: "a:1"},
		"to correct an address":      {Dir: three.Dir, Cluster: "a:2"},
		"remove both flags":          {Dir: three.Dir, Cluster: "a:1", Join: []string{"a:1", "b:1", "d:1"}},
		"use one or three":           {Dir: t.TempDir(), Cluster: "a:1", Join: []string{"a:1", "b:1"}},
		"twice":                      {Dir: t.TempDir(), Cluster: "a:1", Join: []string{"a:1", "b:1", "a:1"}},
		"does not contain":           {Dir: t.TempDir(), Cluster: "d:1", Join: []string{"a:1", "b:1", "c:1"}},
		"not an address":             {Dir: t.TempDir(), Cluster: "a", Join: []string{"a", "b:1", "c:1"}},
		"Put it first":               {Dir: own, Cluster: "b:1", Join: []string{"a:1", "b:1", "c:1"}},
		"NodeConfig.Dir is required": {},
	} {
		if _, _, err := StartNode(t.Context(), cfg, func(string) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if IsMember(own) || !IsMember(three.Dir) {
		t.Error("a node that could not join counts as one of three, or one of three does not")
	}
}

// A node that waits for the others reports why.
func TestWaitingNodeReportsWhy(t *testing.T) {
	t.Parallel()
	addresses := freeAddresses(3)
	var nodes sync.WaitGroup
	defer nodes.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	why := make(chan string, 100)
	for i, token := range []string{secret, secret + "x"} {
		nodes.Go(func() {
			cfg := NodeConfig{Name: string(rune('a' + i)), Dir: t.TempDir(), Cluster: addresses[i], Join: addresses, Token: token}
			if s, _, err := StartNode(ctx, cfg, func(what string) { why <- what }); err == nil {
				t.Error("it does not wait")
				stop(s)
			}
		})
	}
	for {
		select {
		case what := <-why:
			if strings.Contains(what, "0 of the other 2 nodes are connected") && strings.Contains(what, "the same on all nodes") {
				return
			}
			t.Log(what)
		case <-t.Context().Done():
			return
		}
	}
}

// A server never starts with routes on the data of a server that ran alone, because NATS would delete it, however the
// directory got there. With the data of one of three it starts.
func TestDataOfALoneServerIsNotStartedWithRoutes(t *testing.T) {
	t.Parallel()
	dir, routes, id := t.TempDir(), freeAddresses(3), session.NewID()
	alone := filepath.Join(dir, serverDirName)
	s, err := StartServer(ServerConfig{Name: "a", Dir: alone})
	if err != nil {
		t.Fatal(err)
	}
	b := backendOf(t, s, 1)
	if err := b.Append(t.Context(), id, 0, hubtest.Entries(0, 3)); err != nil {
		t.Fatal(err)
	}
	b.Close()
	stop(s)
	refused := func(s *server.Server, err error) {
		t.Helper()
		if err == nil {
			stop(s)
		}
		if err == nil || !strings.Contains(err.Error(), "NATS would delete it") {
			t.Errorf("the error is %v", err)
		}
	}
	refused(StartServer(ServerConfig{Name: "a", Dir: alone, Cluster: routes[0], Routes: routes, Token: secret}))
	// The node has recorded that it moved its data, or set it aside before, but somebody has put it back.
	cfg := NodeConfig{Name: "a", Dir: dir, Token: secret}
	if err := os.Mkdir(filepath.Join(dir, asideDirName), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, migrating := range []bool{false, true} {
		if err := cfg.remember(&membership{Cluster: routes[0], Routes: routes, Migrating: migrating}); err != nil {
			t.Fatal(err)
		}
		s, _, err := StartNode(t.Context(), cfg, func(string) {})
		refused(s, err)
	}
	if s, err = StartServer(ServerConfig{Name: "a", Dir: alone}); err != nil {
		t.Fatal(err)
	}
	if got := journal(t, backendOf(t, s, 1), id); len(got) != 3 {
		t.Errorf("%d entries are left, want 3", len(got))
	}
	stop(s)

	three := filepath.Join(dir, "three")
	if err := os.MkdirAll(filepath.Join(three, "jetstream", "$G", "streams", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(three, "jetstream", "$SYS", "_js_", "_meta_"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (ServerConfig{Dir: three, Routes: routes}).checkAlone(); err != nil {
		t.Errorf("one of three: %v", err)
	}
}
