package engine

import (
	"encoding/json"
	"errors"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// errAnswered is why a call is stopped whose result came from the host.
var errAnswered = errors.New("the host answered the call")

// answerCalls takes the results out of a message that answer calls of the turn:
// what the host says of a call goes before what its tool would. The rest of the
// message is returned, nil if there is none.
//
// A call that waits, for its turn or for a permission, does not run; one that runs
// is stopped and its own result dropped, as is one that is done and not told yet.
// The first answer counts. A result for any other call is no result: it stays in
// the message, where it is passed over as ever.
func (c *Conversation) answerCalls(m *wire.User) *wire.User {
	if c.running == nil {
		return m
	}
	var rest []wire.Block
	taken := false
	for _, b := range m.Message.Content.All() {
		result, ok := b.(*wire.ToolResultBlock)
		if !ok || !c.running.answer(result, m.ToolUseResult) {
			rest = append(rest, b)
			continue
		}
		taken = true
	}
	switch {
	case !taken:
		return m
	case len(rest) == 0:
		return nil
	}
	more := *m
	more.Message.Content = wire.Blocks(rest...)
	more.ToolUseResult = nil
	return &more
}

// answer gives a call the result that the host has for it. It reports false if
// there is no such call, or its result was told.
func (r *toolRun) answer(b *wire.ToolResultBlock, structured json.RawMessage) bool {
	for _, call := range r.calls {
		if call.block.id != b.ToolUseID || call.told || call.answered != nil || call.final {
			continue
		}
		out := &outcome{finished: true, result: &tool.Result{Content: b.Content, IsError: b.IsError}}
		if len(structured) > 0 && string(structured) != "null" {
			out.result.Structured = structured
		} else {
			out.result.Structured = b.Content.String()
		}
		call.answered = out
		call.cancel(errAnswered)
		return true
	}
	return false
}
