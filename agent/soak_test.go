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
// does not grow. PARLEY_SOAK=1h plays 200 conversations at a time for an hour. With PARLEY_SOAK_ROUND=1m a round
// takes at least a minute: its conversations stay open, and the processors have time for other work.
func TestSoak(t *testing.T) {
	conversations, rounds, end := 12, 6, time.Time{}
	if d, err := time.ParseDuration(os.Getenv("PARLEY_SOAK")); err == nil {
		conversations, rounds, end = 200, 1<<30, time.Now().Add(d)
	}
	least, _ := time.ParseDuration(os.Getenv("PARLEY_SOAK_ROUND"))
	const warm = 2 // rounds that fill caches
	var first, last, most uint64
	routines, descriptors, done := 0, 0, 0
	for round := range rounds {
		if !end.IsZero() && round > warm && time.Now().After(end) {
			break
		}
		began, dir := time.Now(), t.TempDir()
		store := &session.Files{Dir: filepath.Join(dir, "config")}
		clients := make([]*parley.Client, conversations)
		slots := make(chan struct{}, 8) // for work
		each := func(f func(i int)) {
			var work sync.WaitGroup
			for i := range conversations {
				work.Go(func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					f(i)
				})
			}
			work.Wait()
		}
		each(func(i int) {
			clients[i] = beginSoak(t, filepath.Join(dir, fmt.Sprint(i)), store)
		})
		if t.Failed() {
			return
		}
		testwait.Pause(time.Until(began.Add(least)))
		each(func(i int) { endSoak(t, filepath.Join(dir, fmt.Sprint(i)), clients[i]) })
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

// beginSoak begins a conversation, with a turn that writes a file.
func beginSoak(t *testing.T, dir string, store session.Store) *parley.Client {
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Error(err)
		return nil
	}
	file := filepath.Join(dir, "a.txt")
	model := parleytest.Script(parleytest.Call("Write", map[string]any{"file_path": file, "content": "text"}), parleytest.Say("Written."),
		parleytest.Call("Bash", map[string]any{"command": "cat a.txt > b.txt", "description": "copy"}), parleytest.Say("Copied.")).Model()
	// At a low priority an agent can wait minutes for a processor. One that never ends still fails the test.
	c, err := parley.Connect(t.Context(), &parley.Options{Cwd: dir, CloseTimeout: 10 * time.Minute, Dialer: agent.InProcess(agent.Config{Home: dir, Model: model, Store: store}),
		CanUseTool: func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) { return parley.Allow(), nil }})
	if err != nil {
		t.Error(err)
		return nil
	}
	if r, err := run(t, c, "write"); err != nil || r.Result != "Written." {
		t.Errorf("got %+v, %v, want that a file was written", r, err)
	}
	return c
}

// endSoak ends a conversation, after a turn that runs a command.
func endSoak(t *testing.T, dir string, c *parley.Client) {
	if r, err := run(t, c, "copy"); err != nil || r.Result != "Copied." {
		t.Errorf("got %+v, %v, want that a command ran", r, err)
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
