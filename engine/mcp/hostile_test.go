package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"unicode"

	"github.com/parley-go/parley/engine/tool/tooltest"
	"github.com/parley-go/parley/wire"
)

// beside calls a tool of a server while a tool of another server runs, and again
// afterwards: whatever the server does, the other one must answer.
func beside(t *testing.T, m *Manager, name string) (text string, failed bool) {
	t.Helper()
	env := tooltest.Env(t)
	add := find(t, m, "mcp__good__add")
	bad := find(t, m, name)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := tooltest.Call(context.Background(), env, bad, json.RawMessage(`{}`))
		text, failed = r.Content.String(), r.IsError
	}()
	check := func() {
		t.Helper()
		if r := tooltest.Call(t.Context(), env, add, json.RawMessage(`{"a":1,"b":2}`)); r.IsError || r.Content.String() != "3" {
			t.Errorf("its neighbour suffers: %+v", r)
		}
	}
	for range 5 {
		check()
	}
	<-done
	check()
	return text, failed
}

// neighbours returns a manager with a well-behaved server, and others.
func neighbours(t *testing.T, servers ...Server) *Manager {
	m := manager(t)
	m.Set("dynamic", append(servers, Server{Name: "good", Config: child("good")})...)
	for name, st := range ready(t, m) {
		if st.Status != wire.MCPConnected {
			t.Fatalf("%s: %+v", name, st)
		}
	}
	return m
}

// heap returns the size of the heap; messages of a server must not be kept.
func heap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// Servers that flood during a call: with messages, with an endless result, or with
// output on stderr. At most the call fails, and almost no memory is used.
func TestFloodsDuringCalls(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		role, tool, want string
		failed           bool
	}{
		{"storm", "t", "did not answer within 1s", true},
		{"giant", "t", "a line of more than 4 MB", true},
		{"gossip", "none", "completed with no output", false},
	} {
		t.Run(tt.role, func(t *testing.T) {
			cfg := child(tt.role)
			if strings.Contains(tt.want, "within 1s") {
				cfg.Timeout = 1000
			}
			m := neighbours(t, Server{Name: "bad", Config: cfg})
			text, failed := beside(t, m, "mcp__bad__"+tt.tool)
			if failed != tt.failed || !strings.Contains(text, tt.want) {
				t.Errorf("%v %.300s", failed, text)
			}
			if h := heap(); h > 200<<20 {
				t.Errorf("%d MB are in use", h>>20)
			}
			m.Close()
		})
	}
}

// Messages without their required params, over each transport.
func TestHollowMessages(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		json.NewDecoder(r.Body).Decode(&m)
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if m.ID == nil || m.Method == "" {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		result := map[string]string{
			"initialize": `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"hollow","version":"0"}}`,
			"tools/list": `{"tools":[{"name":"t"}]}`, "tools/call": `{"content":[{"type":"text","text":"alive"}]}`,
		}[m.Method]
		w.Header().Set("Content-Type", "text/event-stream")
		if m.Method == "tools/call" {
			for _, line := range hollow() {
				fmt.Fprintf(w, "data: %s\n\n", line)
			}
		}
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", m.ID, result)
	}))
	defer web.Close()
	for kind, cfg := range map[string]*wire.MCPServerConfig{"stdio": child("hollow"), "http": {Type: "http", URL: web.URL}} {
		t.Run(kind, func(t *testing.T) {
			m := manager(t, func(o *Options) {
				o.Elicit = func(context.Context, *wire.Elicitation) (*wire.ElicitResult, error) {
					return &wire.ElicitResult{Action: wire.ElicitDecline}, nil
				}
				o.Elicited = func(string, string) {}
			})
			m.Set("dynamic", Server{Name: "bad", Config: cfg}, Server{Name: "good", Config: child("good")})
			ready(t, m)
			if text, failed := beside(t, m, "mcp__bad__t"); failed || text != "alive" {
				t.Error(text)
			}
		})
	}

	m, _ := inHost(t, func(o *Options) {
		o.Elicit = func(context.Context, *wire.Elicitation) (*wire.ElicitResult, error) {
			return &wire.ElicitResult{Action: wire.ElicitDecline}, nil
		}
	})
	m.Set("sdk", Server{Name: "calc", Config: &wire.MCPServerConfig{Type: "sdk"}})
	ready(t, m)
	for _, line := range hollow() {
		m.Deliver("calc", json.RawMessage(line))
	}
	if r := tooltest.Call(t.Context(), tooltest.Env(t), find(t, m, "mcp__calc__add"), json.RawMessage(`{"a":1,"b":2}`)); r.Content.String() != "3" {
		t.Errorf("%+v", r)
	}
}

