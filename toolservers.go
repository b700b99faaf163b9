package parley

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/wire"
)

// MCP servers that run in this process.
//
// A server speaks JSON-RPC over a toolConn, which tracks one run of it: the calls that
// wait for a response, and the requests of the server that do. The other end of a
// toolConn is an agent, whose messages come in control requests (toolServers), or
// standard input and output (ServeTools).

// toolServers are the servers of one session.
type toolServers struct {
	s *session

	mu      sync.Mutex
	servers map[string]*mcp.Server
	runs    map[string]*serverRun // the last run of each server
	all     []*serverRun          // the runs that may not have ended
	closed  bool
}

// A serverRun is a server that runs for a session, from one initialize to the next.
type serverRun struct {
	*toolConn
	t       *toolServers
	name    string
	ended   chan struct{} // closed when the server has ended and none of its tools is running
	drained chan struct{} // closed when no more responses come

	// Messages of the server, in order. forward reads them from here, so that the
	// server never waits for the agent.
	mu     sync.Mutex
	queue  []*outgoing
	queued chan struct{} // holds a token when there is something new
	lost   bool          // something was dropped, and that was reported
	busy   int           // messages that are queued or unacknowledged
}

// maxForwarded is how many messages of a server may be queued for the agent. Further
// ones are dropped.
const maxForwarded = 1024

func newToolServers(s *session, servers map[string]*mcp.Server) *toolServers {
	t := &toolServers{s: s, servers: servers, runs: map[string]*serverRun{}}
	for _, server := range servers {
		guardServer(server)
	}
	return t
}

