package session_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/session/sessiontest"
)

// writerArg makes this program a writer that will be killed.
const writerArg = "session-writer"

// writer appends to sessions, and prints what was acknowledged.
//
//	alone DIR ID FROM       to one session, until it is killed, numbers from FROM on
//	titles DIR N NAME       N times gives one of the sessions a title or a tag, and lists them
//	shared DIR ID OWN NAME  50 times to the session ID, opening it each time, and to OWN
func writer(args []string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	note := func(name string, size int) *session.Entry {
		fill, _ := json.Marshal(strings.Repeat("x", size))
		return &session.Entry{Type: "note-" + name, Fields: map[string]json.RawMessage{"fill": fill}}
	}
	switch args[0] {
	case "alone":
		store := &session.Files{Dir: args[1], LockWait: 2 * time.Second}
		n, err := strconv.Atoi(args[3])
		fail(err)
		log, h, err := session.Open(context.Background(), store, args[2], sessiontest.Meta("", "/src/a"))
		parent := ""
		if err == session.ErrNotFound {
			log, err = session.Create(context.Background(), store, sessiontest.Meta(args[2], "/src/a"))
		} else if err == nil && len(h.Entries) > 0 {
			parent = h.Entries[len(h.Entries)-1].UUID
		}
		fail(err)
		rng := rand.New(rand.NewPCG(uint64(n), 1))
		for {
			var batch []*session.Entry
			first := n
			for range 1 + rng.IntN(3) {
				e := sessiontest.Say("user", strings.Repeat("y", rng.IntN(1<<(3+rng.IntN(15)))), parent)
				e.Fields = map[string]json.RawMessage{"n": json.RawMessage(strconv.Itoa(n))}
				parent = e.UUID
				batch = append(batch, e)
				n++
			}
			fail(log.Append(batch...))
			fmt.Println(first, n)
		}
	case "titles":
		store := &session.Files{Dir: args[1], Durability: session.Write}
		n, err := strconv.Atoi(args[2])
		fail(err)
		all, err := store.List(context.Background(), session.Key{})
		fail(err)
		for i := range n {
			id := all[rand.IntN(len(all))].Key.Session
			text := fmt.Sprint(args[3], "-", i)
			if i%2 == 0 {
				fail(session.Rename(context.Background(), store, id, text, nil))
			} else {
				fail(session.Tag(context.Background(), store, id, text, nil))
			}
			fmt.Println(id, text)
			if i%20 == 0 {
				_, err := session.List(context.Background(), store, nil)
				fail(err)
			}
		}
		fmt.Println("done")
	case "shared":
		store := &session.Files{Dir: args[1], Durability: session.Write, LockWait: 20 * time.Second}
		own, err := session.Create(context.Background(), store, sessiontest.Meta(args[3], "/src/b"))
		fail(err)
		for i := range 50 {
			name := fmt.Sprint(args[4], "-", i)
			log, _, err := session.Open(context.Background(), store, args[2], sessiontest.Meta("", "/src/b"))
			fail(err)
			fail(log.Append(note(name, i*10), note(name+"b", 1)))
			fmt.Println(name)
			fail(log.Close())
			fail(own.Append(note(name, i*100)))
			fmt.Println("own", name)
		}
		fail(own.Close())
		fmt.Println("done")
	}
}

// A child is a running writer.
type child struct {
	cmd *exec.Cmd
	out bytes.Buffer
	any chan struct{} // closed with the first line
	eof chan struct{}
}

func start(t *testing.T, args ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(exe, append([]string{writerArg}, args...)...), any: make(chan struct{}), eof: make(chan struct{})}
	pipe, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.cmd.Stderr = os.Stderr
	c.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.eof)
		first := true
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			c.out.WriteString(lines.Text() + "\n")
			if first {
				first = false
				close(c.any)
			}
		}
		if first {
			close(c.any)
		}
	}()
	return c
}

// end kills the child and returns its output.
func (c *child) end() []string {
	c.cmd.Process.Kill()
	<-c.eof
	c.cmd.Wait()
	return strings.Split(strings.TrimSpace(c.out.String()), "\n")
}

