// Package ask sends requests to a model: one loop for retry, fallback and budget, and one
// stream with an idle timeout. Turns, summaries and side questions use both.
package ask

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/internal/deepstack"
	"github.com/parley-go/parley/wire"
)

// ErrSpent means that the budget is spent.
var ErrSpent = errors.New("the budget is spent")

// A Loop configures how a request is retried. The functions may be nil.
type Loop struct {
	MaxRetries int
	MaxDelay   time.Duration // 0 means only the limit of [Delay]
	// Reserve waits until the request fits into the budget. release is called after the answer.
	Reserve func() (release func(), err error)
	// FallBack switches to another model because this one failed; see [Trigger]. It returns
	// false if there is none.
	FallBack func(trigger string) bool
	// Repair changes the request so that it can be sent again at once. It returns false if
	// there is nothing to change. spent is set if no retry is left.
	Repair func(err error, failure *model.Error, spent bool) bool
	// Report is called before each wait.
	Report func(attempt int, delay time.Duration, failure *model.Error) error
	// Sleep waits. It returns false if ctx ends first.
	Sleep func(ctx context.Context, d time.Duration) bool
}

// A final is an error after which a request is not sent again.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// Final wraps err so that [Loop.Do] returns it at once.
func Final(err error) error { return final{err} }

// overloads is how often a model may be overloaded before the loop falls back to another one.
const overloads = 3

// Do calls send until it returns nil, fails permanently, or ctx ends.
func (l *Loop) Do(ctx context.Context, send func() error) error {
	overloaded := 0
	for attempt := 1; ; attempt++ {
		err := l.once(send)
		if end, ok := errors.AsType[final](err); ok {
			return end.error
		}
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrSpent) {
			return err
		}
		failure := Failure(err)
		if Overloaded(failure) {
			overloaded++
		}
		trigger := Trigger(failure)
		if (trigger != TriggerOverloaded || overloaded >= overloads) && trigger != "" && l.FallBack != nil && l.FallBack(trigger) {
			attempt, overloaded = 0, 0
			continue
		}
		if l.Repair != nil && l.Repair(err, failure, attempt > l.MaxRetries) {
			attempt--
			continue
		}
		if !Retryable(failure) || errors.Is(err, model.ErrNoCredentials) || attempt > l.MaxRetries {
			return err
		}
		delay := Delay(attempt, failure.RetryAfter)
		if l.MaxDelay > 0 {
			delay = min(delay, l.MaxDelay)
		}
		if l.Report != nil {
			if err := l.Report(attempt, delay, failure); err != nil {
				return err
			}
		}
		if !l.sleep(ctx, delay) {
			return context.Cause(ctx)
		}
	}
}

func (l *Loop) once(send func() error) error {
	if l.Reserve != nil {
		release, err := l.Reserve()
		if err != nil {
			return err
		}
		defer release()
	}
	return send()
}

func (l *Loop) sleep(ctx context.Context, d time.Duration) bool {
	if l.Sleep != nil {
		return l.Sleep(ctx, d)
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Delay returns how long to wait before the next attempt: the time that the API requests, or
// half a second, doubled with each attempt, plus random jitter.
func Delay(attempt int, asked time.Duration) time.Duration {
	if asked > 0 {
		return min(asked, 5*time.Minute)
	}
	d := min(500*time.Millisecond<<min(attempt-1, 10), 32*time.Second)
	return d + time.Duration(rand.Int64N(int64(d)/4+1))
}

// Failure converts an error to a [model.Error].
func Failure(err error) *model.Error {
	var e *model.Error
	if errors.As(err, &e) {
		return e
	}
	message := err.Error()
	var request *url.Error
	if errors.As(err, &request) {
		if u, bad := url.Parse(request.URL); bad == nil {
			message = fmt.Sprintf("%s://%s: %v", u.Scheme, u.Host, request.Err)
		}
		message += advice(err)
	}
	return &model.Error{Message: message}
}

// advice returns what a person can do about a request that got no response.
func advice(err error) string {
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &cert):
		return ". Check the address of the API, or name the certificate of its authority in SSL_CERT_FILE"
	case errors.As(err, &op) && op.Op == "proxyconnect":
		return ". Check the proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, or add the host to NO_PROXY"
	case op != nil:
		return ". Check the network, a proxy, and the address of the API"
	}
	return ""
}

// Reasons to fall back to another model, as the protocol names them.
const (
	TriggerOverloaded = "overloaded" // several times
	TriggerNotFound   = "model_not_found"
	TriggerDenied     = "permission_denied" // this account may not use the model
	TriggerServer     = "server_error"
)

// Trigger returns why another model may answer where this one failed, or "" if none would.
func Trigger(e *model.Error) string {
	switch {
	case Overloaded(e):
		return TriggerOverloaded
	case e.Status == http.StatusNotFound:
		return TriggerNotFound
	case e.Status == http.StatusForbidden:
		return TriggerDenied
	case e.Status >= 500:
		return TriggerServer
	}
	return ""
}

// Overloaded reports whether a failure means that the model is overloaded.
func Overloaded(e *model.Error) bool { return e.Status == 529 || e.Type == "overloaded_error" }

