package interop

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/internal/testwait"
	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
	"github.com/parley-go/parley/session"
)

// TestBrowserSDK drives a session of parley serve with the browser export of the
// official TypeScript SDK, unchanged, over both of its transports: permissions, hooks,
// its own tools, partial messages, and a stream that was interrupted.
func TestBrowserSDK(t *testing.T) {
	p := peers(t)
	for _, transport := range []string{"websocket", "sse"} {
		t.Run(transport, func(t *testing.T) {
			dir, state := t.TempDir(), t.TempDir()
			model := pt.Script(
				pt.Expect(pt.LastUser("one")).Say("I write.").Call("Write", map[string]string{"file_path": filepath.Join(dir, "a"), "content": "x"}).Call("Bash", map[string]string{"command": "touch " + filepath.Join(dir, "b")}),
				pt.Expect(pt.ToolResult("")).Say("First."),
				pt.Expect(pt.LastUser("two")).Call("mcp__mine__double", map[string]int{"n": 21}),
				pt.Expect(pt.ToolResult("42")).Say("Second."),
				pt.Expect(pt.LastUser("three")).Say("Third."),
			).Model()
			h, err := hub.New(hub.Config{Backend: &hub.Files{Dir: filepath.Join(state, "hub")}, Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
				return &parley.Options{Cwd: start.Cwd, Dialer: agent.InProcess(agent.Config{Model: model, Store: start.Store, Environ: os.Environ()})}, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			s, err := serve.New(serve.Config{Hub: h, Dir: filepath.Join(state, "serve"), CheckPeer: func(net.Conn) error { return nil }}) // node is a child of the server here
			if err != nil {
				t.Fatal(err)
			}
			_, token, err := s.AddToken("browser", serve.ScopeDrive, time.Time{})
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
			defer func() {
				cancel()
				if err := <-served; err != nil {
					t.Error(err)
				}
				s.Close()
			}()
			id := session.NewID()
			if _, err := h.Create(t.Context(), hub.Actor{Name: "test", Rights: hub.Everything}, hub.Spec{ID: id, Cwd: dir}); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(testwait.Context(t), "node", "--experimental-websocket", filepath.Join("ts", "browser.mjs"), transport, "http://"+l.Addr().String(), id, token)
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "PARLEY_PEERS="+p.Dir)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				for e := range h.Session(id).Entries(t.Context(), hub.Actor{Rights: hub.Everything}, 0) {
					t.Logf("%s", e.AppendTo(nil))
				}
				audit, _ := os.ReadFile(filepath.Join(state, "serve", "audit.jsonl"))
				t.Fatalf("%v: %s\n%s", err, out, audit)
			}
			var got struct {
				Types, Asked, Hooks, Results, Again []string
				Tool                                []int
				Deltas                              int
				Model                               bool
				Drops                               map[string]int
			}
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			t.Logf("%s", out)
			want := []string{"First.", "Second."}
			if transport == "sse" {
				want = append(want, "Third.")
			}
			if !slices.Equal(got.Results, want) {
				t.Errorf("results %q, want %q", got.Results, want)
			}
			if want := []string{"Write", "Bash", "mcp__mine__double"}; !slices.Equal(got.Asked, want) {
				t.Errorf("asked about %q, want %q", got.Asked, want)
			}
			if want := []string{"Write", "Bash", "mcp__mine__double"}; !slices.Equal(got.Hooks, want) {
				t.Errorf("hooks for %q, want %q", got.Hooks, want)
			}
			if !slices.Equal(got.Tool, []int{21}) || got.Deltas == 0 || !got.Model {
				t.Errorf("tool called with %v, %d pieces, models %v", got.Tool, got.Deltas, got.Model)
			}
			if len(got.Drops) > 0 {
				t.Errorf("the SDK dropped %v", got.Drops)
			}
			if slices.Contains(got.Again, "result") && slices.Index(got.Again, "result") != len(got.Again)-1 {
				t.Errorf("after resuming it saw %q", got.Again)
			}
			if _, err := os.Stat(filepath.Join(dir, "a")); err != nil {
				t.Error("what was allowed did not run")
			}
			if _, err := os.Stat(filepath.Join(dir, "b")); err == nil {
				t.Error("what was denied ran")
			}
		})
	}
}
