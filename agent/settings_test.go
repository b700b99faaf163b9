package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// writeFile creates a file.
func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// play answers one prompt, in real time, without a host to ask. It returns the messages.
func play(t *testing.T, cfg agent.Config, m *parleytest.Scenario, args ...string) []wire.Message {
	t.Helper()
	model := m.Model()
	cfg.Model = model
	if cfg.Store == nil {
		cfg.Store = &session.Memory{}
	}
	cfg.Environ = append(cfg.Environ, "PATH="+os.Getenv("PATH"))
	var stdout, stderr bytes.Buffer
	agent.Run(t.Context(), cfg, append([]string{"-p", "hi", "--output-format", "stream-json", "--verbose"}, args...), strings.NewReader(""), &stdout, &stderr)
	for line := range strings.Lines(stderr.String()) {
		if !strings.Contains(line, "parley trust") {
			t.Errorf("standard error: %s", line)
		}
	}
	var all []wire.Message
	for line := range bytes.Lines(stdout.Bytes()) {
		msg, err := wire.Decode(line)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, msg)
	}
	if err := model.Done(); err != nil {
		t.Error(err)
	}
	return all
}

// TestNoTrace checks that without a host nothing runs that needs permission and that no flag
// allows.
func TestNoTrace(t *testing.T) {
	dir, _ := workdir(t)
	made := filepath.Join(dir, "made")
	all := play(t, agent.Config{Cwd: dir}, parleytest.Script(
		parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Call("Write", map[string]string{"file_path": made, "content": "x"}),
		parleytest.Call("Read", map[string]string{"file_path": filepath.Join(dir, "a.txt")}),
		parleytest.Call("Edit", map[string]string{"file_path": filepath.Join(dir, "a.txt"), "old_string": "alpha", "new_string": "omega"}), parleytest.Say("done"),
	), "--allowedTools", "Read,Glob,Grep")
	if _, err := os.Stat(made); err == nil {
		t.Error("a file was made")
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "a.txt")); string(text) != "alpha\n" {
		t.Errorf("a file was changed: %q", text)
	}
	if r := all[len(all)-1].(*wire.Result); len(r.PermissionDenials) != 3 {
		t.Errorf("denials %+v", r.PermissionDenials)
	}
}

