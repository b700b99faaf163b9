package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestResumeBytes runs the same conversation twice, with one process and with one
// process for each prompt, on other days, and checks that every request is the same,
// byte for byte.
func TestResumeBytes(t *testing.T) {
	dir, _ := workdir(t)
	const id = "5a4daa78-1b64-484f-a52a-0f2c91f6f1cc"
	// Turns, with everything that has its own form in the history.
	script := func() *parleytest.Scenario {
		return parleytest.Script(
			parleytest.Think("Let me see <b>& \u2028 \u00e4.").Say("I look.").Call("Read", map[string]string{"file_path": filepath.Join(dir, "a.txt")}).Call("Bash", `{ "command" : "echo  <x>\u0026" }`),
			parleytest.Say("Two calls ran.").Call("Nonesuch", `{"n": 1.50, "big": 12345678901234567890}`).Call("Read", `not json`),
			parleytest.Say("done one"),
			parleytest.Fail(500), // retried
			parleytest.Say("cut here").Cut(),
			parleytest.Think("only a thought").Say("lost").Cut().After(6),
			parleytest.Say("done two"),
			parleytest.Fail(400), // reported as an error
			parleytest.Call("Write", map[string]string{"file_path": filepath.Join(dir, "x"), "content": "x"}),
			parleytest.Say("long").Stop("max_tokens"),
			parleytest.Think("hmm"),
			parleytest.Say("done four"),
			parleytest.Say("done five"),
		)
	}
	prompts := []string{"one", "two", "three", "four", "five"}
	hold := func(t *testing.T, restart bool) [][]byte {
		var bodies [][]byte
		synctest.Test(t, func(t *testing.T) {
			m := script().Model()
			m.Strict, m.Record = true, true
			cfg := agent.Config{Model: m, Store: &session.Memory{}}
			opts := parley.Options{Cwd: dir, SessionID: id, AllowedTools: []string{"Bash"}, Dialer: agent.InProcess(cfg)}
			opts.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) { return parley.Deny("no"), nil }
			opts.Hooks = []parley.Hook{
				parley.On("", func(_ context.Context, in *wire.UserPromptSubmitInput) (*wire.HookOutput, error) {
					return &wire.HookOutput{HookSpecificOutput: &wire.UserPromptSubmitOutput{AdditionalContext: "said " + in.Prompt}}, nil
				}),
				parley.On("Read", func(context.Context, *wire.PostToolUseInput) (*wire.HookOutput, error) {
					return &wire.HookOutput{HookSpecificOutput: &wire.PostToolUseOutput{AdditionalContext: "was read"}}, nil
				}),
			}
			var c *parley.Client
			for i, text := range prompts {
				if c == nil || restart {
					if c != nil {
						c.Close()
						opts.SessionID, opts.Resume = "", id
					}
					var err error
					if c, err = parley.Connect(t.Context(), &opts); err != nil {
						t.Fatal(err)
					}
				}
				r, err := run(t, c, text)
				if failed := new(parley.ResultError); err != nil && !errors.As(err, &failed) {
					t.Fatal(err)
				}
				if r == nil || r.IsError != (text == "three") {
					t.Fatalf("%s: %v %+v", text, err, r)
				}
				if *r.ResultIndex != i && !restart {
					t.Errorf("result_index %d of %d", *r.ResultIndex, i)
				}
				time.Sleep(25 * time.Hour)
			}
			c.Close()
			if err := m.Done(); err != nil {
				t.Error(err)
			}
			for _, r := range m.Requests() {
				bodies = append(bodies, r.Body)
			}
		})
		os.Remove(filepath.Join(dir, "x"))
		return bodies
	}
	once, often := hold(t, false), hold(t, true)
	if len(once) != len(often) || len(once) == 0 {
		t.Fatalf("%d requests by one process, %d by several", len(once), len(often))
	}
	for i := range once {
		if !bytes.Equal(once[i], often[i]) {
			at := 0
			for at < len(once[i]) && at < len(often[i]) && once[i][at] == often[i][at] {
				at++
			}
			t.Errorf("request %d differs at %d:\n  one process: …%.300s\n  several:     …%.300s", i, at, once[i][max(0, at-60):], often[i][max(0, at-60):])
		}
		// The start of each request is that of the one before, up to its breakpoints.
		if i > 0 && prefixOf(once[i-1]) != prefixOf(once[i])[:min(len(prefixOf(once[i])), len(prefixOf(once[i-1])))] {
			t.Errorf("request %d does not begin like the one before", i)
		}
	}
}