// mcpMessage handles a message to one of the servers.
func (s *session) mcpMessage(ctx context.Context, req *wire.MCPMessage) (any, error) {
	m, fault := parseRPC(req.Message)
	if fault == nil {
		var answer json.RawMessage
		if s.servers == nil {
			fault = noServer(req.ServerName)
		} else {
			answer, fault = s.servers.message(ctx, req.ServerName, m)
		}
		if fault == nil {
			return &wire.MCPMessageResponse{MCPResponse: answer}, nil
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return &wire.MCPMessageResponse{MCPResponse: encodeResponse(m.ID, nil, fault)}, nil
}

func noServer(name string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("there is no MCP server %q in the host", name)}
}

// acknowledgement is the response to messages that need none.
var acknowledgement = json.RawMessage(`{"jsonrpc":"2.0","result":{},"id":0}`)

// message passes a message to a server, and returns its response.
func (t *toolServers) message(ctx context.Context, name string, m *rpcMessage) (json.RawMessage, *jsonrpc.Error) {
	run, fault := t.run(name, m)
	if fault != nil {
		return nil, fault
	}
	call, fault := run.accept(m)
	if fault != nil {
		return nil, fault
	}
	if call == nil {
		return acknowledgement, nil
	}
	select {
	case answer := <-call.answer:
		return answer, nil
	case <-ctx.Done():
		run.withdraw(call)
		return nil, internalError(context.Cause(ctx))
	case <-run.drained:
	}
	select {
	case answer := <-call.answer: // it arrived just before the end
		return answer, nil
	default:
		return nil, serverEnded(name)
	}
}

func serverEnded(name string) *jsonrpc.Error {
	return internalError(fmt.Errorf("the MCP server %q has ended", name))
}

// run returns the run of a server for a message. The first message starts a run, and
// each initialize starts a new one. After a server ended by itself, only initialize
// does.
func (t *toolServers) run(name string, m *rpcMessage) (*serverRun, *jsonrpc.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	server := t.servers[name]
	switch {
	case server == nil:
		return nil, noServer(name)
	case t.closed:
		return nil, internalError(errors.New("the session is over"))
	}
	run := t.runs[name]
	initialize := m.isCall() && m.Method == "initialize"
	if run != nil && !initialize {
		if run.isClosed() {
			return nil, serverEnded(name)
		}
		return run, nil
	}
	if run != nil {
		run.Close()
	}
	// An agent that received the server's description beforehand starts without
	// initialize.
	state := &mcp.ServerSessionState{}
	if !initialize {
		state.NegotiatedProtocolVersion = "2025-11-25"
		state.InitializeParams = &mcp.InitializeParams{
			ProtocolVersion: state.NegotiatedProtocolVersion,
			Capabilities:    &mcp.ClientCapabilities{},
			ClientInfo:      &mcp.Implementation{Name: "agent"},
		}
	}
	run = &serverRun{t: t, name: name, ended: make(chan struct{}), drained: make(chan struct{}), queued: make(chan struct{}, 1)}
	run.toolConn = newToolConn(run.enqueue)
	serving, err := server.Connect(context.WithValue(t.s.ctx, sessionKey{}, t.s), run.toolConn, &mcp.ServerSessionOptions{State: state})
	if err != nil {
		return nil, internalError(err)
	}
	live := t.all[:0]
	for _, r := range t.all {
		select {
		case <-r.ended:
		default:
			live = append(live, r)
		}
	}
	t.all = append(live, run)
	t.runs[name] = run
	go func() {
		defer close(run.ended)
		serving.Wait()
		serving.Close() // ends its keep-alive, too
		run.Close()
	}()
	t.s.running.Go(run.forward)
	return run, nil
}

// close ends all runs. It cancels the contexts of running tools and gives them a little
// time to return.
func (t *toolServers) close() {
	t.mu.Lock()
	t.closed = true
	runs := t.all
	t.mu.Unlock()
	for _, run := range runs {
		run.Close()
	}
	grace := time.NewTimer(handlerGrace)
	defer grace.Stop()
	late := false
	for _, run := range runs {
		if !late {
			select {
			case <-run.ended:
			case <-grace.C:
				late = true
			}
		}
		select {
		case <-run.ended:
		default:
			t.s.warn(fmt.Errorf("parley: a tool of the MCP server %q still runs though its context has ended", run.name))
		}
	}
}

// enqueue queues a message of the server. It does not wait.
func (r *serverRun) enqueue(o *outgoing) error {
	if o.request != nil && o.request.Method == "ping" && o.request.IsCall() {
		r.reply(o.request.ID, &jsonrpc.Response{Result: json.RawMessage("{}")})
		return nil
	}
	r.mu.Lock()
	if o.request != nil && r.busy >= maxForwarded {
		first := !r.lost
		r.lost = true
		r.mu.Unlock()
		if first {
			r.t.s.warn(fmt.Errorf("parley: the MCP server %q sends more than the agent reads: messages are lost", r.name))
		}
		return rejected("the agent does not accept messages")
	}
	if o.request != nil {
		r.busy++
	}
	r.queue = append(r.queue, o)
	r.mu.Unlock()
	select {
	case r.queued <- struct{}{}:
	default:
	}
	return nil
}

// forward delivers the messages of the server: responses to their calls, requests and
// notifications to the agent. It writes notifications that a tool sent before its
// result before that result.
func (r *serverRun) forward() {
	s := r.t.s
	ctx, cancel := context.WithCancel(s.ctx)
	var acknowledged sync.WaitGroup
	for over := false; !over; {
		select {
		case <-r.queued:
		case <-r.closed:
			over = true // only the last responses are queued
		}
		r.mu.Lock()
		queue := r.queue
		r.queue = nil
		r.mu.Unlock()
		for _, o := range queue {
			switch {
			case o.call != nil:
				o.call.answer <- o.raw
				continue
			case over:
				continue
			}
			req := &wire.MCPMessage{ServerName: r.name, Message: o.raw}
			id, answer, err := s.request(req)
			if err != nil {
				r.forwarded(o, nil, err)
				continue
			}
			acknowledged.Go(func() {
				resp, err := s.await(ctx, req, id, answer, s.cfg.controlTimeout)
				r.forwarded(o, resp, err)
			})
		}
	}
	close(r.drained)
	cancel()
	acknowledged.Wait()
}

// forwarded is called with the agent's response to a message. The answer to a request
// usually comes in a separate message; if none can come, the server gets an error.
func (r *serverRun) forwarded(o *outgoing, resp *wire.Response, err error) {
	r.mu.Lock()
	r.busy--
	r.mu.Unlock()
	if !o.request.IsCall() {
		if err != nil && !r.isClosed() {
			r.t.s.log.Warn("a notification of an MCP server was not taken", "server", r.name, "method", o.request.Method, "error", err)
		}
		return
	}
	if err != nil {
		r.reply(o.request.ID, &jsonrpc.Response{Error: internalError(err)})
		return
	}
	var payload wire.MCPMessageResponse
	if json.Unmarshal(resp.Response, &payload) == nil && len(payload.MCPResponse) > 0 {
		if m, fault := parseRPC(payload.MCPResponse); fault == nil && m.isResponse() {
			r.accept(m) // another way to answer
		}
	}
}

// Panics.

// guarded are the servers that have the middleware recoverPanics.
var guarded struct {
	sync.Mutex
	servers map[weak.Pointer[mcp.Server]]bool
}

// guardServer keeps a panic in a server of the host from ending the process while a
// session serves it.
func guardServer(server *mcp.Server) {
	p := weak.Make(server)
	guarded.Lock()
	defer guarded.Unlock()
	if guarded.servers[p] {
		return
	}
	if guarded.servers == nil {
		guarded.servers = map[weak.Pointer[mcp.Server]]bool{}
	}
	guarded.servers[p] = true
	server.AddReceivingMiddleware(recoverPanics)
	runtime.AddCleanup(server, func(p weak.Pointer[mcp.Server]) {
		guarded.Lock()
		defer guarded.Unlock()
		delete(guarded.servers, p)
	}, p)
}

// recoverPanics turns panics into responses. It ignores calls that no session serves.
func recoverPanics(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if ctx.Value(sessionKey{}) == nil {
			return next(ctx, method, req)
		}
		what := "MCP method " + method
		if call, ok := req.(*mcp.CallToolRequest); ok {
			what = "tool " + call.Params.Name
		}
		res, err := protect(what, func() (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if call, ok := res.(*mcp.CallToolResult); ok && err == nil && call != nil {
				// The MCP SDK sends no response at all if it cannot encode one.
				if _, raw := call.StructuredContent.(json.RawMessage); call.StructuredContent != nil && !raw {
					data, err := encodeJSON(call.StructuredContent)
					if err != nil {
						return nil, fmt.Errorf("the structured content of the result cannot be encoded: %w", err)
					}
					whole := *call
					whole.StructuredContent = json.RawMessage(data)
					return &whole, nil
				}
			}
			return res, err
		})
		failed, ok := err.(*CallbackError)
		if !ok {
			return res, err
		}
		reportPanic(ctx, failed)
		if method == methodCallTool {
			return errorResult(failed), nil
		}
		return nil, internalError(errors.New(strings.TrimPrefix(failed.Error(), "parley: ")))
	}
}

