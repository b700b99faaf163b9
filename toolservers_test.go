package parley

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/transport"
	"go.uber.org/goleak"
)

// A toolAgent is the agent's end of a connection, as far as tools need it. It responds
// to initialize, receives messages of servers, and sends the messages of a test.
type toolAgent struct {
	t    *testing.T
	peer *transport.Peer

	// took responds to a message of a server; nil means with an empty success.
	took func(server string, message json.RawMessage) (payload, failure string)

	mu      sync.Mutex
	last    int
	waiting map[string]chan string // by request id
	order   []string               // what was read, in order: "answer <id>", "message <method>"
	pushed  chan json.RawMessage   // messages of servers
}

func (a *toolAgent) Dial(context.Context, transport.Spec) (transport.Conn, error) {
	conn, peer := transport.Pipe()
	a.peer = peer
	go a.read()
	return conn, nil
}

func (a *toolAgent) read() {
	defer a.peer.Exit(0, "")
	lines := bufio.NewScanner(a.peer)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var m struct {
			Type      string `json:"type"`
			RequestID string `json:"request_id"`
			Request   struct {
				Subtype    string          `json:"subtype"`
				ServerName string          `json:"server_name"`
				Message    json.RawMessage `json:"message"`
			} `json:"request"`
			Response struct {
				RequestID string          `json:"request_id"`
				Response  json.RawMessage `json:"response"`
				Error     string          `json:"error"`
			} `json:"response"`
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			a.t.Errorf("the host wrote %s: %v", lines.Bytes(), err)
			continue
		}
		switch {
		case m.Type == "control_response":
			a.mu.Lock()
			a.order = append(a.order, "answer "+m.Response.RequestID)
			c := a.waiting[m.Response.RequestID]
			delete(a.waiting, m.Response.RequestID)
			a.mu.Unlock()
			if c == nil {
				a.t.Errorf("an answer that nobody waits for: %s", lines.Bytes())
			} else if m.Response.Error != "" {
				c <- "error: " + m.Response.Error
			} else {
				c <- string(m.Response.Response)
			}
		case m.Type == "control_request" && m.Request.Subtype == "mcp_message":
			var rpc struct {
				Method string `json:"method"`
			}
			json.Unmarshal(m.Request.Message, &rpc)
			a.mu.Lock()
			a.order = append(a.order, "message "+rpc.Method)
			a.mu.Unlock()
			payload, failure := "{}", ""
			if a.took != nil {
				payload, failure = a.took(m.Request.ServerName, m.Request.Message)
			}
			if failure != "" {
				a.write(`{"type":"control_response","response":{"subtype":"error","request_id":%q,"error":%q}}`, m.RequestID, failure)
			} else {
				a.write(`{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":%s}}`, m.RequestID, payload)
			}
			select {
			case a.pushed <- m.Request.Message:
			default:
			}
		case m.Type == "control_request":
			a.write(`{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":{}}}`, m.RequestID)
		}
	}
}

func (a *toolAgent) write(format string, args ...any) {
	if _, err := fmt.Fprintf(a.peer, format+"\n", args...); err != nil && !errors.Is(err, transport.ErrClosed) {
		a.t.Errorf("writing to the host: %v", err)
	}
}

// start sends a message to a server. The channel receives the payload of the response.
func (a *toolAgent) start(server, message string) (id string, answer chan string) {
	answer = make(chan string, 1)
	a.mu.Lock()
	a.last++
	id = fmt.Sprintf("agent-%d", a.last)
	a.waiting[id] = answer
	a.mu.Unlock()
	a.write(`{"type":"control_request","request_id":%q,"request":{"subtype":"mcp_message","server_name":%q,"message":%s}}`, id, server, message)
	return id, answer
}

// call sends a message to a server and returns the JSON-RPC response.
func (a *toolAgent) call(server, message string) string {
	a.t.Helper()
	_, answer := a.start(server, message)
	return a.await(answer)
}

func (a *toolAgent) await(answer chan string) string {
	a.t.Helper()
	select {
	case s := <-answer:
		var payload struct {
			MCPResponse json.RawMessage `json:"mcp_response"`
		}
		if err := json.Unmarshal([]byte(s), &payload); err != nil || payload.MCPResponse == nil {
			a.t.Fatalf("the host answered %s", s)
		}
		return string(payload.MCPResponse)
	case <-testwait.Late(a.t):
		a.t.Fatal("the host did not answer")
		return ""
	}
}

