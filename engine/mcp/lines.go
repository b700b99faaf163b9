package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// Limits of what a server may send.
var maxLine = 32 << 20 // one message, in bytes; smaller in tests

const (
	maxRequests = 64  // unanswered requests
	maxNoise    = 500 // messages per second that are not responses; more are delayed
)

// A lineConn is a connection to a process with one message per line. Lines that are not
// messages are skipped, as many servers print greetings.
type lineConn struct {
	w        io.WriteCloser
	r        io.ReadCloser
	incoming chan jsonrpc.Message
	outgoing chan []byte
	closed   chan struct{}
	once     sync.Once
	gate     gate

	mu    sync.Mutex
	err   error  // why reading has ended
	noise string // the last line that was not a message
}

func newLineConn(r io.ReadCloser, w io.WriteCloser) *lineConn {
	c := &lineConn{r: r, w: w, incoming: make(chan jsonrpc.Message), outgoing: make(chan []byte, 16), closed: make(chan struct{})}
	go c.readLines()
	go c.writeLines()
	return c
}

func (c *lineConn) SessionID() string { return "" }

func (c *lineConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.w.Close()
		c.r.Close()
	})
	return nil
}

// fail records why reading has ended, unless we closed the connection.
func (c *lineConn) fail(err error) {
	select {
	case <-c.closed:
		return
	default:
	}
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
}

func (c *lineConn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *lineConn) readLines() {
	defer close(c.incoming)
	r := bufio.NewReaderSize(c.r, 64<<10)
	for {
		line, err := readLine(r, maxLine)
		if err != nil {
			c.fail(err)
			return
		}
		for _, part := range batch(line) {
			m, err := jsonrpc.DecodeMessage(part)
			if err != nil {
				c.mu.Lock()
				c.noise = clip(string(part), 200)
				c.mu.Unlock()
				c.gate.slow(c.closed)
				continue
			}
			if _, ok := m.(*jsonrpc.Request); ok {
				c.gate.slow(c.closed)
			}
			m, err = c.gate.pass(m)
			if err != nil {
				c.fail(err)
				return
			}
			if m == nil {
				continue
			}
			select {
			case c.incoming <- m:
			case <-c.closed:
				return
			}
		}
	}
}

// readLine reads a line that is not empty.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, fmt.Errorf("the server sent a line of more than %d MB", limit>>20)
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
	}
}

// batch splits an array of messages, as older servers send them.
func batch(line []byte) []json.RawMessage {
	var list []json.RawMessage
	if line[0] == '[' && json.Unmarshal(line, &list) == nil {
		return list
	}
	return []json.RawMessage{line}
}

func (c *lineConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case m, ok := <-c.incoming:
		if !ok {
			if err := c.failure(); err != nil {
				return nil, err
			}
			return nil, io.EOF
		}
		return m, nil
	case <-c.closed:
		return nil, io.EOF
	}
}

func (c *lineConn) Write(ctx context.Context, m jsonrpc.Message) error {
	line, err := jsonrpc.EncodeMessage(public(m))
	if err != nil {
		return err
	}
	c.gate.requestAnswered(m)
	select {
	case c.outgoing <- append(line, '\n'):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed:
		return io.ErrClosedPipe
	}
}

// writeLines writes in a separate goroutine, so that a server that does not read blocks
// callers only until their contexts end.
func (c *lineConn) writeLines() {
	for {
		select {
		case line := <-c.outgoing:
			if _, err := c.w.Write(line); err != nil {
				c.fail(fmt.Errorf("the server does not read: %w", err))
				c.r.Close()
				return
			}
		case <-c.closed:
			return
		}
	}
}

// A gate filters what a server may send on its own, and slows down one that floods.
type gate struct {
	mu       sync.Mutex
	requests map[jsonrpc.ID]bool // not answered yet

	// Used only by the reading goroutine.
	since time.Time
	count int
}

// pass returns the message to handle, or nil to ignore it. Its error ends the
// connection.
func (g *gate) pass(m jsonrpc.Message) (jsonrpc.Message, error) {
	r, ok := m.(*jsonrpc.Request)
	if !ok {
		return m, nil // a response
	}
	if !r.IsCall() {
		switch r.Method {
		case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/progress", "notifications/cancelled", "notifications/elicitation/complete":
			return m, nil
		}
		return nil, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.requests) >= maxRequests {
		return nil, fmt.Errorf("the server sent more than %d requests at once", maxRequests)
	}
	if g.requests == nil {
		g.requests = map[jsonrpc.ID]bool{}
	}
	g.requests[r.ID] = true
	if r.Method == "elicitation/create" {
		return ordered(r), nil
	}
	return m, nil
}

// requestAnswered records that a request of the server was answered.
func (g *gate) requestAnswered(m jsonrpc.Message) {
	if r, ok := m.(*jsonrpc.Response); ok {
		g.mu.Lock()
		delete(g.requests, r.ID)
		g.mu.Unlock()
	}
}

// slow waits if too many messages have arrived within a second.
func (g *gate) slow(closed <-chan struct{}) {
	now := time.Now()
	if now.Sub(g.since) >= time.Second {
		g.since, g.count = now, 0
	}
	if g.count++; g.count > maxNoise {
		select {
		case <-time.After(time.Second - now.Sub(g.since)):
		case <-closed:
		}
	}
}

// orderKey is the member for the order of the properties in a schema, which the SDK
// does not keep.
const orderKey = "parley/property-order"

// ordered returns an elicitation with the order of the requested properties.
func ordered(r *jsonrpc.Request) *jsonrpc.Request {
	var params map[string]json.RawMessage
	var schema struct {
		Properties json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(r.Params, &params) != nil || json.Unmarshal(params["requestedSchema"], &schema) != nil {
		return r
	}
	names, ok := members(schema.Properties)
	if !ok {
		return r
	}
	meta := map[string]json.RawMessage{}
	json.Unmarshal(params["_meta"], &meta)
	meta[orderKey], _ = json.Marshal(names)
	params["_meta"], _ = json.Marshal(meta)
	c := *r
	c.Params, _ = json.Marshal(params)
	return &c
}

// properties returns the names of the properties of a schema, in order if it is known.
func properties(meta map[string]any, schema json.RawMessage) []string {
	var names []string
	if list, ok := meta[orderKey].([]any); ok {
		for _, name := range list {
			if s, ok := name.(string); ok {
				names = append(names, s)
			}
		}
		return names
	}
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	json.Unmarshal(schema, &s)
	return slices.Sorted(maps.Keys(s.Properties))
}

// members returns the names of the members of an object, in order.
func members(object json.RawMessage) ([]string, bool) {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	var names []string
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, false
		}
		name, _ := t.(string)
		names = append(names, name)
		var skip json.RawMessage
		if d.Decode(&skip) != nil {
			return nil, false
		}
	}
	return names, true
}
