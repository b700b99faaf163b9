package parleytest

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/model"
)

func collect(t *testing.T, m *Model, body string) ([]string, error) {
	t.Helper()
	var types []string
	for ev, err := range m.Stream(t.Context(), model.Request{Body: []byte(body)}) {
		if err != nil {
			return types, err
		}
		types = append(types, ev.Type)
	}
	return types, nil
}

func post(t *testing.T, url, body string) (*http.Response, string) {
	t.Helper()
	return postHeader(t, url, goodHeader(), body)
}

func postHeader(t *testing.T, url string, header http.Header, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp, string(b)
}

const hi = `{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"hi"}]}`
const hiStream = `{"model":"m","max_tokens":10,"stream":true,"messages":[{"role":"user","content":"hi"}]}`

func TestFirst(t *testing.T) {
	api := NewAPI(t, Script(Expect(LastUser("hi")).Say("hello"), Call("Read", `{"a":1}`)), nil)
	resp, body := post(t, api.URL+"/v1/messages", hiStream)
	t.Log(resp.Status, body)
	resp, body = post(t, api.URL+"/v1/messages", hi)
	t.Log(resp.Status, body)
	m := Script(Say("x")).Model()
	t.Log(collect(t, m, hi))
	t.Log(collect(t, m, hi))
}