// connectTools connects a client with tool servers to a new agent.
func connectTools(t *testing.T, servers map[string]*mcp.Server, options ...func(*toolAgent, *Options)) (*toolAgent, *Client) {
	t.Helper()
	if _, again := leakChecked.LoadOrStore(t, true); !again {
		current := goleak.IgnoreCurrent()
		t.Cleanup(func() { goleak.VerifyNone(t, current) })
	}
	a := &toolAgent{t: t, waiting: map[string]chan string{}, pushed: make(chan json.RawMessage, 100)}
	opts := &Options{Dialer: a, ToolServers: servers}
	for _, f := range options {
		f(a, opts)
	}
	c, err := Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return a, c
}

// leakChecked are the tests that check for leaked goroutines when all their clients are
// closed.
var leakChecked sync.Map

// warnings collects the warnings of OnWarning.
type warnings struct {
	mu   sync.Mutex
	list []error
}

func (w *warnings) option(_ *toolAgent, o *Options) {
	o.OnWarning = func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.list = append(w.list, err)
	}
}

func (w *warnings) all() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.list)
}

func wantJSON(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("got %s: %v", got, err)
	}
	gs, _ := json.Marshal(g)
	ws, _ := json.Marshal(w)
	if !bytes.Equal(gs, ws) {
		t.Errorf("got  %s\nwant %s", gs, ws)
	}
}

func wantContains(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%q is not in %s", w, got)
		}
	}
}

type addInput struct {
	A int `json:"a" jsonschema:"the first number"`
	B int `json:"b,omitempty"`
}

func addTool() *Tool {
	return NewTool("add", "Adds two numbers.", func(_ context.Context, in addInput) (string, error) {
		return fmt.Sprint(in.A + in.B), nil
	})
}

const (
	initMessage = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"claude-code","version":"2"}}}`
	callAdd     = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}`
	answerAdd   = `{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"3"}]}}`
)

func TestToolServerHandshake(t *testing.T) {
	tool := addTool()
	tool.MaxResultChars = 5000
	tool.AlwaysLoad = true
	tool.Title = "Addition"
	tool.Annotations = &mcp.ToolAnnotations{ReadOnlyHint: true}
	a, _ := connectTools(t, map[string]*mcp.Server{"calc": ToolServer("calc", tool)})
	got := a.call("calc", initMessage)
	wantJSON(t, got, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"calc","version":"`+Version+`"}}}`)
	got = a.call("calc", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	wantJSON(t, got, `{"jsonrpc":"2.0","id":0,"result":{}}`)
	got = a.call("calc", `{"method":"tools/list","jsonrpc":"2.0","id":1}`)
	wantContains(t, got, `"name":"add"`, `"title":"Addition"`, `"readOnlyHint":true`,
		`"anthropic/maxResultSizeChars":5000`, `"anthropic/alwaysLoad":true`,
		`"description":"the first number"`, `"required":["a"]`)
	wantJSON(t, a.call("calc", callAdd), answerAdd)
	wantJSON(t, a.call("calc", `{"jsonrpc":"2.0","id":3,"method":"ping"}`), `{"jsonrpc":"2.0","id":3,"result":{}}`)
}

// TestToolServerWithoutHandshake checks that an agent that has the manifests of the
// servers can start with a call.
func TestToolServerWithoutHandshake(t *testing.T) {
	a, _ := connectTools(t, map[string]*mcp.Server{"calc": ToolServer("calc", addTool())})
	wantJSON(t, a.call("calc", callAdd), answerAdd)
	// It may still send initialize.
	wantContains(t, a.call("calc", initMessage), `"serverInfo"`)
	wantJSON(t, a.call("calc", callAdd), answerAdd)
	// And again.
	wantContains(t, a.call("calc", initMessage), `"serverInfo"`)
	wantJSON(t, a.call("calc", callAdd), answerAdd)
}

func TestToolServerIDs(t *testing.T) {
	a, _ := connectTools(t, map[string]*mcp.Server{"calc": ToolServer("calc", addTool())})
	for _, id := range []string{`0`, `7`, `"7"`, `""`, `"a b"`, `-1`, `1.5`, `1e3`, `2.0`, `9007199254740993`, `123456789012345678901234567890`, `1e999`} {
		got := a.call("calc", `{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`)
		wantContains(t, got, `"id":`+id+`,`, `"result":{}`)
	}
}

func TestToolServerErrors(t *testing.T) {
	a, _ := connectTools(t, map[string]*mcp.Server{"calc": ToolServer("calc", addTool())})
	tests := []struct{ name, server, message, want string }{
		{"no server", "nobody", initMessage, `{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"there is no MCP server \"nobody\" in the host"}}`},
		{"no tool", "calc", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sub"}}`, `{"jsonrpc":"2.0","id":1,"result":{"isError":true,"content":[{"type":"text","text":"unknown tool \"sub\""}]}}`},
		{"no method", "calc", `{"jsonrpc":"2.0","id":1,"method":"tools/eat"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found: \"tools/eat\""}}`},
		{"wrong arguments", "calc", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":"x"}}}`, `{"jsonrpc":"2.0","id":1,"result":{"isError":true,"content":[{"type":"text","text":"invalid arguments: validating /properties/a: type: x has type \"string\", want \"integer\""}]}}`},
		{"a batch", "calc", `[]`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"not a JSON-RPC message"}}`},
		{"nothing", "calc", `{}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"not a JSON-RPC message: it has no method"}}`},
		{"an id of another kind", "calc", `{"jsonrpc":"2.0","id":true,"method":"ping"}`, `{"jsonrpc":"2.0","id":true,"error":{"code":-32600,"message":"id must be a string or a number"}}`},
		{"an answer to nothing", "calc", `{"jsonrpc":"2.0","id":99,"result":{}}`, `{"jsonrpc":"2.0","id":0,"result":{}}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wantJSON(t, a.call(test.server, test.message), test.want)
		})
	}
	t.Run("no servers at all", func(t *testing.T) {
		a, _ := connectTools(t, nil)
		wantContains(t, a.call("calc", initMessage), `"code":-32601`)
	})
}

// blockTool returns a tool that blocks until it is released or cancelled.
func blockTool(started chan<- string, release <-chan struct{}) *Tool {
	return NewTool("block", "Waits.", func(ctx context.Context, in struct {
		Name string `json:"name"`
	}) (string, error) {
		started <- in.Name
		select {
		case <-release:
			return "released " + in.Name, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
}

func callBlock(id, name string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"block","arguments":{"name":%q}}}`, id, name)
}

