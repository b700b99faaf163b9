package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/crew"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// verdictSchema is the schema of the answer of an agent that runs a check.
const verdictSchema = `{"type":"object","properties":{"ok":{"type":"boolean"},"reason":{"type":"string"}},"required":["ok"],"additionalProperties":false}`

// A silentHost keeps the result of a conversation that has no viewer. It has no hooks, so that an
// agent that runs as a hook starts no other.
type silentHost struct{ result *wire.Result }

func (h *silentHost) Emit(m wire.Message) {
	if r, ok := m.(*wire.Result); ok {
		h.result = r
	}
}

func (*silentHost) CanAsk() bool { return false }

func (*silentHost) Ask(context.Context, *wire.CanUseTool, func()) (*wire.PermissionResult, error) {
	return nil, errors.New("nobody can be asked")
}

func (*silentHost) Hooks(context.Context, wire.HookInput, string, string) []hook.Answer { return nil }

// CheckByAgent runs an agent with read-only tools that answers whether a condition holds, beside
// the conversation and at its cost. The answer has the members ok and reason. It must not be
// called by the owner of the conversation.
func CheckByAgent(ctx context.Context, c *Conversation, model, system, check string) (json.RawMessage, error) {
	n, err := crew.NewNarrowing(&agents.Definition{Name: "hook", Tools: []string{"Read", "Glob", "Grep"}, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	id := session.NewID()
	env := c.view.Load().Env.Child(id)
	var cfg Config
	if !c.Do(func() {
		has := &c.cfg
		cfg = Config{
			ModelConfig: ModelConfig{Model: has.Model, Catalog: has.Catalog, ModelName: cmp.Or(model, has.SmallModel, c.model.ID), MaxRetries: has.MaxRetries, IdleTimeout: has.IdleTimeout,
				Provider: has.Provider, Betas: has.Betas},
			PermissionConfig: PermissionConfig{Policy: c.view.Load().Rules().Narrow(n.Policy()), Mode: wire.ModeDontAsk, NoPrompts: true},
			ContextConfig:    ContextConfig{SystemPrompt: []string{system, c.surroundings(env.Roots)}, NoSlashCommands: true, NoInstructions: true},
			SessionConfig:    SessionConfig{SessionID: id},
			OutputConfig:     OutputConfig{Version: has.Version, OwnVersion: has.OwnVersion, Platform: has.Platform},
			Tools:            chooseTools(&n, c.tools), Env: env, JSONSchema: json.RawMessage(verdictSchema), MaxTurns: 30, MaxBudget: has.MaxBudget, Logger: has.Logger, Now: has.Now}
	}) {
		return nil, crew.ErrEnded
	}
	host := &silentHost{}
	child, err := newConversation(cfg, host, nil, nil)
	if err != nil {
		return nil, err
	}
	child.ledger, child.spentBefore = c.ledger.Child(), c.spentBefore
	child.runner.Env.Hidden, child.runner.Env.HiddenPatterns = c.runner.Env.Hidden, c.runner.Env.HiddenPatterns
	child.inbox = []*prompt{{m: wire.Prompt(wire.Text(check)), uuid: session.NewID()}}
	child.inputEnded = true
	child.Run(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case host.result == nil:
		return nil, errors.New("the agent gave no answer")
	case host.result.IsError:
		return nil, errors.New(cmp.Or(host.result.Result, firstOf(host.result.Errors), "the agent failed"))
	}
	return host.result.StructuredOutput, nil
}
