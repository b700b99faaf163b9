package openai

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-go/parley/engine/model"
)

// A chunk is one chunk of a stream, or a whole answer.
type chunk struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"`
	Model   string         `json:"model"`
	Error   jsontext.Value `json:"error"`
	Choices []choice       `json:"choices"`
	Usage   *usage         `json:"usage"`
	Groq    *struct {
		Usage *usage         `json:"usage"`
		Error jsontext.Value `json:"error"`
	} `json:"x_groq"`
}

type choice struct {
	Index        int            `json:"index"`
	Delta        *delta         `json:"delta"`
	Message      *delta         `json:"message"` // of a whole answer
	FinishReason jsontext.Value `json:"finish_reason"`
	StopReason   jsontext.Value `json:"stop_reason"` // of vLLM: the stop sequence, or the id of a token
}

type delta struct {
	Content          jsontext.Value `json:"content"` // a string, null or a list of parts
	Refusal          string         `json:"refusal"`
	ReasoningContent jsontext.Value `json:"reasoning_content"`
	Reasoning        jsontext.Value `json:"reasoning"`
	ToolCalls        []toolCall     `json:"tool_calls"`
	FunctionCall     *function      `json:"function_call"` // the former format
}

type toolCall struct {
	Index    *int     `json:"index"`
	ID       string   `json:"id"`
	Function function `json:"function"`
}

type function struct {
	Name      string         `json:"name"`
	Arguments jsontext.Value `json:"arguments"` // a string, or an object
}

type usage struct {
	Prompt        int64 `json:"prompt_tokens"`
	Completion    int64 `json:"completion_tokens"`
	CacheHit      int64 `json:"prompt_cache_hit_tokens"` // of DeepSeek
	PromptDetails *struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails *struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// counts returns the members of the usage as the Messages API names them. Without a usage they are 0.
func (u *usage) counts() string {
	if u == nil {
		u = &usage{}
	}
	cached := u.CacheHit
	if u.PromptDetails != nil && u.PromptDetails.Cached > 0 {
		cached = u.PromptDetails.Cached
	}
	cached = min(max(cached, 0), max(u.Prompt, 0))
	var thinking int64
	if u.CompletionDetails != nil {
		thinking = max(u.CompletionDetails.Reasoning, 0)
	}
	return fmt.Sprintf(`"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":%d,"output_tokens":%d,"output_tokens_details":{"thinking_tokens":%d}`,
		max(u.Prompt, 0)-cached, cached, max(u.Completion, 0), thinking)
}

// parse decodes a chunk.
func parse(data []byte) (*chunk, error) {
	ch := &chunk{}
	if err := json.Unmarshal(data, ch); err != nil {
		if !jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
			return nil, errors.New("it is not JSON")
		}
		return nil, err
	}
	return ch, nil
}

func set(v jsontext.Value) bool { return len(v) > 0 && v.Kind() != 'n' }

// failed reports whether the chunk is an error.
func (c *chunk) failed() bool {
	return set(c.Error) || c.Object == "error" || c.Groq != nil && set(c.Groq.Error)
}

// A piece is a content block that is being received.
type piece struct {
	kind      string // "text", "thinking" or "tool_use"
	id, name  string // of a call
	index     int    // index of a call, as the server counts
	text      bytes.Buffer
	sent      int // bytes of text that were sent
	announced bool
}

// whole reports whether the piece is complete once another one has started.
func (p *piece) whole() bool {
	return p.kind != "tool_use" || p.text.Len() == 0 || json.Valid(p.text.Bytes())
}

// A writer converts chunks to events. Blocks are sent one after the other, while tool
// calls may arrive in any order: the first piece is sent as it arrives, later ones wait
// until it is complete.
type writer struct {
	yield   func(model.Event, error) bool
	stopped bool // the consumer has stopped

	started bool
	pieces  []*piece // not completely sent; the first may be partly sent
	done    []*piece // calls that were sent completely
	blocks  int      // number of blocks started
	calls   int
	refused bool
	reason  string // why it ended, as the server names it; empty until then
	stopSeq string
	usage   *usage
}

func (w *writer) send(typ string, format string, args ...any) {
	if w.stopped {
		return
	}
	data := fmt.Appendf(nil, `{"type":%q`, typ)
	if format != "" {
		data = append(data, ',')
		data = fmt.Appendf(data, format, args...)
	}
	w.stopped = !w.yield(model.Event{Type: typ, Data: append(data, '}')}, nil)
}

