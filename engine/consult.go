package engine

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/parley-go/parley/engine/internal/ask"
	"github.com/parley-go/parley/engine/internal/ledger"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/model/catalog"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// consult puts a question of a tool to a model, beside the conversation and at its
// cost. It is called from the tool's goroutine.
func (c *Conversation) consult(ctx context.Context, q tool.Question) (*tool.Reply, error) {
	if c.cfg.SmallModel == "" || len(q.Tools) > 0 && !c.cfg.ServerTools {
		return nil, tool.ErrNoModel
	}
	return AskModel(ctx, c, q, "tool")
}

// AskModel puts a question to a model beside the conversation and at its cost. It may be called
// from any goroutine but the owner's.
func AskModel(ctx context.Context, c *Conversation, q tool.Question, purpose string) (*tool.Reply, error) {
	var info catalog.Info
	var b budget
	if !c.Do(func() {
		info, b = c.model, c.budget()
		if q.Model != "" {
			info = c.resolve(q.Model)
		} else if q.Small && c.cfg.SmallModel != "" {
			info = c.resolve(c.cfg.SmallModel)
		}
	}) {
		return nil, errors.New("the conversation has ended")
	}
	if b.limit > 0 && !info.Priced() {
		return nil, unpriced(info)
	}
	limit := info.DefaultOutput
	if q.MaxTokens > 0 {
		limit = min(limit, q.MaxTokens)
	}
	body := struct {
		Model     string            `json:"model"`
		MaxTokens int64             `json:"max_tokens"`
		System    string            `json:"system,omitzero"`
		Tools     []json.RawMessage `json:"tools,omitzero"`
		Messages  []any             `json:"messages"`
		Metadata  map[string]string `json:"metadata"`
		Stream    bool              `json:"stream"`
	}{info.ID, limit, q.System, q.Tools, []any{map[string]string{"role": "user", "content": q.Prompt}}, map[string]string{"user_id": "parley_" + c.rec.ID()}, true}
	a, err := askBeside(ctx, c, b, info, model.Request{Body: mustJSON(body)}, limit, purpose)
	if err != nil {
		return nil, err
	}
	r := &tool.Reply{Text: answerText(a), Model: info.ID}
	for _, b := range a.blocks {
		r.Blocks = append(r.Blocks, b.raw)
	}
	return r, nil
}

// askBeside sends a request beside the conversation and at its cost, three times if it
// fails.
func askBeside(ctx context.Context, c *Conversation, b budget, info catalog.Info, req model.Request, limit int64, purpose string) (a *answer, err error) {
	loop := ask.Loop{MaxRetries: 2, MaxDelay: 10 * time.Second, Reserve: func() (func(), error) { return b.reserve(ctx, info, len(req.Body), limit) }}
	err = loop.Do(ctx, func() error {
		var err error
		a, err = c.readAnswer(ctx, req)
		if !c.Do(func() { c.book(a, info.ID, purpose) }) && a.started {
			b.ledger.Add(a.requestID, info.ID, &a.usage)
		}
		return err
	})
	if err == nil || ctx.Err() != nil || errors.Is(err, ask.ErrSpent) {
		return a, err
	}
	return nil, errors.New(ask.Failure(err).Message)
}

// A budget is what requests may still cost, together with those of subagents and of the
// conversation above.
type budget struct {
	ledger *ledger.Ledger
	limit  int64 // in nano-dollars; 0 means none
}

// budget returns what is left for requests. What earlier processes of the session spent
// does not count.
func (c *money) budget() budget {
	if c.maxBudget <= 0 {
		return budget{ledger: c.ledger}
	}
	return budget{c.ledger, c.spentBefore + c.maxBudget}
}

// reserve waits until a request of so many bytes fits into the budget.
func (b budget) reserve(ctx context.Context, info catalog.Info, bytes int, limit int64) (release func(), err error) {
	if b.limit == 0 {
		return func() {}, nil
	}
	worst, _ := info.Cost(&wire.Usage{InputTokens: int64(bytes) / 3, OutputTokens: limit})
	release, ok := b.ledger.Wait(ctx, b.limit, worst)
	switch {
	case ok:
		return release, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, ask.ErrSpent
}
