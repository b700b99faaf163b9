package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/internal/ask"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/compact"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/picture"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/model/catalog"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A requester sends requests to the model: for the conversation, whose requests it measures and
// books, and beside it. Unless documented otherwise, its methods are called by the owner of the
// conversation.
type requester struct {
	*owner
	*choice
	money
	cfg *ModelConfig
	*writer
	runner *call.Runner       // provides the log, the clock and the telemetry
	retry  func(*model.Error) // called before the first retry of a request

	lastUsage *wire.Usage         // of the last answer
	limits    *wire.RateLimitInfo // as last sent to the host
}

// retryLoop returns the retry loop for requests of a turn. While it waits, other goroutines are
// served; the host is informed of each wait.
func (c *requester) retryLoop(ctx context.Context) *ask.Loop {
	limit := c.cfg.MaxRetries
	if limit == 0 {
		limit = 10
	}
	limit = max(limit, 0)
	return &ask.Loop{
		MaxRetries: limit,
		Reserve: func() (release func(), err error) {
			b, info, bytes, limit := c.budget(), c.model, c.hist.Bytes(&c.hist.Transcript), c.maxTokens()
			c.runWhileServing(func() { release, err = b.reserve(ctx, info, bytes, limit) })
			return release, err
		},
		FallBack: c.fallBack,
		Repair:   func(_ error, failure *model.Error, _ bool) bool { return c.dropRefused(failure) },
		Sleep: func(ctx context.Context, d time.Duration) bool {
			_, ok := await(ctx, c.owner, time.After(d))
			return ok
		},
		Report: func(attempt int, delay time.Duration, failure *model.Error) error {
			if attempt == 1 {
				c.retry(failure)
			}
			c.rec.Emit(&wire.APIRetry{Attempt: attempt, MaxRetries: limit, RetryDelayMS: delay.Milliseconds(), ErrorStatus: failure.Status, Error: ask.Code(failure)})
			return c.rec.Record(&session.Entry{Type: "system", Fields: fields("subtype", "api_error", "level", "error",
				"retryInMs", delay.Milliseconds(), "retryAttempt", attempt, "maxRetries", limit)})
		},
	}
}

// body encodes a request for a conversation. With noTools the model sees the tools but cannot
// call them.
func (c *requester) body(of *history.Transcript, noTools bool) []byte {
	return c.hist.Prefix.Body(of, history.Request{Model: c.model.ID, MaxTokens: c.maxTokens(), Thinking: c.thinkingMember(), Output: c.cfg.Tuning.outputConfig(c.effortLevel()), NoTools: noTools, Grows: of == &c.hist.Transcript, User: "parley_" + c.rec.ID()})
}

// Tokens that must be left in the window of the model.
const (
	roomReserve = 33_000 // with less room, the API counts the tokens
	roomLeast   = 3_000  // with less room, no request is sent
)

// measure checks whether a request fits into the model's window. Near the limit the API counts
// its tokens, if it can. The rest of the window limits the answer.
func (c *requester) measure(ctx context.Context, req model.Request, of *history.Transcript) error {
	c.room = 0
	window, guess := c.model.ContextWindow, c.hist.Tokens(of)
	if window <= 0 || guess < window-roomReserve-c.maxTokens() {
		return nil
	}
	counter, ok := c.cfg.Model.(model.Counter)
	if !ok {
		// The API reports it if the request does not fit.
		if c.hist.SizeKnown() {
			c.room = max(window-guess-roomLeast, roomLeast)
		}
		return nil
	}
	n, err := c.count(ctx, counter, req)
	if err != nil {
		c.runner.Log.Warn("the tokens of a request could not be counted", "error", err)
		return nil
	}
	c.hist.Measured(of.Size(), n)
	if n > window-roomLeast {
		return &ask.Overflow{Tokens: n, Window: window, Local: true}
	}
	c.room = window - n
	return nil
}

// count lets the API count the tokens of a request and serves the conversation meanwhile.
func (c *requester) count(turn context.Context, counter model.Counter, req model.Request) (n int64, err error) {
	ctx, cancel := context.WithTimeout(turn, 20*time.Second)
	defer cancel()
	c.runWhileServing(func() { n, err = counter.CountTokens(ctx, req) })
	return n, err
}

// askAside sends a conversation and returns the answer without emitting it. It does not count
// towards the turn's own usage.
func (c *requester) askAside(ctx context.Context, of history.Transcript, noTools bool) (*answer, error) {
	began := c.runner.Now()
	req := model.Request{Body: c.body(&of, noTools), Header: c.header()}
	if err := c.measure(ctx, req, &of); err != nil {
		return nil, err
	}
	if c.room > 0 {
		req.Body = c.body(&of, noTools)
	}
	parent, span := c.runner.Telemetry.Chat(ctx, c.cfg.Provider, c.model.ID, c.rec.ID())
	var a *answer
	var err error
	c.runWhileServing(func() { a, err = c.readAnswer(parent, req) }) // returns soon after the turn ends
	a.endSpan(span, err)
	c.ledger.AddAPITime(c.runner.Now().Sub(began))
	c.bookUsage(a, c.model.ID, "summary")
	return a, err
}