func TestToolServerParallel(t *testing.T) {
	started, release := make(chan string, 10), make(chan struct{})
	a, _ := connectTools(t, map[string]*mcp.Server{"b": ToolServer("b", blockTool(started, release))})
	_, one := a.start("b", callBlock("1", "one"))
	_, two := a.start("b", callBlock(`"1"`, "two"))
	names := []string{<-started, <-started}
	slices.Sort(names)
	if !slices.Equal(names, []string{"one", "two"}) {
		t.Fatalf("started %v", names)
	}
	// The id is in use.
	wantContains(t, a.call("b", callBlock("1", "three")), `"code":-32600`, "still being worked on")
	wantContains(t, a.call("b", callBlock("1.0", "three")), `"code":-32600`)
	close(release)
	wantContains(t, a.await(one), `"id":1,`, "released one")
	wantContains(t, a.await(two), `"id":"1",`, "released two")
	wantContains(t, a.call("b", callBlock("1", "again")), "released again")
}

func TestToolServerCancel(t *testing.T) {
	started := make(chan string, 10)
	a, _ := connectTools(t, map[string]*mcp.Server{"b": ToolServer("b", blockTool(started, nil))})
	for _, id := range []string{"5", `"five"`, "5.5"} {
		_, answer := a.start("b", callBlock(id, "x"))
		<-started
		a.call("b", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`,"reason":"enough"}}`)
		wantContains(t, a.await(answer), `"id":`+id+`,`, `"isError":true`, "context canceled")
	}
	// A cancellation may arrive before its call. A call that was cancelled before does
	// not start.
	a.call("b", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":6}}`)
	wantContains(t, a.call("b", callBlock("6", "x")), `"id":6,`, "context canceled")
	// Several may.
	for _, id := range []string{"7", "8"} {
		a.call("b", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`)
	}
	for _, id := range []string{"7", "8"} {
		wantContains(t, a.call("b", callBlock(id, "x")), `"id":`+id+`,`, "context canceled")
	}
	// A malformed one does no harm.
	a.call("b", `{"jsonrpc":"2.0","method":"notifications/cancelled"}`)
	a.call("b", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`)
}

func TestToolServerWithdrawn(t *testing.T) {
	ended := make(chan error, 1)
	started := make(chan struct{})
	tool := NewTool("wait", "Waits.", func(ctx context.Context, _ struct{}) (string, error) {
		close(started)
		<-ctx.Done()
		ended <- ctx.Err()
		return "late", nil
	})
	a, _ := connectTools(t, map[string]*mcp.Server{"w": ToolServer("w", tool)})
	id, answer := a.start("w", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`)
	<-started
	a.write(`{"type":"control_cancel_request","request_id":%q}`, id)
	if err := <-ended; err != context.Canceled {
		t.Errorf("the tool's context ended with %v", err)
	}
	a.call("w", `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	select {
	case s := <-answer:
		t.Errorf("a withdrawn request was answered: %s", s)
	default:
	}
}

func TestToolServerCloseCancels(t *testing.T) {
	ended := make(chan error, 2)
	started := make(chan struct{}, 2)
	tool := NewTool("wait", "Waits.", func(ctx context.Context, _ struct{}) (string, error) {
		started <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return "", nil
	})
	server := ToolServer("w", tool)
	a, c := connectTools(t, map[string]*mcp.Server{"w": server, "v": server})
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`
	a.start("w", call)
	a.start("v", call)
	<-started
	<-started
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if len(ended) != 2 {
		t.Error("the tools still run after Close")
	}
	for range server.Sessions() {
		t.Error("the server still has a session")
	}
}

// TestToolServerStubborn checks that Close does not wait forever for a tool that
// ignores its context.
func TestToolServerStubborn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := make(chan struct{})
		tool := NewTool("sleep", "Sleeps.", func(context.Context, struct{}) (string, error) {
			close(started)
			time.Sleep(time.Minute)
			return "", nil
		})
		var w warnings
		a := &toolAgent{t: t, waiting: map[string]chan string{}, pushed: make(chan json.RawMessage, 100)}
		opts := &Options{Dialer: a, ToolServers: map[string]*mcp.Server{"s": ToolServer("s", tool)}}
		w.option(a, opts)
		c, err := Connect(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		a.start("s", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sleep"}}`)
		<-started
		begin := time.Now()
		c.Close()
		if took := time.Since(begin); took < 5*time.Second || took > 11*time.Second {
			t.Errorf("Close took %v", took)
		}
		if got := fmt.Sprint(w.all()); !strings.Contains(got, `"s" still runs`) {
			t.Errorf("warnings: %s", got)
		}
		time.Sleep(time.Minute) // until the tool is done
	})
}

