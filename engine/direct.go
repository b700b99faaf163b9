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

// Call runs a tool for somebody else than the model, under the same schema, hooks and
// rules; the model hears nothing of it. Calls do not wait for each other. It may be
// called from anywhere, while Run runs.
func (c *Conversation) Call(ctx context.Context, name string, input json.RawMessage) *tool.Result {
	var tl tool.Tool
	if !c.Do(func() { tl = c.findTool(name) }) {
		return tool.Failed(errors.New("the conversation has ended"))
	}
	if _, form := tl.(call.Form); form {
		tl = nil
	}
	return c.runner.Run(ctx, &call.Call{ID: "toolu_" + session.NewID(), Name: name, Input: input, Tool: tl, PromptID: session.NewID()}).Result
}

// Allowed says whether the rules and the mode let a call run without anybody being
// asked. Its error is why not. It may be called from anywhere.
func (c *Conversation) Allowed(name string, input json.RawMessage) error {
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

// Fits reports whether a call may be one that a rule is about, as the condition of a hook
// has it. Where that cannot be told it is: a hook that guards too much does less harm
// than one that guards nothing. It waits for the conversation.
func (c *Conversation) Fits(text, name string, input json.RawMessage) bool {
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
