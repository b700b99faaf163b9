package call

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/internal/telemetry"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeTool has an effect unless it is read-only.
type fakeTool struct {
	name     string
	readOnly bool
	run      func(ctx context.Context, input json.RawMessage) (*tool.Result, error)
}

func (f *fakeTool) Spec() *tool.Spec {
	return &tool.Spec{Name: f.name, ReadOnly: f.readOnly, Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}
}

func (f *fakeTool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) {
	kind := tool.Other
	if f.readOnly {
		kind = tool.Read
	}
	return []tool.Access{{Kind: kind}}, nil
}

func (f *fakeTool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	if f.run == nil {
		return tool.Text("ran", nil), nil
	}
	return f.run(ctx, call.Input)
}

// A fakeHost answers permission requests and hooks.
type fakeHost struct {
	answer *wire.PermissionResult // nil if nobody can be asked
	err    error
	hooks  map[wire.HookEvent]*wire.HookOutput
	asked  []*wire.CanUseTool
	called func(ctx context.Context, event wire.HookEvent, id string) // may be nil
}

func (h *fakeHost) CanAsk() bool { return h.answer != nil || h.err != nil }

func (h *fakeHost) Ask(_ context.Context, q *wire.CanUseTool, sent func()) (*wire.PermissionResult, error) {
	sent()
	h.asked = append(h.asked, q)
	return h.answer, h.err
}

func (h *fakeHost) Hooks(ctx context.Context, in wire.HookInput, _, id string) []hook.Answer {
	if h.called != nil {
		h.called(ctx, in.Event(), id)
	}
	if out := h.hooks[in.Event()]; out != nil {
		return []hook.Answer{{Name: "h", Source: "host", Output: out}}
	}
	return nil
}

// A fakeLog keeps the types of its records.
type fakeLog struct {
	session.Log
	mu    sync.Mutex
	types []string
	last  *session.Entry
	hook  func() // called by each Append
}

func (l *fakeLog) Append(entries ...*session.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range entries {
		l.types = append(l.types, strings.TrimPrefix(e.Type, "parley-"))
		l.last = e
	}
	if l.hook != nil {
		l.hook()
	}
	return nil
}

// newRunner returns a runner with a mode and rules, and the log that it writes.
func newRunner(t *testing.T, host *fakeHost, mode wire.PermissionMode, rules ...string) (*Runner, *fakeLog) {
	t.Helper()
	log := &fakeLog{}
	p := policy.New()
	for _, text := range rules {
		behavior, text, _ := strings.Cut(text, " ")
		r, err := policy.Parse(text, wire.PermissionBehavior(behavior), policy.Source{Layer: policy.LayerHost})
		if err != nil {
			t.Fatal(err)
		}
		p.Add(r)
	}
	v := &View{Host: host, Mode: mode, Policy: p, Env: &tool.Env{}}
	view := func() *View { return v }
	return &Runner{
		Env: v.Env, Rec: recorder.New(recorder.Options{Place: recorder.Place{ID: "s", Log: log}, Emit: func(wire.Message) {}, Now: time.Now}),
		Log: slog.New(slog.DiscardHandler), Telemetry: telemetry.New(nil, nil), Now: time.Now, View: view,
		Top:      Top{View: view, Path: func() string { return "" }, Over: make(chan struct{}), Apply: func(*wire.PermissionUpdate) []string { return nil }},
		SetState: func(string) {}, AddNotes: func(*hook.Verdict) {},
	}, log
}