// askSummary sends a conversation that requests a summary. It retries temporary failures.
func (c *requester) askSummary(ctx context.Context, of history.Transcript, noTools bool) (reply compact.Reply, err error) {
	loop := c.retryLoop(ctx)
	loop.Report = func(attempt int, delay time.Duration, failure *model.Error) error {
		c.rec.Emit(&wire.APIRetry{Attempt: attempt, MaxRetries: loop.MaxRetries, RetryDelayMS: delay.Milliseconds(), ErrorStatus: failure.Status, Error: ask.Code(failure)})
		return nil
	}
	err = loop.Do(ctx, func() error {
		a, err := c.askAside(ctx, of, noTools)
		if ask.Overflowed(err) != nil {
			return ask.Final(err)
		}
		if a != nil {
			reply = compact.Reply{Text: answerText(a), Refused: a.stopReason == "refusal", Called: len(a.calls()) > 0}
		}
		return err
	})
	return reply, err
}

// readAnswer reads an answer to its end. It may be called from any goroutine.
func (c *requester) readAnswer(ctx context.Context, req model.Request) (*answer, error) {
	a := &answer{}
	stream := ask.Open(ctx, c.cfg.Model, req, c.cfg.IdleTimeout, false, c.runner.Log)
	defer func() { a.count(stream.Close()...) }()
	for {
		var it ask.Item
		select {
		case it = <-stream.Items:
		case <-stream.Ctx.Done():
			return a, stream.Err(context.Cause(stream.Ctx))
		}
		switch {
		case it.Err != nil:
			return a, stream.Err(it.Err)
		case it.Response != nil:
			a.requestID = it.Response.RequestID
		case it.Event == nil && a.complete:
			return a, nil
		case it.Event == nil:
			return a, stream.Err(io.ErrUnexpectedEOF)
		default:
			if err := ask.Failed(it.Event); err != nil {
				return a, err
			}
			if _, err := a.add(it.Event); err != nil {
				return a, err
			}
		}
	}
}

// reportLimits emits how much of the API's limits is used, if that has changed enough to matter.
// status is that of the response.
func (c *requester) reportLimits(status int, h http.Header, retryAfter time.Duration) {
	info := limits(status, h, retryAfter, c.runner.Now())
	if info == nil {
		return
	}
	quiet := info.Status == "allowed"
	if c.limits == nil && quiet && info.RateLimitType == "" {
		return // far from the limit: not worth a message
	}
	if was := c.limits; was != nil {
		a, b := *was, *info
		if a.Utilization != nil && b.Utilization != nil && int(*a.Utilization*20) == int(*b.Utilization*20) {
			a.Utilization, b.Utilization = nil, nil
		}
		if quiet {
			a.Utilization, b.Utilization = nil, nil
		}
		if a.RateLimitType == "" { // limits per minute change all the time
			a.ResetsAt, b.ResetsAt = 0, 0
		}
		if reflect.DeepEqual(a, b) {
			return
		}
	}
	c.limits = info
	c.rec.Emit(&wire.RateLimitEvent{Info: *info})
}

// reportLeftOut emits that something was left out of the conversation.
func (c *requester) reportLeftOut(text string) {
	c.rec.Emit(picture.LeftOut(text))
}

// quarantineMedia removes pictures and documents that the API rejects from the conversation, so that
// it can continue. It reports whether there were any.
func (c *requester) quarantineMedia(e *model.Error) bool {
	record := c.hist.Quarantine(e.Status, e.Message)
	if record == nil {
		return false
	}
	if err := c.rec.Record(record); err != nil {
		c.runner.Log.Error("what the API refused could not be recorded", "error", err)
	}
	c.reportLeftOut(fmt.Sprintf("The API refused a picture or document, which was taken out of the conversation: %s", history.Clip(e.Message, 300)))
	return true
}

// Usage estimates in tokens what fills the model's context.
type Usage struct {
	System, Tools, Messages int64
	Last                    *wire.Usage // of the last answer; nil if there was none

	Window      int64  // effective window of the model in tokens; 0 if unknown
	WindowFrom  string // where Window was set, as hosts name it
	CompactsAt  int64  // tokens at which the conversation is compacted
	AutoCompact bool   // compaction happens without a request
}

// Context estimates what fills the model's context.
func (c *requester) Context() Usage {
	tokens := func(n int) int64 { return int64(n) / 4 }
	limits, window := c.cfg.Compaction.limits(c.model.ContextWindow)
	return Usage{System: tokens(len(c.hist.Prefix.System)), Tools: tokens(len(c.hist.Prefix.Tools)), Messages: tokens(len(c.hist.AppendMessages(nil, true))), Last: c.lastUsage,
		Window: window, WindowFrom: c.cfg.Compaction.windowFrom(), CompactsAt: limits.At, AutoCompact: limits.Auto}
}

