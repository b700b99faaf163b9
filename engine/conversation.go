package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/compact"
	"github.com/parley-go/parley/engine/internal/crew"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/skill"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A Conversation is a conversation between a user, a model and tools. Unless documented
// otherwise, its methods must be called from a function passed to [Conversation.Do].
//
// Its state is divided into parts, each with the methods that need only that part.
type Conversation struct {
	cfg    Config // never changes
	rec    *recorder.Recorder
	runner *call.Runner
	owner
	subagents

	// The fields below are owned by Run.

	compaction compact.Compactor
	checkpoints
	permissions
	choice
	toolset
	requester
	queue
	writer
	briefing
	hooks
	beside
	preface
	rounds
	commands
	trees worktrees
}

// New returns a conversation. [Conversation.Run] runs it.
func New(cfg Config, host Host) (*Conversation, error) {
	return newConversation(cfg, host, nil, nil)
}

// newConversation returns a conversation. If sub is not nil, it is that of a subagent of above.
func newConversation(cfg Config, host Host, sub *crew.Subagent, above *Conversation) (*Conversation, error) {
	cfg = cfg.withDefaults()
	c := assemble(cfg, host, sub, above)
	files.RealRoots(cfg.Env) // fixes the roots: nothing moves them from now on
	if cfg.Env.Dir != "" {
		files.Pin(cfg.Env, cfg.Env.Dir)
	}
	if err := c.useModel(cfg.ModelName); err != nil {
		return nil, err
	}
	if cfg.JSONSchema != nil {
		st, err := newStructuredOutput(cfg.JSONSchema)
		if err != nil {
			return nil, err
		}
		c.tools = append(c.tools, st)
	}
	c.tools = append(c.tools, questionTools(cfg.Questions, cfg.Tuning.PreviewFormat, &c.owner, &c.permissions)...)
	if cfg.Tuning.Worktrees && sub == nil {
		c.tools = append(c.tools, c.trees.tools()...)
	}
	if cfg.SkillTool {
		c.tools = append(c.tools, skill.New(newLibrary(&c.briefing, c.subagents.all)))
	}
	c.setAgents(cfg.Agents)
	if cfg.Agent != nil {
		if err := c.runAs(cfg.Agent); err != nil {
			return nil, err
		}
	}
	if cfg.Checkpoints {
		c.keeper = c.newKeeper()
	}
	c.publish()
	c.makePrefix()
	if cfg.History != nil {
		if err := c.restore(cfg.History); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// ID returns the id of the session, which /clear changes. It may be called from any goroutine.
func (c *Conversation) ID() string { return c.rec.ID() }

// Emit sends a message to the host and fills in a missing uuid, session id and time. It may be
// called from any goroutine.
func (c *Conversation) Emit(m wire.Message) { c.rec.Emit(m) }

// Stamp sets the uuid and time of a message that is emitted before a conversation exists, and its
// session id unless sessionID is empty.
func Stamp(m wire.Message, sessionID string) { recorder.Stamp(m, sessionID) }

// Run runs the conversation until its input has ended and everything is answered, or until ctx
// ends. In the latter case a running turn is interrupted, but still gets its result.
func (c *Conversation) Run(ctx context.Context) {
	c.base = ctx
	defer close(c.over)
	defer c.runner.Env.Close()
	defer func() {
		if c.trees.place != nil {
			c.trees.removeUnchanged(c.trees.place)
		}
	}()
	idle, stop := context.WithCancel(ctx)
	c.idle = idle
	defer func() {
		stop()
		c.runWhileServing(c.suggesting.Wait) // they book what they used
		if err := c.rec.Record(); err != nil {
			c.runner.Log.Error("the cost of the last requests could not be recorded", "error", err)
		}
	}()
	defer c.endSession()
	defer c.runWhileServing(c.crew.EndAll) // they report how they ended
	defer c.awaitAbandoned()
	var patience <-chan time.Time
	for {
		if ctx.Err() != nil {
			c.rejectQueued(context.Cause(ctx))
			return
		}
		if c.ended {
			return
		}
		if len(c.inbox) > 0 {
			c.runTurn(ctx, c.nextPrompt())
			continue
		}
		if c.sub != nil && patience == nil {
			patience = time.After(commandWait)
		}
		// Every wakeup starts the loop over, so that the conditions above and quiet are never
		// older than the last call that could change them.
		var quiet <-chan struct{}
		if c.inputEnded && len(c.runner.Env.Tasks().RunningOf(c.runner.Env.Agent)) == 0 {
			quiet = c.tasks.Reports.None() // a task begins to report its end before it counts as ended
		}
		var still <-chan struct{} // the subagents have ended, and nobody reports about them
		if c.working && !agentsWork(c.runner.Env.Tasks()) {
			still = c.tasks.Reports.None()
		}
		select {
		case f := <-c.calls:
			f()
		case <-ctx.Done():
		case <-still:
			c.working = false
			c.state("idle")
		case <-quiet:
			if c.working {
				c.state("idle")
			}
			return
		case <-patience:
			return // the tasks that it left running end with it
		}
	}
}

// rejectQueued answers the queued prompts that will have no turn.
func (c *Conversation) rejectQueued(cause error) {
	waiting := c.inbox
	c.inbox = nil
	for _, p := range waiting {
		if p.origin != nil {
			continue // nobody waits for it
		}
		c.ledger.BeginTurn()
		c.finishTurn(&turn{began: c.runner.Now(), prompts: []*prompt{p}}, &ending{subtype: "error_during_execution", reason: "aborted_streaming", isError: true, noTurns: true,
			errors: []string{"The prompt was not answered: " + cause.Error()}})
	}
}

// Seed adds an assistant message to the history without asking the model. Only its text is used.
func (c *Conversation) Seed(m *wire.Assistant) {
	if err := c.closeUnfinished(c.takeUnfinished()); err != nil {
		c.runner.Log.Error("what was said could not be recorded", "error", err)
		return
	}
	id := session.NewID()
	for _, b := range m.Message.Content.All() {
		text, ok := b.(*wire.TextBlock)
		if !ok || text.Text == "" {
			continue
		}
		said := &wire.TextBlock{Text: text.Text}
		if err := c.rec.Record(&session.Entry{Type: "assistant",
			Message: mustJSON(&wire.APIMessage{ID: id, Type: "message", Role: "assistant", Model: c.model.ID, Content: wire.Blocks(said)})}); err != nil {
			c.runner.Log.Error("what was said could not be recorded", "error", err)
			return
		}
		c.hist.Add("assistant", mustJSON(said))
	}
}

// End ends the conversation: the running turn is interrupted and gets its result, queued prompts
// are cancelled, and tasks in the background are stopped.
func (c *Conversation) End() {
	c.Interrupt(true)
	c.Stop()
	c.ended = true
}

// Stop interrupts the running turn, if any; see [Conversation.Interrupt]. When it returns, the
// contexts of the turn and of its subagents have ended.
func (c *Conversation) Stop() {
	if c.turn != nil {
		c.turn.cancel(errInterrupted)
	}
	c.crew.Interrupt(errInterrupted, c.spare)
}

// SetModel changes the model; an empty name means the default. It reports whether the model has
// changed. It returns an error for a model without a known price if there is a budget.
func (c *Conversation) SetModel(name string) (changed bool, err error) {
	was := c.model.ID
	if err := c.useModel(name); err != nil || c.model.ID == was {
		return false, err
	}
	c.makePrefix()
	return true, nil
}

// HasHistory reports whether the conversation has messages, including those before a resume.
func (c *Conversation) HasHistory() bool { return c.hist.LastRole() != "" }

// TryModel asks the API for one token of a model. It returns the error if the API
// rejects the request; if the model cannot be tried now, it returns nil.
func (c *Conversation) TryModel(ctx context.Context, name string) error {
	_, err := c.AskModel(ctx, tool.Question{Model: name, Prompt: "Hi", MaxTokens: 1}, "model")
	if e, ok := errors.AsType[*model.Error](err); ok && e.Status >= 400 && e.Status < 500 && e.Status != 408 && e.Status != 429 {
		return e
	}
	return nil
}

// agentsWork reports whether subagents run in the background.
func agentsWork(tasks *tool.Tasks) bool {
	return slices.ContainsFunc(tasks.Running(), func(info tool.TaskInfo) bool { return info.Kind == tool.TaskAgent })
}

var (
	errInterrupted = errors.New("interrupted by the user")
	errSuperseded  = errors.New("another prompt came first")
)
