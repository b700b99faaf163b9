package engine

import (
	"github.com/parley-go/parley/wire"
)

// answerCalls takes the results out of a message that answer calls of the turn:
// what the host says of a call goes before what its tool would. The rest of the
// message is returned, nil if there is none.
// A result for any other call is no result: it stays in the message, where it is ignored.
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
