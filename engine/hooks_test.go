package engine

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/internal/telemetry"
	"github.com/parley-go/parley/wire"
)

// A hookHost answers hooks.
type hookHost struct {
	Host
	events []wire.HookEvent
	answer func(wire.HookInput) *wire.HookOutput
}

func (h *hookHost) Hooks(_ context.Context, in wire.HookInput, _, _ string) []hook.Answer {
	h.events = append(h.events, in.Event())
	return []hook.Answer{{Output: h.answer(in)}}
}

func newHooks(t *testing.T, answer func(wire.HookInput) *wire.HookOutput) (*hooks, *hookHost, *turn) {
	host := &hookHost{answer: answer}
	rec := recorder.New(recorder.Options{Now: time.Now, Emit: func(wire.Message) {}})
	view := func() *call.View { return &call.View{Host: host, Env: &tool.Env{}} }
	runner := &call.Runner{Env: &tool.Env{}, Rec: rec, Log: slog.New(slog.DiscardHandler), Now: time.Now, Telemetry: telemetry.New(nil, nil), View: view,
		Top: call.Top{View: view, Path: func() string { return "" }}}
	h := &hooks{source: "startup", serving: &owner{calls: make(chan func()), over: make(chan struct{})}, runner: runner, rec: rec, env: &tool.Env{},
		modelID: func() string { return "m" }, rename: func(string) error { return nil }, reload: func() {}}
	return h, host, &turn{ctx: t.Context()}
}

func TestSessionStartsOnce(t *testing.T) {
	title, reloads := "", 0
	h, host, turn := newHooks(t, func(in wire.HookInput) *wire.HookOutput {
		if in.Event() != wire.EventSessionStart {
			return &wire.HookOutput{}
		}
		return &wire.HookOutput{HookSpecificOutput: &wire.SessionStartOutput{AdditionalContext: "know this", SessionTitle: "title", ReloadSkills: true, InitialUserMessage: "before"}}
	})
	h.setup, h.rename, h.reload = "init", func(s string) error { title = s; return nil }, func() { reloads++ }
	h.Inform("from before")
	if got := h.startSession(turn); len(got) != 2 || got[0] != "from before" {
		t.Errorf("the model gets %q", got)
	}
	if !slices.Equal(host.events, []wire.HookEvent{wire.EventSetup, wire.EventSessionStart}) || title != "title" || reloads != 1 {
		t.Errorf("got the events %v, the title %q and %d reloads", host.events, title, reloads)
	}
	if got := h.startSession(turn); got != nil || len(host.events) != 2 {
		t.Errorf("the second time: %q", got)
	}
	p := &prompt{m: wire.Prompt(wire.Text("after"))}
	if h.open(p); p.content().String() != "beforeafter" && len(p.content().Blocks) != 2 {
		t.Errorf("got the prompt %q", p.content().String())
	}
	second := &prompt{m: wire.Prompt(wire.Text("next"))}
	if h.open(second); second.expanded != nil {
		t.Error("the text before the first prompt is said twice")
	}
	h.endSession()
	if host.events[2] != wire.EventSessionEnd {
		t.Errorf("got %v", host.events)
	}
}

func TestSubagentHasNoSessionHooks(t *testing.T) {
	h, host, turn := newHooks(t, func(wire.HookInput) *wire.HookOutput { return nil })
	h.below, h.started = true, true
	h.startSession(turn)
	if h.endSession(); len(host.events) != 0 {
		t.Errorf("got %v", host.events)
	}
}

func TestPromptIsBlockedByAHook(t *testing.T) {
	h, host, turn := newHooks(t, func(wire.HookInput) *wire.HookOutput {
		return &wire.HookOutput{Decision: wire.DecisionBlock, Reason: "secret"}
	})
	if reason, blocked := h.promptHooks(turn, &prompt{m: wire.Prompt(wire.Text("hi"))}).Blocked(); !blocked || reason != "secret" {
		t.Errorf("got %v, %q", blocked, reason)
	}
	if _, blocked := h.promptHooks(turn, &prompt{m: wire.Prompt(wire.Text("hi")), origin: &wire.Origin{Kind: "agent"}}).Blocked(); blocked || len(host.events) != 1 {
		t.Error("hooks had a say about a prompt that nobody wrote")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	turn.ctx = ctx
	if v := h.runHooks(turn, &wire.StopInput{}, ""); len(v.Answers) != 0 {
		t.Error("a turn that has ended gets answers")
	}
}
