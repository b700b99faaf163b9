package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A changing is a conversation whose files change while it runs. Each turn calls Bash once.
type changing struct {
	t         *testing.T
	dir, home string
	managed   string
	c         *parley.Client
	h         heard
	told      []wire.Message // by the last turn
	n         int
}

// changingFiles starts a conversation with settings of all sources, without a host to ask.
func changingFiles(t *testing.T, before map[string]string, change func(*parley.Options, *agent.Config)) *changing {
	t.Helper()
	dir, outside := workdir(t)
	w := &changing{t: t, dir: dir, home: filepath.Join(outside, "home"), managed: filepath.Join(outside, "managed", "managed-settings.json")}
	for name, text := range before {
		w.write(name, text)
	}
	var turns []*parleytest.Turn
	for range 12 {
		turns = append(turns, parleytest.Call("Bash", func(r *parleytest.Request) any {
			said := r.LastUser()
			return map[string]string{"command": said[strings.LastIndex(said, "touch"):]}
		}), parleytest.Say("done"))
	}
	s := parleytest.Script(turns...)
	cfg := agent.Config{Model: s.Model(), Store: &session.Memory{}, Home: w.home, ManagedSettings: w.managed, SettingSources: []string{"user", "project", "local"}}
	opts := &parley.Options{Cwd: dir, Env: map[string]string{"PATH": os.Getenv("PATH")}, Hooks: []parley.Hook{
		parley.On("", func(_ context.Context, in *wire.ConfigChangeInput) (*wire.HookOutput, error) {
			w.h.add("%s %s", in.Source, filepath.Base(in.FilePath))
			return nil, nil
		}),
	}}
	if change != nil {
		change(opts, &cfg)
	}
	opts.Dialer = agent.InProcess(cfg)
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	w.c = c
	return w
}

// path returns the path of a settings file, by the name of its source.
func (w *changing) path(name string) string {
	switch name {
	case "user":
		return filepath.Join(w.home, ".claude", "settings.json")
	case "project":
		return filepath.Join(w.dir, ".claude", "settings.json")
	case "local":
		return filepath.Join(w.dir, ".claude", "settings.local.json")
	case "managed":
		return w.managed
	}
	return filepath.Join(w.dir, name)
}

func (w *changing) write(name, text string) {
	w.t.Helper()
	writeFile(w.t, w.path(name), text)
}

// touches makes the model create a file, and reports whether it was created.
func (w *changing) touches() bool {
	w.t.Helper()
	w.n++
	name := fmt.Sprintf("made%d", w.n)
	w.told = nil
	for m, err := range w.c.Turn(w.t.Context(), "touch "+name) {
		if err != nil {
			w.t.Fatal(err)
		}
		w.told = append(w.told, m)
	}
	_, err := os.Stat(filepath.Join(w.dir, name))
	return err == nil
}

func (w *changing) warned(text string) bool {
	return slices.ContainsFunc(w.told, func(m wire.Message) bool {
		i, ok := m.(*wire.Informational)
		return ok && strings.Contains(i.Content, text)
	})
}

// TestUntrustedGuardStays checks that an untrusted guard is there as soon as the project has
// it, and cannot be removed in the same conversation.
func TestUntrustedGuardStays(t *testing.T) {
	w := changingFiles(t, map[string]string{"user": allowTouch}, nil)
	if !w.touches() {
		t.Fatal("the user's rule does not allow the command")
	}
	w.write("project", `{"hooks":{"PreToolUse":[{"matcher":"Bash","hooks":[{"type":"command","command":"touch hooked"}]}]}}`)
	if w.touches() {
		t.Error("the command ran although its guard may not look at it")
	}
	w.write("project", `{}`)
	if w.touches() {
		t.Error("the guard was taken back")
	}
	if _, err := os.Stat(filepath.Join(w.dir, "hooked")); err == nil {
		t.Error("the hook ran")
	}
}

const allowTouch, denyTouch = `{"permissions":{"allow":["Bash(touch:*)"]}}`, `{"permissions":{"deny":["Bash(touch:*)"]}}`

