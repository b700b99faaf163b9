package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/tooltest"
	"github.com/parley-go/parley/internal/rawjson"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/wire"
)

// manager returns a manager that is closed with the test.
func manager(t *testing.T, change ...func(*Options)) *Manager {
	t.Helper()
	opts := Options{Env: append(os.Environ(), "ANTHROPIC_API_KEY=secret"), Dir: t.TempDir(), ConnectTimeout: time.Hour}
	for _, f := range change {
		f(&opts)
	}
	m := New(opts)
	t.Cleanup(m.Close)
	return m
}

// quitAfter sets the connection deadline of a server in milliseconds.
func quitAfter(ms string, cfg *wire.MCPServerConfig) *wire.MCPServerConfig {
	if cfg.Extra == nil {
		cfg.Extra = map[string]json.RawMessage{}
	}
	cfg.Extra["startupTimeout"] = json.RawMessage(ms)
	return cfg
}

// child returns the configuration of a server that is a process.
func child(role_ string) *wire.MCPServerConfig {
	exe, _ := os.Executable()
	return &wire.MCPServerConfig{Command: exe, Env: map[string]string{role: role_}}
}

// ready waits for the servers, and returns their states.
func ready(t *testing.T, m *Manager) map[string]*wire.MCPServerStatus {
	t.Helper()
	m.Begin(t.Context(), 0)
	if err := m.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	states := map[string]*wire.MCPServerStatus{}
	for _, s := range m.Status() {
		states[s.Name] = s
	}
	return states
}

func find(t *testing.T, m *Manager, name string) tool.Tool {
	t.Helper()
	tools, _ := m.Tools()
	for _, tl := range tools {
		if tl.Spec().Name == name {
			return tl
		}
	}
	t.Fatalf("there is no tool %s in %v", name, names(tools))
	return nil
}

func names(tools []tool.Tool) string {
	var list []string
	for _, t := range tools {
		list = append(list, t.Spec().Name)
	}
	return strings.Join(list, " ")
}

// A hosted is a server in the host, as an SDK runs it.
type hosted struct {
	conn    mcp.Connection
	mu      sync.Mutex
	waiting map[any]chan json.RawMessage
	seen    []string // methods
	fail    int      // number of messages to reject
}

func host(t *testing.T, s *mcp.Server, push func(json.RawMessage)) *hosted {
	t.Helper()
	ct, st := mcp.NewInMemoryTransports()
	session, err := s.Connect(context.Background(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ct.Connect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	h := &hosted{conn: conn, waiting: map[any]chan json.RawMessage{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, err := conn.Read(context.Background())
			if err != nil {
				return
			}
			raw, _ := jsonrpc.EncodeMessage(m)
			if r, ok := m.(*jsonrpc.Response); ok {
				h.mu.Lock()
				ch := h.waiting[r.ID.Raw()]
				h.mu.Unlock()
				ch <- raw
				continue
			}
			push(raw)
		}
	}()
	t.Cleanup(func() { conn.Close(); session.Close(); <-done })
	return h
}

func (h *hosted) send(ctx context.Context, server string, message json.RawMessage) (json.RawMessage, error) {
	m, err := jsonrpc.DecodeMessage(message)
	if err != nil {
		return nil, err
	}
	r, _ := m.(*jsonrpc.Request)
	ch := make(chan json.RawMessage, 1)
	h.mu.Lock()
	if r != nil {
		h.seen = append(h.seen, r.Method)
	}
	if h.fail > 0 {
		h.fail--
		h.mu.Unlock()
		return nil, errors.New("server not found")
	}
	if r != nil && r.IsCall() {
		h.waiting[r.ID.Raw()] = ch
	}
	h.mu.Unlock()
	if err := h.conn.Write(ctx, m); err != nil {
		return nil, err
	}
	if r == nil || !r.IsCall() {
		return json.RawMessage(`{"jsonrpc":"2.0","result":{},"id":0}`), nil
	}
	select {
	case raw := <-ch:
		return raw, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (h *hosted) methods() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.seen, " ")
}

// inHost returns a manager with one server in the host.
func inHost(t *testing.T, change ...func(*Options)) (*Manager, *hosted) {
	var m *Manager
	h := host(t, newServer(), func(raw json.RawMessage) { m.Deliver("calc", raw) })
	m = manager(t, append(change, func(o *Options) { o.Host = h.send })...)
	return m, h
}

// socketHandler serves a server behind a WebSocket, with line breaks in its messages.
func socketHandler(t *testing.T, s *mcp.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"mcp"}})
		if err != nil || conn.Subprotocol() != "mcp" {
			t.Errorf("%v, subprotocol %q", err, conn.Subprotocol())
			return
		}
		ct, st := mcp.NewInMemoryTransports()
		session, err := s.Connect(r.Context(), st, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer session.Close()
		messages, _ := ct.Connect(r.Context())
		defer messages.Close()
		go func() {
			for {
				m, err := messages.Read(r.Context())
				if err != nil {
					return
				}
				raw, _ := jsonrpc.EncodeMessage(m)
				var text bytes.Buffer
				json.Indent(&text, raw, "", " ")
				conn.Write(r.Context(), websocket.MessageText, text.Bytes())
			}
		}()
		for {
			_, data, err := conn.Read(r.Context())
			if err != nil {
				return
			}
			if m, err := jsonrpc.DecodeMessage(data); err != nil || messages.Write(r.Context(), m) != nil {
				t.Error("a message of the client cannot be delivered", err)
			}
		}
	})
}

