//go:build unix

package hook_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func bash(command string) *wire.PreToolUseInput {
	return &wire.PreToolUseInput{HookBase: wire.HookBase{SessionID: "s", Cwd: "/"}, ToolName: "Bash", ToolInput: []byte(`{"command":"` + command + `"}`), ToolUseID: "u"}
}

func runner(t *testing.T, o hook.Options) *hook.Runner {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	o.Env = append(o.Env, "PATH="+os.Getenv("PATH"))
	r, err := hook.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// TestAnswers runs a hook that guards a call with every way to answer and to fail.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, command string
		change        func(*settings.Hook)
		want          string
	}{
		{"nothing", `cat >/dev/null`, nil, "-"},
		{"does not read", `true`, nil, "-"},
		{"text", `echo all is well`, nil, "-"},
		{"is told", `grep -q '"tool_name":"Bash"' && [ "$CLAUDE_PROJECT_DIR" = "$PWD" ]`, nil, "-"},
		{"deny", `echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no"}}'`, nil, "deny no"},
		{"allow", `echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}'`, nil, "allow "},
		{"block of old", `echo '{"decision":"block","reason":"never"}'`, nil, "block never"},
		{"status 2", `echo stop >&2; exit 2`, nil, "block [echo stop >&2; exit 2]: stop\n"},
		{"status 2 in silence", `exit 2`, nil, "block [exit 2]: the hook denied it and gave no reason"},
		{"status 1", `echo oops >&2; exit 1`, nil, "BLOCK it ended with status 1: oops"},
		{"status 126", `touch x; chmod 644 x; ./x`, nil, "BLOCK it ended with status 126"},
		{"status 127", `there-is-no-such-program`, nil, "BLOCK it ended with status 127"},
		{"program missing", `there-is-no-such-program`, func(h *settings.Hook) { h.Args = []string{} }, "BLOCK it does not start: there is no program"},
		{"script missing", `./none.sh`, func(h *settings.Hook) { h.Args = []string{} }, "BLOCK it does not start"},
		{"killed", `kill -9 $$`, nil, "BLOCK it ended with status 137"},
		{"late", `sleep 1000`, func(h *settings.Hook) { h.Timeout = 200 * time.Millisecond }, "BLOCK it did not answer within 200ms late"},
		{"late and deaf", `trap '' TERM; sleep 1000 & sleep 1000; sleep 1000`, func(h *settings.Hook) { h.Timeout = 200 * time.Millisecond }, "BLOCK it did not answer within 200ms late"},
		{"nonsense", `echo '{"hookSpecificOutput":'`, nil, "BLOCK its output is not a JSON object"},
		{"odd decision", `echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"perhaps"}}'`, nil, `BLOCK its answer is invalid: the permissionDecision is "perhaps"`},
		{"another event", `echo '{"hookSpecificOutput":{"hookEventName":"Stop"}}'`, nil, "BLOCK its answer is invalid"},
		{"much", `head -c 3000000 /dev/zero | tr '\0' x`, nil, "BLOCK it printed more than 1 MB"},
		{"endless", `yes`, nil, "BLOCK it printed more than 1 MB"},
		{"asks when it fails", `exit 1`, func(h *settings.Hook) { h.OnFailure = "ask" }, "ASK it ended with status 1"},
		{"goes on when it fails", `exit 1`, func(h *settings.Hook) { h.OnFailure = "continue" }, "GO it ended with status 1"},
		{"in the background", `exit 1`, func(h *settings.Hook) { h.Async = true }, "-"},
		{"says that it is in the background", `echo '{"async":true}'; sleep 1; exit 2`, nil, "-"},
		{"args", "printf", func(h *settings.Hook) { h.Args = []string{`{"decision":"block","reason":"%s"}`, "a b"} }, "block a b"},
		{"leaves something running", `sleep 1000 & exit 0`, nil, "-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := settings.Hook{Event: wire.EventPreToolUse, Matcher: "Ba.*", Command: tt.command}
			if tt.change != nil {
				tt.change(&h)
			}
			r := runner(t, hook.Options{Hooks: []settings.Hook{h}})
			all := r.Run(t.Context(), bash("ls"), "Bash")
			if len(all) != 1 {
				t.Fatalf("answers %+v", all)
			}
			if got := describe(all[0]); !strings.HasPrefix(got, tt.want) {
				t.Errorf("answer %q, want %q", got, tt.want)
			}
		})
	}
}