// TestStages checks how each stage ends a call, and what is recorded about it.
func TestStages(t *testing.T) {
	preToolUse := func(behavior wire.PermissionBehavior, input string) map[wire.HookEvent]*wire.HookOutput {
		out := &wire.PreToolUseOutput{PermissionDecision: behavior, PermissionDecisionReason: "the hook's reason"}
		if input != "" {
			out.UpdatedInput = json.RawMessage(input)
		}
		return map[wire.HookEvent]*wire.HookOutput{wire.EventPreToolUse: {HookSpecificOutput: out}}
	}
	allow := &wire.PermissionResult{Behavior: wire.BehaviorAllow}
	for _, tt := range []struct {
		name     string
		host     *fakeHost
		mode     wire.PermissionMode
		rules    []string
		tool     *fakeTool
		input    string
		want     string // part of the result
		denied   bool
		records  string
		decision string // source of the decision
	}{
		{name: "no such tool", want: "No such tool"},
		{name: "no object", tool: &fakeTool{name: "Do"}, want: "not a JSON object", records: "receipt"},
		{name: "not the schema", tool: &fakeTool{name: "Do"}, input: `{"n":"x"}`, want: "InputValidationError", records: "receipt"},
		{name: "a hook denies", host: &fakeHost{hooks: preToolUse(wire.BehaviorDeny, "")}, tool: &fakeTool{name: "Do"}, input: `{}`, want: "the hook's reason", denied: true, records: "receipt", decision: "hook"},
		{name: "a hook allows", host: &fakeHost{hooks: preToolUse(wire.BehaviorAllow, "")}, tool: &fakeTool{name: "Do"}, input: `{}`, want: "ran", records: "receipt intent outcome", decision: "hook"},
		{name: "a hook's input does not fit", host: &fakeHost{hooks: preToolUse(wire.BehaviorAllow, `{"n":"x"}`)}, tool: &fakeTool{name: "Do"}, input: `{}`, want: "A PreToolUse hook replaced the input of the call. InputValidationError", denied: true, records: "receipt", decision: "hook"},
		{name: "a deny rule beats a hook", host: &fakeHost{hooks: preToolUse(wire.BehaviorAllow, "")}, rules: []string{"deny Do"}, tool: &fakeTool{name: "Do"}, input: `{}`, want: "rule", denied: true, records: "receipt", decision: "config"},
		{name: "an allow rule", rules: []string{"allow Do"}, tool: &fakeTool{name: "Do"}, input: `{}`, want: "ran", records: "receipt intent outcome", decision: "config"},
		{name: "the mode allows", mode: wire.ModeBypassPermissions, tool: &fakeTool{name: "Do"}, input: `{}`, want: "ran", records: "receipt intent outcome", decision: "config"},
		{name: "nobody is asked", mode: wire.ModeDontAsk, host: &fakeHost{answer: allow}, tool: &fakeTool{name: "Do"}, input: `{}`, want: "this mode asks nobody", denied: true, records: "receipt", decision: "config"},
		{name: "nobody is there", tool: &fakeTool{name: "Do"}, input: `{}`, want: "nobody can be asked", denied: true, records: "receipt", decision: "config"},
		{name: "the host allows", host: &fakeHost{answer: allow}, tool: &fakeTool{name: "Do"}, input: `{}`, want: "ran", records: "receipt intent outcome", decision: "user_temporary"},
		{name: "the host denies without a message", host: &fakeHost{answer: &wire.PermissionResult{Behavior: wire.BehaviorDeny}}, tool: &fakeTool{name: "Do"}, input: `{}`, want: "no valid answer", denied: true, records: "receipt", decision: "config"},
		{name: "the host denies", host: &fakeHost{answer: &wire.PermissionResult{Behavior: wire.BehaviorDeny, Message: "not now"}}, tool: &fakeTool{name: "Do"}, input: `{}`, want: "not now", denied: true, records: "receipt", decision: "user_reject"},
		{name: "the host fails", host: &fakeHost{err: errors.New("gone")}, tool: &fakeTool{name: "Do"}, input: `{}`, want: "gone", denied: true, records: "receipt", decision: "config"},
		{name: "the host answers nonsense", host: &fakeHost{answer: &wire.PermissionResult{Behavior: "maybe"}}, tool: &fakeTool{name: "Do"}, input: `{}`, want: "no valid answer", denied: true, records: "receipt", decision: "config"},
		{name: "the host's input does not fit", host: &fakeHost{answer: &wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedInput: json.RawMessage(`{"n":"x"}`)}}, tool: &fakeTool{name: "Do"}, input: `{}`, want: "one that its schema does not allow", records: "receipt", decision: "permission_updated_input_invalid"},
		{name: "an empty input of the host changes nothing", host: &fakeHost{answer: &wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedInput: json.RawMessage(`{ }`)}}, tool: &fakeTool{name: "Do", run: func(_ context.Context, in json.RawMessage) (*tool.Result, error) {
			return tool.Text("ran with "+string(in), nil), nil
		}}, input: `{"n":1}`, want: `ran with {"n":1}`, records: "receipt intent outcome", decision: "user_temporary"},
		{name: "the host's input is no object", host: &fakeHost{answer: &wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedInput: json.RawMessage(`"x"`)}}, tool: &fakeTool{name: "Do"}, input: `{}`, want: "no valid answer", denied: true, records: "receipt", decision: "config"},
		{name: "an unknown scope of a decision", host: &fakeHost{answer: &wire.PermissionResult{Behavior: wire.BehaviorAllow, DecisionClassification: "forever"}}, tool: &fakeTool{name: "Do"}, input: `{}`, want: "ran", records: "receipt intent outcome", decision: "user_temporary"},
		{name: "the tool panics", mode: wire.ModeBypassPermissions, tool: &fakeTool{name: "Do", run: func(context.Context, json.RawMessage) (*tool.Result, error) { panic("oops") }}, input: `{}`, want: "oops", records: "receipt intent outcome"},
		{name: "a call without effects has no intent", mode: wire.ModeBypassPermissions, tool: &fakeTool{name: "Look", readOnly: true}, input: `{}`, want: "ran", records: "receipt", decision: "config"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := tt.host
			if host == nil {
				host = &fakeHost{}
			}
			mode := tt.mode
			if mode == "" {
				mode = wire.ModeDefault
			}
			r, log := newRunner(t, host, mode, tt.rules...)
			c := &Call{ID: "c1", Name: "Do"}
			if tt.tool != nil {
				c.Name, c.Tool = tt.tool.name, tt.tool
			}
			if tt.input != "" {
				c.Input = json.RawMessage(tt.input)
			}
			out := r.Run(t.Context(), c)
			if got := out.Result.Content.String(); !strings.Contains(got, tt.want) {
				t.Errorf("got the result %q, want %q", got, tt.want)
			}
			if out.Denied != tt.denied {
				t.Errorf("denied: got %v, want %v", out.Denied, tt.denied)
			}
			if got := strings.Join(log.types, " "); got != tt.records {
				t.Errorf("got the records %q, want %q", got, tt.records)
			}
			got := ""
			if out.Meta != nil && out.Meta.PermissionDecision != nil {
				got = out.Meta.PermissionDecision.Source
			}
			if got != tt.decision {
				t.Errorf("got a decision of %q, want %q", got, tt.decision)
			}
		})
	}
}

