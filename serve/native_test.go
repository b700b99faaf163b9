package serve_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
)

// A peer is a host on a WebSocket.
type peer struct {
	t    *testing.T
	conn *websocket.Conn
}

// dial connects a host, with a token in the header unless it is empty.
func (r *rig) dial(path, token string, header http.Header) (*peer, *http.Response, error) {
	r.t.Helper()
	if header == nil {
		header = http.Header{}
	}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	conn, resp, err := websocket.Dial(r.t.Context(), r.url+path, &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		return nil, resp, err
	}
	conn.SetReadLimit(1 << 20)
	r.t.Cleanup(func() { conn.CloseNow() })
	return &peer{r.t, conn}, resp, nil
}

func (p *peer) write(line string) {
	p.t.Helper()
	if err := p.conn.Write(p.t.Context(), websocket.MessageText, []byte(line)); err != nil {
		p.t.Fatal(err)
	}
}

// until returns the first message that contains all texts, or fails at the end.
func (p *peer) until(texts ...string) string {
	p.t.Helper()
	ctx := testwait.Context(p.t)
next:
	for {
		_, data, err := p.conn.Read(ctx)
		if err != nil {
			p.t.Fatalf("no %q: %v", texts, err)
		}
		for _, text := range texts {
			if !bytes.Contains(data, []byte(text)) {
				continue next
			}
		}
		return string(data)
	}
}

// TestPromptWaitsForInitialize checks that a prompt that a host sends right after its initialize
// request finds the host's hooks.
func TestPromptWaitsForInitialize(t *testing.T) {
	r := newRig(t, func() *parleytest.Model {
		return parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "true"})).Default(parleytest.Say("Done.")).Model()
	}, nil)
	for range 10 {
		p, _, err := r.dial("/v1/sessions/"+r.create("")+"/ws", r.tokens[serve.ScopeDrive], nil)
		if err != nil {
			t.Fatal(err)
		}
		p.write(`{"type":"control_request","request_id":"1","request":{"subtype":"initialize","hooks":{"PreToolUse":[{"matcher":"Bash","hookCallbackIds":["h"]}]}}}
{"type":"user","message":{"role":"user","content":"Go."}}`)
		if got := p.until(`"control_request"`); !strings.Contains(got, "hook_callback") {
			t.Fatalf("the first request is %s", got)
		}
		p.conn.CloseNow()
	}
}

