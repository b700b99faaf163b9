package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// TestSDKURL checks that an agent connects to a server and speaks the protocol over its
// WebSocket, until the server ends it.
func TestSDKURL(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "a.script")
	if err := os.WriteFile(script, []byte("turn\n  say Hello from afar.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	heard := make(chan []string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var lines []string
		defer func() { heard <- lines }()
		if got := r.Header.Get("Authorization"); got != "Bearer secret" {
			t.Errorf("Authorization %q", got)
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow()
		conn.SetReadLimit(1 << 24)
		for _, line := range []string{`{"type":"control_request","request_id":"1","request":{"subtype":"initialize"}}`, `{"type":"user","message":{"role":"user","content":"Hello."}}`} {
			if err := conn.Write(r.Context(), websocket.MessageText, []byte(line)); err != nil { // without an end of line
				t.Error(err)
			}
		}
		for {
			_, data, err := conn.Read(r.Context())
			if err != nil {
				t.Error(err)
				return
			}
			lines = append(lines, string(data))
			if strings.Contains(string(data), `"type":"result"`) {
				conn.Close(websocket.StatusNormalClosure, "")
				return
			}
		}
	}))
	defer server.Close()
	var stderr strings.Builder
	p := &process{stdin: strings.NewReader(""), stdout: io.Discard, stderr: &stderr, env: []string{"CLAUDE_CONFIG_DIR=" + dir, "CLAUDE_CODE_SESSION_ACCESS_TOKEN=secret"}}
	args := []string{"--sdk-url", "ws" + strings.TrimPrefix(server.URL, "http"), "--provider", "script", "--script", script, "--model", "sonnet", "--setting-sources", ""}
	if status := run(context.Background(), p, args); status != exitOK {
		t.Errorf("status %d: %s", status, &stderr)
	}
	if all := strings.Join(<-heard, ""); !strings.Contains(all, "Hello from afar.") || !strings.Contains(all, `"request_id":"1"`) {
		t.Errorf("the server received %s", all)
	}
	for url, want := range map[string]string{
		"example.com":                "is not an address",
		"ws://192.0.2.1/agent":       "must be encrypted",
		"ws://127.0.0.1:1/no-server": "Check the address, and whether the server runs",
	} {
		stderr.Reset()
		if status := run(context.Background(), p, []string{"--sdk-url", url}); status != exitFailure || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: status %d: %s", url, status, &stderr)
		}
	}
}