// JSON-RPC.

// An rpcMessage is a JSON-RPC message as received. Ids stay verbatim.
type rpcMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *jsonrpc.Error  `json:"error"`
}

func (m *rpcMessage) hasID() bool      { return len(m.ID) > 0 && string(m.ID) != "null" }
func (m *rpcMessage) isCall() bool     { return m.Method != "" && m.hasID() }
func (m *rpcMessage) isResponse() bool { return m.Method == "" && m.hasID() }

// parseRPC parses a message. The message is never nil.
func parseRPC(data []byte) (*rpcMessage, *jsonrpc.Error) {
	m := &rpcMessage{}
	if err := json.Unmarshal(data, m); err != nil {
		m.ID = nil
		if json.Valid(data) {
			return m, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "not a JSON-RPC message"}
		}
		return m, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "parse error: " + err.Error()}
	}
	if m.Method == "" && (!m.isResponse() || m.Result == nil && m.Error == nil) {
		return m, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "not a JSON-RPC message: it has no method"}
	}
	if !m.hasID() {
		m.ID = nil
		if m.Method == "initialized" {
			m.Method = "notifications/initialized" // some clients use this name
		}
	}
	if m.Method == "initialize" {
		m.Params = withVersion(m.Params)
	}
	return m, nil
}

// withVersion adds the protocol version to the parameters of initialize if they lack
// one: the first version, which did not require it.
func withVersion(params json.RawMessage) json.RawMessage {
	var p map[string]json.RawMessage
	if len(params) > 0 && json.Unmarshal(params, &p) != nil {
		return params
	}
	if _, ok := p["protocolVersion"]; ok {
		return params
	}
	if p == nil {
		p = map[string]json.RawMessage{}
	}
	p["protocolVersion"] = json.RawMessage(`"2024-11-05"`)
	out, err := json.Marshal(p)
	if err != nil {
		return params
	}
	return out
}

