// Package anthropic is the Messages API of Anthropic, and of servers that speak it,
// as a [model.Model].
//
// Bodies go out as they were given and events come in as they were sent: the
// prefix of a request stays the same bytes from turn to turn, so that prompt
// caching works, and nothing that is not known here is lost. The package reads no
// file and no environment, runs no command and keeps no state but credentials
// that a function gave it. It does not try again: that is for the engine, which
// knows what has happened since.
package anthropic

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/model/internal/call"
	"github.com/parley-go/parley/engine/model/internal/messages"
)

// DefaultBaseURL is where Anthropic serves the API.
const DefaultBaseURL = "https://api.anthropic.com"

// version is the version of the API, which has had no other since.
const version = "2023-06-01"

// Config says where the API is and who asks. The zero value asks Anthropic without
// credentials, which only a gateway that adds them grants.
type Config struct {
	// BaseURL is the address of the API without /v1. If empty, [DefaultBaseURL].
	BaseURL string

	APIKey    string // sent as x-api-key
	AuthToken string // sent as authorization: Bearer

	// Key, if not nil, returns a key when one is needed, such as the output of a
	// helper command; it takes the place of APIKey and AuthToken, and is sent as
	// both of their headers. The key is kept for KeyTTL, and asked for anew when the
	// API refuses it, once for a request. Calls do not overlap.
	Key    func(context.Context) (string, error)
	KeyTTL time.Duration // if zero, five minutes

	// Header is added to every request. Headers of a request replace it, except
	// for anthropic-beta, where both are sent.
	Header http.Header

	UserAgent string // if empty, "parley"

	// IdleTimeout is how long the API may send nothing, before its answer or in the
	// middle of it. If zero, five minutes. Pings are not nothing.
	IdleTimeout time.Duration

	// CompleteTimeout takes the place of IdleTimeout for [Client.Complete], where
	// nothing comes before the answer is complete. If zero, ten minutes.
	CompleteTimeout time.Duration

	// MaxEvent is the size of the largest event that is taken, in bytes. If zero,
	// 32 MiB. A larger one ends the stream with a [*model.EventError].
	MaxEvent int

	// Transport makes the connections; sharing one among clients shares them. If
	// nil, the client has one of its own, which uses Proxy if that is not nil.
	Transport http.RoundTripper
	Proxy     func(*http.Request) (*url.URL, error)
}

// A Client asks the Messages API. It implements [model.Model] and is safe for
// concurrent use.
type Client struct {
	api  messages.Client
	cfg  Config
	base string
	key  *call.Keeper
	own  *http.Transport // the transport made here, if any
}

// New returns a client. It connects to nothing before the first request.
func New(cfg Config) (*Client, error) {
	base := strings.TrimRight(cfg.BaseURL, "/")
	if base == "" {
		base = DefaultBaseURL
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("anthropic: %q is not the address of an API, such as %s", cfg.BaseURL, DefaultBaseURL)
	}
	c := &Client{cfg: cfg, base: base}
	rt := cfg.Transport
	if rt == nil {
		c.own = call.NewTransport(cfg.Proxy)
		rt = c.own
	}
	c.api = messages.Client{
		Name: "anthropic", HTTP: call.NewClient(rt),
		Idle: cfg.IdleTimeout, Complete: cfg.CompleteTimeout, MaxEvent: cfg.MaxEvent,
		Prepare: c.prepare,
	}
	if cfg.Key != nil {
		c.key = newKeeper(cfg.Key, cfg.KeyTTL)
		c.api.Renew = c.renew
	}
	return c, nil
}

// Stream implements [model.Model]. The body is sent as it is, with "stream" set to
// true at its end if it is not there. Besides a [*model.Error] it fails with a
// [*model.EventError], a [*model.IdleError], an error that is io.ErrUnexpectedEOF
// if the stream ended before message_stop, that of the context, or one of the
// connection.
func (c *Client) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return c.api.Stream(ctx, req)
}

// Complete is [Client.Stream] without streaming: the API answers in one piece, and
// the events are made of that. It is the last resort where streams keep breaking.
func (c *Client) Complete(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return c.api.Once(ctx, req)
}

// CountTokens returns how many input tokens a request has, by the API's own count.
// Members of the body that do not matter for it are not sent.
func (c *Client) CountTokens(ctx context.Context, req model.Request) (int64, error) {
	return c.api.Count(ctx, req)
}

// Close closes connections that are not in use, if the client made them itself.
func (c *Client) Close() error {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	return nil
}

func (c *Client) prepare(ctx context.Context, op messages.Op, body []byte, header http.Header) (*http.Request, error) {
	for name, values := range c.cfg.Header {
		name = http.CanonicalHeaderKey(name)
		if _, ok := header[name]; !ok || name == "Anthropic-Beta" {
			header[name] = append(header[name], values...)
		}
	}
	if betas := header["Anthropic-Beta"]; len(betas) > 1 {
		header.Set("Anthropic-Beta", strings.Join(betas, ","))
	}
	set := func(name, value string) {
		if header.Get(name) == "" {
			header.Set(name, value)
		}
	}
	set("Content-Type", "application/json")
	set("Accept", "application/json")
	set("Anthropic-Version", version)
	set("User-Agent", cmp.Or(c.cfg.UserAgent, "parley"))
	if c.key != nil {
		key, err := c.key.Get(ctx, "")
		if err != nil {
			return nil, err
		}
		header.Set("X-Api-Key", key)
		header.Set("Authorization", "Bearer "+key)
	} else {
		if c.cfg.APIKey != "" {
			set("X-Api-Key", c.cfg.APIKey)
		}
		if c.cfg.AuthToken != "" {
			set("Authorization", "Bearer "+c.cfg.AuthToken)
		}
	}
	to := c.base + "/v1/messages"
	if op == messages.OpCount {
		to += "/count_tokens"
	}
	if header.Get("Anthropic-Beta") != "" {
		to += "?beta=true"
	}
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	hr.Header = header
	return hr, nil
}

// renew asks for a new key and reports whether there is another one.
func (c *Client) renew(ctx context.Context, refused *http.Request) (bool, error) {
	old := refused.Header.Get("X-Api-Key")
	key, err := c.key.Get(ctx, old)
	return key != old, err
}

// newKeeper returns a keeper of the keys that a function gives.
func newKeeper(ask func(context.Context) (string, error), ttl time.Duration) *call.Keeper {
	if ttl <= 0 {
		ttl = 5 * time.Minute
	}
	return call.NewKeeper(func(ctx context.Context) (string, time.Time, error) {
		key, err := ask(ctx)
		if err != nil {
			return "", time.Time{}, fmt.Errorf("no key: %w", err)
		}
		if key = strings.TrimSpace(key); key == "" || strings.ContainsAny(key, "\r\n\x00") {
			return "", time.Time{}, errors.New("no key: what was given as one is empty or has several lines")
		}
		return key, time.Now().Add(ttl), nil
	})
}
