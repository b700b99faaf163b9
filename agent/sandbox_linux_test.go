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
	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// Commands run in the sandbox of the settings. The model cannot leave it, unless the
// settings let it ask and somebody says yes, whatever the rules and the mode allow.
func TestSandbox(t *testing.T) {
	if _, err := os.Stat("/usr/bin/bwrap"); err != nil {
		t.Skip("there is no bwrap")
	}
	for _, tt := range []struct {
		name, settings string
		mode           wire.PermissionMode
		asked, made    bool
		allowBash      bool
	}{
		{"inside", `{"enabled":true}`, wire.ModeBypassPermissions, false, false, false},
		{"a rule", `{"enabled":true}`, wire.ModeDefault, false, false, true},
		{"unasked", `{"enabled":true,"autoAllowBashIfSandboxed":true}`, wire.ModeDefault, false, false, false},
		{"it may ask", `{"enabled":true,"allowUnsandboxedCommands":true}`, wire.ModeBypassPermissions, true, true, false},
		{"it may ask, in spite of a rule", `{"enabled":true,"allowUnsandboxedCommands":true,"autoAllowBashIfSandboxed":true}`, wire.ModeDefault, true, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			outside, err := os.MkdirTemp("/var/tmp", "parley-test-")
			if err != nil {
				t.Skip(err)
			}
			defer os.RemoveAll(outside)
			marker := filepath.Join(outside, "marker")
			turn := parleytest.Call("Bash", map[string]any{"command": "touch made; touch " + marker, "dangerouslyDisableSandbox": true})
			asked := ""
			p := prompt(t, parleytest.Script(turn, parleytest.Say("done")), func(o *parley.Options, cfg *agent.Config) {
				cfg.Root = true
				cfg.Environ = []string{"PATH=" + os.Getenv("PATH")}
				o.PermissionMode, o.AllowBypass = tt.mode, tt.mode == wire.ModeBypassPermissions
				o.Settings = json.RawMessage(`{"sandbox":` + tt.settings + `}`)
				if tt.allowBash {
					o.AllowedTools = []string{"Bash"}
				}
				o.CanUseTool = func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
					asked = req.DecisionReasonType
					return parley.Allow(), nil
				}
			})
			if p.err != nil {
				t.Fatal(p.err)
			}
			if _, err := os.Stat(marker); (err == nil) != tt.made {
				t.Errorf("made outside: %v", err == nil)
			}
			if _, err := os.Stat(filepath.Join(p.dir, "made")); err != nil {
				t.Error(err)
			}
			if (asked == "sandboxOverride") != tt.asked || asked != "" && !tt.asked {
				t.Errorf("asked because of %q", asked)
			}
			for _, m := range p.all {
				if m, ok := m.(*wire.Init); ok {
					var r sandbox.Report
					if err := json.Unmarshal(m.Extra["sandbox"], &r); err != nil || !r.Enabled || r.Kind != sandbox.Bubblewrap || len(r.Enforced) == 0 {
						t.Errorf("%v: %+v", err, r)
					}
				}
			}
		})
	}
}

// What is not held is told.
func TestNoSandbox(t *testing.T) {
	var said []string
	p := prompt(t, parleytest.Script(parleytest.Say("hi")), func(o *parley.Options, cfg *agent.Config) {
		o.Settings = json.RawMessage(`{"sandbox":{"enabled":true,"failIfUnavailable":false,"bwrapPath":"/nonexistent"}}`)
		o.Stderr = func(line string) { said = append(said, line) }
	})
	if p.err != nil || !strings.Contains(strings.Join(said, "\n"), "the sandbox (none) does not hold everything") {
		t.Errorf("%v: %q", p.err, said)
	}
}
