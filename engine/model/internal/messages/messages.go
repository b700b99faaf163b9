// Package messages is a client of the Messages API wherever it is served: it sends
// bodies unchanged and decodes event streams. The package that fills in a [Client]
// chooses the address, the credentials and the framing of the response.
package messages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/model/internal/call"
	"github.com/parley-go/parley/engine/model/internal/sse"
	"github.com/parley-go/parley/internal/rawjson"
)

// DefaultComplete is how long a response that does not stream may take.
const DefaultComplete = 10 * time.Minute

// maxMessage is the maximum size of a response that does not stream, in bytes.
const maxMessage = 128 << 20

// An Op is an operation of the API.
type Op int

// The operations.
const (
	OpStream   Op = iota // an answer as a stream of events
	OpComplete           // an answer in one piece
	OpCount              // the number of tokens in the request
)

// A Client is a client of the Messages API. Its fields are set once; then it is safe
// for concurrent use.
type Client struct {
	Name     string // prefix of error messages
	HTTP     *http.Client
	Idle     time.Duration // 0 means [call.DefaultIdle]
	Complete time.Duration // 0 means [DefaultComplete]
	MaxEvent int           // 0 means [sse.DefaultMax]

	// Prepare returns the HTTP request for a body. The header is not nil, and is a
	// copy.
	Prepare func(ctx context.Context, op Op, body []byte, header http.Header) (*http.Request, error)

	// Renew, if not nil, is called when the API rejected the credentials of a request.
	// If it returns true, the request is prepared and sent once more.
	Renew func(ctx context.Context, refused *http.Request) (bool, error)

	// Events, if not nil, decodes a response whose framing is not that of server-sent
	// events.
	Events func(body io.Reader, limit int) Events
}

// Events reads the data of events, one at a time. Next returns io.EOF at the end. The
// data of an event is valid until the next call. partial means that the stream ended
// inside of the event.
type Events interface {
	Next() (data []byte, partial bool, err error)
}

type serverSent struct{ r *sse.Reader }

func (s serverSent) Next() ([]byte, bool, error) {
	e, err := s.r.Next()
	return e.Data, e.Partial, err
}

// Stream implements [model.Model].
func (c *Client) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return c.events(ctx, OpStream, req)
}

// Once is like Stream, but the API sends the answer in one piece, which is converted to
// events.
func (c *Client) Once(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return c.events(ctx, OpComplete, req)
}

func (c *Client) events(ctx context.Context, op Op, req model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if err := c.run(ctx, op, req, yield); err != nil {
			yield(model.Event{}, err)
		}
	}
}

// run yields the events of an answer and returns the final error, or nil if there is
// none or the consumer has stopped.
func (c *Client) run(ctx context.Context, op Op, req model.Request, yield func(model.Event, error) bool) error {
	resp, err := c.send(ctx, op, req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); {
	case op == OpComplete, kind == "application/json": // some gateways do not stream
		return c.whole(resp, yield)
	case kind == "text/html": // an HTML page, of a proxy or a login
		e := call.Failure(resp)
		e.Type, e.Message = "api_error", "the answer is "+kind+", not a stream of events: "+e.Message
		return e
	}
	var events Events = serverSent{sse.NewReader(resp.Body, c.MaxEvent)}
	if c.Events != nil {
		events = c.Events(resp.Body, c.MaxEvent)
	}
	for {
		data, partial, err := events.Next()
		if err == io.EOF {
			return c.cut()
		}
		if errors.Is(err, sse.ErrTooLarge) {
			return &model.EventError{Err: err}
		}
		if err != nil {
			return c.wrap(err)
		}
		data, bad := clean(data)
		if partial && bad != nil {
			return c.cut()
		}
		if bad != nil {
			return bad
		}
		ev := model.Event{Type: typeOf(data), Data: data}
		switch ev.Type {
		case "ping":
			continue
		case "error":
			e := &model.Error{Type: "api_error", RequestID: call.RequestID(resp.Header), Header: resp.Header}
			call.ReadError(data, e)
			return e
		case "":
			return malformed(data, errors.New("it has no type"))
		}
		if !yield(ev, nil) {
			return nil
		}
		if ev.Type == "message_stop" {
			call.Drain(resp)
			return nil
		}
	}
}

// cut returns the error of a stream that ended too early.
func (c *Client) cut() error {
	return fmt.Errorf("%s: the stream ended before message_stop: %w", c.Name, io.ErrUnexpectedEOF)
}

func (c *Client) wrap(err error) error { return fmt.Errorf("%s: %w", c.Name, err) }