// SwitchInput returns the input of hooks for a change of the model. It returns false if the
// model does not change.
func (c *requester) SwitchInput(name, source string) (*wire.PreModelSwitchInput, bool) {
	next := c.resolve(name)
	var tokens int64
	if c.lastUsage != nil {
		tokens = history.InputTokens(c.lastUsage) + c.lastUsage.OutputTokens
	}
	nanos, _ := next.Cost(&wire.Usage{CacheCreationInputTokens: tokens})
	return &wire.PreModelSwitchInput{FromModel: c.model.ID, ToModel: next.ID, RequestedModel: name, Source: source,
		ContextTokens: tokens, EstimatedCacheWriteUSD: float64((nanos+50_000)/100_000) / 10_000, PromptCacheWarm: c.lastUsage != nil, CacheTTL: "5m", Pricing: "catalog"}, next.ID != c.model.ID
}

// sendQuestion sends a question of a tool to a model, beside the conversation and at its cost. It is
// called from the tool's goroutine.
func (c *requester) sendQuestion(ctx context.Context, q tool.Question) (*tool.Reply, error) {
	if c.cfg.SmallModel == "" || len(q.Tools) > 0 && !c.cfg.ServerTools {
		return nil, tool.ErrNoModel
	}
	return c.AskModel(ctx, q, "tool")
}

// AskModel sends a question to a model, beside the conversation and at its cost. It may be
// called from any goroutine but the owner's.
func (c *requester) AskModel(ctx context.Context, q tool.Question, purpose string) (*tool.Reply, error) {
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
	a, err := c.askBeside(ctx, b, info, model.Request{Body: mustJSON(body)}, limit, purpose)
	if err != nil {
		return nil, err
	}
	r := &tool.Reply{Text: answerText(a), Model: info.ID}
	for _, b := range a.blocks {
		r.Blocks = append(r.Blocks, b.raw)
	}
	return r, nil
}

// askBeside sends a request beside the conversation and at its cost. It makes up to three
// attempts.
func (c *requester) askBeside(ctx context.Context, b budget, info catalog.Info, req model.Request, limit int64, purpose string) (a *answer, err error) {
	loop := ask.Loop{MaxRetries: 2, MaxDelay: 10 * time.Second, Reserve: func() (func(), error) { return b.reserve(ctx, info, len(req.Body), limit) }}
	err = loop.Do(ctx, func() error {
		var err error
		a, err = c.readAnswer(ctx, req)
		if !c.Do(func() { c.bookUsage(a, info.ID, purpose) }) && a.started {
			b.ledger.Add(a.requestID, info.ID, &a.usage)
		}
		return err
	})
	if err == nil || ctx.Err() != nil || errors.Is(err, ask.ErrSpent) {
		return a, err
	}
	return nil, besideError{ask.Failure(err)}
}

// A besideError is the failure of a request beside the conversation. Its text is the API's message alone.
type besideError struct{ failure *model.Error }

func (e besideError) Error() string { return e.failure.Message }

func (e besideError) Unwrap() error { return e.failure }

// SideQuestion asks the model a question about the conversation so far. Neither the question
// nor the answer becomes part of it. It may be called from any goroutine but the owner's.
func (c *requester) SideQuestion(ctx context.Context, question string) (string, error) {
	var req model.Request
	var info catalog.Info
	var limit int64
	var b budget
	if !c.Do(func() {
		of := c.hist.Clone()
		of.CloseCalls("(The call still runs.)")
		of.Add("user", mustJSON(&wire.TextBlock{Text: history.Reminder(strings.TrimSpace(sideQuestionNote)) + "\n\n" + question}))
		req, info, limit, b = model.Request{Body: c.body(&of, true), Header: c.header()}, c.model, c.maxTokens(), c.budget()
	}) {
		return "", errors.New("the conversation has ended")
	}
	a, err := c.askBeside(ctx, b, info, req, limit, "side question")
	if err != nil {
		return "", err
	}
	return answerText(a), nil
}

// GenerateTitle asks the model for the title of a session that a text describes. The title is
// empty if the model returns none. With persist it becomes the title of this session, unless a
// person has named it. It may be called from any goroutine but the owner's.
func (c *requester) GenerateTitle(ctx context.Context, description string, persist bool) (string, error) {
	if strings.TrimSpace(description) == "" {
		return "", nil
	}
	reply, err := c.AskModel(ctx, tool.Question{System: strings.TrimSpace(sessionTitlePrompt), Prompt: fmt.Sprintf("<session>\n%s\n</session>", description), MaxTokens: 1024}, "title")
	if err != nil {
		return "", err
	}
	var answer struct {
		Title string `json:"title"`
	}
	text := strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(reply.Text, "```json"), "```"))
	if json.Unmarshal([]byte(text), &answer) != nil {
		return "", nil
	}
	title := strings.Join(strings.Fields(answer.Title), " ")
	if title == "" || !persist {
		return title, nil
	}
	c.Do(func() { err = c.rec.Record(&session.Entry{Type: "ai-title", Fields: fields("aiTitle", title)}) })
	return title, err
}
