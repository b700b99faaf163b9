package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/coder/websocket"
)

// The protocol by which an agent offers itself to a parley serve. The agent connects with the
// headers below; the server responds with those of the stream. On the [Link] the server sends
// lines: {"records":ID} asks for the records of a session, which are the response, and
// {"start":ARGS} starts the agent, whose lines follow. An agent that ended offers itself
// again.
const (
	Subprotocol    = "parley.agent.v1"
	HeaderSession  = "Parley-Session"  // the id of the session
	HeaderDir      = "Parley-Dir"      // its working directory, escaped as the path of a URL
	HeaderStream   = "Parley-Stream"   // the id of the link
	HeaderReceived = "Parley-Received" // bytes of the link that the sender has received
)

// A Request is a line of the server before the agent starts.
type Request struct {
	Records string   `json:"records,omitempty"` // the id of a session
	Start   []string `json:"start,omitempty"`   // flags of the command line
}

// An Offer is an agent that offers itself to a server, for one session.
type Offer struct {
	// URL is the address, such as "wss://parley.example.com/v1/agent". Token may be empty.
	URL, Token string
	// Session is the id of the session, and Dir is its working directory.
	Session, Dir string
	// Records returns the last records of a session on this machine, none if the session does
	// not exist.
	Records func(ctx context.Context, id string) ([]json.RawMessage, error)
	// Run runs the agent. It is called each time the server starts it.
	Run func(ctx context.Context, args []string, stream io.ReadWriter) error
	// Plain is called instead of Run for a server that is not a parley serve. The stream
	// starts at once.
	Plain func(ctx context.Context, stream io.ReadWriter) error
	// OnRetry is called with the reason before Serve connects again. It may be nil.
	OnRetry func(error)
	// Client sends the requests. Nil means [http.DefaultClient].
	Client *http.Client
}

// Serve serves until ctx ends or the server rejects the agent. If the server cannot be
// reached, Serve tries again, except the first time.
func (o *Offer) Serve(ctx context.Context) error {
	conn, resp, err := o.dial(ctx, nil)
	for err == nil {
		if conn.Subprotocol() != Subprotocol {
			stream := newLines(ctx, conn)
			defer stream.Close()
			return o.Plain(ctx, stream)
		}
		link := NewLink()
		kept := make(chan error, 1)
		go func() { kept <- o.keep(ctx, link, conn, resp) }()
		err = o.answer(ctx, link)
		link.CloseWrite()
		if err != nil {
			link.Close()
		}
		if refused := <-kept; refused != nil {
			err = refused
		}
		if err == nil {
			conn, resp, err = o.redial(ctx, nil)
		}
	}
	return err
}

// keep gives a link one connection after the other, until it ends. It returns an error if the
// server rejects the agent.
func (o *Offer) keep(ctx context.Context, link *Link, conn *websocket.Conn, resp http.Header) error {
	defer link.Close()
	stream := resp.Get(HeaderStream)
	for {
		n, err := strconv.ParseUint(resp.Get(HeaderReceived), 10, 64)
		if err != nil {
			conn.CloseNow()
			return fmt.Errorf("remote: the server sent %s %q", HeaderReceived, resp.Get(HeaderReceived))
		}
		why := link.Serve(ctx, conn, n)
		select {
		case <-link.Done():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		if o.OnRetry != nil {
			o.OnRetry(why)
		}
		conn, resp, err = o.redial(ctx, http.Header{HeaderStream: {stream}, HeaderReceived: {strconv.FormatUint(link.Received(), 10)}})
		if errors.Is(err, errGone) {
			return nil // the server has another agent, or was restarted
		}
		if err != nil {
			return err
		}
	}
}

// answer responds to the server until the agent has run.
func (o *Offer) answer(ctx context.Context, link *Link) error {
	in := bufio.NewReaderSize(link, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil // keep returns the reason
		}
		var r Request
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("remote: the server sent a line that is not a request: %w", err)
		}
		if r.Records == "" {
			return o.Run(ctx, r.Start, struct {
				io.Reader
				io.Writer
			}{in, link})
		}
		records, err := o.Records(ctx, r.Records)
		if err != nil {
			return err
		}
		if records == nil {
			records = []json.RawMessage{}
		}
		data, err := json.Marshal(records)
		if err != nil {
			return err
		}
		link.Write(append(data, '\n'))
	}
}

// errGone means that the server does not have the link.
var errGone = errors.New("remote: the server does not know this connection any more")

// refusedError means that the server rejects the agent.
type refusedError struct{ error }

func (o *Offer) dial(ctx context.Context, stream http.Header) (*websocket.Conn, http.Header, error) {
	header := http.Header{HeaderSession: {o.Session}, HeaderDir: {url.PathEscape(o.Dir)}}
	for name, values := range stream {
		header[name] = values
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return dial(ctx, o.URL, o.Token, o.Client, header, Subprotocol)
}

// redial dials until the server responds.
func (o *Offer) redial(ctx context.Context, stream http.Header) (*websocket.Conn, http.Header, error) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 30*time.Second) {
		conn, header, err := o.dial(ctx, stream)
		var refused *refusedError
		if err == nil || errors.As(err, &refused) || errors.Is(err, errGone) || ctx.Err() != nil {
			return conn, header, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}
