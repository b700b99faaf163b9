package engine

import (
	"github.com/parley-go/parley/session"
)

// requestType is the type of the record of what one request used and cost. It has no
// place in the conversation, so that other readers skip it.
const requestType = "parley-request"

// book enters what a request used, if it was answered, in the ledger and in the
// session's log. What it was for is "answer", "summary" or "tool"; summaries are no part
// of what the turn used, only of what it cost.
func (c *Conversation) book(a *answer, model, purpose string) {
	if !a.started {
		return
	}
	add := c.ledger.Add
	if purpose == "summary" {
		add = c.ledger.AddBeside
	}
	cost := add(a.requestID, model, &a.usage)
	f := fields("id", session.NewID(), "requestId", a.requestID, "model", model, "purpose", purpose, "usage", &a.usage, "costNanos", cost.Nanos)
	if cost.Unknown {
		f["costUnknown"] = mustJSON(true)
	}
	if c.sub != nil {
		f["agentType"] = mustJSON(c.sub.def.Name)
	}
	c.rec.Owe(&session.Entry{Type: requestType, Fields: f})
}
