package ask

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	overloaded = &model.Error{Status: 529, Message: "overloaded"}
	refused    = &model.Error{Status: 400, Message: "refused"}
	broken     = io.ErrUnexpectedEOF
)

// TestLoop checks which failures are retried, and how often.
func TestLoop(t *testing.T) {
	for _, tt := range []struct {
		name    string
		errs    []error // of the requests; the last one repeats
		retries int
		sends   int
		want    error
	}{
		{"success", []error{nil}, 2, 1, nil},
		{"a failure that passes", []error{overloaded, nil}, 2, 2, nil},
		{"a failure that does not pass", []error{refused}, 2, 1, refused},
		{"too many failures", []error{broken}, 2, 3, broken},
		{"no retries", []error{broken}, 0, 1, broken},
		{"a final failure", []error{Final(broken)}, 2, 1, broken},
		{"the budget is spent", []error{ErrSpent}, 2, 1, ErrSpent},
		{"no credentials", []error{model.ErrNoCredentials}, 2, 1, model.ErrNoCredentials},
	} {
		synctest.Test(t, func(t *testing.T) {
			sends, reports, reserved := 0, 0, 0
			l := Loop{MaxRetries: tt.retries, MaxDelay: time.Second,
				Report: func(int, time.Duration, *model.Error) error { reports++; return nil },
				Reserve: func() (func(), error) {
					reserved++
					return func() { reserved-- }, nil
				}}
			err := l.Do(t.Context(), func() error {
				sends++
				return tt.errs[min(sends, len(tt.errs))-1]
			})
			if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
				t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			}
			if sends != tt.sends || reports != tt.sends-1 || reserved != 0 {
				t.Errorf("%s: got %d requests, %d reports and %d reserves left, want %d requests", tt.name, sends, reports, reserved, tt.sends)
			}
		})
	}
}

// TestLoopFallsBack checks that an overloaded model is replaced after three attempts, and
// that the other one has all its retries.
// TestAPIDecidesAboutRetries checks that a failure which the API declares as permanent is not sent again.
func TestAPIDecidesAboutRetries(t *testing.T) {
	for header, want := range map[string]bool{"": true, "true": true, "false": false} {
		if got := Retryable(&model.Error{Status: 429, Header: http.Header{"X-Should-Retry": {header}}}); got != want {
			t.Errorf("X-Should-Retry %q: retryable is %v, want %v", header, got, want)
		}
	}
	for status, want := range map[int]wire.AssistantError{408: wire.ErrorServer, 409: wire.ErrorServer, 429: wire.ErrorRateLimit, 418: wire.ErrorUnknown} {
		if got := Code(&model.Error{Status: status}); got != want {
			t.Errorf("status %d: got %s, want %s", status, got, want)
		}
	}
}

func TestLoopFallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sends, fallbacks := 0, 1
		l := Loop{MaxRetries: 4, FallBack: func(string) bool { fallbacks--; return fallbacks >= 0 }}
		if err := l.Do(t.Context(), func() error { sends++; return overloaded }); err != overloaded {
			t.Errorf("got %v, want %v", err, overloaded)
		}
		if sends != 3+5 {
			t.Errorf("got %d requests, want 3 and 5", sends)
		}
	})
}

// TestLoopRepairs checks that a repaired request is sent again at once and costs no retry.
func TestLoopRepairs(t *testing.T) {
	repairs, sends := 3, 0
	l := Loop{Repair: func(error, *model.Error, bool) bool { repairs--; return repairs >= 0 }}
	if err := l.Do(t.Context(), func() error { sends++; return refused }); err != refused || sends != 4 {
		t.Errorf("got %v after %d requests, want %v after 4", err, sends, refused)
	}
}

// TestLoopEndsWithContext checks that a wait ends with the context.
func TestLoopEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second/4, func() { cancel(stop) })
		l := Loop{MaxRetries: 10}
		if err := l.Do(ctx, func() error { return broken }); err != stop {
			t.Errorf("got %v, want %v", err, stop)
		}
	})
}

// A fakeModel is a model that returns a given stream.
type fakeModel func(ctx context.Context, yield func(model.Event, error) bool)

func (f fakeModel) Stream(ctx context.Context, _ model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) { f(ctx, yield) }
}

// read returns the number of events in a stream, and the error that ended it.
func read(s *Stream) (events int, err error) {
	defer s.Close()
	for {
		select {
		case it, ok := <-s.Items:
			if !ok || it.Err != nil {
				return events, s.Err(it.Err)
			}
			events++
		case <-s.Ctx.Done():
			return events, s.Err(context.Cause(s.Ctx))
		}
	}
}

// TestStream checks that a stream ends when its model ends, fails, panics or is silent,
// even if the model does not stop.
func TestStream(t *testing.T) {
	ping := model.Event{Data: []byte(`{"type":"ping"}`)}
	for _, tt := range []struct {
		name   string
		model  fakeModel
		events int
		want   string
	}{
		{"an end", func(_ context.Context, yield func(model.Event, error) bool) { yield(ping, nil) }, 1, ""},
		{"a failure", func(_ context.Context, yield func(model.Event, error) bool) { yield(model.Event{}, refused) }, 0, "refused"},
		{"no JSON", func(_ context.Context, yield func(model.Event, error) bool) {
			yield(model.Event{Data: []byte("{")}, nil)
		}, 0, "not JSON"},
		{"a panic", func(context.Context, func(model.Event, error) bool) { panic("oops") }, 0, "oops"},
		{"pauses", func(_ context.Context, yield func(model.Event, error) bool) {
			for range 3 {
				time.Sleep(50 * time.Second)
				yield(ping, nil)
			}
		}, 3, ""},
		{"silence", func(ctx context.Context, yield func(model.Event, error) bool) {
			yield(ping, nil)
			<-ctx.Done()
			yield(model.Event{}, ctx.Err())
		}, 1, "1m0s"},
		{"silence of a model that does not stop", func(context.Context, func(model.Event, error) bool) { time.Sleep(time.Hour) }, 0, "1m0s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			events, err := read(Open(t.Context(), tt.model, model.Request{}, time.Minute, false, slog.New(slog.DiscardHandler)))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if events != tt.events || (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%s: got %d events and %q, want %d and %q", tt.name, events, got, tt.events, tt.want)
			}
			time.Sleep(2 * time.Hour) // inside the bubble: the model that does not stop ends
		})
	}
}