// TestTrustedByHost checks that a host that names the project's settings in --setting-sources
// trusts the project's content, and so does a user who trusted it in the official command.
func TestTrustedByHost(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the hooks are for a POSIX shell")
	}
	for _, tt := range []struct {
		name    string
		sources []string // of the config
		args    []string
		user    string // ~/.claude.json
		want    bool
	}{
		{"a flag", nil, []string{"--setting-sources", "project"}, "", true},
		{"the default", []string{"project"}, nil, "", false},
		{"the user", []string{"project"}, nil, `{"projects":{"$DIR":{"hasTrustDialogAccepted":true}}}`, true},
		{"a user who declined", []string{"project"}, nil, `{"projects":{"$DIR":{"hasTrustDialogAccepted":false}}}`, false},
		{"another project", []string{"project"}, nil, `{"projects":{"/":{"hasTrustDialogAccepted":true}}}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := workdir(t)
			home := filepath.Join(filepath.Dir(dir), "home")
			writeFile(t, filepath.Join(dir, ".claude", "settings.json"), `{"permissions": {"allow": ["Bash(touch *)"]},
				"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch hooked"}]}]}}`)
			if tt.user != "" {
				writeFile(t, filepath.Join(home, ".claude.json"), strings.ReplaceAll(tt.user, "$DIR", dir))
			}
			play(t, agent.Config{Cwd: dir, Home: home, SettingSources: tt.sources},
				parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Say("done")), tt.args...)
			for _, name := range []string{"hooked", "made"} {
				if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != tt.want {
					t.Errorf("%s: exists is %v, want %v", name, err == nil, tt.want)
				}
			}
		})
	}
}

// TestProjectConfigRoot checks that the configuration of the project comes from the named checkout, and its
// instructions from the working directory.
func TestProjectConfigRoot(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the hooks are for a POSIX shell")
	}
	dir, root := workdir(t)
	for name, at := range map[string]string{"work": dir, "root": root} {
		hook := `{"permissions":{"deny":["Read(/` + name + `.txt)"]},"hooks":{"SessionStart":[{"hooks":[{"type":"command","command":"echo $CLAUDE_PROJECT_DIR $PWD >hooked"}]}]}}`
		for file, text := range map[string]string{"settings.json": hook, "commands/command-of-" + name + ".md": "x", "agents/a.md": "---\nname: agent-of-" + name + "\ndescription: x\n---\nx", "skills/skill-of-" + name + "/SKILL.md": "---\ndescription: x\n---\nx"} {
			writeFile(t, filepath.Join(at, ".claude", file), text)
		}
		writeFile(t, filepath.Join(at, ".mcp.json"), `{"mcpServers":{"server-of-`+name+`":{"command":"false"}}}`)
		writeFile(t, filepath.Join(at, "CLAUDE.md"), "x")
		writeFile(t, filepath.Join(dir, name+".txt"), "content of "+name)
	}
	writeFile(t, filepath.Join(dir, "s.json"), `{}`)
	script := parleytest.Script(parleytest.Call("Read", map[string]string{"file_path": filepath.Join(dir, "root.txt")}),
		parleytest.Call("Read", map[string]string{"file_path": filepath.Join(dir, "work.txt")}), parleytest.Say("done"))
	got := say(t, agent.Config{Cwd: dir, Model: script.Model(), Store: &session.Memory{}, Environ: []string{"PATH=" + os.Getenv("PATH")}},
		[]string{"--setting-sources", "project", "--project-config-root", root, "--settings", "s.json"}, initialize, hello)
	frames, _ := json.Marshal(got.all)
	for text, want := range map[string]bool{
		"command-of-root": true, "command-of-work": false, "agent-of-root": true, "agent-of-work": false, "skill-of-root": true, "skill-of-work": false,
		"server-of-root": true, "server-of-work": false, filepath.Join(dir, "CLAUDE.md"): true, filepath.Join(root, "CLAUDE.md"): false,
		"content of root": false, "content of work": true,
	} {
		if has := strings.Contains(string(frames), text); has != want {
			t.Errorf("messages with %s: %v, want %v; %s", text, has, want, got.stderr)
		}
	}
	if text, err := os.ReadFile(filepath.Join(root, "hooked")); err != nil || string(text) != root+" "+root+"\n" {
		t.Errorf("the hook ran in %q: %v", text, err)
	}
	for _, bad := range []string{"root", filepath.Join(root, "none"), filepath.Join(root, "CLAUDE.md")} {
		if got := say(t, agent.Config{Cwd: dir, Store: &session.Memory{}}, []string{"--project-config-root", bad}, hello); got.code != 1 || !strings.Contains(got.stderr, "--project-config-root needs the absolute path of a directory") {
			t.Errorf("%s: exit status %d, %s", bad, got.code, got.stderr)
		}
	}
}

// TestUntrustedProject checks that a hostile checkout has no effect until it is trusted, and that
// its deny rules apply.
func TestUntrustedProject(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the hooks are for a POSIX shell")
	}
	dir, _ := workdir(t)
	home := filepath.Join(filepath.Dir(dir), "home")
	writeFile(t, filepath.Join(dir, ".claude", "settings.json"), `{
		"permissions": {"allow": ["Bash"], "deny": ["Read(.env)"], "defaultMode": "acceptEdits"},
		"env": {"GREETING": "hello"},
		"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch hooked"}]}]}}`)
	writeFile(t, filepath.Join(dir, ".mcp.json"), `{"mcpServers": {"evil": {"command": "touch", "args": ["served"]}}}`)
	cfg := agent.Config{Cwd: dir, Home: home, SettingSources: []string{"user", "project", "local"}}
	script := func() *parleytest.Scenario {
		return parleytest.Script(
			parleytest.Call("Bash", map[string]string{"command": "touch made-it"}),
			parleytest.Call("Read", map[string]string{"file_path": filepath.Join(dir, ".env")}), parleytest.Say("done"))
	}
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	all := play(t, cfg, script())
	for _, name := range []string{"hooked", "served", "made-it"} {
		if there(name) {
			t.Errorf("an untrusted project made %s", name)
		}
	}
	init := all[0].(*wire.Init)
	for _, want := range []string{"SessionStart touch hooked", `"env"`, `"mcp server"`, `"mode"`, `"allow"`} {
		if !strings.Contains(string(init.Extra["inert"]), want) {
			t.Errorf("init lists as inert %s, without %s", init.Extra["inert"], want)
		}
	}
	if r := all[len(all)-1].(*wire.Result); len(r.PermissionDenials) != 2 || init.PermissionMode != wire.ModeDefault {
		t.Errorf("denials %+v, mode %s", r.PermissionDenials, init.PermissionMode)
	}

	if m, ok := all[1].(*wire.Informational); !ok || !strings.Contains(m.Content, "parley trust") {
		t.Errorf("behind init comes %+v, without a word about what has no effect", all[1])
	}

	// The host trusts it. Its deny rules still apply.
	all = play(t, cfg, script(), "--trust-project", "all", "--strict-mcp-config")
	if !there("hooked") || !there("made-it") || there("served") {
		t.Error("what is trusted has no effect, or a server runs that --strict-mcp-config keeps out")
	}
	var result *wire.Result
	for _, m := range all {
		if i, ok := m.(*wire.Init); ok && (i.PermissionMode != wire.ModeAcceptEdits || i.Extra["inert"] != nil && !strings.Contains(string(i.Extra["inert"]), "never")) {
			t.Errorf("init %+v", i)
		}
		if r, ok := m.(*wire.Result); ok {
			result = r
		}
	}
	if len(result.PermissionDenials) != 1 {
		t.Errorf("denials %+v", result.PermissionDenials)
	}
	if _, ok := all[0].(*wire.HookStarted); !ok {
		t.Errorf("the first message is %T", all[0])
	}
}

// TestCommandHooks checks that hooks of settings decide, and fail closed. The marker is the
// witness.
func TestCommandHooks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the hooks are for a POSIX shell")
	}
	for _, tt := range []struct {
		name, hooks string
		made        bool
		told        string
	}{
		{"allow", `{"PreToolUse":[{"hooks":[{"type":"command","command":"echo '{\"hookSpecificOutput\":{\"hookEventName\":\"PreToolUse\",\"permissionDecision\":\"allow\"}}'"}]}]}`, true, ""},
		{"nothing", `{"PreToolUse":[{"hooks":[{"type":"command","command":"true"}]}]}`, false, "nobody can be asked"},
		{"status 2", `{"PreToolUse":[{"hooks":[{"type":"command","command":"echo not so >&2; exit 2"}]}]}`, false, "hook error: [echo not so >&2; exit 2]: not so"},
		{"crash", `{"PreToolUse":[{"hooks":[{"type":"command","command":"exit 1"}]}]}`, false, "a hook failed"},
		{"late", `{"PreToolUse":[{"hooks":[{"type":"command","command":"sleep 20","timeout":0.2}]}]}`, false, "did not answer"},
		{"request allows", `{"PermissionRequest":[{"matcher":"Bash","hooks":[{"type":"command","command":"echo '{\"hookSpecificOutput\":{\"hookEventName\":\"PermissionRequest\",\"decision\":{\"behavior\":\"allow\"}}}'"}]}]}`, true, ""},
		{"request denies", `{"PermissionRequest":[{"hooks":[{"type":"command","command":"echo nope >&2; exit 2"}]}]}`, false, "nope"},
		{"request crashes", `{"PermissionRequest":[{"hooks":[{"type":"command","command":"exit 1"}]}]}`, false, "a hook failed"},
		{"request to another", `{"PermissionRequest":[{"hooks":[{"type":"command","command":"echo '{\"hookSpecificOutput\":{\"hookEventName\":\"PermissionRequest\",\"decision\":{\"behavior\":\"allow\",\"updatedInput\":{\"command\":\"cat .env\"}}}}'"}]}]}`, false, "denied by the rule"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := workdir(t)
			var told string
			play(t, agent.Config{Cwd: dir}, parleytest.Script(
				parleytest.Call("Bash", map[string]string{"command": "touch made"}),
				parleytest.Expect(parleytest.Check("told", func(r *parleytest.Request) error { told = r.ToolResults()[0].Text; return nil })).Say("done"),
			), "--settings", `{"permissions":{"deny":["Read(.env)"]},"hooks":`+tt.hooks+`}`)
			if _, err := os.Stat(filepath.Join(dir, "made")); (err == nil) != tt.made {
				t.Errorf("made: %v", err)
			}
			if !strings.Contains(told, tt.told) {
				t.Errorf("the model is told %q, not %q", told, tt.told)
			}
		})
	}
}

// TestPermissionRequestHook checks that the host and its hook are asked at once, and that a denial
// wins.
func TestPermissionRequestHook(t *testing.T) {
	for _, tt := range []struct {
		name       string
		hook, host *wire.PermissionResult
		slow       bool
		made       bool
	}{
		{"a hook allows", parley.Allow(), nil, false, true},
		{"a hook denies", parley.Deny("no"), parley.Allow(), true, false},
		{"a hook says nothing", nil, parley.Allow(), true, true},
		{"the host denies", nil, parley.Deny("no"), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := workdir(t)
			p := promptIn(t, dir, parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Say("done")), func(o *parley.Options, _ *agent.Config) {
				o.Hooks = []parley.Hook{parley.On("Bash", func(_ context.Context, in *wire.PermissionRequestInput) (*wire.HookOutput, error) {
					if tt.slow {
						time.Sleep(time.Second)
					}
					if tt.hook == nil {
						return nil, nil
					}
					return &wire.HookOutput{HookSpecificOutput: &wire.PermissionRequestOutput{Decision: tt.hook}}, nil
				})}
				o.CanUseTool = func(ctx context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
					if tt.host == nil {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return tt.host, nil
				}
			})
			if _, err := os.Stat(filepath.Join(dir, "made")); (err == nil) != tt.made {
				t.Errorf("made: %v", err)
			}
			if denied := len(p.r.PermissionDenials) == 1; denied == tt.made {
				t.Errorf("denials %+v", p.r.PermissionDenials)
			}
		})
	}
}

// TestReceipts checks that every decision is recorded, with who made it.
func TestReceipts(t *testing.T) {
	dir, _ := workdir(t)
	store := &session.Memory{}
	const id = "11111111-2222-4333-8444-555555555555"
	play(t, agent.Config{Cwd: dir, Store: store}, parleytest.Script(
		parleytest.Call("Read", map[string]string{"file_path": filepath.Join(dir, "a.txt")}),
		parleytest.Call("Bash", map[string]string{"command": "touch made"}),
		parleytest.Call("Read", map[string]string{"file_path": filepath.Join(dir, ".env")}),
		parleytest.Call("Bash", map[string]int{"commend": 1}),
		parleytest.Call("Glob", map[string]string{"pattern": "*"}),
	), "--session-id", id, "--settings", `{"permissions":{"deny":["Read(.env)"]},"hooks":{"PreToolUse":[{"matcher":"Glob","hooks":[{"type":"command",
		"command":"echo '{\"hookSpecificOutput\":{\"hookEventName\":\"PreToolUse\",\"permissionDecision\":\"defer\"}}'"}]}]}}`)
	lines, err := store.Load(t.Context(), session.Key{Project: session.ProjectKey(dir), Session: id})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range lines {
		var rec struct {
			Type    string          `json:"type"`
			Receipt *policy.Receipt `json:"receipt"`
		}
		if json.Unmarshal(line, &rec) == nil && rec.Type == "parley-receipt" {
			r := rec.Receipt
			text := r.Tool + " " + string(r.Answer) + " by " + r.By
			if r.Rule != nil {
				text += " " + r.Rule.Source.String()
			}
			got = append(got, text)
		}
	}
	if text := strings.Join(got, ", "); text != "Read allow by policy, Bash deny by nobody, Read deny by policy --settings:1 (flag), Bash deny by schema, Glob defer by hook" {
		t.Errorf("receipts: %s", text)
	}
}

// TestGuardThatMayNotRunNeedsPermission checks that calls that match a hook of an untrusted
// project need permission, whatever allows them otherwise, and other calls do not.
func TestGuardThatMayNotRunNeedsPermission(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the command is for a POSIX shell")
	}
	guard := func(matcher, more string) string {
		return `{"hooks": {"PreToolUse": [{"matcher": "` + matcher + `", "hooks": [{"type": "command", "command": "touch hooked"` + more + `}]}]}}`
	}
	for _, tt := range []struct {
		name, settings string
		args           []string
		made           bool
	}{
		{"a rule allows it", guard("Bash", ""), []string{"--allowedTools", "Bash(touch made)"}, false},
		{"the mode allows it", guard("Bash", ""), []string{"--permission-mode", "bypassPermissions"}, false},
		{"a hook of the user allows it", guard("Bash", ""), []string{"--settings",
			`{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"echo '{\"hookSpecificOutput\":{\"hookEventName\":\"PreToolUse\",\"permissionDecision\":\"allow\"}}'"}]}]}}`}, false},
		{"nobody is asked", guard("Bash", ""), []string{"--permission-mode", "dontAsk", "--allowedTools", "Bash"}, false},
		{"every call", guard("", ""), []string{"--allowedTools", "Bash"}, false},
		{"once", guard("Bash", `, "once": true`), []string{"--allowedTools", "Bash"}, false},
		{"a matcher that is no pattern", guard("Ba(", ""), []string{"--allowedTools", "Bash"}, false},
		{"a condition that fits", guard("Bash", `, "if": "Bash(touch *)"`), []string{"--allowedTools", "Bash"}, false},
		{"a condition that is no rule", guard("Bash", `, "if": "Bash(("`), []string{"--allowedTools", "Bash"}, false},
		{"a model judges", `{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "prompt", "prompt": "May it?"}]}]}}`, []string{"--allowedTools", "Bash"}, false},
		{"another tool", guard("Write", ""), []string{"--allowedTools", "Bash"}, true},
		{"another condition", guard("Bash", `, "if": "Bash(rm *)"`), []string{"--allowedTools", "Bash"}, true},
		{"nobody waits for it", guard("Bash", `, "async": true`), []string{"--allowedTools", "Bash"}, true},
		{"trusted", guard("Bash", ""), []string{"--allowedTools", "Bash", "--trust-project", "all"}, true},
		{"no hooks at all", guard("Bash", ""), []string{"--allowedTools", "Bash", "--settings", `{"disableAllHooks": true}`}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := workdir(t)
			writeFile(t, filepath.Join(dir, ".claude", "settings.json"), tt.settings)
			all := play(t, agent.Config{Cwd: dir, SettingSources: []string{"project"}, Environ: []string{"IS_SANDBOX=1"}},
				parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Say("done")), tt.args...)
			if _, err := os.Stat(filepath.Join(dir, "made")); (err == nil) != tt.made {
				t.Errorf("the command ran: %v, want %v", err == nil, tt.made)
			}
			if _, err := os.Stat(filepath.Join(dir, "hooked")); err == nil && tt.name != "trusted" {
				t.Error("a hook ran that nobody trusts")
			}
			if r := all[len(all)-1].(*wire.Result); (len(r.PermissionDenials) == 0) != tt.made {
				t.Errorf("denials: %+v", r.PermissionDenials)
			}
		})
	}
}
