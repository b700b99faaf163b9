package engine

import (
	"context"
	"errors"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/ask"
	"github.com/parley-go/parley/engine/internal/compact"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/wire"
)

// Compaction configures when a conversation is replaced by a summary. The zero value is the
// default: when less than 33,000 tokens of the model's window are left, and when the user
// requests it.
type Compaction struct {
	Off     bool  // never, not even on request
	AutoOff bool  // only on request
	Window  int64 // size of the window in tokens, if smaller than the model's; 0 means the model's
	// WindowFrom is where Window was set, for hosts: "env", "settings" or "model-default".
	WindowFrom string
	Percent    int // share of the window that may be filled, if less than the default; 0 means the default
}

// limits returns the limits at which a conversation is compacted whose model has the given
// window, and the effective size of the window in tokens, which is 0 if it is unknown.
func (cfg Compaction) limits(model int64) (l compact.Limits, window int64) {
	window = model
	if cfg.Window > 0 {
		window = min(window, cfg.Window)
	}
	l.Window = model
	if window <= 0 {
		return l, window
	}
	l.At, l.Auto = max(window-roomReserve, window/2), !cfg.Off && !cfg.AutoOff
	if cfg.Percent > 0 && cfg.Percent < 100 {
		l.At = min(l.At, window*int64(cfg.Percent)/100)
	}
	return l, window
}

// windowFrom returns where the size of the window was set, as hosts name it.
func (cfg Compaction) windowFrom() string {
	switch {
	case cfg.Off || cfg.AutoOff:
		return "auto"
	case cfg.WindowFrom != "":
		return cfg.WindowFrom
	}
	return "model-default"
}

// compactTurn returns the parts of a turn that a compaction needs.
func (c *Conversation) compactTurn(t *turn) compact.Turn {
	return compact.Turn{
		Ctx:   t.ctx,
		Hooks: func(in wire.HookInput, subject string) *hook.Verdict { return c.runHooks(t, in, subject) },
		Ask: func(of history.Transcript, noTools bool) (compact.Reply, error) {
			return c.askSummary(t.ctx, of, noTools)
		},
		Replaced:    func() { c.room = 0; c.loseContext(); c.told.again = true },
		EmitInit:    func() { c.rec.Emit(c.init(t)) },
		EmitUser:    func(m *wire.User) { t.userLines++; c.rec.Emit(m) },
		SendContext: func() error { return c.sendContext(t) },
		Inform:      func(text string) error { return c.appendNote(text) },
		SessionHooks: func() []string {
			if c.sub != nil {
				return nil
			}
			return c.sessionHooks(t, "compact")
		},
	}
}

// compactEnding returns the ending that follows from a failed compaction, or nil if the turn
// continues.
func (c *Conversation) compactEnding(t *turn, err error) *ending {
	switch cause := context.Cause(t.ctx); {
	case cause != nil:
		return c.interrupted(t, "[Request interrupted by user]", "aborted_streaming", cause)
	case errors.Is(err, recorder.ErrUnwritten):
		return c.broken(err)
	case errors.Is(err, ask.ErrSpent):
		return c.overBudget()
	}
	c.runner.Log.Warn("the conversation could not be compacted", "error", err)
	return nil
}

// compactCommand runs /compact: it replaces the conversation by a summary.
func (c *Conversation) compactCommand(t *turn, p *prompt, args string) *ending {
	fail := func(text string) *ending {
		c.rec.Emit(c.init(t))
		end := c.failCommand(t, "compact", "compact", args, text)
		end.text = ""
		return end
	}
	if c.cfg.Compaction.Off {
		return fail("Error: compaction is turned off. Use /clear to begin a new conversation.")
	}
	if len(c.hist.Messages) == 0 {
		return fail("Error: No messages to compact")
	}
	if c.budgetSpent() {
		c.rec.Emit(c.init(t))
		return c.overBudget()
	}
	err := c.compaction.Replace(c.compactTurn(t), compact.Manual, args, false)
	switch {
	case context.Cause(t.ctx) != nil, errors.Is(err, recorder.ErrUnwritten), errors.Is(err, ask.ErrSpent):
		c.rec.Emit(c.init(t))
		end := c.compactEnding(t, err)
		end.noTurns, end.localCommand = true, "compact"
		return end
	case errors.As(err, new(*compact.Blocked)):
		end := fail(err.Error())
		end.text = err.Error()
		return end
	case err != nil:
		return fail("Error during compaction: " + ask.Sentence(err))
	}
	t.echoPrompts(c.rec)
	c.rec.Emit(&wire.User{Message: wire.UserMessage{Role: "user", Content: wire.Text("<local-command-stdout>Compacted </local-command-stdout>")}, IsReplay: true})
	return &ending{noTurns: true, localCommand: "compact"}
}