// TestSettingsChange checks that settings that a person changes during a conversation apply
// from the next prompt on, as far as they could have applied from the start.
func TestSettingsChange(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for a POSIX shell")
	}
	all := func(_ *parley.Options, cfg *agent.Config) { cfg.TrustProject = "all" }
	bypass := func(o *parley.Options, _ *agent.Config) {
		o.PermissionMode, o.AllowBypass = wire.ModeBypassPermissions, true
	}
	guard := `{"permissions":{"allow":["Bash(touch:*)"]},"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"exit 2"}]}]}}`
	for _, tt := range []struct {
		name          string
		before        map[string]string
		start         func(*parley.Options, *agent.Config)
		first, second bool // whether the call runs, before and after the change
		file, text    string
		heard         string
	}{
		{"the user denies", map[string]string{"user": allowTouch}, nil, true, false, "user", denyTouch, "user_settings settings.json"},
		{"the user allows", nil, nil, false, true, "user", allowTouch, "user_settings settings.json"},
		{"the user denies no more", map[string]string{"user": denyTouch}, nil, false, true, "user", allowTouch, "user_settings settings.json"},
		{"the user takes it away", map[string]string{"user": allowTouch}, nil, true, false, "user", "", "user_settings settings.json"},
		{"a project denies", map[string]string{"user": allowTouch}, nil, true, false, "project", denyTouch, "project_settings settings.json"},
		{"a project denies, locally", map[string]string{"user": allowTouch}, nil, true, false, "local", denyTouch, "local_settings settings.local.json"},
		{"a project that nobody trusts allows", nil, nil, false, false, "project", allowTouch, "project_settings settings.json"},
		{"a project that was trusted allows something new", map[string]string{"project": `{}`}, all, false, false, "project", allowTouch, "project_settings settings.json"},
		{"what was trusted stays", map[string]string{"project": allowTouch}, all, true, true, "project", `{"permissions":{"allow":["Bash(touch:*)","Bash(ls)"]}}`, "project_settings settings.json"},
		{"a project denies no more", map[string]string{"user": allowTouch, "project": denyTouch}, nil, false, false, "project", `{}`, "project_settings settings.json"},
		{"a project takes its guard away", map[string]string{"project": guard}, all, false, false, "project", allowTouch, "project_settings settings.json"},
		{"a project changes its guard", map[string]string{"project": guard}, all, false, false, "project", strings.Replace(guard, "exit 2", "exit 0", 1), "project_settings settings.json"},
		{"the user has a new guard", map[string]string{"user": allowTouch}, nil, true, false, "user", guard, "user_settings settings.json"},
		{"the user has no guard any more", map[string]string{"user": guard}, nil, false, true, "user", allowTouch, "user_settings settings.json"},
		{"the administrator denies", map[string]string{"user": allowTouch}, nil, true, false, "managed", denyTouch, "policy_settings managed-settings.json"},
		{"the administrator alone allows", map[string]string{"user": allowTouch}, nil, true, false, "managed", `{"allowManagedPermissionRulesOnly":true}`, "policy_settings managed-settings.json"},
		{"bypassing ends", nil, bypass, true, false, "user", `{"permissions":{"disableBypassPermissionsMode":"disable"}}`, "user_settings settings.json"},
		{"a mode is for the start", nil, nil, false, false, "user", `{"permissions":{"defaultMode":"acceptEdits"}}`, "user_settings settings.json"},
		{"nonsense", map[string]string{"user": denyTouch}, nil, false, false, "user", `{"permissions":`, "user_settings settings.json"},
		{"a matcher that is none", map[string]string{"user": denyTouch}, nil, false, false, "user", `{"hooks":{"Stop":[{"matcher":"(?!x)","hooks":[{"type":"command","command":"true"}]}]}}`, "user_settings settings.json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := changingFiles(t, tt.before, tt.start)
			if w.touches() != tt.first || w.h.String() != "" {
				t.Fatalf("made is %v, heard %q: %s", !tt.first, w.h.String(), kinds(w.told))
			}
			if tt.text == "" {
				if err := os.Remove(w.path(tt.file)); err != nil {
					t.Fatal(err)
				}
			} else {
				w.write(tt.file, tt.text)
			}
			if w.touches() != tt.second {
				t.Errorf("made is %v after the change: %s", !tt.second, kinds(w.told))
			}
			broken := strings.HasPrefix(tt.name, "nonsense") || strings.HasPrefix(tt.name, "a matcher")
			if w.warned("The earlier settings stay in force") != broken {
				t.Errorf("warned is %v", !broken)
			}
			if w.touches() != tt.second || w.warned("stay in force") {
				t.Errorf("it is another after a turn, or was told twice: %s", kinds(w.told))
			}
			if got := w.h.String(); got != tt.heard {
				t.Errorf("hooks heard %s, want %s", got, tt.heard)
			}
		})
	}
}

