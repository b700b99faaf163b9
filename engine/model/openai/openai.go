// Package openai implements [model.Model] for the chat completions API of OpenAI, and
// of the many similar servers.
//
// A request of the Messages API is translated before it is sent, and the stream of
// chunks is translated back to the events of the Messages API. Features that cannot be
// translated are left out or replaced by a text that states this; docs/providers.md has the
// list. Servers differ from each other, so the package accepts as many variants as
// possible.
//
// The package reads no files and no environment and keeps no state. It does not retry:
// the engine does.
package openai

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/model/internal/call"
	"github.com/parley-go/parley/engine/model/internal/sse"
)

// DefaultBaseURL is the address of OpenAI's API.
const DefaultBaseURL = "https://api.openai.com/v1"

// maxAnswer is the maximum size of a response that does not stream, in bytes.
const maxAnswer = 128 << 20

// Config configures the address of the API and the credentials.
type Config struct {
	// BaseURL is the address of the API up to /chat/completions, which may be included,
	// such as "http://localhost:11434/v1". An address without a path is that of a
	// server whose API is below /v1. If empty, [DefaultBaseURL].
	BaseURL string

	APIKey string // sent as authorization: Bearer; local servers need none

	// Header is added to every request, and replaces headers that are set here.
	Header http.Header

	UserAgent string // if empty, "parley"

	// IdleTimeout is how long the server may be silent, before its answer or in the
	// middle of it. If zero, five minutes.
	IdleTimeout time.Duration

	// CompleteTimeout replaces IdleTimeout for [Client.Complete]. If zero, ten minutes.
	CompleteTimeout time.Duration

	// MaxEvent is the maximum size of a chunk in bytes. If zero, 32 MiB.
	MaxEvent int

	// Reasoning sends the thinking of earlier answers back, as reasoning_content. A few
	// servers need it, most ignore it and some reject it.
	Reasoning bool

	// Transport makes the connections; clients that share one share its connections. If
	// nil, the client has its own, which uses Proxy if that is not nil.
	Transport http.RoundTripper
	Proxy     func(*http.Request) (*url.URL, error)
}

// A Client is a client of a chat completions API. It implements [model.Model] and is
// safe for concurrent use.
type Client struct {
	cfg  Config
	http *http.Client
	to   string
	own  *http.Transport // the transport created here, if any

	// newer is set if the server is OpenAI's own, which has newer names for some
	// members.
	newer bool
}

// New returns a client. It connects to nothing before the first request.
func New(cfg Config) (*Client, error) {
	base := strings.TrimRight(cmp.Or(cfg.BaseURL, DefaultBaseURL), "/")
	base = strings.TrimSuffix(base, "/chat/completions")
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("openai: the base URL %q is not the address of an API, such as %s", cfg.BaseURL, DefaultBaseURL)
	}
	if u.Path == "" {
		u.Path = "/v1"
	}
	u.Path += "/chat/completions"
	c := &Client{cfg: cfg, to: u.String(), newer: u.Host == "api.openai.com"}
	rt := cfg.Transport
	if rt == nil {
		c.own = call.NewTransport(cfg.Proxy)
		rt = c.own
	}
	c.http = call.NewClient(rt)
	return c, nil
}

// Close closes idle connections, if the client has its own transport.
func (c *Client) Close() error {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	return nil
}

// Stream implements [model.Model]. It fails as the Stream of package anthropic does.
func (c *Client) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return c.events(ctx, req, true)
}

// Complete is [Client.Stream] without streaming: the server answers in one piece, which
// is converted to events.
func (c *Client) Complete(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return c.events(ctx, req, false)
}

func (c *Client) events(ctx context.Context, req model.Request, stream bool) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if err := c.run(ctx, req, stream, yield); err != nil {
			yield(model.Event{}, err)
		}
	}
}

