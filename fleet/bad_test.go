package fleet

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/hubtest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// When the disk is full, an append fails with an error that gives the reason. Everything that was acknowledged is
// stored, and work continues when there is space again.
func TestFullDiskLosesNothingAcknowledged(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("a small disk cannot be made here: %v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("umount", "-l", dir).Run() })
	s, err := StartServer(ServerConfig{Name: "small", Dir: filepath.Join(dir, "nats")})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(s)
	b, err := Open(t.Context(), Config{Conn: connect(t, s), Lease: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	id := session.NewID()
	var n uint64
	for n < 1000 {
		e := hubtest.Entries(n, 1)
		e[0].Data, _ = json.Marshal(noise(n))
		if err = b.Append(t.Context(), id, n, e); err != nil {
			break
		}
		n++
	}
	if err == nil || !strings.Contains(err.Error(), "is full") {
		t.Fatalf("after %d entries of 100 KB on a disk of 16 MB: %v, want an error that says that it is full", n, err)
	}
	if _, err := b.Put(t.Context(), id, hub.Item{Key: "prompt/x", Data: json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`)}); err == nil {
		t.Log("there was room for a prompt")
	} else if !strings.Contains(err.Error(), "is full") {
		t.Errorf("a prompt: %v", err)
	}
	if out, err := exec.Command("mount", "-o", "remount,size=64m", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// The server reads the size of its disk when it starts.
	b.Close()
	stop(s)
	if s, err = StartServer(ServerConfig{Name: "small", Dir: filepath.Join(dir, "nats")}); err != nil {
		t.Fatal(err)
	}
	if b, err = Open(t.Context(), Config{Conn: connect(t, s)}); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	got := uint64(len(journal(t, b, id)))
	if got != n && got != n+1 { // the append that failed may have been stored
		t.Errorf("the journal has %d entries, and %d were acknowledged", got, n)
	}
	if err := b.Append(t.Context(), id, got, hubtest.Entries(got, 1)); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// noise returns 100 KB that cannot be compressed much.
func noise(n uint64) []byte {
	b := make([]byte, 75_000)
	for i := range b {
		n = n*6364136223846793005 + 1442695040888963407
		b[i] = byte(n >> 56)
	}
	return b
}

// Without a majority of the nodes, nothing is accepted, and the error gives the reason. Everything that was acknowledged
// is stored when they are back.
func TestLostMajorityLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	dir, routes := t.TempDir(), freeAddresses(3)
	start := func(i int) (srv interface {
		Shutdown()
		WaitForShutdown()
	}, nc *nats.Conn) {
		t.Helper()
		name := string(rune('a' + i))
		s, err := StartServer(ServerConfig{Name: name, Dir: filepath.Join(dir, name), Cluster: routes[i], Routes: routes, Token: secret})
		if err != nil {
			t.Fatal(err)
		}
		nc, err = Connect(s, nats.Token(secret))
		if err != nil {
			t.Fatal(err)
		}
		return s, nc
	}
	s0, nc := start(0)
	s1, nc1 := start(1)
	s2, nc2 := start(2)
	nc1.Close()
	nc2.Close()
	b, err := Open(t.Context(), Config{Conn: nc, Replicas: 3, Lease: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	id := session.NewID()
	if err := b.Append(t.Context(), id, 0, hubtest.Entries(0, 3)); err != nil {
		t.Fatal(err)
	}
	for _, s := range []interface {
		Shutdown()
		WaitForShutdown()
	}{s1, s2} {
		s.Shutdown()
		s.WaitForShutdown()
	}
	if err := b.Append(t.Context(), id, 3, hubtest.Entries(3, 1)); err == nil || !strings.Contains(err.Error(), "the majority or the link is down") {
		t.Errorf("without a majority: %v, want an error that says so", err)
	}
	if _, err := b.Put(t.Context(), id, hub.Item{Key: "prompt/x", Data: json.RawMessage(`"x"`)}); err == nil || !strings.Contains(err.Error(), "the majority or the link is down") {
		t.Errorf("a prompt without a majority: %v, want an error that says so", err)
	}
	s1, nc1 = start(1)
	s2, nc2 = start(2)
	defer func() {
		b.Close()
		for _, c := range []*nats.Conn{nc, nc1, nc2} {
			c.Close()
		}
		for _, s := range []interface {
			Shutdown()
			WaitForShutdown()
		}{s0, s1, s2} {
			s.Shutdown()
			s.WaitForShutdown()
		}
	}()
	for err = errors.New("not tried"); err != nil && !errors.Is(err, hub.ErrConflict); { // it may have been stored meanwhile
		err = b.Append(t.Context(), id, 3, hubtest.Entries(3, 1))
	}
	if got := journal(t, b, id); len(got) != 4 {
		t.Errorf("the journal has %d entries, want 4", len(got))
	}
}

// An older version ignores data of a newer one: entries of an unknown kind, and unknown members in the journal, in leases
// and in the information of workers.
func TestOlderWorkerIgnoresNewerData(t *testing.T) {
	t.Parallel()
	open, file := place(t), filepath.Join(t.TempDir(), "effects")
	gateway := newCrew(t, open(), 0, file)
	b := gateway.b
	s, err := gateway.hub.Create(t.Context(), ann, hub.Spec{Cwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	id := s.ID()
	future := []hub.Entry{
		{N: 2, Kind: "hologram", Epoch: 2, Time: time.Now(), Data: json.RawMessage(`{"depth":3}`)},
		{N: 3, Kind: hub.KindOwner, Epoch: 3, Time: time.Now(), Data: json.RawMessage(`{"hub":"new","shard":7}`)},
		{N: 4, Kind: hub.KindFrame, Epoch: 3, Time: time.Now(), Data: json.RawMessage(`{"type":"hologram","x":1}`)},
	}
	if err := b.Append(t.Context(), id, 1, future); err != nil {
		t.Fatal(err)
	}
	// A dead worker of a newer version holds the session, and a live one publishes more information.
	if _, err := b.leases.Create(t.Context(), id, []byte(`{"id":"gone","name":"new","shard":7,"v":2}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.workers.Put(t.Context(), "other", []byte(`{"id":"other","name":"new","version":"9.0.0","gpus":8,"sessions":0,"slots":4}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prompt(t.Context(), ann, wire.Prompt(wire.Text("Do it."))); err != nil {
		t.Fatal(err)
	}
	newCrew(t, open(), 4, file)
	var last uint64
	ask := new(hub.Ask)
	if err := json.Unmarshal(until(t, s, &last, hub.KindAsk, nil).Data, ask); err != nil {
		t.Fatal(err)
	}
	if err := s.Answer(t.Context(), ann, hub.Allow(ask)); err != nil {
		t.Fatal(err)
	}
	until(t, s, &last, hub.KindFrame, isResult)
	st, err := b.Status(t.Context())
	if err != nil || !strings.Contains(string(mustJSON(t, st)), `"version":"9.0.0"`) {
		t.Errorf("status %+v, %v", st, err)
	}
	if got := strings.Join(journal(t, b, id), "\n"); !strings.Contains(got, `"hologram"`) || !strings.Contains(got, `"shard":7`) {
		t.Error("the older worker changed what it does not know")
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
