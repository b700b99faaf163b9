//go:build unix

package terminal_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// guardedServer is an MCP server that responds only to clients with the token from its
// login.
func guardedServer(t *testing.T) *httptest.Server {
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

// TestLogin logs in to an MCP server: the screen shows that it is needed, shows the page,
// and reports when it is done.
func TestLogin(t *testing.T) {
	t.Parallel()
	srv := guardedServer(t)
	p := newPane(t).start(400, 24, "turn\n\tsay Hello.\n", "--mcp-config", `{"mcpServers":{"web":{"type":"http","url":"`+srv.URL+`/mcp","oauth":{"clientId":"me"}}}}`)
	p.see("the MCP server web needs a login: /login web")
	p.enter("/login")
	p.see("Name the MCP server")
	p.enter("/login nowhere")
	p.see("the login to nowhere failed")
	p.enter("/login web")
	screen := p.see("Open this page to log in to web:", srv.URL+"/authorize?")
	address, err := url.Parse(regexp.MustCompile(regexp.QuoteMeta(srv.URL) + `/authorize\S+`).FindString(screen))
	if err != nil {
		t.Fatal(err)
	}
	q := address.Query()
	back := strings.Replace(q.Get("redirect_uri"), "localhost", "127.0.0.1", 1)
	resp, err := http.Get(back + "?" + url.Values{"code": {"c"}, "state": {q.Get("state")}}.Encode())
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	p.see("You are logged in to web.")
}

// TestDumbTerminal checks that a dumb terminal gets lines and no escape sequences.
func TestDumbTerminal(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.env = []string{"TERM=dumb"}
	p.start(80, 24, "turn\n\tsay Some **bold** text.\n")
	p.see(">")
	p.enter("go")
	p.see("Some bold text.")
	p.keys("C-d")
	p.see("exit status 0")
	if all := p.colors(); strings.Contains(all, "\x1b[1m") {
		t.Errorf("looks in a dumb terminal:\n%q", all)
	}
}
