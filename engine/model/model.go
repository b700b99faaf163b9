// Package model is the seam between the engine and what answers it.
//
// The lingua franca is the Anthropic Messages API: a request is the body of
// POST /v1/messages as bytes, the answer is the stream of its events as bytes.
// Providers of other APIs translate at their own edge. Nothing here knows a
// network, a key or a price.
package model

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"time"
)

// A Model answers Messages API requests. It is safe for concurrent use.
type Model interface {
	// Stream sends one request and yields the events of its answer in order,
	// message_start to message_stop, without pings. An error is the last pair;
	// a failure the API reported is an [*Error]. Breaking out of the loop or
	// cancelling ctx ends the request.
	Stream(ctx context.Context, req Request) iter.Seq2[Event, error]
}

// A Counter is a [Model] that can tell how many input tokens a request has.
type Counter interface {
	CountTokens(ctx context.Context, req Request) (int64, error)
}

// A Completer is a [Model] that can answer in one piece, too, for where streams
// keep breaking. The events are made of the answer.
type Completer interface {
	Complete(ctx context.Context, req Request) iter.Seq2[Event, error]
}

// A Request is one call of the Messages API.
type Request struct {
	Body   []byte      // the JSON body; the model sets "stream" itself if it needs to
	Header http.Header // extra headers, such as anthropic-beta; may be nil

	// OnResponse, if not nil, is called once the status and the headers of the
	// answer are known, before the first event.
	OnResponse func(Response)
}

// A Response is what is known of an answer before its first event.
type Response struct {
	Status    int
	RequestID string
	Header    http.Header
}

// An Event is one server-sent event. Data is valid until the next one is asked
// for.
type Event struct {
	Type string // the type member of Data, such as "content_block_delta"
	Data []byte // the JSON of the event, as it came
}

// An Error is a failure that the API reported, before or inside a stream.
type Error struct {
	Status     int           // HTTP status; 0 when it came inside a stream
	Type       string        // such as "overloaded_error"
	Message    string        // the API's own words
	RequestID  string        // as the API named the request
	RetryAfter time.Duration // how long the API asked to wait; 0 if it did not say
	Header     http.Header   // headers of the answer; may be nil
}

// Error implements error.
func (e *Error) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("model: %s: %s", e.Type, e.Message)
	}
	return fmt.Sprintf("model: %d %s: %s", e.Status, e.Type, e.Message)
}