// quote returns a JSON string.
func quote(s string) []byte {
	out, err := jsontext.AppendQuote(nil, s)
	if err != nil { // it is not UTF-8
		out, _ = jsontext.AppendQuote(nil, strings.ToValidUTF8(s, "\ufffd"))
	}
	return out
}

// writeChunk handles a chunk and sends what can be sent.
func (w *writer) writeChunk(c *chunk) error {
	if c.Usage != nil {
		w.usage = c.Usage
	} else if c.Groq != nil && c.Groq.Usage != nil {
		w.usage = c.Groq.Usage
	}
	if !w.started {
		w.started = true
		id := c.ID
		if id == "" {
			id = "msg_" + random()
		}
		w.send("message_start", `"message":{"id":%s,"type":"message","role":"assistant","model":%s,"content":[],"stop_reason":null,"stop_sequence":null,"usage":{%s}}`,
			quote(id), quote(c.Model), w.usage.counts())
	}
	for _, ch := range c.Choices {
		if ch.Index != 0 {
			continue
		}
		d := ch.Delta
		if d == nil {
			d = ch.Message
		}
		if d != nil {
			if err := w.delta(d); err != nil {
				return err
			}
		}
		if set(ch.FinishReason) {
			if w.reason = str(ch.FinishReason); w.reason == "" {
				w.reason = "stop"
			}
			if ch.StopReason.Kind() == '"' {
				w.stopSeq = str(ch.StopReason)
			}
		}
	}
	return w.advance(false)
}

// delta adds the new content to pieces.
func (w *writer) delta(d *delta) error {
	for _, r := range []jsontext.Value{d.ReasoningContent, d.Reasoning} {
		if s := str(r); s != "" {
			w.text("thinking", s)
			break
		}
	}
	if err := w.content(d.Content); err != nil {
		return err
	}
	if d.Refusal != "" {
		w.refused = true
		w.text("text", d.Refusal)
	}
	if d.FunctionCall != nil {
		index := -1
		d.ToolCalls = append(d.ToolCalls, toolCall{Index: &index, Function: *d.FunctionCall})
	}
	for _, c := range d.ToolCalls {
		if err := w.call(&c); err != nil {
			return err
		}
	}
	return nil
}

// content handles content that is a string or a list of parts.
func (w *writer) content(v jsontext.Value) error {
	switch v.Kind() {
	case '"':
		w.text("text", str(v))
	case '[':
		var parts []struct {
			Type     string         `json:"type"`
			Text     string         `json:"text"`
			Thinking jsontext.Value `json:"thinking"`
		}
		if err := json.Unmarshal(v, &parts); err != nil {
			return err
		}
		for _, p := range parts {
			w.text("text", p.Text)
			if p.Thinking.Kind() == '"' {
				w.text("thinking", str(p.Thinking))
			} else if p.Thinking.Kind() == '[' {
				var inner []struct {
					Text string `json:"text"`
				}
				if err := json.Unmarshal(p.Thinking, &inner); err != nil {
					return err
				}
				for _, i := range inner {
					w.text("thinking", i.Text)
				}
			}
		}
	}
	return nil
}

// text adds to the last piece, or starts one.
func (w *writer) text(kind, s string) {
	if s == "" {
		return
	}
	if n := len(w.pieces); n == 0 || w.pieces[n-1].kind != kind {
		w.pieces = append(w.pieces, &piece{kind: kind})
	}
	w.pieces[len(w.pieces)-1].text.WriteString(s)
}

// call adds to the call that a delta belongs to, or starts one.
func (w *writer) call(c *toolCall) error {
	args := str(c.Function.Arguments)
	if args == "" && set(c.Function.Arguments) && c.Function.Arguments.Kind() != '"' {
		args = string(c.Function.Arguments)
	}
	p, late := w.pieceOf(c)
	switch {
	case late && strings.TrimSpace(args) != "":
		return errors.New("it adds to a call that was complete")
	case late:
		return nil
	}
	if p == nil {
		p = &piece{kind: "tool_use", index: len(w.done) + len(w.pieces)}
		if c.Index != nil {
			p.index = *c.Index
		}
		w.pieces = append(w.pieces, p)
	}
	if p.name == "" {
		p.name = c.Function.Name
	}
	if p.id == "" && !p.announced {
		p.id = c.ID
	}
	p.text.WriteString(args)
	return nil
}

