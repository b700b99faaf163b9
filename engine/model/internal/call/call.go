// Package call makes HTTP calls to the APIs of models. It handles responses that stream
// and may stall, errors in the many formats of servers, and credentials that must not
// follow a redirect. It does not depend on the content of requests and responses.
package call

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-go/parley/engine/model"
)

// DefaultIdle is the default limit of how long a server may be silent.
const DefaultIdle = 5 * time.Minute

// maxErrorBody is how much of the body of an error is read, in bytes.
const maxErrorBody = 64 << 10

// NewTransport returns a transport for long streams that shares nothing with
// http.DefaultTransport. A nil proxy means none.
func NewTransport(proxy func(*http.Request) (*url.URL, error)) *http.Transport {
	return &http.Transport{
		Proxy:               proxy,
		DialContext:         (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 15 * time.Second,
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true, // servers hold back compressed streams until a block is full
	}
}

// NewClient returns an HTTP client that follows redirects only on the same origin, and
// only if they repeat the request unchanged. Other redirects are returned as responses.
func NewClient(rt http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: rt,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			first := via[0]
			if len(via) > 3 || req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host || req.Method != first.Method {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
}

// Do sends a request. If the server sends nothing for longer than idle, while waiting
// for the headers or in a Read of the body, the error is a [*model.IdleError]. The end
// of ctx ends the call and the reading of the body, which must be closed. A body that
// is read slowly is not idle.
func Do(ctx context.Context, c *http.Client, req *http.Request, idle time.Duration) (*http.Response, error) {
	if idle <= 0 {
		idle = DefaultIdle
	}
	ctx, cancel := context.WithCancelCause(ctx)
	b := &body{ctx: ctx, cancel: cancel, idle: idle}
	b.timer = time.AfterFunc(idle, func() { cancel(&model.IdleError{After: idle}) })
	resp, err := c.Do(req.WithContext(ctx))
	b.timer.Stop()
	if err != nil {
		err = b.explain(err)
		cancel(nil)
		return nil, err
	}
	b.rc = resp.Body
	resp.Body = b
	return resp, nil
}

// A body is the body of a response that must not stall.
type body struct {
	rc     io.ReadCloser
	ctx    context.Context // of the request
	cancel context.CancelCauseFunc
	timer  *time.Timer
	idle   time.Duration
}

func (b *body) Read(p []byte) (int, error) {
	b.timer.Reset(b.idle)
	n, err := b.rc.Read(p)
	b.timer.Stop()
	if err != nil && err != io.EOF {
		err = b.explain(err)
	}
	return n, err
}

func (b *body) Close() error {
	b.timer.Stop()
	b.cancel(nil) // first, because Close keeps reading otherwise
	return b.rc.Close()
}

// explain returns why a call ended, if we ended it.
func (b *body) explain(err error) error {
	cause := context.Cause(b.ctx)
	if cause == nil {
		return err
	}
	if idle, ok := errors.AsType[*model.IdleError](cause); ok {
		return idle
	}
	if cause == b.ctx.Err() {
		return cause
	}
	return fmt.Errorf("%w: %w", b.ctx.Err(), cause)
}

// Drain reads a response to its end, so that its connection can be reused. It gives up
// after a moment.
func Drain(resp *http.Response) {
	b, ok := resp.Body.(*body)
	if !ok {
		return
	}
	b.idle = 100 * time.Millisecond
	_, _ = io.Copy(io.Discard, io.LimitReader(b, 64<<10))
}

// RequestID returns the server's id of a request.
func RequestID(h http.Header) string {
	for _, name := range []string{"Request-Id", "X-Request-Id", "X-Amzn-Requestid", "X-Goog-Request-Id"} {
		if id := h.Get(name); id != "" {
			return id
		}
	}
	return ""
}

// RetryAfter returns how long a response requests to wait: retry-after-ms, or
// retry-after in seconds or as a date. It is 0 if there is none.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(strings.TrimSpace(h.Get("Retry-After-Ms")), 64); err == nil {
		return duration(ms / 1000)
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		return duration(s)
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}

// duration converts seconds to a duration and keeps absurd numbers in range.
func duration(seconds float64) time.Duration {
	const most = 365 * 24 * time.Hour
	if !(seconds > 0) {
		return 0
	}
	if seconds > most.Seconds() {
		return most
	}
	return time.Duration(seconds * float64(time.Second))
}

// Failure returns the error in a response. It does not close the body.
func Failure(resp *http.Response) *model.Error {
	e := &model.Error{
		Status:     resp.StatusCode,
		Type:       TypeOf(resp.StatusCode),
		RequestID:  RequestID(resp.Header),
		RetryAfter: RetryAfter(resp.Header, time.Now()),
		Header:     resp.Header,
	}
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // use the part that was received, even if it is incomplete
	ReadError(data, e)
	if e.Message == "" {
		e.Message = http.StatusText(resp.StatusCode)
	}
	if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		e.Message = "redirected to " + to.Scheme + "://" + to.Host + ", which is not followed: the credentials are for another server"
	}
	if e.Message == "" {
		e.Message = "the server gave no reason"
	}
	return e
}

