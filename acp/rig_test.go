package acp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/acp"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/internal/testwait"
	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type object = map[string]any

// A frame is a line of the connection.
type frame struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *acp.Error      `json:"error,omitempty"`
}

// An editor is a client that a test plays, with its own hub and agent behind it. It
// validates everything that it receives with the published schema.
type editor struct {
	t   *testing.T
	dir string
	hub *hub.Hub
	w   io.WriteCloser

	in      chan *frame
	all     []*frame // received frames
	id      int
	version int
	hold    sync.Mutex // held while the editor does not read
	mu      sync.Mutex
	methods map[string]string // of requests, by id
	served  chan error
	cfg     acp.Config
	caps    object

	// permit answers permission requests. Nil leaves them to the test.
	permit func(*frame) any
	// serve answers messages to MCP servers of the client, with the response or an error. Nil leaves
	// them to the test.
	serve func(method string, params json.RawMessage) any
}

// A setting configures an editor.
type setting struct {
	model   func(dir string) *pt.Scenario
	backend hub.Backend
	store   session.Store
	dir     string
	agent   func(*agent.Config)
	config  func(*acp.Config)
	version int
	caps    object
}

// run runs a test in a bubble.
func run(t *testing.T, s setting, f func(t *testing.T, e *editor)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := start(t, s)
		f(t, e)
		e.close()
	})
}

