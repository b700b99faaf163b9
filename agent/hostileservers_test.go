package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A host logs its user in to a server on the network, and out again.
func TestServerLogin(t *testing.T) {
	server := toolServer()
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	t.Cleanup(func() {
		for s := range server.Sessions() {
			s.Close()
		}
	})
	var base string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/mcp":
			if r.Header.Get("Authorization") != "Bearer good" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			inner.ServeHTTP(w, r)
		case "/.well-known/oauth-authorization-server":
			fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":"%[1]s/authorize","token_endpoint":"%[1]s/token","registration_endpoint":"%[1]s/register","code_challenge_methods_supported":["S256"]}`, base)
		case "/register":
			io.WriteString(w, `{"client_id":"c"}`)
		case "/token":
			io.WriteString(w, `{"access_token":"good","token_type":"Bearer"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer web.Close()
	base = web.URL
	opts, m, _ := inProcess(t, parleytest.Script(parleytest.Expect(parleytest.Tools("mcp__web__meet")).Say("Hello.")))
	opts.MCPServers = map[string]*wire.MCPServerConfig{"web": {Type: "http", URL: base + "/mcp"}}
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	if err := c.ReconnectMCPServer(ctx, "web"); err == nil || !strings.Contains(err.Error(), "needs a login: 401") {
		t.Error(err)
	}
	status := func() wire.MCPState {
		t.Helper()
		list, err := c.MCPStatus(ctx)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		return list[0].Status
	}
	if s := status(); s != wire.MCPNeedsAuth {
		t.Error(s)
	}
	for _, req := range []wire.Request{&wire.MCPAuthenticate{ServerName: "x"}, &wire.MCPOAuthCallbackURL{ServerName: "x"}, &wire.MCPClearAuth{ServerName: "x"}} {
		if err := c.Call(ctx, req, nil); err == nil || !strings.Contains(err.Error(), "Server not found: x") {
			t.Error(req.Subtype(), err)
		}
	}
	var r wire.MCPAuthenticateResponse
	if err := c.Call(ctx, &wire.MCPAuthenticate{ServerName: "web"}, &r); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(r.AuthURL)
	if err != nil || !strings.HasPrefix(r.AuthURL, base+"/authorize?") || !r.RequiresUserAction {
		t.Errorf("%+v %v", r, err)
	}
	back := u.Query().Get("redirect_uri") + "?code=x&state="
	if err := c.Call(ctx, &wire.MCPOAuthCallbackURL{ServerName: "web", CallbackURL: back + "wrong"}, nil); err == nil || !strings.Contains(err.Error(), "another login") {
		t.Error(err)
	}
	if err := c.Call(ctx, &wire.MCPOAuthCallbackURL{ServerName: "web", CallbackURL: back + r.State}, nil); err != nil {
		t.Fatal(err)
	}
	if s := status(); s != wire.MCPConnected {
		t.Error(s)
	}
	for msg, err := range c.Turn(ctx, "hi") {
		if err != nil {
			t.Error(err)
		}
		if init, ok := msg.(*wire.Init); ok && !strings.Contains(strings.Join(init.Tools, " "), "mcp__web__meet") {
			t.Error(init.Tools)
		}
	}
	if err := m.Err(); err != nil {
		t.Error(err)
	}
	if err := c.Call(ctx, &wire.MCPClearAuth{ServerName: "web"}, nil); err != nil {
		t.Error(err)
	}
	if s := status(); s != wire.MCPNeedsAuth {
		t.Error(s)
	}
}

// A question that a server asks on its own page is reported to the host, and so is its
// answer.
func TestElicitationComplete(t *testing.T) {
	opts, _, _ := inProcess(t, parleytest.Script(parleytest.Call("mcp__p__t", `{}`), parleytest.Say("Done.")))
	asked := ""
	opts.OnElicitation = func(_ context.Context, q *wire.Elicitation) (*wire.ElicitResult, error) {
		asked = q.Mode + " " + q.URL + " " + q.ElicitationID
		return &wire.ElicitResult{Action: wire.ElicitAccept}, nil
	}
	opts.AllowedTools = []string{"mcp__p"}
	opts.MCPServers = map[string]*wire.MCPServerConfig{"p": {Command: self(t), Env: map[string]string{"PARLEY_AGENT_TEST_SERVER": "page"}}}
	all, r, err := collect(t, opts, "go")
	if err != nil || r.Result != "Done." || asked != "url https://example.com/x E1" {
		t.Fatal(asked, r, err)
	}
	told := 0
	for _, m := range all {
		if e, ok := m.(*wire.ElicitationComplete); ok {
			told++
			if e.MCPServerName != "p" || e.ElicitationID != "E1" || e.SessionID == "" || e.UUID == "" {
				t.Errorf("%+v", e)
			}
		}
	}
	if told != 1 {
		t.Errorf("told %d times: %s", told, kinds(all))
	}
}

// Servers that die, hang, flood and lie during a call affect only that call: the others are
// answered, and the turn continues.
func TestHostileServersInTurn(t *testing.T) {
	words := map[string]string{
		"dies": "the server ended with exit code 3; it said: out of ideas", "hangs": "did not answer within 1.5s", "floods": "did not answer within 1.5s",
		"lies": "cannot be read", "endless": "", "good": "fine",
	}
	roles := slices.Sorted(maps.Keys(words))
	calls := new(parleytest.Turn)
	for _, role := range roles {
		calls.Call("mcp__"+role+"__t", `{}`)
	}
	opts, m, _ := inProcess(t, parleytest.Script(calls, parleytest.Expect(parleytest.ToolResult("fine")).Call("mcp__good__t", `{}`), parleytest.Say("Done.")))
	opts.MCPServers = map[string]*wire.MCPServerConfig{}
	for _, role := range roles {
		cfg := &wire.MCPServerConfig{Command: self(t), Timeout: 1500, Env: map[string]string{"PARLEY_AGENT_TEST_SERVER": role}}
		cfg.Extra = map[string]json.RawMessage{"startup": json.RawMessage(`"required"`)}
		opts.MCPServers[role] = cfg
		opts.AllowedTools = append(opts.AllowedTools, "mcp__"+role)
	}
	all, r, err := collect(t, opts, "all of you")
	if err != nil || r.Result != "Done." {
		t.Fatal(r, err)
	}
	if err := m.Err(); err != nil {
		t.Error(err)
	}
	results := resultsByCall(all)
	if len(results) != len(roles)+1 {
		t.Fatalf("%d results", len(results))
	}
	for i, role := range append(roles, "good") {
		if text := results[i].Content.String(); !strings.Contains(text, words[role]) || results[i].IsError != (role != "good") {
			t.Errorf("%s: %.300s", role, text)
		}
	}
}

// Servers that are being connected delay neither the greeting nor requests; those that
// nobody waits for do not delay a turn either.
func TestServersDelayNothing(t *testing.T) {
	mute := func(startup string) *wire.MCPServerConfig {
		cfg := &wire.MCPServerConfig{Command: self(t), Env: map[string]string{"PARLEY_AGENT_TEST_SERVER": "mute"}}
		cfg.Extra = map[string]json.RawMessage{"startup": json.RawMessage(`"` + startup + `"`), "startupTimeout": json.RawMessage("600000")}
		return cfg
	}
	opts, _, _ := inProcess(t, parleytest.Script(parleytest.Say("Hello.")))
	opts.MCPServers = map[string]*wire.MCPServerConfig{"o": mute("optional"), "l": mute("lazy")}
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.InitializeResponse(); err != nil {
		t.Fatal(err)
	}
	for msg, err := range c.Turn(t.Context(), "hi") {
		if err != nil {
			t.Fatal(err)
		}
		if init, ok := msg.(*wire.Init); ok {
			for _, s := range init.MCPServers {
				if s.Status != "pending" {
					t.Errorf("%+v", s)
				}
			}
		}
	}

	opts, _, _ = inProcess(t, parleytest.Script())
	opts.MCPServers = map[string]*wire.MCPServerConfig{"r": mute("required")}
	if c, err = parley.Connect(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.InitializeResponse(); err != nil {
		t.Fatal(err)
	}
	if list, err := c.MCPStatus(t.Context()); err != nil || len(list) != 1 || list[0].Status != wire.MCPPending {
		t.Error(list, err)
	}
	// The turn starts; nothing is sent to the model, and the script has no turn for it.
	for msg, err := range c.Turn(t.Context(), "hi") {
		switch msg := msg.(type) {
		case *wire.Init:
			if msg.MCPServers[0].Status != "pending" {
				t.Errorf("%+v", msg.MCPServers[0])
			}
			go c.Interrupt(t.Context())
		case *wire.Result:
			if msg.TerminalReason != "aborted_streaming" {
				t.Errorf("%+v", msg)
			}
		default:
			_ = err // of the result
		}
	}
}

// A server that takes longer than the first message waits is there when the model is
// called.
func TestSlowServerIsThere(t *testing.T) {
	t.Parallel()
	for _, startup := range []string{"", `"required"`} {
		opts, m, _ := inProcess(t, parleytest.Script(
			parleytest.Expect(parleytest.Tools("mcp__slow__t")).Call("mcp__slow__t", `{}`),
			parleytest.Expect(parleytest.ToolResult("fine")).Say("Done.")))
		begin := filepath.Join(t.TempDir(), "begin")
		cfg := &wire.MCPServerConfig{Command: self(t), Env: map[string]string{"PARLEY_AGENT_TEST_SERVER": "good", "PARLEY_AGENT_TEST_SLOW": begin}}
		if startup != "" {
			cfg.Extra = map[string]json.RawMessage{"startup": json.RawMessage(startup)}
		}
		opts.MCPServers = map[string]*wire.MCPServerConfig{"slow": cfg}
		opts.AllowedTools = []string{"mcp__slow"}
		said := ""
		for msg, err := range parley.Query(t.Context(), "use it", opts) {
			switch msg := msg.(type) {
			case *wire.Init:
				if msg.MCPServers[0].Status != "pending" {
					t.Errorf("%s: %+v", startup, msg)
				}
				if err := os.WriteFile(begin, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			case *wire.Result:
				said = msg.Result
			default:
				if err != nil {
					t.Error(startup, err)
				}
			}
		}
		if said != "Done." {
			t.Error(startup, said, m.Err())
		}
	}
}

// hostileServer is the test binary as an MCP server that misbehaves in one way when it is
// called.
func hostileServer(role string) {
	slow := os.Getenv("PARLEY_AGENT_TEST_SLOW") // how long it takes to begin, or the file for which it waits
	if pause, err := time.ParseDuration(slow); err == nil {
		testwait.Pause(pause)
	} else if slow != "" {
		for _, err := os.Stat(slow); err != nil; _, err = os.Stat(slow) {
			testwait.Pause(10 * time.Millisecond)
		}
	}
	in := bufio.NewScanner(os.Stdin)
	var call json.RawMessage
	for in.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Name string
				Meta struct {
					Token json.RawMessage `json:"progressToken"`
				} `json:"_meta"`
			}
		}
		json.Unmarshal(in.Bytes(), &m)
		reply := func(id json.RawMessage, result string) {
			fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n", id, result)
		}
		switch {
		case role == "mute":
		case m.Method == "initialize":
			reply(m.ID, `{"protocolVersion":"2024-11-05","capabilities":{"tools":{},"prompts":{}},"serverInfo":{"name":"demo","version":"1.0"}}`)
		case m.Method == "prompts/list" && role == "demo":
			reply(m.ID, `{"prompts":[{"name":"greet"}]}`)
		case m.Method == "prompts/list":
			reply(m.ID, `{"prompts":[]}`)
		case m.Method == "tools/list" && role == "demo":
			reply(m.ID, `{"tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}},"annotations":{"readOnlyHint":true}},{"name":"fail"}]}`)
		case m.Method == "tools/list" && role == "asking":
			reply(m.ID, `{"tools":[{"name":"ask"},{"name":"slow"}]}`)
		case m.Method == "tools/list":
			reply(m.ID, `{"tools":[{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}`)
		case string(m.ID) == `"name"`:
			reply(call, `{"content":[{"type":"text","text":"elicited"}]}`)
		case string(m.ID) == `"ask"`:
			fmt.Println(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"E1"}}`)
			reply(call, `{"content":[]}`)
		case m.Method != "tools/call":
		case role == "asking" && m.Params.Name == "ask":
			call = m.ID
			fmt.Println(`{"jsonrpc":"2.0","id":"name","method":"elicitation/create","params":{"message":"Your name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}}`)
		case role == "asking":
			fmt.Printf("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":1}}\n", m.Params.Meta.Token)
			reply(m.ID, `{"content":[{"type":"text","text":"slow done"}]}`)
		case role == "demo" && m.Params.Name == "echo":
			reply(m.ID, `{"content":[{"type":"text","text":"hey"}],"structuredContent":{"x":1}}`)
		case role == "demo":
			reply(m.ID, `{"content":[{"type":"text","text":"bad"}],"isError":true}`)
		case role == "page":
			call = m.ID
			fmt.Println(`{"jsonrpc":"2.0","id":"ask","method":"elicitation/create","params":{"mode":"url","message":"Log in.","url":"https://example.com/x","elicitationId":"E1"}}`)
		case role == "dies":
			fmt.Fprintln(os.Stderr, "out of ideas")
			os.Exit(3)
		case role == "floods":
			for {
				if _, err := fmt.Println(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`); err != nil {
					return
				}
			}
		case role == "endless":
			for {
				if _, err := os.Stdout.WriteString(strings.Repeat("x", 1<<16)); err != nil {
					return
				}
			}
		case role == "lies":
			reply(json.RawMessage("4711"), `{"content":[]}`)
			reply(m.ID, `{"content":{"type":7}}`)
			reply(m.ID, `{"content":[]}`)
		case role == "good":
			reply(m.ID, `{"content":[{"type":"text","text":"fine"}]}`)
		}
	}
}

// Servers that a host changes are changed when its next line is read, although the response
// comes when they are connected or have failed.
func TestServerChangesInOrder(t *testing.T) {
	srv := `{"command":` + string(mustMarshal(t, self(t))) + `,"env":{"PARLEY_AGENT_TEST_SERVER":"good","PARLEY_AGENT_TEST_SLOW":"300ms"}}`
	control := func(id, request string) string {
		return `{"type":"control_request","request_id":"` + id + `","request":` + request + `}`
	}
	m := parleytest.Script(parleytest.Expect(parleytest.Tools("mcp__zeta__t")).Say("Hello.")).Model()
	got := say(t, agent.Config{Cwd: t.TempDir(), Model: m, Store: &session.Memory{}}, nil, initialize,
		control("set", `{"subtype":"mcp_set_servers","servers":{"zeta":`+srv+`,"alpha":`+srv+`,"old":`+srv+`}}`),
		control("again", `{"subtype":"mcp_set_servers","servers":{"zeta":`+srv+`,"alpha":`+srv+`}}`),
		control("off", `{"subtype":"mcp_toggle","serverName":"alpha","enabled":false}`),
		control("gone", `{"subtype":"mcp_reconnect","serverName":"old"}`),
		hello)
	want := map[string]string{"set": `"added":["alpha","old","zeta"]`, "again": `"removed":["old"]`, "off": `"subtype":"success"`, "gone": `Server not found: old`}
	for _, msg := range got.all {
		if r, ok := msg.(*wire.ControlResponse); ok && want[r.Response.RequestID] != "" {
			if text := string(mustMarshal(t, r)); !strings.Contains(text, want[r.Response.RequestID]) {
				t.Error(text)
			}
			delete(want, r.Response.RequestID)
		}
	}
	if len(want) > 0 {
		t.Error("no answer to", want)
	}
	states := map[string]string{}
	for _, s := range got.init.MCPServers {
		states[s.Name] = s.Status
	}
	// On a busy machine the first message does not wait until a server is connected.
	if len(states) != 2 || states["zeta"] != "connected" && states["zeta"] != "pending" || states["alpha"] != "disabled" || got.result.Result != "Hello." {
		t.Error(states, got.result, m.Err())
	}
}