func TestToolServerEnds(t *testing.T) {
	end := NewTool("end", "Ends its server.", func(ctx context.Context, _ struct{}) (string, error) {
		go ToolRequest(ctx).Session.Close()
		return "", nil
	})
	a, _ := connectTools(t, map[string]*mcp.Server{"d": ToolServer("d", end, addTool())})
	a.call("d", initMessage)
	a.call("d", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"end"}}`)
	deadline := time.Now().Add(5 * time.Second)
	for !strings.Contains(a.call("d", callAdd), `"code":-32603,"message":"the MCP server \"d\" has ended"`) {
		if time.Now().After(deadline) {
			t.Fatal("the server lives on")
		}
	}
	wantContains(t, a.call("d", `{"jsonrpc":"2.0","method":"notifications/initialized"}`), "has ended")
	wantContains(t, a.call("d", initMessage), "serverInfo")
	wantJSON(t, a.call("d", callAdd), answerAdd)
}

// TestToolServerRestart checks that a new initialize ends the agent's earlier calls.
func TestToolServerRestart(t *testing.T) {
	started := make(chan string, 1)
	a, _ := connectTools(t, map[string]*mcp.Server{"b": ToolServer("b", blockTool(started, nil))})
	_, answer := a.start("b", callBlock("1", "x"))
	<-started
	wantContains(t, a.call("b", initMessage), "serverInfo")
	wantContains(t, a.await(answer), `"id":1,`, "has ended")
}

// TestToolServerIsNotified checks that notifications of the agent reach the server.
func TestToolServerIsNotified(t *testing.T) {
	progress := make(chan float64, 1)
	server := mcp.NewServer(&mcp.Implementation{Name: "r"}, &mcp.ServerOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationServerRequest) { progress <- req.Params.Progress },
	})
	a, _ := connectTools(t, map[string]*mcp.Server{"r": server})
	a.call("r", initMessage)
	a.call("r", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	a.call("r", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"x","progress":7}}`)
	select {
	case got := <-progress:
		if got != 7 {
			t.Errorf("progress %v, want 7", got)
		}
	case <-testwait.Late(t):
		t.Fatal("the server was not notified")
	}
}

