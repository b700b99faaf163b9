package acp_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/hub"
	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// The mistakes of other agents, one test each.

// TestNoUpdateBeforeSessionResponse: Zed drops updates of a session that it does not
// know yet.
func TestNoUpdateBeforeSessionResponse(t *testing.T) {
	run(t, setting{model: script(pt.Say("Hello.").Always())}, func(t *testing.T, e *editor) {
		id := e.newSession()
		for _, f := range e.all {
			if update(f) != nil {
				t.Errorf("%s came before the response to session/new", brief(f))
			}
		}
		e.until("commands", func(f *frame) bool {
			u := update(f)
			return u != nil && u["sessionUpdate"] == "available_commands_update" && len(u["availableCommands"].([]any)) > 0
		})
		e.call("session/prompt", prompt(id, "Hello."))
		before := len(e.all)
		e.call("session/resume", object{"sessionId": id, "cwd": e.dir})
		for _, f := range e.all[before:] {
			if update(f) != nil {
				t.Errorf("%s came before the response to session/resume", brief(f))
			}
		}
	})
}

// TestOpenQuestionBlocksNoOtherSession checks that an open question blocks only its own
// session.
func TestOpenQuestionBlocksNoOtherSession(t *testing.T) {
	run(t, setting{model: writes}, func(t *testing.T, e *editor) {
		a := e.newSession()
		waiting := e.send("session/prompt", prompt(a, "Write it."))
		ask := e.until("question", func(f *frame) bool { return f.Method == "session/request_permission" })
		e.call("session/list", object{})
		b := e.newSession()
		e.call("session/set_mode", object{"sessionId": b, "modeId": "acceptEdits"})
		if got := e.call("session/prompt", prompt(b, "Write it."))["stopReason"]; got != "end_turn" {
			t.Errorf("the other session: %v", got)
		}
		e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": selects("reject")})
		if f := e.response(waiting); f.Error != nil {
			t.Error(brief(f))
		}
	})
}

// TestCancelWithdrawsQuestion checks that a cancel withdraws the open question, so that
// no client shows it forever.
func TestCancelWithdrawsQuestion(t *testing.T) {
	run(t, setting{model: writes}, func(t *testing.T, e *editor) {
		id := e.newSession()
		req := e.send("session/prompt", prompt(id, "Write it."))
		ask := e.until("question", func(f *frame) bool { return f.Method == "session/request_permission" })
		e.notify("session/cancel", object{"sessionId": id})
		e.until("withdrawal", func(f *frame) bool {
			return f.Method == "$/cancel_request" && strings.Contains(string(f.Params), `"requestId":`+string(ask.ID))
		})
		// A late answer has no effect.
		e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": selects("allow-once")})
		if f := e.response(req); !strings.Contains(string(f.Result), "cancelled") {
			t.Error(brief(f))
		}
		if _, err := os.Stat(filepath.Join(e.dir, "new.txt")); err == nil {
			t.Error("the call ran")
		}
	})
}