// TestMalformedUpdates checks that an answer with a malformed update still decides the call, but changes no permissions.
func TestMalformedUpdates(t *testing.T) {
	fine := &wire.PermissionUpdate{Type: wire.UpdateAddRules, Behavior: wire.BehaviorAllow, Rules: []*wire.PermissionRule{{ToolName: "Do"}}, Destination: wire.DestinationSession}
	for name, update := range map[string]*wire.PermissionUpdate{
		"":                       nil,
		"no destination":         {Type: wire.UpdateSetMode, Mode: wire.ModePlan},
		"an unknown type":        {Type: "grant", Destination: wire.DestinationSession},
		"an unknown destination": {Type: wire.UpdateSetMode, Mode: wire.ModePlan, Destination: "policySettings"},
		"no behavior":            {Type: wire.UpdateAddRules, Rules: fine.Rules, Destination: wire.DestinationSession},
		"no mode":                {Type: wire.UpdateSetMode, Destination: wire.DestinationSession},
	} {
		r, _ := newRunner(t, &fakeHost{answer: &wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedPermissions: []*wire.PermissionUpdate{fine, update}}}, wire.ModeDefault)
		applied := 0
		r.Top.Apply = func(*wire.PermissionUpdate) []string { applied++; return nil }
		out := r.Run(t.Context(), &Call{ID: "c1", Name: "Do", Input: json.RawMessage(`{}`), Tool: &fakeTool{name: "Do"}})
		want := map[string]int{"": 1, "no destination": 2}[name]
		if applied != want || out.Denied {
			t.Errorf("%q: %d updates were applied and the call was denied: %v, want %d updates and an allowed call", name, applied, out.Denied, want)
		}
	}
}