// Every transport offers the same tools with the same results.
func TestTransports(t *testing.T) {
	seen := make(chan http.Header, 100)
	watch := func(h http.Handler) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case seen <- r.Header:
			default:
			}
			h.ServeHTTP(w, r)
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	s := newServer()
	get := func(*http.Request) *mcp.Server { return s }
	headers := map[string]string{"X-Test": "1"}
	for _, tt := range []struct {
		name string
		cfg  *wire.MCPServerConfig
	}{
		{"stdio", child("good")},
		{"http", &wire.MCPServerConfig{Type: "http", URL: watch(mcp.NewStreamableHTTPHandler(get, nil)), Headers: headers}},
		{"plain", &wire.MCPServerConfig{Type: "http", URL: watch(mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})), Headers: headers}},
		{"sse", &wire.MCPServerConfig{Type: "sse", URL: watch(mcp.NewSSEHandler(get, nil)), Headers: headers}},
		{"ws", &wire.MCPServerConfig{Type: "ws", URL: "ws" + strings.TrimPrefix(watch(socketHandler(t, s)), "http"), Headers: headers}},
		{"sdk", &wire.MCPServerConfig{Type: "sdk", Name: "calc"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, _ := inHost(t)
			m.Set("dynamic", Server{Name: "calc", Config: tt.cfg})
			st := ready(t, m)["calc"]
			if st.Status != wire.MCPConnected || st.ServerInfo.Name != "calc" || st.ServerInfo.Version != "1.0.0" || st.Source != "dynamic" || st.Tools == nil {
				t.Fatalf("status %+v", st)
			}
			env := tooltest.Env(t)
			add := find(t, m, "mcp__calc__add")
			if s := add.Spec(); s.Description != "Adds." || !s.ReadOnly || !strings.Contains(string(s.Schema), `"a"`) {
				t.Errorf("spec %+v", s)
			}
			if access, err := add.Access(env, nil); err != nil || len(access) != 1 || access[0].Kind != tool.Other {
				t.Errorf("access %v %v", access, err)
			}
			r := tooltest.Call(t.Context(), env, add, json.RawMessage(`{"a":1,"b":2}`))
			if text, _ := json.Marshal(r.Content); r.IsError || string(text) != `[{"type":"text","text":"3"}]` {
				t.Errorf("result %s", text)
			}
			if text, _ := json.Marshal(r.Structured); string(text) != `[{"type":"text","text":"3"}]` {
				t.Errorf("tool_use_result %s", text)
			}
			r = tooltest.Call(t.Context(), env, find(t, m, "mcp__calc__fail"), json.RawMessage(`{}`))
			if !r.IsError || r.Content.Text != "out of numbers" || r.Structured != "Error: out of numbers" {
				t.Errorf("failure %+v", r)
			}
			if tt.cfg.URL != "" {
				for len(seen) > 0 {
					if h := <-seen; h.Get("X-Test") != "1" {
						t.Errorf("headers %v", h)
					}
				}
			}
		})
	}
}

