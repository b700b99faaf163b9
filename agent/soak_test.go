package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestSoak runs rounds of conversations at the same time: each writes a file and runs a command, asks its host
// for permission, and has its log in files. After each round no goroutine and no descriptor is left, and the heap
// does not grow. PARLEY_SOAK=1h plays 200 conversations at a time for an hour.
func TestSoak(t *testing.T) {
	conversations, rounds, end := 12, 6, time.Time{}
	if d, err := time.ParseDuration(os.Getenv("PARLEY_SOAK")); err == nil {
		conversations, rounds, end = 200, 1<<30, time.Now().Add(d)
	}
	const warm = 2 // rounds that fill caches
	var first, last, most uint64
	routines, descriptors, done := 0, 0, 0
	for round := range rounds {
		if !end.IsZero() && round > warm && time.Now().After(end) {
			break
		}
		dir := t.TempDir()
		store := &session.Files{Dir: filepath.Join(dir, "config")}
		var work sync.WaitGroup
		for i := range conversations {
			work.Go(func() { converse(t, filepath.Join(dir, fmt.Sprint(i)), store) })
		}
		work.Wait()
		if t.Failed() {
			return
		}
		os.RemoveAll(dir)
		done += conversations
		if round < warm {
			routines, descriptors = runtime.NumGoroutine(), openFiles()
			first = heap()
			continue
		}
		testwait.Until(t, fmt.Sprintf("no goroutine is left of %d conversations", done), func() bool { return runtime.NumGoroutine() <= routines })
		testwait.Until(t, fmt.Sprintf("no descriptor is left of %d conversations", done), func() bool { return openFiles() <= descriptors })
		last = heap()
		most = max(most, last)
	}
	t.Logf("%d conversations, %d at a time; heap %d KB after the first, %d KB after the last, at most %d KB; %d goroutines, %d descriptors",
		done, conversations, first>>10, last>>10, most>>10, routines, descriptors)
	if last > first+first/10+512<<10 {
		t.Errorf("the heap grows from %d KB to %d KB", first>>10, last>>10)
	}
}

// converse plays one conversation of two turns.
func converse(t *testing.T, dir string, store session.Store) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Error(err)
		return
	}
	file := filepath.Join(dir, "a.txt")
	model := parleytest.Script(parleytest.Call("Write", map[string]any{"file_path": file, "content": "text"}), parleytest.Say("Written."),
		parleytest.Call("Bash", map[string]any{"command": "cat a.txt > b.txt", "description": "copy"}), parleytest.Say("Copied.")).Model()
	c, err := parley.Connect(t.Context(), &parley.Options{Cwd: dir, Dialer: agent.InProcess(agent.Config{Home: dir, Model: model, Store: store}),
		CanUseTool: func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) { return parley.Allow(), nil }})
	if err != nil {
		t.Error(err)
		return
	}
	for _, want := range []string{"Written.", "Copied."} {
		if r, err := run(t, c, "next"); err != nil || r.Result != want {
			t.Errorf("got %+v, %v, want %s", r, err, want)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "b.txt")); string(got) != "text" {
		t.Errorf("got %q, %v, want the copied text", got, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// openFiles returns the number of descriptors of this process, or 0 if the system has no list of them.
func openFiles() int {
	names, _ := os.ReadDir("/proc/self/fd")
	return len(names)
}