// prefixOf returns what prompt caching sees of a request: its messages without
// breakpoints.
func prefixOf(body []byte) string {
	s := strings.ReplaceAll(string(body), `,"cache_control":{"type":"ephemeral"}`, "")
	i := strings.LastIndex(s, `],"metadata"`)
	return strings.TrimRight(s[:i], "]}")
}

// TestSessionFlags has a row for each way to start or continue a session.
func TestSessionFlags(t *testing.T) {
	dir, other := workdir(t)
	store := &session.Memory{}
	const a, b, c = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222", "33333333-3333-4333-8333-333333333333"
	uuids := map[string]string{} // of answers, by their text
	for _, tt := range []struct {
		name   string
		opts   parley.Options
		users  string // the user's messages, as the model receives them
		id     string // of the session; empty means a new one
		failed string
	}{
		{"begin", parley.Options{SessionID: a}, "p0", a, ""},
		{"in use", parley.Options{SessionID: a}, "", "", "Session ID " + a + " is already in use."},
		{"resume", parley.Options{Resume: a}, "p0 p2", a, ""},
		{"continue", parley.Options{Continue: true}, "p0 p2 p3", a, ""},
		{"continue elsewhere", parley.Options{Continue: true, Cwd: other}, "p4", "", ""},
		{"resume from elsewhere", parley.Options{Resume: a, Cwd: other}, "p0 p2 p3 p5", a, ""},
		{"fork", parley.Options{Resume: a, Fork: true}, "p0 p2 p3 p5 p6", "", ""},
		{"fork by id", parley.Options{Resume: a, Fork: true, SessionID: b}, "p0 p2 p3 p5 p7", b, ""},
		{"the original is as it was", parley.Options{Resume: a}, "p0 p2 p3 p5 p8", a, ""},
		{"the fork goes on", parley.Options{Resume: b}, "p0 p2 p3 p5 p7 p9", b, ""},
		{"from an earlier answer", parley.Options{Resume: a, ResumeAt: "answer to p2"}, "p0 p2 p10", a, ""},
		{"goes on from there", parley.Options{Resume: a}, "p0 p2 p10 p11", a, ""},
		{"fork from an earlier answer", parley.Options{Resume: b, ResumeAt: "answer to p7", Fork: true, SessionID: c}, "p0 p2 p3 p5 p7 p12", c, ""},
		{"unknown answer", parley.Options{Resume: a, ResumeAt: "99999999-9999-4999-8999-999999999999"}, "", "", "No message found with message.uuid of: 99999999"},
		{"unknown session", parley.Options{Resume: "44444444-4444-4444-8444-444444444444"}, "", "", "No conversation found with session ID: 44444444"},
		{"unknown title", parley.Options{Resume: "my talk"}, "", "", "No conversation found with the title: my talk"},
		{"resumed, and nothing is kept", parley.Options{Resume: c, NoPersistence: true}, "p0 p2 p3 p5 p7 p12 p16", c, ""},
		{"kept nowhere", parley.Options{NoPersistence: true, SessionID: "55555555-5555-4555-8555-555555555555"}, "p16", "55555555-5555-4555-8555-555555555555", ""},
		{"was kept nowhere", parley.Options{Resume: "55555555-5555-4555-8555-555555555555"}, "", "", "No conversation found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				fmt.Sscanf(tt.users[strings.LastIndexByte(tt.users, 'p')+1:], "%d", &n)
				text := fmt.Sprintf("p%d", n)
				var got []string
				m := parleytest.Script(parleytest.Expect(parleytest.Check("", func(r *parleytest.Request) error {
					var body struct {
						Messages []struct {
							Role    string
							Content []struct{ Text string }
						}
					}
					if err := json.Unmarshal(r.Body, &body); err != nil {
						return err
					}
					for _, m := range body.Messages {
						if m.Role == "user" {
							got = append(got, m.Content[0].Text)
						}
					}
					return nil
				})).Say("answer to " + text)).Model()
				m.Strict = true
				opts := tt.opts
				if opts.Cwd == "" {
					opts.Cwd = dir
				}
				if id := uuids[opts.ResumeAt]; id != "" {
					opts.ResumeAt = id
				}
				var stderr strings.Builder
				opts.Stderr = func(line string) { stderr.WriteString(line + "\n") }
				opts.Dialer = agent.InProcess(agent.Config{Model: m, Store: store})
				all, r, err := collect(t, &opts, text)
				if tt.failed != "" {
					if err == nil || !strings.Contains(stderr.String(), tt.failed) {
						t.Errorf("error %v, standard error %q", err, stderr.String())
					}
					if tt.opts.Resume != "" && (r == nil || r.Subtype != "error_during_execution" || !strings.Contains(r.Errors[0], tt.failed) || r.NumTurns != 0) {
						t.Errorf("result %+v", r)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if users := strings.Join(got, " "); users != tt.users {
					t.Errorf("the user said %s, want %s", users, tt.users)
				}
				if tt.id != "" && r.SessionID != tt.id || tt.id == "" && (r.SessionID == a || r.SessionID == b) {
					t.Errorf("session %s", r.SessionID)
				}
				for _, m := range all {
					if m, ok := m.(*wire.Assistant); ok {
						uuids["answer to "+text] = m.UUID
					}
				}
			})
		})
	}
}

