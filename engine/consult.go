package engine

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

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
	return inquire(ctx, c, q, "tool")
}

// inquire puts a question to a model beside the conversation and at its cost. It must not be
// called by the owner of the conversation.
func inquire(ctx context.Context, c *Conversation, q tool.Question, purpose string) (*tool.Reply, error) {
	var info catalog.Info
	spent := false
	if !c.Do(func() {
		info, spent = c.model, c.spent()
		if q.Small && c.cfg.SmallModel != "" {
			info = c.resolve(c.cfg.SmallModel)
		}
	}) {
		return nil, errors.New("the conversation has ended")
	}
	switch {
	case spent:
		return nil, errors.New("the budget is spent")
	case c.cfg.MaxBudget > 0 && !info.Priced():
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
	for attempt := 1; ; attempt++ {
		reply, err := c.consultOnce(ctx, info, mustJSON(body), limit, purpose)
		if err == nil || ctx.Err() != nil {
			return reply, err
		}
		if errors.Is(err, errSpent) {
			return nil, err
		}
		failure := asModelError(err)
		if attempt == consultTries || !retryable(failure) || errors.Is(err, model.ErrNoCredentials) {
			return nil, errors.New(failure.Message)
		}
		select {
		case <-time.After(min(backoff(attempt, failure.RetryAfter), 10*time.Second)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

const consultTries = 3 // how often a model is asked before a tool is told that it fails

func (c *Conversation) consultOnce(ctx context.Context, info catalog.Info, body []byte, limit int64, purpose string) (*tool.Reply, error) {
	if c.cfg.MaxBudget > 0 {
		worst, _ := info.Cost(&wire.Usage{InputTokens: int64(len(body)) / 3, OutputTokens: limit})
		release, ok := c.ledger.Wait(ctx, c.spentBefore+c.cfg.MaxBudget, worst)
		if !ok {
			return nil, errSpent
		}
		defer release()
	}
	a, err := readAnswer(ctx, c.cfg.Model, model.Request{Body: body}, func() {})
	if !c.Do(func() { c.book(a, info.ID, purpose) }) && a.started {
		c.ledger.Add(a.requestID, info.ID, &a.usage)
	}
	if err != nil {
		return nil, err
	}
	r := &tool.Reply{}
	var texts []string
	for _, b := range a.blocks {
		if b.kind == "text" {
			texts = append(texts, b.text.String())
		}
		r.Blocks = append(r.Blocks, b.raw)
	}
	r.Text = strings.TrimSpace(strings.Join(texts, ""))
	return r, nil
}
