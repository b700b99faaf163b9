//go:build linux

package socket_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/socket"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// FuzzRequests sends a request to a hub over its socket, and checks that every request has a response
// and that the hub serves the next one. SID stands for a session.
func FuzzRequests(f *testing.F) {
	for path, body := range map[string]string{
		"/v1/sessions": `{"cwd":"/"}`, "/v1/sessions/SID/open": `{"cwd":"/","agent":{"args":["--model"]}}`, "/v1/sessions/SID/state": ``,
		"/v1/sessions/SID/prompt": `{"type":"user","message":{"role":"user","content":"x"}}`, "/v1/sessions/SID/drop": `"x"`, "/v1/sessions/SID/initialized": `{}`,
		"/v1/sessions/SID/answer": `{"ask":"x","shown":"y","response":{"behavior":"allow"}}`, "/v1/sessions/SID/control": `{"subtype":"interrupt"}`,
		"/v1/sessions/SID/rewind": `"x"`, "/v1/sessions/SID/rename": `"x"`, "/v1/sessions/SID/stop": `null`, "/v1/sessions/SID/remove": `[]`, "/v1/sessions/SID/merge_worktree": `7`,
		"/v1/sessions/SID/remove_worktree": `true`, "/v1/sessions/../SID/delete": ``, "/v1/hosts/x/leave": ``, "/v1/hosts/x/1": `{"response":{}}`, "/v1/sessions/x/host": `{"initialize":null}`,
		"/v1/schedules": `{"session":"SID","cron":"* * * * *","prompt":"x"}`, "/v1/unschedule": `"x"`, "/v1/nothing": `{"a":`, "//": "\xff",
	} {
		f.Add("POST", path, body)
		f.Add("GET", path, body)
	}
	f.Add("GET", "/v1/sessions/SID/events?after=18446744073709551616", "")
	f.Add("GET", "/v1/sessions/SID/events?after=18446744073709551615", "")
	f.Add("GET", "/v1/sessions/SID/events?after=0", "")
	f.Fuzz(func(t *testing.T, method, path, body string) {
		if strings.Contains(strings.ToLower(path), "shutdown") {
			return // it ends the hub
		}
		h, err := hub.New(hub.Config{Backend: new(hub.Memory), Agent: func(context.Context, hub.Start) (*parley.Options, error) {
			return nil, errors.New("there are no agents here")
		}})
		if err != nil {
			t.Fatal(err)
		}
		at := serve(t, shortDir(t), h)
		t.Cleanup(func() { h.Close() })
		web := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return socket.Dial(ctx, at) }}}
		defer web.CloseIdleConnections()
		id, err := h.Client(hub.Actor{Name: "user", Rights: hub.Everything}).Create(t.Context(), hub.Spec{Cwd: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, "http://hub"+strings.ReplaceAll(path, "SID", id), strings.NewReader(strings.ReplaceAll(body, "SID", id)))
		if err != nil || req.URL.Host != "hub" || method == "CONNECT" {
			return // no client would send it
		}
		resp, err := web.Do(req)
		if err != nil {
			t.Fatalf("%s %s: no response: %v", method, path, err)
		}
		cancel() // events do not end by themselves
		resp.Body.Close()
		resp, err = web.Get("http://hub/v1/sessions")
		if err != nil {
			t.Fatal("afterwards:", err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("afterwards: status %d", resp.StatusCode)
		}
	})
}

// FuzzResponses answers every request of a client with the same bytes, and checks that the client
// returns.
func FuzzResponses(f *testing.F) {
	for _, body := range []string{`{}`, `[]`, `null`, `{"id":"x"}`, `{"status":404,"name":"not_found","message":"x"}`, `{"kind":"state","data":{}}` + "\n", `{"n":1,"kind":"frame","data":{"type":"x"}}` + "\n" + `{"n":1`,
		`{"epoch":1,"link":"x"}` + "\n" + `{"call":"1","request":{"type":"control_request","request_id":"1","request":{"subtype":"interrupt"}}}` + "\n", `{"status":-1,"message":""}`, "\xff", ``} {
		f.Add(200, body)
		f.Add(400, body)
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 200 || status > 999 {
			return
		}
		at := filepath.Join(shortDir(t), "socket")
		l, err := socket.Listen(at)
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(status)
			io.WriteString(w, body)
		})}
		go srv.Serve(l)
		defer srv.Close()
		c := socket.NewClient(at)
		defer c.Close()
		ctx, id := t.Context(), session.NewID()
		c.List(ctx)
		c.State(ctx, id)
		c.InitializeResponse(ctx, id)
		c.Create(ctx, hub.Spec{Cwd: "/"})
		c.Prompt(ctx, id, wire.Prompt(wire.Text("x")))
		c.Schedules(ctx, "")
		n := 0
		for _, err := range c.Attach(ctx, id, 0) {
			if n++; err != nil || n > 100 {
				break
			}
		}
		link, err := c.Host(ctx, id, hub.HostOptions{Handle: func(context.Context, *wire.ControlRequest) (json.RawMessage, error) { return nil, errors.New("no") }})
		if err == nil {
			link.Close()
		}
	})
}
