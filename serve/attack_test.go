package serve_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/serve"
)

// raw sends bytes and returns the status of each response, until the server ends the
// connection or has answered want requests.
func (r *rig) raw(t *testing.T, data string, want int) (all []int) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	go c.Write([]byte(data))
	in := bufio.NewReader(c)
	for len(all) < want {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			break
		}
		io.Copy(io.Discard, resp.Body)
		all = append(all, resp.StatusCode)
	}
	return all
}

// TestHostileBytesHaveNoEffect sends requests that are ambiguous in HTTP, and those that
// only raw bytes can express. Each has the token and would rename the session.
func TestHostileBytesHaveNoEffect(t *testing.T) {
	r := newRig(t, nil, nil)
	id := r.create("")
	host := strings.TrimPrefix(r.url, "http://")
	const body = `{"title":"owned"}`
	rest := func(headers string) string {
		return "Authorization: Bearer " + r.tokens[serve.ScopeDrive] + "\r\nContent-Type: application/json\r\n" + headers + "\r\n" + body
	}
	size := fmt.Sprintf("Content-Length: %d\r\n", len(body))
	path := "/v1/sessions/" + id
	for _, c := range []struct {
		name, raw string
		want      int // 0: the connection ends without a response
	}{
		{"absolute form, another host", "PATCH http://evil.example" + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest(size), 421},
		{"absolute form with a user", "PATCH http://" + host + "@evil.example" + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest(size), 421},
		{"two hosts", "PATCH " + path + " HTTP/1.1\r\nHost: " + host + "\r\nHost: evil.example\r\n" + rest(size), 400},
		{"the same host twice", "PATCH " + path + " HTTP/1.1\r\nHost: " + host + "\r\nHost: " + host + "\r\n" + rest(size), 400},
		{"a list of hosts", "PATCH " + path + " HTTP/1.1\r\nHost: " + host + ", evil.example\r\n" + rest(size), 400},
		{"no host", "PATCH " + path + " HTTP/1.1\r\n" + rest(size), 400},
		{"no host, HTTP/1.0", "PATCH " + path + " HTTP/1.0\r\n" + rest(size), 421},
		{"empty host", "PATCH " + path + " HTTP/1.1\r\nHost:\r\n" + rest(size), 421},
		{"another host on the next line", "PATCH " + path + " HTTP/1.1\r\nHost: evil.example\r\n " + host + "\r\n" + rest(size), 400},
		{"a space before the colon", "PATCH " + path + " HTTP/1.1\r\nHost : " + host + "\r\n" + rest(size), 400},
		{"a null in a header", "PATCH " + path + " HTTP/1.1\r\nHost: " + host + "\r\nX: a\x00b\r\n" + rest(size), 400},
		{"a header of 100 KB", "PATCH " + path + " HTTP/1.1\r\nHost: " + host + "\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n" + rest(size), 431},
		{"20,000 headers", "PATCH " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Repeat("X: y\r\n", 20_000) + rest(size), 431},
		{"two lengths", "PATCH " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest("Content-Length: 1\r\n"+size), 400},
		{"an origin on two lines", "PATCH " + path + " HTTP/1.1\r\nHost: " + host + "\r\nOrigin:\r\nOrigin: https://evil.example\r\n" + rest(size), 403},
		{"a length with a sign", "PATCH " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest(fmt.Sprintf("Content-Length: +%d\r\n", len(body))), 400},
		{"a length in hexadecimal", "PATCH " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest("Content-Length: 0x11\r\n"), 400},
		{"an encoding with a tab", "PATCH " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest("Transfer-Encoding:\x0bchunked\r\n"), 400},
		{"an encoding twice", "PATCH " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"), 501},
		{"a bare line feed in a header", "PATCH " + path + " HTTP/1.1\nHost: evil.example\nX: y\r\n" + rest(size), 421},
		{"a carriage return in a header", "PATCH " + path + " HTTP/1.1\r\nHost: " + host + "\r\nX: a\rHost: evil.example\r\n" + rest(size), 400},
		{"absolute form with our name and another port's host", "PATCH http://evil.example:80" + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest(size), 421},
		{"absolute form of another scheme", "PATCH file://" + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest(size), 421},
		{"absolute form without a host", "PATCH http://" + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest(size), 421},
		{"a negative length", "PATCH " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest("Content-Length: -1\r\n"), 400},
		{"another encoding", "PATCH " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest("Transfer-Encoding: gzip, chunked\r\n"), 501},
		{"chunks that are none", "PATCH " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest("Transfer-Encoding: chunked\r\n") + "\r\n", 400},
		{"a method of another", "RENAME " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest(size), 404},
		{"a connection through", "CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example:80\r\n\r\n", 421},
		{"a trace", "TRACE " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest(""), 404},
		{"a star for another host", "OPTIONS * HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421},
		{"a star", "PATCH * HTTP/1.1\r\nHost: " + host + "\r\n" + rest(size), 400},
		{"an upgrade to HTTP/2 that hides a request", "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", 421},
		{"HTTP/2 that ends at once", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0},
		{"HTTP/2 with a frame too large", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x04\x00\x00\x00\x00\x00", 0},
		{"HTTP/3", "PATCH " + path + " HTTP/3.0\r\nHost: " + host + "\r\n" + rest(size), 505},
		{"a path without a slash", "PATCH v1/sessions/" + id + " HTTP/1.1\r\nHost: " + host + "\r\n" + rest(size), 400},
	} {
		before := files(t, filepath.Join(r.state, "hub"))
		got := 0
		if all := r.raw(t, c.raw, 1); len(all) > 0 {
			got = all[0]
		}
		if got != c.want {
			t.Errorf("%s: status %d, want %d", c.name, got, c.want)
		}
		if !maps.Equal(before, files(t, filepath.Join(r.state, "hub"))) {
			t.Errorf("%s had an effect", c.name)
		}
	}
	// Two requests on one connection: the second is read where the first ends.
	first := "POST /v1/render HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
	before := files(t, filepath.Join(r.state, "hub"))
	if all := r.raw(t, first+"PATCH "+path+" HTTP/1.1\r\nHost: evil.example\r\n"+rest(size), 2); len(all) == 0 || all[0] != 401 || len(all) == 2 && all[1] < 400 {
		t.Errorf("a request with two lengths: %v", all)
	}
	if !maps.Equal(before, files(t, filepath.Join(r.state, "hub"))) {
		t.Error("a request with two lengths had an effect")
	}
}

// TestHostileNamesHaveNoEffect checks that every route rejects invalid names, and touches
// no file.
func TestHostileNamesHaveNoEffect(t *testing.T) {
	r := newRig(t, nil, nil)
	id := r.create("")
	var api struct{ Paths map[string]map[string]any }
	r.do(serve.ScopeView, "GET", "/openapi.json", nil).decode(t, &api)
	parameter := regexp.MustCompile(`\{(\w+)\}`)
	before := files(t, r.state)
	for path, ops := range api.Paths {
		for method := range ops {
			method = strings.ToUpper(method)
			for _, m := range parameter.FindAllStringSubmatch(path, -1) {
				for _, name := range []string{"..%2f..%2fserve", "%2e%2e", ".", "..", "%2fetc%2fpasswd", "%00", id + "%00", id + "%2f..%2f" + id, id[:35], strings.ToUpper(id[:8]) + "x", "*", "%", "%ff", "~", "CON", strings.Repeat("a", 5000), "00000000-0000-4000-8000-000000000001", "\u202e" + id} {
					real := strings.Replace(path, m[0], name, 1)
					real = parameter.ReplaceAllString(real, id)
					all := r.raw(t, method+" "+real+" HTTP/1.1\r\nHost: "+strings.TrimPrefix(r.url, "http://")+"\r\nAuthorization: Bearer "+r.tokens[serve.ScopeAdmin]+"\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 1)
					if len(all) != 1 || all[0] >= 500 || all[0] == 200 && m[1] != "uuid" {
						t.Errorf("%s %s (%.60s): %v", method, path, name, all)
					}
				}
			}
		}
	}
	after := files(t, r.state)
	for name := range after {
		if strings.HasSuffix(name, "audit.jsonl") || strings.HasSuffix(name, "lock") {
			delete(after, name)
			delete(before, name)
		}
	}
	if !maps.Equal(before, after) {
		t.Error("it had an effect")
	}
}

// TestHostileNumbers checks that invalid entry numbers are rejected, and that numbers that
// are too large wait for later entries.
func TestHostileNumbers(t *testing.T) {
	r := newRig(t, nil, nil)
	id := r.create("")
	for _, path := range []string{"/v1/sessions/" + id + "/events", "/v1/sessions/" + id + "/watch", "/v1/sessions/" + id + "/ws", "/v1/code/sessions/" + id + "/events/stream", "/v1/sessions/" + id + "/entries"} {
		for _, n := range []string{"-1", "1e3", "0x1", "99999999999999999999", "١", "1 2", "1,2", "NaN", "null", "1.0", "%31", "[1]"} {
			for _, way := range []string{"header", "query"} {
				req := r.request(serve.ScopeAdmin, "GET", path, nil)
				if way == "header" {
					req.Header.Set("Last-Event-ID", n)
				} else {
					req.URL.RawQuery = "after=" + strings.NewReplacer("%", "%25", " ", "+").Replace(n)
				}
				if strings.HasSuffix(path, "entries") && way == "header" {
					continue // it has no such header
				}
				if strings.HasSuffix(path, "watch") || strings.HasSuffix(path, "ws") {
					for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="} {
						req.Header.Set(name, value)
					}
				}
				if got := r.send(req); got.StatusCode != 400 {
					t.Errorf("%s, %s %q: %s %s", path, way, n, got.Status, got.body)
				}
			}
		}
	}
	// The largest number: there is nothing after it yet.
	got := r.events(serve.ScopeView, "/v1/sessions/"+id+"/events", "18446744073709551615")
	r.do(serve.ScopeDrive, "PATCH", "/v1/sessions/"+id, `{"title":"x"}`)
	got.until("state", "")
}

// frameOf returns a WebSocket frame of a client.
func frameOf(head byte, payload []byte) []byte {
	f := []byte{head, 0x80 | 126, 0, 0, 0, 0, 0, 0} // masked with zeros
	switch n := len(payload); {
	case n < 126:
		f = []byte{head, 0x80 | byte(n), 0, 0, 0, 0}
	case n < 1<<16:
		binary.BigEndian.PutUint16(f[2:], uint16(n))
	default:
		f = append([]byte{head, 0x80 | 127}, binary.BigEndian.AppendUint64(nil, uint64(n))...)
		f = append(f, 0, 0, 0, 0)
	}
	return append(f, payload...)
}

// TestHostileFrames checks that frames that no client sends end their connection or have no
// effect, and that the server continues.
func TestHostileFrames(t *testing.T) {
	r := newRig(t, nil, nil)
	id := r.create("")
	host := strings.TrimPrefix(r.url, "http://")
	rename := `{"type":"control_request","request_id":"1","request":{"subtype":"rename_session","title":"owned"}}`
	repeat := func(f []byte, n int) []byte { return []byte(strings.Repeat(string(f), n)) }
	join := func(all ...[]byte) (b []byte) {
		for _, f := range all {
			b = append(b, f...)
		}
		return b
	}
	deep := []byte(`{"type":"user","message":{"role":"user","content":` + strings.Repeat("[", 1<<20))
	unmasked := append([]byte{0x81, byte(len(rename))}, rename...)
	for name, data := range map[string][]byte{
		"not masked":                     unmasked,
		"compressed":                     frameOf(0xc1, []byte("\xaaV*J-.\xc8\xcf+N\x05\x00")),
		"reserved bits":                  frameOf(0xb1, []byte(rename)),
		"an unknown kind":                frameOf(0x83, []byte(rename)),
		"a continuation of nothing":      frameOf(0x80, []byte(rename)),
		"a message inside a message":     join(frameOf(0x01, []byte("{")), frameOf(0x81, []byte(rename))),
		"a control frame in pieces":      join(frameOf(0x09, nil), frameOf(0x81, []byte(rename))),
		"a control frame too long":       join(frameOf(0x89, make([]byte, 200)), frameOf(0x81, []byte(rename))),
		"a length of 2^63":               join([]byte{0x81, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, []byte(rename)),
		"40 MB in one frame":             frameOf(0x81, make([]byte, 40<<20)),
		"40 MB in pieces":                join(frameOf(0x01, make([]byte, 1<<20)), repeat(frameOf(0x00, make([]byte, 1<<20)), 40)),
		"a close with a code that is no": join(frameOf(0x88, []byte{0, 1}), frameOf(0x81, []byte(rename))),
		"a close, then more":             join(frameOf(0x88, []byte{3, 0xe8}), frameOf(0x81, []byte(rename))),
		"brackets a million deep":        frameOf(0x81, deep),
		"20,000 pings":                   repeat(frameOf(0x89, nil), 20_000),
		"20,000 empty pieces":            join(frameOf(0x01, nil), repeat(frameOf(0x00, nil), 20_000)),
	} {
		for _, path := range []string{"/v1/sessions/" + id + "/ws", "/v1/sessions/" + id + "/watch", "/v1/watch"} {
			before := files(t, filepath.Join(r.state, "hub"))
			c, err := net.Dial("tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(20 * time.Second))
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", path, host, r.tokens[serve.ScopeView])
			in := bufio.NewReader(c)
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%s, %s: %v %v", path, name, resp, err)
			}
			if x := resp.Header.Get("Sec-WebSocket-Extensions"); x != "" {
				t.Errorf("%s agreed to %s", path, x)
			}
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				c.Write(data)
				c.(*net.TCPConn).CloseWrite()
			}()
			io.Copy(io.Discard, in) // until the server ends it
			c.Close()
			<-sent
			if !maps.Equal(before, files(t, filepath.Join(r.state, "hub"))) {
				t.Errorf("%s, %s had an effect", path, name)
			}
		}
	}
	if got := r.do(serve.ScopeView, "GET", "/v1/me", nil); got.StatusCode != 200 {
		t.Error(got.Status)
	}
}

// TestSocketsWithoutATokenAreFew checks that the number of sockets without a token is
// limited per address.
func TestSocketsWithoutATokenAreFew(t *testing.T) {
	r := newRig(t, nil, nil)
	path := "/v1/sessions/" + r.create("") + "/ws"
	last := 0
	for range 40 {
		_, resp, err := r.dial(path, "", nil)
		if last = resp.StatusCode; err != nil {
			break
		}
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("the last of 40 sockets: status %d, want 429", last)
	}
	if _, _, err := r.dial(path, r.tokens[serve.ScopeView], nil); err != nil {
		t.Errorf("a socket with a token: %v", err)
	}
}

// A pipeListener listens for connections in memory.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { close(l.done); return nil }
func (l *pipeListener) Addr() net.Addr { c, _ := net.Pipe(); return c.LocalAddr() }

// pipeServer serves an empty hub in a bubble. It returns a function that connects, a token, and a
// function that ends the server.
func pipeServer(t *testing.T) (dial func() net.Conn, token string, end func()) {
	t.Helper()
	h, err := hub.New(hub.Config{Backend: &hub.Memory{}, Agent: func(context.Context, hub.Start) (*parley.Options, error) { return nil, errors.ErrUnsupported }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := serve.New(serve.Config{Hub: h, Hosts: []string{"parley"}, CheckPeer: func(net.Conn) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if _, token, err = s.AddToken("x", serve.ScopeAdmin, time.Time{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &pipeListener{make(chan net.Conn), make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	return func() net.Conn {
			client, server := net.Pipe()
			l.conns <- server
			return client
		}, token, func() {
			cancel()
			if err := <-served; err != nil {
				t.Error(err)
			}
			s.Close()
			h.Close()
		}
}

// TestServerDrainsUnderLoad checks that the server ends in time, although its clients stream, send
// bodies that never arrive, and do not read.
func TestServerDrainsUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, token, end := pipeServer(t)
		head := " HTTP/1.1\r\nHost: parley\r\nAuthorization: Bearer " + token + "\r\n"
		upgrade := "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
		var ended []chan time.Time
		for range 20 {
			for _, x := range []struct {
				send  string
				reads bool
			}{
				{"GET /v1/events" + head + "\r\n", true},
				{"GET /v1/events" + head + "\r\n", false},
				{"GET /v1/watch" + head + upgrade, true},
				{"GET /v1/watch" + head + upgrade, false},
				{"POST /v1/sessions" + head + "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{", true}, // the rest never arrives
				{"GET /v1/sessions" + head + "X-Unfinished: ", true},
				{"GET /v1/sessions" + head + "\r\n", true}, // then it is idle
				{"", true},
			} {
				c, done := dial(), make(chan time.Time, 1)
				ended = append(ended, done)
				go func() {
					defer func() { done <- time.Now() }()
					io.WriteString(c, x.send)
					if x.reads {
						io.Copy(io.Discard, c)
					} else {
						c.SetReadDeadline(time.Now().Add(time.Hour))
						time.Sleep(time.Minute) // its buffers are full
					}
					c.Close()
				}()
			}
		}
		synctest.Wait()
		began := time.Now()
		end()
		if took := time.Since(began); took > 17*time.Second { // the command adds 3 s for telemetry
			t.Errorf("the server ended after %v, want at most 17 s", took)
		}
		for _, done := range ended {
			<-done
		}
	})
}

// TestSlowBodiesEnd checks that a request whose body does not arrive ends, soon if its
// sender has no token.
func TestSlowBodiesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, token, end := pipeServer(t)
		defer end()
		for path, limit := range map[string]time.Duration{"/v1/login": 10 * time.Second, "/v1/sessions": 2 * time.Minute} {
			client := dial()
			go fmt.Fprintf(client, "POST %s HTTP/1.1\r\nHost: parley\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", path, token)
			begun := time.Now()
			resp, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil || resp.StatusCode != 400 || time.Since(begun) != limit {
				t.Errorf("%s: %v, %v after %v, want 400 after %v", path, resp, err, time.Since(begun), limit)
			}
			client.Close()
		}
	})
}
