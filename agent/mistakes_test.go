package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// TestMistakesAreFoundFirst checks that a call that cannot succeed reaches neither hooks nor the host, unless its file
// is one that rules deny or that is outside of the working directories.
func TestMistakesAreFoundFirst(t *testing.T) {
	dir, outside := workdir(t)
	note := filepath.Join(dir, "note.ipynb")
	if err := os.WriteFile(note, []byte(`{"cells":[],"metadata":{},"nbformat":4,"nbformat_minor":5}`), 0o600); err != nil {
		t.Fatal(err)
	}
	a, b := filepath.Join(dir, "a.txt"), filepath.Join(outside, "b.txt")
	edit := func(path, before, after string) *parleytest.Turn {
		return parleytest.Call("Edit", map[string]string{"file_path": path, "old_string": before, "new_string": after})
	}
	for _, tt := range []struct {
		name  string
		call  *parleytest.Turn
		read  string // a file to read first
		error string
		asked bool
		deny  string
	}{
		{name: "unread", call: edit(a, "alpha", "beta"), error: "has not been read"},
		{name: "not found", call: edit(a, "gamma", "beta"), read: a, error: "not found"},
		{name: "no change", call: edit(a, "alpha", "alpha"), read: a, error: "exactly the same"},
		{name: "missing", call: edit(filepath.Join(dir, "missing"), "a", "b"), error: "does not exist"},
		{name: "overwritten", call: parleytest.Call("Write", map[string]string{"file_path": a, "content": "x"}), error: "has not been read"},
		{name: "notebook", call: parleytest.Call("NotebookEdit", map[string]string{"notebook_path": note, "cell_id": "c", "new_source": "x"}), error: "has not been read"},
		{name: "task", call: parleytest.Call("TaskStop", map[string]string{"task_id": "none"}), error: "No task found"},
		{name: "address", call: parleytest.Call("WebFetch", map[string]string{"url": "nothing", "prompt": "x"}), error: "Invalid URL"},
		{name: "outside", call: edit(b, "x", "y"), error: "", asked: true},
		{name: "denied", call: edit(filepath.Join(dir, "missing"), "a", "b"), deny: "Edit(missing)", error: "denied by the rule", asked: true},
		{name: "right", call: edit(a, "alpha", "beta"), read: a, asked: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			turns := []*parleytest.Turn{tt.call, parleytest.Expect(parleytest.ToolError(tt.error)).Say("done")}
			if tt.error == "" {
				turns[1] = parleytest.Say("done")
			}
			if tt.read != "" {
				turns = append([]*parleytest.Turn{parleytest.Call("Read", map[string]string{"file_path": tt.read})}, turns...)
			}
			var asked []string
			p := promptIn(t, dir, parleytest.Script(turns...), func(o *parley.Options, _ *agent.Config) {
				if tt.deny != "" {
					o.DisallowedTools = []string{tt.deny}
				}
				see := func(_ context.Context, in wire.HookInput) (*wire.HookOutput, error) {
					if pre, ok := in.(*wire.PreToolUseInput); !ok || pre.ToolName != "Read" {
						asked = append(asked, string(in.Event()))
					}
					return nil, nil
				}
				o.Hooks = []parley.Hook{parley.OnEvent(wire.EventPreToolUse, "", see), parley.OnEvent(wire.EventPostToolUseFailure, "", see)}
				o.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
					asked = append(asked, "host")
					return parley.Deny("no"), nil
				}
			})
			if p.err != nil || (len(asked) > 0) != tt.asked {
				t.Errorf("asked %q, %v; want anything: %v", asked, p.err, tt.asked)
			}
		})
	}
}

// TestResultsNamePathsAsGiven checks that results name a file as the model did, and that a path that the host changed is
// named as the host did.
func TestResultsNamePathsAsGiven(t *testing.T) {
	dir, _ := workdir(t)
	for given, change := range map[string]string{"new.txt": "", "./sub/../b.txt": "", filepath.Join(dir, "c.txt"): "", "d.txt": filepath.Join(dir, "e.txt")} {
		want := given
		if change != "" {
			want = change
		}
		p := promptIn(t, dir, parleytest.Script(
			parleytest.Call("Write", map[string]string{"file_path": given, "content": "x"}),
			parleytest.Expect(parleytest.ToolResult("at: "+want+" ")).Call("Read", map[string]string{"file_path": want}),
			parleytest.Say("done"),
		), func(o *parley.Options, _ *agent.Config) {
			o.CanUseTool = func(_ context.Context, q *wire.CanUseTool) (*wire.PermissionResult, error) {
				if change != "" {
					return parley.AllowInput(map[string]string{"file_path": change, "content": "x"}), nil
				}
				return parley.AllowInput(q.Input), nil
			}
		})
		if p.err != nil {
			t.Error(p.err)
		}
		named := 0
		for _, m := range p.all {
			if u, ok := m.(*wire.User); ok && strings.Contains(string(u.ToolUseResult), `"filePath":"`+want+`"`) {
				named++
			}
		}
		if named != 2 {
			t.Errorf("%d of 2 results name %s", named, want)
		}
	}
}
