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
	"github.com/parley-go/parley/wire"
)

// changers are the ways to change the input of a call after somebody saw another one.
var changers = map[string]func(o *parley.Options, input json.RawMessage){
	"hook that allows": func(o *parley.Options, input json.RawMessage) {
		o.Hooks = append(o.Hooks, inputHook(wire.BehaviorAllow, input))
	},
	"hook that does not decide": func(o *parley.Options, input json.RawMessage) {
		o.Hooks = append(o.Hooks, inputHook("", input))
	},
	"hook behind one that allows": func(o *parley.Options, input json.RawMessage) {
		o.Hooks = append(o.Hooks, inputHook(wire.BehaviorAllow, nil), inputHook("", input))
	},
	"hook before one that allows": func(o *parley.Options, input json.RawMessage) {
		o.Hooks = append(o.Hooks, inputHook("", input), inputHook(wire.BehaviorAllow, nil))
	},
	"host": func(o *parley.Options, input json.RawMessage) {
		o.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
			return &wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedInput: input}, nil
		}
	},
	"hook for the question": func(o *parley.Options, input json.RawMessage) {
		o.Hooks = append(o.Hooks, parley.On("", func(context.Context, *wire.PermissionRequestInput) (*wire.HookOutput, error) {
			return &wire.HookOutput{HookSpecificOutput: &wire.PermissionRequestOutput{Decision: &wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedInput: input}}}, nil
		}))
	},
}

func inputHook(b wire.PermissionBehavior, input json.RawMessage) parley.Hook {
	return parley.On("", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) {
		return &wire.HookOutput{HookSpecificOutput: &wire.PreToolUseOutput{PermissionDecision: b, UpdatedInput: input}}, nil
	})
}

