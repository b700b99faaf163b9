// Package model defines the interface between the engine and models.
//
// The common format is the Anthropic Messages API: a request is the body of POST
// /v1/messages as bytes, and the answer is the stream of its events as bytes. Providers
// of other APIs translate internally. This package does not depend on a network, keys
// or prices.
package model

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"time"
)

// A Model answers requests of the Messages API. It is safe for concurrent use.
type Model interface {
	// Stream sends one request and yields the events of its answer in order, from
	// message_start to message_stop, without pings. An error is in the last pair; a
	// failure that the API reports is an [*Error]. Breaking out of the loop or
	// cancelling ctx ends the request.
	Stream(ctx context.Context, req Request) iter.Seq2[Event, error]
}

// A Counter is a [Model] that can count the input tokens of a request.
type Counter interface {
	CountTokens(ctx context.Context, req Request) (int64, error)
}

// A Completer is a [Model] that can also answer in one piece, in case streams keep
// breaking. The answer is converted to events.
type Completer interface {
	Complete(ctx context.Context, req Request) iter.Seq2[Event, error]
}

// A Request is one request of the Messages API.
type Request struct {
	Body   []byte      // the JSON body; the model sets "stream" itself if necessary
	Header http.Header // extra headers, such as anthropic-beta; may be nil

	// OnResponse, if not nil, is called once the status and the headers of the response
	// are known, before the first event.
	OnResponse func(Response)
}

// A Response is the part of a response that is known before its first event.
type Response struct {
	Status    int
	RequestID string
	Header    http.Header
}

// An Event is one server-sent event. Data is valid until the next event.
type Event struct {
	Type string // the type member of Data, such as "content_block_delta"
	Data []byte // the JSON of the event, verbatim
}

// An Error is a failure that the API reported, before or inside a stream.
type Error struct {
	Status     int           // HTTP status; 0 if it was reported inside a stream
	Type       string        // such as "overloaded_error"
	Message    string        // of the API
	RequestID  string        // the API's id of the request
	RetryAfter time.Duration // how long the API requests to wait; 0 if it does not
	Header     http.Header   // headers of the response; may be nil
}

// Error implements error.
func (e *Error) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("model: %s: %s", e.Type, e.Message)
	}
	return fmt.Sprintf("model: %d %s: %s", e.Status, e.Type, e.Message)
}
