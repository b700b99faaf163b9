package agent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
)

// A rawHost is a host that reads and writes lines.
type rawHost struct {
	t     *testing.T
	in    io.WriteCloser
	lines chan map[string]json.RawMessage
}

// newRawHost starts an agent with a host of lines, which sends hooks in initialize.
func newRawHost(t *testing.T, dir string, s *parleytest.Scenario, hooks string, args ...string) *rawHost {
	t.Helper()
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	h := &rawHost{t: t, in: in, lines: make(chan map[string]json.RawMessage, 100)}
	m := s.Model()
	done := make(chan struct{})
	go func() {
		defer close(done)
		agent.Run(t.Context(), agent.Config{Cwd: dir, Model: m, Store: &session.Memory{}},
			append([]string{"-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--permission-prompt-tool", "stdio"}, args...), stdin, stdout, io.Discard)
		stdout.Close()
	}()
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var line map[string]json.RawMessage
			json.Unmarshal(lines.Bytes(), &line)
			h.lines <- line
		}
		close(h.lines)
	}()
	t.Cleanup(func() {
		in.Close()
		<-done
	})
	h.say(`{"type":"control_request","request_id":"i","request":{"subtype":"initialize","hooks":%s}}`, hooks)
	h.say(`{"type":"user","message":{"role":"user","content":"hi"}}`)
	return h
}

func (h *rawHost) say(format string, args ...any) { fmt.Fprintf(h.in, format+"\n", args...) }

// next returns the next line of a type, as its type and a word about it, with its id.
func (h *rawHost) next(kinds ...string) (word, id string, line map[string]json.RawMessage) {
	h.t.Helper()
	for line := range h.lines {
		var kind string
		json.Unmarshal(line["type"], &kind)
		if !slices.Contains(kinds, kind) {
			continue
		}
		json.Unmarshal(line["request_id"], &id)
		var req struct {
			Subtype string
			Input   struct {
				FilePath string `json:"file_path"`
			}
		}
		json.Unmarshal(line["request"], &req)
		return strings.TrimSpace(req.Subtype + " " + filepath.Base(req.Input.FilePath)), id, line
	}
	h.t.Fatal("the agent ended")
	return "", "", nil
}

func (h *rawHost) answer(id, payload string) {
	h.say(`{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":%s}}`, id, payload)
}

// TestParallelPrompts checks that concurrent calls ask for permission concurrently, and
// can be answered in any order.
func TestParallelPrompts(t *testing.T) {
	dir, outside := workdir(t)
	writeFile(t, filepath.Join(outside, "c.txt"), "gamma\n")
	h := newRawHost(t, dir, parleytest.Script(
		parleytest.Call("Read", map[string]string{"file_path": filepath.Join(outside, "b.txt")}).Call("Read", map[string]string{"file_path": filepath.Join(outside, "c.txt")}),
		parleytest.Expect(parleytest.ToolResult("beta"), parleytest.ToolError("not this one")).Say("done"),
	), "{}")
	ids := map[string]string{}
	for range 2 {
		word, id, _ := h.next("control_request")
		ids[word] = id
	}
	if ids["can_use_tool b.txt"] == "" || ids["can_use_tool c.txt"] == "" {
		t.Fatalf("asked %v", ids)
	}
	h.answer(ids["can_use_tool c.txt"], `{"behavior":"deny","message":"not this one"}`)
	h.answer(ids["can_use_tool b.txt"], `{"behavior":"allow"}`)
	_, _, line := h.next("result")
	if string(line["result"]) != `"done"` || strings.Count(string(line["permission_denials"]), "tool_use_id") != 1 {
		t.Errorf("the result is %s, denied %s", line["result"], line["permission_denials"])
	}
}

// TestAskedFirst checks that the host is asked before the hooks for permission requests,
// as with the official command, and that a hook's denial withdraws the request.
func TestAskedFirst(t *testing.T) {
	dir, outside := workdir(t)
	for range 5 {
		h := newRawHost(t, dir, parleytest.Script(
			parleytest.Call("Read", map[string]string{"file_path": filepath.Join(outside, "b.txt")}),
			parleytest.Say("done"),
		), `{"PermissionRequest":[{"hookCallbackIds":["h"]}]}`)
		first, question, _ := h.next("control_request")
		second, hook, _ := h.next("control_request")
		if first != "can_use_tool b.txt" || !strings.HasPrefix(second, "hook_callback") {
			t.Fatalf("asked %s, then %s", first, second)
		}
		h.answer(hook, `{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"deny","message":"the hook minds"}}}`)
		got := ""
		for range 2 { // in either order
			_, id, line := h.next("control_cancel_request", "user")
			got += id + string(line["message"])
		}
		if !strings.Contains(got, question) || !strings.Contains(got, "the hook minds") {
			t.Errorf("there came %s", got)
		}
	}
}

// TestCallbackNeverSees checks that init lists the tools that never need the host's
// permission.
func TestCallbackNeverSees(t *testing.T) {
	dir, _ := workdir(t)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "null"},
		{[]string{"--allowedTools", "Bash,Edit(src/**),Read"}, `["Bash","Read"]`},
		{[]string{"--allowedTools", "Bash", "--settings", `{"permissions":{"ask":["Bash(rm:*)"],"allow":["Glob"]}}`}, `["Glob"]`},
		{[]string{"--permission-mode", "dontAsk", "--tools", "Read,Bash"}, `["Bash","Read"]`},
	} {
		h := newRawHost(t, dir, parleytest.Script(parleytest.Say("done")), "{}", tt.args...)
		_, _, line := h.next("system")
		var names []string
		json.Unmarshal(line["callback_never_sees"], &names)
		slices.Sort(names)
		got, _ := json.Marshal(names)
		if string(got) != tt.want {
			t.Errorf("%v: %s, want %s", tt.args, got, tt.want)
		}
		h.next("result")
	}
}

