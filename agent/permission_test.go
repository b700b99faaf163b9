package agent_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// workdir creates a directory with two files, beside one that is not in the project.
func workdir(t *testing.T) (dir, outside string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, outside = filepath.Join(base, "project"), filepath.Join(base, "outside")
	for _, d := range []string{dir, outside} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{filepath.Join(dir, "a.txt"): "alpha\n", filepath.Join(dir, ".env"): "KEY=hush\n", filepath.Join(outside, "b.txt"): "beta\n"} {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir, outside
}

// outcomes returns how the calls of a turn ended: "ran", "failed", "denied" or "rejected by
// SOURCE".
func outcomes(p played) string {
	denied := map[string]bool{}
	for _, d := range p.r.PermissionDenials {
		denied[d.ToolUseID] = true
	}
	var all []string
	for _, b := range resultsByCall(p.all) {
		switch {
		case denied[b.ToolUseID]:
			all = append(all, "denied")
		case b.IsError:
			all = append(all, "failed")
		default:
			all = append(all, "ran")
		}
	}
	return strings.Join(all, " ")
}

// resultsByCall returns the results of calls in the order in which the model made the calls.
func resultsByCall(all []wire.Message) []*wire.ToolResultBlock {
	var ids []string
	var results []*wire.ToolResultBlock
	for _, m := range all {
		var content wire.Content
		switch m := m.(type) {
		case *wire.Assistant:
			content = m.Message.Content
		case *wire.User:
			content = m.Message.Content
		}
		for _, b := range content.Blocks {
			switch b := b.(type) {
			case *wire.ToolUseBlock:
				ids = append(ids, b.ID)
			case *wire.ToolResultBlock:
				results = append(results, b)
			}
		}
	}
	slices.SortStableFunc(results, func(a, b *wire.ToolResultBlock) int {
		return cmp.Compare(slices.Index(ids, a.ToolUseID), slices.Index(ids, b.ToolUseID))
	})
	return results
}

// TestPermissionModes plays calls of several tools in every mode, with a host that allows
// and counts, and without a host.
func TestPermissionModes(t *testing.T) {
	calls := []string{"read", "read outside", "write", "write outside", "bash", "echo"}
	for _, tt := range []struct {
		mode  wire.PermissionMode
		hosts string // the host's requests, with one
		alone string // the outcomes of the calls without one
	}{
		{wire.ModeDefault, "read outside, write, write outside, bash", "ran denied denied denied denied ran"},
		{wire.ModeAcceptEdits, "read outside, write outside", "ran denied ran denied ran ran"},
		{wire.ModePlan, "read outside", "ran denied denied denied denied ran"},
		{wire.ModeDontAsk, "", "ran denied denied denied denied ran"},
		{wire.ModeBypassPermissions, "", "ran ran ran ran ran ran"},
	} {
		for _, host := range []string{"host", "nobody", "no prompts"} {
			t.Run(fmt.Sprintf("%s with %s", tt.mode, host), func(t *testing.T) {
				t.Parallel()
				dir, outside := workdir(t)
				turn := parleytest.Call("Read", map[string]string{"file_path": filepath.Join(dir, "a.txt")}).
					Call("Read", map[string]string{"file_path": filepath.Join(outside, "b.txt")}).
					Call("Write", map[string]string{"file_path": filepath.Join(dir, "new"), "content": "x"}).
					Call("Write", map[string]string{"file_path": filepath.Join(outside, "new"), "content": "x"}).
					Call("Bash", map[string]string{"command": "touch made"}).
					Call("Bash", map[string]string{"command": "echo hello"})
				var asked []string
				p := promptIn(t, dir, parleytest.Script(turn, parleytest.Say("done")), func(o *parley.Options, cfg *agent.Config) {
					o.PermissionMode, o.AllowBypass = tt.mode, tt.mode == wire.ModeBypassPermissions
					switch host {
					case "host":
						o.CanUseTool = func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
							var n int
							fmt.Sscanf(req.ToolUseID, "toolu_main_1_%d", &n)
							asked = append(asked, calls[n-1])
							return parley.Allow(), nil
						}
					case "no prompts":
						o.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
							t.Error("it asked")
							return parley.Allow(), nil
						}
						o.NoPermissionPrompts = true
					}
				})
				if host == "host" {
					if got := strings.Join(asked, ", "); got != tt.hosts {
						t.Errorf("asked about %s, want %s", got, tt.hosts)
					}
					return
				}
				if got := outcomes(p); got != tt.alone {
					t.Errorf("got %s, want %s", got, tt.alone)
				}
				for _, m := range p.all {
					if d, ok := m.(*wire.PermissionDenied); ok && host == "no prompts" && tt.mode == wire.ModeDefault && d.DecisionReasonType != "asyncAgent" {
						t.Errorf("%+v", d)
					}
				}
				if _, err := os.Stat(filepath.Join(outside, "new")); (err == nil) != (tt.mode == wire.ModeBypassPermissions) {
					t.Errorf("the file outside: %v", err)
				}
			})
		}
	}
}

