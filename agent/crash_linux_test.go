//go:build linux

package agent_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
)

// crashEnv makes this program an agent that will be killed. Its value is the maximum
// number of bytes in a file, beyond which the system ends the writer, or 0 for any.
const crashEnv = "PARLEY_TEST_CRASH"

const crashID = "66666666-6666-4666-8666-666666666666"

// crashScript is a turn with effects: each of the commands adds a line to a file. With
// dies the second one kills the agent, before it adds its line or after.
func crashScript(dies string) *parleytest.Scenario {
	bash := func(cmd string) map[string]string { return map[string]string{"command": cmd} }
	second := "echo two >> two"
	switch dies {
	case "before":
		second = "kill -9 $PPID; sleep 5; echo two >> two"
	case "after":
		second = "echo two >> two; kill -9 $PPID; sleep 5"
	}
	if dies == "child" {
		s := parleytest.Script(parleytest.Call("Agent", `{"description":"one","prompt":"P1","run_in_background":false}`))
		s.When("sub", parleytest.FirstUser("P1"), parleytest.Call("Bash", bash("echo two >> two; kill -9 $PPID; sleep 5")))
		return s
	}
	return parleytest.Script(
		parleytest.Think("First.").Say("I begin.").Call("Bash", bash("echo one >> one")),
		parleytest.Say("Next.").Call("Bash", bash(second)).Call("Bash", bash("echo three >> three")),
		parleytest.Say("Done."),
	)
}