// pieceOf returns the call that a delta belongs to, or nil if it starts one. The call is late
// if it was complete before.
func (w *writer) pieceOf(c *toolCall) (p *piece, late bool) {
	for i, list := range [][]*piece{w.done, w.pieces} {
		for _, q := range list {
			if q.kind == "tool_use" && (c.Index == nil || q.index == *c.Index) {
				p, late = q, i == 0
			}
		}
	}
	if p == nil || c.starts(p) {
		return nil, false
	}
	return p, late
}

// starts reports whether a delta starts a call of its own, although its index is that of p.
func (c *toolCall) starts(p *piece) bool {
	if c.ID != "" { // some servers give all calls the same index
		return p.id != "" && c.ID != p.id
	}
	if c.Function.Name == "" || p.name == "" {
		return false
	}
	return c.Index == nil || p.text.Len() > 0 && json.Valid(p.text.Bytes()) // some give no id either
}

// advance sends what can be sent. At the end that is everything.
func (w *writer) advance(end bool) error {
	for len(w.pieces) > 0 {
		p := w.pieces[0]
		if p.kind == "tool_use" && p.name == "" {
			if end {
				return errors.New("a call names no tool")
			}
			return nil
		}
		if !p.announced {
			p.announced = true
			w.blocks++
			switch p.kind {
			case "text":
				w.send("content_block_start", `"index":%d,"content_block":{"type":"text","text":""}`, w.blocks-1)
			case "thinking":
				w.send("content_block_start", `"index":%d,"content_block":{"type":"thinking","thinking":"","signature":""}`, w.blocks-1)
			case "tool_use":
				w.calls++
				if p.id == "" {
					p.id = "call_" + random()
				}
				w.send("content_block_start", `"index":%d,"content_block":{"type":"tool_use","id":%s,"name":%s,"input":{}}`, w.blocks-1, quote(p.id), quote(p.name))
			}
		}
		if news := p.text.Bytes()[p.sent:]; len(news) > 0 {
			p.sent = p.text.Len()
			typ, name := p.kind+"_delta", p.kind
			if p.kind == "tool_use" {
				typ, name = "input_json_delta", "partial_json"
			}
			w.send("content_block_delta", `"index":%d,"delta":{"type":%q,%q:%s}`, w.blocks-1, typ, name, quote(string(news)))
			if p.kind != "tool_use" { // no longer needed
				p.text.Reset()
				p.sent = 0
			}
		}
		if !end && (len(w.pieces) == 1 || !p.whole()) {
			return nil
		}
		w.send("content_block_stop", `"index":%d`, w.blocks-1)
		if p.kind == "tool_use" {
			w.done = append(w.done, p)
		}
		w.pieces = w.pieces[1:]
	}
	return nil
}

// finish ends the message, if the server did.
func (w *writer) finish() error {
	if w.reason == "" {
		return fmt.Errorf("openai: the stream ended without a finish_reason: %w", io.ErrUnexpectedEOF)
	}
	if w.reason == "error" || w.reason == "network_error" {
		return &model.Error{Type: "api_error", Message: "the server ended the answer with an error"}
	}
	if err := w.advance(true); err != nil {
		return malformed(nil, err)
	}
	seq := []byte("null")
	reason := w.stopReason()
	if reason == "stop_sequence" {
		seq = quote(w.stopSeq)
	}
	w.send("message_delta", `"delta":{"stop_reason":%q,"stop_sequence":%s},"usage":{%s}`, reason, seq, w.usage.counts())
	w.send("message_stop", "")
	return nil
}

// stopReason returns the stop reason of the Messages API.
func (w *writer) stopReason() string {
	switch strings.ToLower(w.reason) {
	case "length", "max_tokens", "model_length", "max_output_tokens":
		return "max_tokens"
	case "content_filter", "safety", "recitation", "sensitive", "refusal":
		return "refusal"
	}
	switch {
	case w.calls > 0: // whatever the reason is: some servers say stop
		return "tool_use"
	case w.refused:
		return "refusal"
	case w.stopSeq != "":
		return "stop_sequence"
	}
	return "end_turn"
}

// str returns a JSON string, or "" for anything else.
func str(v jsontext.Value) string {
	if v.Kind() != '"' {
		return ""
	}
	s, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return strings.ToValidUTF8(string(s), "\ufffd")
	}
	return string(s)
}

// random returns the end of an id that a server did not provide.
func random() string { return strings.ToLower(rand.Text()) }
