package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An authError means that the user has to log in first.
type authError struct {
	status    string
	challenge []string // the server's challenges
}

func (e *authError) Error() string { return "the server needs a login: " + e.status }

// A web is a server on the network. It is also the round tripper of its connection.
type web struct {
	mcp.Transport
	origin  *url.URL
	headers map[string]string
	server  *server
	base    *http.Transport
	refused atomic.Pointer[authError] // of a request without a valid login
	failed  atomic.Pointer[string]    // the last status other than success
}

func newWeb(s *server, u *url.URL) *web {
	w := &web{origin: u, headers: s.cfg.Headers, server: s}
	w.base = &http.Transport{
		Proxy:                  func(r *http.Request) (*url.URL, error) { return proxyFor(r.URL, s.m.opts.Env) },
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           16,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 1 << 20,
	}
	s.login.mu.Lock()
	s.login.looked = s.login.token != nil // the user may have logged in elsewhere
	s.login.mu.Unlock()
	client := &http.Client{Transport: w}
	switch s.kind() {
	case "ws":
		w.Transport = socket{w}
	case "sse":
		w.Transport = &mcp.SSEClientTransport{Endpoint: u.String(), HTTPClient: client}
	default:
		w.Transport = &mcp.StreamableClientTransport{Endpoint: u.String(), HTTPClient: client, MaxRetries: 2}
	}
	return w
}

func (w *web) end() { w.base.CloseIdleConnections() }

// explain prefers the known HTTP responses to the error of the SDK, and the error of the network to
// the steps of the SDK that led to it.
func (w *web) explain(err error) error {
	if refused := w.refused.Load(); refused != nil {
		return refused
	}
	if status := w.failed.Load(); status != nil {
		return fmt.Errorf("the server answered %s (%w)", *status, err)
	}
	if network := (*url.Error)(nil); errors.As(err, &network) {
		return fmt.Errorf("%s could not be reached: %w", network.URL, network.Err)
	}
	return err
}

// RoundTrip sends a request with the headers of the configuration. They are sent only
// to the configured server, wherever it redirects.
func (w *web) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := r.Context(), context.CancelFunc(func() {})
	if r.Method == http.MethodDelete { // the end of the session
		ctx, cancel = context.WithTimeout(ctx, time.Second)
	}
	r = r.Clone(ctx)
	if err := w.public(r); err != nil {
		cancel()
		return nil, err
	}
	resp, err := w.send(r)
	if err != nil {
		cancel()
		return nil, err
	}
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		w.refused.Store(&authError{resp.Status, resp.Header.Values("WWW-Authenticate")})
	case resp.StatusCode >= 400 && r.Method == http.MethodPost:
		w.failed.Store(&resp.Status)
	case r.Method == http.MethodPost:
		w.refused.Store(nil)
		w.failed.Store(nil)
	}
	life, end := context.WithCancel(ctx)
	body := &boundedBody{ReadCloser: resp.Body, left: maxLine, cancel: func() { end(); cancel() }}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		body.left, body.closed = -1, life.Done() // the SDK limits each event
	}
	resp.Body = body
	return resp, nil
}

// send sends a request with our credentials. A rejected token is refreshed once, if
// possible.
func (w *web) send(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != w.origin.Scheme || r.URL.Host != w.origin.Host {
		return w.base.RoundTrip(r)
	}
	for name, value := range w.headers {
		r.Header.Set(name, value)
	}
	token := w.server.bearer(r.Context(), "")
	if token == "" {
		return w.base.RoundTrip(r)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := w.base.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || r.Body != nil && r.GetBody == nil {
		return resp, err
	}
	next := w.server.bearer(r.Context(), token)
	if next == token || next == "" {
		return resp, nil
	}
	resp.Body.Close()
	if r.GetBody != nil {
		if r.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	r.Header.Set("Authorization", "Bearer "+next)
	return w.base.RoundTrip(r)
}

// public sets the method name of a request that servers expect.
func (w *web) public(r *http.Request) error {
	if r.Method != http.MethodPost || r.Body == nil {
		return nil
	}
	data, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil {
		return err
	}
	if m, err := jsonrpc.DecodeMessage(data); err == nil {
		if p := public(m); p != m {
			if data, err = jsonrpc.EncodeMessage(p); err != nil {
				return err
			}
			if r.Header.Get("Mcp-Method") != "" {
				call := p.(*jsonrpc.Request)
				var params struct {
					Name string `json:"name"`
					URI  string `json:"uri"`
				}
				json.Unmarshal(call.Params, &params)
				r.Header.Set("Mcp-Method", call.Method)
				if name := cmp.Or(params.Name, params.URI); name != "" {
					r.Header.Set("Mcp-Name", name)
				}
			}
		}
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	return nil
}

// A boundedBody returns an error when it is too long. An endless stream of events is
// read no faster than a server may send them.
type boundedBody struct {
	io.ReadCloser
	left   int // negative means no limit
	cancel context.CancelFunc
	closed <-chan struct{} // of a stream: closed when it is no longer read
	gate   gate
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errors.New("the answer is too long")
	}
	if b.left > 0 && len(p) > b.left {
		p = p[:b.left]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left > 0 {
		b.left -= n
	}
	if b.closed != nil {
		for range bytes.Count(p[:n], []byte("\ndata:")) {
			b.gate.slow(b.closed)
		}
	}
	return n, err
}

func (b *boundedBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel()
	return err
}

// proxyFor returns the proxy that an environment names for a URL, or nil.
func proxyFor(u *url.URL, env []string) (*url.URL, error) {
	var proxy, none string
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		switch strings.ToLower(name) {
		case u.Scheme + "_proxy":
			proxy = value
		case "no_proxy":
			none = value
		}
	}
	host := u.Hostname()
	if proxy == "" || host == "localhost" || net.ParseIP(host).IsLoopback() {
		return nil, nil
	}
	for rule := range strings.SplitSeq(none, ",") {
		rule, _, _ = strings.Cut(strings.TrimSpace(rule), ":")
		if rule = strings.TrimPrefix(rule, "."); rule == "*" || rule != "" && (host == rule || strings.HasSuffix(host, "."+rule)) {
			return nil, nil
		}
	}
	if !strings.Contains(proxy, "://") {
		proxy = "http://" + proxy
	}
	return url.Parse(proxy)
}
