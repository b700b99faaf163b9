package tool

import (
	"context"
	"encoding/json"
	"errors"
)

// A Question is sent to a model by a tool, beside the conversation. Its cost is charged
// to the conversation.
type Question struct {
	Model     string // an alias or the name of a model; empty means that Small decides
	Small     bool   // use a small model instead of the conversation's
	System    string
	Prompt    string
	Tools     []json.RawMessage // tools that the model's provider runs itself
	MaxTokens int64             // limit of the reply; 0 means the model's
}

// A Reply is the answer of a model to a [Question].
type Reply struct {
	Text   string
	Model  string            // the model that answered
	Blocks []json.RawMessage // its complete content
}

// ErrNoModel means that tools have no model to ask.
var ErrNoModel = errors.New("there is no model to ask")

// Ask sends a question to a model. It returns [ErrNoModel] if there is none, or if the
// question has tools and no provider runs them.
func (e *Env) Ask(ctx context.Context, q Question) (*Reply, error) {
	if e.Model == nil {
		return nil, ErrNoModel
	}
	return e.Model(ctx, q)
}
