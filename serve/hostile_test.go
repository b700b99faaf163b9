package serve_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/serve"
)

// TestHostileRequestsHaveNoEffect sends requests that must have no effect. Each starts as
// a valid one, which renames a session, and is then made hostile.
func TestHostileRequestsHaveNoEffect(t *testing.T) {
	r := newRig(t, nil, func(c *serve.Config) { c.Hosts = []string{"parley.example"} })
	id := r.create("")
	port := r.url[strings.LastIndex(r.url, ":"):]
	rename := "/v1/sessions/" + id
	header := func(name, value string) func(*http.Request) {
		return func(req *http.Request) { req.Header.Set(name, value) }
	}
	host := func(name string) func(*http.Request) { return func(req *http.Request) { req.Host = name } }
	cookie := func(value string) func(*http.Request) {
		return func(req *http.Request) {
			req.Header.Del("Authorization")
			req.AddCookie(&http.Cookie{Name: "parley", Value: value})
		}
	}
	all := func(fs ...func(*http.Request)) func(*http.Request) {
		return func(req *http.Request) {
			for _, f := range fs {
				f(req)
			}
		}
	}
	body := func(text string) func(*http.Request) {
		return func(req *http.Request) {
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
		}
	}
	noToken := func(req *http.Request) { req.Header.Del("Authorization") }
	token := r.tokens[serve.ScopeDrive]
	for _, c := range []struct {
		name    string
		hostile func(*http.Request)
		want    int
	}{
		// DNS rebinding: the attacker's name resolves to this server.
		{"host of another", host("evil.example" + port), 421},
		{"host of another, no port", host("evil.example"), 421},
		{"host that begins as ours", host("127.0.0.1.evil.example" + port), 421},
		{"host that ends as ours", host("evil-parley.example" + port), 421},
		{"host below ours", host("a.parley.example"), 421},
		{"host with a user", host("127.0.0.1@evil.example"), 421},
		{"another address of this machine", host("127.0.0.2" + port), 421},
		{"any address", host("0.0.0.0" + port), 421},
		{"an address as one number", host("2130706433" + port), 421},
		{"an address in octal", host("0177.0.0.1" + port), 421},
		{"localhost of another", host("localhost.evil.example" + port), 421},
		{"localhost with a dot", host("localhost." + port), 421},
		{"our name with a dot", host("parley.example."), 421},
		{"our name with a space", host("parley.example evil"), 421},
		{"our name as an address", host("[parley.example.evil]"), 421},
		{"a port that is a name", host("127.0.0.1:evil"), 421},
		{"a port with a sign", host("127.0.0.1:+80"), 421},
		{"a port too large", host("127.0.0.1:99999"), 421},
		{"an IPv6 form of another address", host("[::ffff:127.0.0.2]" + port), 421},
		{"a short form of the address", host("127.1" + port), 421},
		{"the address in hexadecimal", host("0x7f000001" + port), 421},
		{"the address with a dot", host("127.0.0.1." + port), 421},
		{"bracketed name", host("[evil.example]" + port), 421},
		{"address with a zone", host("[::1%25lo]" + port), 421},

		// Pages of other origins.
		{"origin of another", header("Origin", "https://evil.example"), 403},
		{"origin null", header("Origin", "null"), 403},
		{"origin with another port", header("Origin", "http://127.0.0.1:1"), 403},
		{"origin with another scheme", header("Origin", "https://127.0.0.1"+port), 403},
		{"origin with our name and another address", header("Origin", "http://localhost"+port), 403},
		{"origin that begins as ours", header("Origin", "http://127.0.0.1"+port+".evil.example"), 403},
		{"origin with a path", header("Origin", "http://127.0.0.1"+port+"/x"), 403},
		{"origin of an extension", header("Origin", "chrome-extension://abc"), 403},
		{"origin file", header("Origin", "file://"), 403},
		{"two origins", func(req *http.Request) {
			req.Header["Origin"] = []string{"http://127.0.0.1" + port, "https://evil.example"}
		}, 403},
		{"an empty origin", header("Origin", ""), 403},
		{"an empty origin before another", func(req *http.Request) { req.Header["Origin"] = []string{"", "https://evil.example"} }, 403},
		{"our origin twice", func(req *http.Request) {
			req.Header["Origin"] = []string{"http://127.0.0.1" + port, "http://127.0.0.1" + port}
		}, 403},
		{"a list of origins", header("Origin", "http://127.0.0.1"+port+" https://evil.example"), 403},
		{"our origin with a user", header("Origin", "http://x@127.0.0.1"+port), 403},
		{"our origin with a dot", header("Origin", "http://127.0.0.1."+port), 403},
		{"our origin over WebSocket", header("Origin", "ws://127.0.0.1"+port), 403},
		{"our origin as a blob", header("Origin", "blob:http://127.0.0.1"+port), 403},
		{"cross-site without origin", header("Sec-Fetch-Site", "cross-site"), 403},
		{"same-site without origin", header("Sec-Fetch-Site", "same-site"), 403},
		{"cross-site navigation", all(header("Sec-Fetch-Site", "cross-site"), header("Sec-Fetch-Mode", "navigate")), 403},
		{"cookie from another page", all(cookie(token), header("Origin", "https://evil.example")), 403},
		{"cookie from another port of this host", all(cookie(token), header("Origin", "http://127.0.0.1:1"), header("Sec-Fetch-Site", "same-site")), 403},

		// Tokens.
		{"no token", noToken, 401},
		{"empty token", header("Authorization", "Bearer "), 401},
		{"wrong token", header("Authorization", "Bearer parley_000000000000_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), 401},
		{"cut token", header("Authorization", "Bearer "+token[:len(token)-1]), 401},
		{"long token", header("Authorization", "Bearer "+token+"A"), 401},
		{"other secret of the same id", header("Authorization", "Bearer "+token[:20]+strings.Repeat("A", len(token)-20)), 401},
		{"basic", header("Authorization", "Basic "+token), 401},
		{"token in the query", func(req *http.Request) {
			noToken(req)
			req.URL.RawQuery = "token=" + token + "&access_token=" + token + "&t=" + token
		}, 401},
		{"token in another header", all(noToken, header("X-Api-Key", token)), 401},
		{"wrong cookie", cookie("x"), 401},
		{"cookie of another name", func(req *http.Request) {
			noToken(req)
			req.AddCookie(&http.Cookie{Name: "__Host-parley", Value: token})
		}, 401},
		{"the hash in place of the token", func(req *http.Request) {
			data, err := os.ReadFile(filepath.Join(r.state, "serve", "tokens.json"))
			if err != nil {
				t.Error(err)
			}
			_, hash, _ := strings.Cut(string(data), `"hash": "`)
			req.Header.Set("Authorization", "Bearer "+hash[:64])
		}, 401},
		{"two tokens, the first one wrong", func(req *http.Request) {
			req.Header["Authorization"] = []string{"Bearer wrong", "Bearer " + token}
		}, 401},
		{"two tokens, the second one wrong", func(req *http.Request) {
			req.Header["Authorization"] = []string{"Bearer " + token, "Bearer wrong"}
		}, 401},
		{"two tokens with a comma", header("Authorization", "Bearer "+token+", Bearer "+token), 401},
		{"wrong token beside the cookie", func(req *http.Request) {
			cookie(token)(req)
			req.Header.Set("Authorization", "Bearer wrong")
		}, 401},
		{"weak token beside the cookie", func(req *http.Request) {
			cookie(token)(req)
			req.Header.Set("Authorization", "Bearer "+r.tokens[serve.ScopeView])
		}, 403},
		{"two cookies, the first one wrong", all(cookie("x"), func(req *http.Request) { req.AddCookie(&http.Cookie{Name: "parley", Value: token}) }), 401},
		{"two cookies, the second one wrong", all(cookie(token), func(req *http.Request) { req.AddCookie(&http.Cookie{Name: "parley", Value: "x"}) }), 401},
		{"cookie of another case", func(req *http.Request) {
			noToken(req)
			req.AddCookie(&http.Cookie{Name: "Parley", Value: token})
		}, 401},
		{"a huge token", header("Authorization", "Bearer "+strings.Repeat("A", 50<<10)), 401},
		{"scope view", header("Authorization", "Bearer "+r.tokens[serve.ScopeView]), 403},
		{"scope approve", header("Authorization", "Bearer "+r.tokens[serve.ScopeApprove]), 403},

		// Things that headers cannot do.
		{"another method by header", func(req *http.Request) { req.Method = "GET"; req.Header.Set("X-HTTP-Method-Override", "PATCH") }, 200},
		{"another method by query", func(req *http.Request) { req.Method = "GET"; req.URL.RawQuery = "_method=PATCH" }, 200},
		{"another method by other headers", func(req *http.Request) {
			req.Method = "GET"
			req.Header.Set("X-Method-Override", "PATCH")
			req.Header.Set("X-HTTP-Method", "PATCH")
		}, 200},
		{"another path by header", all(noToken, header("X-Original-URL", "/healthz"), header("X-Rewrite-URL", "/healthz")), 401},
		{"another host by header", all(host("evil.example"+port), header("X-Forwarded-Host", "127.0.0.1"+port), header("Forwarded", "host=127.0.0.1"+port)), 421},
		{"the request as HEAD", func(req *http.Request) { req.Method = "HEAD" }, 200},
		{"the request as OPTIONS", func(req *http.Request) { req.Method = "OPTIONS" }, 404},
		{"the request as PUT", func(req *http.Request) { req.Method = "PUT" }, 404},
		{"a preflight of another page", all(func(req *http.Request) { req.Method = "OPTIONS" }, header("Origin", "https://evil.example"), header("Access-Control-Request-Method", "PATCH")), 403},
		{"token after the fragment", func(req *http.Request) {
			req.Header.Del("Authorization")
			req.URL.RawQuery = "%23t=" + token
		}, 401},
		{"token as the user of the URL", func(req *http.Request) {
			req.Header.Del("Authorization")
			req.SetBasicAuth(token, token)
		}, 401},
		{"who it is by header", all(noToken, header("Parley-Name", "user"), header("X-Forwarded-For", "127.0.0.1"), header("X-Forwarded-User", "root")), 401},

		// Bodies and paths.
		{"a form", header("Content-Type", "application/x-www-form-urlencoded"), 415},
		{"plain text", header("Content-Type", "text/plain"), 415},
		{"several parts", header("Content-Type", "multipart/form-data; boundary=x"), 415},
		{"two types", header("Content-Type", "text/plain, application/json"), 415},
		{"a type that begins as JSON", header("Content-Type", "application/jsonp"), 415},
		{"plain text from a page elsewhere with the cookie", all(cookie(token), header("Content-Type", "text/plain"), header("Sec-Fetch-Site", "cross-site")), 403},
		{"a member in capitals", body(`{"TITLE":"owned"}`), 400},
		{"a member twice", body(`{"title":"a","title":"owned"}`), 400},
		{"a member twice, in two cases", body(`{"title":"a","Title":"owned"}`), 400},
		{"a member twice, with an escape", body(`{"title":"a","ti\u0074le":"owned"}`), 400},
		{"two values", body(`{"title":"owned"}{"title":"owned"}`), 400},
		{"text that is not UTF-8", body("{\"title\":\"owned\xff\"}"), 400},
		{"a byte order mark", body("\ufeff{\"title\":\"owned\"}"), 400},
		{"a body 100,000 levels deep", body(strings.Repeat("[", 100_000)), 400},
		{"a compressed body", all(header("Content-Encoding", "gzip"), body("\x1f\x8b\x08")), 400},
		{"another id, in another alphabet", func(req *http.Request) { req.URL.Opaque = r.url + "/v1/sessions/%EF%BC%8E%EF%BC%8E" }, 404},
		{"an overlong encoding of dots", func(req *http.Request) { req.URL.Opaque = r.url + "/v1/sessions/%c0%ae%c0%ae%c0%af" }, 404},
		{"dots encoded twice", func(req *http.Request) { req.URL.Opaque = r.url + "/v1/sessions/%252e%252e%252f" }, 404},
		{"no type", func(req *http.Request) { req.Header.Del("Content-Type") }, 415},
		{"path with dots", func(req *http.Request) { req.URL.Opaque = r.url + "/v1/sessions/../sessions/%2e%2e/" + id }, 307},
		{"path with an encoded slash", func(req *http.Request) { req.URL.Opaque = r.url + "/v1%2fsessions%2f" + id }, 404},
		{"path with two slashes", func(req *http.Request) { req.URL.Opaque = r.url + "/v1//sessions/" + id }, 307},
		{"path with a dot", func(req *http.Request) { req.URL.Opaque = r.url + "/v1/./sessions/" + id }, 307},
		{"path with a slash behind it", func(req *http.Request) { req.URL.Path += "/" }, 404},
		{"path in capitals", func(req *http.Request) { req.URL.Path = strings.ToUpper(req.URL.Path) }, 404},
		{"path with a parameter", func(req *http.Request) { req.URL.Opaque = r.url + rename + ";x=y" }, 404},
		{"path with a null", func(req *http.Request) { req.URL.Opaque = r.url + rename + "%00" }, 404},
		{"path with a line break", func(req *http.Request) { req.URL.Opaque = r.url + rename + "%0d%0aX:y" }, 404},
		{"path with backslashes", func(req *http.Request) { req.URL.Opaque = r.url + "/v1/sessions/..%5c" + id }, 404},
		{"path of 8 KB", func(req *http.Request) { req.URL.Path = "/v1/sessions/" + strings.Repeat("a", 8<<10) }, 404},
		{"id that is a path", func(req *http.Request) { req.URL.Opaque = r.url + "/v1/sessions/..%2f..%2fserve" }, 404},
		{"the journal of schedules", func(req *http.Request) { req.URL.Path = "/v1/sessions/00000000-0000-4000-8000-000000000001" }, 404},
	} {
		for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
			t.Run(c.name+" over "+version, func(t *testing.T) {
				req := r.request(serve.ScopeDrive, "PATCH", rename, `{"title":"owned"}`)
				before := files(t, filepath.Join(r.state, "hub"))
				c.hostile(req)
				// Its own browser, so that failures of one row do not limit the next.
				way := r.from(c.name + version)
				way.Protocols = new(http.Protocols)
				way.Protocols.SetHTTP1(version == "HTTP/1.1")
				way.Protocols.SetUnencryptedHTTP2(version == "HTTP/2")
				got := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: way})
				defer got.CloseIdleConnections()
				resp, err := got.Do(req)
				if err != nil && strings.Contains(err.Error(), "http2: invalid") {
					return // the client does not send it
				}
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != c.want {
					t.Errorf("status %d, want %d", resp.StatusCode, c.want)
				}
				if !maps.Equal(before, files(t, filepath.Join(r.state, "hub"))) {
					t.Error("it had an effect")
				}
				for _, name := range []string{"Access-Control-Allow-Origin", "Set-Cookie"} {
					if v := resp.Header.Get(name); v != "" {
						t.Errorf("%s: %s", name, v)
					}
				}
				for name, want := range map[string]string{"Content-Security-Policy": "default-src 'self'", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store"} {
					if v := resp.Header.Get(name); !strings.HasPrefix(v, want) {
						t.Errorf("%s: %q", name, v)
					}
				}
			})
		}
	}
	// The same request without anything hostile takes effect.
	for i, req := range []*http.Request{
		r.request(serve.ScopeDrive, "PATCH", rename, `{"title":"1"}`),
		r.request(serve.ScopeAdmin, "PATCH", rename, `{"title":"2"}`),
		r.request("", "PATCH", rename, `{"title":"3"}`),
		r.request(serve.ScopeDrive, "PATCH", rename, `{"title":"4"}`),
	} {
		switch i {
		case 2: // a page of this server
			req.AddCookie(&http.Cookie{Name: "parley", Value: token})
			req.Header.Set("Origin", r.url)
			req.Header.Set("Sec-Fetch-Site", "same-origin")
		case 3:
			req.Host = "PARLEY.example:443"
		}
		var info serve.Session
		if got := r.send(req); got.StatusCode != 200 {
			t.Errorf("request %d: %s %s", i+1, got.Status, got.body)
		}
		if r.do(serve.ScopeView, "GET", rename, nil).decode(t, &info); info.State.Title != fmt.Sprint(i+1) {
			t.Errorf("after request %d the title is %q", i+1, info.State.Title)
		}
	}
	audit, err := os.ReadFile(filepath.Join(r.state, "serve", "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"by":"my drive"`, `"action":"PATCH /v1/sessions/{id}"`, `"session":"` + id + `"`, `"status":421`, `"status":401`} {
		if !strings.Contains(string(audit), want) {
			t.Errorf("the audit log lacks %s", want)
		}
	}
	for _, secret := range r.tokens {
		for name, data := range files(t, r.state) {
			if strings.Contains(data, secret) {
				t.Errorf("%s holds a token", name)
			}
		}
	}
}