// crashAgent is the agent that is killed.
func crashAgent() {
	var limit uint64
	fmt.Sscan(os.Getenv(crashEnv), &limit)
	if limit > 0 {
		syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit})
	}
	cwd, _ := os.Getwd()
	home := os.Getenv("HOME")
	cfg := agent.Config{Model: crashScript(os.Getenv("PARLEY_TEST_DIES")).Model(), Home: home, Cwd: cwd, Environ: os.Environ()}
	if point := os.Getenv(pointEnv); point != "" {
		cfg.Model = pointScript(cwd).Model()
		cfg.Store = newDyingStore(filepath.Join(home, ".claude"), point)
		cfg.Environ = append(cfg.Environ, "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING=1")
	}
	os.Exit(agent.Run(context.Background(), cfg, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// A crashRun is a run of the agent that ends early.
type crashRun struct {
	dir, home string
	lines     int    // of output after which it is killed, if that is not negative
	limit     int64  // the bytes that a file may hold, 0 for any
	dies      string // see crashScript
	point     string // see pointEnv
	stderr    bytes.Buffer
}

// run runs the agent until it dies. It returns the uuids of the messages that it sent.
func (c *crashRun) run(t *testing.T) (told []string, died bool) {
	t.Helper()
	lines := c.lines
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-p", "Do it.", "--output-format", "stream-json", "--verbose", "--session-id", crashID, "--allowedTools", "Bash,Write,Agent", "--session-durability", "write")
	cmd.Dir = c.dir
	cmd.Stderr = &c.stderr
	cmd.Env = append(os.Environ(), "HOME="+c.home, "GORACE=atexit_sleep_ms=0", "GOTRACEBACK=none", fmt.Sprint(crashEnv, "=", c.limit), "PARLEY_TEST_DIES="+c.dies, pointEnv+"="+c.point)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if lines == 0 {
		cmd.Process.Kill()
	}
	in := bufio.NewScanner(out)
	in.Buffer(nil, 1<<20)
	for n := 1; in.Scan(); n++ {
		var m struct{ Type, UUID string }
		if json.Unmarshal(in.Bytes(), &m) == nil && (m.Type == "assistant" || m.Type == "user") {
			told = append(told, m.UUID)
		}
		if n == lines {
			cmd.Process.Kill()
		}
	}
	return told, cmd.Wait() != nil
}

// TestCrash kills the agent after each line that it sent, while its command runs, and at
// bytes of its log, and continues the session each time. It checks that every message that
// was sent is there, that each command ran once or not at all, and that the model learns
// which.
func TestCrash(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts many processes")
	}
	// The run without a crash.
	dir, _ := workdir(t)
	home := t.TempDir()
	told, died := (&crashRun{dir: dir, home: home, lines: -1}).run(t)
	if died || len(told) < 6 {
		t.Fatalf("the uninterrupted run told %d messages, died %v", len(told), died)
	}
	whole := resumeAfterCrash(t, dir, home, told, false)
	logs, _ := filepath.Glob(filepath.Join(home, ".claude", "projects", "*", "*.jsonl"))
	info, err := os.Stat(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	type point struct {
		name  string
		lines int
		limit int64
		dies  string
	}
	points := []point{{"in the command, before its effect", -1, 0, "before"}, {"in the command, after its effect", -1, 0, "after"}}
	for n := range 16 {
		points = append(points, point{fmt.Sprintf("after %d lines", n), n, 0, ""})
	}
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	offsets := 12
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		offsets = 400
	}
	for range offsets {
		n := 1 + rng.Int64N(info.Size()-1)
		points = append(points, point{fmt.Sprintf("at byte %d", n), -1, n, ""})
	}
	deaths := 0
	for _, p := range points {
		t.Run(p.name, func(t *testing.T) {
			dir, _ := workdir(t)
			home := t.TempDir()
			told, died := (&crashRun{dir: dir, home: home, lines: p.lines, limit: p.limit, dies: p.dies}).run(t)
			if died {
				deaths++
			}
			if p.limit > 0 && logHolds(t, home, "the session cannot be written") {
				return // a call hit the limit, and did not run; a shorter record fitted
			}
			got := resumeAfterCrash(t, dir, home, told, died)
			if got == nil {
				return // nothing was sent, and nothing is there
			}
			// Except for the report of the crash, it is the start of the other one.
			if len(got) > len(whole) || !slices.Equal(got, whole[:len(got)]) || !died && len(got) != len(whole) {
				t.Errorf("the conversation is another one:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(whole, "\n"))
			}
		})
	}
	if deaths < len(points)/2 {
		t.Errorf("only %d of %d runs died", deaths, len(points))
	}
}

// TestCrashInSubagent kills the agent while a command of a subagent runs. The model learns
// that the outcome of its call is unknown, and nothing runs again by itself; the subagent
// can be continued, and learns the same about its command.
func TestCrashInSubagent(t *testing.T) {
	dir, _ := workdir(t)
	home := t.TempDir()
	if _, died := (&crashRun{dir: dir, home: home, lines: -1, dies: "child"}).run(t); !died {
		t.Fatal("it lives")
	}
	store := &session.Files{Dir: filepath.Join(home, ".claude")}
	ids, err := session.Subagents(t.Context(), store, crashID, nil)
	if err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	s := parleytest.Script(
		parleytest.Expect(parleytest.LastUser("Go on."), parleytest.Check("the outcome is unknown", func(r *parleytest.Request) error {
			if !strings.Contains(string(r.Body), "outcome unknown") {
				return fmt.Errorf("%s", r.Body)
			}
			return nil
		})).CallID("toolu_again", "SendMessage", map[string]string{"to": ids[0], "message": "What happened?"}),
		parleytest.Expect(parleytest.ToolResult("resumedAgentId")).Say("I wait."),
		parleytest.Expect(parleytest.LastUser("it is done")).Say("Good."),
	)
	s.When("sub", parleytest.FirstUser("P1"), parleytest.Expect(parleytest.LastUser("What happened?"), parleytest.Check("the outcome is unknown", func(r *parleytest.Request) error {
		if !strings.Contains(string(r.Body), "outcome unknown") {
			return fmt.Errorf("%s", r.Body)
		}
		return nil
	})).Pause(time.Second).Say("it is done")) // if it came earlier, its end would be part of the same turn
	m := s.Model()
	m.Strict = true
	_, r, err := collect(t, &parley.Options{Cwd: dir, Resume: crashID, Dialer: agent.InProcess(agent.Config{Model: m, Home: home})}, "Go on.")
	if err != nil || r.Result != "Good." {
		t.Error(r, err)
	}
	if err := m.Done(); err != nil {
		t.Error(err)
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "two")); string(text) != "two\n" {
		t.Errorf("the command ran %q", text)
	}
}

// resumeAfterCrash continues the session, checks its content and returns the blocks of the
// next request, without ids and without what is new in it; nil if there is no session.
func resumeAfterCrash(t *testing.T, dir, home string, told []string, died bool) []string {
	t.Helper()
	m := parleytest.Script(parleytest.Say("I see.")).Model()
	m.Strict, m.Record = true, true
	var stderr strings.Builder
	opts := parley.Options{Cwd: dir, Resume: crashID, Stderr: func(line string) { stderr.WriteString(line + "\n") },
		Dialer: agent.InProcess(agent.Config{Model: m, Home: home})}
	_, r, err := collect(t, &opts, "Go on.")
	if err != nil {
		if len(told) == 0 && strings.Contains(stderr.String(), "No conversation found") {
			return nil
		}
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if r == nil || r.IsError {
		t.Fatalf("%+v", r)
	}
	records, err := session.Records(t.Context(), &session.Files{Dir: filepath.Join(home, ".claude")}, crashID, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	log := bytes.Join(rawSlices(records), []byte("\n"))
	for _, id := range told {
		if !bytes.Contains(log, []byte(id)) {
			t.Errorf("the message %s was told and is lost", id)
		}
	}
	body := m.Requests()[0].Body
	var request struct {
		Messages []struct {
			Role    string
			Content []struct {
				Type, Text string
				ID         string
				ToolUseID  string `json:"tool_use_id"`
				Input      struct{ Command string }
				Content    json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(body, &request); err != nil {
		t.Fatal(err)
	}
	results := map[string]string{}
	var blocks []string
	for _, m := range request.Messages {
		for _, b := range m.Content {
			if b.Type == "tool_result" {
				results[b.ToolUseID] = string(b.Content)
			}
			if strings.Contains(string(b.Content), "nterrupted") || b.Text == "Go on." {
				continue
			}
			blocks = append(blocks, m.Role+" "+b.Type+" "+b.Text+effectOf(b.Input.Command)+string(b.Content))
		}
	}
	ran := map[string]int{}
	for _, name := range []string{"one", "two", "three"} {
		text, _ := os.ReadFile(filepath.Join(dir, name))
		ran[name] = strings.Count(string(text), "\n")
		if ran[name] > 1 {
			t.Errorf("%s ran %d times", name, ran[name])
		}
	}
	for _, m := range request.Messages {
		for _, b := range m.Content {
			if b.Type != "tool_use" {
				continue
			}
			name := effectOf(b.Input.Command)
			result, ok := results[b.ID]
			switch {
			case !ok:
				t.Errorf("the call of %s has no result", name)
			case strings.Contains(result, "It did not run") && ran[name] != 0:
				t.Errorf("%s ran, and the model is told that it did not: %s", name, result)
			case !strings.Contains(result, "It did not run") && !strings.Contains(result, "not at all") && ran[name] != 1:
				t.Errorf("%s ran %d times, and the model is told that it did: %s", name, ran[name], result)
			case strings.Contains(result, "nterrupted") && !died:
				t.Errorf("%s: %s", name, result)
			}
			delete(ran, name)
		}
	}
	for name, n := range ran {
		if n != 0 {
			t.Errorf("%s ran, and the model does not know of the call", name)
		}
	}
	return blocks
}

// effectOf returns the file that a command adds a line to.
func effectOf(command string) string {
	_, name, _ := strings.Cut(command, ">> ")
	name, _, _ = strings.Cut(name, ";")
	return name
}

func rawSlices(records []json.RawMessage) [][]byte {
	out := make([][]byte, len(records))
	for i, r := range records {
		out[i] = r
	}
	return out
}

// logHolds reports whether a session of a home contains a text.
func logHolds(t *testing.T, home, text string) bool {
	logs, err := filepath.Glob(filepath.Join(home, ".claude", "projects", "*", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range logs {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), text) {
			return true
		}
	}
	return false
}
