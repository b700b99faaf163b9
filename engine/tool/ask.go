package tool

import (
	"context"
	"encoding/json"
	"errors"
)

// A Question is put to a model beside the conversation, by a tool. It costs what it
// costs, and the conversation pays.
type Question struct {
	Model     string // an alias or the name of a model; empty leaves it to Small
	Small     bool   // a small model will do; otherwise the one of the conversation
	System    string
	Prompt    string
	Tools     []json.RawMessage // that the model's provider runs by itself
	MaxTokens int64             // bound of the reply; 0 means the model's
}

// A Reply is what a model says to a [Question].
type Reply struct {
	Text   string
	Model  string            // that answered
	Blocks []json.RawMessage // its content, whole
}

// ErrNoModel reports that tools have no model to ask.
var ErrNoModel = errors.New("there is no model to ask")

// Ask puts a question to a model. It fails with [ErrNoModel] if there is none, or
// none whose provider runs tools if the question has some.
func (e *Env) Ask(ctx context.Context, q Question) (*Reply, error) {
	if e.Model == nil {
		return nil, ErrNoModel
	}
	return e.Model(ctx, q)
}
