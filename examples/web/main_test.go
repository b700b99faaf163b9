package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
)

// serve serves the handler with an agent in this process and a model that plays a
// script.
func serve(t *testing.T, s *parleytest.Scenario) (*httptest.Server, *parleytest.Model) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("buy milk\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	model := s.Model()
	server := httptest.NewServer(newServer(parley.Options{
		Dialer:       agent.InProcess(agent.Config{Cwd: dir, Model: model}),
		AllowedTools: []string{"Read"},
	}))
	t.Cleanup(server.Close)
	return server, model
}

func TestAsk(t *testing.T) {
	server, model := serve(t, parleytest.Script(
		parleytest.Expect(parleytest.LastUser("notes")).Say("I look.").Call("Read", `{"file_path":"notes.txt"}`),
		parleytest.Expect(parleytest.ToolResult("milk")).Say("Buy milk.")))
	resp, err := http.PostForm(server.URL+"/ask", url.Values{"prompt": {"What do my notes say?"}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, want := range []string{"event: text\ndata: \"I look.\"", "event: tool\ndata: \"Read\"", "data: \"Buy milk.\"", `"outcome":"completed"`} {
		i := strings.Index(string(body)[at:], want)
		if i < 0 {
			t.Fatalf("no %s after byte %d of\n%s", want, at, body)
		}
		at += i
	}
	if err := model.Done(); err != nil {
		t.Error(err)
	}
}

func TestAskNothing(t *testing.T) {
	server, _ := serve(t, parleytest.Script())
	resp, err := http.PostForm(server.URL+"/ask", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Error(resp.Status)
	}
}

// TestOtherPageIsRefused checks that a page of another origin cannot send prompts.
func TestOtherPageIsRefused(t *testing.T) {
	server, _ := serve(t, parleytest.Script())
	for method, want := range map[string]int{http.MethodGet: http.StatusMethodNotAllowed, http.MethodPost: http.StatusForbidden} {
		req, err := http.NewRequest(method, server.URL+"/ask?prompt=hello", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Sec-Fetch-Site", "cross-site")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", method, resp.Status, want)
		}
	}
}

// ask sends a prompt, as the page does.
func ask(ctx context.Context, t *testing.T, server *httptest.Server) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/ask", strings.NewReader("prompt=hello"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// A client that goes away ends the agent: the server can be closed.
func TestGone(t *testing.T) {
	server, _ := serve(t, parleytest.Script(parleytest.Say("Wait.").Stall()))
	ctx, cancel := context.WithCancel(testwait.Context(t))
	defer cancel()
	resp := ask(ctx, t, server)
	if _, err := resp.Body.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	cancel()
	server.Close() // waits until the agent has ended
}

// A call that no rule allows becomes a question; the answer decides whether it runs.
func TestApproval(t *testing.T) {
	for allow, want := range map[string]string{"true": "The summary is written.", "false": "You denied the file."} {
		t.Run("allow="+allow, func(t *testing.T) {
			script, err := parleytest.ReadScript("model.script")
			if err != nil {
				t.Fatal(err)
			}
			server, model := serve(t, script)
			resp, err := http.PostForm(server.URL+"/ask", url.Values{"prompt": {"Sum up the notes"}})
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var all strings.Builder
			asked := false
			for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
				all.WriteString(lines.Text() + "\n")
				var q struct{ ID, Tool string }
				data, ok := strings.CutPrefix(lines.Text(), `data: {"id"`)
				if !ok || asked {
					continue
				}
				if err := json.Unmarshal([]byte(`{"id"`+data), &q); err != nil || q.Tool != "Write" {
					t.Fatalf("the question is %s (%v)", lines.Text(), err)
				}
				asked = true
				for i, status := range []int{http.StatusNoContent, http.StatusNotFound} { // the first answer counts
					answer, err := http.PostForm(server.URL+"/answer", url.Values{"id": {q.ID}, "allow": {allow}})
					if err != nil {
						t.Fatal(err)
					}
					answer.Body.Close()
					if answer.StatusCode != status {
						t.Errorf("answer %d has the status %s, want %d", i+1, answer.Status, status)
					}
				}
			}
			if !asked || !strings.Contains(all.String(), want) {
				t.Errorf("no question, or no %q, in\n%s", want, all.String())
			}
			if err := model.Done(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A page that closes while a question is open ends the agent.
func TestGoneWhileAsked(t *testing.T) {
	server, _ := serve(t, parleytest.Script(parleytest.Call("Write", `{"file_path":"made.txt","content":"x"}`)))
	ctx, cancel := context.WithCancel(testwait.Context(t))
	defer cancel()
	resp := ask(ctx, t, server)
	for lines := bufio.NewScanner(resp.Body); lines.Scan() && lines.Text() != "event: question"; {
	}
	cancel()
	server.Close() // waits until the agent has ended
}

func TestPage(t *testing.T) {
	server, _ := serve(t, parleytest.Script())
	resp, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(body), "question: ask") {
		t.Errorf("the page (%v) does not handle questions:\n%s", err, body)
	}
}