// run yields the events of an answer and returns the final error, or nil if there is
// none or the consumer has stopped.
func (c *Client) run(ctx context.Context, req model.Request, stream bool, yield func(model.Event, error) bool) error {
	resp, err := c.send(ctx, req, stream)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	out := &writer{yield: yield}
	failed := func(data []byte) error {
		e := &model.Error{Type: "api_error", RequestID: call.RequestID(resp.Header), Header: resp.Header}
		readError(data, e)
		return e
	}
	switch kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); {
	case !stream, kind == "application/json":
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err != nil {
			return wrap(err)
		}
		ch, err := parse(data)
		if err != nil {
			return malformed(data, err)
		}
		if ch.failed() {
			return failed(data)
		}
		if len(ch.Choices) == 0 {
			return malformed(data, errors.New("it has no choices"))
		}
		if err := out.writeChunk(ch); err != nil {
			return malformed(data, err)
		}
		out.reason = cmp.Or(out.reason, "stop")
		return out.finish()
	case kind == "text/html":
		e := call.Failure(resp)
		e.Type, e.Message = "api_error", "the answer is "+kind+", not a stream of events: "+e.Message
		return e
	}
	for r := sse.NewReader(resp.Body, c.cfg.MaxEvent); !out.stopped; {
		ev, err := r.Next()
		if err == io.EOF {
			return out.finish() // some servers do not send [DONE]
		}
		if errors.Is(err, sse.ErrTooLarge) {
			return &model.EventError{Err: err}
		}
		if err != nil && out.reason != "" && out.usage != nil {
			return out.finish() // the answer is complete, and its usage must be booked
		}
		if err != nil {
			return wrap(err)
		}
		data := bytes.TrimSpace(ev.Data)
		if len(data) == 0 {
			continue
		}
		if string(data) == "[DONE]" {
			if out.started { // the reason is optional
				out.reason = cmp.Or(out.reason, "stop")
			}
			err := out.finish()
			if err == nil {
				call.Drain(resp)
			}
			return err
		}
		ch, err := parse(data)
		if err != nil && ev.Partial {
			return out.finish()
		}
		if err != nil && string(ev.Name) == "error" {
			return failed(data)
		}
		if err != nil {
			return malformed(data, err)
		}
		if ch.failed() || string(ev.Name) == "error" {
			return failed(data)
		}
		if err := out.writeChunk(ch); err != nil {
			return malformed(data, err)
		}
	}
	return nil
}

func wrap(err error) error { return fmt.Errorf("openai: %w", err) }

func malformed(data []byte, err error) *model.EventError {
	return &model.EventError{Data: bytes.Clone(data[:min(len(data), 1<<10)]), Err: err}
}

// send sends a request and returns a response with status 200.
func (c *Client) send(ctx context.Context, req model.Request, stream bool) (*http.Response, error) {
	idle := c.cfg.IdleTimeout
	if !stream {
		idle = cmp.Or(c.cfg.CompleteTimeout, 10*time.Minute)
	}
	usage := stream // request the usage at the end of a stream
	for {
		if err := ctx.Err(); err != nil {
			return nil, wrap(err)
		}
		body, err := c.translate(req.Body, stream, usage)
		if err != nil {
			return nil, wrap(err)
		}
		hr, err := http.NewRequestWithContext(ctx, http.MethodPost, c.to, bytes.NewReader(body))
		if err != nil {
			return nil, wrap(err)
		}
		hr.Header.Set("Content-Type", "application/json")
		hr.Header.Set("Accept", "application/json, text/event-stream")
		hr.Header.Set("User-Agent", cmp.Or(c.cfg.UserAgent, "parley"))
		if c.cfg.APIKey != "" {
			hr.Header.Set("Authorization", "Bearer "+c.cfg.APIKey)
		}
		for _, h := range []http.Header{c.cfg.Header, req.Header} {
			for name, values := range h {
				// Headers of the Messages API are not sent to other servers.
				if name = http.CanonicalHeaderKey(name); !strings.HasPrefix(name, "Anthropic-") {
					hr.Header[name] = values
				}
			}
		}
		resp, err := call.Do(ctx, c.http, hr, idle)
		if err != nil {
			return nil, wrap(err)
		}
		if resp.StatusCode == http.StatusOK {
			respond(req, resp)
			return resp, nil
		}
		e := failure(resp)
		resp.Body.Close()
		if usage && (e.Status == 400 || e.Status == 422) && strings.Contains(e.Message, "stream_options") {
			usage = false // the server does not support it
			continue
		}
		respond(req, resp)
		return nil, e
	}
}

func respond(req model.Request, resp *http.Response) {
	if req.OnResponse != nil {
		req.OnResponse(model.Response{Status: resp.StatusCode, RequestID: call.RequestID(resp.Header), Header: resp.Header})
	}
}

// failure returns the error in a response. Its type is that of the Messages API for the
// status, as the engine expects.
func failure(resp *http.Response) *model.Error {
	e := call.Failure(resp)
	e.Type = call.TypeOf(e.Status)
	overflow(e)
	return e
}

// readError decodes an error inside of a stream.
func readError(data []byte, e *model.Error) {
	call.ReadError(data, e)
	if e.Message == "" {
		e.Message = "the server gave no reason"
	}
	overflow(e)
}

// overflow rewrites the error of a prompt that is too long to that of the Messages API.
func overflow(e *model.Error) {
	for _, words := range []string{
		"maximum context length", "context_length_exceeded", "context length exceeded", "exceeds the available context size",
		"exceeds the context window", "exceed context window", "context window exceeded", "maximum prompt length", "exceeds context length",
	} {
		if strings.Contains(strings.ToLower(e.Message), words) || strings.EqualFold(e.Type, words) {
			e.Type = "invalid_request_error"
			e.Message = "prompt is too long: " + e.Message
			return
		}
	}
}
