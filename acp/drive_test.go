package acp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/acp"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/hub"
	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// inMemory returns an agent that is package acp itself, in this process, with a hub whose
// agents play a script.
func inMemory(t *testing.T, model *pt.Model) *acp.Agent {
	t.Helper()
	store := &session.Memory{}
	h, err := hub.New(hub.Config{Backend: new(hub.Memory), Sessions: store, Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
		var spec hub.Args
		json.Unmarshal(start.Spec, &spec)
		dialer := agent.InProcess(agent.Config{Model: model, Store: store, Environ: os.Environ()})
		return &parley.Options{Cwd: start.Cwd, Dialer: transport.DialerFunc(func(ctx context.Context, s transport.Spec) (transport.Conn, error) {
			s.Words = append(spec.Args, s.Words...)
			return dialer.Dial(ctx, s)
		})}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	cfg := acp.Config{Hub: h.Client(hub.Actor{Name: "editor", Rights: hub.Everything}), Sessions: store}
	return &acp.Agent{Dialer: served(cfg)}
}

// served returns a dialer for a server of this process.
func served(cfg acp.Config) transport.Dialer {
	return transport.DialerFunc(func(context.Context, transport.Spec) (transport.Conn, error) {
		host, peer := transport.Pipe()
		go func() {
			acp.Serve(peer.Context(), cfg, peer, peer)
			peer.Exit(0, "")
		}()
		return host, nil
	})
}

// scripted returns an agent that answers lines of the connection itself.
func scripted(answer func(f *frame, write func(object))) *acp.Agent {
	return &acp.Agent{Dialer: transport.DialerFunc(func(context.Context, transport.Spec) (transport.Conn, error) {
		host, peer := transport.Pipe()
		go func() {
			defer peer.Exit(0, "")
			lines := wire.NewReader(peer, nil)
			write := func(v object) {
				v["jsonrpc"] = "2.0"
				data, _ := json.Marshal(v)
				peer.Write(append(data, '\n'))
			}
			for {
				line, err := lines.ReadLine()
				if err != nil {
					return
				}
				f := new(frame)
				json.Unmarshal(line, f)
				answer(f, write)
			}
		}()
		return host, nil
	})}
}

// TestAgentDriven checks that a program drives an ACP agent like Parley: streaming, tools,
// permissions, plans, options, a second turn.
func TestAgentDriven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "a.txt")
		a := inMemory(t, pt.Script(
			pt.Expect(pt.LastUser("one")).Say("I write.").Call("Write", map[string]string{"file_path": file, "content": "text"}),
			pt.Expect(pt.ToolResult("")).Call("TodoWrite", map[string]any{"todos": []object{{"content": "Test it.", "status": "pending", "activeForm": "Testing it."}}}),
			pt.Expect(pt.ToolResult("")).Say("First."),
			pt.Expect(pt.LastUser("two")).Say("Second."),
		).Model())
		var mu sync.Mutex
		var asked []string
		c, err := parley.Connect(t.Context(), &parley.Options{Cwd: dir, Dialer: a, PartialMessages: true, PermissionMode: "default", CanUseTool: func(_ context.Context, r *wire.CanUseTool) (*wire.PermissionResult, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, fmt.Sprintf("%s %s %d", r.ToolName, r.Input, len(r.PermissionSuggestions)))
			return parley.Allow(), nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if init, err := c.InitializeResponse(); err != nil || len(init.Models) == 0 || init.CurrentPermissionMode != "default" {
			t.Errorf("initialized: %+v, %v", init, err)
		}
		var seen []string
		var streamed strings.Builder
		turn := func(prompt string) *wire.Result {
			for m, err := range c.Turn(t.Context(), prompt) {
				if err != nil {
					t.Fatal(err)
				}
				switch m := m.(type) {
				case *wire.StreamEvent:
					streamed.WriteString(m.Text())
				case *wire.Assistant:
					for _, b := range m.Message.Content.All() {
						switch b := b.(type) {
						case *wire.TextBlock:
							seen = append(seen, b.Text)
						case *wire.ToolUseBlock:
							seen = append(seen, b.Name)
						}
					}
				case *wire.User:
					for _, b := range m.Message.Content.All() {
						if r, ok := b.(*wire.ToolResultBlock); ok {
							seen = append(seen, fmt.Sprintf("result %v", r.IsError))
						}
					}
				case *wire.Result:
					return m
				}
			}
			t.Fatal("no result")
			return nil
		}
		if r := turn("one"); r.Result != "First." || r.Outcome() != wire.OutcomeCompleted || r.TotalCostUSD == 0 {
			t.Errorf("the result is %+v", r)
		}
		if r := turn("two"); r.Result != "Second." {
			t.Errorf("the result is %+v", r)
		}
		if got, want := strings.Join(seen, "|"), "I write.|Write|result false|TodoWrite|result false|First.|Second."; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := streamed.String(); got != "I write.First.Second." {
			t.Errorf("streamed %q", got)
		}
		if want := []string{fmt.Sprintf(`Write {"content":"text","file_path":%q} 1`, file)}; !slices.Equal(asked, want) {
			t.Errorf("asked %q, want %q", asked, want)
		}
		if data, err := os.ReadFile(file); string(data) != "text" {
			t.Errorf("%q, %v", data, err)
		}
		if _, err := c.SetPermissionMode(t.Context(), wire.ModePlan); err != nil {
			t.Error(err)
		}
		if _, err := c.SetPermissionMode(t.Context(), "no-such-mode"); err == nil || !strings.Contains(err.Error(), "acceptEdits") {
			t.Errorf("an unknown mode: %v", err)
		}
		if _, err := c.SetModel(t.Context(), "no-such-model"); err == nil || !strings.Contains(err.Error(), "the agent has no model") {
			t.Errorf("an unknown model: %v", err)
		}
		if _, err := c.RewindFiles(t.Context(), "x", false); err == nil || !strings.Contains(err.Error(), "cannot express rewind_files") {
			t.Errorf("a request that ACP does not have: %v", err)
		}
	})
}

