package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// beside answers requests of the host beside the conversation; they do not become part of it.
type beside struct {
	*owner
	*permissions
	*toolset
	env    *tool.Env
	runner *call.Runner
}

// Call runs a tool for a caller other than the model, with the same schema, hooks and
// rules. The call does not appear in the history. Calls run concurrently. It may be
// called from any goroutine while Run runs.
func (c *beside) Call(ctx context.Context, name string, input json.RawMessage) *tool.Result {
	var tl tool.Tool
	if !c.Do(func() { tl = c.findTool(name) }) {
		return tool.Failed(errors.New("the conversation has ended"))
	}
	if _, form := tl.(call.Form); form {
		tl = nil
	}
	return c.runner.Run(ctx, &call.Call{ID: "toolu_" + session.NewID(), Name: name, Input: input, Tool: tl, PromptID: session.NewID()}).Result
}

// Allowed returns nil if the rules and the mode let a call run without asking for
// permission, and otherwise an error with the reason. It may be called from any
// goroutine.
func (c *beside) Allowed(name string, input json.RawMessage) error {
	var tl tool.Tool
	if !c.Do(func() { tl = c.findTool(name) }) {
		return errors.New("the conversation has ended")
	}
	if tl == nil {
		return fmt.Errorf("there is no tool %s", name)
	}
	access, err := tl.Access(c.env, input)
	if err != nil {
		return err
	}
	v := c.view.Load()
	d := v.Policy.Decide(v.Request(c.env, tl, input, access, nil))
	switch {
	case d.Behavior == wire.BehaviorAllow:
		return nil
	case d.Reason == "":
		return errors.New(name + " needs approval")
	}
	return errors.New(d.Reason)
}

// Fits reports whether a call may match a rule, as the condition of a hook states it. It
// returns true in case of doubt: a hook that guards too much does less harm than one that
// guards nothing. It waits for the conversation.
func (c *beside) Fits(text, name string, input json.RawMessage) bool {
	rule, err := policy.Parse(text, wire.BehaviorDeny, policy.Source{Layer: policy.LayerHost})
	if err != nil {
		return true
	}
	var tl tool.Tool
	c.Do(func() { tl = c.findTool(name) })
	if tl == nil {
		return true
	}
	access, err := tl.Access(c.env, input)
	if err != nil {
		return true
	}
	req := c.view.Load().Request(c.env, tl, input, access, nil)
	req.Mode = wire.ModeBypassPermissions
	return policy.New(rule).Decide(req).Behavior != wire.BehaviorAllow
}