// send sends a request and returns a response with status 200. Rejected credentials are
// renewed once.
func (c *Client) send(ctx context.Context, op Op, req model.Request) (*http.Response, error) {
	body := req.Body
	switch op {
	case OpStream:
		body = rawjson.Set(body, "stream", "true")
	case OpComplete:
		body = rawjson.Delete(body, "stream")
	}
	idle := c.Idle
	if op == OpComplete {
		if idle = c.Complete; idle <= 0 {
			idle = DefaultComplete
		}
	}
	for first := true; ; first = false {
		header := req.Header.Clone()
		if header == nil {
			header = http.Header{}
		}
		if err := ctx.Err(); err != nil {
			return nil, c.wrap(err)
		}
		hr, err := c.Prepare(ctx, op, body, header)
		if err != nil {
			return nil, c.wrap(err)
		}
		resp, err := call.Do(ctx, c.HTTP, hr, idle)
		if err != nil {
			return nil, c.wrap(err)
		}
		if resp.StatusCode == http.StatusUnauthorized && first && c.Renew != nil {
			again, err := c.Renew(ctx, hr)
			if err != nil {
				resp.Body.Close()
				return nil, c.wrap(err)
			}
			if again {
				call.Drain(resp)
				resp.Body.Close()
				continue
			}
		}
		if req.OnResponse != nil {
			req.OnResponse(model.Response{Status: resp.StatusCode, RequestID: call.RequestID(resp.Header), Header: resp.Header})
		}
		if resp.StatusCode != http.StatusOK {
			defer resp.Body.Close()
			return nil, call.Failure(resp)
		}
		return resp, nil
	}
}

// whole yields the events of an answer in one piece.
func (c *Client) whole(resp *http.Response, yield func(model.Event, error) bool) error {
	data, err := read(resp)
	if err != nil {
		return c.wrap(err)
	}
	if rawjson.String(data, "type") == "error" {
		e := &model.Error{Type: "api_error", RequestID: call.RequestID(resp.Header), Header: resp.Header}
		call.ReadError(data, e)
		return e
	}
	events, err := Split(data)
	if err != nil {
		return malformed(data, err)
	}
	for _, ev := range events {
		if !yield(ev, nil) {
			return nil
		}
	}
	return nil
}

// read reads the body of a response that does not stream.
func read(resp *http.Response) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage+1))
	if err == nil && len(data) > maxMessage {
		err = errors.New("the answer is too large")
	}
	return data, err
}

// counted are the members of a request that the endpoint for counting tokens accepts.
var counted = []string{
	"model", "system", "tools", "messages", "tool_choice", "thinking", "output_config", "output_format", "context_management",
	"mcp_servers", "speed", "anthropic_version", "anthropic_beta",
}

// Count returns the number of input tokens of a request, as counted by the API.
func (c *Client) Count(ctx context.Context, req model.Request) (int64, error) {
	var body bytes.Buffer
	sep := byte('{')
	for _, name := range counted {
		if v := rawjson.Get(req.Body, name); v != nil {
			body.WriteByte(sep)
			fmt.Fprintf(&body, "%q:", name)
			body.Write(v)
			sep = ','
		}
	}
	body.WriteByte('}')
	req.Body = body.Bytes()
	resp, err := c.send(ctx, OpCount, req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	data, err := read(resp)
	if err != nil {
		return 0, c.wrap(err)
	}
	var answer struct {
		InputTokens *int64 `json:"input_tokens"`
	}
	if err := json.Unmarshal(data, &answer); err != nil || answer.InputTokens == nil {
		return 0, malformed(data, errors.New("it has no input_tokens"))
	}
	return *answer.InputTokens, nil
}

// clean returns the data of an event as JSON in one line, or an error if it is not
// JSON.
func clean(data []byte) ([]byte, error) {
	if !utf8.Valid(data) {
		data = bytes.ToValidUTF8(data, []byte("\ufffd"))
	}
	if !jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true)) {
		return nil, malformed(data, errors.New("it is not JSON"))
	}
	if bytes.IndexByte(data, '\n') >= 0 { // between tokens, since it is valid
		data = bytes.ReplaceAll(data, []byte{'\n'}, []byte{' '})
	}
	return data, nil
}

func malformed(data []byte, err error) *model.EventError {
	return &model.EventError{Data: bytes.Clone(data[:min(len(data), 1<<10)]), Err: err}
}

// typeOf returns the type of an event, without allocating for known types.
func typeOf(data []byte) string {
	typ := []byte(nil)
	const head = `{"type":"`
	if bytes.HasPrefix(data, []byte(head)) {
		if i := bytes.IndexByte(data[len(head):], '"'); i >= 0 {
			typ = data[len(head) : len(head)+i]
		}
	}
	switch string(typ) {
	case "content_block_delta":
		return "content_block_delta"
	case "content_block_start":
		return "content_block_start"
	case "content_block_stop":
		return "content_block_stop"
	case "message_start":
		return "message_start"
	case "message_delta":
		return "message_delta"
	case "message_stop":
		return "message_stop"
	case "ping":
		return "ping"
	}
	return rawjson.String(data, "type")
}