// TestDenyWins tries to bypass a rule in every other way.
func TestDenyWins(t *testing.T) {
	deny := `{"permissions":{"deny":["Bash(touch:*)","Write","Read(.env)"],"allow":["Bash","Write","Read"]}}`
	dir, _ := workdir(t)
	for name, change := range map[string]func(*parley.Options){
		"allow rules": func(o *parley.Options) { o.AllowedTools = []string{"Bash", "Write", "Read", "Grep"} },
		"bypass": func(o *parley.Options) {
			o.PermissionMode, o.AllowBypass = wire.ModeBypassPermissions, true
		},
		"accept edits": func(o *parley.Options) { o.PermissionMode = wire.ModeAcceptEdits },
		"a hook": func(o *parley.Options) {
			o.Hooks = []parley.Hook{parley.On("", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) {
				return &wire.HookOutput{HookSpecificOutput: &wire.PreToolUseOutput{PermissionDecision: wire.BehaviorAllow}}, nil
			})}
		},
		"a host": func(o *parley.Options) {
			o.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
				r := parley.Allow()
				r.UpdatedPermissions = []*wire.PermissionUpdate{{Type: wire.UpdateAddRules, Behavior: wire.BehaviorAllow, Rules: []*wire.PermissionRule{{ToolName: "Bash"}}, Destination: wire.DestinationSession}}
				return r, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			turn := parleytest.Call("Bash", map[string]string{"command": "true; /bin/touch made"}).
				Call("Write", map[string]string{"file_path": filepath.Join(dir, "made"), "content": "x"}).
				Call("Read", map[string]string{"file_path": filepath.Join(dir, ".env")}).
				Call("Bash", map[string]string{"command": "cat '.e'nv"}).
				Call("Grep", map[string]any{"pattern": "hush", "path": dir, "output_mode": "content"})
			p := promptIn(t, dir, parleytest.Script(turn, parleytest.Expect(parleytest.ToolResult("KEY=hush").Not()).Say("done")), func(o *parley.Options, _ *agent.Config) {
				o.Settings = json.RawMessage(deny)
				change(o)
			})
			if got := outcomes(p); got != "denied failed denied denied ran" && got != "denied denied denied denied ran" {
				t.Errorf("got %s", got)
			}
			if _, err := os.Stat(filepath.Join(dir, "made")); err == nil {
				t.Error("it was made")
			}
		})
	}
}

// TestChangedInput checks that an input that a host or a hook changes is checked again.
func TestChangedInput(t *testing.T) {
	dir, _ := workdir(t)
	turn := parleytest.Call("Bash", map[string]string{"command": "touch harmless"})
	bad := []byte(`{"command":"touch secret"}`)
	for name, change := range map[string]func(*parley.Options){
		"host": func(o *parley.Options) {
			o.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
				return &wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedInput: bad}, nil
			}
		},
		"hook": func(o *parley.Options) {
			o.Hooks = []parley.Hook{parley.On("", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) {
				return &wire.HookOutput{HookSpecificOutput: &wire.PreToolUseOutput{PermissionDecision: wire.BehaviorAllow, UpdatedInput: bad}}, nil
			})}
		},
		"invalid": func(o *parley.Options) {
			o.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
				return &wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedInput: []byte(`{"command":7}`)}, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := promptIn(t, dir, parleytest.Script(turn, parleytest.Expect(parleytest.ToolError("")).Say("done")), func(o *parley.Options, _ *agent.Config) {
				o.DisallowedTools = []string{"Bash(touch secret)"}
				change(o)
			})
			if got := outcomes(p); got != "denied" && !(got == "failed" && name == "invalid") {
				t.Errorf("got %s", got)
			}
		})
	}
	// A change that no rule forbids is what runs; the history keeps the model's input.
	p := promptIn(t, dir, parleytest.Script(turn, parleytest.Expect(parleytest.Field("messages.1.content.0.input.command", "touch harmless")).Say("done")), func(o *parley.Options, _ *agent.Config) {
		o.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
			return &wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedInput: []byte(`{"command":"touch other"}`)}, nil
		}
	})
	if _, err := os.Stat(filepath.Join(dir, "other")); err != nil || outcomes(p) != "ran" {
		t.Errorf("%v, %s", err, outcomes(p))
	}
}

