package agent_test

import (
	"context"
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

// The model keeps notes in a directory of the project and nowhere else, and finds their index in the
// next session. Settings and the environment switch it off and on; a project does not.
func TestAutoMemory(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	notes := filepath.Join(home, ".claude", "projects", session.ProjectKey(dir), "memory")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(t.TempDir(), "secret")
	write(secret, "LINKED")
	call := func(name string, in map[string]string) *parleytest.Turn {
		return parleytest.Call(name, in)
	}
	run := func(t *testing.T, sources []string, env []string, opts parley.Options, turns ...*parleytest.Turn) (paths, request string, asked []string) {
		t.Helper()
		m := parleytest.NewModel(t, parleytest.Script(append(turns, parleytest.Say("Done."))...))
		m.Record = true
		cfg := agent.Config{Home: home, Cwd: dir, SettingSources: sources, Environ: env, Model: m, Store: &session.Memory{}}
		opts.Cwd, opts.Dialer, opts.KeepSystemPrompt = dir, agent.InProcess(cfg), opts.SystemPrompt == ""
		opts.CanUseTool = func(_ context.Context, r *wire.CanUseTool) (*wire.PermissionResult, error) {
			asked = append(asked, r.ToolName)
			return parley.Deny("no"), nil
		}
		all, result, err := collect(t, &opts, "hello")
		if err != nil || result.IsError {
			t.Fatal(result, err)
		}
		for _, msg := range all {
			if in, ok := msg.(*wire.Init); ok {
				paths = string(in.MemoryPaths)
			}
		}
		return paths, string(m.Requests()[0].Body), asked
	}
	user := []string{"user"}
	if paths, request, _ := run(t, user, nil, parley.Options{}); paths != "" || strings.Contains(request, "MEMORY.md") {
		t.Errorf("nobody wants notes: memory_paths %s in\n%s", paths, request)
	}
	on := parley.Options{Settings: json.RawMessage(`{"autoMemoryEnabled": true}`)}
	want, _ := json.Marshal(map[string]string{"auto": notes + string(filepath.Separator)})
	other := filepath.Join(home, ".claude", "projects", "other.md")
	paths, request, asked := run(t, user, nil, on,
		call("Write", map[string]string{"file_path": filepath.Join(notes, "MEMORY.md"), "content": "- tabs.md: TABS here\n"}),
		call("Write", map[string]string{"file_path": other, "content": "x"}),
		call("Write", map[string]string{"file_path": filepath.Join(notes, "..", "above.md"), "content": "x"}),
		call("Write", map[string]string{"file_path": filepath.Join(home, ".claude", "settings.json"), "content": "{}"}),
		call("Read", map[string]string{"file_path": filepath.Join(notes, "MEMORY.md")}))
	if paths != string(want) || !strings.Contains(request, "as the index") {
		t.Errorf("memory_paths %s, want %s, in\n%s", paths, want, request)
	}
	if strings.Join(asked, " ") != "Write Write Write" {
		t.Errorf("asked about %v, want the three writes outside of the directory", asked)
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("it wrote outside of the directory")
	}
	for _, c := range []struct {
		name         string
		sources, env []string
		opts         parley.Options
		index, intro bool
	}{
		{"the directory exists", user, nil, parley.Options{}, true, true},
		{"a system prompt of the host", user, nil, parley.Options{SystemPrompt: "You are X."}, true, false},
		{"settings of nobody", nil, nil, parley.Options{}, false, false},
		{"switched off in settings", user, nil, parley.Options{Settings: json.RawMessage(`{"autoMemoryEnabled": false}`)}, false, false},
		{"switched off in the environment", user, []string{"CLAUDE_CODE_DISABLE_AUTO_MEMORY=1"}, parley.Options{Settings: json.RawMessage(`{"autoMemoryEnabled": true}`)}, false, false},
		{"another directory", user, nil, parley.Options{Settings: json.RawMessage(`{"autoMemoryEnabled": true, "autoMemoryDirectory": "~/elsewhere"}`)}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			paths, request, _ := run(t, c.sources, c.env, c.opts)
			if index := strings.Contains(request, "TABS here"); index != c.index {
				t.Errorf("the index is in the request: %v, want %v\n%s", index, c.index, request)
			}
			if intro := strings.Contains(request, "keep notes about this project"); intro != c.intro {
				t.Errorf("the notes are described: %v, want %v", intro, c.intro)
			}
			if (paths != "") != (c.index || c.intro) {
				t.Errorf("memory_paths %s", paths)
			}
		})
	}
	// A project enables nothing, and a link leads nowhere else.
	elsewhere := t.TempDir()
	write(filepath.Join(elsewhere, "MEMORY.md"), "PLANTED")
	text, _ := json.Marshal(map[string]any{"autoMemoryEnabled": true, "autoMemoryDirectory": elsewhere})
	write(filepath.Join(dir, ".claude", "settings.json"), string(text))
	if _, request, _ := run(t, []string{"user", "project"}, []string{"PARLEY_TRUST_PROJECT=all"}, parley.Options{}); strings.Contains(request, "PLANTED") || !strings.Contains(request, "TABS here") {
		t.Errorf("a project names the directory of notes:\n%s", request)
	}
	if err := os.Remove(filepath.Join(notes, "MEMORY.md")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(notes, "MEMORY.md")); err != nil {
		t.Skip(err)
	}
	if _, request, _ := run(t, user, nil, parley.Options{}); strings.Contains(request, "LINKED") {
		t.Errorf("a link leads out of the directory of notes:\n%s", request)
	}
}