// TestResumeDropsTurn checks that continuing from an earlier answer may drop only the
// named turn.
func TestResumeDropsTurn(t *testing.T) {
	dir, _ := workdir(t)
	store := &session.Memory{}
	const id = "11111111-1111-4111-8111-111111111111"
	synctest.Test(t, func(t *testing.T) {
		m := parleytest.Script(parleytest.Say("ok").Times(4)).Model()
		ask := func(prompt string, opts parley.Options) (string, error) {
			opts.Cwd, opts.Dialer = dir, agent.InProcess(agent.Config{Model: m, Store: store})
			all, _, err := collect(t, &opts, prompt)
			for _, m := range all {
				if a, ok := m.(*wire.Assistant); ok {
					return a.UUID, err
				}
			}
			return "", err
		}
		first, _ := ask("one", parley.Options{SessionID: id})
		ask("two", parley.Options{Resume: id})
		log, h, err := session.Open(t.Context(), store, id, session.Meta{Cwd: dir})
		if err != nil {
			t.Fatal(err)
		}
		log.Close()
		var turns []string
		for _, e := range h.Entries {
			if e.Type == "user" {
				turns = append(turns, e.UUID)
			}
		}
		if len(turns) != 2 {
			t.Fatalf("%d prompts", len(turns))
		}
		for name, opts := range map[string]parley.Options{
			"another turn is named":   {ResumeAt: first, ResumeDropsTurn: turns[0]},
			"the prompt would stay":   {ResumeAt: turns[1], ResumeDropsTurn: turns[1]},
			"no identifier of a turn": {ResumeAt: first, ResumeDropsTurn: "nope"},
		} {
			opts.Resume = id
			if _, err := ask("three", opts); err == nil || !strings.Contains(err.Error(), "Resume rejected by --resume-drops-turn:") {
				t.Errorf("%s: got the error %v", name, err)
			}
		}
		if _, err := ask("three", parley.Options{Resume: id, ResumeAt: first, ResumeDropsTurn: turns[1]}); err != nil {
			t.Errorf("the turn was named: %v", err)
		}
	})
}

