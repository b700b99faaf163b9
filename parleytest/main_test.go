package parleytest

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/model"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// collect runs one request and returns its events, a line each, and its error.
func collect(t *testing.T, m *Model, body string) ([]string, error) {
	t.Helper()
	var events []string
	for ev, err := range m.Stream(t.Context(), model.Request{Body: []byte(body)}) {
		if err != nil {
			return events, err
		}
		events = append(events, ev.Type+" "+string(ev.Data))
	}
	return events, nil
}

// said returns the text of the answer in a list of events.
func said(events []string) string {
	var b strings.Builder
	for _, e := range events {
		if _, after, ok := strings.Cut(e, `"text_delta","text":"`); ok {
			text, _, _ := strings.Cut(after, `"`)
			b.WriteString(text)
		}
	}
	return b.String()
}

func post(t *testing.T, url, body string) (*http.Response, string) {
	t.Helper()
	return postHeader(t, url, goodHeader(), body)
}

func postHeader(t *testing.T, url string, header http.Header, body string) (*http.Response, string) {
	t.Helper()
	resp, got, err := tryPost(t, url, header, body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, got
}

// tryPost returns the answer as far as it arrived, with the error that ended it.
func tryPost(t *testing.T, url string, header http.Header, body string) (*http.Response, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

// ask is a request with this last user text, streamed.
func ask(text string) string {
	return `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"` + text + `"}]}`
}

// result is a request that brings a tool result for the call with this id.
func result(id, text string, isError bool) string {
	e := ""
	if isError {
		e = `,"is_error":true`
	}
	return `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"go"},` +
		`{"role":"assistant","content":[{"type":"tool_use","id":"` + id + `","name":"Read","input":{}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"` + id + `","content":"` + text + `"` + e + `}]}]}`
}
