package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestFakeAPI asks in every dialect for two rounds.
func TestFakeAPI(t *testing.T) {
	api := &fakeAPI{tool: "shell", args: `{"command":"echo ROUND"}`, rounds: 2}
	server := httptest.NewServer(api)
	defer server.Close()
	for path, result := range map[string]string{
		"/v1/messages?beta=true": `{"type":"tool_result"}`, "/v1/responses": `{"type":"function_call_output"}`, "/v1/chat/completions": `{"role":"tool"}`,
		"/v1beta/models/m:streamGenerateContent?alt=sse": `{"functionResponse":{}}`, "/v1beta/models/m:generateContent": `{"functionResponse":{}}`,
	} {
		for results, want := range []string{"echo 1", "echo 2", "Done."} {
			body := `[` + strings.Repeat(result+",", results) + `{"name":"shell"}]`
			resp, err := http.Post(server.URL+path, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s with %d results: %s, %v", path, results, text, err)
			}
			for line := range strings.Lines(string(text)) {
				data := strings.TrimPrefix(line, "data: ")
				if (data != line || path == "/v1beta/models/m:generateContent") && !json.Valid([]byte(data)) && data != "[DONE]\n" {
					t.Errorf("%s with %d results: no JSON: %s", path, results, line)
				}
			}
		}
	}
	if api.done.Load() != 2 {
		t.Errorf("%d results", api.done.Load())
	}
}
