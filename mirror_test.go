package parley_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// A recorder is a store that fails a given number of times.
type recorder struct {
	session.Memory
	mu    sync.Mutex
	calls []string
	fails int
}

func (r *recorder) Append(ctx context.Context, key session.Key, records []json.RawMessage) error {
	r.mu.Lock()
	r.calls = append(r.calls, key.String())
	failed := r.fails > 0
	r.fails--
	r.mu.Unlock()
	if failed {
		return errors.New("the disk is full")
	}
	return r.Memory.Append(ctx, key, records)
}

// mirrors returns options for an agent that mirrors two files and ends its turn.
func mirrors(t *testing.T, dir string) *parley.Options {
	o := agent(t, func(a *agentEnd) int {
		a.hello()
		a.wait("user")
		for _, file := range []string{someUUID + ".jsonl", someUUID + "/subagents/agent-1.jsonl", someUUID + ".jsonl"} {
			path, _ := json.Marshal(filepath.Join(dir, "projects", "-src", filepath.FromSlash(file)))
			a.send(`{"type":"transcript_mirror","filePath":%s,"entries":[{"type":"user","text":"a"},{"type":"user","text":"b"}]}`, path)
		}
		a.send(`{"type":"transcript_mirror","filePath":"/elsewhere/x.jsonl","entries":[{"type":"user"}]}`)
		a.done()
		a.wait("") // until the input ends
		path, _ := json.Marshal(filepath.Join(dir, "projects", "-src", someUUID+".jsonl"))
		a.send(`{"type":"transcript_mirror","filePath":%s,"entries":[{"type":"last"}]}`, path)
		return 0
	})
	o.Env = map[string]string{"CLAUDE_CONFIG_DIR": dir}
	return o
}

// TestSessionStore checks that records of the agent are in the store before the result:
// one append for each file, in order. The last records are in it when the query has
// ended.
func TestSessionStore(t *testing.T) {
	dir := t.TempDir()
	bubble(t, func(t *testing.T) {
		store, warned := &recorder{}, &collector{}
		o := mirrors(t, dir)
		o.SessionStore, o.OnWarning = store, warned.add
		key := session.Key{Project: "-src", Session: someUUID}
		for m, err := range parley.Query(t.Context(), "do it", o) {
			if err != nil {
				t.Fatal(err)
			}
			switch m.(type) {
			case *wire.TranscriptMirror, *wire.MirrorError:
				t.Errorf("it yields %T", m)
			case *wire.Result:
				if got, err := store.Load(t.Context(), key); err != nil || len(got) < 4 { // the agent may have continued
					t.Errorf("at the result the store holds %d records, %v, want 4", len(got), err)
				}
			}
		}
		want := []string{key.String(), key.String() + "/subagents/agent-1"}
		if len(store.calls) > 3 || !slices.Equal(store.calls[:2], want) {
			t.Errorf("appends to %q, want %q and the last", store.calls, want)
		}
		if got, err := store.Load(t.Context(), key); err != nil || len(got) != 5 {
			t.Errorf("at the end the store holds %d records, %v, want 5", len(got), err)
		}
		if all := warned.all(); len(all) != 1 || !strings.Contains(all[0].Error(), "/elsewhere/x.jsonl") {
			t.Errorf("warnings: %v", all)
		}
	})
}

// TestSessionStoreFails checks that failed appends are repeated, that a store that
// keeps failing loses the batch, and that the consumer receives the error before the
// result.
func TestSessionStoreFails(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ fails, errors int }{{2, 0}, {3, 1}, {6, 2}} {
		bubble(t, func(t *testing.T) {
			store := &recorder{fails: c.fails}
			o := mirrors(t, dir)
			o.SessionStore = store
			got := ask(t.Context(), o, 0)
			wantResult(t, got, "done")
			if n := count[*wire.MirrorError](got); n != c.errors {
				t.Errorf("%d failures: %d errors are told, want %d", c.fails, n, c.errors)
			}
			for i, m := range got.messages {
				if e, ok := m.(*wire.MirrorError); ok && (i >= len(got.messages)-1 || !strings.Contains(e.Error, "disk is full") || !strings.Contains(string(e.Key), someUUID)) {
					t.Errorf("message %d of %d: %+v", i, len(got.messages), e)
				}
			}
			if got.took < time.Second {
				t.Errorf("it took %v: there was no pause", got.took)
			}
		})
	}
}