// TestCostGoesOn checks that the cost of a session includes that of earlier processes,
// and that a budget does not.
func TestCostGoesOn(t *testing.T) {
	dir, _ := workdir(t)
	synctest.Test(t, func(t *testing.T) {
		m := parleytest.Script(parleytest.Say("ok").Usage(parleytest.Usage{Input: 1000, Output: 100}).Times(4)).Model()
		cfg := agent.Config{Model: m, Store: &session.Memory{}}
		const id = "11111111-1111-4111-8111-111111111111"
		opts := parley.Options{Cwd: dir, Model: "sonnet", SessionID: id, Dialer: agent.InProcess(cfg)}
		_, first, err := collect(t, &opts, "hi")
		if err != nil || first.TotalCostUSD <= 0 {
			t.Fatal(err, first)
		}
		opts.SessionID, opts.Resume = "", id
		opts.MaxBudgetUSD = first.TotalCostUSD * 1.5
		_, second, err := collect(t, &opts, "hi")
		if err != nil || !near(second.TotalCostUSD, 2*first.TotalCostUSD) || second.Usage.InputTokens != 1000 {
			t.Errorf("%v, %v after %v", err, second.TotalCostUSD, first.TotalCostUSD)
		}
		opts.Fork = true
		_, third, err := collect(t, &opts, "hi")
		if err != nil || !near(third.TotalCostUSD, 3*first.TotalCostUSD) {
			t.Errorf("%v, %+v after %v", err, third, first.TotalCostUSD)
		}
		opts.Fork, opts.Resume = false, third.SessionID
		if _, last, err := collect(t, &opts, "hi"); err != nil || !near(last.TotalCostUSD, 4*first.TotalCostUSD) {
			t.Errorf("%v, %+v", err, last)
		}
	})
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// TestUnpricedBudget checks that a budget that cannot be enforced is rejected, at the
// start and later.
func TestUnpricedBudget(t *testing.T) {
	dir, _ := workdir(t)
	synctest.Test(t, func(t *testing.T) {
		m := parleytest.Script(parleytest.Say("ok")).Model()
		opts := parley.Options{Cwd: dir, Model: "nobody-knows-1", MaxBudgetUSD: 1, Dialer: agent.InProcess(agent.Config{Model: m})}
		if _, _, err := collect(t, &opts, "hi"); err == nil || !strings.Contains(err.Error(), "price") {
			t.Errorf("error %v", err)
		}
		opts.Model = "sonnet"
		c, err := parley.Connect(t.Context(), &opts)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.SetModel(t.Context(), "nobody-knows-1"); err == nil {
			t.Error("it was taken")
		}
		if r, err := run(t, c, "hi"); err != nil || r.ModelUsage["claude-sonnet-4-5"] == nil && len(r.ModelUsage) != 1 {
			t.Error(err)
		}
	})
}

// TestDuplicateAfterResume checks that a prompt that the session already has is not
// accepted again.
func TestDuplicateAfterResume(t *testing.T) {
	dir, _ := workdir(t)
	synctest.Test(t, func(t *testing.T) {
		m := parleytest.Script(parleytest.Say("one"), parleytest.Expect(parleytest.LastUser("other")).Say("two")).Model()
		cfg := agent.Config{Model: m, Store: &session.Memory{}, Cwd: dir}
		const id = "11111111-1111-4111-8111-111111111111"
		line := func(text, uuid string) string {
			return fmt.Sprintf(`{"type":"user","message":{"role":"user","content":%q},"uuid":%q}`+"\n", text, uuid)
		}
		var out safeBuffer
		const u = "0e6a835c-a5e3-492f-99ac-ac3841ff7c2d"
		agent.Run(t.Context(), cfg, append(streaming[:5:5], "--session-id", id), strings.NewReader(line("hi", u)), &out, os.Stderr)
		agent.Run(t.Context(), cfg, append(streaming[:5:5], "--resume", id), strings.NewReader(line("hi", u)+line("other", "c65ae3dd-2e54-4fb2-b95c-0fedceace75a")), &out, os.Stderr)
		if n := strings.Count(out.String(), `"type":"result"`); n != 2 {
			t.Errorf("%d results", n)
		}
		if err := m.Done(); err != nil {
			t.Error(err)
		}
	})
}

// TestUnwritableLog checks that nothing happens that cannot be recorded.
func TestUnwritableLog(t *testing.T) {
	dir, _ := workdir(t)
	for n := range 7 {
		synctest.Test(t, func(t *testing.T) {
			m := parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Say("ok")).Default(parleytest.Say("more")).Model()
			m.Strict = true
			opts := parley.Options{Cwd: dir, AllowedTools: []string{"Bash"}, Dialer: agent.InProcess(agent.Config{Model: m, Store: &fullStore{Store: &session.Memory{}, left: n}})}
			_, r, err := collect(t, &opts, "hi")
			if r == nil {
				t.Fatalf("%d: no result, %v", n, err)
			}
			_, statErr := os.Stat(filepath.Join(dir, "made"))
			// Before the command: the prompt with the system prompt, the call, its
			// intent.
			if ran := statErr == nil; ran != (n >= 3) {
				t.Errorf("%d: the command ran: %v", n, ran)
			}
			if n != 2 && n != 3 && n < 6 && (r.Subtype != "error_during_execution" || !strings.Contains(strings.Join(r.Errors, " "), "cannot be written")) {
				t.Errorf("%d: %+v", n, r)
			}
			os.Remove(filepath.Join(dir, "made"))
		})
	}
}

