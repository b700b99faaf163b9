//go:build linux

package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// pointEnv makes the agent die at one of its writes to the store, "12 before" or "12 after".
// "0" counts them, one line each on standard error.
const pointEnv = "PARLEY_TEST_POINT"

// pointScript is a turn that writes everything that a turn can: messages, intents and
// outcomes, receipts, the ledger, backups of files, and the transcript of a subagent.
func pointScript(dir string) *parleytest.Scenario {
	bash := func(name string) map[string]any { return map[string]any{"command": "echo x >> " + name} }
	s := parleytest.Script(
		parleytest.Think("First.").Say("I begin.").Call("Bash", bash("one")),
		parleytest.Say("Next.").Call("Write", map[string]string{"file_path": filepath.Join(dir, "two"), "content": "x\n"}).Call("Bash", bash("three")),
		parleytest.Call("Agent", `{"description":"d","prompt":"Sub prompt","run_in_background":false}`),
		parleytest.Say("Done."),
	)
	s.When("subagent", parleytest.FirstUser("Sub prompt"), parleytest.Call("Bash", bash("four")), parleytest.Say("Sub report."))
	return s
}

// A dyingStore kills the process at one of its writes.
type dyingStore struct {
	session.Store
	mu     sync.Mutex
	n, die int
	after  bool
	list   bool
}

func newDyingStore(dir, point string) *dyingStore {
	s := &dyingStore{Store: &session.Files{Dir: dir, Durability: session.Write}}
	when := ""
	fmt.Sscan(point, &s.die, &when)
	s.after, s.list = when == "after", s.die == 0
	return s
}

func (s *dyingStore) Lease(ctx context.Context, key session.Key) (session.Lease, error) {
	lease, err := s.Store.Lease(ctx, key)
	return &dyingLease{lease, s}, err
}

type dyingLease struct {
	session.Lease
	s *dyingStore
}