func TestResults(t *testing.T) {
	m, _ := inHost(t)
	m.Set("sdk", Server{Name: "calc", Config: &wire.MCPServerConfig{Type: "sdk"}})
	ready(t, m)
	env := tooltest.Env(t)
	call := func(name string) *tool.Result {
		t.Helper()
		r := tooltest.Call(t.Context(), env, find(t, m, "mcp__calc__"+name), json.RawMessage(`{}`))
		if r.IsError {
			t.Fatalf("%s: %s", name, r.Content)
		}
		return r
	}
	js := func(v any) string { b, _ := json.Marshal(v); return string(b) }

	if r := call("both"); r.Content.Text != `{"a":[1,2],"z":1}` || js(r.Structured) != `{"content":"{\"a\":[1,2],\"z\":1}","structuredContent":{"a":[1,2],"z":1}}` {
		t.Errorf("both: %s %s", js(r.Content), js(r.Structured))
	}
	r := call("many")
	want := []string{`{"type":"text","text":"one"}`, `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGVsbG8="}}`,
		`{"type":"text","text":"[Resource from calc at file:///a] two"}`, `{"type":"text","text":"[Resource link: b] file:///b"}`}
	if len(r.Content.Blocks) != 6 || !strings.HasPrefix(r.Content.Blocks[2].(*wire.TextBlock).Text, "[Image: source: ") {
		t.Fatalf("many: %s", js(r.Content))
	}
	r.Content.Blocks = slices.Delete(slices.Clone(r.Content.Blocks), 2, 3)
	for i, w := range want {
		if got := js(r.Content.Blocks[i]); got != w {
			t.Errorf("many %d: %s", i, got)
		}
	}
	saved := r.Content.Blocks[4].(*wire.TextBlock).Text
	_, path, ok := strings.Cut(strings.TrimSuffix(saved, "]"), "Saved to: ")
	if data, err := os.ReadFile(path); !ok || err != nil || string(data) != "hello" {
		t.Errorf("saved: %s %q %v", saved, data, err)
	}
	if got := js(r.Structured); !strings.HasSuffix(got, `,"resourceLinks":[{"uri":"file:///b","name":"b"}]}`) {
		t.Errorf("many for programs: %s", got)
	}
	if r := call("none"); js(r.Content) != `"(mcp__calc__none completed with no output)"` || js(r.Structured) != "[]" {
		t.Errorf("none: %s %s", js(r.Content), js(r.Structured))
	}
	// A picture is not lost because there is a value, too.
	if r := call("seen"); len(r.Content.Blocks) != 3 || js(r.Content.Blocks[2]) != `{"type":"text","text":"{\"z\":1}"}` {
		t.Errorf("seen: %s", js(r.Content))
	}
	if r := tooltest.Call(t.Context(), env, find(t, m, "mcp__calc__fails"), json.RawMessage(`{}`)); !r.IsError || r.Content.String() != "one\ntwo" {
		t.Errorf("fails: %s", js(r.Content))
	}
	r = call("big")
	text := r.Content.String()
	if !strings.HasPrefix(text, "<persisted-output>\nOutput too large (195.3KB). Full output saved to: ") || !strings.HasSuffix(text, "</persisted-output>") || len(text) > 4000 {
		t.Errorf("big: %.300s", text)
	}
	if got := js(r.Structured); len(got) < 200_000 {
		t.Errorf("programs get %d bytes of a big result", len(got))
	}
	_, path, _ = strings.Cut(text, "saved to: ")
	path, _, _ = strings.Cut(path, "\n")
	if info, err := os.Stat(path); err != nil || info.Size() != 200_000 || !strings.HasPrefix(path, env.Dir) {
		t.Errorf("file %v %v", info, err)
	}
	if r := call("meta"); !strings.Contains(r.Content.String(), `"claudecode/toolUseId":"toolu_test"`) || !strings.Contains(r.Content.String(), `"progressToken"`) {
		t.Errorf("meta: %s", r.Content)
	}
	if _, err := m.Call(t.Context(), "add", "", nil); err == nil || err.Error() != "Not a fully-qualified MCP tool name: add" {
		t.Error(err)
	}
	if _, err := m.Call(t.Context(), "mcp__x__y", "", nil); err == nil || err.Error() != "MCP server not connected: x" {
		t.Error(err)
	}
	if r, err := m.Call(t.Context(), "mcp__calc__add", "", json.RawMessage(`{"a":1,"b":1}`)); err != nil || string(r.Content) != `[{"type":"text","text":"2"}]` {
		t.Error(r, err)
	}
}

// A process receives the variables that it needs to run and those of its configuration, and no
// key of ours. None of its processes is left.
func TestProcess(t *testing.T) {
	m := manager(t)
	cfg := child("good")
	cfg.Env["FOO"] = "1"
	m.Set("dynamic", Server{Name: "p", Config: cfg})
	ready(t, m)
	env := tooltest.Env(t)
	vars := tooltest.Call(t.Context(), env, find(t, m, "mcp__p__environ"), json.RawMessage(`{}`)).Content.String()
	if strings.Contains(vars, "secret") || !strings.Contains(vars, "FOO=1") || !strings.Contains(vars, "PATH=") {
		t.Errorf("environment: %s", vars)
	}
	pid, err := strconv.Atoi(tooltest.Call(t.Context(), env, find(t, m, "mcp__p__spawn"), json.RawMessage(`{}`)).Content.String())
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	testwait.Until(t, "the grandchild is gone", func() bool { return !running(pid) })
}

