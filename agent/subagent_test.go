package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"iter"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A subagent's log is beside that of the session, where the functions of package session
// find it, and its cost is in the session's sum.
func TestSubagentTranscript(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	s := parleytest.Script(
		parleytest.Call("Agent", `{"description":"one","prompt":"P1","run_in_background":false}`).Usage(parleytest.Usage{Input: 10, Output: 1}),
		parleytest.Say("main").Usage(parleytest.Usage{Input: 10, Output: 1}),
	)
	s.When("one", parleytest.FirstUser("P1"),
		parleytest.Call("Agent", `{"description":"two","prompt":"P2"}`).Usage(parleytest.Usage{Input: 100, Output: 1}),
		parleytest.Say("report one").Usage(parleytest.Usage{Input: 100, Output: 1}))
	s.When("two", parleytest.FirstUser("P2"), parleytest.Say("report two").Usage(parleytest.Usage{Input: 1000, Output: 1}))
	cfg := agent.Config{Cwd: dir, Home: home, Model: s.Model()}
	res, err := parley.Run(t.Context(), "hi", &parley.Options{Dialer: agent.InProcess(cfg)})
	if err != nil {
		t.Fatal(err)
	}
	if res.Result != "main" {
		t.Error(res.Result)
	}
	var input int64
	for _, u := range res.ModelUsage {
		input += u.InputTokens
	}
	// The usage of the result is that of the conversation itself; by model it includes
	// everything.
	if input != 1220 || res.Usage.InputTokens != 20 {
		t.Errorf("the session used %d, the turn itself %d; 1220 and 20 expected", input, res.Usage.InputTokens)
	}
	store := &session.Files{Dir: filepath.Join(home, ".claude")}
	ids, err := session.Subagents(t.Context(), store, res.SessionID, nil)
	if err != nil || len(ids) != 2 {
		t.Fatal(ids, err)
	}
	var said []string
	for _, id := range ids {
		messages, err := session.SubagentMessages(t.Context(), store, res.SessionID, id, nil)
		if err != nil || len(messages) == 0 {
			t.Fatal(messages, err)
		}
		last := messages[len(messages)-1]
		said = append(said, string(last.Message))
		nested := strings.Contains(string(last.Message), "report two")
		if last.ParentToolUseID == "" || (last.ParentAgentID != "") != nested {
			t.Errorf("%s is of the call %q and the agent %q", last.Message, last.ParentToolUseID, last.ParentAgentID)
		}
	}
	if all := strings.Join(said, "\n"); !strings.Contains(all, "report one") || !strings.Contains(all, "report two") {
		t.Error(all)
	}
	for _, id := range ids {
		files, _ := filepath.Glob(filepath.Join(home, ".claude", "projects", "*", res.SessionID, "subagents", "agent-"+id+".meta.json"))
		if len(files) != 1 {
			t.Fatal("no meta", files)
		}
		if text, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(text), `"finished":true`) || !strings.Contains(string(text), `"agentType":"general-purpose"`) {
			t.Errorf("%s %v", text, err)
		}
	}
}