// from returns a transport that sends from its own loopback address, so that the failures
// of one do not limit another.
func (r *rig) from(name string) *http.Transport {
	sum := 0
	for _, c := range name {
		sum = sum*31 + int(c)
	}
	ip := net.IPv4(127, 1+byte(sum>>16)%200, byte(sum>>8), byte(sum)|1)
	return &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}}).DialContext}
}

// TestFailedAttemptsAreLimited checks that guessing is limited on every interface, and
// locks out nobody else.
func TestFailedAttemptsAreLimited(t *testing.T) {
	r := newRig(t, nil, nil)
	if got := r.do(serve.ScopeView, "GET", "/v1/me", nil); got.StatusCode != 200 {
		t.Fatal(got.Status)
	}
	limited := false
	for i := range 15 {
		req := r.request("", "GET", "/v1/me", nil)
		req.Header.Set("Authorization", "Bearer wrong")
		if i%2 == 1 {
			req = r.request("", "POST", "/v1/login", `{"token":"wrong"}`)
		}
		got := r.send(req).StatusCode
		if limited = got == http.StatusTooManyRequests; !limited && got != http.StatusUnauthorized {
			t.Fatalf("attempt %d: %d", i, got)
		}
	}
	if !limited {
		t.Error("attempt 15 was not limited")
	}
	if got := r.do(serve.ScopeAdmin, "GET", "/v1/me", nil); got.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a token that was never used from there: %s", got.Status)
	}
	if got := r.do(serve.ScopeView, "GET", "/v1/me", nil); got.StatusCode != http.StatusOK {
		t.Errorf("a token that was used from there before: %s", got.Status)
	}
	req := r.request(serve.ScopeAdmin, "GET", "/v1/me", nil)
	other := &http.Client{Transport: r.from("elsewhere")}
	defer other.CloseIdleConnections()
	resp, err := other.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("from elsewhere: %s", resp.Status)
	}
}

