package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/wire"
)

// A hostConn is a connection to a server that runs in the host. Each message is a
// request to the host; its response is the response of the server.
type hostConn struct {
	name     string
	send     func(ctx context.Context, server string, message json.RawMessage) (json.RawMessage, error)
	incoming chan jsonrpc.Message // responses
	pushed   chan jsonrpc.Message // messages that the server sends on its own
	life     context.Context      // ends when the connection is closed
	close    context.CancelFunc
	gate     gate
	wg       sync.WaitGroup

	mu       sync.Mutex
	manifest *wire.MCPManifest // the parts that were not requested yet
}

func newHostConn(s *server) *hostConn {
	c := &hostConn{name: s.name, send: s.m.opts.Host, incoming: make(chan jsonrpc.Message), pushed: make(chan jsonrpc.Message, 256)}
	c.life, c.close = context.WithCancel(context.Background())
	if UsableManifest(s.manifest) {
		m := *s.manifest
		c.manifest = &m
	}
	return c
}

func (c *hostConn) Connect(context.Context) (mcp.Connection, error) { return c, nil }

func (c *hostConn) end()                    { c.wg.Wait() }
func (c *hostConn) explain(err error) error { return err }
func (c *hostConn) SessionID() string       { return "" }

func (c *hostConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.close()
	return nil
}

// spawn runs f in a goroutine that end waits for. It returns false without running f if
// the connection is closed.
func (c *hostConn) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return false
	}
	c.wg.Go(f)
	return true
}

func (c *hostConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case m := <-c.incoming:
		return m, nil
	case m := <-c.pushed:
		return m, nil
	case <-c.life.Done():
		return nil, io.EOF
	}
}

// put queues a message for reading.
func (c *hostConn) put(m jsonrpc.Message) {
	select {
	case c.incoming <- m:
	case <-c.life.Done():
	}
}

func (c *hostConn) Write(ctx context.Context, m jsonrpc.Message) error {
	m = public(m)
	raw, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	c.gate.requestAnswered(m)
	r, _ := m.(*jsonrpc.Request)
	if r != nil && c.answerFromManifest(r) {
		return nil
	}
	life, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	if !c.spawn(func() {
		defer close(done)
		defer cancel()
		defer context.AfterFunc(c.life, cancel)()
		answer, err := c.send(life, c.name, raw)
		if r != nil && r.IsCall() {
			c.put(response(r.ID, answer, err))
		}
	}) {
		cancel()
		return io.ErrClosedPipe
	}
	if r == nil || r.IsCall() {
		return nil
	}
	// Send later messages only after the host has received the notification.
	select {
	case <-done:
	case <-ctx.Done():
	case <-c.life.Done():
	case <-time.After(time.Second):
	}
	return nil
}

// response converts the response of the host.
func response(id jsonrpc.ID, answer json.RawMessage, err error) *jsonrpc.Response {
	var m struct {
		Result json.RawMessage `json:"result"`
		Error  *jsonrpc.Error  `json:"error"`
	}
	if err == nil {
		err = json.Unmarshal(answer, &m)
	}
	if err == nil && m.Error != nil {
		err = m.Error
	}
	if err == nil && m.Result == nil {
		err = errors.New("the host answered without a result")
	}
	if err != nil {
		var coded *jsonrpc.Error
		if !errors.As(err, &coded) {
			coded = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
		}
		return &jsonrpc.Response{ID: id, Error: coded}
	}
	return &jsonrpc.Response{ID: id, Result: m.Result}
}

// answerFromManifest answers the first requests from the manifest.
func (c *hostConn) answerFromManifest(r *jsonrpc.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.manifest == nil {
		return false
	}
	var result json.RawMessage
	switch r.Method {
	case "initialize":
		result = c.manifest.InitializeResult
	case "notifications/initialized":
		if c.manifest.ToolsListResult == nil {
			c.manifest = nil
		}
		return true
	case "tools/list":
		result = c.manifest.ToolsListResult
		c.manifest = nil
	default:
		return false
	}
	if c.life.Err() == nil {
		c.wg.Go(func() { c.put(&jsonrpc.Response{ID: r.ID, Result: result}) })
	}
	return true
}

// UsableManifest reports whether a manifest can answer the first requests.
func UsableManifest(m *wire.MCPManifest) bool {
	var r struct {
		Version string `json:"protocolVersion"`
	}
	return m != nil && json.Unmarshal(m.InitializeResult, &r) == nil && slices.Contains(mcp.SupportedProtocolVersions(), r.Version)
}

// deliver queues a message that the server sends on its own. It does not block: excess
// messages are dropped.
func (c *hostConn) deliver(raw json.RawMessage) {
	m, err := jsonrpc.DecodeMessage(raw)
	if err != nil {
		return
	}
	if m, err = c.gate.pass(m); err != nil || m == nil {
		return
	}
	select {
	case c.pushed <- m:
	default:
	}
}