// A fakeForm accepts values that are not empty.
type fakeForm struct{ fakeTool }

func (f *fakeForm) Fit(given json.RawMessage) (json.RawMessage, error) {
	if string(given) == "{}" {
		return nil, errors.New("it is empty")
	}
	return given, nil
}

// TestForm checks that a form does not run: its value, or the reason why that does not match,
// is the outcome.
func TestForm(t *testing.T) {
	r, _ := newRunner(t, &fakeHost{}, wire.ModeDefault)
	for input, want := range map[string]string{`{"a":1}`: "provided successfully", `{}`: "it is empty"} {
		out := r.Run(t.Context(), &Call{ID: "c1", Name: "Form", Input: json.RawMessage(input), Tool: &fakeForm{}})
		if got := out.Result.Content.String(); !strings.Contains(got, want) || (out.Misfit == nil) != (string(out.Value) == input) {
			t.Errorf("%s: got %q with the value %s and %v, want %q", input, got, out.Value, out.Misfit, want)
		}
	}
}

// TestBatchOrder checks that a call with effects waits for the end of the message and for all
// calls before it, and that calls without effects wait only for calls with effects.
func TestBatchOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRunner(t, &fakeHost{}, wire.ModeBypassPermissions)
		var ran []string
		release := make(chan struct{})
		step := func(name string, wait bool) *Call {
			return &Call{ID: name, Name: name, Input: json.RawMessage(`{}`), Tool: &fakeTool{name: name, readOnly: strings.HasPrefix(name, "look"),
				run: func(context.Context, json.RawMessage) (*tool.Result, error) {
					if wait {
						<-release
					}
					ran = append(ran, name)
					return tool.Text(name, nil), nil
				}}}
		}
		b := r.NewBatch(t.Context())
		b.Start(step("look1", true))
		b.Start(step("do1", false))
		b.Start(step("look2", false))
		synctest.Wait()
		if len(ran) != 0 {
			t.Errorf("got %v before the message was complete, want nothing", ran)
		}
		b.Release()
		synctest.Wait()
		if len(ran) != 0 {
			t.Errorf("got %v while the first call runs, want nothing", ran)
		}
		close(release)
		for _, c := range b.Calls {
			<-c.Done
		}
		if got := strings.Join(ran, " "); got != "look1 do1 look2" {
			t.Errorf("got %s, want look1 do1 look2", got)
		}
	})
}