// TestSessionStoreResume checks that the agent gets a session of the store in a
// directory that is gone afterwards.
func TestSessionStoreResume(t *testing.T) {
	store := &session.Memory{}
	cwd, home := t.TempDir(), t.TempDir()
	config := filepath.Join(home, ".claude")
	for name, text := range map[string]string{
		"settings.json":     `{"model":"x","enabledPlugins":{"a":true},"env":{"CLAUDE_CONFIG_DIR":"/x","A":"b"}}`,
		".credentials.json": `{"login":{"accessToken":"a","refreshToken":"r"}}`,
	} {
		os.MkdirAll(config, 0o700)
		if err := os.WriteFile(filepath.Join(config, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key := session.Key{Project: session.ProjectKey(cwd), Session: someUUID}
	part := key
	part.Sub = "subagents/agent-1"
	line := json.RawMessage(`{"type":"user","uuid":"a","message":{"role":"user","content":"hi"}}`)
	if err := errors.Join(store.Append(t.Context(), key, []json.RawMessage{line}), store.Append(t.Context(), part, []json.RawMessage{line})); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "agent")
	// It prints the directory of its files and its input, and fails.
	err := os.WriteFile(script, []byte("#!/bin/sh\nprintf '%s\\n' \"$CLAUDE_CONFIG_DIR\" \"$*\" >&2\ncd \"$CLAUDE_CONFIG_DIR\" && find . -type f >&2\ncat settings.json .credentials.json >&2\nexit 3\n"), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("no shell here")
	}
	for name, o := range map[string]parley.Options{"Resume": {Resume: someUUID}, "Continue": {Continue: true}} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var lines []string
			o.Path, o.Cwd, o.SessionStore, o.Env = script, cwd, store, map[string]string{"HOME": home, "CLAUDE_CONFIG_DIR": ""}
			o.Stderr = func(line string) { mu.Lock(); defer mu.Unlock(); lines = append(lines, line) }
			ask(t.Context(), &o, 0)
			mu.Lock()
			defer mu.Unlock()
			said := strings.Join(lines, "\n")
			for _, want := range []string{"--resume=" + someUUID, "--session-mirror", "./projects/" + key.Project + "/" + someUUID + ".jsonl", someUUID + "/subagents/agent-1.jsonl", `"model":"x"`, `"A":"b"`, `"accessToken":"a"`} {
				if !strings.Contains(said, want) {
					t.Errorf("the agent does not see %s:\n%s", want, said)
				}
			}
			for _, not := range []string{"--continue", "refreshToken", "enabledPlugins", `"CLAUDE_CONFIG_DIR"`} {
				if strings.Contains(said, not) {
					t.Errorf("the agent sees %s:\n%s", not, said)
				}
			}
			if len(lines) == 0 || !strings.Contains(lines[0], "parley-resume-") {
				t.Fatalf("it says %q", lines)
			}
			if _, err := os.Stat(lines[0]); err == nil {
				t.Errorf("%s is left", lines[0])
			}
		})
	}
	broken := &parley.Options{Path: script, Resume: someUUID, SessionStore: failing{store}}
	if got := ask(t.Context(), broken, 0); got.err == nil || !strings.Contains(got.err.Error(), "SessionStore") {
		t.Errorf("a store that fails: %v", got.err)
	}
	// With its own connection the agent finds the session itself.
	var args []string
	own := &parley.Options{Resume: someUUID, SessionStore: store, Dialer: transport.DialerFunc(func(_ context.Context, spec transport.Spec) (transport.Conn, error) {
		args = spec.Args()
		return nil, errors.New("no")
	})}
	ask(t.Context(), own, 0)
	if !slices.Contains(args, "--resume="+someUUID) || !slices.Contains(args, "--session-mirror") {
		t.Errorf("arguments %q", args)
	}
}

type failing struct{ session.Store }

func (failing) List(context.Context, session.Key) ([]session.Listed, error) {
	return nil, errors.New("no route")
}

// A stubbornStore never returns from Append before its release.
type stubbornStore struct {
	session.Store
	release chan struct{}
}

func (s stubbornStore) Append(context.Context, session.Key, []json.RawMessage) error {
	<-s.release
	return nil
}

// TestSessionStoreStubborn checks that Close ends a turn that waits for a store that ignores
// its context.
func TestSessionStoreStubborn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts := agent(t, func(a *agentEnd) int {
			a.hello()
			a.wait("user")
			a.send(`{"type":"transcript_mirror","filePath":"projects/p/6f1c2f0e-6c1c-4f0a-9d55-0a9f6c1b2d3e.jsonl","entries":[{"type":"user"}]}`)
			a.done()
			a.wait("eof")
			return 0
		})
		release := make(chan struct{})
		defer close(release)
		opts.SessionStore = stubbornStore{&session.Memory{}, release}
		c := connect(t, opts)
		time.AfterFunc(time.Second, func() { c.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		for range c.Turn(ctx, "hi") {
		}
		if took := time.Since(start); took > 2*time.Minute {
			t.Errorf("the turn ended after %v", took)
		}
	})
}
