package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestRewind changes files with tools and with a command, in two processes, and
// restores them; the user's own changes stay, and are named.
func TestRewind(t *testing.T) {
	for _, kept := range []bool{true, false} {
		dir, _ := workdir(t)
		home := t.TempDir()
		path := func(name string) string { return filepath.Join(dir, name) }
		read := func(name string) string { text, _ := os.ReadFile(path(name)); return string(text) }
		m := parleytest.Script(
			parleytest.Call("Read", map[string]string{"file_path": path("a.txt")}),
			parleytest.Call("Edit", map[string]string{"file_path": path("a.txt"), "old_string": "alpha", "new_string": "omega"}),
			parleytest.Call("Write", map[string]string{"file_path": path("new.txt"), "content": "new\n"}),
			parleytest.Say("one"),
			parleytest.Call("Bash", map[string]string{"command": "echo more >> a.txt; rm new.txt; echo x > sub.txt"}),
			parleytest.Say("two"),
		).Model()
		m.Strict = true
		opts := parley.Options{Cwd: dir, PermissionMode: wire.ModeAcceptEdits, AllowedTools: []string{"Bash"}, Checkpoints: true, NoPersistence: !kept,
			Env:    map[string]string{"CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "true"},
			Dialer: agent.InProcess(agent.Config{Model: m, Home: home, Environ: []string{"CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING=true", "PATH=" + os.Getenv("PATH")}})}
		const first, second = "a1111111-1111-4111-8111-111111111111", "a2222222-2222-4222-8222-222222222222"
		say := func(c *parley.Client, uuid string) string {
			t.Helper()
			id := ""
			p := wire.Prompt(wire.Text("go"))
			p.UUID = uuid
			if err := c.Send(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			for msg, err := range c.Messages(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if r, ok := msg.(*wire.Result); ok {
					if r.IsError {
						t.Fatalf("%+v", r)
					}
					id = r.SessionID
					break
				}
			}
			return id
		}
		c, err := parley.Connect(t.Context(), &opts)
		if err != nil {
			t.Fatal(err)
		}
		id := say(c, first)
		if kept {
			c.Close()
			opts.Resume = id
			if c, err = parley.Connect(t.Context(), &opts); err != nil {
				t.Fatal(err)
			}
		}
		say(c, second)
		if read("a.txt") != "omega\nmore\n" || read("new.txt") != "" || read("sub.txt") != "x\n" {
			t.Fatalf("a %q, new %q, sub %q", read("a.txt"), read("new.txt"), read("sub.txt"))
		}
		dry, err := c.RewindFiles(t.Context(), second, true)
		if err != nil || !dry.CanRewind || len(dry.FilesChanged) != 3 || *dry.Insertions != 1 || *dry.Deletions != 2 || read("sub.txt") != "x\n" {
			t.Fatalf("dry: %+v, %v", dry, err)
		}
		if r, err := c.RewindFiles(t.Context(), second, false); err != nil || !r.CanRewind {
			t.Fatalf("%+v, %v", r, err)
		}
		if read("a.txt") != "omega\n" || read("new.txt") != "new\n" || read("sub.txt") != "" {
			t.Fatalf("before the second: a %q, new %q, sub %q", read("a.txt"), read("new.txt"), read("sub.txt"))
		}
		if err := os.WriteFile(path("new.txt"), []byte("of the user\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := c.RewindFiles(t.Context(), first, false)
		if err != nil || !r.CanRewind || !strings.Contains(r.Error, "somebody else changed") || !strings.Contains(string(r.Extra["conflicts"]), "new.txt") {
			t.Fatalf("%+v, %v", r, err)
		}
		if read("a.txt") != "alpha\n" || read("new.txt") != "of the user\n" {
			t.Fatalf("before the first: a %q, new %q", read("a.txt"), read("new.txt"))
		}
		if _, err := c.RewindFiles(t.Context(), "a9999999-9999-4999-8999-999999999999", true); err == nil || !strings.Contains(err.Error(), "No file checkpoint found for this message.") {
			t.Errorf("unknown message: %v", err)
		}
		c.Close()
		if !kept {
			continue
		}
		// It moves with the session.
		file, err := os.Create(filepath.Join(home, "moved"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		from, to := &session.Files{Dir: filepath.Join(home, ".claude")}, &session.Memory{}
		if err := session.Export(t.Context(), from, id, file, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := file.Seek(0, 0); err != nil {
			t.Fatal(err)
		}
		if moved, err := session.Import(t.Context(), to, file, nil); err != nil || moved != id {
			t.Fatal(moved, err)
		}
		if records, err := session.Records(t.Context(), to, id, "checkpoints", nil); err != nil || len(records) < 5 {
			t.Errorf("%d checkpoints moved, %v", len(records), err)
		}
	}
}

// TestRewindIsOff: without the variable nothing is kept.
func TestRewindIsOff(t *testing.T) {
	opts, _, _ := inProcess(t, parleytest.Script(parleytest.Say("hi")))
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.RewindFiles(t.Context(), "a1111111-1111-4111-8111-111111111111", false); err == nil || !strings.Contains(err.Error(), "File rewinding is not enabled.") {
		t.Error(err)
	}
}

// TestPrefixIsHeld: a session continues with its original prompt and tools, whatever
// they are in this version.
func TestPrefixIsHeld(t *testing.T) {
	dir, _ := workdir(t)
	store := &session.Memory{}
	id := session.NewID()
	ask := func(change func(opts *parley.Options)) (system, tools string) {
		t.Helper()
		m := parleytest.Script(parleytest.Say("ok")).Model()
		m.Record = true
		opts := parley.Options{Cwd: dir, Resume: id, Dialer: agent.InProcess(agent.Config{Model: m, Store: store})}
		if change != nil {
			change(&opts)
		}
		if _, _, err := collect(t, &opts, "hi"); err != nil {
			t.Fatal(err)
		}
		var body struct{ System, Tools json.RawMessage }
		if err := json.Unmarshal(m.Requests()[0].Body, &body); err != nil {
			t.Fatal(err)
		}
		return string(body.System), string(body.Tools)
	}
	ask(func(o *parley.Options) { o.Resume, o.SessionID = "", id })
	// An older version wrote it.
	records, err := session.Records(t.Context(), store, id, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if !strings.Contains(string(r[:40]), "parley-prefix") {
			continue
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(r, &m); err != nil {
			t.Fatal(err)
		}
		m["system"] = json.RawMessage(`[{"type":"text","text":"The words of an older version."}]`)
		m["tools"] = json.RawMessage(strings.Replace(string(m["tools"]), `"description":"`, `"description":"OLD `, 1))
		old, _ := json.Marshal(m)
		if err := store.Append(t.Context(), session.Key{Project: session.ProjectKey(dir), Session: id}, []json.RawMessage{old}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		system, tools := ask(nil)
		if !strings.Contains(system, "older version") || !strings.Contains(tools, "OLD ") {
			t.Errorf("system %.200s, tools %.200s", system, tools)
		}
	}
	if _, tools := ask(func(o *parley.Options) { o.Tools = []string{"Read"} }); strings.Contains(tools, `"name":"Bash"`) || !strings.Contains(tools, `"name":"Read"`) {
		t.Errorf("other tools were asked for, and it has %.300s", tools)
	}
}

// TestTornLineIsReportedOnce checks that the host is informed that a line was lost.
func TestTornLineIsReportedOnce(t *testing.T) {
	dir, _ := workdir(t)
	home := t.TempDir()
	id := session.NewID()
	run := func(opts parley.Options) []wire.Message {
		t.Helper()
		m := parleytest.Script(parleytest.Say("ok")).Model()
		opts.Cwd, opts.Dialer = dir, agent.InProcess(agent.Config{Model: m, Home: home})
		all, _, err := collect(t, &opts, "hi")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	run(parley.Options{SessionID: id})
	logs, _ := filepath.Glob(filepath.Join(home, ".claude", "projects", "*", "*.jsonl"))
	file, err := os.OpenFile(logs[0], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	file.WriteString(`{"type":"user","mess`)
	file.Close()
	reported := func(all []wire.Message) bool {
		for _, m := range all {
			if i, ok := m.(*wire.Informational); ok && strings.Contains(i.Content, "incomplete") {
				return true
			}
		}
		return false
	}
	if first, second := reported(run(parley.Options{Resume: id})), reported(run(parley.Options{Resume: id})); !first || second {
		t.Errorf("an incomplete line is reported: %v, and again: %v", first, second)
	}
}