func describe(a hook.Answer) string {
	switch {
	case a.Err != nil:
		word := "GO "
		if a.Block {
			word = "BLOCK "
		} else if a.Ask {
			word = "ASK "
		}
		text := word + a.Err.Error()
		if a.Late {
			text += " late"
		}
		return text
	case a.Output == nil:
		return "-"
	case a.Output.Decision != "":
		return string(a.Output.Decision) + " " + a.Output.Reason
	}
	if o, ok := a.Output.HookSpecificOutput.(*wire.PreToolUseOutput); ok {
		return string(o.PermissionDecision) + " " + o.PermissionDecisionReason
	}
	return "?"
}

// When the context of an event ends, its hooks are stopped, and a missing answer does
// not allow the call.
func TestCancelled(t *testing.T) {
	dir := t.TempDir()
	r := runner(t, hook.Options{Dir: dir, Hooks: []settings.Hook{{Event: wire.EventPreToolUse, Command: "mkfifo p; echo $$ >pid; mv pid begun; cat p"}}})
	ctx, cancel := context.WithCancel(t.Context())
	pid := ""
	go func() {
		testwait.Until(t, "the hook begins", func() bool {
			data, err := os.ReadFile(filepath.Join(dir, "begun"))
			pid = strings.TrimSpace(string(data))
			return err == nil
		})
		cancel()
	}()
	all := r.Run(ctx, bash("ls"), "Bash")
	if len(all) != 1 || !all[0].Block {
		t.Errorf("answers %+v", all)
	}
	testwait.Until(t, "the hook ends", func() bool { return exec.Command("kill", "-0", pid).Run() != nil })
}

// TestMatchersMeanTheSame has matchers and the subjects that the official command matches with them.
func TestMatchersMeanTheSame(t *testing.T) {
	subjects := []string{"Bash", "Read", "NotebookEdit", "mcp__srv__echo", "general-purpose"}
	for text, want := range map[string]string{
		"": "Bash Read NotebookEdit mcp__srv__echo general-purpose", "*": "Bash Read NotebookEdit mcp__srv__echo general-purpose",
		"Bash": "Bash", "bash": "", "ash": "", "Edit": "", "Bash|Read": "Bash Read", "Read, Bash": "Bash Read", "Edit | Bash": "Bash", " Bash ": "Bash", "Bash,": "Bash", ",": "", "Bash Read": "",
		"Bash;Read": "", "^R": "Read", "Edit$": "NotebookEdit", ".*ead$": "Read", "!Bash": "", "Bash(echo*)": "", "mcp__srv": "", "mcp__.*": "mcp__srv__echo", "srv__.*|x": "mcp__srv__echo",
		"general-purpose,x": "general-purpose", "^gen": "general-purpose", "General.*": "", `\w+`: "Bash Read NotebookEdit mcp__srv__echo general-purpose",
	} {
		m, err := hook.Compile(text)
		var got []string
		for _, s := range subjects {
			if m.Match(s) {
				got = append(got, s)
			}
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q matches %q, want %q (%v)", text, got, want, err)
		}
	}
}

// The hooks of an event run concurrently, equal ones only once, and those of other
// tools not at all.
func TestWhich(t *testing.T) {
	dir := t.TempDir()
	h := func(matcher, command string) settings.Hook {
		return settings.Hook{Event: wire.EventPreToolUse, Matcher: matcher, Command: command}
	}
	// atOnce returns a command that ends only after another one has started.
	atOnce := func(name, other string) string {
		return fmt.Sprintf("echo %s >>log; touch %[1]s; until [ -e %[2]s ]; do sleep 0.01; done", name, other)
	}
	once := h("", "echo o >>log")
	once.Once = true
	r := runner(t, hook.Options{Dir: dir, Hooks: []settings.Hook{
		h("Bash", atOnce("a", "b")), h("Ba.h|Write", atOnce("a", "b")), h("Bash", atOnce("b", "a")), h("Write", "echo w >>log"), h("ash", "echo part >>log"), once,
	}})
	if n := len(r.Run(t.Context(), bash("ls"), "Bash")); n != 3 {
		t.Errorf("%d hooks ran", n)
	}
	if n := len(r.Run(t.Context(), bash("ls"), "Bash")); n != 2 {
		t.Errorf("%d hooks ran again", n)
	}
	text, _ := os.ReadFile(filepath.Join(dir, "log"))
	for _, not := range []string{"w", "part"} {
		if strings.Contains(string(text), not) {
			t.Errorf("log %q", text)
		}
	}
	if _, err := hook.New(hook.Options{Hooks: []settings.Hook{h("(?!x)", "x")}}); err == nil || !strings.Contains(err.Error(), "look-around") {
		t.Errorf("a matcher that cannot be read: %v", err)
	}
}