// TestSettingsChangeBlocked checks that a hook may keep the earlier version of a file, but
// not of one of the administrator, and only that file.
func TestSettingsChangeBlocked(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for a POSIX shell")
	}
	block := func(o *parley.Options, _ *agent.Config) {
		o.Hooks = []parley.Hook{parley.On("user_settings|policy_settings", func(context.Context, *wire.ConfigChangeInput) (*wire.HookOutput, error) {
			return &wire.HookOutput{Decision: wire.DecisionBlock, Reason: "not now"}, nil
		})}
	}
	w := changingFiles(t, map[string]string{"user": allowTouch}, block)
	w.touches()
	w.write("user", denyTouch)
	if !w.touches() || !w.warned("a hook blocked the change") {
		t.Errorf("the change counts: %s", kinds(w.told))
	}
	if w.touches(); w.warned("does not let") {
		t.Error("it was asked again")
	}
	w.write("local", `{"permissions":{"deny":["Bash(touch made4)"]}}`)
	if w.touches() {
		t.Error("the change of another file does not count")
	}
	if !w.touches() {
		t.Error("the file that was blocked counts")
	}
	w.write("managed", denyTouch)
	if w.touches() {
		t.Error("a hook blocked the administrator")
	}
	// The same with a command.
	w = changingFiles(t, map[string]string{"user": `{"permissions":{"allow":["Bash(touch:*)"]},"hooks":{"ConfigChange":[{"matcher":"local_settings","hooks":[{"type":"command","command":"echo no >&2; exit 2"}]}]}}`}, nil)
	w.touches()
	w.write("local", denyTouch)
	if !w.touches() {
		t.Error("the change counts, though a command blocked it")
	}
}

// TestSettingsChangeAtOnce checks that a rule that is written while a turn is running
// applies to the next call of the turn, also in subagents, and that the agent's own writes
// are not a change.
func TestSettingsChangeAtOnce(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for a POSIX shell")
	}
	dir, outside := workdir(t)
	user := filepath.Join(outside, ".claude", "settings.json")
	s := parleytest.Script(
		parleytest.Call("Bash", map[string]string{"command": "touch one"}),
		parleytest.Call("Bash", map[string]string{"command": "touch two"}),
		parleytest.Call("Agent", `{"description":"d","prompt":"SUB","run_in_background":false}`),
		parleytest.Say("done"))
	s.When("sub", parleytest.FirstUser("SUB"),
		parleytest.Call("Bash", map[string]string{"command": "touch three"}),
		parleytest.Call("Bash", map[string]string{"command": "touch four"}),
		parleytest.Say("sub done"))
	var h heard
	var asked heard
	opts, m, _ := inProcess(t, s)
	opts.Cwd = dir
	opts.Dialer = agent.InProcess(agent.Config{Model: m, Store: &session.Memory{}, Home: outside, SettingSources: []string{"user", "project", "local"}})
	opts.CanUseTool = func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
		asked.add("%s", req.Input)
		r := parley.Allow()
		r.UpdatedPermissions = []*wire.PermissionUpdate{{Type: wire.UpdateAddRules, Behavior: wire.BehaviorAllow,
			Rules: []*wire.PermissionRule{{ToolName: "Bash", RuleContent: "touch:*"}}, Destination: wire.DestinationLocalSettings}}
		return r, nil
	}
	opts.Hooks = []parley.Hook{
		parley.On("", func(_ context.Context, in *wire.ConfigChangeInput) (*wire.HookOutput, error) {
			h.add("%s", in.Source)
			return nil, nil
		}),
		parley.On("Bash", func(_ context.Context, in *wire.PostToolUseInput) (*wire.HookOutput, error) {
			if strings.Contains(string(in.ToolInput), "three") {
				writeFile(t, user, `{"permissions":{"deny":["Bash(touch four)"]}}`)
			}
			return nil, nil
		}),
	}
	if _, r, err := collect(t, opts, "hi"); err != nil || r.Result != "done" {
		t.Fatalf("%+v %v %v", r, err, m.Err())
	}
	made := ""
	for _, name := range []string{"one", "two", "three", "four"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			made += name + " "
		}
	}
	if made != "one two three " || strings.Count(asked.String(), "command") != 1 || h.String() != "local_settings; user_settings" {
		t.Errorf("made %s, asked %s, heard %s", made, asked.String(), h.String())
	}
}

