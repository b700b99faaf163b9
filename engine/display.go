package engine

import (
	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/wire"
)

// display lets hooks say how a text of the model is shown: in the line m that tells it,
// and in the result. The model's own history and the session keep the text as it is, and
// so do the events of a stream. Hooks have no say about what subagents write. It is called
// by the owner of the conversation.
func (c *Conversation) display(t *turn, b *block, m *wire.Assistant) {
	if c.sub != nil || b.kind != "text" || b.text.Len() == 0 {
		return
	}
	v := c.runHooksAs(t, &wire.MessageDisplayInput{TurnID: t.id, MessageID: m.UUID, Final: true, Delta: b.text.String()}, "", m.UUID+"-0")
	for o := range hook.Outputs[*wire.MessageDisplayOutput](v) {
		if o.DisplayContent != nil {
			b.shown = o.DisplayContent
		}
	}
	if v.Behavior == wire.BehaviorDeny && v.Failed != nil {
		b.shown = new("") // who wants it so sees nothing that the hook has not seen
	}
	if b.shown != nil {
		m.Message.Content = wire.Blocks(&wire.TextBlock{Text: *b.shown})
	}
}

// hidden reports whether hooks want a block not to be told.
func (b *block) hidden() bool { return b.shown != nil && *b.shown == "" }

// shownText is the last text of the answer as it was told.
func (a *answer) shownText() string {
	last := ""
	for _, b := range a.blocks {
		if b.kind != "text" || !b.done {
			continue
		}
		if last = b.text.String(); b.shown != nil {
			last = *b.shown
		}
	}
	return last
}