// TestAgentDenials checks that a denial, another input and a missing callback all keep the
// call from running.
func TestAgentDenials(t *testing.T) {
	for name, decide := range map[string]func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error){
		"denied": func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) { return parley.Deny("no"), nil },
		"another input": func(_ context.Context, r *wire.CanUseTool) (*wire.PermissionResult, error) {
			return &wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedInput: json.RawMessage(`{"file_path":"/x","content":""}`)}, nil
		},
		"failed":      func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) { return nil, os.ErrInvalid },
		"no callback": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				file := filepath.Join(dir, "a.txt")
				a := inMemory(t, pt.Script(pt.Say("").Call("Write", map[string]string{"file_path": file, "content": "text"}), pt.Say("Done.").Always()).Model())
				r, err := parley.Run(t.Context(), "one", &parley.Options{Cwd: dir, Dialer: a, CanUseTool: decide})
				if err != nil || len(r.PermissionDenials) != 1 || r.PermissionDenials[0].ToolName != "Write" {
					t.Errorf("%+v, %v", r, err)
				}
				if _, err := os.Stat(file); err == nil {
					t.Error("the call ran")
				}
			})
		})
	}
}

// TestAgentInterrupted checks that an interrupt ends the turn and withdraws the open
// question, and that the next turn works.
func TestAgentInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a := inMemory(t, pt.Script(
			pt.Expect(pt.LastUser("one")).Call("Write", map[string]string{"file_path": filepath.Join(dir, "a"), "content": ""}),
			pt.Expect(pt.LastUser("two")).Say("Second."),
		).Model())
		asked, withdrawn := make(chan struct{}), make(chan struct{})
		c, err := parley.Connect(t.Context(), &parley.Options{Cwd: dir, Dialer: a, CanUseTool: func(ctx context.Context, r *wire.CanUseTool) (*wire.PermissionResult, error) {
			close(asked)
			<-ctx.Done()
			close(withdrawn)
			return nil, ctx.Err()
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			<-asked
			c.Interrupt(t.Context())
		}()
		var last *wire.Result
		for m := range c.Turn(t.Context(), "one") {
			if r, ok := m.(*wire.Result); ok {
				last = r
			}
		}
		<-withdrawn
		if last == nil || last.Outcome() != wire.OutcomeInterrupted {
			t.Errorf("%+v", last)
		}
		for m := range c.Turn(t.Context(), "two") {
			if r, ok := m.(*wire.Result); ok && r.Result != "Second." {
				t.Errorf("%+v", r)
			}
		}
	})
}

