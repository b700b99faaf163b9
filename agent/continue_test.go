package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// A tapedStore records everything that is appended, so that a test can make a store that
// holds what a process had written when it died at any time.
type tapedStore struct {
	session.Memory
	mu   sync.Mutex
	tape []taped
}

type taped struct {
	key    session.Key
	record json.RawMessage
}

type tapedLease struct {
	session.Lease
	store *tapedStore
	key   session.Key
}

func (s *tapedStore) Lease(ctx context.Context, key session.Key) (session.Lease, error) {
	l, err := s.Memory.Lease(ctx, key)
	return &tapedLease{l, s, key}, err
}

func (l *tapedLease) Append(ctx context.Context, sub string, records []json.RawMessage) error {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	for _, r := range records {
		key := l.key
		key.Sub = sub
		l.store.tape = append(l.store.tape, taped{key, r})
	}
	return l.Lease.Append(ctx, sub, records)
}

// crashed returns a store with the first n records.
func (s *tapedStore) crashed(t *testing.T, n int) *session.Memory {
	t.Helper()
	m := &session.Memory{}
	for _, r := range s.tape[:n] {
		if err := m.Append(t.Context(), r.key, []json.RawMessage{r.record}); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// A lineHost talks to an agent in lines.
type lineHost struct {
	t     *testing.T
	conn  transport.Conn
	lines *wire.Reader
	kinds []string
}

func dialLines(t *testing.T, cfg agent.Config, args ...string) *lineHost {
	t.Helper()
	args = append([]string{"--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--permission-prompt-tool", "stdio", "--replay-user-messages"}, args...)
	conn, err := agent.InProcess(cfg).Dial(t.Context(), transport.Spec{Words: args, Dir: cfg.Cwd})
	if err != nil {
		t.Fatal(err)
	}
	h := &lineHost{t: t, conn: conn, lines: wire.NewReader(conn, nil)}
	t.Cleanup(h.close)
	return h
}

// close ends the agent. It reads what the agent still writes: otherwise Close waits for a reader.
func (h *lineHost) close() {
	go io.Copy(io.Discard, h.conn)
	h.conn.Close(context.Background())
}

func (h *lineHost) send(line string) {
	h.t.Helper()
	if _, err := h.conn.Write([]byte(line + "\n")); err != nil {
		h.t.Fatal(err)
	}
}

// next returns the next message that is not a system message.
func (h *lineHost) next() wire.Message {
	h.t.Helper()
	m, err := h.lines.Next()
	if err != nil {
		h.t.Fatalf("after %v: %v", h.kinds, err)
	}
	typ, sub := wire.TypeOf(m)
	h.kinds = append(h.kinds, strings.TrimSuffix(typ+"/"+sub, "/"))
	return m
}

// result allows the agent's requests until the result comes. It returns the ids of the calls
// that needed permission, and the results of calls.
func (h *lineHost) result() (r *wire.Result, asked []string, results map[string]string) {
	h.t.Helper()
	results = map[string]string{}
	for {
		switch m := h.next().(type) {
		case *wire.Result:
			return m, asked, results
		case *wire.ControlRequest:
			q, ok := m.Request.(*wire.CanUseTool)
			if !ok {
				h.t.Fatalf("the agent asks %T", m.Request)
			}
			asked = append(asked, q.ToolUseID)
			h.send(fmt.Sprintf(`{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":{"behavior":"allow"}}}`, m.RequestID))
		case *wire.User:
			for _, b := range m.Message.Content.All() {
				if b, ok := b.(*wire.ToolResultBlock); ok {
					if _, twice := results[b.ToolUseID]; twice {
						h.t.Errorf("%s has two results", b.ToolUseID)
					}
					results[b.ToolUseID] = b.Content.String()
				}
			}
		}
	}
}

const continueID = "77777777-7777-4777-8777-777777777777"

// A turn whose process died continues, wherever that was: every call runs once in total, or
// the model is informed that it may have; permission is requested under the same id; and
// the turn ends in one result, for the same prompt.
func TestContinueTurnAfterCrash(t *testing.T) {
	dir := t.TempDir()
	prompt := session.NewID()
	script := func() *parleytest.Scenario {
		return parleytest.Script(
			parleytest.Think("First.").Say("I begin.").Call("Bash", map[string]string{"command": "echo one >> effects"}),
			parleytest.Say("Next.").Call("Bash", map[string]string{"command": "echo two >> effects"}).Call("Bash", map[string]string{"command": "echo three >> effects"}),
			parleytest.Say("Done."),
		)
	}
	store := &tapedStore{}
	cfg := agent.Config{Model: script().Model(), Store: store, Cwd: dir, Environ: os.Environ()}
	h := dialLines(t, cfg, "--session-id", continueID)
	h.send(`{"type":"control_request","request_id":"i","request":{"subtype":"initialize"}}`)
	h.send(fmt.Sprintf(`{"type":"user","uuid":%q,"message":{"role":"user","content":"Do it."}}`, prompt))
	_, all, _ := h.result()
	h.close()
	if len(all) != 3 {
		t.Fatalf("asked about %v", all)
	}
	commands := map[string]string{all[0]: "one", all[1]: "two", all[2]: "three"}
	for n := range len(store.tape) + 1 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			before := map[string]string{} // the records of calls in the log: intent, outcome, result
			began, ended, called := false, false, map[string]bool{}
			for _, r := range store.tape[:n] {
				var rec struct {
					Type, UUID, ToolUseID, State string
					Message                      struct {
						ID      string
						Content json.RawMessage
					}
				}
				json.Unmarshal(r.record, &rec)
				switch rec.Type {
				case "parley-intent", "parley-outcome":
					before[rec.ToolUseID] = strings.TrimPrefix(rec.Type, "parley-")
				case "parley-turn":
					began, ended = true, rec.State == "ended"
				case "user", "assistant":
					var blocks []struct {
						Type, ID  string
						ToolUseID string `json:"tool_use_id"`
					}
					json.Unmarshal(rec.Message.Content, &blocks)
					for _, b := range blocks {
						switch b.Type {
						case "tool_use":
							called[b.ID] = true
						case "tool_result":
							before[b.ToolUseID] = "result"
						}
					}
				}
			}
			// The model continues from the current state of the conversation.
			var rest []*parleytest.Turn
			switch {
			case called[all[1]]:
				if !called[all[2]] {
					rest = append(rest, parleytest.Call("Bash", map[string]string{"command": "echo three >> effects"}))
				}
			default:
				if !called[all[0]] {
					rest = append(rest, parleytest.Call("Bash", map[string]string{"command": "echo one >> effects"}))
				}
				rest = append(rest, parleytest.Call("Bash", map[string]string{"command": "echo two >> effects"}).Call("Bash", map[string]string{"command": "echo three >> effects"}))
			}
			rest = append(rest, parleytest.Say("Done again."))
			dir := t.TempDir()
			m := parleytest.Script().When("again", parleytest.FirstUser("Do it."), rest...).Model() // with its own ids
			m.Strict = true
			crashed := store.crashed(t, n)
			h := dialLines(t, agent.Config{Model: m, Store: crashed, Cwd: dir, Environ: os.Environ()}, "--resume", continueID)
			if n == 0 { // there is no session: the agent ends without reading
				if r, _, _ := h.result(); !r.IsError || !strings.Contains(fmt.Sprint(r.Errors), "No conversation found") {
					t.Errorf("without a session the result is %q, error %v", r.Errors, r.IsError)
				}
				return
			}
			h.send(`{"type":"control_request","request_id":"i","request":{"subtype":"initialize","continueTurn":true}}`)
			var resp *wire.ControlResponse
			for resp == nil {
				resp, _ = h.next().(*wire.ControlResponse)
			}
			var init map[string]json.RawMessage
			json.Unmarshal(resp.Response.Response, &init)
			if got, want := string(init["turn_continued"]) == "true", began && !ended; got != want {
				t.Fatalf("turn_continued is %v, want %v", got, want)
			} else if !got {
				return
			}
			r, asked, results := h.result()
			if r.IsError || r.Result != "Done again." || r.UserMessageUUID != prompt {
				t.Errorf("result %q for %s, error %v", r.Result, r.UserMessageUUID, r.IsError)
			}
			for _, id := range asked {
				if before[id] != "" {
					t.Errorf("asked about %s, of which the log has the %s", commands[id], before[id])
				}
			}
			wrote, _ := os.ReadFile(filepath.Join(dir, "effects"))
			ran := strings.Fields(string(wrote))
			for id, word := range commands {
				times := 0
				for _, w := range ran {
					if w == word {
						times++
					}
				}
				want := 1
				if before[id] != "" {
					want = 0
				}
				if times != want {
					t.Errorf("%s ran %d times after the crash, of it the log has the %q", word, times, before[id])
				}
				switch before[id] {
				case "intent":
					if !strings.Contains(results[id], "outcome unknown") {
						t.Errorf("%s: %q", word, results[id])
					}
				case "outcome":
					if !strings.Contains(results[id], "took effect once") {
						t.Errorf("%s: %q", word, results[id])
					}
				case "result":
					if results[id] != "" {
						t.Errorf("%s has a second result: %q", word, results[id])
					}
				}
			}
			if err := m.Err(); err != nil {
				t.Error(err)
			}
			h.close()
			if _, history, err := session.Open(t.Context(), crashed, continueID, session.Meta{}); err != nil {
				t.Error(err)
			} else if uuid, _ := history.Unfinished(); uuid != "" || len(history.Orphans()) > 0 {
				t.Errorf("unfinished %q, calls without result %v", uuid, history.Orphans())
			}
		})
	}
}