func (l *dyingLease) Append(ctx context.Context, sub string, records []json.RawMessage) error {
	s := l.s
	s.mu.Lock() // nothing else runs in the meantime
	defer s.mu.Unlock()
	s.n++
	if s.list {
		var names []string
		for _, r := range records {
			var m struct{ Type, Subtype string }
			json.Unmarshal(r, &m)
			names = append(names, m.Type+m.Subtype)
		}
		fmt.Fprintln(os.Stderr, "point", sub, strings.Join(names, "+"))
	}
	if s.n == s.die && !s.after {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	err := l.Lease.Append(ctx, sub, records)
	if s.n == s.die && s.after {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return err
}

// TestCrashPoints kills the agent before and after each of its writes to the session:
// messages, intents, outcomes, receipts, the ledger, backups of files, the transcript of a
// subagent. It continues the session each time, and checks that the next request starts, byte
// for byte, like that of a run without a crash, or equals it; that each effect happened once
// or not at all, and the model learns which; and that a rewind names every file that it does
// not restore. It uses a fifth of the points, others each time, or all with PARLEY_TEST_LONG.
func TestCrashPoints(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts many processes")
	}
	dir, _ := workdir(t)
	home := t.TempDir()
	c := crashRun{dir: dir, home: home, lines: -1, point: "0"}
	if told, died := c.run(t); died || len(told) < 8 {
		t.Fatalf("the uninterrupted run told %d messages, died %v: %s", len(told), died, c.stderr.String())
	}
	var points []string
	for line := range strings.Lines(c.stderr.String()) {
		if name, ok := strings.CutPrefix(line, "point "); ok {
			points = append(points, strings.TrimSpace(name))
		}
	}
	for _, want := range []string{"parley-intent", "parley-outcome", "parley-request", "cost-state", "subagents/agent-", "checkpoints parley-", "parley-prefix"} {
		if !strings.Contains(strings.Join(points, "\n"), want) {
			t.Errorf("no write of %s among\n%s", want, strings.Join(points, "\n"))
		}
	}
	whole := resumeAtPoint(t, dir, home, nil)
	every := 5
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		every = 1
	}
	at := os.Getpid() % every
	same := 0
	for n, name := range points {
		for i, when := range []string{"before", "after"} {
			if (2*n+i)%every != at {
				continue
			}
			t.Run(fmt.Sprintf("%s %d of %d, %s", when, n+1, len(points), strings.ReplaceAll(name, "/", "-")), func(t *testing.T) {
				dir, _ := workdir(t)
				home := t.TempDir()
				c := crashRun{dir: dir, home: home, lines: -1, point: fmt.Sprint(n+1, " ", when)}
				told, died := c.run(t)
				if !died {
					t.Fatalf("it did not die: %s", c.stderr.String())
				}
				got := resumeAtPoint(t, dir, home, told)
				if got == nil {
					return // nothing was sent, and nothing is there
				}
				if len(got) > len(whole) || !slices.Equal(got, whole[:len(got)]) {
					t.Errorf("the conversation is another one:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(whole, "\n"))
				}
				if len(got) == len(whole) {
					same++
				}
			})
		}
	}
	t.Logf("%d writes; %d of those that were killed went on exactly as the one that was not", len(points), same)
}

// resumeAtPoint continues the session and checks its content and what the model receives. It
// returns the blocks of the next request, up to the first one that reports the crash; nil if
// there is no session.
func resumeAtPoint(t *testing.T, dir, home string, told []string) []string {
	t.Helper()
	m := parleytest.Script(parleytest.Say("I see.")).Model()
	m.Strict, m.Record = true, true
	var stderr strings.Builder
	const checkpoints = "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"
	opts := parley.Options{Cwd: dir, Resume: crashID, Checkpoints: true, Stderr: func(line string) { stderr.WriteString(line + "\n") },
		Dialer: agent.InProcess(agent.Config{Model: m, Home: home, Environ: []string{checkpoints + "=1"}})}
	client, err := parley.Connect(t.Context(), &opts)
	if err == nil {
		defer client.Close()
		var r *wire.Result
		if r, err = run(t, client, "Go on."); err == nil && r.IsError {
			t.Fatalf("%+v", r)
		}
	}
	if err != nil {
		if len(told) == 0 && strings.Contains(stderr.String(), "No conversation found") {
			return nil
		}
		t.Fatalf("%v: %s", err, stderr.String())
	}
	store := &session.Files{Dir: filepath.Join(home, ".claude")}
	records, err := session.Records(t.Context(), store, crashID, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	log := bytes.Join(rawSlices(records), []byte("\n"))
	all := log
	agents, err := session.Subagents(t.Context(), store, crashID, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range agents {
		records, err := session.Records(t.Context(), store, crashID, "subagents/agent-"+id, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = slices.Concat(all, bytes.Join(rawSlices(records), nil))
	}
	for _, id := range told {
		if !bytes.Contains(all, []byte(id)) {
			t.Errorf("the message %s was told and is lost", id)
		}
	}
	body := strings.ReplaceAll(string(m.Requests()[0].Body), dir, "DIR")
	body = strings.ReplaceAll(body, `,"cache_control":{"type":"ephemeral"}`, "")
	var request struct {
		Messages []struct {
			Role    string
			Content []json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(body), &request); err != nil {
		t.Fatal(err)
	}
	type block struct {
		Type, Text, ID string
		ToolUseID      string `json:"tool_use_id"`
		Input          struct{ Command, Prompt string }
		Content        json.RawMessage
	}
	var blocks []string
	results, calls, crashed := map[string]string{}, map[string]string{}, false
	for _, m := range request.Messages {
		for _, raw := range m.Content {
			var b block
			json.Unmarshal(raw, &b)
			switch b.Type {
			case "tool_result":
				results[b.ToolUseID] = string(b.Content)
			case "tool_use":
				name := "two"
				if b.Input.Command != "" {
					name = effectOf(b.Input.Command)
				} else if b.Input.Prompt != "" {
					name = "four"
				}
				calls[name] = b.ID
			}
			crashed = crashed || strings.Contains(string(b.Content), "Tool call interrupted")
			if !crashed && b.Text != "Go on." {
				blocks = append(blocks, m.Role+" "+withoutRun(string(raw)))
			}
		}
	}
	for _, name := range []string{"one", "two", "three", "four"} {
		text, _ := os.ReadFile(filepath.Join(dir, name))
		ran := strings.Count(string(text), "x")
		result := results[calls[name]]
		switch {
		case ran > 1:
			t.Errorf("%s ran %d times", name, ran)
		case calls[name] == "":
			if ran != 0 {
				t.Errorf("%s ran, and the model does not know of the call", name)
			}
		case result == "":
			t.Errorf("the call of %s has no result", name)
		case strings.Contains(result, "It did not run") && ran != 0:
			t.Errorf("%s ran, and the model is told that it did not: %s", name, result)
		case !strings.Contains(result, "It did not run") && !strings.Contains(result, "outcome unknown") && ran != 1:
			t.Errorf("%s did not run, and the model is told that it did: %s", name, result)
		}
	}
	rewindAtPoint(t, client, dir, log)
	return blocks
}

// rewindAtPoint restores files to their content before the interrupted prompt. It names the
// files that it leaves, or reports that the list may be incomplete.
func rewindAtPoint(t *testing.T, client *parley.Client, dir string, log []byte) {
	t.Helper()
	prompt := ""
	for line := range bytes.Lines(log) {
		var r struct{ Type, UUID, PromptID string }
		if json.Unmarshal(line, &r) == nil && r.Type == "user" && r.PromptID != "" {
			prompt = r.UUID
			break
		}
	}
	there := func() (names []string) {
		for _, name := range []string{"one", "two", "three", "four"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				names = append(names, name)
			}
		}
		return names
	}
	before := there()
	r, err := client.RewindFiles(t.Context(), prompt, false)
	if err != nil {
		if len(before) > 0 {
			t.Errorf("%v cannot be rewound: %v", before, err)
		}
		return
	}
	for _, name := range there() {
		if !strings.Contains(r.Error, filepath.Join(dir, name)) && r.Extra["uncovered"] == nil {
			t.Errorf("a rewind leaves %s and does not say so: %+v", name, r)
		}
	}
}

// withoutRun removes from a block what varies from run to run.
func withoutRun(raw string) string {
	for _, mark := range []string{"duration_ms: ", "agentId: "} {
		if i := strings.Index(raw, mark); i >= 0 {
			end := i + strings.IndexAny(raw[i:], "\\<")
			raw = raw[:i] + raw[end:]
		}
	}
	return raw
}
