package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/parley-go/parley/acp"
	"github.com/parley-go/parley/hub"
	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
)

func acpConfig(cfg *serve.Config) {
	cfg.ACP = func(ctx context.Context, h hub.Client, r io.Reader, w io.Writer) error {
		return acp.Serve(ctx, acp.Config{Hub: h}, r, w)
	}
}

// A message is one of the Agent Client Protocol.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result struct {
		SessionID  string `json:"sessionId"`
		StopReason string `json:"stopReason"`
	} `json:"result"`
	Error  *acp.Error `json:"error"`
	Params struct {
		Options []struct{ OptionID, Kind string } `json:"options"`
		Update  struct {
			SessionUpdate string          `json:"sessionUpdate"`
			Content       json.RawMessage `json:"content"`
		} `json:"update"`
	} `json:"params"`
}

// An events is a stream of server-sent events that a test reads.
type events struct {
	t     *testing.T
	body  io.ReadCloser
	lines *bufio.Scanner
	last  string
}

func (r *rig) acpEvents(connection, session, after string) *events {
	r.t.Helper()
	req := r.request(serve.ScopeAdmin, "GET", "/acp", nil)
	req.Header.Set("Accept", "text/event-stream")
	for name, v := range map[string]string{"Acp-Connection-Id": connection, "Acp-Session-Id": session, "Last-Event-ID": after} {
		if v != "" {
			req.Header.Set(name, v)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		r.t.Fatalf("%s: %s", resp.Status, text)
	}
	r.t.Cleanup(func() { resp.Body.Close() })
	e := &events{t: r.t, body: resp.Body, lines: bufio.NewScanner(resp.Body)}
	e.lines.Buffer(nil, 1<<24)
	return e
}

// next returns the next message.
func (e *events) next() (m message) {
	e.t.Helper()
	for e.lines.Scan() {
		if id, ok := strings.CutPrefix(e.lines.Text(), "id: "); ok {
			e.last = id
		}
		if data, ok := strings.CutPrefix(e.lines.Text(), "data: "); ok {
			if err := json.Unmarshal([]byte(data), &m); err != nil {
				e.t.Fatalf("%s: %v", data, err)
			}
			return m
		}
	}
	e.t.Fatalf("the stream ended: %v", e.lines.Err())
	return m
}

// TestACPOverHTTP checks that an editor drives a session over streamable HTTP: the
// response to initialize comes at once, others on streams; a stream that breaks continues
// after its last event.
func TestACPOverHTTP(t *testing.T) {
	r := newRig(t, func() *pt.Model {
		return pt.Script(pt.Expect(pt.LastUser("one")).Say("First."), pt.Expect(pt.LastUser("two")).Say("Second.")).Model()
	}, acpConfig)
	post := func(connection, session, body string) *reply {
		t.Helper()
		req := r.request(serve.ScopeAdmin, "POST", "/acp", body)
		if connection != "" {
			req.Header.Set("Acp-Connection-Id", connection)
		}
		if session != "" {
			req.Header.Set("Acp-Session-Id", session)
		}
		return r.send(req)
	}
	got := post("", "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}`)
	id := got.Header.Get("Acp-Connection-Id")
	if got.StatusCode != http.StatusOK || id == "" || !strings.Contains(got.body, `"protocolVersion":1`) {
		t.Fatalf("initialize: %s %s", got.Status, got.body)
	}
	connection := r.acpEvents(id, "", "")
	if got := post(id, "", `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"`+r.dir+`","mcpServers":[]}}`); got.StatusCode != http.StatusAccepted || got.body != "" {
		t.Fatalf("session/new: %s %s", got.Status, got.body)
	}
	made := connection.next()
	if string(made.ID) != "1" || made.Result.SessionID == "" {
		t.Fatalf("session/new was answered with %+v", made)
	}
	session := made.Result.SessionID
	prompt := func(n int, text string) {
		post(id, session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":%q,"prompt":[{"type":"text","text":%q}]}}`, n, session, text))
	}
	turn := func(e *events, n int) (said string) {
		t.Helper()
		for {
			m := e.next()
			var content struct{ Text string }
			json.Unmarshal(m.Params.Update.Content, &content)
			said += content.Text
			if string(m.ID) == fmt.Sprint(n) {
				if m.Result.StopReason != "end_turn" {
					t.Fatalf("the prompt was answered with %+v", m)
				}
				return said
			}
		}
	}
	stream := r.acpEvents(id, session, "")
	prompt(2, "one")
	if said := turn(stream, 2); said != "First." {
		t.Errorf("it said %q", said)
	}
	// The stream breaks. Messages in the meantime arrive after the last event, and none
	// twice.
	last := stream.last
	stream.body.Close()
	prompt(3, "two")
	stream = r.acpEvents(id, session, last)
	if said := turn(stream, 3); said != "Second." {
		t.Errorf("behind %s it said %q", last, said)
	}
	stream.body.Close()
	stream = r.acpEvents(id, session, last)
	if said := turn(stream, 3); said != "Second." {
		t.Errorf("behind %s it said %q the second time", last, said)
	}

	for name, c := range map[string]struct {
		scope        serve.Scope
		method, body string
		header       map[string]string
		status       int
	}{
		"no token":           {"", "POST", `{}`, nil, 401},
		"token of a viewer":  {serve.ScopeDrive, "POST", `{"jsonrpc":"2.0","id":0,"method":"initialize"}`, nil, 403},
		"no connection":      {serve.ScopeAdmin, "POST", `{"jsonrpc":"2.0","id":5,"method":"session/list","params":{}}`, nil, 400},
		"unknown connection": {serve.ScopeAdmin, "POST", `{"jsonrpc":"2.0","id":5,"method":"session/list","params":{}}`, map[string]string{"Acp-Connection-Id": "x"}, 404},
		"batch":              {serve.ScopeAdmin, "POST", `[{"jsonrpc":"2.0","id":5,"method":"session/list"}]`, map[string]string{"Acp-Connection-Id": id}, 501},
		"not JSON":           {serve.ScopeAdmin, "POST", `{"jsonrpc"`, map[string]string{"Acp-Connection-Id": id}, 400},
		"two messages":       {serve.ScopeAdmin, "POST", "{}\n{}", map[string]string{"Acp-Connection-Id": id}, 400},
		"media type":         {serve.ScopeAdmin, "POST", `{}`, map[string]string{"Content-Type": "text/plain"}, 415},
		"accept":             {serve.ScopeAdmin, "GET", "", map[string]string{"Acp-Connection-Id": id, "Accept": "application/json"}, 406},
		"no stream":          {serve.ScopeAdmin, "GET", "", map[string]string{"Accept": "text/event-stream"}, 400},
		"future event":       {serve.ScopeAdmin, "GET", "", map[string]string{"Acp-Connection-Id": id, "Acp-Session-Id": session, "Accept": "text/event-stream", "Last-Event-ID": "99999"}, 400},
		"page elsewhere":     {serve.ScopeAdmin, "POST", `{}`, map[string]string{"Origin": "https://example.com"}, 403},
	} {
		req := r.request(c.scope, c.method, "/acp", c.body)
		for k, v := range c.header {
			req.Header.Set(k, v)
		}
		if got := r.send(req); got.StatusCode != c.status {
			t.Errorf("%s: %s %s, want %d", name, got.Status, got.body, c.status)
		}
	}
	// Another token does not see the connection.
	_, other, err := r.server.AddToken("other", serve.ScopeAdmin, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	req := r.request("", "DELETE", "/acp", nil)
	req.Header.Set("Acp-Connection-Id", id)
	req.Header.Set("Authorization", "Bearer "+other)
	if got := r.send(req); got.StatusCode != http.StatusNotFound {
		t.Errorf("another token could end the connection: %s", got.Status)
	}
	req = r.request(serve.ScopeAdmin, "DELETE", "/acp", nil)
	req.Header.Set("Acp-Connection-Id", id)
	if got := r.send(req); got.StatusCode != http.StatusAccepted {
		t.Errorf("DELETE: %s %s", got.Status, got.body)
	}
	for connection.lines.Scan() { // the streams end
	}
	if got := post(id, "", `{"jsonrpc":"2.0","id":9,"method":"session/list","params":{}}`); got.StatusCode != http.StatusNotFound {
		t.Errorf("after its end: %s", got.Status)
	}
}

// TestACPOverWebSocket checks that an editor drives a session over a WebSocket, and gets
// an error for a message that is not JSON.
func TestACPOverWebSocket(t *testing.T) {
	var file string
	r := newRig(t, func() *pt.Model {
		return pt.Script(pt.Expect(pt.LastUser("one")).Call("Write", map[string]string{"file_path": file, "content": "x"}), pt.Expect(pt.ToolResult("")).Say("Done.")).Model()
	}, acpConfig)
	file = filepath.Join(r.dir, "a")
	conn, resp, err := websocket.Dial(t.Context(), r.url+"/acp", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + r.tokens[serve.ScopeAdmin]}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(1 << 24)
	if resp.Header.Get("Acp-Connection-Id") == "" {
		t.Error("the connection has no id")
	}
	send := func(text string) {
		t.Helper()
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	next := func() (m message) {
		t.Helper()
		_, data, err := conn.Read(t.Context())
		if err == nil {
			err = json.Unmarshal(data, &m)
		}
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	send("{\n\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":1,\"clientCapabilities\":{}}}\n")
	if m := next(); string(m.ID) != "0" || m.Error != nil {
		t.Fatalf("initialize was answered with %+v", m)
	}
	send("no\njson")
	if m := next(); m.Error == nil || m.Error.Code != -32700 {
		t.Errorf("what is no JSON was answered with %+v", m)
	}
	send(`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"` + r.dir + `","mcpServers":[]}}`)
	m := next()
	for ; string(m.ID) != "1"; m = next() {
	}
	send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"` + m.Result.SessionID + `","prompt":[{"type":"text","text":"one"}]}}`)
	asked := 0
	for m = next(); string(m.ID) != "2"; m = next() {
		if m.Method == "session/request_permission" {
			asked++
			for _, o := range m.Params.Options {
				if o.Kind == "allow_once" {
					send(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"outcome":{"outcome":"selected","optionId":"` + o.OptionID + `"}}}`)
				}
			}
		}
	}
	if _, err := os.Stat(file); err != nil || asked != 1 || m.Result.StopReason != "end_turn" {
		t.Errorf("%v, asked %d times, ended with %+v", err, asked, m)
	}
	conn.Close(websocket.StatusNormalClosure, "")
}
