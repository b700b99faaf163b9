package mcp

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/engine/tool/tooltest"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/wire"
)

// A doorman is a server that requires a login, with its authorization server. Without
// changes it behaves correctly.
type doorman struct {
	*httptest.Server
	inner http.Handler

	mu      sync.Mutex
	seen    []string // requests, except those to the server itself
	asked   url.Values
	forms   []url.Values
	valid   map[string]bool // tokens
	n       int
	expires int

	metadata func(base string) string // of the authorization server; nil means correct metadata
	resource func(base string) string // of the server
	silent   bool                     // the rejection contains no challenge
}

func newDoorman(t *testing.T, change ...func(*doorman)) *doorman {
	d := &doorman{valid: map[string]bool{}, expires: 3600}
	server := newServer()
	d.inner = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	t.Cleanup(func() {
		for session := range server.Sessions() { // a logged-out client does not close its session
			session.Close()
		}
	})
	for _, f := range change {
		f(d)
	}
	d.Server = httptest.NewServer(d)
	t.Cleanup(d.Close)
	return d
}

func (d *doorman) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/mcp" {
		d.mu.Lock()
		ok := d.valid[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
		d.mu.Unlock()
		if !ok {
			if !d.silent {
				w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+d.URL+`/about", scope="read write"`)
			}
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		d.inner.ServeHTTP(w, r)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = append(d.seen, r.Method+" "+r.URL.Path)
	answer := func(text string) {
		if text == "" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, text)
	}
	switch r.URL.Path {
	case "/about":
		text := `{"resource":"` + d.URL + `/mcp","authorization_servers":["` + d.URL + `"]}`
		if d.resource != nil {
			text = d.resource(d.URL)
		}
		answer(text)
	case "/.well-known/oauth-authorization-server":
		text := `{"issuer":"` + d.URL + `","authorization_endpoint":"` + d.URL + `/authorize","token_endpoint":"` + d.URL + `/token","registration_endpoint":"` + d.URL +
			`/register","revocation_endpoint":"` + d.URL + `/revoke","response_types_supported":["code"],"code_challenge_methods_supported":["S256"]}`
		if d.metadata != nil {
			text = d.metadata(d.URL)
		}
		answer(text)
	case "/register":
		var about map[string]any
		json.NewDecoder(r.Body).Decode(&about)
		about["client_id"] = "client-1"
		text, _ := json.Marshal(about)
		w.WriteHeader(http.StatusCreated)
		w.Write(text)
	case "/token":
		r.ParseForm()
		d.forms = append(d.forms, r.PostForm)
		sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
		switch {
		case r.PostForm.Get("grant_type") == "refresh_token" && r.PostForm.Get("refresh_token") == fmt.Sprint("refresh-", d.n):
		case r.PostForm.Get("code") == "the-code" && d.asked.Get("code_challenge") == base64.RawURLEncoding.EncodeToString(sum[:]) &&
			r.PostForm.Get("redirect_uri") == d.asked.Get("redirect_uri") && r.PostForm.Get("resource") == d.URL+"/mcp":
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"error":"invalid_grant","error_description":"not yours"}`)
			return
		}
		d.n++
		clear(d.valid)
		d.valid[fmt.Sprint("token-", d.n)] = true
		answer(fmt.Sprintf(`{"access_token":"token-%d","token_type":"Bearer","expires_in":%d,"refresh_token":"refresh-%d"}`, d.n, d.expires, d.n))
	case "/revoke":
		r.ParseForm()
		d.forms = append(d.forms, r.PostForm)
	default:
		http.NotFound(w, r)
	}
}

func (d *doorman) config() *wire.MCPServerConfig {
	return &wire.MCPServerConfig{Type: "http", URL: d.URL + "/mcp"}
}

// begin starts a login and returns the redirect address.
func (d *doorman) begin(t *testing.T, m *Manager) *url.URL {
	t.Helper()
	r, err := m.Login(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(r.AuthURL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if u.Path != "/authorize" || q.Get("client_id") != "client-1" || q.Get("code_challenge_method") != "S256" || q.Get("resource") != d.URL+"/mcp" ||
		q.Get("scope") != "read write" || q.Get("state") != r.State || r.State == "" || !r.RequiresUserAction || !r.CallbackExpected || r.RedirectScheme != "localhost" {
		t.Errorf("%+v", r)
	}
	d.mu.Lock()
	d.asked = q
	d.mu.Unlock()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || back.Path != "/callback" || back.Port() != fmt.Sprint(r.CallbackPort) {
		t.Error(back, err)
	}
	back.RawQuery = url.Values{"code": {"the-code"}, "state": {r.State}}.Encode()
	return back
}

// state waits for the state of the only server.
func state(t *testing.T, m *Manager, want wire.MCPState) {
	t.Helper()
	testwait.Until(t, "the server is "+string(want), func() bool { return m.Status()[0].Status == want })
}

func TestLogin(t *testing.T) {
	t.Parallel()
	d := newDoorman(t)
	m := manager(t)
	m.Set("dynamic", Server{Name: "web", Config: d.config()})
	if st := ready(t, m)["web"]; st.Status != wire.MCPNeedsAuth || !strings.Contains(st.Error, "401") {
		t.Fatalf("%+v", st)
	}
	back := d.begin(t, m)
	for query, words := range map[string]string{
		"code=the-code&state=wrong":              "belongs to another login",
		"code=the-code":                          "belongs to another login",
		"state=" + back.Query().Get("state"):     "no code",
		back.RawQuery + "&iss=https://evil.test": "does not come from the login server",
		back.RawQuery + "&error=access_denied":   "refused: access_denied",
	} {
		if err := m.FinishLogin(t.Context(), "web", "http://localhost/callback?"+query); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", query, err)
		}
	}
	if err := m.FinishLogin(t.Context(), "web", back.String()); err != nil {
		t.Fatal(err)
	}
	state(t, m, wire.MCPConnected)
	add := find(t, m, "mcp__web__add")
	if r := tooltest.Call(t.Context(), tooltest.Env(t), add, json.RawMessage(`{"a":1,"b":2}`)); r.Content.String() != "3" {
		t.Errorf("%+v", r)
	}
	if err := m.FinishLogin(t.Context(), "web", back.String()); err == nil || !strings.Contains(err.Error(), "No login to the MCP server web is in progress") {
		t.Error("a code was taken twice", err)
	}

	// A token that the server no longer accepts is refreshed transparently.
	d.mu.Lock()
	clear(d.valid)
	d.mu.Unlock()
	if r := tooltest.Call(t.Context(), tooltest.Env(t), add, json.RawMessage(`{"a":2,"b":2}`)); r.Content.String() != "4" {
		t.Errorf("%+v", r)
	}
	if f := d.forms[len(d.forms)-1]; f.Get("grant_type") != "refresh_token" || f.Get("client_id") != "client-1" {
		t.Error(f)
	}

	if err := m.Logout(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	state(t, m, wire.MCPNeedsAuth)
	given := map[string]bool{}
	for _, f := range d.forms[len(d.forms)-2:] {
		given[f.Get("token_type_hint")+" "+f.Get("token")] = true
	}
	if !given["access_token token-2"] || !given["refresh_token refresh-2"] {
		t.Error("tokens were not given back:", given)
	}
	if err := m.Logout(t.Context(), "web"); err != nil {
		t.Error(err)
	}
}

// The page redirects the browser to us; a later login replaces an earlier one.
func TestLoginByBrowser(t *testing.T) {
	t.Parallel()
	d := newDoorman(t)
	m := manager(t)
	m.Set("dynamic", Server{Name: "web", Config: d.config()})
	ready(t, m)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(u string) (int, string) {
		t.Helper()
		resp, err := client.Get(strings.Replace(u, "localhost", "127.0.0.1", 1))
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	first := d.begin(t, m)
	back := d.begin(t, m)
	testwait.Until(t, "nobody listens for the first", func() bool { code, _ := get(first.String()); return code == 0 })
	if code, _ := get("http://" + back.Host + "/else"); code != http.StatusNotFound {
		t.Error(code)
	}
	if code, text := get("http://" + back.Host + "/callback?code=x&state=%3Cb%3E"); code != http.StatusBadRequest || strings.Contains(text, "<b>") {
		t.Error(code, text)
	}
	if code, text := get(back.String()); code != http.StatusOK || !strings.Contains(text, "logged in") {
		t.Fatal(code, text)
	}
	state(t, m, wire.MCPConnected)
	testwait.Until(t, "nobody listens any more", func() bool { code, _ := get(back.String()); return code == 0 })
}

// A token that the host sets as a header reaches the server, and the host may replace
// it.
func TestTokenOfHost(t *testing.T) {
	t.Parallel()
	d := newDoorman(t)
	d.valid["given"] = true
	m := manager(t)
	for token, want := range map[string]wire.MCPState{"old": wire.MCPNeedsAuth, "given": wire.MCPConnected} {
		cfg := d.config()
		cfg.Headers = map[string]string{"Authorization": "Bearer " + token}
		if _, err := m.SetDynamic(map[string]*wire.MCPServerConfig{"web": cfg})(t.Context()); err != nil {
			t.Fatal(err)
		}
		state(t, m, want)
	}
	m = manager(t)
	cfg := d.config()
	cfg.Headers = map[string]string{"Authorization": "Bearer given"}
	m.Set("dynamic", Server{Name: "web", Config: cfg})
	ready(t, m)
	add := find(t, m, "mcp__web__add")
	d.mu.Lock()
	clear(d.valid)
	d.mu.Unlock()
	if r := tooltest.Call(t.Context(), tooltest.Env(t), add, json.RawMessage(`{"a":2,"b":2}`)); !r.IsError || !strings.Contains(r.Content.String(), "needs a login: 401") {
		t.Errorf("%+v", r)
	}
	state(t, m, wire.MCPNeedsAuth)
}

// A failed login is reported, and nothing is sent to a wrong address.
func TestNoLogin(t *testing.T) {
	t.Parallel()
	good := `"response_types_supported":["code"],"code_challenge_methods_supported":["S256"]`
	for _, tt := range []struct {
		name, want string
		change     func(*doorman)
	}{
		{"nothing known", "does not describe its login", func(d *doorman) {
			d.silent = true
			d.metadata = func(string) string { return "" }
		}},
		{"another issuer", "does not match", func(d *doorman) {
			d.metadata = func(base string) string {
				return `{"issuer":"https://evil.test","authorization_endpoint":"` + base + `/a","token_endpoint":"` + base + `/token",` + good + `}`
			}
		}},
		{"no PKCE", "PKCE", func(d *doorman) {
			d.metadata = func(base string) string {
				return `{"issuer":"` + base + `","authorization_endpoint":"` + base + `/a","token_endpoint":"` + base + `/token"}`
			}
		}},
		{"a script", "scheme", func(d *doorman) {
			d.metadata = func(base string) string {
				return `{"issuer":"` + base + `","authorization_endpoint":"javascript:alert(1)","token_endpoint":"` + base + `/token",` + good + `}`
			}
		}},
		{"no TLS", "HTTPS", func(d *doorman) {
			d.metadata = func(base string) string {
				return `{"issuer":"` + base + `","authorization_endpoint":"` + base + `/a","token_endpoint":"http://far.test/token",` + good + `}`
			}
		}},
		{"no registration", "oauth.clientId", func(d *doorman) {
			d.metadata = func(base string) string {
				return `{"issuer":"` + base + `","authorization_endpoint":"` + base + `/a","token_endpoint":"` + base + `/token",` + good + `}`
			}
		}},
		{"no places", "where users log in", func(d *doorman) {
			d.metadata = func(base string) string { return `{"issuer":"` + base + `",` + good + `}` }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDoorman(t, tt.change)
			m := manager(t)
			m.Set("dynamic", Server{Name: "web", Config: d.config()})
			ready(t, m)
			if r, err := m.Login(t.Context(), "web"); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "MCP server web") {
				t.Errorf("%+v %v", r, err)
			}
		})
	}

	m := manager(t)
	m.Set("dynamic", Server{Name: "p", Config: child("crash")})
	ready(t, m)
	for _, f := range []func(string) error{
		func(n string) error { _, err := m.Login(t.Context(), n); return err },
		func(n string) error { return m.FinishLogin(t.Context(), n, "http://localhost") },
		func(n string) error { return m.Logout(t.Context(), n) },
	} {
		if err := f("x"); err == nil || err.Error() != "Server not found: x" {
			t.Error(err)
		}
		if err := f("p"); err == nil || !strings.Contains(err.Error(), "type stdio") {
			t.Error(err)
		}
	}

	// A server on the network cannot direct us to this machine, nor to an address
	// without TLS.
	client := authClient(nil, &url.URL{Scheme: "https", Host: "mcp.test"})
	for _, u := range []string{"http://127.0.0.1:1/x", "https://127.0.0.1:1/x", "https://localhost:1/", "https://[::1]/", "http://far.test/"} {
		if _, err := client.Get(u); err == nil || !strings.Contains(err.Error(), "not an https address on the network") {
			t.Error(u, err)
		}
	}
}

// A configured client id needs no registration; an old server is its own authorization
// server, and an invalid code leaves the login open.
func TestLoginConfigured(t *testing.T) {
	t.Parallel()
	d := newDoorman(t, func(d *doorman) { d.silent = true })
	m := manager(t)
	cfg := d.config()
	cfg.Extra = map[string]json.RawMessage{"oauth": json.RawMessage(`{"clientId":"mine"}`)}
	m.Set("dynamic", Server{Name: "web", Config: cfg})
	ready(t, m)
	r, err := m.Login(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse(r.AuthURL)
	d.mu.Lock()
	d.asked = u.Query()
	seen := strings.Join(d.seen, ", ")
	d.mu.Unlock()
	if u.Query().Get("client_id") != "mine" || strings.Contains(seen, "register") {
		t.Error(r.AuthURL, seen)
	}
	back := "http://localhost/callback?state=" + r.State + "&code="
	err = m.FinishLogin(t.Context(), "web", back+"stolen")
	if err == nil || !strings.Contains(err.Error(), "invalid_grant") || strings.Contains(err.Error(), "stolen") {
		t.Error(err)
	}
	if err := m.FinishLogin(t.Context(), "web", back+"the-code"); err != nil {
		t.Error(err)
	}
	state(t, m, wire.MCPConnected)
	if err := m.Logout(t.Context(), "web"); err != nil {
		t.Error(err)
	}
}