// TestChangedInputAttacks checks that a rule and plan mode apply to the input that
// runs, whoever changed it, whatever was checked before.
func TestChangedInputAttacks(t *testing.T) {
	const rules = `{"permissions":{"deny":["Bash(touch:*)","Read(.env)","Edit(secrets/**)"],"ask":["Bash(sort:*)"]}}`
	for _, c := range []struct{ tool, from, to string }{
		{"Bash", `{"command":"sort -o x a.txt"}`, `{"command":"touch made"}`},
		{"Bash", `{"command":"sort -o x a.txt"}`, `{"command":"bash -c 'touch made'"}`},
		{"Bash", `{"command":"sort -o x a.txt"}`, `{"command":"echo ${v:-<(touch made)}"}`},
		{"Bash", `{"command":"sort -o x a.txt"}`, `{"command":"touch made","dangerouslyDisableSandbox":true}`},
		{"Bash", `{"command":"sort -o x a.txt"}`, `{"command":"touch made","run_in_background":true}`},
		{"Bash", `{"command":"sort -o x a.txt"}`, `{"command":"cat .env"}`},
		{"Bash", `{"command":"sort -o x a.txt"}`, `{"command":"cat link"}`},
		{"Bash", `{"command":"sort -o x a.txt"}`, `{"command":"cp a.txt secrets/made"}`},
		{"Write", `{"file_path":"DIR/w","content":"x"}`, `{"file_path":"DIR/secrets/made","content":"x"}`},
		{"Write", `{"file_path":"DIR/w","content":"x"}`, `{"file_path":"DIR/sub/../secrets/made","content":"x"}`},
		{"Write", `{"file_path":"DIR/w","content":"x"}`, `{"file_path":"DIR/way/made","content":"x"}`},
		{"NotebookEdit", `{"notebook_path":"DIR/n.ipynb","new_source":"x"}`, `{"notebook_path":"DIR/secrets/n.ipynb","new_source":"made"}`},
		{"Read", `{"file_path":"OUT/b.txt"}`, `{"file_path":"DIR/.env"}`},
		{"Read", `{"file_path":"OUT/b.txt"}`, `{"file_path":"DIR/link"}`},
		{"Grep", `{"pattern":"hush","path":"OUT"}`, `{"pattern":"hush","path":"DIR/.env","output_mode":"content"}`},
	} {
		for name, change := range changers {
			for _, mode := range []wire.PermissionMode{wire.ModeDefault, wire.ModePlan} {
				dir, outside := workdir(t)
				notebook := []byte(`{"cells":[{"cell_type":"code","id":"a","metadata":{},"outputs":[],"execution_count":null,"source":["x"]}],"metadata":{},"nbformat":4,"nbformat_minor":5}`)
				for _, sub := range []string{"sub", "secrets"} {
					os.Mkdir(filepath.Join(dir, sub), 0o777)
				}
				os.Symlink(".env", filepath.Join(dir, "link"))
				os.Symlink("secrets", filepath.Join(dir, "way"))
				os.WriteFile(filepath.Join(dir, "n.ipynb"), notebook, 0o666)
				os.WriteFile(filepath.Join(dir, "secrets", "n.ipynb"), notebook, 0o666)
				fill := strings.NewReplacer("DIR", dir, "OUT", outside).Replace
				told := ""
				p := promptIn(t, dir, parleytest.Script(parleytest.Call(c.tool, fill(c.from)), parleytest.Expect(parleytest.Check("told", func(r *parleytest.Request) error {
					told = r.ToolResults()[0].Text
					return nil
				})).Say("done")), func(o *parley.Options, _ *agent.Config) {
					o.Settings, o.PermissionMode = json.RawMessage(rules), mode
					change(o, json.RawMessage(fill(c.to)))
				})
				if got := outcomes(p); got == "ran" || strings.Contains(told, "hush") {
					t.Errorf("%s %s in mode %s by a %s: %s %s", c.tool, c.to, mode, name, got, told)
				}
				for _, made := range []string{"made", "secrets/made"} {
					if _, err := os.Lstat(filepath.Join(dir, made)); err == nil {
						t.Errorf("%s %s in mode %s by a %s: the file was made", c.tool, c.to, mode, name)
					}
				}
				if data, _ := os.ReadFile(filepath.Join(dir, "secrets", "n.ipynb")); string(data) != string(notebook) {
					t.Errorf("%s %s in mode %s by a %s: the notebook was changed", c.tool, c.to, mode, name)
				}
			}
		}
	}
}

// TestShownInputRuns checks that a person who is asked about an input that a hook
// changed sees the changed one, and that this one runs. A hook that allowed another
// input did not allow it.
func TestShownInputRuns(t *testing.T) {
	for name, change := range changers {
		if !strings.HasPrefix(name, "hook ") || name == "hook that allows" || name == "hook for the question" {
			continue
		}
		for _, mode := range []wire.PermissionMode{wire.ModeDefault, wire.ModeDontAsk} {
			dir, _ := workdir(t)
			var shown []string
			p := promptIn(t, dir, parleytest.Script(parleytest.Call("Bash", `{"command":"ls"}`), parleytest.Say("done")), func(o *parley.Options, _ *agent.Config) {
				o.PermissionMode = mode
				change(o, json.RawMessage(`{"command":"touch made"}`))
				o.CanUseTool = func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
					shown = append(shown, string(req.Input)+req.Description)
					return parley.Allow(), nil
				}
			})
			_, err := os.Lstat(filepath.Join(dir, "made"))
			if mode == wire.ModeDontAsk {
				if err == nil || len(shown) > 0 {
					t.Errorf("%s in mode %s: shown %q, the command ran: %v", name, mode, shown, err == nil)
				}
				continue
			}
			if want := `{"command":"touch made"}touch made`; len(shown) != 1 || shown[0] != want || err != nil || outcomes(p) != "ran" {
				t.Errorf("%s: shown %q, want %q; %v, %s", name, shown, want, err, outcomes(p))
			}
		}
	}
}