// The built-in agents work without configuration, each with its own prompt; the read-only
// ones change nothing, even where everything is allowed.
func TestBuiltInAgents(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	prompts := map[string]bool{}
	for name, may := range map[string]struct {
		tools, not []string
		makes      string // the files that exist in the end
	}{
		"":                {[]string{"Read", "Write", "Edit", "Bash", "Agent"}, nil, "bash write"},
		"general-purpose": {[]string{"Read", "Write", "Edit", "Bash", "Agent"}, nil, "bash write"},
		"Explore":         {[]string{"Read", "Grep", "Glob", "Bash"}, []string{"Write", "Edit", "NotebookEdit", "Agent"}, ""},
		"Plan":            {[]string{"Read", "Grep", "Glob", "Bash"}, []string{"Write", "Edit", "NotebookEdit", "Agent"}, ""},
		"Bash":            {[]string{"Bash"}, []string{"Write", "Edit", "Read", "Agent"}, "bash"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			call := map[string]any{"description": "one", "prompt": "P1", "run_in_background": false}
			if name != "" {
				call["subagent_type"] = name
			}
			s := parleytest.Script(parleytest.Call("Agent", call), parleytest.Expect(parleytest.ToolResult("the report")).Say("main"))
			want := []parleytest.Matcher{parleytest.Tools(may.tools...), parleytest.SystemPrompt("You are a subagent")}
			for _, not := range may.not {
				want = append(want, parleytest.Tools(not).Not())
			}
			s.When("sub", parleytest.FirstUser("P1"),
				parleytest.Expect(want...).Call("Bash", map[string]string{"command": "echo x > bash", "description": "Makes a file"}),
				parleytest.Call("Bash", map[string]string{"command": "mkdir -p d; ls", "description": "Looks"}),
				parleytest.Call("Write", map[string]string{"file_path": filepath.Join(dir, "write"), "content": "x"}),
				parleytest.Say("the report"))
			model := s.Model()
			model.Strict, model.Record = true, true
			cfg := agent.Config{Cwd: dir, Store: &session.Memory{}, Model: model, Environ: []string{"PATH=" + os.Getenv("PATH"), "IS_SANDBOX=1"}}
			r, err := parley.Run(t.Context(), "hi", &parley.Options{Dialer: agent.InProcess(cfg), PermissionMode: wire.ModeBypassPermissions, AllowBypass: true})
			if err != nil || r.Result != "main" {
				t.Fatal(r, err)
			}
			var made []string
			for _, f := range []string{"bash", "write"} {
				if _, err := os.Stat(filepath.Join(dir, f)); err == nil {
					made = append(made, f)
				}
			}
			if got := strings.Join(made, " "); got != may.makes {
				t.Errorf("it made %q, want %q", got, may.makes)
			}
			if _, err := os.Stat(filepath.Join(dir, "d")); (err == nil) != (may.makes != "") {
				t.Errorf("the directory: %v", err)
			}
			for _, req := range model.Requests() {
				if strings.Contains(string(req.Body), "You are a subagent") {
					var body struct{ System json.RawMessage }
					json.Unmarshal(req.Body, &body)
					if name != "" {
						prompts[strings.ReplaceAll(string(body.System), dir, "")] = true
					}
					break
				}
			}
		})
	}
	if len(prompts) != 4 {
		t.Errorf("the four have %d prompts", len(prompts))
	}
}

// The usage of subagents between turns is in the next result: all results together are the
// cost of the session.
func TestResultsAddUp(t *testing.T) {
	s := parleytest.Script(launch(true), parleytest.Say("main"), parleytest.Say("told"))
	s.When("sub", parleytest.FirstUser("P1"), parleytest.Pause(200*time.Millisecond).Call("Glob", `{"pattern":"*"}`), parleytest.Pause(200*time.Millisecond).Say("the report"))
	p := prompt(t, s, nil)
	if p.err != nil {
		t.Fatal(p.err)
	}
	sum, total, n := 0.0, 0.0, 0
	for _, m := range p.all {
		if r, ok := m.(*wire.Result); ok {
			for _, u := range r.ModelUsageSinceLastResult {
				sum += u.CostUSD
			}
			total, n = r.TotalCostUSD, n+1
		}
	}
	if n != 2 || total == 0 || math.Abs(sum-total) > 1e-12 {
		t.Errorf("%d results, together %v, in all %v", n, sum, total)
	}
}