// TestHostFails checks that a host that fails or sends an invalid response lets nothing run.
func TestHostFails(t *testing.T) {
	dir, _ := workdir(t)
	for name, answer := range map[string]func() (*wire.PermissionResult, error){
		"error":      func() (*wire.PermissionResult, error) { return nil, errors.New("crash") },
		"panic":      func() (*wire.PermissionResult, error) { panic("oops") },
		"nothing":    func() (*wire.PermissionResult, error) { return &wire.PermissionResult{}, nil },
		"other word": func() (*wire.PermissionResult, error) { return &wire.PermissionResult{Behavior: "sure"}, nil },
		"ask":        func() (*wire.PermissionResult, error) { return &wire.PermissionResult{Behavior: wire.BehaviorAsk}, nil },
		"empty deny": func() (*wire.PermissionResult, error) {
			return &wire.PermissionResult{Behavior: wire.BehaviorDeny}, nil
		},
		"nil":         func() (*wire.PermissionResult, error) { return nil, nil },
		"not allowed": func() (*wire.PermissionResult, error) { return parley.Deny("no"), nil },
	} {
		t.Run(name, func(t *testing.T) {
			p := promptIn(t, dir, parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Expect(parleytest.ToolError("")).Say("done")),
				func(o *parley.Options, _ *agent.Config) {
					o.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) { return answer() }
				})
			if got := outcomes(p); got != "denied" {
				t.Errorf("got %s", got)
			}
			if _, err := os.Stat(filepath.Join(dir, "made")); err == nil {
				t.Error("it ran")
			}
		})
	}
}

// TestUnknownSubtypeOfAnswer checks that an answer allows a call only if its subtype is "success".
func TestUnknownSubtypeOfAnswer(t *testing.T) {
	for _, subtype := range []string{`"maybe"`, `""`, `null`, `"error"`} {
		t.Run(subtype, func(t *testing.T) {
			dir, _ := workdir(t)
			h := newRawHost(t, dir, parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Expect(parleytest.ToolError("")).Say("done")), "{}")
			_, id, _ := h.next("control_request")
			h.say(`{"type":"control_response","response":{"subtype":%s,"request_id":%q,"response":{"behavior":"allow"}}}`, subtype, id)
			h.next("result")
			if _, err := os.Stat(filepath.Join(dir, "made")); err == nil {
				t.Error("it ran")
			}
		})
	}
}

// TestDenialNeedsAMessage checks that a denial without the member message is not a valid answer, and that an
// empty message is one.
func TestDenialNeedsAMessage(t *testing.T) {
	for member, source := range map[string]string{"": "config", `,"message":null`: "config", `,"message":""`: "user_reject", `,"message":"No."`: "user_reject"} {
		t.Run(member, func(t *testing.T) {
			dir, _ := workdir(t)
			h := newRawHost(t, dir, parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Expect(parleytest.ToolError("")).Say("done")), "{}")
			_, id, _ := h.next("control_request")
			h.say(`{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":{"behavior":"deny"%s}}}`, id, member)
			_, _, line := h.next("user")
			if meta := string(line["tool_result_meta"]); !strings.Contains(meta, `"source":"`+source+`"`) {
				t.Errorf("got %s, want the source %s", meta, source)
			}
			h.next("result")
		})
	}
}

