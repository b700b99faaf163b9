package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/parley-go/parley/fleet"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/session"
)

// A buffer can be written and read concurrently.
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
// turn, the tools receive the epoch, status and metrics show the session, and the node ends when
// it is stopped.
func TestUp(t *testing.T) {
	data, project := t.TempDir(), t.TempDir()
	script := filepath.Join(project, "model.script")
	const canary = "k3y-0f-acme"
	t.Setenv("PARLEY_TENANT_ACME_KEY", canary)
	if err := os.WriteFile(script+"2", []byte("turn\n\tcall Bash {\"command\": \"echo ${#KEY} $(env | grep -c PARLEY_TENANT)\"}\nturn\n\texpect result 11 0\n\tsay It has it.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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
	checkExport(t, data, created.ID)
	// A second node on the same directory is refused, whether or not it would serve the API.
	for _, flag := range []string{"--addr=", "--addr=127.0.0.1:0"} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"up", "--data", data, flag}, &out, &errs); code != 1 || !strings.Contains(errs.String(), "another process holds") {
			t.Errorf("a second node: %d\n%s%s", code, &out, &errs)
		}
	}
	if err := readJSON(filepath.Join(data, "node.json"), &node); err != nil {
		t.Error(err)
	}
	for want, where := range map[string]map[string]any{
		"the directory /nowhere of the session does not exist on one": {"cwd": "/nowhere"},
		"does not exist on this machine":                              {"args": []string{"--workspace", "dir:/nowhere"}},
	} {
		var lost struct{ ID string }
		call("POST", "/v1/sessions", where, &lost)
		call("POST", "/v1/sessions/"+lost.ID+"/prompts", map[string]any{"text": "go"}, nil)
		testwait.Until(t, want, func() bool { return strings.Contains(entries(lost.ID), want) })
	}
	for want, args := range map[string][]string{
		"":                     {"tenant", "--data", data, "--running", "3", "--models", "a,b*,claude-*", "--secrets", "KEY", "acme"},
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
	call("POST", "/v1/sessions", map[string]any{"cwd": project, "args": []string{"--provider", "script", "--script", script + "2", "--allowedTools", "Bash"}}, &created)
	if got := entries(created.ID); !strings.Contains(got, `"name":"acme/alice"`) {
		t.Errorf("a session of acme begins with %s", got)
	}
	call("POST", "/v1/sessions/"+created.ID+"/prompts", map[string]any{"text": "go"}, nil)
	testwait.Until(t, "the turn of acme is over", func() bool { return strings.Contains(entries(created.ID), `"result"`) })
	if got := entries(created.ID); !strings.Contains(got, "It has it.") {
		t.Errorf("the agent of acme has not its secret, or the variables of the worker: %s", got)
	}
	cancel()
	if code := <-exit; code != 0 {
		t.Errorf("it ended with %d:\n%s", code, &errs)
	}
	if got := errs.String(); strings.Contains(got, "backend is closed") {
		t.Errorf("it warns when it ends:\n%s", got)
	}
	if strings.Contains(out.String()+errs.String(), canary) {
		t.Error("the secret was logged")
	}
	err := filepath.WalkDir(data, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(file)
		if bytes.Contains(content, []byte(canary)) {
			t.Errorf("the secret is in %s", file)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// checkExport exports a session from the fleet to a file, imports it into the files that the official SDKs read, and
// imports it into the fleet again after it was removed there.
func checkExport(t *testing.T, data, id string) {
	t.Helper()
	command := func(args ...string) (string, int) {
		var out, errs bytes.Buffer
		code := run(t.Context(), args, &out, &errs)
		return out.String() + errs.String(), code
	}
	file := filepath.Join(t.TempDir(), "session.parley")
	if out, code := command("export", "--data", data, id, file); code != 0 {
		t.Fatalf("export: %d\n%s", code, out)
	}
	if out, code := command("export", "--data", data, id, file); code != 1 || !strings.Contains(out, "exists already") {
		t.Errorf("a second export to the same file: %d\n%s", code, out)
	}
	if out, code := command("export", "--data", data, session.NewID(), file+"2"); code != 1 || !strings.Contains(out, "does not exist") {
		t.Errorf("an unknown session: %d\n%s", code, out)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := &session.Files{Dir: t.TempDir()}
	if got, err := session.Import(t.Context(), files, f, nil); err != nil || got != id {
		t.Fatalf("session.Import: %s, %v", got, err)
	}
	messages, err := session.Messages(t.Context(), files, id, nil)
	if err != nil || len(messages) < 4 {
		t.Errorf("the exported session has %d messages, %v", len(messages), err)
	}
	if out, code := command("import", "--data", data, file); code != 1 || !strings.Contains(out, session.ErrExists.Error()) {
		t.Errorf("an import of a session that exists: %d\n%s", code, out)
	}
}

func TestUsage(t *testing.T) {
	member := t.TempDir()
	if err := os.WriteFile(filepath.Join(member, "cluster.json"), []byte(`{"cluster": "a:1", "routes": ["a:1", "b:1", "c:1"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"is not a command":          {"dance"},
		"needs --data":              {"up"},
		"can be reached from other": {"up", "--data", t.TempDir(), "--addr", "0.0.0.0:1"},
		"use either":                {"up", "--data", t.TempDir(), "--addr", "", "--nats", "nats://127.0.0.1:1", "--join", "a:1,b:1,c:1"},
		"--join needs --token-file": {"up", "--data", t.TempDir(), "--addr", "", "--join", "a:1,b:1,c:1"},
		"not a flag":                {"status", "now"},
		"flag -slots":               {"up", "--slots", "x"},
		"at least one of --slots":   {"worker", "--slots", "0"},
		"belong together":           {"status", "--nats", "nats://127.0.0.1:1", "--tls-cert", "x"},
		"[--scope SCOPE]":           {"token"},
		"tenant [flags] NAME":       {"tenant"},
		"it needs --token-file":     {"up", "--data", member, "--addr", ""},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &out, &errs); code != 2 || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: %d, %q; want 2, %q", args, code, &errs, want)
		}
		if out.Len() > 0 {
			t.Errorf("%v prints %q", args, &out)
		}
	}
	var help bytes.Buffer
	if code := run(t.Context(), []string{"up", "--help"}, &help, io.Discard); code != 0 || strings.Count(help.String(), "parley-fleet up\nRun a node: ") != 1 || !strings.Contains(help.String(), "--cluster addresses") {
		t.Errorf("up --help: %d\n%s", code, &help)
	}
	for line := range strings.Lines(usage) {
		command, ok := strings.CutPrefix(line, "  parley-fleet ")
		if !ok {
			continue
		}
		command = strings.Fields(command)[0]
		var got, want bytes.Buffer
		if code := run(t.Context(), []string{"help", command}, &got, io.Discard); code != 0 || got.Len() == 0 {
			t.Errorf("help %s: %d, want 0", command, code)
		}
		run(t.Context(), []string{command, "--help"}, &want, io.Discard)
		if got.String() != want.String() {
			t.Errorf("help %s prints\n%s, want the output of %[1]s --help:\n%s", command, &got, &want)
		}
	}
	if code := run(t.Context(), []string{"help", "nosuch"}, io.Discard, io.Discard); code != 2 {
		t.Errorf("help nosuch: %d, want 2", code)
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

// TestStatusShowsNoControlCharacters checks that the name of a worker cannot control the terminal.
func TestStatusShowsNoControlCharacters(t *testing.T) {
	var out strings.Builder
	if err := printStatus(&out, &fleet.Status{Workers: []fleet.WorkerInfo{{Name: "a\x1b[2J\tb\n", Version: "1\a"}}}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.ContainsAny(got, "\x1b\a\t") || strings.Count(got, "\n") != 3 {
		t.Errorf("%q", got)
	}
}