// ReadError sets an error from a JSON object or a text. It supports the formats of the
// Messages API ({"type":"error","error":{"type","message"}}), of OpenAI and similar
// servers ({"error":{"message","type","code"}} or {"error":"text"}), of AWS
// ({"message"} or {"Message"}), of Google ({"error":{"status","message"}}, also in an
// array) and of FastAPI ({"detail"}).
func ReadError(data []byte, e *model.Error) {
	data = bytes.TrimSpace(data)
	if list := []json.RawMessage(nil); len(data) > 0 && data[0] == '[' && json.Unmarshal(data, &list) == nil && len(list) > 0 {
		data = list[0]
	}
	var o struct {
		Error     json.RawMessage `json:"error"`
		Message   json.RawMessage `json:"message"`
		Detail    json.RawMessage `json:"detail"`
		RequestID json.RawMessage `json:"request_id"`
	}
	if json.Unmarshal(data, &o) != nil {
		// An HTML page is less informative than the status.
		if text := string(data); utf8.ValidString(text) && !strings.HasPrefix(text, "<") {
			e.Message = shorten(text)
		}
		return
	}
	var inner struct {
		Type    json.RawMessage `json:"type"`
		Status  json.RawMessage `json:"status"`
		Code    json.RawMessage `json:"code"`
		Message json.RawMessage `json:"message"`
	}
	if json.Unmarshal(o.Error, &inner) == nil {
		e.Message = text(inner.Message)
		for _, t := range []json.RawMessage{inner.Type, inner.Status, inner.Code} {
			if s := str(t); s != "" {
				e.Type = s
				break
			}
		}
	}
	for _, m := range []json.RawMessage{o.Message, o.Detail, o.Error} {
		if e.Message == "" {
			e.Message = text(m)
		}
	}
	if e.RequestID == "" { // the header is the authority, also for hosts of the official command
		e.RequestID = str(o.RequestID)
	}
}

// str returns a JSON string, or "" for anything else.
func str(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

// text returns the value of a JSON string, and anything else as JSON.
func text(raw json.RawMessage) string {
	if s := str(raw); s != "" || len(raw) == 0 || string(raw) == "null" || string(raw) == `""` {
		return s
	}
	return shorten(string(raw))
}

// shorten returns the beginning of a text.
func shorten(s string) string {
	const most = 2000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// TypeOf returns the error type of the Messages API for a status.
func TypeOf(status int) string {
	switch status {
	case 400, 422:
		return "invalid_request_error"
	case 401:
		return "authentication_error"
	case 402:
		return "billing_error"
	case 403:
		return "permission_error"
	case 404:
		return "not_found_error"
	case 408, 504:
		return "timeout_error"
	case 413:
		return "request_too_large"
	case 429:
		return "rate_limit_error"
	case 529:
		return "overloaded_error"
	}
	if status/100 == 4 || status/100 == 3 {
		return "invalid_request_error"
	}
	return "api_error"
}
