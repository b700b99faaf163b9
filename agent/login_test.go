package agent_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// guarded is an MCP server that responds in plain JSON, and only to clients with the token
// from its login.
func guarded(t *testing.T) *httptest.Server {
	var srv *httptest.Server
	srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/mcp":
			var m struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
			}
			json.NewDecoder(r.Body).Decode(&m)
			result := map[string]string{
				"initialize": `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"g","version":"1"}}`,
				"tools/list": `{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`,
			}[m.Method]
			switch {
			case r.Header.Get("Authorization") != "Bearer secret-token":
				w.WriteHeader(http.StatusUnauthorized)
			case r.Method != http.MethodPost:
				w.WriteHeader(http.StatusMethodNotAllowed)
			case m.ID == nil:
				w.WriteHeader(http.StatusAccepted)
			case result == "":
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
			default:
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
			}
		case "/.well-known/oauth-authorization-server":
			fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":%q,"token_endpoint":%q,"response_types_supported":["code"],"code_challenge_methods_supported":["S256"]}`,
				srv.URL, srv.URL+"/authorize", srv.URL+"/token")
		case "/token":
			io.WriteString(w, `{"access_token":"secret-token","token_type":"Bearer","expires_in":3600}`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	return srv
}

// A user logs in once, and later conversations are logged in, if they are those of the user.
func TestLoginOnce(t *testing.T) {
	srv := guarded(t)
	home, dir := t.TempDir(), t.TempDir()
	config := `{"mcpServers":{"web":{"type":"http","url":"` + srv.URL + `/mcp","oauth":{"clientId":"me"}},"p":{"command":"/nonexistent"}}}`
	cfg := agent.Config{Home: home, Cwd: dir, SettingSources: []string{"user"}}
	login := func(cfg agent.Config, name string) error {
		return agent.AuthorizeServer(t.Context(), cfg, []string{"--mcp-config=" + config}, name, func(address string) {
			u, err := url.Parse(address)
			if err != nil || u.Path != "/authorize" {
				t.Error(address)
				return
			}
			q := u.Query()
			back := strings.Replace(q.Get("redirect_uri"), "localhost", "127.0.0.1", 1)
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			resp, err := client.Get(back + "?" + url.Values{"code": {"c"}, "state": {q.Get("state")}}.Encode())
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Error(resp, err)
			}
			if err == nil {
				resp.Body.Close()
			}
		})
	}
	state := func(sources ...string) string {
		t.Helper()
		cfg := cfg
		cfg.SettingSources, cfg.Model, cfg.Store = sources, parleytest.Script(parleytest.Say("Hello.")).Model(), &session.Memory{}
		web := &wire.MCPServerConfig{Type: "http", URL: srv.URL + "/mcp"}
		web.Extra = map[string]json.RawMessage{"oauth": json.RawMessage(`{"clientId":"me"}`)}
		all, _, err := collect(t, &parley.Options{Cwd: dir, Dialer: agent.InProcess(cfg), MCPServers: map[string]*wire.MCPServerConfig{"web": web}}, "hi")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if init, ok := m.(*wire.Init); ok {
				return init.MCPServers[0].Status
			}
		}
		return ""
	}
	if got := state("user"); got != "needs-auth" {
		t.Fatal(got)
	}
	for name, want := range map[string]string{"nobody": "no MCP server is named nobody: use one of web, p", "p": "not connected"} {
		if err := login(cfg, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Error(name, err)
		}
	}
	for _, cfg := range []agent.Config{{Cwd: dir, SettingSources: []string{"user"}}, {Home: home, Cwd: dir}} {
		if err := login(cfg, "web"); err == nil || !strings.Contains(err.Error(), "cannot be saved") {
			t.Error(err)
		}
	}
	if err := login(cfg, "web"); err != nil {
		t.Fatal(err)
	}
	if got := state("user"); got != "connected" {
		t.Error(got)
	}
	if got := state(); got != "needs-auth" {
		t.Error("a conversation without the user's settings has the user's login:", got)
	}
	if err := login(cfg, "web"); err == nil || !strings.Contains(err.Error(), "logged in already") {
		t.Error(err)
	}
}

// A model that works in the home of the user, and may do anything, cannot access the
// credentials there.
func TestCredentialsAreKeptFromTheModel(t *testing.T) {
	home := t.TempDir()
	files := []string{filepath.Join(home, "mine", "parley-logins.json"), filepath.Join(home, "mine", ".credentials.json"),
		filepath.Join(home, ".claude", ".credentials.json"), filepath.Join(home, ".config", "claude", "config.json")}
	for i, file := range files {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, fmt.Appendf(nil, `{"note":"witness-%d"}`, i), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range files {
		turn := new(parleytest.Turn)
		turn.Call("Read", map[string]string{"file_path": file})
		turn.Call("Edit", map[string]string{"file_path": file, "old_string": "note", "new_string": "nothing"})
		turn.Call("Grep", map[string]string{"pattern": "note", "path": file, "output_mode": "content"})
		turn.Call("Grep", map[string]string{"pattern": "wit.ess", "path": home, "output_mode": "content"})
		turn.Call("Bash", map[string]string{"command": "cat " + file})
		turn.Call("Bash", map[string]string{"command": "cd " + filepath.Dir(file) + " && grep -r note ."})
		opts, m, _ := inProcess(t, parleytest.Script(turn, parleytest.Expect(parleytest.ToolResult("")).Say("No.")))
		opts.Cwd, opts.PermissionMode, opts.AllowBypass = home, wire.ModeBypassPermissions, true
		opts.Dialer = agent.InProcess(agent.Config{Home: home, Environ: []string{"CLAUDE_CONFIG_DIR=" + filepath.Join(home, "mine")}, Model: m, Store: &session.Memory{}})
		all, r, err := collect(t, opts, "look around")
		if err != nil || r.Result != "No." {
			t.Fatal(r, err, m.Err())
		}
		for _, msg := range all {
			if text, _ := json.Marshal(msg); strings.Contains(string(text), "witness") {
				t.Errorf("%s: %s", file, text)
			}
		}
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "note") {
			t.Error(string(text), err)
		}
	}
}

// They stay protected after settings were read again, too.
func TestCredentialsAreKeptWhenSettingsChange(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, ".claude")
	file, prefs := filepath.Join(dir, "parley-logins.json"), filepath.Join(dir, "settings.json")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, `{"note":"witness"}`)
	write(prefs, `{}`)
	m := parleytest.Script(parleytest.Say("Hello."), parleytest.Call("Read", map[string]string{"file_path": file}).Call("Bash", map[string]string{"command": "touch x"}),
		parleytest.Expect(parleytest.ToolResult("")).Say("No.")).Model()
	c, err := parley.Connect(t.Context(), &parley.Options{Cwd: home, PermissionMode: wire.ModeBypassPermissions, AllowBypass: true,
		Dialer: agent.InProcess(agent.Config{Home: home, Model: m, Store: &session.Memory{}, SettingSources: []string{"user"}})})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, err := range c.Turn(t.Context(), "hi") {
		if err != nil {
			t.Fatal(err)
		}
	}
	write(prefs, `{"permissions":{"deny":["Bash(touch:*)"]}}`)
	denied := 0
	for msg, err := range c.Turn(t.Context(), "look around") {
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := json.Marshal(msg); strings.Contains(string(text), "witness") {
			t.Errorf("%s", text)
		}
		if r, ok := msg.(*wire.Result); ok {
			denied = len(r.PermissionDenials)
		}
	}
	if denied != 2 { // so the settings were read again
		t.Errorf("%d calls were denied, want both", denied)
	}
}
