package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// Call runs a tool for somebody else than the model, under the same schema, hooks and
// rules; the model hears nothing of it. Calls do not wait for each other. It may be
// called from anywhere, while Run runs.
func (c *Conversation) Call(ctx context.Context, name string, input json.RawMessage) (result *tool.Result) {
	var tl tool.Tool
	if !c.Do(func() { tl = c.findTool(name) }) {
		return tool.Failed(errors.New("the conversation has ended"))
	}
	if _, form := tl.(*structuredOutput); form {
		tl = nil
	}
	b := &block{id: "toolu_" + session.NewID(), name: name, input: input}
	call := &toolCall{block: b, began: c.now(), readOnly: tl != nil && tl.Spec().ReadOnly}
	if m, ok := tl.(*mcp.Tool); ok {
		call.server = m.Server()
	}
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("a tool panicked", "tool", name, "panic", p, "stack", string(debug.Stack()))
			result = tool.Failed(fmt.Errorf("the tool failed in an unexpected way: %v", p))
		}
	}()
	return c.runCall(ctx, &turn{ctx: ctx, promptID: session.NewID()}, call, tl).result
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
	d := v.policy.Decide(v.request(c.env, tl, input, access, nil))
	switch {
	case d.Behavior == wire.BehaviorAllow:
		return nil
	case d.Reason == "":
		return errors.New(name + " needs approval")
	}
	return errors.New(d.Reason)
}