// Hooks are reported, and a hook in the background can wake the model.
func TestTold(t *testing.T) {
	var mu sync.Mutex
	var kinds []string
	var last *wire.HookResponse
	woken := make(chan string, 1)
	o := hook.Options{All: true, Rewake: func(text string) { woken <- text }, Tell: func(m wire.Message) {
		mu.Lock()
		defer mu.Unlock()
		switch m := m.(type) {
		case *wire.HookStarted:
			kinds = append(kinds, "started "+m.HookName)
		case *wire.HookResponse:
			kinds = append(kinds, "response "+m.Outcome)
			last = m
		}
	}, Hooks: []settings.Hook{
		{Event: wire.EventPreToolUse, Command: "echo out; echo err >&2; exit 3"},
		{Event: wire.EventStop, Command: "echo look >&2; exit 2", Async: true, Rewake: true},
	}}
	r := runner(t, o)
	r.Run(t.Context(), bash("ls"), "Bash")
	mu.Lock()
	if got := strings.Join(kinds, ", "); got != "started PreToolUse:Bash, response error" {
		t.Errorf("told %s", got)
	}
	if last == nil || last.Stdout != "out\n" || last.Stderr != "err\n" || last.ExitCode == nil || *last.ExitCode != 3 || last.SessionID != "s" {
		t.Errorf("told %+v", last)
	}
	mu.Unlock()
	r.Run(t.Context(), &wire.StopInput{}, "")
	if text := <-woken; !strings.Contains(text, "look") {
		t.Errorf("woken by %q", text)
	}
}

// TestHookProgress checks that the output of a running hook is sent.
func TestHookProgress(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	var said []string
	r := runner(t, hook.Options{Dir: dir, All: true,
		Hooks: []settings.Hook{{Event: wire.EventPreToolUse, Command: "echo one; while [ ! -e enough ]; do sleep 0.05; done", Timeout: time.Minute}},
		Tell: func(m wire.Message) {
			if p, ok := m.(*wire.HookProgress); ok {
				mu.Lock()
				defer mu.Unlock()
				said = append(said, p.Stdout)
				os.WriteFile(filepath.Join(dir, "enough"), nil, 0o600)
			}
		}})
	r.Run(t.Context(), bash("x"), "Bash")
	mu.Lock()
	defer mu.Unlock()
	if len(said) == 0 || said[0] != "one\n" {
		t.Errorf("progress %q, want one line", said)
	}
}

// TestCloseWhileHooksStart checks that hooks may start while their runner is closed, as those of
// a notification do, which nobody waits for.
func TestCloseWhileHooksStart(t *testing.T) {
	said := func(ctx context.Context, _ *settings.Hook, _ []byte) (string, string, error) {
		<-ctx.Done()
		return "", "", ctx.Err()
	}
	for range 100 {
		r, err := hook.New(hook.Options{Hooks: []settings.Hook{{Event: wire.EventNotification, Kind: "prompt", Async: true, Spec: &settings.Spec{}}},
			Kinds: map[string]func(context.Context, *settings.Hook, []byte) (string, string, error){"prompt": said}})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if n := len(r.Run(t.Context(), &wire.NotificationInput{}, "")); n != 1 {
					t.Errorf("%d hooks ran", n)
				}
			})
		}
		r.Close()
		wg.Wait()
		r.Close()
	}
}