// running reports whether a process runs; a zombie does not.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// Servers with various faults, beside one without.
func TestFaults(t *testing.T) {
	t.Parallel()
	m := manager(t)
	for _, r := range []string{"good", "talkative", "crash", "old", "modern", "liar", "nolist", "longline"} {
		m.Set("dynamic", Server{Name: r, Config: child(r)})
	}
	for _, r := range []string{"silent", "beggar"} {
		m.Set("dynamic", Server{Name: r, Config: quitAfter("500", child(r))})
	}
	refuse := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer refuse.Close()
	m.Set("dynamic",
		Server{Name: "missing", Config: &wire.MCPServerConfig{Command: "/nonexistent/x"}},
		Server{Name: "login", Config: &wire.MCPServerConfig{Type: "http", URL: refuse.URL}},
		Server{Name: "loginsse", Config: &wire.MCPServerConfig{Type: "sse", URL: refuse.URL}},
		Server{Name: "refused", Config: &wire.MCPServerConfig{Type: "http", URL: "http://127.0.0.1:1"}},
		Server{Name: "url", Config: &wire.MCPServerConfig{Type: "http", URL: "nonsense"}},
		Server{Name: "type", Config: &wire.MCPServerConfig{Type: "tcp"}},
		Server{Name: "nohost", Config: &wire.MCPServerConfig{Type: "sdk"}},
	)
	states := ready(t, m)
	for name, want := range map[string]struct {
		state wire.MCPState
		words string
	}{
		"good":      {wire.MCPConnected, ""},
		"talkative": {wire.MCPConnected, ""},
		"old":       {wire.MCPConnected, ""},
		"modern":    {wire.MCPConnected, ""},
		"liar":      {wire.MCPConnected, ""},
		"crash":     {wire.MCPFailed, "exit code 3; it said: no licence found"},
		"silent":    {wire.MCPFailed, "did not answer within 500ms"},
		"nolist":    {wire.MCPFailed, "cannot be read"},
		"longline":  {wire.MCPFailed, "a line of more than 4 MB"},
		"missing":   {wire.MCPFailed, "was not found"},
		"login":     {wire.MCPNeedsAuth, "401"},
		"loginsse":  {wire.MCPNeedsAuth, "401"},
		"refused":   {wire.MCPFailed, "refused"},
		"url":       {wire.MCPFailed, "http or https"},
		"type":      {wire.MCPFailed, `type "tcp"`},
		"nohost":    {wire.MCPFailed, "no host"},
	} {
		if st := states[name]; st.Status != want.state || !strings.Contains(st.Error, want.words) {
			t.Errorf("%s: %s %q", name, st.Status, st.Error)
		}
	}
	tools, _ := m.Tools()
	env := tooltest.Env(t)
	var lies []string
	for _, tl := range tools {
		if name, ok := strings.CutPrefix(tl.Spec().Name, "mcp__liar__"); ok {
			lies = append(lies, name)
			if !strings.Contains(string(tl.Spec().Schema), `"type":"object"`) {
				t.Errorf("%s: schema %s", name, tl.Spec().Schema)
			}
			r := tooltest.Call(t.Context(), env, tl, json.RawMessage(`{}`))
			if !r.IsError || !strings.Contains(r.Content.Text, "cannot be read") {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
	if got := strings.Join(lies, " "); got != "same sa_me nonsense broken ref top" {
		t.Errorf("the liar offers %s", got)
	}
	for _, name := range []string{"old", "modern"} {
		if r := tooltest.Call(t.Context(), env, find(t, m, "mcp__"+name+"__hello"), json.RawMessage(`{}`)); r.Content.String() != "hello" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A server that does not read blocks nothing else.
func TestDeafServer(t *testing.T) {
	t.Parallel()
	m := manager(t, func(o *Options) { o.CallTimeout = 100 * time.Millisecond })
	m.Set("dynamic", Server{Name: "deaf", Config: child("deaf")})
	ready(t, m)
	tl := find(t, m, "mcp__deaf__t")
	input, _ := json.Marshal(map[string]string{"text": strings.Repeat("x", 100_000)})
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			if _, err := tl.Run(t.Context(), &tool.Call{Input: input, Env: &tool.Env{}}); err == nil || !strings.Contains(err.Error(), "did not answer") {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// The tools of a server are limited, however many it lists.
func TestEndlessTools(t *testing.T) {
	m := manager(t)
	m.Set("dynamic", Server{Name: "endless", Config: child("endless")})
	st := ready(t, m)["endless"]
	tools, _ := m.Tools()
	size := 0
	for _, tl := range tools {
		size += len(tl.Spec().Description)
	}
	if st.Status != wire.MCPConnected || len(tools) == 0 || len(tools) > maxTools || size > maxListed {
		t.Errorf("%s %q: %d tools, %d bytes", st.Status, st.Error, len(tools), size)
	}
}

// A server that floods is slowed down; its call ends with its timeout.
func TestFlood(t *testing.T) {
	t.Parallel()
	m := manager(t)
	cfg := child("flood")
	cfg.Timeout = 1000
	m.Set("dynamic", Server{Name: "flood", Config: cfg})
	ready(t, m)
	r := tooltest.Call(t.Context(), tooltest.Env(t), find(t, m, "mcp__flood__t"), json.RawMessage(`{}`))
	if !r.IsError || !strings.Contains(r.Content.Text, "did not answer within 1s") {
		t.Errorf("%+v", r)
	}
	m.Close()
}

// If a server dies, its call fails, and it is restarted for the next one.
func TestDeath(t *testing.T) {
	m := manager(t)
	m.Set("dynamic", Server{Name: "p", Config: child("good")})
	ready(t, m)
	env := tooltest.Env(t)
	r := tooltest.Call(t.Context(), env, find(t, m, "mcp__p__die"), json.RawMessage(`{}`))
	if !r.IsError || !strings.Contains(r.Content.Text, "was lost during the call: the server ended with exit code 7; it said: I die.. ") {
		t.Errorf("%+v", r)
	}
	r = tooltest.Call(t.Context(), env, find(t, m, "mcp__p__add"), json.RawMessage(`{"a":1,"b":2}`))
	if r.IsError || r.Content.String() != "3" {
		t.Errorf("%+v", r)
	}
	if st := m.Status()[0]; st.Status != wire.MCPConnected {
		t.Errorf("%+v", st)
	}
	// It is not restarted forever.
	die := find(t, m, "mcp__p__die")
	testwait.Until(t, "the server is given up", func() bool {
		tooltest.Call(t.Context(), env, die, json.RawMessage(`{}`))
		return m.Status()[0].Status == wire.MCPFailed
	})
	if st := m.Status()[0]; !strings.Contains(st.Error, "exit code 7") {
		t.Errorf("%+v", st)
	}
	if err := m.Reconnect("p")(t.Context()); err != nil {
		t.Error(err)
	}
	find(t, m, "mcp__p__add")
}

func TestCancelAndTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := inHost(t, func(o *Options) { o.CallTimeout = time.Minute })
		m.Set("sdk", Server{Name: "calc", Config: &wire.MCPServerConfig{Type: "sdk"}})
		ready(t, m)
		env := tooltest.Env(t)
		wait := find(t, m, "mcp__calc__wait")

		for len(cancelled) > 0 {
			<-cancelled
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		if _, err := wait.Run(ctx, &tool.Call{Input: json.RawMessage(`{"ms":3600000}`), Env: env}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("cancelling took %v", took)
		}
		<-cancelled // the server was notified
		_, err := wait.Run(t.Context(), &tool.Call{Input: json.RawMessage(`{"ms":3600000}`), Env: env})
		if err == nil || !strings.Contains(err.Error(), "did not answer within 1m0s") {
			t.Error(err)
		}
		r, err := wait.Run(t.Context(), &tool.Call{Input: json.RawMessage(`{"ms":150000,"progress":true}`), Env: env})
		if err != nil || r.Content.String() != "waited" {
			t.Error("progress did not count as life:", err)
		}
	})
}

func TestConcurrentCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := inHost(t)
		m.Set("sdk", Server{Name: "calc", Config: &wire.MCPServerConfig{Type: "sdk"}})
		ready(t, m)
		wait := find(t, m, "mcp__calc__wait")
		env := tooltest.Env(t)
		began := time.Now()
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if _, err := wait.Run(t.Context(), &tool.Call{Input: json.RawMessage(`{"ms":10000}`), Env: env}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("16 calls of 10 s took %v", took)
		}
	})
}

func TestListChanged(t *testing.T) {
	changes := make(chan struct{}, 100)
	m, _ := inHost(t, func(o *Options) {
		o.OnChange = func() {
			select {
			case changes <- struct{}{}:
			default:
			}
		}
		o.Hidden = func(name string) bool { return name == "mcp__calc__die" }
	})
	m.Set("sdk", Server{Name: "calc", Config: &wire.MCPServerConfig{Type: "sdk"}})
	ready(t, m)
	tools, before := m.Tools()
	if strings.Contains(names(tools), "mcp__calc__die") {
		t.Error("a hidden tool is offered")
	}
	tooltest.Call(t.Context(), tooltest.Env(t), find(t, m, "mcp__calc__grow"), json.RawMessage(`{}`))
	testwait.Until(t, "the new tool is there", func() bool {
		tools, now := m.Tools()
		return now != before && strings.Contains(names(tools), "mcp__calc__grown")
	})
	if len(changes) < 2 {
		t.Error("nobody was told")
	}
}

func TestElicitation(t *testing.T) {
	for _, kind := range []string{"sdk", "stdio"} {
		t.Run(kind, func(t *testing.T) {
			asked := make(chan *wire.Elicitation, 1)
			m, _ := inHost(t, func(o *Options) {
				o.Elicit = func(_ context.Context, q *wire.Elicitation) (*wire.ElicitResult, error) {
					asked <- q
					return &wire.ElicitResult{Action: wire.ElicitAccept, Content: json.RawMessage(`{"name":"Ada"}`)}, nil
				}
			})
			cfg := child("good")
			if kind == "sdk" {
				cfg = &wire.MCPServerConfig{Type: "sdk"}
			}
			m.Set("dynamic", Server{Name: "calc", Config: cfg})
			ready(t, m)
			r := tooltest.Call(t.Context(), tooltest.Env(t), find(t, m, "mcp__calc__ask"), json.RawMessage(`{}`))
			if r.IsError || r.Content.String() != "accept Ada" {
				t.Errorf("%+v", r)
			}
			q := <-asked
			if q.MCPServerName != "calc" || q.Message != "Your name?" || q.Mode != "form" || len(q.PropertyOrder) != 2 {
				t.Errorf("%+v", q)
			}
			if got := strings.Join(rawjson.Names(rawjson.Get(q.RequestedSchema, "properties")), " "); got != "surname name" {
				t.Errorf("the fields are %q, want the server's order", got)
			}
		})
	}
}

// A question is cancelled when the calls that it may belong to have ended and one of them was
// cancelled. A question that arrives after that is not asked.
func TestCancelledCallsWithdrawTheirQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, open atomic.Int32
		m, _ := inHost(t, func(o *Options) {
			o.Elicit = func(ctx context.Context, q *wire.Elicitation) (*wire.ElicitResult, error) {
				asked.Add(1)
				open.Add(1)
				defer open.Add(-1)
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
		})
		m.Set("sdk", Server{Name: "calc", Config: &wire.MCPServerConfig{Type: "sdk"}})
		ready(t, m)
		env := tooltest.Env(t)
		wait := find(t, m, "mcp__calc__wait")
		call := func(ms int) context.CancelFunc {
			ctx, cancel := context.WithCancel(t.Context())
			go wait.Run(ctx, &tool.Call{Input: fmt.Appendf(nil, `{"ms":%d}`, ms), Env: env})
			synctest.Wait()
			return cancel
		}
		question := func() {
			m.Deliver("calc", json.RawMessage(fmt.Sprintf(`{"jsonrpc":"2.0","id":"q%d","method":"elicitation/create","params":{"message":"?"}}`, asked.Load())))
		}
		check := func(when string, wantAsked, wantOpen int32) {
			t.Helper()
			synctest.Wait()
			if asked.Load() != wantAsked || open.Load() != wantOpen {
				t.Errorf("%s: asked %d, open %d, want %d and %d", when, asked.Load(), open.Load(), wantAsked, wantOpen)
			}
		}
		first := call(3600000)
		call(10000)
		question()
		check("two calls run", 1, 1)
		first()
		check("one is cancelled, one runs", 1, 1)
		time.Sleep(10 * time.Second)
		check("one was cancelled, one is answered", 1, 0)
		question()
		check("the last call was cancelled", 1, 0)
		last := call(3600000)
		call(10000)
		question()
		time.Sleep(10 * time.Second)
		check("another call is answered", 2, 1)
		last()
		m.CancelQuestions()
		if synctest.Wait(); open.Load() != 0 {
			t.Error("the question is open after CancelQuestions")
		}
		call(10000)
		question()
		time.Sleep(10 * time.Second)
		check("all calls are answered", 3, 1)
	})
}