// TestUpdatedPermissions checks that updates of the host take effect at once.
func TestUpdatedPermissions(t *testing.T) {
	dir, outside := workdir(t)
	write := func(name string) *parleytest.Turn {
		return parleytest.Call("Write", map[string]string{"file_path": filepath.Join(dir, name), "content": "x"})
	}
	for _, tt := range []struct {
		name   string
		first  *parleytest.Turn
		second *parleytest.Turn
		update *wire.PermissionUpdate
		asked  int
	}{
		{"rule", parleytest.Call("Bash", map[string]string{"command": "touch p1"}), parleytest.Call("Bash", map[string]string{"command": "touch p2"}),
			&wire.PermissionUpdate{Type: wire.UpdateAddRules, Behavior: wire.BehaviorAllow, Destination: wire.DestinationSession, Rules: []*wire.PermissionRule{{ToolName: "Bash", RuleContent: "touch *"}}}, 1},
		{"narrow rule", parleytest.Call("Bash", map[string]string{"command": "touch p1"}), parleytest.Call("Bash", map[string]string{"command": "mkdir p3"}),
			&wire.PermissionUpdate{Type: wire.UpdateAddRules, Behavior: wire.BehaviorAllow, Destination: wire.DestinationSession, Rules: []*wire.PermissionRule{{ToolName: "Bash", RuleContent: "touch *"}}}, 2},
		{"mode", write("w1"), write("w2"), &wire.PermissionUpdate{Type: wire.UpdateSetMode, Mode: wire.ModeAcceptEdits, Destination: wire.DestinationSession}, 1},
		{"bypass is not to be had", write("w3"), write("w4"), &wire.PermissionUpdate{Type: wire.UpdateSetMode, Mode: wire.ModeBypassPermissions, Destination: wire.DestinationSession}, 2},
		{"no such mode", write("w5"), write("w6"), &wire.PermissionUpdate{Type: wire.UpdateSetMode, Mode: "whatever", Destination: wire.DestinationSession}, 2},
		{"directory", parleytest.Call("Read", map[string]string{"file_path": filepath.Join(outside, "b.txt")}), parleytest.Call("Read", map[string]string{"file_path": filepath.Join(outside, "b.txt"), "offset": "1"}),
			&wire.PermissionUpdate{Type: wire.UpdateAddDirectories, Directories: []string{outside}, Destination: wire.DestinationSession}, 1},
		{"deny from now on", write("w7"), write("w8"), &wire.PermissionUpdate{Type: wire.UpdateAddRules, Behavior: wire.BehaviorDeny, Destination: wire.DestinationSession, Rules: []*wire.PermissionRule{{ToolName: "Write"}}}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := 0
			p := promptIn(t, dir, parleytest.Script(tt.first, tt.second, parleytest.Say("done")), func(o *parley.Options, _ *agent.Config) {
				o.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
					asked++
					r := parley.Allow()
					if asked == 1 {
						r.UpdatedPermissions = []*wire.PermissionUpdate{tt.update}
					}
					return r, nil
				}
			})
			if asked != tt.asked {
				t.Errorf("asked %d times, want %d", asked, tt.asked)
			}
			if got, denied := outcomes(p), tt.name == "deny from now on"; (got == "ran ran") == denied {
				t.Errorf("got %s", got)
			}
		})
	}
}