func TestToolServerNotifications(t *testing.T) {
	server := ToolServer("p", NewTool("work", "Reports.", func(ctx context.Context, _ struct{}) (string, error) {
		req := ToolRequest(ctx)
		for i := range 20 {
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: req.Params.GetProgressToken(), Progress: float64(i),
			})
			if err != nil {
				return "", err
			}
		}
		return fmt.Sprint(req.Params.Meta["claudecode/toolUseId"]), nil
	}))
	a, _ := connectTools(t, map[string]*mcp.Server{"p": server})
	a.call("p", initMessage)
	a.mu.Lock()
	a.order = nil
	a.mu.Unlock()
	got := a.call("p", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","_meta":{"progressToken":9,"claudecode/toolUseId":"toolu_1"}}}`)
	wantContains(t, got, "toolu_1")
	a.mu.Lock()
	order := a.order
	a.mu.Unlock()
	if len(order) != 21 || !strings.HasPrefix(order[20], "answer ") {
		t.Fatalf("the agent read %v", order)
	}
	for i := range 20 {
		wantContains(t, string(<-a.pushed), fmt.Sprintf(`"progress":%d}`, i), `"progressToken":9`, `"notifications/progress"`)
	}
	addTool().AddTo(server)
	select {
	case m := <-a.pushed:
		wantContains(t, string(m), "notifications/tools/list_changed")
	case <-testwait.Late(t):
		t.Error("the agent was not told of a new tool")
	}
	wantJSON(t, a.call("p", callAdd), answerAdd)
}

// TestToolServerFlood checks that an agent that acknowledges nothing does not block a
// server.
func TestToolServerFlood(t *testing.T) {
	hold := make(chan struct{})
	server := ToolServer("p", NewTool("work", "Reports.", func(ctx context.Context, _ struct{}) (int, error) {
		failed := 0
		for i := range 3 * maxForwarded {
			if ToolRequest(ctx).Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: 1, Progress: float64(i)}) != nil {
				failed++
			}
		}
		return failed, nil
	}))
	var w warnings
	a, _ := connectTools(t, map[string]*mcp.Server{"p": server}, w.option, func(a *toolAgent, _ *Options) {
		a.took = func(string, json.RawMessage) (string, string) { <-hold; return "{}", "" }
	})
	_, answer := a.start("p", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work"}}`)
	testwait.Until(t, "a warning", func() bool { return len(w.all()) > 0 })
	close(hold)
	a.await(answer)
	if got := fmt.Sprint(w.all()); !strings.Contains(got, "messages are lost") {
		t.Errorf("warnings: %s", got)
	}
	wantContains(t, a.call("p", `{"jsonrpc":"2.0","id":2,"method":"ping"}`), `"result":{}`)
}

