package main

import (
	"context"
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
	server := httptest.NewServer(ask(parley.Options{
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
	resp, err := http.Get(server.URL + "/ask?prompt=" + url.QueryEscape("What do my notes say?"))
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
	resp, err := http.Get(server.URL + "/ask")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Error(resp.Status)
	}
}

// A client that goes away ends the agent: the server can be closed.
func TestGone(t *testing.T) {
	server, _ := serve(t, parleytest.Script(parleytest.Say("Wait.").Stall()))
	ctx, cancel := context.WithCancel(testwait.Context(t))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/ask?prompt=hello", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	cancel()
	server.Close() // waits until the agent has ended
}