// rpcKey returns the MCP SDK's form of an id. The SDK distinguishes strings, and
// integers that a float64 holds; other numbers become strings that nobody else uses.
func rpcKey(id json.RawMessage) (jsonrpc.ID, *jsonrpc.Error) {
	var v any
	if json.Unmarshal(id, &v) == nil {
		switch n := v.(type) {
		case string:
			key, _ := jsonrpc.MakeID(n)
			return key, nil
		case float64:
			if i := int64(n); float64(i) == n && i < maxExact && i > -maxExact {
				key, _ := jsonrpc.MakeID(n)
				return key, nil
			}
			key, _ := jsonrpc.MakeID("\x00" + string(id))
			return key, nil
		}
	} else if _, err := strconv.ParseFloat(string(id), 64); errors.Is(err, strconv.ErrRange) {
		key, _ := jsonrpc.MakeID("\x00" + string(id))
		return key, nil
	}
	return jsonrpc.ID{}, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "id must be a string or a number"}
}

func internalError(err error) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
}

// rejected returns the error for one message that cannot be sent. The code makes the
// MCP SDK keep the connection open.
func rejected(why string) error { return &jsonrpc.Error{Code: -32005, Message: why} }

func encodeResponse(id, result json.RawMessage, failure error) json.RawMessage {
	resp := struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  json.RawMessage `json:"result,omitempty"`
		Error   *jsonrpc.Error  `json:"error,omitempty"`
	}{Version: "2.0", ID: id, Result: result}
	if len(id) == 0 {
		resp.ID = json.RawMessage("null")
	}
	switch {
	case failure != nil:
		resp.Result = nil
		resp.Error = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: failure.Error()}
		var rpc *jsonrpc.Error
		if errors.As(failure, &rpc) {
			resp.Error.Data = rpc.Data
			if rpc.Code != 0 {
				resp.Error.Code = rpc.Code
			}
		}
	case len(result) == 0:
		resp.Result = json.RawMessage("{}")
	}
	data, err := encodeJSON(resp)
	if err != nil {
		return encodeResponse(id, nil, fmt.Errorf("the answer cannot be encoded: %w", err))
	}
	return data
}

// A toolConn connects one run of a server with the senders of its messages. It is the
// server's [mcp.Transport] and [mcp.Connection].
type toolConn struct {
	send   func(*outgoing) error // sends the server's messages, in order
	closed chan struct{}

	mu      sync.Mutex
	inbox   []jsonrpc.Message // messages that the server has not read
	arrived chan struct{}     // holds a token when there is something new
	calls   map[jsonrpc.ID]*toolCall
	open    int                 // calls without a sent response
	idle    chan struct{}       // closed when there are none; nil if nobody waits for that
	asked   map[jsonrpc.ID]bool // requests of the server that wait for a response
	silent  bool                // nobody responds to the server any more
	shut    bool                // closed is closed

	// Cancellations that arrived before the calls they cancel: control requests may
	// overtake each other.
	early map[jsonrpc.ID]time.Time
}

// A toolCall is a request that waits for the server's response.
type toolCall struct {
	id     json.RawMessage // verbatim
	key    jsonrpc.ID
	answer chan json.RawMessage // has capacity for the one response
}

// An outgoing message is one that a server sends: the response to a call, or a request
// or notification.
type outgoing struct {
	raw     json.RawMessage
	call    *toolCall
	request *jsonrpc.Request
}

func newToolConn(send func(*outgoing) error) *toolConn {
	return &toolConn{
		send:    send,
		closed:  make(chan struct{}),
		arrived: make(chan struct{}, 1),
		calls:   map[jsonrpc.ID]*toolCall{},
		asked:   map[jsonrpc.ID]bool{},
		early:   map[jsonrpc.ID]time.Time{},
	}
}

