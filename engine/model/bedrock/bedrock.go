// Package bedrock implements [model.Model] for the Messages API of Claude on Amazon
// Bedrock.
//
// Signatures and framing use AWS's own Go SDK; bodies and events are passed through as
// bytes. The official SDK of Anthropic has a package for this, too, but it adds 5.4 MB
// to a program where this one adds 0.2, and always reads the environment. Names of
// models are those of Bedrock, such as "us.anthropic.claude-sonnet-4-5-20250929-v1:0".
// Bedrock does not offer counting tokens in this form.
//
// The package reads no files and no environment. It does not retry: the engine does.
package bedrock

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/model/internal/call"
	"github.com/parley-go/parley/engine/model/internal/messages"
	"github.com/parley-go/parley/engine/model/internal/sse"
	"github.com/parley-go/parley/internal/rawjson"
)

// version is that of the Messages API on Bedrock.
const version = "bedrock-2023-05-31"

// Credentials are AWS credentials. SessionToken is empty for permanent ones.
type Credentials struct {
	AccessKeyID     string
	SecretAccessKey string
	SessionToken    string
	Expires         time.Time // zero if they do not expire
}

// Config configures the address of Bedrock and the credentials. Region and one kind of
// credentials are required.
type Config struct {
	Region string // such as "us-east-1"

	Credentials Credentials

	// Retrieve, if not nil, returns credentials when they are needed, and replaces
	// Credentials. They are cached until shortly before they expire.
	Retrieve func(context.Context) (Credentials, error)

	// BearerToken is an API key of Bedrock; it takes precedence over credentials.
	BearerToken string

	// Unsigned sends no credentials: a gateway adds them.
	Unsigned bool

	// Name, if not nil, returns Bedrock's name for a model that a request names.
	Name func(string) string

	// BaseURL is the address of the service. If empty, that of the region.
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

// A Client is a client of Bedrock. It implements [model.Model] and is safe for
// concurrent use.
type Client struct {
	api    messages.Client
	cfg    Config
	base   string
	keys   aws.CredentialsProvider // nil if requests are not signed
	signer *v4.Signer
	own    *http.Transport
}

// New returns a client. It connects to nothing before the first request.
func New(cfg Config) (*Client, error) {
	if cfg.Region == "" {
		return nil, errors.New("bedrock: no region")
	}
	if strings.ContainsAny(cfg.Region, "/?#@: ") {
		return nil, fmt.Errorf("bedrock: %q is not a region", cfg.Region)
	}
	c := &Client{cfg: cfg, signer: v4.NewSigner(), base: strings.TrimRight(cfg.BaseURL, "/")}
	if c.base == "" {
		c.base = "https://bedrock-runtime." + cfg.Region + ".amazonaws.com"
	}
	if u, err := url.Parse(c.base); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("bedrock: %q is not an address", cfg.BaseURL)
	}
	switch {
	case cfg.BearerToken != "", cfg.Unsigned:
	case cfg.Retrieve != nil:
		c.keys = aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
			keys, err := cfg.Retrieve(ctx)
			return keys.aws(), err
		}), func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = time.Minute })
	case cfg.Credentials.AccessKeyID != "" && cfg.Credentials.SecretAccessKey != "":
		c.keys = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return cfg.Credentials.aws(), nil })
	default:
		return nil, errors.New("bedrock: no credentials")
	}
	rt := cfg.Transport
	if rt == nil {
		c.own = call.NewTransport(cfg.Proxy)
		rt = c.own
	}
	hc := call.NewClient(rt)
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a signature is valid for one address
	c.api = messages.Client{
		Name: "bedrock", HTTP: hc,
		Idle: cfg.IdleTimeout, Complete: cfg.CompleteTimeout, MaxEvent: cfg.MaxEvent,
		Prepare: c.prepare,
		Events: func(body io.Reader, limit int) messages.Events {
			return &frames{r: body, limit: cmp.Or(limit, sse.DefaultMax)}
		},
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
	body = rawjson.Delete(rawjson.Delete(body, "model"), "stream")
	if rawjson.Get(body, "anthropic_version") == nil {
		body = rawjson.Set(body, "anthropic_version", `"`+version+`"`)
	}
	for name, values := range c.cfg.Header {
		if name = http.CanonicalHeaderKey(name); header[name] == nil || name == "Anthropic-Beta" {
			header[name] = append(header[name], values...)
		}
	}
	if betas := strings.FieldsFunc(strings.Join(header["Anthropic-Beta"], ","), func(r rune) bool { return r == ',' || r == ' ' }); len(betas) > 0 {
		list, err := json.Marshal(betas)
		if err != nil {
			return nil, err
		}
		body = rawjson.Set(body, "anthropic_beta", string(list))
	}
	header.Del("Anthropic-Beta")
	method := "invoke"
	if op == messages.OpStream {
		method = "invoke-with-response-stream"
	}
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	// An id can contain colons, and an ARN slashes, all of which are escaped.
	hr.URL.RawPath = hr.URL.EscapedPath() + "/model/" + url.QueryEscape(name) + "/" + method
	hr.URL.Path += "/model/" + name + "/" + method
	hr.Header = header
	header.Set("Content-Type", "application/json")
	header.Set("User-Agent", cmp.Or(c.cfg.UserAgent, "parley"))
	if c.keys == nil {
		if c.cfg.BearerToken != "" {
			header.Set("Authorization", "Bearer "+c.cfg.BearerToken)
		}
		return hr, nil
	}
	keys, err := c.keys.Retrieve(ctx)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(body)
	return hr, c.signer.SignHTTP(ctx, keys, hr, hex.EncodeToString(hash[:]), "bedrock", c.cfg.Region, time.Now())
}

