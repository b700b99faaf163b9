// Package vertex implements [model.Model] for the Messages API of Claude on Google
// Vertex AI.
//
// Bodies and events are passed through as bytes. The package requests access tokens
// itself, with the key of a service account, with the credentials that gcloud stores
// for a user, or from the metadata server of a machine at Google, because the official
// libraries depend on gRPC. Names of models are those of Vertex, such as
// "claude-sonnet-4-5@20250929".
//
// The package reads no files and no environment. It does not retry: the engine does.
package vertex

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/model/internal/call"
	"github.com/parley-go/parley/engine/model/internal/messages"
	"github.com/parley-go/parley/internal/rawjson"
)

// version is that of the Messages API on Vertex.
const version = "vertex-2023-10-16"

// Config configures the address of Vertex and the credentials. Project, Region and one
// kind of credentials are required.
type Config struct {
	Project string
	Region  string // such as "us-east5", "global", or "us" and "eu" for all of them

	// CredentialsJSON is the content of a credentials file: the key of a service
	// account, or the output of gcloud auth application-default login.
	CredentialsJSON []byte

	// Metadata requests tokens from the metadata server of the machine. MetadataURL is
	// its address; if empty, http://metadata.google.internal.
	Metadata    bool
	MetadataURL string

	// Token, if not nil, returns an access token and the time until which it is valid,
	// and takes precedence over all others.
	Token func(context.Context) (token string, till time.Time, err error)

	// Unsigned sends no credentials: a gateway adds them.
	Unsigned bool

	// Name, if not nil, returns Vertex's name for a model that a request names.
	Name func(string) string

	// BaseURL is the address of the service, including /v1 if it has that. If empty,
	// that of the region.
	BaseURL string

	UserAgent       string        // if empty, "parley"
	Header          http.Header   // added to every request
	IdleTimeout     time.Duration // as in package anthropic
	CompleteTimeout time.Duration // as in package anthropic
	MaxEvent        int           // as in package anthropic

	// Transport makes the connections. If nil, the client has its own, which uses Proxy
	// if that is not nil.
	Transport http.RoundTripper
	Proxy     func(*http.Request) (*url.URL, error)
}

// A Client is a client of Vertex. It implements [model.Model] and is safe for
// concurrent use.
type Client struct {
	api   messages.Client
	cfg   Config
	base  string
	token *call.Keeper
	own   *http.Transport
}

var place = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9-]+$`) })

// New returns a client. It connects to nothing before the first request.
func New(cfg Config) (*Client, error) {
	if cfg.Project == "" || strings.ContainsAny(cfg.Project, "/?#% ") {
		return nil, fmt.Errorf("vertex: %q is not a project", cfg.Project)
	}
	if !place().MatchString(cfg.Region) {
		return nil, fmt.Errorf("vertex: %q is not a region", cfg.Region)
	}
	c := &Client{cfg: cfg, base: strings.TrimRight(cfg.BaseURL, "/")}
	if c.base == "" {
		switch cfg.Region {
		case "global":
			c.base = "https://aiplatform.googleapis.com"
		case "us", "eu":
			c.base = "https://aiplatform." + cfg.Region + ".rep.googleapis.com"
		default:
			c.base = "https://" + cfg.Region + "-aiplatform.googleapis.com"
		}
		c.base += "/v1"
	}
	if u, err := url.Parse(c.base); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("vertex: %q is not an address", cfg.BaseURL)
	}
	rt := cfg.Transport
	if rt == nil {
		c.own = call.NewTransport(cfg.Proxy)
		rt = c.own
	}
	hc := call.NewClient(rt)
	ask := cfg.Token
	switch {
	case ask != nil, cfg.Unsigned:
	case cfg.CredentialsJSON != nil:
		var err error
		if ask, err = exchange(hc, cfg.CredentialsJSON); err != nil {
			return nil, fmt.Errorf("vertex: %w", err)
		}
	case cfg.Metadata:
		ask = metadata(hc, cmp.Or(strings.TrimRight(cfg.MetadataURL, "/"), "http://metadata.google.internal"))
	default:
		return nil, errors.New("vertex: no credentials")
	}
	if ask != nil {
		c.token = call.NewKeeper(ask)
	}
	c.api = messages.Client{
		Name: "vertex", HTTP: hc,
		Idle: cfg.IdleTimeout, Complete: cfg.CompleteTimeout, MaxEvent: cfg.MaxEvent,
		Prepare: c.prepare,
	}
	if c.token != nil {
		c.api.Renew = func(ctx context.Context, refused *http.Request) (bool, error) {
			old := strings.TrimPrefix(refused.Header.Get("Authorization"), "Bearer ")
			token, err := c.token.Get(ctx, old)
			return token != old, err
		}
	}
	return c, nil
}

func (c *Client) prepare(ctx context.Context, op messages.Op, body []byte, header http.Header) (*http.Request, error) {
	name := rawjson.String(body, "model")
	if name == "" {
		return nil, errors.New("the request names no model")
	}
	if c.cfg.Name != nil {
		name = c.cfg.Name(name)
	}
	method := "rawPredict"
	switch op {
	case messages.OpCount: // this endpoint expects the model in the body
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		body = rawjson.Set(body, "model", string(quoted))
		name = "count-tokens"
	case messages.OpStream:
		method = "streamRawPredict"
		fallthrough
	default:
		body = rawjson.Delete(body, "model")
	}
	if rawjson.Get(body, "anthropic_version") == nil {
		body = rawjson.Set(body, "anthropic_version", `"`+version+`"`)
	}
	var token string
	if c.token != nil {
		var err error
		if token, err = c.token.Get(ctx, ""); err != nil {
			return nil, err
		}
	}
	for name, values := range c.cfg.Header {
		if name = http.CanonicalHeaderKey(name); header[name] == nil || name == "Anthropic-Beta" {
			header[name] = append(header[name], values...)
		}
	}
	if betas := header["Anthropic-Beta"]; len(betas) > 1 {
		header.Set("Anthropic-Beta", strings.Join(betas, ","))
	}
	header.Set("Content-Type", "application/json")
	header.Set("User-Agent", cmp.Or(c.cfg.UserAgent, "parley"))
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	to := fmt.Sprintf("%s/projects/%s/locations/%s/publishers/anthropic/models/%s:%s", c.base, c.cfg.Project, c.cfg.Region, url.PathEscape(name), method)
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err == nil {
		hr.Header = header
	}
	return hr, err
}

// Stream implements [model.Model]. It fails as the Stream of package anthropic does.
func (c *Client) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return c.api.Stream(ctx, req)
}

// Complete is [Client.Stream] without streaming; see package anthropic.
func (c *Client) Complete(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return c.api.Once(ctx, req)
}

// CountTokens returns the number of input tokens of a request, as counted by the API.
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