// TestAnswerFromElsewhereWithdrawsQuestion checks that the client's question is
// withdrawn when somebody else answers, and that the turn continues.
func TestAnswerFromElsewhereWithdrawsQuestion(t *testing.T) {
	run(t, setting{model: writes}, func(t *testing.T, e *editor) {
		id := e.newSession()
		req := e.send("session/prompt", prompt(id, "Write it."))
		ask := e.until("question", func(f *frame) bool { return f.Method == "session/request_permission" })
		me := hub.Actor{Name: "phone", Rights: hub.Everything}
		for entry, err := range e.hub.Session(id).Attach(t.Context(), me, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if entry.Kind == hub.KindAsk {
				var a hub.Ask
				json.Unmarshal(entry.Data, &a)
				if err := e.hub.Session(id).Answer(t.Context(), me, hub.Answer{Ask: a.ID, Shown: a.Hash, Response: json.RawMessage(`{"behavior":"allow"}`)}); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		e.until("withdrawal", func(f *frame) bool {
			return f.Method == "$/cancel_request" && strings.Contains(string(f.Params), string(ask.ID))
		})
		if f := e.response(req); !strings.Contains(string(f.Result), "end_turn") {
			t.Error(brief(f))
		}
	})
}

// TestBackgroundTurnIsNotAnAnswer checks that the turn that the end of a background
// task starts does not answer the next prompt, and that its updates arrive although no
// prompt is running.
func TestBackgroundTurnIsNotAnAnswer(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := exec.Command("mkfifo", pipe).Run(); err != nil {
		t.Skip(err)
	}
	run(t, setting{model: script(
		pt.Say("I start it.").Call("Bash", object{"command": "cat " + pipe, "run_in_background": true}),
		pt.Say("It runs."),
		pt.Say("It has ended."),
		pt.Say("Yes.").Always(),
	)}, func(t *testing.T, e *editor) {
		e.permit = func(*frame) any { return selects("allow-once") }
		id := e.newSession()
		e.call("session/prompt", prompt(id, "Start it."))
		// The task ends now. If it ended in the turn, the turn itself would report it.
		if err := os.WriteFile(pipe, []byte("end\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		e.until("the turn of the task", func(f *frame) bool { return strings.HasSuffix(brief(f), `"It has ended."`) })
		n := len(e.all)
		e.call("session/prompt", prompt(id, "Well?"))
		var texts []string
		for _, f := range e.all[n:] {
			if u := update(f); u != nil && u["sessionUpdate"] == "agent_message_chunk" {
				texts = append(texts, brief(f))
			}
		}
		if want := []string{`agent_message_chunk "Yes."`}; !slices.Equal(texts, want) {
			t.Errorf("the answer to the second prompt is %q, want %q", texts, want)
		}
	})
}

// TestScheduleFires checks that a schedule fires while the editor is connected, and
// that the editor sees it.
func TestScheduleFires(t *testing.T) {
	run(t, setting{model: script(pt.Say("Good morning.").Always())}, func(t *testing.T, e *editor) {
		id := e.newSession()
		me := hub.Actor{Name: "me", Rights: hub.Everything}
		if _, err := e.hub.Schedule(t.Context(), me, hub.Schedule{Session: id, Prompt: "Wake up.", At: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour) // in the bubble
		e.until("the prompt", func(f *frame) bool { return strings.Contains(brief(f), "user_message_chunk") })
		e.until("the answer", func(f *frame) bool { return strings.Contains(brief(f), "Good morning.") })
	})
}

// TestReplayShowsWhatWasShown checks that a replay shows the same as before: every call
// with its start and its end, title and kind.
func TestReplayShowsWhatWasShown(t *testing.T) {
	run(t, setting{model: func(dir string) *pt.Scenario {
		return pt.Script(
			pt.Think("How?").Say("I look", " first.").Call("Bash", object{"command": "ls nothere", "description": "List it"}),
			pt.Say("I write.").Call("Write", object{"file_path": filepath.Join(dir, "new.txt"), "content": "hello\n"}),
			pt.Say("Done."),
		)
	}}, func(t *testing.T, e *editor) {
		e.permit = func(*frame) any { return selects("allow-once") }
		id := e.newSession()
		e.call("session/prompt", prompt(id, "Go on."))
		live := shown(e)
		e.reconnect()
		e.call("session/load", object{"sessionId": id, "cwd": e.dir, "mcpServers": []any{}})
		got := shown(e)
		want := append([]string{`user_message_chunk "Go on."`}, live...)
		if !slices.Equal(got, want) {
			t.Errorf("replayed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if list := open(e); len(list) > 0 {
			t.Errorf("the calls %v have no end", list)
		}
	})
}

// shown lists what an editor shows: texts as a whole, and each call in its final state.
func shown(e *editor) (list []string) {
	calls := map[string]object{}
	last := ""
	for _, f := range e.all {
		u := update(f)
		if u == nil {
			continue
		}
		switch kind := u["sessionUpdate"].(string); kind {
		case "user_message_chunk", "agent_message_chunk", "agent_thought_chunk":
			text := u["content"].(object)["text"].(string)
			if kind == last {
				list[len(list)-1] = strings.TrimSuffix(list[len(list)-1], `"`) + text + `"`
			} else {
				list = append(list, kind+` "`+text+`"`)
			}
			last = kind
			continue
		case "tool_call", "tool_call_update":
			id := u["toolCallId"].(string)
			if kind == "tool_call" {
				calls[id] = object{}
				list = append(list, "call "+id)
			}
			for k, v := range u {
				calls[id][k] = v
			}
		default:
			continue
		}
		last = ""
	}
	for i, s := range list {
		if id, ok := strings.CutPrefix(s, "call "); ok {
			c := calls[id]
			list[i] = fmt.Sprintf("%s %v %v %v %s %s", s, c["kind"], c["status"], c["title"], mustJSON(c["content"]), mustJSON(c["locations"]))
		}
	}
	return list
}

// TestReplaySurvivesBadRecords checks that one unreadable record, and a call without a
// result, do not make a session unreadable: the rest is replayed, and the call ends as
// failed.
func TestReplaySurvivesBadRecords(t *testing.T) {
	store := &session.Memory{}
	id := session.NewID()
	run(t, setting{model: script(pt.Say("Hello.").Always()), store: store}, func(t *testing.T, e *editor) {
		var records []json.RawMessage
		parent := "null"
		add := func(typ, uuid, message string) {
			records = append(records, json.RawMessage(fmt.Sprintf(`{"type":%q,"uuid":%q,"parentUuid":%s,"sessionId":%q,"cwd":%q,"timestamp":"2026-01-01T00:00:00Z","message":%s}`, typ, uuid, parent, id, e.dir, message)))
			parent = fmt.Sprintf("%q", uuid)
		}
		add("user", "11111111-1111-4111-8111-111111111111", `{"role":"user","content":"Go on."}`)
		add("assistant", "22222222-2222-4222-8222-222222222222", `{"role":"assistant","content":17}`)
		add("assistant", "33333333-3333-4333-8333-333333333333", `{"id":"m","role":"assistant","content":[{"type":"tool_use","id":"one","name":"Bash","input":{"command":"sleep 9"}}]}`)
		add("user", "44444444-4444-4444-8444-444444444444", `{"role":"user","content":[{"type":"tool_result","tool_use_id":"nobody","content":"x"}]}`)
		add("assistant", "55555555-5555-4555-8555-555555555555", `{"id":"n","role":"assistant","content":[{"type":"text","text":"And on."}]}`)
		if err := store.Append(t.Context(), session.Key{Project: session.ProjectKey(e.dir), Session: id}, records); err != nil {
			t.Fatal(err)
		}
		e.call("session/load", object{"sessionId": id, "cwd": e.dir, "mcpServers": []any{}})
		got := strings.Join(shown(e), "\n")
		for _, want := range []string{"Go on.", "call one", "execute failed sleep 9", "And on."} {
			if !strings.Contains(got, want) {
				t.Errorf("the replay lacks %q:\n%s", want, got)
			}
		}
		if strings.Contains(got, "nobody") {
			t.Errorf("a call was shown that nobody started:\n%s", got)
		}
	})
}

// TestReusedCallIDs checks that two calls with the same id from a provider stay two.
func TestReusedCallIDs(t *testing.T) {
	run(t, setting{model: script(
		pt.Say("").CallID("same", "Bash", object{"command": "echo one"}), pt.Say("One."),
		pt.Say("").CallID("same", "Bash", object{"command": "echo two"}), pt.Say("Two."),
	)}, func(t *testing.T, e *editor) {
		e.permit = func(*frame) any { return selects("allow-once") }
		id := e.newSession()
		e.call("session/prompt", prompt(id, "One."))
		e.call("session/prompt", prompt(id, "Two."))
		titles := map[string]string{}
		for _, f := range e.all {
			if u := update(f); u != nil && u["toolCallId"] != nil && u["title"] != nil {
				titles[u["toolCallId"].(string)] = u["title"].(string)
			}
		}
		if len(titles) != 2 || titles["same"] != "echo one" {
			t.Errorf("calls %v", titles)
		}
		if list := open(e); len(list) > 0 {
			t.Errorf("the calls %v have no end", list)
		}
	})
}

// TestAllDiffsAreShown checks that a client gets each diff of a call that changes
// several places.
func TestAllDiffsAreShown(t *testing.T) {
	run(t, setting{model: func(dir string) *pt.Scenario {
		file := filepath.Join(dir, "a.txt")
		return pt.Script(
			pt.Call("Write", object{"file_path": file, "content": "one\n"}).Call("Write", object{"file_path": filepath.Join(dir, "b.txt"), "content": "two\n"}),
			pt.Say("Done."),
		)
	}}, func(t *testing.T, e *editor) {
		var diffs []string
		e.permit = func(f *frame) any {
			var p struct {
				ToolCall struct {
					Content []struct{ Type, NewText string }
				}
			}
			json.Unmarshal(f.Params, &p)
			for _, c := range p.ToolCall.Content {
				diffs = append(diffs, c.Type+" "+c.NewText)
			}
			return selects("allow-once")
		}
		id := e.newSession()
		e.call("session/prompt", prompt(id, "Go on."))
		if want := []string{"diff one\n", "diff two\n"}; !slices.Equal(diffs, want) {
			t.Errorf("asked about %q, want %q", diffs, want)
		}
	})
}

// TestListHasSessionsOfTheEditor checks that the sessions that an editor creates are in
// the list, with title and directory.
func TestListHasSessionsOfTheEditor(t *testing.T) {
	for name, store := range map[string]session.Store{"records in the journal": nil, "records in a store": &session.Memory{}} {
		t.Run(name, func(t *testing.T) {
			run(t, setting{model: script(pt.Say("Hello.").Always()), store: store}, func(t *testing.T, e *editor) {
				id := e.newSession()
				e.call("session/prompt", prompt(id, "Say hello."))
				for _, params := range []object{{}, {"cwd": e.dir}} {
					list := e.call("session/list", params)["sessions"].([]any)
					if len(list) != 1 || list[0].(object)["sessionId"] != id || list[0].(object)["cwd"] != e.dir {
						t.Errorf("list of %v: %v", params, list)
					}
				}
				if list := e.call("session/list", object{"cwd": "/elsewhere"})["sessions"].([]any); len(list) != 0 {
					t.Errorf("list of another directory: %v", list)
				}
				e.call("session/delete", object{"sessionId": id})
				if list := e.call("session/list", object{})["sessions"].([]any); len(list) != 0 {
					t.Errorf("after session/delete: %v", list)
				}
				e.fails(-32002, "session/load", object{"sessionId": id, "cwd": e.dir, "mcpServers": []any{}})
			})
		})
	}
}

// TestPromptFromElsewhere checks that a prompt of another front end appears, and that
// its turn does not answer ours.
func TestPromptFromElsewhere(t *testing.T) {
	run(t, setting{model: script(pt.Say("Hello.").Always())}, func(t *testing.T, e *editor) {
		id := e.newSession()
		if _, err := e.hub.Session(id).Prompt(t.Context(), hub.Actor{Name: "phone", Rights: hub.Everything}, wire.Prompt(wire.Text("From the phone."))); err != nil {
			t.Fatal(err)
		}
		e.until("the prompt", func(f *frame) bool { return brief(f) == `user_message_chunk "From the phone."` })
		e.until("the answer", func(f *frame) bool { return strings.HasSuffix(brief(f), `"Hello."`) })
		if got := e.call("session/prompt", prompt(id, "Mine."))["stopReason"]; got != "end_turn" {
			t.Error(got)
		}
	})
}

// TestCancelOfNothing checks that a cancel while nothing is running does not end the
// next prompt.
func TestCancelOfNothing(t *testing.T) {
	run(t, setting{model: script(pt.Say("Hello.").Always())}, func(t *testing.T, e *editor) {
		id := e.newSession()
		for range 20 {
			e.notify("session/cancel", object{"sessionId": id})
			if got := e.call("session/prompt", prompt(id, "hi"))["stopReason"]; got != "end_turn" {
				t.Fatalf("stop reason %v", got)
			}
		}
	})
}

// questions returns the next permission requests, by the ids of their calls.
func (e *editor) questions(n int) map[string]*frame {
	e.t.Helper()
	all := map[string]*frame{}
	for len(all) < n {
		f := e.until("question", func(f *frame) bool { return f.Method == "session/request_permission" })
		var p struct{ ToolCall struct{ ToolCallID string } }
		json.Unmarshal(f.Params, &p)
		all[p.ToolCall.ToolCallID] = f
	}
	return all
}

// TestQuestionsOfSubagentAndParent checks that a question of a background subagent and one of its
// parent are two: each answer reaches its own call, in any order.
func TestQuestionsOfSubagentAndParent(t *testing.T) {
	for _, first := range []string{"parent", "child"} {
		run(t, setting{model: func(dir string) *pt.Scenario {
			write := func(name string) object { return object{"file_path": filepath.Join(dir, name), "content": name} }
			return pt.Script(
				pt.Say("I delegate.").Call("Agent", object{"description": "d", "prompt": "SUBPROMPT", "run_in_background": true}),
				pt.Call("Write", write("parent")),
				pt.Say("Done.").Always(),
			).When("sub", pt.FirstUser("SUBPROMPT"), pt.Call("Write", write("child")), pt.Say("report").Always())
		}}, func(t *testing.T, e *editor) {
			id := e.newSession()
			waiting := e.send("session/prompt", prompt(id, "Go."))
			asks := e.questions(2)
			second := ""
			for _, name := range []string{first, ""} {
				for call, f := range asks {
					if name != "" && !strings.Contains(string(f.Params), filepath.Join(e.dir, name)) {
						continue
					}
					option := "allow-once"
					if name == "" {
						option, second = "reject", string(f.Params)
					}
					e.write(object{"jsonrpc": "2.0", "id": f.ID, "result": selects(option)})
					delete(asks, call)
				}
			}
			e.response(waiting)
			written := func() bool {
				_, err := os.Stat(filepath.Join(e.dir, first))
				return err == nil
			}
			if !written() { // the child may still be at work
				e.until("the allowed call", func(*frame) bool { return written() })
			}
			other := map[string]string{"parent": "child", "child": "parent"}[first]
			if !strings.Contains(second, filepath.Join(e.dir, other)) {
				t.Errorf("the second question is %s", second)
			}
			if _, err := os.Stat(filepath.Join(e.dir, other)); err == nil {
				t.Errorf("the denied call of the %s ran", other)
			}
		})
	}
}

// TestBackgroundNoticeKeepsQuestion checks that the end of a background task leaves an open question as it
// is: nobody answers it in the place of the user.
func TestBackgroundNoticeKeepsQuestion(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := exec.Command("mkfifo", pipe).Run(); err != nil {
		t.Skip(err)
	}
	run(t, setting{model: func(dir string) *pt.Scenario {
		return pt.Script(
			pt.Say("I start it.").Call("Bash", object{"command": "cat " + pipe, "run_in_background": true}),
			pt.Call("Write", object{"file_path": filepath.Join(dir, "new.txt"), "content": "hello\n"}),
			pt.Say("Done.").Always(),
		)
	}}, func(t *testing.T, e *editor) {
		id := e.newSession()
		waiting := e.send("session/prompt", prompt(id, "Go."))
		for _, f := range e.questions(1) { // Bash
			e.write(object{"jsonrpc": "2.0", "id": f.ID, "result": selects("allow-once")})
		}
		asks := e.questions(1)
		if err := os.WriteFile(pipe, []byte("end\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for i, err := range e.hub.Watch(t.Context(), hub.Actor{Name: "test", Rights: hub.MayView}) {
			if err != nil {
				t.Fatal(err)
			}
			if i.ID == id && len(i.State.Tasks) == 0 { // the task has ended
				if i.State.Phase != hub.RequiresAction || len(i.State.Waiting) != 1 {
					t.Errorf("after the end of the task: %+v", i.State)
				}
				break
			}
		}
		for _, f := range asks {
			e.write(object{"jsonrpc": "2.0", "id": f.ID, "result": selects("allow-once")})
		}
		if f := e.response(waiting); !strings.Contains(string(f.Result), "end_turn") {
			t.Errorf("%s\n%s", brief(f), e.received())
		}
		if _, err := os.Stat(filepath.Join(e.dir, "new.txt")); err != nil {
			t.Errorf("the allowed call did not run: %v\n%s", err, e.received())
		}
		for _, f := range e.all {
			if f.Method == "$/cancel_request" {
				t.Errorf("the question was withdrawn: %s", brief(f))
			}
		}
	})
}

// TestCancelThenDisconnect checks that Serve waits for the interrupt of a prompt that the client
// cancels as its last act. Without that, the race detector reports it.
func TestCancelThenDisconnect(t *testing.T) {
	for range 30 {
		run(t, setting{model: script(pt.Pause(time.Hour).Say("Late.").Always())}, func(t *testing.T, e *editor) {
			id := e.send("session/prompt", prompt(e.newSession(), "Hello."))
			time.Sleep(time.Second)
			e.write(object{"jsonrpc": "2.0", "method": "$/cancel_request", "params": object{"requestId": json.RawMessage(id)}})
		})
	}
}
