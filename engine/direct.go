package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/tool"
)

// Offers returns the tools that there are now. It may be called from anywhere.
func (c *Conversation) Offers() (tools []tool.Tool) {
	c.Do(func() {
		for _, t := range c.tools {
			if _, form := t.(*structuredOutput); !form {
				tools = append(tools, t)
			}
		}
	})
	return tools
}

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
	b := &block{id: "toolu_" + NewID(), name: name, input: input}
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
	return c.runCall(ctx, &turn{ctx: ctx, promptID: NewID()}, call, tl).result
}
