package engine

import (
	"fmt"
	"slices"

	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/picture"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/wire"
)

func hasPicture(content wire.Content) bool {
	return slices.ContainsFunc(content.Blocks, func(b wire.Block) bool { _, ok := b.(*wire.ImageBlock); return ok })
}

// tellLeftOut tells that something does not become part of the conversation.
func (c *Conversation) tellLeftOut(text string) {
	c.rec.Emit(picture.LeftOut(text))
}

// quarantine takes pictures and documents out of the conversation that the API refuses, so
// that it goes on without them. It reports whether there were any.
func (c *Conversation) quarantine(e *model.Error) bool {
	record := c.hist.Quarantine(e.Status, e.Message)
	if record == nil {
		return false
	}
	if err := c.rec.Record(record); err != nil {
		c.runner.Log.Error("what the API refused could not be recorded", "error", err)
	}
	c.tellLeftOut(fmt.Sprintf("The API refused a picture or document, which was taken out of the conversation: %s", history.Clip(e.Message, 300)))
	return true
}
