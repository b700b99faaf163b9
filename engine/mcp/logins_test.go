package mcp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/tool/tooltest"
	"github.com/parley-go/parley/wire"
)

// keeper returns a function that creates managers with one server each, which share a
// file of logins.
func keeper(t *testing.T) (*Logins, func(name string, cfg *wire.MCPServerConfig) *Manager) {
	logins := &Logins{File: filepath.Join(t.TempDir(), "config", "logins.json")}
	return logins, func(name string, cfg *wire.MCPServerConfig) *Manager {
		t.Helper()
		m := manager(t, func(o *Options) { o.Logins = logins })
		m.Set("dynamic", Server{Name: name, Config: cfg})
		ready(t, m)
		return m
	}
}

func (d *doorman) login(t *testing.T, m *Manager) {
	t.Helper()
	if err := m.FinishLogin(t.Context(), "web", d.begin(t, m).String()); err != nil {
		t.Fatal(err)
	}
}

func works(t *testing.T, m *Manager) bool {
	t.Helper()
	r := tooltest.Call(t.Context(), tooltest.Env(t), find(t, m, "mcp__web__add"), json.RawMessage(`{"a":1,"b":2}`))
	return r.Content.String() == "3"
}

// One login is enough for later conversations, in a file that only the user can read.
func TestKeptLogin(t *testing.T) {
	t.Parallel()
	d := newDoorman(t)
	logins, open := keeper(t)
	first := open("web", d.config())
	if list, err := logins.List(); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	d.login(t, first)
	if info, err := os.Stat(logins.File); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Fatal(info.Mode(), err)
	}
	asked := len(d.forms)
	second := open("web", d.config())
	if st := second.Status()[0]; st.Status != wire.MCPConnected || !works(t, second) {
		t.Fatalf("%+v", st)
	}
	if len(d.forms) != asked {
		t.Error("a good token was replaced")
	}

	// A refresh token can be used only once: the first manager that is rejected refreshes
	// it for both.
	d.mu.Lock()
	clear(d.valid)
	d.mu.Unlock()
	var wg sync.WaitGroup
	for _, m := range []*Manager{first, second} {
		wg.Go(func() {
			if !works(t, m) {
				t.Error("a token was not replaced")
			}
		})
	}
	wg.Wait()
	if n := len(d.forms) - asked; n != 1 {
		t.Errorf("%d requests for a token", n)
	}

	// A logout applies to all processes.
	if err := second.Logout(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	state(t, second, wire.MCPNeedsAuth)
	d.mu.Lock()
	clear(d.valid)
	d.mu.Unlock()
	if works(t, first) {
		t.Error("it works without a login")
	}
	state(t, first, wire.MCPNeedsAuth)
	if list, err := logins.List(); err != nil || len(list) != 0 {
		t.Error(list, err)
	}

	// So does a login, after a reconnect.
	d.login(t, second)
	if err := first.Reconnect("web")(t.Context()); err != nil || !works(t, first) {
		t.Error(err)
	}
}

// A token that has expired is refreshed before it is sent.
func TestKeptLoginExpired(t *testing.T) {
	t.Parallel()
	d := newDoorman(t, func(d *doorman) { d.expires = 1 })
	logins, open := keeper(t)
	d.login(t, open("web", d.config()))
	before, _ := logins.List()
	d.mu.Lock()
	d.expires = 3600
	d.mu.Unlock()
	m := open("web", d.config())
	if !works(t, m) {
		t.Errorf("%+v", m.Status()[0])
	}
	after, err := logins.List()
	if err != nil || len(after) != 1 || after[0].Token == before[0].Token || after[0].Refresh == before[0].Refresh || !after[0].Expires.After(time.Now()) {
		t.Error(after, err)
	}
}

// A login is only for its server at its address, and is sent to no other; a token in the
// configuration takes precedence.
func TestKeptLoginBound(t *testing.T) {
	t.Parallel()
	d := newDoorman(t)
	logins, open := keeper(t)
	d.login(t, open("web", d.config()))
	var mu sync.Mutex
	var shown []string
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		shown = append(shown, r.Header.Get("Authorization"))
		mu.Unlock()
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(thief.Close)
	given := d.config()
	given.Headers = map[string]string{"authorization": "Bearer wrong"}
	another := d.config()
	another.Extra = map[string]json.RawMessage{"oauth": json.RawMessage(`{"clientId":"another"}`)}
	query := d.config()
	query.URL += "?tenant=2"
	for what, m := range map[string]*Manager{
		"another address": open("web", &wire.MCPServerConfig{Type: "http", URL: thief.URL + "/mcp"}), "another path": open("web", query),
		"another name": open("other", d.config()), "a token of its own": open("web", given), "another client": open("web", another),
	} {
		if st := m.Status()[0]; st.Status != wire.MCPNeedsAuth {
			t.Errorf("%s: %+v", what, st)
		}
	}
	mu.Lock()
	if got := strings.Join(shown, ""); len(shown) == 0 || got != "" {
		t.Errorf("another server was shown %q", shown)
	}
	mu.Unlock()

	// A file that others can read, or that is malformed, does not make the manager fail.
	text, err := os.ReadFile(logins.File)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" {
		os.Chmod(logins.File, 0o644)
		if _, err := logins.List(); err == nil || !strings.Contains(err.Error(), "others may read") {
			t.Error(err)
		}
		state(t, open("web", d.config()), wire.MCPNeedsAuth)
		os.Chmod(logins.File, 0o600)
	}
	for _, bad := range []string{"", "{", `{"version":2}`, `{"version":1,"logins":[null,{}]}`, `{"version":1,"logins":7}`} {
		os.WriteFile(logins.File, []byte(bad), 0o600)
		state(t, open("web", d.config()), wire.MCPNeedsAuth)
	}
	os.WriteFile(logins.File, text, 0o600)
	state(t, open("web", d.config()), wire.MCPConnected)

	gone, err := logins.Forget(t.Context(), func(k *KeptLogin) bool { return k.Server == "web" })
	if err != nil || len(gone) != 1 {
		t.Fatal(gone, err)
	}
	n := len(d.forms)
	if err := gone[0].GiveBack(t.Context(), nil); err != nil || len(d.forms) != n+2 {
		t.Error(err, d.forms[n:])
	}
	state(t, open("web", d.config()), wire.MCPNeedsAuth)
}