// TestSettingsChangeEnv checks that commands and hooks have the environment of the current
// settings.
func TestSettingsChangeEnv(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for a POSIX shell")
	}
	w := changingFiles(t, map[string]string{"user": `{"env":{"GREETING":"hello","ANTHROPIC_API_KEY":"one"},"permissions":{"allow":["Bash(touch:*)"]}}`}, func(o *parley.Options, _ *agent.Config) {
		o.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) { return parley.Allow(), nil }
	})
	say := func() string {
		w.n++
		name := fmt.Sprintf("said%d", w.n)
		for _, err := range w.c.Turn(t.Context(), `touch x; echo "$GREETING:$OTHER:$ANTHROPIC_API_KEY" >`+name) {
			if err != nil {
				t.Fatal(err)
			}
		}
		text, _ := os.ReadFile(filepath.Join(w.dir, name))
		return strings.TrimSpace(string(text))
	}
	got := say()
	w.write("user", `{"env":{"OTHER":"goodbye","ANTHROPIC_API_KEY":"two"}}`)
	if got += " " + say(); got != "hello:: :goodbye:" {
		t.Errorf("commands saw %s", got)
	}
}

// TestFileChanged checks that hooks receive changes of the files that they watch: those that
// a matcher names, and those that a hook asked for.
func TestFileChanged(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for a POSIX shell")
	}
	var h heard
	w := changingFiles(t, map[string]string{"user": allowTouch, "there": "x"}, func(o *parley.Options, _ *agent.Config) {
		o.Hooks = []parley.Hook{
			parley.On(".envrc|there", func(_ context.Context, in *wire.FileChangedInput) (*wire.HookOutput, error) {
				h.add("%s %s", filepath.Base(in.FilePath), in.Change)
				if filepath.Base(in.FilePath) == "there" {
					return &wire.HookOutput{SystemMessage: "seen", HookSpecificOutput: &wire.FileChangedOutput{WatchPaths: []string{"asked"}}}, nil
				}
				return nil, nil
			}),
			parley.On("asked", func(_ context.Context, in *wire.FileChangedInput) (*wire.HookOutput, error) {
				h.add("%s %s by name", filepath.Base(in.FilePath), in.Change)
				return &wire.HookOutput{HookSpecificOutput: &wire.FileChangedOutput{WatchPaths: []string{}}}, nil
			}),
		}
	})
	step := func(want string) {
		t.Helper()
		h.mu.Lock()
		h.all = nil
		h.mu.Unlock()
		if w.touches(); h.String() != want {
			t.Errorf("hooks heard %q, want %q", h.String(), want)
		}
	}
	step("")
	w.write("other", "x")
	step("")
	w.write(".envrc", "x")
	step(".envrc add")
	w.write(".envrc", "xyz")
	step(".envrc change")
	os.Remove(w.path(".envrc"))
	step(".envrc unlink")
	w.write("there", "xyz")
	if step("there change"); !w.warned("FileChanged says: seen") {
		t.Error("nobody was told")
	}
	w.write("asked", "x")
	step("asked add by name")
	step("")
}

// TestWatchPaths checks that command hooks for the start of the session and for a change of
// the directory determine what a command hook watches.
func TestWatchPaths(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for a POSIX shell")
	}
	dir, _ := workdir(t)
	said := filepath.Join(dir, "said")
	watches := func(event, path string) string {
		return `"` + event + `":[{"hooks":[{"type":"command","command":"echo '{\"hookSpecificOutput\":{\"hookEventName\":\"` + event + `\",\"watchPaths\":[\"` + path + `\"]}}'"}]}]`
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o777); err != nil {
		t.Fatal(err)
	}
	play(t, agent.Config{Cwd: dir}, parleytest.Script(
		parleytest.Call("Bash", map[string]string{"command": "touch first"}),
		parleytest.Call("Bash", map[string]string{"command": "cd sub && touch ../second"}), // another directory, another list
		parleytest.Call("Bash", map[string]string{"command": "touch ../third"}),
		parleytest.Call("Bash", map[string]string{"command": "rm ../first; true"}),
		parleytest.Call("Bash", map[string]string{"command": "true"}),
		parleytest.Say("done"),
	), "--allowed-tools", "Bash", "--settings", `{"hooks":{`+watches("SessionStart", filepath.Join(dir, "first"))+`,`+watches("CwdChanged", filepath.Join(dir, "third"))+
		`,"FileChanged":[{"hooks":[{"type":"command","command":"grep -o '\"file_path.*' >> `+said+`"}]}]}}`)
	text, _ := os.ReadFile(said)
	got := strings.ReplaceAll(strings.ReplaceAll(string(text), dir, ""), "\n", " ")
	if got != `"file_path":"/first","event":"add"} "file_path":"/third","event":"add"} ` {
		t.Errorf("the hook heard %s", got)
	}
}