// Malicious names and schemas: what the API would reject is repaired or left out, and
// nothing takes long.
func TestBombs(t *testing.T) {
	t.Parallel()
	m := neighbours(t, Server{Name: "bomb", Config: child("bomb")})
	tools, _ := m.Tools()
	offered := 0
	for _, tl := range tools {
		s := tl.Spec()
		if !strings.HasPrefix(s.Name, "mcp__bomb__") {
			continue
		}
		offered++
		if len(s.Name) > 128 || strings.IndexFunc(s.Name, func(r rune) bool { return r > unicode.MaxASCII || r < '-' }) >= 0 || len(s.Schema) > maxSchema || !json.Valid(s.Schema) {
			t.Errorf("%.200s %.100s", s.Name, s.Schema)
		}
	}
	find(t, m, "mcp__bomb__quoted")
	if all := names(tools); offered < 5 || strings.Contains(all, "__deep") || strings.Contains(all, "__huge") {
		t.Errorf("%d tools are offered: %.500s", offered, all)
	}
	if text, failed := beside(t, m, "mcp__bomb__ok"); failed || text != "boom" {
		t.Error(text)
	}
}

// Servers on the network that hang, flood or send malformed responses.
func TestHostileWeb(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	answer := func(call func(w http.ResponseWriter, r *http.Request, id json.RawMessage)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var m struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
			}
			json.NewDecoder(r.Body).Decode(&m)
			reply := func(result string) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
			}
			switch {
			case r.Method != http.MethodPost:
				w.WriteHeader(http.StatusMethodNotAllowed)
			case m.Method == "initialize":
				reply(`{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"0"}}`)
			case m.Method == "tools/list":
				reply(`{"tools":[{"name":"t"}]}`)
			case m.Method == "tools/call":
				call(w, r, m.ID)
			default:
				w.WriteHeader(http.StatusAccepted)
			}
		}
	}
	elsewhere := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { elsewhere <- r.Header.Get("X-Secret") }))
	defer other.Close()
	for _, tt := range []struct {
		name, want string
		call       func(w http.ResponseWriter, r *http.Request, id json.RawMessage)
	}{
		{"hangs", "did not answer within 1s", func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
			select {
			case <-r.Context().Done():
			case <-gone:
			}
		}},
		{"hangs in the middle", "did not answer within 1s", func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"jsonrpc\"")
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
			case <-gone:
			}
		}},
		{"events without end", "did not answer within 1s", func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
			w.Header().Set("Content-Type", "text/event-stream")
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\""+strings.Repeat("x", 1000)+"\"}}\n\n"); err != nil {
					return
				}
			}
		}},
		{"an answer without end", "", func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
					return
				}
			}
		}},
		{"no JSON", "", func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<h1>It works!</h1>")
		}},
		{"another id", "", func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jsonrpc":"2.0","id":4711,"result":{"content":[]}}`)
		}},
		{"an error of its own", "500", func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) { w.WriteHeader(500) }},
		{"a redirection", "", func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}},
		{"a cut", "", func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				c.Close()
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			web := httptest.NewServer(answer(tt.call))
			t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
			limit := int64(0)
			if tt.want == "" || strings.Contains(tt.want, "within 1s") {
				limit = 1000
			}
			m := neighbours(t, Server{Name: "bad", Config: &wire.MCPServerConfig{Type: "http", URL: web.URL, Timeout: limit, Headers: map[string]string{"X-Secret": "s"}}})
			text, failed := beside(t, m, "mcp__bad__t")
			if !failed || !strings.Contains(text, tt.want) {
				t.Errorf("%v %.300s", failed, text)
			}
			m.Close()
		})
	}
	t.Cleanup(func() {
		close(gone)
		for len(elsewhere) > 0 {
			if s := <-elsewhere; s != "" {
				t.Error("a header went elsewhere")
			}
		}
	})
}