// TestHostAnswersInPlaceOfCall checks that the host's result is used and the call stops.
func TestHostAnswersInPlaceOfCall(t *testing.T) {
	r, _ := newRunner(t, &fakeHost{}, wire.ModeBypassPermissions)
	b := r.NewBatch(t.Context())
	b.Start(&Call{ID: "c1", Name: "Wait", Input: json.RawMessage(`{}`), Tool: &fakeTool{name: "Wait", run: func(ctx context.Context, _ json.RawMessage) (*tool.Result, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}})
	b.Release()
	result := &wire.ToolResultBlock{ToolUseID: "c1", Content: wire.Text("from the host")}
	if !b.Answer(result, nil) {
		t.Fatal("the answer was not used")
	}
	if b.Answer(result, nil) {
		t.Error("a second answer was used")
	}
	c := b.Calls[0]
	<-c.Done
	if !c.Out.Stopped {
		t.Errorf("got %q, want a call that was stopped", c.Out.Result.Content.String())
	}
	if got := c.Posted.Result.Content.String(); got != "from the host" {
		t.Errorf("got %q, want the host's result", got)
	}
}

// TestNarrowest checks that the mode of an agent never allows more than that of its parent.
func TestNarrowest(t *testing.T) {
	modes := []wire.PermissionMode{wire.ModeDefault, wire.ModeAcceptEdits, wire.ModeBypassPermissions, wire.ModePlan, wire.ModeDontAsk, wire.ModeAuto, wire.ModeManual}
	for _, parent := range modes {
		if got := Narrowest(parent, ""); got != parent {
			t.Errorf("%s without an own mode: got %s", parent, got)
		}
		for _, own := range modes {
			got := Narrowest(parent, own)
			if got == wire.ModeBypassPermissions && parent != wire.ModeBypassPermissions {
				t.Errorf("%s under %s: got %s", own, parent, got)
			}
			if (parent == wire.ModePlan || parent == wire.ModeDontAsk) && got != parent {
				t.Errorf("%s under %s: got %s, want %s", own, parent, got, parent)
			}
		}
	}
}

// TestToolThatPanicsHasAnOutcome checks that every intent has an outcome while the process
// lives, so that only a process that died leaves calls whose effect is unknown.
func TestToolThatPanicsHasAnOutcome(t *testing.T) {
	for name, end := range map[string]func(){"panics": func() { panic("oops") }, "ends its goroutine": runtime.Goexit} {
		r, log := newRunner(t, &fakeHost{}, wire.ModeBypassPermissions)
		tl := &fakeTool{name: "Do", run: func(context.Context, json.RawMessage) (*tool.Result, error) { end(); return nil, nil }}
		b := r.NewBatch(t.Context())
		b.Start(&Call{ID: "t", Name: "Do", Input: json.RawMessage("{}"), Tool: tl})
		b.Release()
		<-b.Calls[0].Done
		if got := strings.Join(log.types, " "); got != "receipt intent outcome" {
			t.Errorf("a tool that %s: the log has %s", name, got)
		}
	}
}

// TestNothingWaitsBeforeACall stops the turn at the last moment before a call starts, when its intent is on
// record: it does not start.
func TestNothingWaitsBeforeACall(t *testing.T) {
	r, log := newRunner(t, &fakeHost{}, wire.ModeBypassPermissions)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r.Now = func() time.Time {
		if slices.Contains(log.types, "intent") {
			stop()
		}
		return time.Now()
	}
	ran := false
	tl := &fakeTool{name: "Do", run: func(context.Context, json.RawMessage) (*tool.Result, error) { ran = true; return nil, nil }}
	b := r.NewBatch(ctx)
	b.Start(&Call{ID: "t", Name: "Do", Input: json.RawMessage("{}"), Tool: tl})
	b.Release()
	<-b.Calls[0].Done
	if got := strings.Join(log.types, " "); ran || got != "receipt intent outcome" {
		t.Errorf("the call ran: %v; the log has %s", ran, got)
	}
}

// TestCommandsThatReadRunConcurrently checks which commands run while another one runs that
// only reads. A failure of one does not stop the others.
func TestCommandsThatReadRunConcurrently(t *testing.T) {
	for command, together := range map[string]bool{
		"ls": true, "cat *.go | wc -l": true, "grep -r a . 2>/dev/null": true, "git log -1": true, "sleep 1 && ls": true, "test -f a; echo $?": true,
		"find . -name a": true, "sed -n 1p a": true,
		"touch a": false, "cd sub && ls": false, "cd sub": false, "echo a > b": false, "make": false, "ls; rm a": false, "find . -name x -delete": false,
		"sed -i s/a/b/ a": false, "bash run.sh": false, "$X": false, "": false,
	} {
		synctest.Test(t, func(t *testing.T) {
			r, _ := newRunner(t, &fakeHost{}, wire.ModeBypassPermissions)
			r.Env.SetCwd("/project")
			release, running := make(chan struct{}), new(atomic.Int32)
			b := r.NewBatch(t.Context())
			for _, text := range []string{"cat a", command, "wc a"} {
				b.Start(&Call{ID: text, Name: "Bash", Input: json.RawMessage(`{}`), Tool: &fakeCommand{fakeTool{name: "Bash", run: func(context.Context, json.RawMessage) (*tool.Result, error) {
					running.Add(1)
					<-release
					return nil, errors.New("failed")
				}}, text}})
			}
			synctest.Wait()
			if running.Load() != 0 {
				t.Errorf("%q: %d commands ran before the message was complete", command, running.Load())
			}
			b.Release()
			synctest.Wait()
			if want := map[bool]int32{true: 3, false: 1}[together]; running.Load() != want {
				t.Errorf("%q: got %d commands at the same time, want %d", command, running.Load(), want)
			}
			close(release)
			for _, c := range b.Calls {
				if <-c.Done; !c.Out.Finished {
					t.Errorf("%q: %s did not run to its end", command, c.ID)
				}
			}
		})
	}
}

// TestHooksOfConcurrentCallsAreInOrder checks that a host receives the PreToolUse hooks of concurrent calls in the order
// of the calls, although the first one takes long to send, and does not wait for their answers.
func TestHooksOfConcurrentCallsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		answer := make(chan struct{})
		host := &fakeHost{called: func(ctx context.Context, event wire.HookEvent, id string) {
			if event != wire.EventPreToolUse {
				return
			}
			if id == "1" {
				time.Sleep(time.Second)
			}
			mu.Lock()
			order = append(order, id)
			mu.Unlock()
			hook.Sent(ctx)()
			<-answer
		}}
		r, _ := newRunner(t, host, wire.ModeBypassPermissions)
		b := r.NewBatch(t.Context())
		for _, id := range []string{"1", "2", "3"} {
			b.Start(&Call{ID: id, Name: "Look", Input: json.RawMessage(`{}`), Tool: &fakeTool{name: "Look", readOnly: true, run: func(context.Context, json.RawMessage) (*tool.Result, error) {
				return &tool.Result{}, nil
			}}})
		}
		time.Sleep(2 * time.Second)
		mu.Lock()
		if got := strings.Join(order, " "); got != "1 2 3" {
			t.Errorf("the host received the hooks of %s", got)
		}
		mu.Unlock()
		close(answer)
		for _, c := range b.Calls {
			<-c.Done
		}
	})
}