// TestKill kills a writer again and again, and checks that acknowledged records are there, in
// order, and that a batch is there as a whole or not at all.
func TestKill(t *testing.T) {
	t.Parallel()
	dir, id := t.TempDir(), session.NewID()
	store := &session.Files{Dir: dir}
	acked, kills, torn, extra := 0, 0, 0, 0
	for ; kills < 20; kills++ {
		c := start(t, "alone", dir, id, strconv.Itoa(acked))
		<-c.any
		testwait.Pause(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		firsts := map[int]bool{acked: true}
		for _, line := range c.end() {
			var first, next int
			if _, err := fmt.Sscan(line, &first, &next); err != nil {
				t.Fatalf("the writer said %q", line)
			}
			firsts[next] = true
			acked = next
		}
		log, h, err := session.Open(t.Context(), store, id, sessiontest.Meta("", "/src/a"))
		if err != nil {
			t.Fatal(err)
		}
		log.Close()
		if h.Torn {
			torn++
		}
		if h.Corrupt != 0 || len(h.Entries) < acked {
			t.Fatalf("%d entries, %d corrupt, after %d were acknowledged", len(h.Entries), h.Corrupt, acked)
		}
		for i, e := range h.Entries {
			if string(e.Fields["n"]) != strconv.Itoa(i) {
				t.Fatalf("entry %d is number %s", i, e.Fields["n"])
			}
		}
		if len(h.Entries) > acked { // written, and killed before it could print it
			extra++
			acked = len(h.Entries)
		}
	}
	t.Logf("%d kills, %d entries, %d torn, %d not yet acknowledged", kills, acked, torn, extra)
	lines(t, dir)
}

// TestManyProcesses lets many processes write to one shared session in turn and to one session
// each, and kills some.
func TestManyProcesses(t *testing.T) {
	t.Parallel()
	dir, id := t.TempDir(), session.NewID()
	store := &session.Files{Dir: dir}
	log, err := session.Create(t.Context(), store, sessiontest.Meta(id, "/src/a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Append(sessiontest.Say("user", "hello", "")); err != nil {
		t.Fatal(err)
	}
	log.Close()
	const procs = 10
	said := make([][]string, procs)
	owns := make([]string, procs)
	var wg sync.WaitGroup
	for i := range procs {
		owns[i] = session.NewID()
		c := start(t, "shared", dir, id, owns[i], fmt.Sprint("p", i))
		wg.Go(func() {
			if i%3 == 0 {
				<-c.any
				testwait.Pause(time.Duration(rand.IntN(300)) * time.Millisecond)
			} else {
				<-c.eof
			}
			said[i] = c.end()
		})
	}
	wg.Wait()
	read := func(id string) *session.History {
		t.Helper()
		log, h, err := session.Open(t.Context(), store, id, sessiontest.Meta("", "/src/a"))
		if err != nil {
			t.Fatal(err)
		}
		log.Close()
		if h.Corrupt != 0 {
			t.Errorf("%d lines are corrupt", h.Corrupt)
		}
		return h
	}
	shared := read(id)
	n := 0
	for i := range procs {
		finished := false
		var own *session.History
		for _, line := range said[i] {
			switch name, isOwn := strings.CutPrefix(line, "own "); {
			case line == "done":
				finished = true
			case strings.HasPrefix(line, "error"):
				t.Errorf("process %d: %s", i, line)
			case isOwn:
				if own == nil {
					own = read(owns[i])
				}
				if own.Latest["note-"+name] == nil {
					t.Errorf("%s is lost from the session of process %d", name, i)
				}
				n++
			case line != "":
				if shared.Latest["note-"+name] == nil || shared.Latest["note-"+name+"b"] == nil {
					t.Errorf("%s is lost from the shared session", name)
				}
				n++
			}
		}
		if i%3 != 0 && !finished {
			t.Errorf("process %d did not finish: %q", i, said[i])
		}
	}
	t.Logf("%d appends", n)
	lines(t, dir)
}

// TestSharedFiles lets many processes write to the same files, to all those that this package
// shares between processes, and kills most of them at random. It checks that every file can be
// read, and that nothing acknowledged is lost. With PARLEY_TEST_LONG there are 50 processes
// with 200 writes each.
func TestSharedFiles(t *testing.T) {
	t.Parallel()
	procs, writes := 8, 40
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		procs, writes = 50, 200
	}
	dir := t.TempDir()
	store := &session.Files{Dir: dir, Durability: session.Write}
	logs := map[string]string{}
	for range 40 { // enough for a list to be worth keeping
		log, err := session.Create(t.Context(), store, sessiontest.Meta("", "/src/a"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(log.Append(sessiontest.Say("user", "hello", "")), log.Close()); err != nil {
			t.Fatal(err)
		}
		logs[log.ID()] = log.Path()
	}
	said := make([][]string, procs)
	killed := 0
	var wg sync.WaitGroup
	for i := range procs {
		c := start(t, "titles", dir, strconv.Itoa(writes), fmt.Sprint("p", i))
		kill := i%4 != 0
		if kill {
			killed++
		}
		wg.Go(func() {
			if kill {
				<-c.any
				testwait.Pause(time.Duration(rand.IntN(writes*3)) * time.Millisecond)
			} else {
				<-c.eof
			}
			said[i] = c.end()
		})
	}
	wg.Wait()
	texts := map[string]string{}
	for id, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[id] = string(text)
	}
	n := 0
	for i, all := range said {
		for _, line := range all {
			id, text, ok := strings.Cut(line, " ")
			if line == "" || line == "done" {
				continue
			}
			if !ok || texts[id] == "" {
				t.Fatalf("process %d said %q", i, line)
			}
			n++
			if !strings.Contains(texts[id], `"`+text+`"`) {
				t.Errorf("%s of %s was acknowledged and is lost", text, id)
			}
		}
		if i%4 == 0 && all[len(all)-1] != "done" {
			t.Errorf("process %d did not finish: %q", i, all[len(all)-1])
		}
	}
	if infos, err := session.List(t.Context(), store, nil); err != nil || len(infos) != 40 {
		t.Errorf("%d sessions, %v", len(infos), err)
	}
	for id := range logs {
		log, h, err := session.Open(t.Context(), store, id, sessiontest.Meta("", "/src/a"))
		if err != nil || h.Corrupt != 0 || len(h.Entries) != 1 {
			t.Fatalf("%v, %+v", err, h)
		}
		log.Close()
	}
	lines(t, dir)
	var cache struct{ Version int }
	if text, err := os.ReadFile(filepath.Join(dir, "parley-sessions.gob")); err != nil || gob.NewDecoder(bytes.NewReader(text)).Decode(&cache) != nil || cache.Version != 1 {
		t.Errorf("what a list keeps cannot be read: %v", err)
	}
	t.Logf("%d writes of %d processes, %d of them killed", n, procs, killed)
}

// lines checks that every line of every file is JSON.
func lines(t *testing.T, dir string) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "projects", "*", "*.jsonl"))
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			if !json.Valid(line) {
				t.Errorf("%s: %.100q", name, line)
			}
		}
	}
}