// TestKeptPermissions checks that updates that a host stores are in the file and apply in
// the next session, also of a project that nobody has trusted otherwise.
func TestKeptPermissions(t *testing.T) {
	dir, outside := workdir(t)
	home := filepath.Join(filepath.Dir(dir), "home")
	touch := func(name string) *parleytest.Turn {
		return parleytest.Call("Bash", map[string]string{"command": "touch " + name})
	}
	writeFile(t, filepath.Join(dir, ".claude", "settings.local.json"), `{"note":"mine","permissions":{"allow":["Bash(mkdir:*)"]}}`)
	asked := 0
	with := func(sources []string, dest wire.PermissionDestination) func(o *parley.Options, cfg *agent.Config) {
		return func(o *parley.Options, cfg *agent.Config) {
			cfg.Home, cfg.SettingSources = home, sources
			o.CanUseTool = func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
				asked++
				r := parley.Allow()
				r.UpdatedPermissions = []*wire.PermissionUpdate{{Type: wire.UpdateAddRules, Behavior: wire.BehaviorAllow, Destination: dest, Rules: []*wire.PermissionRule{{ToolName: "Bash", RuleContent: "touch:*"}}}}
				return r, nil
			}
		}
	}
	all := []string{"user", "project", "local"}
	done := parleytest.Say("done")
	promptIn(t, dir, parleytest.Script(touch("k1"), touch("k2"), done), with(all, wire.DestinationLocalSettings))
	if asked != 1 {
		t.Errorf("asked %d times in the first session", asked)
	}
	text, _ := os.ReadFile(filepath.Join(dir, ".claude", "settings.local.json"))
	if want := "{\n  \"note\": \"mine\",\n  \"permissions\": {\n    \"allow\": [\n      \"Bash(mkdir:*)\",\n      \"Bash(touch:*)\"\n    ]\n  }\n}\n"; string(text) != want {
		t.Errorf("the file is\n%s", text)
	}
	asked = 0
	promptIn(t, dir, parleytest.Script(touch("k3"), parleytest.Call("Bash", map[string]string{"command": "mkdir k4"}), done), with(all, wire.DestinationSession))
	if asked != 1 { // about what the project brought itself
		t.Errorf("asked %d times in the next session", asked)
	}
	// The user's settings apply everywhere, and are not written by a host that leaves them
	// out.
	asked = 0
	p := promptIn(t, outside, parleytest.Script(touch("k5"), done), with(nil, wire.DestinationUserSettings))
	if _, err := os.Stat(filepath.Join(home, ".claude", "settings.json")); err == nil {
		t.Error("settings were written that are not read")
	}
	told := false
	for _, m := range p.all {
		if m, ok := m.(*wire.Informational); ok {
			told = told || strings.Contains(m.Content, "has no effect")
		}
	}
	if !told {
		t.Error("no notice says that the update has no effect")
	}
	promptIn(t, outside, parleytest.Script(touch("k6"), done), with(all, wire.DestinationUserSettings))
	promptIn(t, outside, parleytest.Script(touch("k7"), done), with(all, wire.DestinationUserSettings))
	if asked != 2 {
		t.Errorf("asked %d times in all", asked)
	}
}

// TestManagedRulesOnly checks that where only the administrator allows, the answer of a host
// is for one call.
func TestManagedRulesOnly(t *testing.T) {
	dir, _ := workdir(t)
	asked := 0
	call := func(name string) *parleytest.Turn {
		return parleytest.Call("Bash", map[string]string{"command": "touch " + name})
	}
	promptIn(t, dir, parleytest.Script(call("m1"), call("m2"), parleytest.Say("done")), func(o *parley.Options, cfg *agent.Config) {
		o.ManagedSettings = json.RawMessage(`{"allowManagedPermissionRulesOnly":true}`)
		o.CanUseTool = func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
			asked++
			r := parley.Allow()
			r.UpdatedPermissions = []*wire.PermissionUpdate{{Type: wire.UpdateAddRules, Behavior: wire.BehaviorAllow, Destination: wire.DestinationSession, Rules: []*wire.PermissionRule{{ToolName: "Bash"}}}}
			return r, nil
		}
	})
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

// TestRulesThatNeverMatch checks that they are reported when they are loaded, with their
// place.
func TestRulesThatNeverMatch(t *testing.T) {
	dir, _ := workdir(t)
	file := filepath.Join(dir, ".claude", "settings.json")
	writeFile(t, file, "{\"permissions\":{\"deny\":[\n\"read(.env)\",\n\"Read(/etc/passwd)\"]}}")
	m := parleytest.Script(parleytest.Say("done")).Model()
	var stdout, stderr bytes.Buffer
	agent.Run(t.Context(), agent.Config{Cwd: dir, Model: m, Store: &session.Memory{}, SettingSources: []string{"project"}},
		[]string{"-p", "hi", "--output-format", "stream-json", "--verbose"}, strings.NewReader(""), &stdout, &stderr)
	want := fmt.Sprintf("Warning: %s:2 (project): the deny rule read(.env) never matches: there is no such tool: the tool is called Read\n", file)
	if stderr.String() != want {
		t.Errorf("standard error is %s, want %s", stderr.String(), want)
	}
	line, _, _ := strings.Cut(stdout.String(), "\n")
	var init struct {
		Findings []struct {
			Rule, File string
			Line       int
			Never      bool
		} `json:"rule_findings"`
	}
	if err := json.Unmarshal([]byte(line), &init); err != nil || len(init.Findings) != 2 || !init.Findings[0].Never || init.Findings[1].Never || init.Findings[1].Line != 3 || init.Findings[0].File != file {
		t.Errorf("init has %+v, %v", init.Findings, err)
	}
}