// TestHostileWebSocketsAreRefused checks that only pages of this server and programs, with a
// token, can open a WebSocket.
func TestHostileWebSocketsAreRefused(t *testing.T) {
	r := newRig(t, nil, nil)
	id := r.create("")
	token := r.tokens[serve.ScopeView]
	for _, path := range []string{"/v1/watch", "/v1/sessions/" + id + "/watch", "/v1/sessions/" + id + "/ws"} {
		for _, c := range []struct {
			name   string
			token  string
			header http.Header
			want   int
		}{
			{"another origin", token, http.Header{"Origin": {"https://evil.example"}}, 403},
			{"another origin with the cookie", "", http.Header{"Origin": {"https://evil.example"}, "Cookie": {"parley=" + token}}, 403},
			{"another port of this host with the cookie", "", http.Header{"Origin": {"http://127.0.0.1:1"}, "Cookie": {"parley=" + token}}, 403},
			{"null", token, http.Header{"Origin": {"null"}}, 403},
			{"wrong token", "wrong", nil, 401},
			{"wrong cookie", "", http.Header{"Cookie": {"parley=wrong"}}, 401},
		} {
			if p, resp, err := r.dial(path, c.token, c.header); err == nil || resp == nil || resp.StatusCode != c.want {
				t.Errorf("%s, %s: %v %v %v", path, c.name, p, resp, err)
			}
		}
		if p, _, err := r.dial(path, "", http.Header{"Origin": {r.url}, "Cookie": {"parley=" + token}}); err != nil {
			t.Errorf("%s: a page of this server: %v", path, err)
		} else {
			p.conn.Close(websocket.StatusNormalClosure, "")
		}
	}
	// The socket for hosts reads the token from the first message, and accepts nothing else.
	for _, first := range []string{`{"type":"user","message":{"role":"user","content":"x"}}`, `{"type":"auth","credential":{"type":"oauth","token":"wrong"}}`, "x", "{}", strings.Repeat("x", 5000)} {
		p, _, err := r.dial("/v1/sessions/"+id+"/ws", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		p.write(first)
		if _, data, err := p.conn.Read(t.Context()); err == nil {
			t.Errorf("after %.60s it sent %s", first, data)
		}
	}
}

// TestHostileMessagesHaveNoEffect checks that the messages of a host are limited by the scope of
// its token.
func TestHostileMessagesHaveNoEffect(t *testing.T) {
	file := ""
	r := newRig(t, writing(&file), nil)
	file = filepath.Join(r.dir, "hello.txt")
	id := r.create("Write it.")
	r.events(serve.ScopeView, "/v1/sessions/"+id+"/events", "").until("ask", "Write")
	var list serve.ApprovalList
	r.do(serve.ScopeView, "GET", "/v1/approvals", nil).decode(t, &list)
	ask := list.Approvals[0].ID
	p, _, err := r.dial("/v1/sessions/"+id+"/ws", r.tokens[serve.ScopeView], nil)
	if err != nil {
		t.Fatal(err)
	}
	before := files(t, filepath.Join(r.state, "hub"))
	for _, line := range []string{
		`{"type":"user","message":{"role":"user","content":"Do more."},"uuid":"00000000-0000-4000-8000-0000000000aa"}`,
		`{"type":"control_response","response":{"subtype":"success","request_id":"` + ask + `","response":{"behavior":"allow"}}}`,
		`{"type":"control_request","request_id":"1","request":{"subtype":"interrupt"}}`,
		`{"type":"control_request","request_id":"2","request":{"subtype":"set_permission_mode","mode":"bypassPermissions"}}`,
		`{"type":"control_request","request_id":"3","request":{"subtype":"end_session"}}`,
		`{"type":"control_request","request_id":"4","request":{"subtype":"rename_session","title":"x"}}`,
		`{"type":"control_request","request_id":"5"}`,
		`{"type":"control_cancel_request","request_id":"` + ask + `"}`,
		`{"type":"auth","credential":{"type":"oauth","token":"` + r.tokens[serve.ScopeAdmin] + `"}}`,
		`{"type":"update_environment_variables","variables":{"PATH":"/x"}}`,
		"not JSON", `{"type":"user"`, `{"type":"user","type":"control_request"}`, "\x00", "[]", `{"type":7}`,
	} {
		p.write(line)
	}
	p.write(`{"type":"control_request","request_id":"last","request":{"subtype":"set_model","model":"x"}}`)
	p.until(`"request_id":"last"`, `"subtype":"error"`)
	for _, payload := range []string{`null`, `7`, `{}`, `{"type":"control_request"}`, `{"type":"control_response"}`, `{"type":"user","message":{"role":"user","content":"x"}}`, `{"type":"control_response","response":{"subtype":"success","request_id":"` + ask + `","response":{"behavior":"allow"}}}`} {
		resp := r.do(serve.ScopeView, "POST", "/v1/code/sessions/"+id+"/events", `{"session_id":"`+id+`","events":[{"payload":`+payload+`}]}`)
		if resp.StatusCode == 200 && strings.Contains(payload, "user") {
			t.Errorf("%s: %s", payload, resp.Status)
		}
	}
	if !maps.Equal(before, files(t, filepath.Join(r.state, "hub"))) {
		t.Error("it had an effect")
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the call ran")
	}
	// A host that may approve receives the question and answers it, without knowing the API.
	q, _, err := r.dial("/v1/sessions/"+id+"/ws", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.write(`{"type":"auth","credential":{"type":"oauth","token":"` + r.tokens[serve.ScopeApprove] + `"}}`)
	var req struct {
		ID string `json:"request_id"`
	}
	json.Unmarshal([]byte(q.until(`"can_use_tool"`)), &req)
	q.write(`{"type":"control_response","response":{"subtype":"success","request_id":"` + req.ID + `","response":{"behavior":"allow"}}}`)
	q.until(`"type":"result"`)
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// TestSecondHostTakesOverByName checks that a second host with tools is rejected, unless it has
// the name of the first: then it takes over, and the first learns that.
func TestSecondHostTakesOverByName(t *testing.T) {
	r := newRig(t, writing(new(string)), nil)
	id := r.create("")
	const initialize = `{"type":"control_request","request_id":"init","request":{"subtype":"initialize","hooks":{"Stop":[{"hookCallbackIds":["h"]}]}}}`
	open := func(scope serve.Scope) *peer {
		p, _, err := r.dial("/v1/sessions/"+id+"/ws", r.tokens[scope], nil)
		if err != nil {
			t.Fatal(err)
		}
		p.write(initialize)
		return p
	}
	first := open(serve.ScopeDrive)
	first.until(`"request_id":"init"`, `"success"`)
	open(serve.ScopeAdmin).until(`"request_id":"init"`, `"error"`, "my drive is the host")
	second := open(serve.ScopeDrive)
	second.until(`"request_id":"init"`, `"success"`)
	for {
		_, _, err := first.conn.Read(t.Context())
		if err != nil {
			if code := websocket.CloseStatus(err); code != serve.CloseSuperseded {
				t.Errorf("the first host ended with %d: %v", code, err)
			}
			break
		}
	}
}

// TestRequestsOfALostStream checks that a host that loses its stream receives its unanswered
// requests on the next one, but no tool call that may have arrived.
func TestRequestsOfALostStream(t *testing.T) {
	r := newRig(t, func() *parleytest.Model {
		return parleytest.Script(parleytest.Call("mcp__mine__double", map[string]int{"n": 2})).Default(parleytest.Say("Done.")).Model()
	}, nil)
	path := "/v1/code/sessions/" + r.create("") + "/events"
	post := func(payload string) {
		t.Helper()
		if got := r.do(serve.ScopeDrive, "POST", path, map[string]any{"events": []any{map[string]any{"payload": json.RawMessage(payload)}}}); got.StatusCode > 204 {
			t.Fatalf("%s: %d %s", payload, got.StatusCode, got.body)
		}
	}
	type request struct {
		ID      string `json:"request_id"`
		Type    string
		Request struct {
			Subtype string
			Message struct {
				ID     json.RawMessage
				Method string
			}
		}
	}
	from := r.events(serve.ScopeDrive, path+"/stream", "")
	next := func() (q request) {
		for q.Type != "control_request" && q.Type != "result" {
			q = request{}
			_, data := from.next()
			json.Unmarshal([]byte(data), &struct{ Payload *request }{&q})
		}
		return q
	}
	post(`{"type":"control_request","request_id":"1","request":{"subtype":"initialize","hooks":{"PreToolUse":[{"hookCallbackIds":["h"]}]},"sdkMcpServers":["mine"]}}`)
	post(`{"type":"user","message":{"role":"user","content":"Go."}}`)
	answers := map[string]string{
		"initialize":    `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"mine","version":"1"}}`,
		"tools/list":    `{"tools":[{"name":"double","inputSchema":{"type":"object"}}]}`,
		"tools/call":    `{"content":[{"type":"text","text":"4"}]}`,
		"hook_callback": `{}`,
		"can_use_tool":  `{"behavior":"allow","updatedInput":{"n":2}}`,
	}
	seen := map[string]int{}
	for {
		q := next()
		if q.Type == "result" {
			break
		}
		kind := q.Request.Subtype
		if kind == "mcp_message" {
			kind = q.Request.Message.Method
		}
		seen[kind]++
		from.close()
		from = r.events(serve.ScopeDrive, path+"/stream", "")
		if kind != "tools/call" {
			if again := next(); again.ID != q.ID {
				t.Fatalf("behind %s %s, a new stream has %v", kind, q.ID, again)
			}
		}
		response := answers[kind]
		if q.Request.Subtype == "mcp_message" {
			response = `{"mcp_response":{"jsonrpc":"2.0","id":` + string(q.Request.Message.ID) + `,"result":` + cmp.Or(response, "{}") + `}}`
			if q.Request.Message.ID == nil {
				response = "{}"
			}
		}
		post(`{"type":"control_response","response":{"subtype":"success","request_id":"` + q.ID + `","response":` + response + `}}`)
	}
	if seen["tools/call"] != 1 || seen["hook_callback"] != 1 {
		t.Errorf("requests %v", seen)
	}
}

// TestHostMissesNothing checks that a host receives everything that its first message leads to,
// also the pieces of the answer.
func TestHostMissesNothing(t *testing.T) {
	r := newRig(t, func() *parleytest.Model {
		return parleytest.Script().Default(parleytest.Say("Hello.")).Model()
	}, nil)
	for range 5 {
		p, _, err := r.dial("/v1/sessions/"+r.create("")+"/ws", r.tokens[serve.ScopeDrive], nil)
		if err != nil {
			t.Fatal(err)
		}
		p.write(`{"type":"user","message":{"role":"user","content":"Hi."}}`)
		var got strings.Builder
		for !strings.Contains(got.String(), `"type":"result"`) {
			_, data, err := p.conn.Read(testwait.Context(t))
			if err != nil {
				t.Fatalf("%v after %s", err, got.String())
			}
			got.Write(data)
		}
		for _, want := range []string{`"subtype":"init"`, `"stream_event"`, `"type":"assistant"`} {
			if !strings.Contains(got.String(), want) {
				t.Errorf("no %s in %s", want, got.String())
			}
		}
		p.conn.CloseNow()
	}
}