func (c Credentials) aws() aws.Credentials {
	return aws.Credentials{
		AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken,
		CanExpire: !c.Expires.IsZero(), Expires: c.Expires, Source: "parley",
	}
}

// frames decodes the events of a stream in the framing of AWS.
type frames struct {
	r     io.Reader
	limit int
	dec   *eventstream.Decoder
	buf   []byte
}

// Next implements [messages.Events].
func (f *frames) Next() (data []byte, partial bool, err error) {
	if f.dec == nil {
		f.dec = eventstream.NewDecoder()
	}
	for {
		m, err := f.dec.Decode(f.r, f.buf[:0])
		if err != nil {
			return nil, false, err
		}
		f.buf = m.Payload
		if len(m.Payload) > f.limit {
			return nil, false, sse.ErrTooLarge
		}
		head := func(name string) string {
			if v, ok := m.Headers.Get(name).(eventstream.StringValue); ok {
				return string(v)
			}
			return ""
		}
		switch head(":message-type") {
		case "event":
			var chunk struct {
				Bytes []byte `json:"bytes"` // in base64
			}
			if head(":event-type") != "chunk" {
				continue
			}
			if err := json.Unmarshal(m.Payload, &chunk); err != nil {
				if _, bad := errors.AsType[base64.CorruptInputError](err); !bad {
					err = errors.New("a chunk is not JSON")
				}
				return nil, false, &model.EventError{Data: bytes.Clone(m.Payload[:min(len(m.Payload), 1<<10)]), Err: err}
			}
			return chunk.Bytes, false, nil
		case "exception":
			return failure(head(":exception-type"), m.Payload), false, nil
		case "error":
			why, err := json.Marshal(map[string]string{"message": head(":error-message")})
			return failure(head(":error-code"), why), false, err
		}
	}
}

// failure converts an error of AWS to an error event of the Messages API.
func failure(code string, payload []byte) []byte {
	var p struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(payload, &p) != nil || p.Message == "" {
		p.Message = cmp.Or(code, "the server gave no reason")
	}
	typ := "api_error"
	switch strings.ToLower(code) {
	case "throttlingexception":
		typ = "rate_limit_error"
	case "serviceunavailableexception":
		typ = "overloaded_error"
	case "validationexception":
		typ = "invalid_request_error"
	case "modeltimeoutexception":
		typ = "timeout_error"
	}
	data, err := json.Marshal(map[string]any{"type": "error", "error": map[string]string{"type": typ, "message": p.Message}})
	if err != nil {
		return nil // cannot fail for strings
	}
	return data
}

// Stream implements [model.Model]. It fails as the Stream of package anthropic does.
func (c *Client) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return c.api.Stream(ctx, req)
}

// Complete is [Client.Stream] without streaming; see package anthropic.
func (c *Client) Complete(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return c.api.Once(ctx, req)
}

// Close closes idle connections, if the client has its own transport.
func (c *Client) Close() error {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	return nil
}
