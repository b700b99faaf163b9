package parleytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/engine/model"
)

func TestEvents(t *testing.T) {
	m := Script(Think("hm").Say("hel", "lo").Call("Read", `{"a":1}`).Block(`{"type":"x"}`).Redacted("r")).Model()
	events, err := collect(t, m, ask("hi"))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(events, "\n")
	for _, want := range []string{
		`message_start {"type":"message_start","message":{"id":"msg_main_1","type":"message","role":"assistant","model":"m","content":[]`,
		`"delta":{"type":"thinking_delta","thinking":"hm"}`,
		`"delta":{"type":"signature_delta","signature":"` + sign("hm") + `"}`,
		`"delta":{"type":"text_delta","text":"hel"}`,
		`"delta":{"type":"text_delta","text":"lo"}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_main_1_1","name":"Read","input":{}}}`,
		`"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}`,
		`{"type":"content_block_start","index":3,"content_block":{"type":"x"}}`,
		`{"type":"content_block_start","index":4,"content_block":{"type":"redacted_thinking","data":"r"}}`,
		`"stop_reason":"tool_use"`,
		`message_stop {"type":"message_stop"}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("missing %s in\n%s", want, got)
		}
	}
	if err := m.Done(); err != nil {
		t.Error(err)
	}
}

func TestChunks(t *testing.T) {
	m := Script(Say("aé€bcd").Chunks(2)).Model()
	events, _ := collect(t, m, ask("hi"))
	var deltas []string
	for _, e := range events {
		if strings.HasPrefix(e, "content_block_delta") {
			deltas = append(deltas, said([]string{e}))
		}
	}
	if got := fmt.Sprint(deltas); got != "[aé € bc d]" {
		t.Errorf("deltas %q", deltas)
	}
	if said(events) != "aé€bcd" {
		t.Errorf("said %q", said(events))
	}
}

func TestMatchers(t *testing.T) {
	const body = `{"model":"claude-x","max_tokens":9,"thinking":{"type":"adaptive"},"system":[{"type":"text","text":"You are"},{"type":"text","text":"a test"}],
		"tools":[{"name":"Read","input_schema":{"type":"object"}},{"name":"Bash","input_schema":{"type":"object"}}],
		"messages":[{"role":"user","content":"first"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"Read","input":{}},{"type":"tool_use","id":"b","name":"Bash","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"one"}]},{"type":"tool_result","tool_use_id":"b","content":"two","is_error":true},{"type":"text","text":"last words"}]},
		{"role":"system","content":"a note"}]}`
	r := &Request{Body: []byte(body), Header: map[string][]string{"Anthropic-Beta": {"b1,b2"}}}
	for _, tt := range []struct {
		m    Matcher
		want bool
	}{
		{LastUser("words"), true},
		{LastUser("first"), false},
		{LastUser("last words").Exact(), true},
		{LastUser("last").Exact(), false},
		{LastUser("^l.*s$").Regexp(), true},
		{LastUser("words").Not(), false},
		{FirstUser("first"), true},
		{SystemPrompt("You are\na test").Exact(), true},
		{ToolResult("one").Exact(), true},
		{ToolResult("two"), true},
		{ToolResult("three"), false},
		{ToolError("two"), true},
		{ToolError("one"), false},
		{ToolError("").Not(), false},
		{Tools("Bash", "Read"), true},
		{Tools("Bash", "Write"), false},
		{Tools("Write").Not(), true},
		{Tools("Bash", "Write").Not(), false},
		{ModelName("claude"), true},
		{Field("thinking.type", "adaptive").Exact(), true},
		{Field("messages.0.content", "first"), true},
		{Field("max_tokens", "9").Exact(), true},
		{Field("nope.0", ""), false},
		{RequestHeader("Anthropic-Beta", "b2"), true},
		{Check("yes", func(*Request) error { return nil }), true},
		{Check("no", func(*Request) error { return errors.New("no") }), false},
	} {
		if ok, got := tt.m.matches(r); ok != tt.want {
			t.Errorf("%v: %v, want %v; it looked at %q", tt.m, ok, tt.want, got)
		}
	}
	if got := fmt.Sprint(r.ToolResults()); got != "[{a Read one false} {b Bash two true}]" {
		t.Errorf("tool results %s", got)
	}
}

func TestNotFollowed(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    *Scenario
		ask  string
		want []string
	}{
		{"text", Script(Expect(LastUser("apples")).Say("x")), ask("pears"), []string{
			"script main, turn 1: the request is not what the turn expects", "- expect user apples", "+ got pears"}},
		{"lines", Script(Expect(LastUser("a\nb\nc").Exact()).Say("x")), ask(`a\nB\nc`), []string{"  a\n- b\n+ B\n  c"}},
		{"tools", Script(Expect(Tools("Read")).Say("x")), ask("hi"), []string{"- expect tools Read", "+ got nothing"}},
		{"alternatives", Script(FirstOf(Expect(LastUser("a1")).Say("x"), Expect(LastUser("b2")).Say("y"))), ask("c3"), []string{
			"any alternative", "alternative 1:\n- expect user a1\n+ got c3", "alternative 2:\n- expect user b2\n+ got c3"}},
		{"the end", Script(), ask("hi"), []string{"the script has ended: it has 0 turns and this request is one more", "+ last user text: hi"}},
		{"the end after a tool", Script(), result("t1", "out", true), []string{"+ tool result of t1 (error): out"}},
		{"bad scenario", Script(Say("x").Goto("nowhere")), ask("hi"), []string{"bad scenario", "script main, turn 1: goto nowhere: there is no such script"}},
		{"bad regexp", Script(Expect(LastUser("(").Regexp()).Say("x")), ask("hi"), []string{"bad scenario", "missing closing )"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := tt.s.Model()
			for range 2 { // what failed once fails again, whatever is asked
				_, err := collect(t, m, tt.ask)
				if err == nil {
					t.Fatal("no error")
				}
				for _, want := range tt.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("missing %q in\n%v", want, err)
					}
				}
			}
			if m.Err() == nil || m.Done() == nil {
				t.Error("the model does not report it")
			}
		})
	}
}

func TestPaths(t *testing.T) {
	s := Script(
		Call("Read", "{}"),
		FirstOf(
			Expect(ToolError("")).Call("Read", "{}").Always(),
			Expect(ToolResult("stop")).Say("stopped").Goto("bye"),
			Expect(ToolResult("")).Say("fine"),
		),
		Say("again").Times(2),
	).
		Named("bye", Say("bye")).
		When("title", SystemPrompt("title"), Say("A title").Always()).
		When("sub", FirstUser("subtask"), Say("one"), Say("two")).EachConversation().
		Default(Say("default"))
	titled := strings.Replace(ask("x"), "{", `{"system":"write a title",`, 1)
	for _, tt := range []struct {
		name  string
		asked []string
		want  []string
	}{
		{"straight", []string{ask("go"), result("t", "ok", false), ask("x"), ask("x"), ask("x"), ask("x")}, []string{"", "fine", "again", "again", "default", "default"}},
		{"retry", []string{ask("go"), result("t", "bad", true), result("t", "bad", true), result("t", "ok", false)}, []string{"", "", "", "fine"}},
		{"goto", []string{ask("go"), result("t", "stop", false), ask("x"), ask("x")}, []string{"", "stopped", "bye", "default"}},
		{"beside", []string{titled, ask("go"), titled, result("t", "ok", false)}, []string{"A title", "", "A title", "fine"}},
		{"each", []string{ask("subtask 1"), ask("subtask 2"), ask("subtask 1"), ask("subtask 2"), ask("go")}, []string{"one", "one", "two", "two", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := s.Model()
			for i, q := range tt.asked {
				events, err := collect(t, m, q)
				if err != nil {
					t.Fatalf("request %d: %v", i+1, err)
				}
				if got := said(events); got != tt.want[i] {
					t.Errorf("request %d: said %q, want %q", i+1, got, tt.want[i])
				}
			}
			if err := m.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnplayed(t *testing.T) {
	m := Script(Say("a"), Say("b")).Model()
	if err := m.Done(); err == nil || !strings.Contains(err.Error(), "turn 1: never requested: the agent played 0 of 2 turns") {
		t.Errorf("before: %v", err)
	}
	collect(t, m, ask("x"))
	if err := m.Done(); err == nil || !strings.Contains(err.Error(), "turn 2: never requested: the agent played 1 of 2 turns") {
		t.Errorf("between: %v", err)
	}
	collect(t, m, ask("x"))
	if err := m.Done(); err != nil {
		t.Errorf("after: %v", err)
	}
	m = Script(Say("a").Always()).Model()
	if err := m.Done(); err != nil {
		t.Errorf("a turn for always: %v", err)
	}
}

func TestModelFaults(t *testing.T) {
	m := Script(
		Fail(429).RetryAfter(1500*time.Millisecond).Header("anthropic-ratelimit-requests-remaining", "0"),
		Reset(),
		Say("hello").Cut().After(3),
		Say("hello").Malformed("{bad").After(2),
		Say("hello").StreamError("overloaded_error", "Overloaded"),
	).Model()
	_, err := collect(t, m, ask("1"))
	var e *model.Error
	if !errors.As(err, &e) || e.Status != 429 || e.Type != "rate_limit_error" || e.RetryAfter != 2*time.Second || e.Header.Get("anthropic-ratelimit-requests-remaining") != "0" || e.RequestID != "req_1" {
		t.Errorf("fail: %#v", err)
	}
	if _, err := collect(t, m, ask("2")); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reset: %v", err)
	}
	if events, err := collect(t, m, ask("3")); !errors.Is(err, io.ErrUnexpectedEOF) || len(events) != 3 {
		t.Errorf("cut: %v after %d events", err, len(events))
	}
	if events, err := collect(t, m, ask("4")); err != nil || events[2] != "content_block_delta {bad" {
		t.Errorf("malformed: %v, %q", err, events)
	}
	events, err := collect(t, m, ask("5"))
	if !errors.As(err, &e) || e.Status != 0 || e.Type != "overloaded_error" || said(events) != "hello" {
		t.Errorf("stream error: %v after %q", err, events)
	}
}

// TestVirtualTime waits for an hour in no time.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Script(
			Pause(30*time.Minute).Say("late").Pause(20*time.Minute).Say("later").Drip(time.Minute),
			Say("never ends").Stall(),
		).Model()
		start := time.Now()
		if _, err := collect(t, m, ask("x")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 58*time.Minute {
			t.Errorf("took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var last error
		start = time.Now()
		for _, err := range m.Stream(ctx, model.Request{Body: []byte(ask("x"))}) {
			last = err
		}
		if !errors.Is(last, context.DeadlineExceeded) || time.Since(start) != time.Hour {
			t.Errorf("%v after %v", last, time.Since(start))
		}
	})
}

func TestOnResponse(t *testing.T) {
	m := Script(Say("x").Header("X-One", "1"), Fail(500), Say("y")).Model()
	for _, want := range []int{200, 500} {
		var got []model.Response
		for range m.Stream(t.Context(), model.Request{Body: []byte(ask("x")), OnResponse: func(r model.Response) { got = append(got, r) }}) {
		}
		if len(got) != 1 || got[0].Status != want || got[0].RequestID == "" {
			t.Errorf("responses %+v, want one of %d", got, want)
		}
	}
	for range m.Stream(t.Context(), model.Request{Body: []byte(ask("x"))}) {
		break // must not go on
	}
}

func TestStrictModel(t *testing.T) {
	m := Script(Think("hm").Call("Read", "{}"), Say("ok")).Model()
	m.Strict, m.Record = true, true
	if _, err := collect(t, m, `{"model":"m","messages":[]}`); err == nil || !strings.Contains(err.Error(), "max_tokens: Field required") {
		t.Errorf("no max_tokens: %v", err)
	}
	if _, err := collect(t, m, ask("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := collect(t, m, result("toolu_main_1_1", "x", false)); err != nil {
		t.Fatal(err)
	}
	if reqs := m.Requests(); len(reqs) != 3 || reqs[0].Status != 400 || reqs[2].Status != 200 || reqs[2].Turn != 2 {
		t.Errorf("requests %+v", reqs)
	}
}

// TestManyTurns plays 10,000 turns and looks at the time and the memory.
func TestManyTurns(t *testing.T) {
	const turns = 10_000
	m := Script(
		Expect(LastUser("go")).Say("Let me look at this.").Call("Read", `{"file_path":"a.txt"}`).Goto("second"),
	).Named("second", Expect(ToolResult("contents")).Say("It is what you think it is.").Goto("main")).Model()
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	first, second := ask("go"), result("toolu_1", "contents of the file", false)
	var before uint64
	for i := range turns / 2 {
		for _, q := range []string{first, second} {
			for _, err := range m.Stream(t.Context(), model.Request{Body: []byte(q)}) {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if i == 500 {
			before = heap()
		}
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
}

func BenchmarkTurn(b *testing.B) {
	m := Script(Expect(LastUser("go")).Say("Let me look at this.").Call("Read", `{"file_path":"a.txt"}`).Always()).Model()
	body := []byte(ask("go"))
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range m.Stream(b.Context(), model.Request{Body: body}) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

// An input that only an earlier result can tell.
func TestCallFunction(t *testing.T) {
	m := Script(
		Call("Start", "{}"),
		Call("Stop", func(r *Request) any { return map[string]string{"id": r.ToolResults()[0].Text} }),
		Call("Stop", func(*Request) any { return make(chan int) }),
	).Model()
	ask := func(messages string) (string, error) {
		var said strings.Builder
		for ev, err := range m.Stream(t.Context(), model.Request{Body: []byte(`{"model":"m","max_tokens":9,"messages":[` + messages + `]}`)}) {
			if err != nil {
				return said.String(), err
			}
			said.Write(ev.Data)
		}
		return said.String(), nil
	}
	user := `{"role":"user","content":"go"}`
	call := `,{"role":"assistant","content":[{"type":"tool_use","id":"toolu_main_1_1","name":"Start","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_main_1_1","content":"b12"}]}`
	if _, err := ask(user); err != nil {
		t.Fatal(err)
	}
	if got, err := ask(user + call); err != nil || !strings.Contains(got, "b12") {
		t.Errorf("%s %v", got, err)
	}
	if _, err := ask(user + call); err == nil || m.Err() == nil {
		t.Errorf("a channel is taken for an input: %v, %v", err, m.Err())
	}
}