// Connect implements [mcp.Transport].
func (c *toolConn) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// SessionID implements [mcp.Connection].
func (c *toolConn) SessionID() string { return "" }

// Read returns the server's next message.
func (c *toolConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		c.mu.Lock()
		if c.shut {
			c.mu.Unlock()
			return nil, io.EOF
		}
		if len(c.inbox) > 0 {
			m := c.inbox[0]
			c.inbox[0] = nil
			c.inbox = c.inbox[1:]
			c.mu.Unlock()
			return m, nil
		}
		c.mu.Unlock()
		select {
		case <-c.arrived:
		case <-c.closed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Write sends a message of the server.
func (c *toolConn) Write(_ context.Context, m jsonrpc.Message) error {
	o := &outgoing{}
	c.mu.Lock()
	if c.shut {
		c.mu.Unlock()
		return mcp.ErrConnectionClosed
	}
	switch m := m.(type) {
	case *jsonrpc.Response:
		o.call = c.calls[m.ID]
		delete(c.calls, m.ID)
		c.mu.Unlock()
		if o.call == nil {
			return nil
		}
		o.raw = encodeResponse(o.call.id, m.Result, m.Error)
		err := c.send(o)
		c.callAnswered()
		return err
	case *jsonrpc.Request:
		o.request = m
		if m.IsCall() {
			if c.silent {
				c.mu.Unlock()
				return rejected("nobody answers any more")
			}
			c.asked[m.ID] = true
		}
	}
	c.mu.Unlock()
	var err error
	if o.raw, err = jsonrpc.EncodeMessage(m); err == nil {
		err = c.send(o)
	}
	if err != nil && o.request.IsCall() {
		c.mu.Lock()
		delete(c.asked, o.request.ID)
		c.mu.Unlock()
	}
	return err
}

// Close ends the connection: the server reads its end, which cancels its calls.
func (c *toolConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.shut {
		c.shut = true
		c.inbox = nil
		close(c.closed)
	}
	return nil
}

func (c *toolConn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shut
}

// push queues a message for the server. The caller holds c.mu.
func (c *toolConn) push(m jsonrpc.Message) {
	if c.shut {
		return
	}
	c.inbox = append(c.inbox, m)
	select {
	case c.arrived <- struct{}{}:
	default:
	}
}

const (
	methodCancelled = "notifications/cancelled"
	earlyTime       = time.Second // how long a cancellation waits for the call that it cancels
)

// accept passes a message to the server. If it is a call, the response comes through
// the returned toolCall.
func (c *toolConn) accept(m *rpcMessage) (*toolCall, *jsonrpc.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case m.isCall():
		key, fault := rpcKey(m.ID)
		if fault != nil {
			return nil, fault
		}
		if c.calls[key] != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf("the request %s is still being worked on", m.ID)}
		}
		call := &toolCall{id: m.ID, key: key, answer: make(chan json.RawMessage, 1)}
		c.calls[key] = call
		c.open++
		c.push(&jsonrpc.Request{ID: key, Method: m.Method, Params: m.Params})
		if at, ok := c.early[key]; ok {
			delete(c.early, key)
			if time.Since(at) < earlyTime {
				c.cancel(key)
			}
		}
		return call, nil
	case m.isResponse():
		key, fault := rpcKey(m.ID)
		if fault != nil || !c.asked[key] {
			return nil, nil // nobody waits for it
		}
		delete(c.asked, key)
		resp := &jsonrpc.Response{ID: key, Result: m.Result}
		if m.Error != nil {
			resp.Error = m.Error
		}
		c.push(resp)
		return nil, nil
	case m.Method == methodCancelled:
		var p struct {
			RequestID json.RawMessage `json:"requestId"`
		}
		if json.Unmarshal(m.Params, &p) != nil {
			return nil, nil
		}
		key, fault := rpcKey(p.RequestID)
		if fault != nil {
			return nil, nil
		}
		if c.calls[key] != nil {
			c.cancel(key)
			return nil, nil
		}
		if len(c.early) >= 64 {
			clear(c.early)
		}
		c.early[key] = time.Now()
		return nil, nil
	}
	c.push(&jsonrpc.Request{Method: m.Method, Params: m.Params})
	return nil, nil
}

