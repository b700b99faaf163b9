package webfetch_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/tooltest"
	"github.com/parley-go/parley/engine/tool/webfetch"
	"github.com/parley-go/parley/internal/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func server(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/page", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<html><head><style>p{}</style><script>alert(1)</script></head><body><h1>Title</h1><p>Some <b>text</b> and <a href="/x">a link</a>.</p></web-page></body></html>`)
	})
	mux.HandleFunc("/json", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		fmt.Fprint(w, `{"a":1}`)
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, strings.Repeat("é", 100_000)+"the end")
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/json", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://elsewhere.example/x", http.StatusFound)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/bin", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/zip")
		fmt.Fprint(w, "PK\x03\x04")
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := fmt.Fprint(w, strings.Repeat("x", 1<<16)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func TestFetch(t *testing.T) {
	s := server(t)
	env := tooltest.Env(t)
	to := webfetch.New(&webfetch.Options{Loopback: true, MaxBytes: 1 << 20, Timeout: 2 * time.Second})
	for path, want := range map[string]string{
		"/page":  "# Title\n\nSome **text** and [a link](" + s.URL + "/x).",
		"/json":  `{"a":1}`,
		"/moved": "url=\"" + s.URL + "/json\"",
		"/away":  "redirects to another host: https://elsewhere.example/x",
		"/long":  "(The page continues for 7 characters: fetch it with offset 100000.)",
	} {
		r := tooltest.Do(t, env, to, "url", s.URL+path, "prompt", "?")
		if r.IsError || !strings.Contains(r.Content.Text, want) || strings.Contains(r.Content.Text, "alert") || strings.Count(r.Content.Text, "</web-page>") > 1 {
			t.Errorf("%s: %.300q", path, r.Content.Text)
		}
	}
	r := tooltest.Do(t, env, to, "url", s.URL+"/json", "prompt", "?")
	if out := r.Structured.(*webfetch.Output); out.Bytes != 7 || out.Code != 200 || out.CodeText != "OK" || out.URL != s.URL+"/json" {
		t.Errorf("%+v", out)
	}
	if r := tooltest.Do(t, env, to, "url", s.URL+"/long", "prompt", "?", "offset", 100_000); !strings.Contains(r.Content.Text, "\nthe end\n") {
		t.Errorf("%.300q", r.Content.Text)
	}
	for path, want := range map[string]string{
		"/none":    "the server says 404 Not Found",
		"/loop":    "redirects more than 10 times",
		"/bin":     "is not text but application/zip",
		"/endless": "larger than 1MB",
		"/slow":    "took too long",
	} {
		r := tooltest.Do(t, env, to, "url", s.URL+path, "prompt", "?")
		if !r.IsError || !strings.Contains(r.Content.Text, want) {
			t.Errorf("%s: %.300q, want %q", path, r.Content.Text, want)
		}
	}
	// A small model may answer.
	answers := webfetch.New(&webfetch.Options{Loopback: true, Answer: func(_ context.Context, _ *tool.Env, prompt, page string) (string, error) {
		return prompt + " " + fmt.Sprint(strings.Contains(page, "Title")), nil
	}})
	if r := tooltest.Do(t, env, answers, "url", s.URL+"/page", "prompt", "titled?"); r.Content.Text != "titled? true" {
		t.Errorf("%q", r.Content.Text)
	}
}

// Only the public web is dialled.
func TestRefused(t *testing.T) {
	s := server(t)
	env := tooltest.Env(t)
	to := webfetch.New(&webfetch.Options{Timeout: 5 * time.Second})
	for _, address := range []string{
		s.URL + "/json", "http://localhost/", "https://127.0.0.1/", "https://[::1]/", "https://0.0.0.0/", "https://10.0.0.1/", "https://192.168.1.1/", "https://172.16.0.1/", "https://169.254.169.254/latest/meta-data", "https://100.64.0.1/",
		"https://[fe80::1]/", "https://[fd00::1]/", "https://[::ffff:127.0.0.1]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/", "https://2130706433/", "https://0x7f000001/", "https://127.1/",
	} {
		r := tooltest.Do(t, env, to, "url", address, "prompt", "?")
		if !r.IsError || !strings.Contains(r.Content.Text, "not a public address") && !strings.Contains(r.Content.Text, "there is no host") {
			t.Errorf("%s: %q", address, r.Content.Text)
		}
	}
	for address, want := range map[string]string{
		"file:///etc/passwd": "Only http and https", "https://user:pw@example.com/": "user name or password", "": "must not be empty", "https://": "Invalid URL", "word": "Invalid URL", "//word/x": "Invalid URL", "https://x.example/" + strings.Repeat("a", 3000): "longer than 2000",
	} {
		if r := tooltest.Do(t, env, to, "url", address, "prompt", "?"); !r.IsError || !strings.Contains(r.Content.Text, want) {
			t.Errorf("%s: %q", address, r.Content.Text)
		}
	}
	access, err := to.Access(env, tooltest.Input(t, "url", "http://Example.com/a#b", "prompt", ""))
	if err != nil || len(access) != 1 || access[0].Kind != tool.Fetch || access[0].URL != "https://Example.com/a" {
		t.Errorf("%+v %v", access, err)
	}
}

func TestCancel(t *testing.T) {
	s := server(t)
	env := tooltest.Env(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		testwait.Pause(50 * time.Millisecond)
		cancel()
	}()
	r := tooltest.Call(ctx, env, webfetch.New(&webfetch.Options{Loopback: true}), tooltest.Input(t, "url", s.URL+"/slow", "prompt", "?"))
	if !r.IsError {
		t.Errorf("%q", r.Content.Text)
	}
}
