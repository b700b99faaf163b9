package acp_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/acp"
	pt "github.com/parley-go/parley/parleytest"
)

// TestUnsavedFiles checks that with Config.Unsaved the agent reads the text of the editor and changes it, that
// the editor saves its text before the change, and that rules apply before the editor receives a request.
func TestUnsavedFiles(t *testing.T) {
	caps := object{"fs": object{"readTextFile": true, "writeTextFile": true}}
	for name, c := range map[string]struct {
		caps   object
		off    bool
		args   []string
		saves  bool   // the editor saves files
		typed  bool   // the user types after the first read
		reads  string // the text that the model reads
		disk   string // the file at the end
		calls  []string
		result string
	}{
		"on":                {caps: caps, saves: true, reads: "1\tunsaved", disk: "changed\n", calls: []string{"read", "read", "read", "read", "write"}, result: "updated"},
		"off":               {caps: caps, off: true, reads: "1\tsaved", disk: "saved\n", result: "String to replace not found"},
		"not in the editor": {caps: object{"fs": object{"readTextFile": true}}, reads: "1\tsaved", disk: "saved\n", result: "String to replace not found"},
		"denied":            {caps: caps, args: []string{"--disallowedTools", "Read(a.txt)"}, reads: "denied", disk: "saved\n", result: "denied"},
		"not saved":         {caps: caps, reads: "1\tunsaved", disk: "saved\n", result: "did not save"},
		"typed":             {caps: caps, saves: true, typed: true, reads: "1\tunsaved", disk: "saved\n", result: "modified since"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "a.txt")
			model := func(string) *pt.Scenario {
				return pt.Script(
					pt.Call("Read", object{"file_path": file}),
					pt.Expect(pt.ToolResult(c.reads)).Call("Edit", object{"file_path": file, "old_string": "unsaved", "new_string": "changed"}),
					pt.Expect(pt.ToolResult(c.result)).Say("Done."),
				)
			}
			run(t, setting{model: model, dir: dir, caps: c.caps, config: func(cfg *acp.Config) { cfg.Unsaved, cfg.Args = !c.off, c.args }}, func(t *testing.T, e *editor) {
				if err := os.WriteFile(file, []byte("saved\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				text := "unsaved\n"
				var calls []string
				e.permit = func(*frame) any { return selects("allow-once") }
				req := e.send("session/prompt", prompt(e.newSession(), "Change it."))
				f := e.until("the end", func(f *frame) bool {
					var p struct{ Path, Content string }
					json.Unmarshal(f.Params, &p)
					switch f.Method {
					case "fs/read_text_file":
						calls = append(calls, "read")
						if p.Path != file {
							t.Errorf("the agent read %s", p.Path)
						}
						e.write(object{"jsonrpc": "2.0", "id": f.ID, "result": object{"content": text}})
						if c.typed {
							text = "unsaved, and more\n"
						}
					case "fs/write_text_file":
						calls = append(calls, "write")
						if c.saves {
							if err := os.WriteFile(p.Path, []byte(p.Content), 0o600); err != nil {
								t.Error(err)
							}
						}
						e.write(object{"jsonrpc": "2.0", "id": f.ID, "result": nil})
					}
					return f.Method == "" && string(f.ID) == req
				})
				if !strings.Contains(string(f.Result), "end_turn") {
					t.Errorf("%s\n%s", brief(f), e.received())
				}
				if data, _ := os.ReadFile(file); string(data) != c.disk {
					t.Errorf("the file holds %q, want %q", data, c.disk)
				}
				if c.calls != nil && !slices.Equal(calls, c.calls) || (c.off || c.result == "denied") && calls != nil {
					t.Errorf("the editor received %v, want %v", calls, c.calls)
				}
			})
		})
	}
}
