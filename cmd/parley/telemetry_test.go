package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExportTelemetry runs the command beside a collector.
func TestExportTelemetry(t *testing.T) {
	var got bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/traces" {
			io.Copy(&got, r.Body)
		}
	}))
	defer collector.Close()
	script := filepath.Join(t.TempDir(), "hello.script")
	if err := os.WriteFile(script, []byte("turn\n\tsay Hello.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const trace = "0af7651916cd43dd8448eb211c80319c"
	for name, c := range map[string]struct {
		env  []string
		want string // on stderr
	}{
		"sent":    {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "TRACEPARENT=00-" + trace + "-b7ad6b7169203331-01"}, ""},
		"refused": {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=nowhere"}, "Warning: no telemetry is sent: OTEL_EXPORTER_OTLP_ENDPOINT is \"nowhere\""},
	} {
		t.Run(name, func(t *testing.T) {
			got.Reset()
			var stdout, stderr bytes.Buffer
			p := &process{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, env: append(c.env, "HOME="+t.TempDir())}
			if code := run(t.Context(), p, []string{"-p", "hi", "--provider", "script", "--script", script, "--no-session-persistence"}); code != 0 {
				t.Fatalf("exit %d: %s%s", code, stdout.String(), stderr.String())
			}
			if stdout.String() != "Hello.\n" || !strings.Contains(stderr.String(), c.want) {
				t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
			}
			for _, want := range []string{trace, `"invoke_agent"`, `"chat `, `"script"`} {
				if name == "sent" && !strings.Contains(got.String(), want) {
					t.Errorf("no %s in %s", want, got.String())
				}
			}
		})
	}
}