// TestCommandsThatReadAreReportedInOrder ends the second of two commands first: its result waits for that of the
// first one, but not long.
func TestCommandsThatReadAreReportedInOrder(t *testing.T) {
	for _, takes := range []time.Duration{holdTime / 2, 2 * holdTime} {
		synctest.Test(t, func(t *testing.T) {
			r, _ := newRunner(t, &fakeHost{}, wire.ModeBypassPermissions)
			r.Now = time.Now
			r.Env.SetCwd("/project")
			b := r.NewBatch(t.Context())
			for i, text := range []string{"cat a", "cat b"} {
				b.Start(&Call{ID: text, Name: "Bash", Input: json.RawMessage(`{}`), Tool: &fakeCommand{fakeTool{name: "Bash", run: func(context.Context, json.RawMessage) (*tool.Result, error) {
					time.Sleep(time.Duration(1-i) * takes)
					return nil, errors.New("failed")
				}}, text}})
			}
			b.Release()
			synctest.Wait()
			began, first := time.Now(), -1
			for {
				i, hold := b.Ready()
				if first = i; i >= 0 {
					break
				}
				select {
				case <-time.After(hold):
				case <-b.Calls[0].Done:
				}
			}
			if want := map[bool]int{true: 0, false: 1}[takes < holdTime]; first != want || time.Since(began) != min(takes, holdTime) {
				t.Errorf("if the first command takes %v, call %d is reported after %v", takes, first, time.Since(began))
			}
			<-b.Calls[0].Done
		})
	}
}

// A fakeCommand declares that it runs a command.
type fakeCommand struct {
	fakeTool
	command string
}

func (f *fakeCommand) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) {
	return []tool.Access{{Kind: tool.Execute, Command: f.command}}, nil
}

// TestTurnEndsWhileIntentIsRecorded checks that the outcome of a call says that the call did not
// run if its turn ended while the intent was recorded: the process may die before its result is.
func TestTurnEndsWhileIntentIsRecorded(t *testing.T) {
	r, log := newRunner(t, &fakeHost{}, wire.ModeBypassPermissions)
	ctx, cancel := context.WithCancel(t.Context())
	log.hook = cancel
	tl := &fakeTool{name: "Do", run: func(context.Context, json.RawMessage) (*tool.Result, error) {
		t.Error("it ran")
		return nil, nil
	}}
	r.Run(ctx, &Call{ID: "c", Name: "Do", Input: json.RawMessage("{}"), Tool: tl})
	if got := strings.Join(log.types, " "); got != "receipt intent outcome" {
		t.Fatalf("the log has %s", got)
	}
	if got := string(log.last.Fields["content"]); !strings.Contains(got, "It did not run") {
		t.Errorf("the outcome has the content %s", got)
	}
}
