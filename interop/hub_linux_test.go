package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/socket"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// hubVar makes this program a hub in the directory that it names, whose agents are the
// CLI that hubCLIVar names.
const hubVar, hubCLIVar = "PARLEY_INTEROP_HUB", "PARLEY_INTEROP_HUB_CLI"

// hubRole makes this program a hub if it was started as one.
func hubRole() {
	if dir := os.Getenv(hubVar); dir != "" {
		if err := runHub(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
}

// runHub runs a hub until it is killed.
func runHub(dir string) error {
	cli := os.Getenv(hubCLIVar)
	os.Unsetenv(hubVar)
	os.Unsetenv(hubCLIVar)
	if err := socket.Adopt(); err != nil {
		return err
	}
	l, err := socket.Listen(filepath.Join(dir, "socket"))
	if err != nil {
		return err
	}
	h, err := hub.New(hub.Config{
		Backend:  &hub.Files{Dir: filepath.Join(dir, "hub"), Durability: session.Write},
		Sessions: &session.Files{Dir: filepath.Join(dir, "home", ".claude")},
		Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
			return &parley.Options{Path: cli, Cwd: start.Cwd, Model: "claude-sonnet-4-5", SettingSources: []string{}}, nil
		},
	})
	if err != nil {
		return err
	}
	return socket.Serve(context.Background(), h, l)
}

// A hubFace is a way to use a hub.
type hubFace interface {
	List(ctx context.Context) ([]hub.Info, error)
	Create(ctx context.Context, spec hub.Spec) (string, error)
	Prompt(ctx context.Context, id string, m *wire.User) (string, error)
	Attach(ctx context.Context, id string, after uint64) iter.Seq2[hub.Entry, error]
	Answer(ctx context.Context, id string, ans hub.Answer) error
	Interrupt(ctx context.Context, id string) error
	Close() error
}

// A hubProcess is a hub in another process, in front of a CLI.
type hubProcess struct {
	t    *testing.T
	dir  string
	args []string // of the command
	env  []string
	cmd  *exec.Cmd
	c    hubFace
	also hubFace // another way to the same hub
	id   string  // of its session
}

// startHub starts a hub and creates a session. The model plays a script.
func startHub(t *testing.T, cli hubCLI, script *parleytest.Scenario) *hubProcess {
	t.Helper()
	dir, err := os.MkdirTemp("", "hub") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"home", "project"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	api := parleytest.NewAPI(t, script, nil)
	h := &hubProcess{t: t, dir: dir}
	h.env = append(os.Environ(), "HOME="+filepath.Join(dir, "home"), "CLAUDE_CONFIG_DIR="+filepath.Join(dir, "home", ".claude"), "ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_API_KEY="+fakeKey)
	spec := hub.Spec{Cwd: filepath.Join(dir, "project")}
	if cli.serve == "" {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		h.args, h.env = []string{exe}, append(h.env, hubVar+"="+dir, hubCLIVar+"="+cli.path)
		h.c = socket.NewClient(filepath.Join(dir, "socket"))
		h.also = h.c
	} else {
		h.args = []string{cli.serve, "serve", "--addr", "127.0.0.1:0"}
		f := &networkFace{}
		h.c, h.also = f, &networkFace{events: true}
		spec.Agent = hub.Args{Args: []string{"--cli", cli.path, "--model", "claude-sonnet-4-5", "--setting-sources", ""}}.Spec()
	}
	t.Cleanup(func() {
		h.kill()
		h.c.Close()
		h.also.Close()
	})
	h.start()
	if h.id, err = h.c.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *hubProcess) start() {
	h.t.Helper()
	h.cmd = exec.Command(h.args[0], h.args[1:]...)
	h.cmd.Env, h.cmd.Stderr = h.env, os.Stderr
	face, network := h.c.(*networkFace)
	var out io.ReadCloser
	if network {
		var err error
		if out, err = h.cmd.StdoutPipe(); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := h.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	if network {
		lines := bufio.NewScanner(out)
		for lines.Scan() && (face.url == "" || face.token == "") {
			if url, ok := strings.CutPrefix(lines.Text(), "Serving "); ok {
				face.url = url
				h.args[3] = strings.TrimPrefix(url, "http://") // for restarts
			}
			if _, token, ok := strings.Cut(lines.Text(), "/#t="); ok {
				face.token = strings.TrimSpace(token)
			}
		}
		go io.Copy(io.Discard, out)
		also := h.also.(*networkFace)
		also.url, also.token = face.url, face.token
	}
	testwait.Until(h.t, "the hub answers", func() bool { _, err := h.c.List(h.t.Context()); return err == nil })
}

func (h *hubProcess) kill() {
	h.cmd.Process.Kill()
	h.cmd.Wait()
}

func (h *hubProcess) prompt(text string) {
	h.t.Helper()
	if _, err := h.c.Prompt(h.t.Context(), h.id, wire.Prompt(wire.Text(text))); err != nil {
		h.t.Fatal(err)
	}
}

// until attaches after a number until ok accepts an event.
func (h *hubProcess) until(what string, after uint64, ok func(hub.Entry) bool) hub.Entry {
	h.t.Helper()
	var seen []string
	for e, err := range h.c.Attach(testwait.Context(h.t), h.id, after) {
		if err != nil {
			h.t.Fatalf("no %s: %v, after\n%s", what, err, strings.Join(seen, "\n"))
		}
		if ok(e) {
			return e
		}
		if e.N > 0 {
			seen = append(seen, fmt.Sprintf("%.300s", e.AppendTo(nil)))
		}
	}
	return hub.Entry{}
}

func (h *hubProcess) ask(after uint64) (*hub.Ask, uint64) {
	h.t.Helper()
	ask := new(hub.Ask)
	e := h.until("question", after, func(e hub.Entry) bool { return e.Kind == hub.KindAsk })
	if err := json.Unmarshal(e.Data, ask); err != nil {
		h.t.Fatal(err)
	}
	return ask, e.N
}

func (h *hubProcess) answer(ans hub.Answer) {
	h.t.Helper()
	if err := h.c.Answer(h.t.Context(), h.id, ans); err != nil {
		h.t.Fatal(err)
	}
}

func (h *hubProcess) result(after uint64) uint64 {
	h.t.Helper()
	return h.until("result", after, func(e hub.Entry) bool { return e.Kind == hub.KindFrame && wire.PeekType(e.Data) == "result" }).N
}

// effects returns the effects of the calls.
func (h *hubProcess) effects() string {
	data, err := os.ReadFile(filepath.Join(h.dir, "project", "effects"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	return string(data)
}

// A hubCLI is an agent that the hub must drive as a process. If serve is not empty, it
// is a parley command whose server has the hub, and the hub is used over the network.
type hubCLI struct{ path, serve string }

// clis returns the agents that the hub must drive.
func clis(t *testing.T) map[string]hubCLI {
	claude := peers(t).CLI()
	all := map[string]hubCLI{"claude": {path: claude}}
	if own := os.Getenv("PARLEY_CLI"); own != "" {
		all["parley"] = hubCLI{path: own}
		all["claude behind parley serve"] = hubCLI{claude, own}
	}
	return all
}

// TestHubApprovesAndDeniesForTwoViewers checks the hub with a CLI: an allowed call runs
// once, a denied one does not, the first answer wins, and two viewers have the same log
// by number and bytes.
func TestHubApprovesAndDeniesForTwoViewers(t *testing.T) {
	t.Parallel()
	for name, cli := range clis(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHub(t, cli, parleytest.Script(
				parleytest.Call("Bash", bash("echo 1 >> effects")), parleytest.Say("One."),
				parleytest.Call("Bash", bash("echo 2 >> effects")), parleytest.Say("Two."),
			))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			logs := make([][]string, 2)
			results := make(chan int, 10)
			var viewers sync.WaitGroup
			for v := range logs {
				viewers.Go(func() {
					n := 0
					for e, err := range []hubFace{h.c, h.also}[v].Attach(ctx, h.id, 0) {
						if err != nil {
							return
						}
						if e.N > 0 {
							logs[v] = append(logs[v], string(e.AppendTo(nil)))
						}
						if e.Kind == hub.KindFrame && wire.PeekType(e.Data) == "result" {
							if n++; n == 2 {
								results <- v
								return
							}
						}
					}
				})
			}
			h.prompt("Do it.")
			ask, _ := h.ask(0)
			if ask.Tool != "Bash" || ask.ToolUseID == "" {
				t.Errorf("the question is %+v", ask)
			}
			h.answer(hub.Allow(ask))
			var late *hub.AnsweredError
			if err := h.c.Answer(t.Context(), h.id, hub.Deny(ask, "no")); !errors.As(err, &late) {
				t.Errorf("the second answer: %v", err)
			}
			n := h.result(0)
			if got := h.effects(); got != "1\n" {
				t.Errorf("the call that was allowed left %q", got)
			}
			h.prompt("And again.")
			ask, _ = h.ask(n)
			h.answer(hub.Deny(ask, "Not this one."))
			h.result(n)
			if got := h.effects(); got != "1\n" {
				t.Errorf("the call that was denied left %q", got)
			}
			for range logs {
				<-results
			}
			cancel()
			viewers.Wait()
			if !slices.Equal(logs[0], logs[1]) {
				t.Errorf("the viewers have different logs\n%s\n---\n%s", strings.Join(logs[0], "\n"), strings.Join(logs[1], "\n"))
			}
		})
	}
}

// TestHubInterrupts checks that an interrupt ends the turn of a CLI, and that the next
// prompt has its turn.
func TestHubInterrupts(t *testing.T) {
	t.Parallel()
	for name, cli := range clis(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHub(t, cli, parleytest.Script(
				parleytest.Call("Bash", bash("echo begun >> effects; while [ ! -e stop ]; do sleep 0.1; done; echo ended >> effects")),
				parleytest.Say("Hello."),
			))
			h.prompt("Wait.")
			ask, n := h.ask(0)
			h.answer(hub.Allow(ask))
			testwait.Until(t, "the command runs", func() bool { return h.effects() == "begun\n" })
			if err := h.c.Interrupt(t.Context(), h.id); err != nil {
				t.Fatal(err)
			}
			n = h.result(n)
			if err := os.WriteFile(filepath.Join(h.dir, "project", "stop"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			h.prompt("Hello?")
			h.result(n)
			if got := h.effects(); got != "begun\n" {
				t.Errorf("the command went on: %q", got)
			}
		})
	}
}

// TestHubKeepsAnAnswerAcrossARestart kills the hub while a question is open. The
// question is answered afterwards, and the call runs once: parley continues its turn,
// and for claude, which cannot, the answer is kept for its next identical call.
func TestHubKeepsAnAnswerAcrossARestart(t *testing.T) {
	t.Parallel()
	for name, cli := range clis(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := parleytest.Call("Bash", bash("echo 1 >> effects"))
			script := parleytest.Script(call, parleytest.Say("Done."))
			if name != "parley" {
				script = parleytest.Script(call, call, parleytest.Say("Done."), call, parleytest.Say("Done again."))
			}
			h := startHub(t, cli, script)
			h.prompt("Do it.")
			ask, n := h.ask(0)
			h.kill()
			h.start()
			if name != "parley" {
				n = h.until("end of the turn", n, func(e hub.Entry) bool { return e.Kind == hub.KindEnded }).N
			}
			h.answer(hub.Allow(ask))
			if name == "parley" {
				h.result(n)
				if got := h.effects(); got != "1\n" {
					t.Errorf("the call left %q", got)
				}
				return
			}
			if got := h.effects(); got != "" {
				t.Errorf("before the next prompt, the call left %q", got)
			}
			h.prompt("Go on.")
			n = h.result(n)
			if got := h.effects(); got != "1\n" {
				t.Errorf("the call left %q", got)
			}
			kept := h.until("kept answer", 0, func(e hub.Entry) bool {
				return e.Kind == hub.KindAnswer && strings.Contains(string(e.Data), `"kept":"`+ask.ID+`"`)
			})
			// The answer was kept for one call. The next one is a question again.
			h.prompt("And again.")
			again, _ := h.ask(n)
			if again.ID == ask.ID || kept.N > n {
				t.Errorf("the question is %+v, the kept answer is entry %d", again, kept.N)
			}
			h.answer(hub.Deny(again, "Once is enough."))
			h.result(n)
			if got := h.effects(); got != "1\n" {
				t.Errorf("the kept answer was used twice: %q", got)
			}
		})
	}
}