// A question that is answered on a page of the server is reported as answered once, and only
// if it was asked.
func TestElicitationElsewhere(t *testing.T) {
	told := make(chan string, 10)
	m := manager(t, func(o *Options) {
		o.Elicit = func(_ context.Context, q *wire.Elicitation) (*wire.ElicitResult, error) {
			if q.Mode != "url" || q.URL != "https://example.com/x" || q.ElicitationID != "E1" {
				t.Errorf("%+v", q)
			}
			return &wire.ElicitResult{Action: wire.ElicitAccept}, nil
		}
		o.Elicited = func(server, id string) { told <- server + " " + id }
	})
	m.Set("dynamic", Server{Name: "p", Config: child("page")})
	ready(t, m)
	if r := tooltest.Call(t.Context(), tooltest.Env(t), find(t, m, "mcp__p__t"), json.RawMessage(`{}`)); r.Content.String() != "done" {
		t.Error(r.Content)
	}
	m.Close()
	close(told)
	var all []string
	for s := range told {
		all = append(all, s)
	}
	if strings.Join(all, ", ") != "p E1" {
		t.Error(all)
	}
}

// The host may reject a message once; with a manifest it receives none.
func TestHost(t *testing.T) {
	m, h := inHost(t)
	h.fail = 1
	m.Set("sdk", Server{Name: "calc", Config: &wire.MCPServerConfig{Type: "sdk"}})
	if st := ready(t, m)["calc"]; st.Status != wire.MCPConnected || st.Config != nil || st.Transport != "sdk" {
		t.Errorf("%+v", st)
	}
	if got := h.methods(); got != "initialize initialize notifications/initialized tools/list" {
		t.Error(got)
	}

	m, h = inHost(t)
	h.fail = 2
	m.Set("sdk", Server{Name: "calc", Config: &wire.MCPServerConfig{Type: "sdk"}})
	if st := ready(t, m)["calc"]; st.Status != wire.MCPFailed || !strings.Contains(st.Error, "server not found") {
		t.Errorf("%+v", st)
	}

	m, h = inHost(t)
	manifest := &wire.MCPManifest{
		InitializeResult: json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"calc","version":"2"}}`),
		ToolsListResult:  json.RawMessage(`{"tools":[{"name":"add","inputSchema":{"type":"object"}}]}`),
	}
	m.Set("sdk", Server{Name: "calc", Config: &wire.MCPServerConfig{Type: "sdk"}, Manifest: manifest})
	if st := ready(t, m)["calc"]; st.Status != wire.MCPConnected || st.ServerInfo.Version != "2" {
		t.Errorf("%+v", st)
	}
	if got := h.methods(); got != "" {
		t.Error(got)
	}
	find(t, m, "mcp__calc__add")
	m.Deliver("calc", json.RawMessage(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
	m.Deliver("nobody", json.RawMessage(`{}`))
	m.Deliver("calc", json.RawMessage(`nonsense`))
	testwait.Until(t, "the host is asked", func() bool { return strings.HasPrefix(h.methods(), "tools/list") })
}

// A server in the host may send a message as soon as it has listed its tools.
func TestHostSendsAtOnce(t *testing.T) {
	var m *Manager
	var lists atomic.Int64
	h := host(t, newServer(), func(json.RawMessage) {})
	m = manager(t, func(o *Options) {
		o.Host = func(ctx context.Context, server string, message json.RawMessage) (json.RawMessage, error) {
			if strings.Contains(string(message), `"tools/list"`) && lists.Add(1) == 1 {
				defer m.Deliver("calc", json.RawMessage(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
			}
			return h.send(ctx, server, message)
		}
	})
	m.Set("sdk", Server{Name: "calc", Config: &wire.MCPServerConfig{Type: "sdk"}})
	ready(t, m)
	testwait.Until(t, "the tools are listed again", func() bool { return lists.Load() > 1 })
}

func TestToggleAndSet(t *testing.T) {
	m, _ := inHost(t)
	m.Set("dynamic", Server{Name: "p", Config: child("good")})
	m.Set("sdk", Server{Name: "calc", Config: &wire.MCPServerConfig{Type: "sdk"}})
	ready(t, m)
	ctx := t.Context()
	for _, f := range []func(string) error{
		func(n string) error { return m.Toggle(n, true)(ctx) },
		func(n string) error { return m.Reconnect(n)(ctx) },
	} {
		if err := f("x"); err == nil || err.Error() != "Server not found: x" {
			t.Error(err)
		}
	}
	add := find(t, m, "mcp__p__add")
	if err := m.Toggle("p", false)(ctx); err != nil {
		t.Fatal(err)
	}
	if st := m.Status()[0]; st.Status != wire.MCPDisabled || st.Tools != nil || st.ServerInfo != nil {
		t.Errorf("%+v", st)
	}
	if r := tooltest.Call(ctx, tooltest.Env(t), add, json.RawMessage(`{"a":1,"b":2}`)); !r.IsError || !strings.Contains(r.Content.Text, "switched off") {
		t.Errorf("%+v", r)
	}
	if err := m.Toggle("p", true)(ctx); err != nil {
		t.Fatal(err)
	}
	find(t, m, "mcp__p__add")
	if err := m.Reconnect("p")(ctx); err != nil {
		t.Fatal(err)
	}

	r, err := m.SetDynamic(map[string]*wire.MCPServerConfig{"two": child("good"), "bad": {Command: "/nonexistent/y"}})(ctx)
	if err != nil || fmt.Sprint(r.Added, r.Removed) != "[bad two] [calc]" || len(r.Errors) != 1 || r.Errors["bad"] == "" {
		t.Errorf("%+v %v", r, err)
	}
	find(t, m, "mcp__two__add")
	r, err = m.SetDynamic(map[string]*wire.MCPServerConfig{"two": child("good")})(ctx)
	if err != nil || fmt.Sprint(r.Added, r.Removed, r.Errors) != "[] [bad] map[]" {
		t.Errorf("%+v %v", r, err)
	}
	if got := names2(m.InitServers()); got != "p connected dynamic, two connected dynamic" {
		t.Error(got)
	}
	m.Close()
	if _, err := m.SetDynamic(nil)(ctx); err == nil {
		t.Error("a closed manager takes servers")
	}
}

func names2(list []*wire.InitMCPServer) string {
	var out []string
	for _, s := range list {
		out = append(out, s.Name+" "+s.Status+" "+s.Source)
	}
	return strings.Join(out, ", ")
}

// The start of a turn waits for servers without "startup", up to its limit, and for no others;
// the model's first request waits for those and for required ones.
func TestReady(t *testing.T) {
	t.Parallel()
	startup := func(role, kind string) *wire.MCPServerConfig {
		cfg := child(role)
		cfg.Extra = map[string]json.RawMessage{"startup": json.RawMessage(`"` + kind + `"`)}
		return cfg
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	m := manager(t)
	m.Set("dynamic", Server{Name: "lazy", Config: startup("silent", "lazy")}, Server{Name: "optional", Config: startup("silent", "optional")},
		Server{Name: "required", Config: startup("silent", "required")})
	m.Begin(t.Context(), time.Hour) // it does not wait for servers that set "startup"
	if err := m.Ready(over); err != context.Canceled {
		t.Error("it did not wait for a required server:", err)
	}
	for _, s := range m.InitServers() {
		if s.Status != "pending" {
			t.Errorf("%+v", s)
		}
	}

	m = manager(t)
	m.Set("dynamic", Server{Name: "plain", Config: child("silent")}, Server{Name: "optional", Config: startup("silent", "optional")})
	began := time.Now()
	m.Begin(t.Context(), 50*time.Millisecond)
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Error("it waited for", took)
	}
	if err := m.Ready(over); err != context.Canceled {
		t.Error("it did not wait for what may still come:", err)
	}

	m = manager(t, func(o *Options) { o.NoWait = true })
	m.Set("dynamic", Server{Name: "plain", Config: child("silent")})
	m.Begin(t.Context(), time.Hour)
	if err := m.Ready(t.Context()); err != nil {
		t.Error(err)
	}

	m = manager(t, func(o *Options) { o.ConnectTimeout = 200 * time.Millisecond })
	m.Set("dynamic", Server{Name: "plain", Config: child("silent")})
	if err := m.Ready(t.Context()); err != nil || m.InitServers()[0].Status != "failed" {
		t.Error("one that nobody called required fails the turn:", err, m.InitServers()[0].Status)
	}
	m.Set("dynamic", Server{Name: "required", Config: startup("silent", "required")})
	if err := m.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "Failed to connect to MCP server required") {
		t.Error(err)
	}
}

func TestToolName(t *testing.T) {
	if got := ToolName("my server", "a.b/c-d_e"); got != "mcp__my_server__a_b_c-d_e" {
		t.Error(got)
	}
	long := ToolName("s", strings.Repeat("x", 500))
	if len(long) != 128 || long == ToolName("s", strings.Repeat("x", 501)) {
		t.Error(long)
	}
}