// Everything that is waited for continues in the background if a host asks for it, also a
// command of a subagent, which does not end before its command. All of it is reported
// before the request is answered.
func TestEverythingMoves(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	s := parleytest.Script(parleytest.Call("Agent", `{"description":"one","prompt":"P1","run_in_background":false}`),
		parleytest.Expect(parleytest.ToolResult("works in the background")).Say("main"), parleytest.Expect(parleytest.LastUser("the report")).Say("after"))
	s.When("sub", parleytest.FirstUser("P1"), parleytest.Call("Bash", `{"command":"until test -e gate; do sleep 0.05; done; echo zz","description":"count"}`),
		parleytest.Expect(parleytest.ToolResult("manually backgrounded")).Say("for now"), parleytest.Expect(parleytest.LastUser("has ended (completed)")).Say("the report"))
	dir := t.TempDir()
	cfg := agent.Config{Cwd: dir, Store: &session.Memory{}, Model: s.Model(), Environ: []string{"PATH=" + os.Getenv("PATH"), "IS_SANDBOX=1"}}
	a := start(t, cfg, append(slices.Clone(streaming), "--permission-mode", "bypassPermissions"))
	go io.WriteString(a.stdin, `{"type":"user","message":{"role":"user","content":"hi"}}`+"\n")
	moved, answered, results := []string{}, false, []string{}
	for lines := bufio.NewScanner(a.stdout); len(results) < 2 && lines.Scan(); {
		m, err := wire.Decode(lines.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *wire.TaskStarted:
			if m.OwnedBySubagent != (m.TaskType == "local_bash") || (m.ParentTaskID != "") != m.OwnedBySubagent || *m.IsBackgrounded {
				t.Errorf("%+v", m)
			}
			if m.TaskType == "local_bash" {
				go io.WriteString(a.stdin, `{"type":"control_request","request_id":"b","request":{"subtype":"background_tasks"}}`+"\n")
			}
		case *wire.TaskUpdated:
			if m.Patch.IsBackgrounded != nil && *m.Patch.IsBackgrounded {
				moved = append(moved, m.TaskID[:1])
			}
		case *wire.ControlResponse:
			answered = true
			if !slices.Equal(moved, []string{"b", "a"}) {
				t.Errorf("it is answered when these have moved: %q", moved)
			}
		case *wire.Result:
			results = append(results, m.Result)
			if err := os.WriteFile(filepath.Join(dir, "gate"), nil, 0o600); err != nil { // the command runs until here
				t.Fatal(err)
			}
		}
	}
	if !answered || !slices.Equal(results, []string{"main", "after"}) {
		t.Errorf("answered %v, results %q", answered, results)
	}
}

// A panic of a model's client inside a subagent affects only the subagent.
func TestSubagentPanics(t *testing.T) {
	s := parleytest.Script(
		parleytest.Call("Agent", `{"description":"one","prompt":"PANIC","run_in_background":false}`),
		parleytest.Expect(parleytest.ToolError("in an unexpected way")).Say("went on"),
	)
	cfg := agent.Config{Cwd: t.TempDir(), Store: &session.Memory{}, Model: panicking{s.Model()}}
	res, err := parley.Run(t.Context(), "hi", &parley.Options{Dialer: agent.InProcess(cfg)})
	if err != nil || res.Result != "went on" {
		t.Fatal(res, err)
	}
}

type panicking struct{ model.Model }

func (p panicking) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	if strings.Contains(string(req.Body), "You are a subagent") {
		return func(func(model.Event, error) bool) { panic("the client is broken") }
	}
	return p.Model.Stream(ctx, req)
}

// Agents of the user's files and of the project's are available if their sources are
// requested; an invalid file of a project does no harm.
func TestAgentFiles(t *testing.T) {
	repo, home := t.TempDir(), t.TempDir()
	dir := filepath.Join(repo, "below")
	write := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(repo, ".git", "HEAD"), "ref: refs/heads/main")
	write(filepath.Join(dir, "x"), "")
	write(filepath.Join(home, ".claude", "agents", "mine.md"), "---\nname: mine\ndescription: d\n---\nYou are mine.")
	write(filepath.Join(repo, ".claude", "agents", "ours.md"), "---\nname: ours\ndescription: d\n---\nYou are ours.")
	write(filepath.Join(repo, ".claude", "agents", "broken.md"), "---\nname: [\n---\n")
	for sources, want := range map[string][]string{"": nil, "user": {"mine"}, "user,project": {"mine", "ours"}} {
		cfg := agent.Config{Cwd: dir, Home: home, Model: parleytest.Script(parleytest.Say("x")).Model()}
		a := start(t, cfg, append(slices.Clone(streaming), "--setting-sources="+sources, "--no-session-persistence"))
		go func() {
			a.stdin.Write([]byte(`{"type":"user","message":{"role":"user","content":"hi"}}` + "\n"))
			a.stdin.Close()
		}()
		init, _ := readLine(a.stdout)
		for _, name := range []string{"mine", "ours"} {
			if strings.Contains(init, `"`+name+`"`) != slices.Contains(want, name) {
				t.Errorf("sources %q: %s", sources, init)
			}
		}
		go func() { a.cancel(nil) }()
		for {
			if _, err := readLine(a.stdout); err != nil {
				break
			}
		}
	}
}

// readLine reads a line byte by byte.
func readLine(r interface{ Read([]byte) (int, error) }) (string, error) {
	var line []byte
	var b [1]byte
	for {
		if _, err := r.Read(b[:]); err != nil {
			return string(line), err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
}