// Without continueTurn the turn stays as it was, and the next prompt ends it.
func TestUnfinishedTurnEndsWithNextPrompt(t *testing.T) {
	store := &tapedStore{}
	dir := t.TempDir()
	write := map[string]string{"file_path": filepath.Join(dir, "x"), "content": "x"}
	h := dialLines(t, agent.Config{Model: parleytest.Script(parleytest.Call("Write", write), parleytest.Say("done")).Model(), Store: store, Cwd: dir}, "--session-id", continueID)
	h.send(`{"type":"user","message":{"role":"user","content":"Do it."}}`)
	for {
		if m, ok := h.next().(*wire.ControlRequest); ok {
			store.mu.Lock()
			n := len(store.tape)
			store.mu.Unlock()
			crashed := store.crashed(t, n)
			m2 := parleytest.Script(parleytest.Expect(parleytest.ToolError("did not run")).Say("I see.")).Model()
			m2.Strict = true
			h2 := dialLines(t, agent.Config{Model: m2, Store: crashed, Cwd: dir}, "--resume", continueID)
			h2.send(`{"type":"user","message":{"role":"user","content":"And now?"}}`)
			if r, _, _ := h2.result(); r.IsError || r.Result != "I see." {
				t.Errorf("result %q for %s, error %v", r.Result, r.UserMessageUUID, r.IsError)
			}
			_ = m
			break
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
}

// A prompt that joined the turn before the crash is answered by the same result.
func TestContinuedTurnAnswersJoinedPrompts(t *testing.T) {
	store := &tapedStore{}
	dir := t.TempDir()
	first, second := session.NewID(), session.NewID()
	h := dialLines(t, agent.Config{Model: parleytest.Script(
		parleytest.Call("Bash", map[string]string{"command": "true > x"}),
		parleytest.Call("Bash", map[string]string{"command": "true > y"}),
		parleytest.Say("done"),
	).Model(), Store: store, Cwd: dir, Environ: os.Environ()}, "--session-id", continueID)
	h.send(fmt.Sprintf(`{"type":"user","uuid":%q,"message":{"role":"user","content":"Do it."}}`, first))
	for asked := 0; asked < 2; {
		m, ok := h.next().(*wire.ControlRequest)
		if !ok {
			continue
		}
		if asked++; asked == 1 {
			h.send(fmt.Sprintf(`{"type":"user","uuid":%q,"message":{"role":"user","content":"And that."}}`, second))
			h.send(fmt.Sprintf(`{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":{"behavior":"allow"}}}`, m.RequestID))
		}
	}
	store.mu.Lock()
	n := len(store.tape)
	store.mu.Unlock()
	h2 := dialLines(t, agent.Config{Model: parleytest.Script().When("again", parleytest.FirstUser("Do it."), parleytest.Say("Both.")).Model(), Store: store.crashed(t, n), Cwd: dir, Environ: os.Environ()}, "--resume", continueID)
	h2.send(`{"type":"control_request","request_id":"i","request":{"subtype":"initialize","continueTurn":true}}`)
	if r, _, _ := h2.result(); len(r.UserMessageUUIDs) != 2 || r.UserMessageUUIDs[0] != first || r.UserMessageUUIDs[1] != second {
		t.Errorf("the result is for %v, want %v", r.UserMessageUUIDs, []string{first, second})
	}
}

// A host that keeps its turns leaves in the middle of one, or kills the agent. The log then
// has nothing of an end, and another agent continues the turn.
func TestTurnOfAHostThatKeepsIt(t *testing.T) {
	for _, end := range []string{"input ends", "killed"} {
		t.Run(end, func(t *testing.T) {
			store := &tapedStore{}
			dir := t.TempDir()
			cfg := agent.Config{Model: parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "echo once >> effects"}), parleytest.Say("Done.")).Model(), Store: store, Cwd: dir, Environ: os.Environ()}
			h := dialLines(t, cfg, "--session-id", continueID)
			h.send(`{"type":"control_request","request_id":"i","request":{"subtype":"initialize","keepsTurns":true}}`)
			h.send(`{"type":"user","message":{"role":"user","content":"Do it."}}`)
			for asked := false; !asked; {
				_, asked = h.next().(*wire.ControlRequest)
			}
			if end == "killed" {
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				h.conn.Close(gone)
			} else if err := h.conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			for err := error(nil); err == nil; {
				_, err = h.lines.Next()
			}
			h.close()
			h2 := dialLines(t, cfg, "--resume", continueID)
			h2.send(`{"type":"control_request","request_id":"i","request":{"subtype":"initialize","keepsTurns":true,"continueTurn":true}}`)
			if r, asked, _ := h2.result(); r.IsError || r.Result != "Done." || len(asked) != 1 {
				t.Errorf("asked about %v, result %q, error %v", asked, r.Result, r.IsError)
			}
			if wrote, _ := os.ReadFile(filepath.Join(dir, "effects")); string(wrote) != "once\n" {
				t.Errorf("the call left %q", wrote)
			}
		})
	}
}

