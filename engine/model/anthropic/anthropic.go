// Package anthropic implements [model.Model] for the Messages API of Anthropic, and of
// compatible servers.
//
// Bodies are sent as given and events are returned as received: the prefix of a request
// stays the same bytes from turn to turn, so that prompt caching works, and unknown
// members are not lost. The package reads no files and no environment, runs no commands
// and keeps no state except credentials from a function. It does not retry: the engine
// does, which knows what has happened since.
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

// DefaultBaseURL is the address of Anthropic's API.
const DefaultBaseURL = "https://api.anthropic.com"

// version is the version of the API, the only one so far.
const version = "2023-06-01"

// Config configures the address of the API and the credentials. The zero value uses
// Anthropic's API without credentials, which works only with a gateway that adds them.
type Config struct {
	// BaseURL is the address of the API without /v1. If empty, [DefaultBaseURL].
	BaseURL string

	APIKey    string // sent as x-api-key
	AuthToken string // sent as authorization: Bearer

	// Key, if not nil, returns a key when one is needed, such as the output of a helper
	// command; it replaces APIKey and AuthToken, and is sent in both of their headers.
	// The key is cached for KeyTTL. If the API rejects it, it is requested again, once
	// per request. Calls do not overlap.
	Key    func(context.Context) (string, error)
	KeyTTL time.Duration // if zero, five minutes

	// Header is added to every request. Headers of a request replace it, except for
	// anthropic-beta, where both are sent.
	Header http.Header

	UserAgent string // if empty, "parley"

	// IdleTimeout is how long the API may be silent, before its answer or in the middle
	// of it. If zero, five minutes. Pings count as activity.
	IdleTimeout time.Duration

	// CompleteTimeout replaces IdleTimeout for [Client.Complete], which receives
	// nothing until the answer is complete. If zero, ten minutes.
	CompleteTimeout time.Duration

	// MaxEvent is the maximum size of an event in bytes. If zero, 32 MiB. A larger one
	// ends the stream with a [*model.EventError].
	MaxEvent int

	// Transport makes the connections; clients that share one share its connections. If
	// nil, the client has its own, which uses Proxy if that is not nil.
	Transport http.RoundTripper
	Proxy     func(*http.Request) (*url.URL, error)
}

// A Client is a client of the Messages API. It implements [model.Model] and is safe for
// concurrent use.
type Client struct {
	api  messages.Client
	cfg  Config
	base string
	key  *call.Keeper
	own  *http.Transport // the transport created here, if any
}

// New returns a client. It connects to nothing before the first request.
func New(cfg Config) (*Client, error) {
	base := strings.TrimRight(cfg.BaseURL, "/")
	if base == "" {
		base = DefaultBaseURL
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("anthropic: the base URL %q is not the address of an API, such as %s", cfg.BaseURL, DefaultBaseURL)
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

// Stream implements [model.Model]. The body is sent as given, with "stream" set to true
// at its end if it is missing. Besides a [*model.Error], it fails with a
// [*model.EventError], a [*model.IdleError], an error that is io.ErrUnexpectedEOF if
// the stream ended before message_stop, the error of the context, or one of the
// connection.
func (c *Client) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return c.api.Stream(ctx, req)
}

// Complete is [Client.Stream] without streaming: the API answers in one piece, which is
// converted to events. It is the last resort if streams keep breaking.
func (c *Client) Complete(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return c.api.Once(ctx, req)
}

// CountTokens returns the number of input tokens of a request, as counted by the API.
// Irrelevant members of the body are not sent.
func (c *Client) CountTokens(ctx context.Context, req model.Request) (int64, error) {
	return c.api.Count(ctx, req)
}

// Close closes idle connections, if the client has its own transport.
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

// renew requests a new key and reports whether it differs.
func (c *Client) renew(ctx context.Context, refused *http.Request) (bool, error) {
	old := refused.Header.Get("X-Api-Key")
	key, err := c.key.Get(ctx, old)
	return key != old, err
}

// newKeeper returns a keeper for the keys of a function.
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
