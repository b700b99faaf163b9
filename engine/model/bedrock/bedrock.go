// Package bedrock is the Messages API of Claude on Amazon Bedrock, as a
// [model.Model].
//
// Addresses, signatures and the framing of AWS are those of the official Go SDK of
// Anthropic, used below its types: bodies go out and events come in as bytes. Names
// of models are those of Bedrock, such as
// "us.anthropic.claude-sonnet-4-5-20250929-v1:0". Counting tokens is not offered
// there in this form.
//
// The package reads no file and no environment. It does not try again: that is for
// the engine.
package bedrock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/bedrock"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/model/internal/call"
	"github.com/parley-go/parley/engine/model/internal/messages"
)

// bearerVariable is the one variable that the official SDK reads whatever it was
// told. [New] refuses to go on where it would be used by accident.
const bearerVariable = "AWS_BEARER_TOKEN_BEDROCK"

// Credentials are those of AWS. SessionToken is empty for those that last.
type Credentials struct {
	AccessKeyID     string
	SecretAccessKey string
	SessionToken    string
	Expires         time.Time // zero if they do not expire
}

// Config says where Bedrock is and who asks. Region and one kind of credentials are
// required.
type Config struct {
	Region string // such as "us-east-1"

	Credentials Credentials

	// Retrieve, if not nil, returns credentials when they are needed, in place of
	// Credentials. They are kept until shortly before they expire.
	Retrieve func(context.Context) (Credentials, error)

	// BearerToken is an API key of Bedrock; it goes before credentials.
	BearerToken string

	// BaseURL is the address of the service. If empty, the one of the region.
	BaseURL string

	UserAgent       string        // if empty, "parley"
	Header          http.Header   // added to every request
	IdleTimeout     time.Duration // as in package anthropic
	CompleteTimeout time.Duration // as in package anthropic
	MaxEvent        int           // as in package anthropic

	// Transport makes the connections. If nil, the client has one of its own, which
	// uses Proxy if that is not nil.
	Transport http.RoundTripper
	Proxy     func(*http.Request) (*url.URL, error)
}

// A Client asks Bedrock. It implements [model.Model] and is safe for concurrent use.
type Client struct {
	api messages.Client
	own *http.Transport
}

// New returns a client. It connects to nothing before the first request.
func New(cfg Config) (*Client, error) {
	if cfg.Region == "" {
		return nil, errors.New("bedrock: no region")
	}
	if strings.ContainsAny(cfg.Region, "/?#@: ") {
		return nil, fmt.Errorf("bedrock: %q is not a region", cfg.Region)
	}
	if ambient := os.Getenv(bearerVariable); ambient != "" && ambient != cfg.BearerToken {
		return nil, errors.New("bedrock: " + bearerVariable + " is set in the environment of the process, and would be used in place of the credentials that were given: unset it, or give it as the BearerToken")
	}
	ac := aws.Config{Region: cfg.Region}
	switch {
	case cfg.BearerToken != "":
		ac.BearerAuthTokenProvider = bedrock.NewStaticBearerTokenProvider(cfg.BearerToken)
	case cfg.Retrieve != nil:
		ac.Credentials = aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
			c, err := cfg.Retrieve(ctx)
			return c.aws(), err
		}))
	case cfg.Credentials.AccessKeyID != "" && cfg.Credentials.SecretAccessKey != "":
		ac.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return cfg.Credentials.aws(), nil })
	default:
		return nil, errors.New("bedrock: no credentials")
	}
	c := &Client{}
	rt := cfg.Transport
	if rt == nil {
		c.own = call.NewTransport(cfg.Proxy)
		rt = c.own
	}
	opts := []option.RequestOption{
		bedrock.WithConfig(ac),
		option.WithMaxRetries(0),
		option.WithHTTPClient(call.NewClient(rt)),
	}
	if cfg.BaseURL != "" {
		opts = append(opts, option.WithBaseURL(cfg.BaseURL))
	}
	sdk := anthropic.NewClient(opts...)
	c.api = messages.Client{
		Name: "bedrock", HTTP: &http.Client{Transport: adapter{&sdk}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		Idle: cfg.IdleTimeout, Complete: cfg.CompleteTimeout, MaxEvent: cfg.MaxEvent,
		Prepare: func(ctx context.Context, op messages.Op, body []byte, header http.Header) (*http.Request, error) {
			for name, values := range cfg.Header {
				if name = http.CanonicalHeaderKey(name); header[name] == nil || name == "Anthropic-Beta" {
					header[name] = append(header[name], values...)
				}
			}
			header.Set("User-Agent", cmp.Or(cfg.UserAgent, "parley"))
			hr, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://bedrock/v1/messages", bytes.NewReader(body))
			if err == nil {
				hr.Header = header
			}
			return hr, err
		},
	}
	return c, nil
}

func (c Credentials) aws() aws.Credentials {
	return aws.Credentials{
		AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken,
		CanExpire: !c.Expires.IsZero(), Expires: c.Expires, Source: "parley",
	}
}

// An adapter sends requests of the Messages API through the official SDK, which
// makes those of Bedrock of them and turns the framing of the answer into that of
// server-sent events.
type adapter struct{ sdk *anthropic.Client }

func (a adapter) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	opts := []option.RequestOption{option.WithHeaderDel("Accept-Encoding")}
	for name, values := range r.Header {
		opts = append(opts, option.WithHeaderDel(name))
		for _, v := range values {
			opts = append(opts, option.WithHeaderAdd(name, v))
		}
	}
	var resp *http.Response
	opts = append(opts, option.WithResponseInto(&resp))
	err = a.sdk.Execute(r.Context(), http.MethodPost, "v1/messages", body, &resp, opts...)
	if resp != nil { // also one that is an error: that is read elsewhere
		return resp, nil
	}
	return nil, err
}

// Stream implements [model.Model]. It fails as the Stream of package anthropic does.
func (c *Client) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return known(c.api.Stream(ctx, req))
}

// known gives errors inside of a stream the types of the Messages API.
func known(events iter.Seq2[model.Event, error]) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		for ev, err := range events {
			if e, ok := errors.AsType[*model.Error](err); ok && e.Status == 0 {
				switch strings.ToLower(e.Type) {
				case "throttlingexception":
					e.Type = "rate_limit_error"
				case "serviceunavailableexception":
					e.Type = "overloaded_error"
				case "validationexception":
					e.Type = "invalid_request_error"
				case "modeltimeoutexception":
					e.Type = "timeout_error"
				case "internalserverexception", "modelstreamerrorexception":
					e.Type = "api_error"
				}
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// Complete is [Client.Stream] without streaming; see package anthropic.
func (c *Client) Complete(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return c.api.Once(ctx, req)
}

// Close closes connections that are not in use, if the client made them itself.
func (c *Client) Close() error {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	return nil
}