// start starts a hub and connects to it. The test closes the editor.
func start(t *testing.T, s setting) *editor {
	t.Helper()
	if s.backend == nil {
		s.backend = &hub.Memory{}
	}
	if s.dir == "" {
		s.dir = t.TempDir()
	}
	h, err := hub.New(hub.Config{Backend: s.backend, Sessions: s.store, Name: "test", Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
		cfg := agent.Config{Model: s.model(s.dir).Model(), Store: start.Store, Environ: os.Environ()}
		if s.store != nil {
			cfg.Store = s.store
		}
		if s.agent != nil {
			s.agent(&cfg)
		}
		var spec hub.Args
		json.Unmarshal(start.Spec, &spec)
		dialer := agent.InProcess(cfg)
		return &parley.Options{Cwd: start.Cwd, Dialer: transport.DialerFunc(func(ctx context.Context, s transport.Spec) (transport.Conn, error) {
			s.Words = append(spec.Args, s.Words...)
			return dialer.Dial(ctx, s)
		})}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	e := &editor{t: t, dir: s.dir, hub: h, version: max(1, s.version), in: make(chan *frame, 1<<16), methods: map[string]string{}, served: make(chan error, 1)}
	cfg := acp.Config{Hub: h.Client(hub.Actor{Name: "editor", Rights: hub.Everything}), Sessions: s.store}
	if s.config != nil {
		s.config(&cfg)
	}
	e.cfg, e.caps = cfg, s.caps
	e.connect()
	if s.version >= 0 {
		e.initialize()
	}
	return e
}

func (e *editor) initialize() object {
	e.t.Helper()
	if e.caps == nil {
		e.caps = object{}
	}
	return e.call("initialize", object{"protocolVersion": e.version, "clientCapabilities": e.caps, "capabilities": e.caps, "info": object{"name": "test", "version": "1"}})
}

// reconnect ends the connection and opens another one with the same hub.
func (e *editor) reconnect() {
	e.t.Helper()
	e.disconnect()
	e.all, e.in = nil, make(chan *frame, 1<<16)
	e.connect()
	e.initialize()
}

// connect opens a connection.
func (e *editor) connect() {
	in := e.in
	fromEditor, toServer := io.Pipe()
	fromServer, toEditor := io.Pipe()
	e.w = toServer
	go func() { e.served <- acp.Serve(context.Background(), e.cfg, fromEditor, toEditor) }()
	go func() {
		defer close(in)
		lines := bufio.NewReader(fromServer)
		for {
			e.hold.Lock()
			f := new(frame)
			e.hold.Unlock()
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			if err := json.Unmarshal(line, f); err != nil {
				e.t.Errorf("received %q: %v", line, err)
				continue
			}
			e.check(f)
			if f.Method == "session/request_permission" && e.permit != nil {
				if answer := e.permit(f); answer != nil {
					go e.write(object{"jsonrpc": "2.0", "id": f.ID, "result": answer})
				}
			}
			if f.Method == "mcp/message" && e.serve != nil {
				var p struct {
					ServerID, RequestID, Method string
					Params                      json.RawMessage
				}
				if json.Unmarshal(f.Params, &p) != nil || p.ServerID != "docs-1" || p.RequestID == "" {
					e.t.Errorf("a message to an MCP server: %s", f.Params)
				}
				if answer := e.serve(p.Method, p.Params); answer != nil {
					go e.write(object{"jsonrpc": "2.0", "id": f.ID, "result": answer})
				}
			}
			in <- f
		}
	}()
}

// close ends the connection and the hub.
func (e *editor) close() {
	e.t.Helper()
	e.disconnect()
	e.hub.Close()
}

func (e *editor) disconnect() {
	e.t.Helper()
	e.w.Close()
	select {
	case err := <-e.served:
		if err != nil {
			e.t.Errorf("Serve: %v", err)
		}
	case <-testwait.Late(e.t):
		e.t.Fatal("the connection does not end")
	}
}

// raw writes a line verbatim.
func (e *editor) raw(line string) {
	e.t.Helper()
	if _, err := io.WriteString(e.w, line+"\n"); err != nil {
		e.t.Error(err)
	}
}

func (e *editor) write(v any) {
	data, err := json.Marshal(v)
	if err != nil {
		e.t.Error(err)
		return
	}
	io.WriteString(e.w, string(data)+"\n")
}

// send sends a request and returns its id.
func (e *editor) send(method string, params any) string {
	e.id++
	id := fmt.Sprint(e.id)
	e.mu.Lock()
	e.methods[id] = method
	e.mu.Unlock()
	e.write(object{"jsonrpc": "2.0", "id": e.id, "method": method, "params": params})
	return id
}

func (e *editor) notify(method string, params any) {
	e.write(object{"jsonrpc": "2.0", "method": method, "params": params})
}

// until receives frames until ok accepts one.
func (e *editor) until(what string, ok func(*frame) bool) *frame {
	e.t.Helper()
	for {
		select {
		case f, open := <-e.in:
			if !open {
				e.t.Fatalf("the connection ended without %s, after\n%s", what, e.received())
			}
			e.all = append(e.all, f)
			if ok(f) {
				return f
			}
		case <-testwait.Late(e.t): // in a bubble: nothing happens any more
			e.t.Fatalf("no %s after\n%s", what, e.received())
		}
	}
}

// received lists the frames that the editor received.
func (e *editor) received() string {
	var b strings.Builder
	for _, f := range e.all {
		b.WriteString(brief(f) + "\n")
	}
	return b.String()
}

// brief summarizes a frame.
func brief(f *frame) string {
	switch {
	case f.Method == "session/update":
		u := update(f)
		s := fmt.Sprint(u["sessionUpdate"])
		for _, k := range []string{"toolCallId", "status", "title", "currentModeId"} {
			if v, ok := u[k]; ok {
				s += fmt.Sprint(" ", v)
			}
		}
		if c, ok := u["content"].(object); ok && c["text"] != nil {
			s += fmt.Sprintf(" %q", c["text"])
		}
		return s
	case f.Method != "":
		return "request " + f.Method
	case f.Error != nil:
		return fmt.Sprintf("error %s %d %s", f.ID, f.Error.Code, f.Error.Message)
	}
	return fmt.Sprintf("response %s %.80s", f.ID, f.Result)
}

// update returns the update in a frame, nil if there is none.
func update(f *frame) object {
	var p struct{ Update object }
	if f.Method == "session/update" {
		json.Unmarshal(f.Params, &p)
	}
	return p.Update
}

// response waits for the response to a request.
func (e *editor) response(id string) *frame {
	e.t.Helper()
	for _, f := range e.all {
		if f.Method == "" && string(f.ID) == id {
			return f
		}
	}
	return e.until("response to "+id, func(f *frame) bool { return f.Method == "" && string(f.ID) == id })
}

// call sends a request and waits for its result.
func (e *editor) call(method string, params any) object {
	e.t.Helper()
	f := e.response(e.send(method, params))
	if f.Error != nil {
		e.t.Fatalf("%s: %d %s", method, f.Error.Code, f.Error.Message)
	}
	var result object
	if err := json.Unmarshal(f.Result, &result); err != nil {
		e.t.Fatal(err)
	}
	return result
}

// fails sends a request that must fail with a code.
func (e *editor) fails(code int, method string, params any) {
	e.t.Helper()
	f := e.response(e.send(method, params))
	if f.Error == nil || f.Error.Code != code {
		e.t.Errorf("%s: %s, want error %d", method, brief(f), code)
	}
}

// newSession opens a session.
func (e *editor) newSession() string {
	e.t.Helper()
	return e.call("session/new", object{"cwd": e.dir, "mcpServers": []any{}})["sessionId"].(string)
}

func prompt(id, text string) object {
	return object{"sessionId": id, "prompt": []any{object{"type": "text", "text": text}}}
}

// selects returns the answer to a permission request.
func selects(option string) object {
	return object{"outcome": object{"outcome": "selected", "optionId": option}}
}

// updates lists the received updates, in brief, without usage and commands.
func (e *editor) updates() (list []string) {
	for _, f := range e.all {
		if u := update(f); u != nil && u["sessionUpdate"] != "usage_update" && u["sessionUpdate"] != "available_commands_update" {
			list = append(list, brief(f))
		}
	}
	return list
}

var (
	schemaOnce  sync.Once
	schemas     = map[string]*jsonschema.Resolved{}
	definitions = map[string]string{} // by version, side, method and "Request", "Response" or "Notification"
)

// loadSchemas reads the published schemas.
func loadSchemas() {
	for version := 1; version <= 2; version++ {
		data, err := os.ReadFile(fmt.Sprintf("testdata/schema-v%d.json", version))
		if err != nil {
			panic(err)
		}
		var doc struct {
			Defs map[string]json.RawMessage `json:"$defs"`
		}
		if err := json.Unmarshal(data, &doc); err != nil {
			panic(err)
		}
		for name, raw := range doc.Defs {
			var d struct {
				Method string `json:"x-method"`
				Side   string `json:"x-side"`
			}
			json.Unmarshal(raw, &d)
			for _, kind := range []string{"Request", "Response", "Notification"} {
				if d.Method != "" && strings.HasSuffix(name, kind) {
					definitions[fmt.Sprint(version, d.Side, d.Method, kind)] = name
				}
			}
		}
		for _, name := range definitions {
			key := fmt.Sprint(version, name)
			if doc.Defs[name] == nil || schemas[key] != nil {
				continue
			}
			var s jsonschema.Schema
			needed := map[string]json.RawMessage{}
			reach(doc.Defs, name, needed)
			if err := json.Unmarshal(mustJSON(object{"$ref": "#/$defs/" + name, "$defs": needed}), &s); err != nil {
				panic(err)
			}
			resolved, err := s.Resolve(nil)
			if err != nil {
				panic(fmt.Sprint(name, ": ", err))
			}
			schemas[key] = resolved
		}
	}
}

var reference = regexp.MustCompile(`"#/\$defs/(\w+)"`)

// reach collects the definitions that a definition needs.
func reach(defs map[string]json.RawMessage, name string, needed map[string]json.RawMessage) {
	if needed[name] != nil {
		return
	}
	needed[name] = defs[name]
	for _, m := range reference.FindAllSubmatch(defs[name], -1) {
		reach(defs, string(m[1]), needed)
	}
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// check validates a frame with the schema.
func (e *editor) check(f *frame) {
	schemaOnce.Do(loadSchemas)
	kind, method, side, raw := "Notification", f.Method, "client", f.Params
	switch {
	case f.Method != "" && f.ID != nil:
		kind = "Request"
	case f.Method == "":
		e.mu.Lock()
		kind, method, side, raw = "Response", e.methods[string(f.ID)], "agent", f.Result
		e.mu.Unlock()
	}
	if f.JSONRPC != "2.0" {
		e.t.Errorf("jsonrpc is %q in %s", f.JSONRPC, brief(f))
	}
	if f.Error != nil || method == "$/cancel_request" || strings.HasPrefix(method, "_") {
		return
	}
	e.mu.Lock()
	version := e.version
	e.mu.Unlock()
	name := definitions[fmt.Sprint(version, side, method, kind)]
	if name == "" {
		if method != "session/fork" && method != "mcp/message" { // not stable yet
			e.t.Errorf("%s: the schema has no %s of the %s", method, kind, side)
		}
		return
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		e.t.Errorf("%s: %v", brief(f), err)
		return
	}
	if err := schemas[fmt.Sprint(version, name)].Validate(v); err != nil {
		e.t.Errorf("%s is not a %s: %v\n%s", method, name, err, raw)
	}
}