// TestAgentResumed checks that a session is resumed by its id in the SDK, also by another
// process.
func TestAgentResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a := inMemory(t, pt.Script(pt.Expect(pt.LastUser("one")).Say("First."), pt.Expect(pt.LastUser("two")).Say("Second.")).Model())
		a.Sessions = filepath.Join(t.TempDir(), "ids")
		id := session.NewID()
		r, err := parley.Run(t.Context(), "one", &parley.Options{Cwd: dir, Dialer: a, SessionID: id})
		if err != nil || r.SessionID != id {
			t.Fatalf("%+v, %v", r, err)
		}
		r, err = parley.Run(t.Context(), "two", &parley.Options{Cwd: dir, Dialer: a, Resume: id})
		if err != nil || r.Result != "Second." || r.SessionID != id {
			t.Errorf("%+v, %v", r, err)
		}
		if _, err := parley.Run(t.Context(), "three", &parley.Options{Cwd: dir, Dialer: a, Resume: session.NewID()}); err == nil || !strings.Contains(err.Error(), "no such session") {
			t.Errorf("an unknown session: %v", err)
		}
	})
}

// TestAgentCannotExpress checks that an option that the protocol cannot express is an error
// that names it.
func TestAgentCannotExpress(t *testing.T) {
	hook := parley.On("", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) { return nil, nil })
	for want, opts := range map[string]parley.Options{
		"cannot express --max-turns":      {MaxTurns: 3},
		"cannot express --max-budget-usd": {MaxBudgetUSD: 1},
		"cannot express: hooks":           {Hooks: []parley.Hook{hook}},
		"a system prompt":                 {SystemPrompt: "Be brief."},
		"structured output":               {OutputSchema: json.RawMessage(`{"type":"object"}`)},
		"subagents":                       {Agents: map[string]*wire.AgentDefinition{"x": {Description: "x", Prompt: "x"}}},
		"tools of the host":               {ToolServers: map[string]*mcp.Server{"mine": parley.ToolServer("mine")}},
		"has no mode":                     {PermissionMode: "auto"},
		"has no option for its model":     {Model: "opus"},
		"does not accept the MCP server":  {MCPServers: map[string]*wire.MCPServerConfig{"far": {Type: "http", URL: "http://127.0.0.1:1"}}},
		"additional directories":          {AddDirs: []string{"/"}},
		"cannot resume sessions":          {Resume: session.NewID()},
	} {
		synctest.Test(t, func(t *testing.T) {
			opts.Dialer, opts.Cwd = scripted(func(f *frame, write func(object)) {
				switch f.Method {
				case "initialize":
					write(object{"id": f.ID, "result": object{"protocolVersion": 1}})
				case "session/new":
					write(object{"id": f.ID, "result": object{"sessionId": "1", "modes": object{"currentModeId": "ask", "availableModes": []object{{"id": "ask", "name": "Ask"}}}}})
				}
			}), t.TempDir()
			if _, err := parley.Run(t.Context(), "one", &opts); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// TestAgentDialects checks that agents may differ: no names of tools, no ids of messages,
// calls without a start, no response to cancel, errors, strange updates. Every prompt has
// one result, and nothing is lost.
func TestAgentDialects(t *testing.T) {
	up := func(fields object) object {
		return object{"method": "session/update", "params": object{"sessionId": "1", "update": fields}}
	}
	say := func(text string) object {
		return up(object{"sessionUpdate": "agent_message_chunk", "content": object{"type": "text", "text": text}})
	}
	end := object{"stopReason": "end_turn"}
	for name, c := range map[string]struct {
		frames  []object
		answer  object
		err     object
		want    string // messages
		outcome wire.Outcome
	}{
		"texts":          {frames: []object{say("A"), say("B")}, answer: end, want: "text AB"},
		"thought":        {frames: []object{up(object{"sessionUpdate": "agent_thought_chunk", "content": object{"type": "text", "text": "Hm."}}), say("A")}, answer: end, want: "thinking Hm.|text A"},
		"empty":          {answer: end, want: ""},
		"tokens":         {answer: object{"stopReason": "end_turn", "usage": object{"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}}},
		"only completed": {frames: []object{up(object{"sessionUpdate": "tool_call_update", "toolCallId": "c", "title": "List", "kind": "execute", "status": "completed", "rawOutput": object{"n": 1}})}, answer: end, want: `call execute {"title":"List"}|result c {"n":1} false`},
		"never ended":    {frames: []object{up(object{"sessionUpdate": "tool_call", "toolCallId": "c", "title": "List", "kind": "read", "rawInput": object{"path": "x"}})}, answer: end, want: `call read {"path":"x"}|result c The call was interrupted. true`},
		"diff": {frames: []object{up(object{"sessionUpdate": "tool_call", "toolCallId": "c", "title": "Edit", "kind": "edit", "status": "in_progress", "rawInput": object{"path": "x"}}),
			up(object{"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "content": []object{{"type": "diff", "path": "x", "oldText": "a\n", "newText": "b\n"}}})}, answer: end,
			want: "call edit {\"path\":\"x\"}|result c --- x\n+++ x\n@@ -1 +1 @@\n-a\n+b\n false"},
		"unknown update": {frames: []object{up(object{"sessionUpdate": "confetti", "color": "red"})}, answer: end, want: `system acp_update`},
		"wrong types":    {frames: []object{up(object{"sessionUpdate": "tool_call", "toolCallId": 7}), say("A")}, answer: end, want: `system acp_update|text A`},
		"other session":  {frames: []object{{"method": "session/update", "params": object{"sessionId": "2", "update": object{"sessionUpdate": "agent_message_chunk", "content": object{"type": "text", "text": "X"}}}}}, answer: end, want: ""},
		"notice":         {frames: []object{up(object{"sessionUpdate": "notice", "severity": "warning", "title": "Slow."})}, answer: end, want: "system informational"},
		"refusal":        {answer: object{"stopReason": "refusal"}, outcome: wire.OutcomeRefused},
		"turn limit":     {answer: object{"stopReason": "max_turn_requests"}, outcome: wire.OutcomeMaxTurns},
		"cancelled":      {answer: object{"stopReason": "cancelled"}, outcome: wire.OutcomeInterrupted},
		"odd reason":     {answer: object{"stopReason": "bored"}, outcome: wire.OutcomeFailed},
		"no reason":      {answer: object{}, outcome: wire.OutcomeFailed},
		"error":          {err: object{"code": -32603, "message": "Internal error", "data": object{"details": "no disk"}}, outcome: wire.OutcomeFailed},
		"key refused":    {err: object{"code": -32000, "message": "Log in."}, outcome: wire.OutcomeModelError},
		"asks for files": {frames: []object{{"id": "f", "method": "fs/read_text_file", "params": object{}}}, answer: end, want: ""},
		"asks about a call that nobody knows": {frames: []object{{"id": "p", "method": "session/request_permission", "params": object{"sessionId": "1", "toolCall": object{"toolCallId": "c", "title": "rm -r x"},
			"options": []object{{"optionId": "n", "name": "No", "kind": "reject_once"}}}}}, answer: end, want: `call other {"title":"rm -r x"}|system permission_denied|result c The call was interrupted. true`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := scripted(func(f *frame, write func(object)) {
					switch f.Method {
					case "initialize":
						write(object{"id": f.ID, "result": object{"protocolVersion": 1}})
					case "session/new":
						write(object{"id": f.ID, "result": object{"sessionId": "1"}})
					case "session/prompt":
						for _, x := range c.frames {
							write(x)
						}
						if c.err != nil {
							write(object{"id": f.ID, "error": c.err})
						} else {
							write(object{"id": f.ID, "result": c.answer})
						}
					}
				})
				var seen []string
				var last *wire.Result
				for m, err := range parley.Query(t.Context(), "one", &parley.Options{Cwd: t.TempDir(), Dialer: a}) {
					if err != nil && last == nil {
						t.Error(err)
					}
					switch m := m.(type) {
					case *wire.Result:
						if last != nil {
							t.Error("a second result")
						}
						last = m
					case *wire.Assistant:
						for _, b := range m.Message.Content.All() {
							switch b := b.(type) {
							case *wire.TextBlock:
								seen = append(seen, "text "+b.Text)
							case *wire.ThinkingBlock:
								seen = append(seen, "thinking "+b.Thinking)
							case *wire.ToolUseBlock:
								seen = append(seen, "call "+b.Name+" "+string(b.Input))
							}
						}
					case *wire.User:
						for _, b := range m.Message.Content.All() {
							if r, ok := b.(*wire.ToolResultBlock); ok {
								seen = append(seen, fmt.Sprintf("result %s %s %v", r.ToolUseID, r.Content, r.IsError))
							}
						}
					case *wire.Informational:
						seen = append(seen, "system informational")
					case *wire.PermissionDenied:
						seen = append(seen, "system permission_denied")
					case *wire.Unknown:
						seen = append(seen, m.Type+" "+m.Subtype)
					}
				}
				if got := strings.Join(seen, "|"); got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
				want := c.outcome
				if c.answer != nil && c.answer["stopReason"] == "end_turn" {
					want = wire.OutcomeCompleted
				}
				if c.answer["usage"] != nil && (last == nil || last.Usage == nil || last.Usage.InputTokens != 3) {
					t.Errorf("got %+v, want the tokens of the agent", last)
				}
				if last == nil || last.Outcome() != want {
					t.Errorf("got %+v, want %v", last, want)
				}
			})
		})
	}
}