func TestToolServerAsks(t *testing.T) {
	server := ToolServer("r", NewTool("roots", "Lists roots.", func(ctx context.Context, _ struct{}) (string, error) {
		session := ToolRequest(ctx).Session
		if err := session.Ping(ctx, nil); err != nil {
			return "", fmt.Errorf("ping: %w", err)
		}
		//lint:ignore SA1019 servers may still ask for roots
		res, err := session.ListRoots(ctx, nil)
		if err != nil {
			return "", err
		}
		return res.Roots[0].URI, nil
	}))
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"roots"}}`
	const result = `"result":{"roots":[{"uri":"file:///x"}]}`
	rpcID := func(m json.RawMessage) string {
		var rpc struct{ ID json.RawMessage }
		json.Unmarshal(m, &rpc)
		return string(rpc.ID)
	}
	t.Run("answered by a message", func(t *testing.T) {
		a, _ := connectTools(t, map[string]*mcp.Server{"r": server})
		_, answer := a.start("r", call)
		m := <-a.pushed
		wantContains(t, string(m), `"method":"roots/list"`)
		wantJSON(t, a.call("r", `{"jsonrpc":"2.0","id":`+rpcID(m)+`,`+result+`}`), string(acknowledgement))
		wantContains(t, a.await(answer), "file:///x")
	})
	t.Run("refused by a message", func(t *testing.T) {
		a, _ := connectTools(t, map[string]*mcp.Server{"r": server})
		_, answer := a.start("r", call)
		a.call("r", `{"jsonrpc":"2.0","id":`+rpcID(<-a.pushed)+`,"error":{"code":-32601,"message":"no roots here"}}`)
		wantContains(t, a.await(answer), `"isError":true`, "no roots here")
	})
	t.Run("answered at once", func(t *testing.T) {
		a, _ := connectTools(t, map[string]*mcp.Server{"r": server}, func(a *toolAgent, _ *Options) {
			a.took = func(_ string, m json.RawMessage) (string, string) {
				return `{"mcp_response":{"jsonrpc":"2.0","id":` + rpcID(m) + `,` + result + `}}`, ""
			}
		})
		wantContains(t, a.call("r", call), "file:///x")
	})
	t.Run("not taken", func(t *testing.T) {
		a, _ := connectTools(t, map[string]*mcp.Server{"r": server}, func(a *toolAgent, _ *Options) {
			a.took = func(string, json.RawMessage) (string, string) { return "", "Unsupported control request" }
		})
		wantContains(t, a.call("r", call), `"isError":true`, "Unsupported control request")
	})
}

func TestToolServerSharedByClients(t *testing.T) {
	server := ToolServer("calc", addTool())
	var wg sync.WaitGroup
	for range 8 {
		a, _ := connectTools(t, map[string]*mcp.Server{"calc": server, "other": server})
		for _, name := range []string{"calc", "other"} {
			wg.Go(func() {
				if got := a.call(name, initMessage); !strings.Contains(got, "serverInfo") {
					t.Errorf("initialize: %s", got)
				}
				for range 20 {
					if got := a.call(name, callAdd); !strings.Contains(got, `"text":"3"`) {
						t.Errorf("add: %s", got)
					}
				}
			})
		}
	}
	wg.Wait()
}

func TestToolServerPanics(t *testing.T) {
	own := mcp.NewServer(&mcp.Implementation{Name: "own"}, nil)
	object := map[string]any{"type": "object"}
	handler := func(f func() (*mcp.CallToolResult, error)) mcp.ToolHandler {
		return func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return f() }
	}
	own.AddTool(&mcp.Tool{Name: "panic", InputSchema: object}, handler(func() (*mcp.CallToolResult, error) { panic("boom") }))
	own.AddTool(&mcp.Tool{Name: "goexit", InputSchema: object}, handler(func() (*mcp.CallToolResult, error) {
		runtime.Goexit()
		return nil, nil
	}))
	own.AddTool(&mcp.Tool{Name: "fail", InputSchema: object}, handler(func() (*mcp.CallToolResult, error) {
		return nil, errors.New("broken")
	}))
	own.AddTool(&mcp.Tool{Name: "chan", InputSchema: object}, handler(func() (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{StructuredContent: make(chan int)}, nil
	}))
	own.AddPrompt(&mcp.Prompt{Name: "panic"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) { panic("boom") })
	typed := ToolServer("typed", NewTool("panic", "", func(context.Context, struct{}) (string, error) { panic("boom") }))
	var w warnings
	a, _ := connectTools(t, map[string]*mcp.Server{"own": own, "typed": typed}, w.option)
	tests := []struct {
		server, method, name string
		warns                bool
		want                 []string
	}{
		{"own", "tools/call", "panic", true, []string{`"isError":true`, "tool panic panicked: boom"}},
		{"own", "tools/call", "goexit", true, []string{`"isError":true`, "tool goexit failed: it ended its goroutine"}},
		{"own", "tools/call", "fail", false, []string{`"code":-32603`, "broken"}},
		{"own", "tools/call", "chan", false, []string{`"code":-32603`, "cannot be encoded"}},
		{"own", "prompts/get", "panic", true, []string{`"code":-32603`, "MCP method prompts/get panicked: boom"}},
		{"typed", "tools/call", "panic", true, []string{`"isError":true`, "tool panic panicked: boom"}},
	}
	warned := 0
	for _, test := range tests {
		got := a.call(test.server, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"name":%q}}`, test.method, test.name))
		wantContains(t, got, test.want...)
		if test.warns {
			warned++
			testwait.Until(t, "the warning about "+test.name, func() bool { return len(w.all()) >= warned })
		}
		if all := w.all(); len(all) > warned {
			t.Errorf("%s %s: warnings %v", test.server, test.name, all)
		}
	}
	for _, err := range w.all() {
		var failed *CallbackError
		if !errors.As(err, &failed) {
			t.Errorf("the warning is a %T: %[1]v", err)
		}
	}
}