// TestOfferedTools checks that the flags that add and remove tools apply to each of those
// that the agent adds by itself.
func TestOfferedTools(t *testing.T) {
	dir, _ := workdir(t)
	own := []string{"AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "Skill", "Task"}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "AskUserQuestion EnterPlanMode ExitPlanMode Skill Task"},
		{[]string{"--disallowedTools", "ExitPlanMode"}, "AskUserQuestion EnterPlanMode Skill Task"},
		{[]string{"--disallowedTools", "AskUserQuestion,Skill,Agent"}, "EnterPlanMode ExitPlanMode"},
		{[]string{"--tools", "EnterPlanMode,ExitPlanMode"}, "EnterPlanMode ExitPlanMode"},
		{[]string{"--tools", "default", "--disallowed-tools", "Task"}, "AskUserQuestion EnterPlanMode ExitPlanMode Skill"},
		{[]string{"--tools", "Read"}, ""},
		{[]string{"--bare"}, ""},
	} {
		h := newRawHost(t, dir, parleytest.Script(parleytest.Say("done")), "{}", tt.args...)
		_, _, line := h.next("system")
		var names []string
		json.Unmarshal(line["tools"], &names)
		names = slices.DeleteFunc(names, func(n string) bool { return !slices.Contains(own, n) })
		slices.Sort(names)
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.args, got, tt.want)
		}
		h.next("result")
	}
}

// TestExitPlanModeElsewhere checks that outside of plan mode there is no plan to approve,
// and nobody is asked to.
func TestExitPlanModeElsewhere(t *testing.T) {
	dir, _ := workdir(t)
	h := newRawHost(t, dir, parleytest.Script(
		parleytest.Call("ExitPlanMode", `{"plan":"1. Look."}`),
		parleytest.Expect(parleytest.ToolError("not plan mode")).Say("done"),
	), "{}")
	if _, id, line := h.next("control_request", "user"); id != "" {
		t.Errorf("there came %s", line["request"])
	}
	h.next("result")
}

// TestMentionsAreJudged checks that a rule about a file applies to a mention of it.
func TestMentionsAreJudged(t *testing.T) {
	dir, outside := workdir(t)
	for _, tt := range []struct{ prompt, want string }{
		{"look at @a.txt", "alpha"},
		{"look at @.env", "KEY=hush"},
		{"look at @./x/../.env", "KEY=hush"},
		{"look at @" + filepath.Join(dir, ".env"), "KEY=hush"},
		{"look at @" + filepath.Join(outside, "b.txt"), "beta"},
	} {
		seen := ""
		m := parleytest.Script(parleytest.Expect(parleytest.Check("prompt", func(r *parleytest.Request) error {
			seen = string(r.Body)
			return nil
		})).Say("done")).Model()
		agent.Run(t.Context(), agent.Config{Cwd: dir, Model: m, Store: &session.Memory{}},
			[]string{"-p", tt.prompt, "--settings", `{"permissions":{"deny":["Read(.env)"]}}`}, strings.NewReader(""), io.Discard, io.Discard)
		if got := strings.Contains(seen, tt.want); got != (tt.want == "alpha") {
			t.Errorf("%s: the model is shown %q: %v", tt.prompt, tt.want, got)
		}
	}
}

// TestInstructionsAreJudged checks that a rule about a file applies to instructions that
// import it or that are a link to it, at the start and below the directories that the
// model accesses.
func TestInstructionsAreJudged(t *testing.T) {
	dir, _ := workdir(t)
	sub := filepath.Join(dir, "sub")
	if err := os.MkdirAll(filepath.Join(sub, "deep"), 0o777); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"CLAUDE.md": "Project rules. See @.env", "sub/f.txt": "text", "sub/deep/CLAUDE.md": "Deep rules. See @../../.env", "sub/deep/f.txt": "text"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../.env", filepath.Join(sub, "CLAUDE.md")); err != nil {
		t.Skip(err)
	}
	m := parleytest.Script(
		new(parleytest.Turn).Call("Read", map[string]any{"file_path": filepath.Join(sub, "f.txt")}).Call("Read", map[string]any{"file_path": filepath.Join(sub, "deep", "f.txt")}),
		parleytest.Say("done")).Model()
	m.Record = true
	agent.Run(t.Context(), agent.Config{Cwd: dir, Model: m, Store: &session.Memory{}, SettingSources: []string{"project"}},
		[]string{"-p", "go", "--settings", `{"permissions":{"deny":["Read(.env)"]}}`}, strings.NewReader(""), io.Discard, io.Discard)
	all := ""
	for _, r := range m.Requests() {
		all += string(r.Body)
	}
	for text, want := range map[string]bool{"Project rules": true, "Deep rules": true, "KEY=hush": false} {
		if got := strings.Contains(all, text); got != want {
			t.Errorf("the model is shown %q: %v", text, got)
		}
	}
}