// Retryable reports whether a failure may be temporary. A rejected key is not. The API may decide it with a header.
func Retryable(e *model.Error) bool {
	switch {
	case e.Header.Get("X-Should-Retry") == "false":
		return false
	case e.Status == 0:
		// The connection failed, or the stream reported a failure.
		return e.Type != "invalid_request_error" && e.Type != "authentication_error" && e.Type != "permission_error"
	case e.Status == http.StatusRequestTimeout, e.Status == http.StatusConflict, e.Status == http.StatusTooManyRequests:
		return true
	}
	return e.Status >= 500
}

// Continuable reports whether the model may continue an answer that this failure cut off. Of the failures that a stream
// can report, these are the temporary ones.
func Continuable(e *model.Error) bool {
	if e.Status != 0 {
		return Retryable(e)
	}
	return slices.Contains([]string{"", "overloaded_error", "api_error", "timeout_error"}, e.Type)
}

// Code returns the protocol's name for a failure that is retried.
func Code(e *model.Error) wire.AssistantError {
	switch {
	case Overloaded(e):
		return wire.ErrorOverloaded
	case e.Status == 429:
		return wire.ErrorRateLimit
	case e.Status >= 500 || e.Status == http.StatusRequestTimeout || e.Status == http.StatusConflict || e.Type == "api_error":
		return wire.ErrorServer
	}
	return wire.ErrorUnknown
}

// Broken reports whether an answer started but did not arrive completely.
func Broken(err error) bool {
	var bad *model.EventError
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &bad)
}

const (
	idleTimeout = 10 * time.Minute // the default
	grace       = 5 * time.Second  // how long a model may take to stop
)

// An Item is one piece of a stream.
type Item struct {
	Event    *wire.APIEvent
	Raw      json.RawMessage // the event as the API sent it
	Response *model.Response
	Err      error // the last item of the stream
}

// A Stream is the answer to a request, as it arrives.
type Stream struct {
	Items <-chan Item     // closed at the end
	Ctx   context.Context // ends when the model is silent for too long, and when the stream is closed

	cancel context.CancelCauseFunc
	ended  chan struct{}
	log    *slog.Logger

	mu   sync.Mutex
	rest []Item // see Close
}

// Open sends a request. The stream breaks if the model is silent for longer than idle; 0 means
// 10 minutes. With whole the answer arrives in one piece, if the model supports that. The
// caller closes the stream.
func Open(ctx context.Context, m model.Model, req model.Request, idle time.Duration, whole bool, log *slog.Logger) *Stream {
	if idle <= 0 {
		idle = idleTimeout
	}
	ctx, cancel := context.WithCancelCause(ctx)
	items := make(chan Item)
	s := &Stream{Items: items, Ctx: ctx, cancel: cancel, ended: make(chan struct{}), log: log}
	silence := time.AfterFunc(idle, func() { cancel(&model.IdleError{After: idle}) })
	send := func(it Item) bool {
		silence.Stop() // the reader is slow now, not the model
		defer silence.Reset(idle)
		select {
		case items <- it:
			return true
		case <-ctx.Done():
			s.mu.Lock()
			s.rest = append(s.rest, it)
			s.mu.Unlock()
			return false
		}
	}
	req.OnResponse = func(r model.Response) { send(Item{Response: &r}) }
	stream := m.Stream
	if c, ok := m.(model.Completer); ok && whole {
		stream = c.Complete
	}
	go func() {
		deepstack.Grow()
		defer close(s.ended)
		defer close(items)
		defer silence.Stop()
		defer func() {
			if p := recover(); p != nil {
				log.Error("the model panicked", "panic", p, "stack", string(debug.Stack()))
				send(Item{Err: &model.Error{Type: "invalid_request_error", Message: fmt.Sprintf("the model's client failed in an unexpected way: %v", p)}})
			}
		}()
		for ev, err := range stream(ctx, req) {
			event := new(wire.APIEvent)
			if err == nil {
				err = event.UnmarshalJSON(ev.Data)
			}
			if err != nil {
				send(Item{Err: err})
				return
			}
			if !send(Item{Event: event, Raw: append(json.RawMessage(nil), ev.Data...)}) {
				return
			}
		}
	}()
	return s
}

// Err returns the error that broke the stream: a [model.IdleError] if the model was silent for
// too long, or else err.
func (s *Stream) Err(err error) error {
	if idle, ok := errors.AsType[*model.IdleError](context.Cause(s.Ctx)); ok {
		return idle
	}
	return err
}

// Close ends the stream. It waits for the model for a limited time, and returns what the model
// sent and nobody received: the caller still has to book its usage.
func (s *Stream) Close() []Item {
	s.cancel(nil)
	select {
	case <-s.ended:
	case <-time.After(grace):
		s.log.Warn("the model does not stop")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rest
}

// Failed returns the failure that an event reports, or nil.
func Failed(ev *wire.APIEvent) error {
	switch {
	case ev.Type != "error":
		return nil
	case ev.Error == nil:
		return &model.Error{Type: "api_error", Message: "the stream reported a failure"}
	}
	return &model.Error{Type: ev.Error.Type, Message: ev.Error.Message}
}