// A fullStore is a store whose disk is full after some records.
type fullStore struct {
	session.Store
	left int
}

func (s *fullStore) Lease(ctx context.Context, key session.Key) (session.Lease, error) {
	lease, err := s.Store.Lease(ctx, key)
	return &fullLease{lease, s}, err
}

type fullLease struct {
	session.Lease
	s *fullStore
}

func (l *fullLease) Append(ctx context.Context, sub string, records []json.RawMessage) error {
	if l.s.left--; l.s.left < 0 {
		return errors.New("no space left on device")
	}
	return l.Lease.Append(ctx, sub, records)
}

// TestMirrorAnyStore lets the SDK keep a copy of the records of an agent whose store is
// not a file, subagents included, and continue from the copy.
func TestMirrorAnyStore(t *testing.T) {
	for name, home := range map[string]string{"with a home": t.TempDir(), "without a home": ""} {
		for kind, own := range map[string]session.Store{"memory": &session.Memory{}, "files": nil} {
			if kind == "files" && home == "" {
				continue // then it keeps none
			}
			t.Run(name+", "+kind, func(t *testing.T) {
				dir, _ := workdir(t)
				m := parleytest.Script(
					parleytest.Call("Agent", map[string]any{"description": "d", "prompt": "sub", "subagent_type": "general-purpose", "run_in_background": false}),
					parleytest.Say("from the subagent"),
					parleytest.Say("done"),
				).Model()
				m.Strict = true
				var environ []string
				copied := &session.Memory{}
				opts := parley.Options{Cwd: dir, SessionStore: copied, AllowedTools: []string{"Agent"}}
				if home != "" {
					opts.Env = map[string]string{"CLAUDE_CONFIG_DIR": home}
					environ = []string{"CLAUDE_CONFIG_DIR=" + home}
				}
				opts.Dialer = agent.InProcess(agent.Config{Model: m, Store: own, Environ: environ, Home: home})
				_, r, err := collect(t, &opts, "hi")
				if err != nil {
					t.Fatal(err)
				}
				if own == nil {
					own = &session.Files{Dir: home}
				}
				subs, err := session.Subagents(t.Context(), copied, r.SessionID, nil)
				if err != nil || len(subs) != 1 {
					t.Fatalf("subagents %v, %v", subs, err)
				}
				for _, part := range []string{"", "subagents/agent-" + subs[0]} {
					want, err := session.Records(t.Context(), own, r.SessionID, part, nil)
					if err != nil {
						t.Fatal(err)
					}
					got, err := session.Records(t.Context(), copied, r.SessionID, part, nil)
					got, want = withoutMeta(got), withoutMeta(want)
					if err != nil || len(got) != len(want) {
						t.Fatalf("%q: the copy has %d records, %v, want %d", part, len(got), err, len(want))
					}
					for i := range want {
						if !sameJSON(got[i], want[i]) {
							t.Errorf("%q, record %d is\n%s\nwant\n%s", part, i, got[i], want[i])
						}
					}
				}
			})
		}
	}
}

// sameJSON compares records without the mark of those that were written at once.
func sameJSON(a, b json.RawMessage) bool {
	var x, y map[string]any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	for _, m := range []map[string]any{x, y} {
		delete(m, "parleyMore")
	}
	return reflect.DeepEqual(x, y)
}