// TestFlagSettings checks that settings that are applied during a run restrict at once.
func TestFlagSettings(t *testing.T) {
	dir, _ := workdir(t)
	synctest.Test(t, func(t *testing.T) {
		opts, m, _ := inProcess(t, parleytest.Script(
			parleytest.Call("Bash", map[string]string{"command": "touch one"}), parleytest.Say("done"),
			parleytest.Call("Bash", map[string]string{"command": "touch two"}), parleytest.Expect(parleytest.ToolError("denied by the rule")).Say("done"),
		))
		opts.Cwd, opts.AllowedTools = dir, []string{"Bash"}
		c, err := parley.Connect(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := run(t, c, "one"); err != nil {
			t.Fatal(err)
		}
		if err := c.ApplySettings(t.Context(), map[string]json.RawMessage{"permissions": json.RawMessage(`{"deny":["Bash(touch:*)"]}`)}); err != nil {
			t.Fatal(err)
		}
		if _, err := run(t, c, "two"); err != nil {
			t.Fatal(err)
		}
		if err := m.Done(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "two")); err == nil {
			t.Error("it ran")
		}
	})
}

// TestToolsAreTakenAway checks that the model does not see tools that a flag or a deny rule removes, and cannot call them.
func TestToolsAreTakenAway(t *testing.T) {
	dir, _ := workdir(t)
	for name, change := range map[string]func(*parley.Options){
		"disallowed": func(o *parley.Options) { o.DisallowedTools = []string{"Write"} },
		"all calls":  func(o *parley.Options) { o.DisallowedTools = []string{"Write(*)"} },
		"pattern":    func(o *parley.Options) { o.DisallowedTools = []string{"W*"} },
		"everything": func(o *parley.Options) { o.DisallowedTools = []string{"*"} },
		"settings":   func(o *parley.Options) { o.Settings = json.RawMessage(`{"permissions":{"deny":["Write"]}}`) },
		"tools":      func(o *parley.Options) { o.Tools = []string{"Read"} },
		"no tools":   func(o *parley.Options) { o.Tools = []string{} },
	} {
		t.Run(name, func(t *testing.T) {
			p := promptIn(t, dir, parleytest.Script(
				parleytest.Expect(parleytest.Tools("Write").Not()).Call("Write", map[string]string{"file_path": filepath.Join(dir, "made"), "content": "x"}),
				parleytest.Expect(parleytest.ToolError("No such tool available: Write")).Say("done"),
			), func(o *parley.Options, _ *agent.Config) {
				o.PermissionMode, o.AllowBypass = wire.ModeBypassPermissions, true
				change(o)
			})
			if init := p.all[0].(*wire.Init); name == "no tools" && len(init.Tools) != 0 {
				t.Errorf("tools %v", init.Tools)
			}
		})
	}
}

// TestInputIsReadOneWay checks that a call with an ambiguous input is shown to nobody and
// does not run, whoever wrote it: the model, a hook or the host.
func TestInputIsReadOneWay(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	bad := []string{
		`{"command":"touch ` + mark + `","Command":"ls"}`,
		`{"Command":"ls","command":"touch ` + mark + `"}`,
		`{"command":"ls","command":"touch ` + mark + `"}`,
		`{"command":"touch ` + mark + `","\u0043ommand":"ls"}`,
		`{"command":"touch ` + mark + `\u0000"}`,
	}
	for _, input := range bad {
		for _, by := range []string{"model", "hook", "host"} {
			dir, _ := workdir(t)
			given := any(input)
			if by != "model" {
				given = map[string]string{"command": "sort -o x a.txt"}
			}
			asked := 0
			p := promptIn(t, dir, parleytest.Script(parleytest.Call("Bash", given), parleytest.Say("done")), func(o *parley.Options, _ *agent.Config) {
				o.CanUseTool = func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
					asked++
					if by == "host" {
						return &wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedInput: json.RawMessage(input)}, nil
					}
					return parley.Allow(), nil
				}
				if by == "hook" {
					o.Hooks = []parley.Hook{before(says(&wire.PreToolUseOutput{PermissionDecision: wire.BehaviorAllow, UpdatedInput: json.RawMessage(input)}))}
				}
			})
			if got := outcomes(p); got == "ran" {
				t.Errorf("%s by the %s: %s", input, by, got)
			}
			if _, err := os.Lstat(mark); err == nil {
				t.Fatalf("%s by the %s: the command ran", input, by)
			}
			if asked > 0 && by != "host" {
				t.Errorf("%s by the %s: somebody was asked", input, by)
			}
		}
	}
}