// TestMalformedRequestsEndTheirConnection checks that bytes that are not an HTTP request
// end only their connection.
func TestMalformedRequestsEndTheirConnection(t *testing.T) {
	r := newRig(t, nil, nil)
	addr := strings.TrimPrefix(r.url, "http://")
	for _, raw := range []string{
		"\x16\x03\x01\x00\x00",
		"GET / HTTP/1.1\r\n\r\n",
		"GET /v1/me HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
		"GET http://evil.example/v1/me HTTP/1.1\r\nHost: " + addr + "\r\nConnection: close\r\n\r\n",
		"POST /v1/login HTTP/1.1\r\nHost: " + addr + "\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n",
		"GET /v1/me HTTP/1.0\r\n\r\n",
		"POST /v1/login HTTP/1.1\r\nHost: " + addr + "\r\nContent-Length: 2\r\nContent-Length: 5\r\nConnection: close\r\n\r\n{}",
		"POST /v1/login HTTP/1.1\r\nHost: " + addr + "\r\nTransfer-Encoding : chunked\r\nConnection: close\r\n\r\n0\r\n\r\n",
		"POST /v1/login HTTP/1.1\r\nHost: " + addr + "\r\nTransfer-Encoding: xchunked\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
		"POST /v1/login HTTP/1.1\r\nHost: " + addr + "\r\nContent-Length: +2\r\nConnection: close\r\n\r\n{}",
		"TRACE /v1/me HTTP/1.1\r\nHost: " + addr + "\r\nConnection: close\r\n\r\n",
		"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\nConnection: close\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: " + addr + "\r\nConnection: close\r\n\r\n",
		"GET /v1/me HTTP/1.1\r\nHost: " + addr + "\r\nX: a\x00b\r\nConnection: close\r\n\r\n",
		"GET /v1/me HTTP/1.1\r\nHost: " + addr + ", evil.example\r\nConnection: close\r\n\r\n",
		"GET /v1/me HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n",
		"GET /v1/me HTTP/1.1\r\nHost: " + addr + "\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
		"GET /v1/me HTTP/1.1\r\nHost: " + addr + "\r\nX: " + strings.Repeat("x", 1<<17) + "\r\n\r\n",
	} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(20 * time.Second))
		go func() {
			c.Write([]byte(raw))
			c.(*net.TCPConn).CloseWrite()
		}()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil && resp.StatusCode < 400 {
			t.Errorf("%q: %s", raw[:min(len(raw), 60)], resp.Status)
		}
		c.Close()
	}
	if got := r.do(serve.ScopeView, "GET", "/v1/me", nil); got.StatusCode != 200 {
		t.Error(got.Status)
	}
}

// TestPublicAddressNeedsEncryption checks that a server that others can reach encrypts, or
// does not start.
func TestPublicAddressNeedsEncryption(t *testing.T) {
	for _, c := range []struct {
		addr       string
		tls, proxy bool
		ok         bool
	}{
		{"127.0.0.1:1", false, false, true},
		{"127.9.9.9:1", false, false, true},
		{"[::1]:1", false, false, true},
		{"0.0.0.0:1", false, false, false},
		{"[::]:1", false, false, false},
		{"192.168.1.7:1", false, false, false},
		{"[fe80::1]:1", false, false, false},
		{"192.168.1.7:1", true, false, true},
		{"0.0.0.0:1", false, true, true},
	} {
		r := newRig(t, nil, func(cfg *serve.Config) { cfg.TLS, cfg.BehindProxy = c.tls, c.proxy })
		addr, err := net.ResolveTCPAddr("tcp", c.addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.server.CheckAddress(addr); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
