package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/parley-go/parley/internal/testwait"
)

// A buffer can be written and read at once.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// One node runs everything: a session that is created and prompted through the API gets its
// turn, the tools know the epoch, status and metrics show it, and the node ends when it is
// stopped.
func TestUp(t *testing.T) {
	data, project := t.TempDir(), t.TempDir()
	script := filepath.Join(project, "model.script")
	if err := os.WriteFile(script, []byte("turn\n\tcall Bash {\"command\": \"echo epoch $PARLEY_EPOCH\"}\nturn\n\texpect result epoch 2\n\tsay All done.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs buffer
	exit := make(chan int, 1)
	go func() {
		exit <- run(ctx, []string{"up", "--data", data, "--addr", "127.0.0.1:0", "--name", "one", "--metrics", "127.0.0.1:0"}, &out, &errs)
	}()
	testwait.Until(t, "the node is ready", func() bool {
		select {
		case code := <-exit:
			t.Fatalf("it ended with %d:\n%s%s", code, &out, &errs)
		default:
		}
		return strings.Contains(out.String(), "is ready")
	})
	var node nodeFile
	if err := readJSON(filepath.Join(data, "node.json"), &node); err != nil {
		t.Fatal(err)
	}
	_, secret, _ := strings.Cut(out.String(), "#t=")
	secret, _, _ = strings.Cut(secret, "\n")
	call := func(method, path string, in any, out any) {
		t.Helper()
		body, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), method, node.URL+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %s, %v\n%s", method, path, resp.Status, err, answer)
		}
		if out != nil {
			if err := json.Unmarshal(answer, out); err != nil {
				t.Fatal(err)
			}
		}
	}
	var created struct{ ID string }
	call("POST", "/v1/sessions", map[string]any{"cwd": project, "args": []string{"--provider", "script", "--script", script, "--allowedTools", "Bash"}}, &created)
	call("POST", "/v1/sessions/"+created.ID+"/prompts", map[string]any{"text": "go"}, nil)
	entries := func(id string) string {
		var history json.RawMessage
		call("GET", "/v1/sessions/"+id+"/entries", nil, &history)
		return string(history)
	}
	testwait.Until(t, "the turn is over", func() bool { return strings.Contains(entries(created.ID), "All done.") })
	var table bytes.Buffer
	if code := run(t.Context(), []string{"status", "--data", data}, &table, &errs); code != 0 || !strings.Contains(table.String(), "1 sessions") || !strings.Contains(table.String(), "one") {
		t.Errorf("status: %d\n%s%s", code, &table, &errs)
	}
	for want, args := range map[string][]string{
		"":                     {"tenant", "--data", data, "--running", "3", "--models", "a,b*", "acme"},
		"has no limits":        {"tenant", "--data", data, "--show", "nobody"},
		"not a name of a tena": {"tenant", "--data", data, "Not A Name"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &out, &errs); (code == 0) != (want == "") || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: %d\n%s%s", args, code, &out, &errs)
		}
	}
	table.Reset()
	if code := run(t.Context(), []string{"tenant", "--data", data, "--show", "acme"}, &table, &errs); code != 0 || !strings.Contains(table.String(), `"running": 3`) || !strings.Contains(table.String(), `"b*"`) {
		t.Errorf("tenant --show: %d\n%s", code, &table)
	}
	table.Reset()
	if code := run(t.Context(), []string{"token", "--data", data, "--scope", "admin", "--tenant", "acme", "alice"}, &table, &errs); code != 0 {
		t.Fatalf("token: %d\n%s", code, &errs)
	}
	secret = strings.TrimSpace(table.String())
	call("POST", "/v1/sessions", map[string]any{"cwd": project}, &created)
	if got := entries(created.ID); !strings.Contains(got, `"name":"acme/alice"`) {
		t.Errorf("a session of acme begins with %s", got)
	}
	cancel()
	if code := <-exit; code != 0 {
		t.Errorf("it ended with %d:\n%s", code, &errs)
	}
}

func TestUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"is not a command":          {"dance"},
		"needs --data":              {"up"},
		"can be reached from other": {"up", "--data", t.TempDir(), "--addr", "0.0.0.0:1"},
		"use either":                {"up", "--data", t.TempDir(), "--addr", "", "--nats", "nats://127.0.0.1:1", "--join", "a:1,b:1,c:1"},
		"--join needs --token-file": {"up", "--data", t.TempDir(), "--addr", "", "--join", "a:1,b:1,c:1"},
		"not a flag":                {"status", "now"},
		"at least one of --slots":   {"worker", "--slots", "0"},
		"belong together":           {"status", "--nats", "nats://127.0.0.1:1", "--tls-cert", "x"},
		"[--scope SCOPE]":           {"token"},
		"tenant [flags] NAME":       {"tenant"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &out, &errs); code != 2 || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: %d, %q; want 2, %q", args, code, &errs, want)
		}
	}
	for want, args := range map[string][]string{
		"no node runs":      {"status", "--data", t.TempDir()},
		"cannot be reached": {"status", "--nats", "nats://user:hidden@127.0.0.1:1"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &out, &errs); code != 1 || !strings.Contains(errs.String(), want) || strings.Contains(errs.String(), "hidden") {
			t.Errorf("%v: %d, %q; want 1, %q", args, code, &errs, want)
		}
	}
}