func TestGuardServerOnce(t *testing.T) {
	server := ToolServer("x")
	for range 3 {
		guardServer(server)
	}
	guarded.Lock()
	n := 0
	for p := range guarded.servers {
		if p.Value() == server {
			n++
		}
	}
	guarded.Unlock()
	if n != 1 {
		t.Errorf("the server was guarded %d times", n)
	}
}

// serve runs ServeMCP on lines and returns its output.
func serve(t *testing.T, server *mcp.Server, lines ...string) []string {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var out bytes.Buffer
	if err := ServeMCP(t.Context(), server, strings.NewReader(strings.Join(lines, "\n")), &out); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func TestServeLines(t *testing.T) {
	out := serve(t, ToolServer("calc", addTool()),
		"\ufeff"+`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientInfo":{"name":"c","version":"1"}}}`+"\r",
		`{"jsonrpc":"2.0","method":"initialized"}`,
		``,
		`no JSON`,
		`[1]`,
	)
	if len(out) != 3 {
		t.Fatalf("got %d lines: %q", len(out), out)
	}
	slices.Sort(out)
	wantJSON(t, out[0], `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"calc","version":"`+Version+`"}}}`)
	wantContains(t, strings.Join(out[1:], " "), `"code":-32600`, `"code":-32700`)
}

// TestServeLinesAnswersAll checks that requests that were sent before the input ended
// are answered.
func TestServeLinesAnswersAll(t *testing.T) {
	slow := NewTool("slow", "", func(ctx context.Context, _ struct{}) (string, error) {
		testwait.Pause(20 * time.Millisecond)
		return "done", ctx.Err()
	})
	asks := NewTool("asks", "", func(ctx context.Context, _ struct{}) (string, error) {
		return "", ToolRequest(ctx).Session.Ping(ctx, nil)
	})
	lines := []string{`{"jsonrpc":"2.0","id":0,"method":"initialize"}`}
	for i := range 20 {
		lines = append(lines, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"slow"}}`, i+1))
	}
	lines = append(lines,
		`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"none"}}`,
		`{"jsonrpc":"2.0","id":"y","method":"no/such"}`,
		`{"jsonrpc":"2.0","id":"z","method":"tools/call","params":{"name":"asks"}}`)
	out := strings.Join(serve(t, ToolServer("s", slow, asks), lines...), "\n")
	if n := strings.Count(out, `"text":"done"`); n != 20 {
		t.Errorf("%d of 20 calls were answered", n)
	}
	wantContains(t, out, `{"jsonrpc":"2.0","id":"x","result":{"content":[{"type":"text","text":"unknown tool \"none\""}],"isError":true}}`)
	wantContains(t, out, `{"jsonrpc":"2.0","id":"y","error":{"code":-32601,`)
	if !strings.Contains(out, `"id":"z","result":{"content":[{"type":"text","text":"calling`) {
		t.Errorf("a tool that asks the client: %s", out)
	}
}

func TestServeLinesContext(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	in, feed := io.Pipe()
	defer feed.Close()
	cause := errors.New("that is all")
	ctx, cancel := context.WithCancelCause(t.Context())
	tool := NewTool("wait", "", func(ctx context.Context, _ struct{}) (string, error) {
		cancel(cause)
		<-ctx.Done()
		return "", nil
	})
	go fmt.Fprint(feed, `{"jsonrpc":"2.0","id":0,"method":"initialize"}`+"\n"+
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`+"\n")
	if err := ServeMCP(ctx, ToolServer("w", tool), in, io.Discard); err != cause {
		t.Errorf("got %v", err)
	}
}

func TestRejectedIsNoEnd(t *testing.T) {
	// The MCP SDK continues only after errors with this code.
	var rpc *jsonrpc.Error
	if err := rejected("x"); !errors.As(err, &rpc) || rpc.Code != -32005 {
		t.Errorf("rejected: %v", err)
	}
}
