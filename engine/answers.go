package engine

import (
	"github.com/parley-go/parley/wire"
)

// answerCalls removes from a message the results that answer calls of the turn: a result
// from the host replaces the one of the tool. It returns the rest of the message, or nil
// if nothing is left. A result for any other call stays in the message, where it is
// ignored.
func (c *Conversation) answerCalls(m *wire.User) *wire.User {
	if c.batch == nil {
		return m
	}
	var rest []wire.Block
	taken := false
	for _, b := range m.Message.Content.All() {
		result, ok := b.(*wire.ToolResultBlock)
		if !ok || !c.batch.Answer(result, m.ToolUseResult) {
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