// A host that requests it receives the output of a running command; others do not.
func TestToolOutput(t *testing.T) {
	for member, want := range map[string]string{"": "", `,"toolOutput":true`: "one\ntwo"} {
		dir := t.TempDir()
		command := "printf 'one\ntwo\n'; sleep 1.2" // it is shown after a second
		if want != "" {
			command = "printf 'one\ntwo\n'; until test -e gate; do sleep 0.05; done"
		}
		cfg := agent.Config{Model: parleytest.Script(parleytest.Call("Bash", map[string]string{"command": command}), parleytest.Say("Done.")).Model(), Store: &session.Memory{}, Cwd: dir, Environ: os.Environ()}
		h := dialLines(t, cfg, "--permission-mode", "bypassPermissions", "--allow-dangerously-skip-permissions")
		h.send(`{"type":"control_request","request_id":"i","request":{"subtype":"initialize"` + member + `}}`)
		h.send(`{"type":"user","message":{"role":"user","content":"Do it."}}`)
		got := ""
		for over := false; !over; {
			switch m := h.next().(type) {
			case *wire.ToolProgress:
				got = m.Output
				if err := os.WriteFile(filepath.Join(dir, "gate"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			case *wire.Result:
				over = true
			}
		}
		if got != want {
			t.Errorf("with %q: %q, want %q", member, got, want)
		}
	}
}

// A host that keeps the session elsewhere receives its records, also after /clear.
func TestMirrorAfterClear(t *testing.T) {
	cfg := agent.Config{Model: parleytest.Script(parleytest.Say("One."), parleytest.Say("Two.")).Model(), Store: &session.Memory{}, Cwd: t.TempDir()}
	h := dialLines(t, cfg, "--session-id", continueID, "--session-mirror")
	mirrored := map[string]string{} // by session
	for _, prompt := range []string{"First.", "/clear", "Second."} {
		h.send(fmt.Sprintf(`{"type":"user","message":{"role":"user","content":%q}}`, prompt))
		for over := false; !over; {
			switch m := h.next().(type) {
			case *wire.TranscriptMirror:
				for _, e := range m.Entries {
					mirrored[strings.TrimSuffix(filepath.Base(m.FilePath), ".jsonl")] += string(e)
				}
			case *wire.Result:
				over = true
				if r := mirrored[m.SessionID]; prompt != "/clear" && (!strings.Contains(r, prompt) || !strings.Contains(r, m.Result)) {
					t.Errorf("of %s the host received %q", prompt, r)
				}
			}
		}
	}
	if len(mirrored) != 2 {
		t.Errorf("the host received %d sessions", len(mirrored))
	}
}

// A request to end the session is answered, even if the input ends right after it.
func TestEndIsAnswered(t *testing.T) {
	for range 100 {
		h := dialLines(t, agent.Config{Model: parleytest.Script().Model(), Cwd: t.TempDir()})
		h.send(`{"type":"control_request","request_id":"e","request":{"subtype":"end_session"}}`)
		if err := h.conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		answered := false
		for {
			m, err := h.lines.Next()
			if err != nil {
				break
			}
			if _, ok := m.(*wire.ControlResponse); ok {
				answered = true
			}
		}
		if h.conn.Close(t.Context()); !answered {
			t.Fatal("the request was not answered")
		}
	}
}
