package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/socket"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverEnv); dir != "" {
		if err := runServer(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// A rig is a server on loopback over a hub whose agents play a script.
type rig struct {
	t      *testing.T
	dir    string // working directory of sessions
	state  string // directory of the tokens
	hub    *hub.Hub
	server *serve.Server
	url    string
	tokens map[serve.Scope]string
	writes atomic.Int64 // to all connections
}

// A writeCounter counts the writes to the connections that it accepts.
type writeCounter struct {
	net.Listener
	writes *atomic.Int64
}

func (l writeCounter) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return countedConn{conn, l.writes}, err
}

type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// newRig starts a server. change may change the config before; a nil model means that
// no agent may start.
func newRig(t *testing.T, model func() *parleytest.Model, change func(*serve.Config)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), state: t.TempDir(), tokens: map[serve.Scope]string{}}
	h, err := hub.New(hub.Config{Backend: &hub.Files{Dir: filepath.Join(r.state, "hub")}, Name: "test", Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
		cfg := agent.Config{Model: model(), Store: start.Store, Environ: os.Environ()}
		return &parley.Options{Cwd: start.Cwd, Dialer: agent.InProcess(cfg)}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.hub = h
	t.Cleanup(func() { h.Close() })
	cfg := serve.Config{Hub: h, Dir: filepath.Join(r.state, "serve"), CheckPeer: func(c net.Conn) error { return socket.CheckPeer(c.(countedConn).Conn) }}
	if change != nil {
		change(&cfg)
	}
	if r.server, err = serve.New(cfg); err != nil {
		t.Fatal(err)
	}
	for _, scope := range []serve.Scope{serve.ScopeView, serve.ScopeApprove, serve.ScopeDrive, serve.ScopeAdmin} {
		if _, r.tokens[scope], err = r.server.AddToken("my "+string(scope), scope, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.server.Serve(ctx, writeCounter{l, &r.writes}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	r.url = "http://" + l.Addr().String()
	return r
}

// A reply is a response with its body.
type reply struct {
	*http.Response
	body string
}

func (r *reply) decode(t *testing.T, v any) {
	t.Helper()
	if r.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s: %s", r.Request.Method, r.Request.URL.Path, r.Status, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), v); err != nil {
		t.Fatalf("%s cannot be decoded: %v", r.body, err)
	}
}

// request returns a request with the token of a scope, none if it is empty.
func (r *rig) request(scope serve.Scope, method, path string, body any) *http.Request {
	r.t.Helper()
	var data []byte
	if text, ok := body.(string); ok {
		data = []byte(text)
	} else if body != nil {
		data, _ = json.Marshal(body)
	}
	req, err := http.NewRequest(method, r.url+path, bytes.NewReader(data))
	if err != nil {
		r.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if scope != "" {
		req.Header.Set("Authorization", "Bearer "+r.tokens[scope])
	}
	return req
}

func (r *rig) send(req *http.Request) *reply {
	r.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(resp.Body)
	return &reply{resp, strings.TrimSpace(string(data))}
}

func (r *rig) do(scope serve.Scope, method, path string, body any) *reply {
	r.t.Helper()
	return r.send(r.request(scope, method, path, body))
}

// create creates a session through the API.
func (r *rig) create(prompt string) string {
	r.t.Helper()
	var made serve.Made
	r.do(serve.ScopeAdmin, "POST", "/v1/sessions", map[string]string{"cwd": r.dir, "prompt": prompt}).decode(r.t, &made)
	return made.ID
}

// files returns all files below a directory with their content.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
