package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/internal/cli"
	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/remote"
	"github.com/parley-go/parley/serve"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		http.DefaultClient.CloseIdleConnections()
		os.Exit(code)
	}))
}

// newServer serves a hub whose agents play a script. It returns the hub, and a server
// with its address and a token for everything.
func newServer(t *testing.T, model *pt.Model) (*hub.Hub, *remote.Server) {
	t.Helper()
	h, err := hub.New(hub.Config{Backend: new(hub.Memory), Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
		var spec hub.Args
		if len(start.Spec) > 0 {
			if err := json.Unmarshal(start.Spec, &spec); err != nil {
				return nil, err
			}
		}
		dialer := agent.InProcess(agent.Config{Model: model, Store: start.Store, Environ: os.Environ()})
		return &parley.Options{Cwd: start.Cwd, Dialer: transport.DialerFunc(func(ctx context.Context, s transport.Spec) (transport.Conn, error) {
			s.Words = append(spec.Args, s.Words...)
			return dialer.Dial(ctx, s)
		})}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := serve.New(serve.Config{Hub: h, Agent: func(a serve.AgentSettings) (json.RawMessage, error) {
		_, err := cli.Parse(a.Args)
		return hub.Args{Args: a.Args}.Spec(), err
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, token, err := s.AddToken("program", serve.ScopeAdmin, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		s.Close()
		h.Close()
	})
	return h, &remote.Server{URL: "http://" + l.Addr().String(), Token: token}
}

// TestServer checks that a program drives a session of a server with hooks, a permission
// callback and its own tool, leaves, and comes back.
func TestServer(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a")
	h, server := newServer(t, pt.Script(
		pt.Expect(pt.LastUser("one")).Call("Write", map[string]string{"file_path": file, "content": strings.Repeat("x", 70_000)}).Call("mcp__mine__double", map[string]int{"n": 21}),
		pt.Expect(pt.ToolResult("42")).Say("First."),
		pt.Expect(pt.LastUser("two")).Say("Second."),
	).Model())
	var mu sync.Mutex
	var asked, hooked []string
	opts := &parley.Options{
		Cwd: dir, Dialer: server, Model: "haiku",
		CanUseTool: func(_ context.Context, r *wire.CanUseTool) (*wire.PermissionResult, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, r.ToolName)
			return parley.Allow(), nil
		},
		Hooks: []parley.Hook{parley.On("", func(_ context.Context, in *wire.PreToolUseInput) (*wire.HookOutput, error) {
			mu.Lock()
			defer mu.Unlock()
			hooked = append(hooked, in.ToolName)
			return nil, nil
		})},
		ToolServers: map[string]*mcp.Server{"mine": parley.ToolServer("mine", parley.NewTool("double", "Doubles.", func(_ context.Context, in struct {
			N int `json:"n"`
		}) (int, error) {
			return 2 * in.N, nil
		}))},
	}
	text, err := ask(t, "one", opts)
	if err != nil || text != "First." {
		t.Fatalf("%q, %v", text, err)
	}
	slices.Sort(asked)
	slices.Sort(hooked)
	if fmt.Sprint(asked) != "[Write mcp__mine__double]" || fmt.Sprint(hooked) != "[Write mcp__mine__double]" {
		t.Errorf("asked about %v, hooks for %v", asked, hooked)
	}
	if info, err := os.Stat(file); err != nil || info.Size() != 70_000 {
		t.Error(err)
	}
	all, err := h.List(t.Context(), hub.Actor{Rights: hub.MayView})
	if err != nil || len(all) != 1 {
		t.Fatalf("%d sessions, %v", len(all), err)
	}
	again := *server
	again.Session = all[0].ID
	if text, err := ask(t, "two", &parley.Options{Dialer: &again}); err != nil || text != "Second." {
		t.Errorf("%q, %v", text, err)
	}
}

func ask(t *testing.T, prompt string, opts *parley.Options) (text string, err error) {
	t.Helper()
	r, err := parley.Run(t.Context(), prompt, opts)
	if err != nil {
		return "", err
	}
	return r.Result, nil
}

// TestServerMistakes checks that errors explain what to do.
func TestServerMistakes(t *testing.T) {
	_, server := newServer(t, pt.Script(pt.Say("Hello.").Always()).Model())
	dir := t.TempDir()
	for name, c := range map[string]struct {
		change func(*remote.Server)
		opts   parley.Options
		want   string
	}{
		"address":       {func(s *remote.Server) { s.URL = "parley.example.com" }, parley.Options{Cwd: dir}, "not the address of a server"},
		"no server":     {func(s *remote.Server) { s.URL = "http://127.0.0.1:1" }, parley.Options{Cwd: dir}, "connection refused"},
		"token":         {func(s *remote.Server) { s.Token = "x" }, parley.Options{Cwd: dir}, "token"},
		"no directory":  {func(*remote.Server) {}, parley.Options{}, "needs the directory"},
		"its directory": {func(*remote.Server) {}, parley.Options{Cwd: filepath.Join(dir, "missing")}, "is not the absolute path of a directory"},
		"flag":          {func(*remote.Server) {}, parley.Options{Cwd: dir, ExtraArgs: map[string]string{"no-such-flag": ""}}, "no-such-flag"},
		"resume":        {func(*remote.Server) {}, parley.Options{Cwd: dir, Resume: "00000000-0000-4000-8000-000000000000"}, "remote.Server.Session"},
		"unknown":       {func(s *remote.Server) { s.Session = "00000000-0000-4000-8000-000000000000" }, parley.Options{}, "there is no such session"},
	} {
		s := *server
		c.change(&s)
		c.opts.Dialer = &s
		ctx, cancel := context.WithCancel(t.Context())
		_, err := parley.Run(ctx, "Hello.", &c.opts)
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		var wrong *parley.OptionError
		if name == "address" && !errors.As(err, &wrong) {
			t.Errorf("%s: %T is no OptionError", name, err)
		}
	}
}