// cancel notifies the server that nobody waits for a response. The caller holds c.mu.
func (c *toolConn) cancel(key jsonrpc.ID) {
	params, _ := json.Marshal(map[string]any{"requestId": key.Raw()})
	c.push(&jsonrpc.Request{Method: methodCancelled, Params: params})
}

// withdraw cancels a call. Its id stays in use until the server is done with it.
func (c *toolConn) withdraw(call *toolCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[call.key] == call {
		c.cancel(call.key)
	}
}

// reply responds to a request of the server.
func (c *toolConn) reply(id jsonrpc.ID, resp *jsonrpc.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked[id] {
		delete(c.asked, id)
		resp.ID = id
		c.push(resp)
	}
}

// callAnswered records that a call was answered.
func (c *toolConn) callAnswered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open--; c.open == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// drain waits until all calls are answered. Requests of the server fail from then on.
func (c *toolConn) drain() {
	c.mu.Lock()
	c.silent = true
	for id := range c.asked {
		c.push(&jsonrpc.Response{ID: id, Error: internalError(errors.New("the client has ended its input"))})
	}
	clear(c.asked)
	idle := make(chan struct{})
	if c.open == 0 {
		close(idle)
	} else {
		c.idle = idle
	}
	c.mu.Unlock()
	select {
	case <-idle:
	case <-c.closed:
	}
}

// Standard input and output.

// ServeTools serves tools to the process that started this one, as an MCP server on
// standard input and output. A complete server is
//
//	func main() {
//		if err := parley.ServeTools(context.Background(), add, multiply); err != nil {
//			log.Fatal(err)
//		}
//	}
//
// An agent starts it as one of [Options.MCPServers]. Nothing else may write to standard
// output.
//
// ServeTools returns nil when the input has ended and every call was answered. When ctx
// ends, it cancels running tools and returns the cause. The server is named after the
// program.
func ServeTools(ctx context.Context, tools ...*Tool) error {
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	return ServeMCP(ctx, ToolServer(name, tools...), os.Stdin, os.Stdout)
}

// ServeMCP serves an MCP server to a client that reads and writes lines, as
// [ServeTools] does with only tools. It accepts old forms of requests: initialize
// without a version, "initialized" without its prefix. It responds to a malformed
// message with an error code of JSON-RPC, and keeps the connection open.
func ServeMCP(ctx context.Context, server *mcp.Server, in io.Reader, out io.Writer) error {
	var mu sync.Mutex
	write := func(line []byte) error {
		mu.Lock()
		defer mu.Unlock()
		_, err := out.Write(append(line, '\n'))
		return err
	}
	conn := newToolConn(func(o *outgoing) error { return write(o.raw) })
	serving, err := server.Connect(ctx, conn, nil)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	// The reader cannot be woken, so it outlives a cancelled context.
	read := make(chan error, 1)
	go func() {
		defer conn.Close()
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, wire.DefaultMaxLine)
		for lines.Scan() && !conn.isClosed() {
			line := bytes.TrimSpace(bytes.TrimPrefix(lines.Bytes(), []byte("\ufeff")))
			if len(line) == 0 {
				continue
			}
			m, fault := parseRPC(line)
			if fault == nil {
				_, fault = conn.accept(m)
			}
			if fault != nil {
				write(encodeResponse(m.ID, nil, fault))
			}
		}
		conn.drain()
		read <- lines.Err()
	}()

	ended := make(chan error, 1)
	go func() {
		ended <- serving.Wait()
		serving.Close()
	}()
	select {
	case err = <-ended:
	case <-ctx.Done():
		select {
		case <-ended:
		case <-time.After(handlerGrace):
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case readErr := <-read:
		if readErr != nil {
			return fmt.Errorf("parley: reading standard input: %w", readErr)
		}
	default:
	}
	if err != nil {
		return fmt.Errorf("parley: serving tools: %w", err)
	}
	return nil
}
