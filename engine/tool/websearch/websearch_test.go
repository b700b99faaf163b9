package websearch_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/tooltest"
	"github.com/parley-go/parley/engine/tool/websearch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSearch(t *testing.T) {
	env := tooltest.Env(t)
	to := websearch.New(&websearch.Options{Search: func(_ context.Context, _ *tool.Env, q websearch.Query) (*websearch.Answer, error) {
		if q.Text == "fail" {
			return nil, errors.New("out of order")
		}
		return &websearch.Answer{Hits: []websearch.Hit{{Title: "Go", URL: "https://go.dev/doc"}, {Title: "Bad", URL: "https://www.bad.example/"}}, Text: "Both are pages."}, nil
	}})
	r := tooltest.Do(t, env, to, "query", "golang", "blocked_domains", []string{"bad.example"})
	if !strings.Contains(r.Content.Text, "1. Go\n   https://go.dev/doc\n\nBoth are pages.") || strings.Contains(r.Content.Text, "Bad") {
		t.Errorf("%q", r.Content.Text)
	}
	if got := tooltest.JSON(t, r); !strings.HasPrefix(got, `{"query":"golang","results":[{"tool_use_id":"toolu_test","content":[{"title":"Go","url":"https://go.dev/doc"}]},"Both are pages."],"durationSeconds":`) {
		t.Error(got)
	}
	if r := tooltest.Do(t, env, to, "query", "golang", "allowed_domains", []string{"nobody.example"}); !strings.Contains(r.Content.Text, "Nothing was found") {
		t.Errorf("%q", r.Content.Text)
	}
	for want, input := range map[string][]any{
		"the search failed: out of order": {"query", "fail"},
		"not both":                        {"query", "golang", "allowed_domains", []string{"a"}, "blocked_domains", []string{"b"}},
		"that short":                      {"query", "g"},
	} {
		if r := tooltest.Do(t, env, to, input...); !r.IsError || !strings.Contains(r.Content.Text, want) {
			t.Errorf("%q, want %q", r.Content.Text, want)
		}
	}
	if r := tooltest.Do(t, env, websearch.New(nil), "query", "golang"); !r.IsError || !strings.Contains(r.Content.Text, "nothing to search the web with") {
		t.Errorf("%q", r.Content.Text)
	}
}

func TestEndpoint(t *testing.T) {
	env := tooltest.Env(t)
	answer := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("q") != "go & more" || r.Header.Get("X-Key") != "k" {
			w.WriteHeader(http.StatusTeapot)
		}
		w.Write([]byte(answer))
	}))
	defer s.Close()
	for _, endpoint := range []string{s.URL + "/search?format=json", s.URL + "/?q=%s"} {
		to := websearch.New(&websearch.Options{Endpoint: endpoint, Header: http.Header{"X-Key": {"k"}}})
		for _, answer = range []string{
			`{"results":[{"title":"T","url":"https://a.example/","content":"c"}]}`,
			`{"web":{"results":[{"title":"T","url":"https://a.example/","description":"c"}]}}`,
			`[{"name":"T","link":"https://a.example/","snippet":"c"}]`,
		} {
			if r := tooltest.Do(t, env, to, "query", "go & more"); !strings.Contains(r.Content.Text, "1. T\n   https://a.example/\n   c\n") {
				t.Errorf("%q", r.Content.Text)
			}
		}
		answer = "<html>"
		if r := tooltest.Do(t, env, to, "query", "go & more"); !r.IsError || !strings.Contains(r.Content.Text, "JSON") {
			t.Errorf("%q", r.Content.Text)
		}
		if r := tooltest.Do(t, env, to, "query", "other"); !r.IsError || !strings.Contains(r.Content.Text, "418") {
			t.Errorf("%q", r.Content.Text)
		}
	}
	s.Close()
	if r := tooltest.Do(t, env, websearch.New(&websearch.Options{Endpoint: s.URL + "/?key=secret"}), "query", "go"); !r.IsError || strings.Contains(r.Content.Text, "secret") {
		t.Errorf("%q", r.Content.Text)
	}
}