// withoutMeta leaves out the metadata of subagents, of which files keep only the last.
func withoutMeta(records []json.RawMessage) []json.RawMessage {
	return slices.DeleteFunc(records, func(r json.RawMessage) bool { return bytes.Contains(r, []byte(`"agent_metadata"`)) })
}

// TestIndexingIsTold continues a long session that has no index: the host receives the
// progress, and the next time there is nothing to report.
func TestIndexingIsTold(t *testing.T) {
	dir, _ := workdir(t)
	home := t.TempDir()
	const id = "5a4daa78-1b64-484f-a52a-0f2c91f6f1cd"
	var log bytes.Buffer
	line := func(n int, parent, typ, extra, text string) string {
		uuid := fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
		message := ""
		if text != "" {
			message = fmt.Sprintf(`"message":{"role":%q,"content":[{"type":"text","text":%q}]},`, typ, text)
		}
		fmt.Fprintf(&log, `{"parentUuid":%s,"isSidechain":false,"type":%q,%s%s"uuid":%q,"timestamp":"2026-01-02T03:04:05.678Z","cwd":"/x","sessionId":%q}`+"\n", parent, typ, message, extra, uuid, id)
		return `"` + uuid + `"`
	}
	line(1, "null", "user", "", "Hello.")
	for range 40 { // much to read, and quickly read
		log.WriteString(strings.Repeat(" ", 1<<20) + "\n")
	}
	parent := line(100, "null", "system", `"subtype":"compact_boundary","content":"Conversation compacted","compactMetadata":{"trigger":"auto","preTokens":1},`, "")
	parent = line(101, parent, "user", `"isCompactSummary":true,`, "In short.")
	line(102, parent, "assistant", "", "I see.")
	project := filepath.Join(home, ".claude", "projects", "-x")
	if err := errors.Join(os.MkdirAll(project, 0o700), os.WriteFile(filepath.Join(project, id+".jsonl"), log.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	resume := func(cfg agent.Config) []string {
		t.Helper()
		cfg.Model, cfg.Home = parleytest.Script(parleytest.Say("ok")).Model(), home
		all, r, err := collect(t, &parley.Options{Cwd: dir, Resume: id, Dialer: agent.InProcess(cfg)}, "hi")
		if err != nil || r.IsError {
			t.Fatal(err, r)
		}
		var told []string
		for _, m := range all {
			if m, ok := m.(*wire.Informational); ok && m.Tag == "session_index" {
				told = append(told, m.Content)
			}
		}
		return told
	}
	told := resume(agent.Config{})
	if len(told) < 10 || told[len(told)-1] != "Reading a long session: 100 %" {
		t.Errorf("the host was told %q", told)
	}
	if again := resume(agent.Config{}); len(again) != 0 {
		t.Errorf("with an index the host was told %q", again)
	}
	if err := os.Remove(filepath.Join(project, id, "index.json")); err != nil {
		t.Fatal(err)
	}
	var last, calls int64
	if told := resume(agent.Config{OnIndexing: func(done, total int64) {
		if done < last || done > total {
			t.Errorf("%d of %d after %d", done, total, last)
		}
		last, calls = done, calls+1
	}}); len(told) != 0 || calls < 10 || last < int64(log.Len()) {
		t.Errorf("the host was told %q, who made the agent %d times, last %d of %d", told, calls, last, log.Len())
	}
}

// TestOlderLayoutResumes continues a session in the layout sessions/<id>, whose state
// has its cost: the model gets the earlier conversation, and the cost continues.
func TestOlderLayoutResumes(t *testing.T) {
	for name, opts := range map[string]parley.Options{
		"resume":    {Resume: "5a4daa78-1b64-484f-a52a-0f2c91f6f1ce"},
		"by title":  {Resume: "an old talk"},
		"continue":  {Continue: true},
		"in a fork": {Resume: "5a4daa78-1b64-484f-a52a-0f2c91f6f1ce", Fork: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := workdir(t)
			home := t.TempDir()
			old := filepath.Join(home, ".claude", "sessions", "5a4daa78-1b64-484f-a52a-0f2c91f6f1ce")
			cwd, _ := json.Marshal(dir)
			if err := os.MkdirAll(old, 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{
				"messages.jsonl": `{"type":"user","message":{"role":"user","content":"first words"}}` + "\n" +
					`{"type":"assistant","message":{"id":"m","role":"assistant","content":[{"type":"text","text":"an answer"}]}}` + "\n" +
					`{"type":"result","subtype":"success","total_cost_usd":0.5}` + "\n",
				"session.json": `{"title":"An old talk","cwd":` + string(cwd) + `}`,
				"state.json":   `{"total_cost_usd":2.5}`,
			} {
				if err := os.WriteFile(filepath.Join(old, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m := parleytest.Script(parleytest.Expect(parleytest.Check("", func(r *parleytest.Request) error {
				for _, text := range []string{"first words", "an answer", "hi"} {
					if !bytes.Contains(r.Body, []byte(text)) {
						return fmt.Errorf("%q is missing", text)
					}
				}
				return nil
			})).Say("ok")).Model()
			m.Strict = true
			opts.Cwd, opts.Dialer = dir, agent.InProcess(agent.Config{Model: m, Home: home})
			_, r, err := collect(t, &opts, "hi")
			if err != nil || r.IsError {
				t.Fatal(err, r)
			}
			if r.TotalCostUSD < 2.5 {
				t.Errorf("the cost began anew: %v", r.TotalCostUSD)
			}
			if same := r.SessionID == "5a4daa78-1b64-484f-a52a-0f2c91f6f1ce"; same == opts.Fork {
				t.Errorf("session %s", r.SessionID)
			}
		})
	}
}

// TestOldSessionsCompress checks that with the setting, sessions that were not written
// for long are compressed in the background, and continue as before. A project cannot
// set it.
func TestOldSessionsCompress(t *testing.T) {
	dir, _ := workdir(t)
	home := t.TempDir()
	const id = "5a4daa78-1b64-484f-a52a-0f2c91f6f1cf"
	m := parleytest.Script(
		parleytest.Say("one"),
		parleytest.Expect(parleytest.Check("", func(r *parleytest.Request) error {
			if !bytes.Contains(r.Body, []byte("remember this")) {
				return errors.New("what was said is gone")
			}
			return nil
		})).Say("two")).Model()
	m.Strict = true
	opts := parley.Options{Cwd: dir, SessionID: id, Dialer: agent.InProcess(agent.Config{Model: m, Home: home, SettingSources: []string{"user", "project"}, TrustProject: "all"})}
	if _, _, err := collect(t, &opts, "remember this"); err != nil {
		t.Fatal(err)
	}
	logs, _ := filepath.Glob(filepath.Join(home, ".claude", "projects", "*", id+".jsonl"))
	if len(logs) != 1 {
		t.Fatal(logs)
	}
	old := time.Now().AddDate(0, 0, -9)
	if err := os.Chtimes(logs[0], old, old); err != nil {
		t.Fatal(err)
	}
	packed := func(settings string, want bool) bool {
		t.Helper()
		os.MkdirAll(filepath.Dir(settings), 0o700)
		if err := os.WriteFile(settings, []byte(`{"compressSessionsAfterDays": 7}`), 0o600); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(settings)
		opts.SessionID = ""
		c, err := parley.Connect(t.Context(), &opts)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		is := func() bool {
			_, err := os.Stat(logs[0] + ".gz")
			return err == nil
		}
		if want {
			testwait.Until(t, "the session is compressed", is)
		} else {
			testwait.Pause(50 * time.Millisecond)
		}
		return is()
	}
	if packed(filepath.Join(dir, ".claude", "settings.json"), false) {
		t.Error("a project has the sessions of the user compressed")
	}
	if !packed(filepath.Join(home, ".claude", "settings.json"), true) {
		t.Fatal("it was not compressed")
	}
	opts.Resume = id
	if _, r, err := collect(t, &opts, "again"); err != nil || r.Result != "two" {
		t.Errorf("%v, %+v", err, r)
	}
}
