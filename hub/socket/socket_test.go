//go:build linux

package socket_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/socket"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// hubEnv makes this program a hub, in the directory that it names.
const hubEnv = "PARLEY_TEST_HUB"

// asClient makes this program a client, if the environment says so, and reports whether it
// did.
var asClient = func() bool { return false }

func TestMain(m *testing.M) {
	if asClient() {
		return
	}
	if dir := os.Getenv(hubEnv); dir != "" {
		if err := runHub(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runHub runs a hub whose agents call Bash once for each prompt, with the prompt as the
// command.
func runHub(dir string) error {
	if err := socket.Adopt(); err != nil {
		return err
	}
	l, err := socket.Listen(filepath.Join(dir, "socket"))
	if err != nil {
		return err
	}
	os.Unsetenv(hubEnv) // commands of agents must not become hubs
	store := &session.Files{Dir: filepath.Join(dir, "config"), Durability: session.Write, LockWait: 5 * time.Second}
	h, err := hub.New(hub.Config{
		Backend: &hub.Files{Dir: filepath.Join(dir, "hub"), Durability: session.Write}, Sessions: store, Name: fmt.Sprint("hub ", os.Getpid()),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
			cfg := agent.Config{Model: echo{}, Store: store, Environ: os.Environ()}
			return &parley.Options{Cwd: start.Cwd, Dialer: agent.InProcess(cfg)}, nil
		},
	})
	if err != nil {
		return err
	}
	return socket.Serve(context.Background(), h, l)
}

// echo is a model that calls Bash with each prompt of the last message, and is done
// when it has the results.
type echo struct{}

// Stream implements [model.Model].
func (echo) Stream(_ context.Context, req model.Request) iter.Seq2[model.Event, error] {
	var body struct {
		Messages []struct {
			Role    string
			Content []struct {
				Type, Text string
			}
		}
	}
	json.Unmarshal(req.Body, &body)
	last := body.Messages[len(body.Messages)-1]
	type block struct{ start, delta string }
	blocks, stop := []block{{`{"type":"text","text":""}`, `{"type":"text_delta","text":"Done."}`}}, "end_turn"
	for _, b := range last.Content { // prompts that were queued together arrive in one message
		if b.Type == "text" && (strings.HasPrefix(b.Text, "echo ") || strings.HasPrefix(b.Text, "bash ")) {
			input, _ := json.Marshal(map[string]string{"command": b.Text})
			partial, _ := json.Marshal(string(input))
			if stop != "tool_use" {
				blocks, stop = nil, "tool_use"
			}
			blocks = append(blocks, block{
				start: `{"type":"tool_use","id":"toolu_` + strings.ReplaceAll(session.NewID(), "-", "") + `","name":"Bash","input":{}}`,
				delta: `{"type":"input_json_delta","partial_json":` + string(partial) + `}`,
			})
		}
	}
	events := []string{`{"type":"message_start","message":{"id":"msg_` + session.NewID() + `","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`}
	for i, b := range blocks {
		events = append(events,
			fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, i, b.start),
			fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, i, b.delta),
			fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i))
	}
	events = append(events, `{"type":"message_delta","delta":{"stop_reason":"`+stop+`"},"usage":{"output_tokens":2}}`, `{"type":"message_stop"}`)
	return func(yield func(model.Event, error) bool) {
		for _, e := range events {
			var typ struct{ Type string }
			json.Unmarshal([]byte(e), &typ)
			if !yield(model.Event{Type: typ.Type, Data: json.RawMessage(e)}, nil) {
				return
			}
		}
	}
}

// A child is a hub in another process, which can be killed and restarted.
type child struct {
	t    *testing.T
	dir  string
	exe  string
	attr *syscall.SysProcAttr
	cmd  *exec.Cmd
	c    *socket.Client
}

func startChild(t *testing.T) *child {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startChildAs(t, exe, nil)
}

// startChildAs starts a program as a hub, with the attributes of a process.
func startChildAs(t *testing.T, exe string, attr *syscall.SysProcAttr) *child {
	dir, err := os.MkdirTemp("", "hub") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	if attr != nil {
		os.Chown(dir, int(attr.Credential.Uid), int(attr.Credential.Gid))
	}
	h := &child{t: t, dir: dir, exe: exe, attr: attr, c: socket.NewClient(filepath.Join(dir, "socket"))}
	t.Cleanup(func() {
		h.kill()
		h.c.Close()
		os.RemoveAll(dir)
	})
	h.start()
	return h
}

func (h *child) start() {
	h.cmd = exec.Command(h.exe)
	h.cmd.Dir = h.dir
	h.cmd.Env = append(os.Environ(), hubEnv+"="+h.dir, "HOME="+h.dir)
	h.cmd.Stderr, h.cmd.SysProcAttr = os.Stderr, h.attr
	if err := h.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
}

func (h *child) kill() {
	h.cmd.Process.Kill()
	h.cmd.Wait()
}

// retry calls f until the hub answers.
func retry(t *testing.T, f func() error) error {
	for until := time.Now().Add(2 * time.Minute); ; {
		err := f()
		var answered *socket.Error
		if err == nil || errors.As(err, &answered) || time.Now().After(until) {
			return err
		}
		pause()
	}
}

// pause lets other processes run.
func pause() { testwait.Pause(5 * time.Millisecond) }

// TestKilledHubLosesNothing kills the hub's process again and again while viewers come and
// go. It checks that their logs are the same by number and bytes, that no prompt is lost,
// that no effect runs twice, and that no question is answered twice.
func TestKilledHubLosesNothing(t *testing.T) {
	disconnects, kills := 40, 4
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		disconnects, kills = 1000, 50
	}
	h := startChild(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	id := session.NewID()
	err := retry(t, func() error {
		_, err := h.c.Create(ctx, hub.Spec{ID: id, Cwd: h.dir})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	// Viewers, all of which answer the questions that they see.
	const viewers = 4
	logs := make([][]string, viewers)
	var mu sync.Mutex
	over := map[string]bool{} // prompts that have ended
	left := disconnects
	var wg sync.WaitGroup
	view := func(v int, until func(last uint64) bool) {
		r := rand.New(rand.NewPCG(1, uint64(v)))
		for n := uint64(0); ctx.Err() == nil; {
			stop := r.IntN(30)
			for e, err := range h.c.Attach(ctx, id, n) {
				if err != nil {
					break
				}
				if e.N > 0 {
					if e.N != n+1 {
						t.Errorf("viewer %d received %d behind %d", v, e.N, n)
					}
					n = e.N
					logs[v] = append(logs[v], string(e.AppendTo(nil)))
				}
				switch e.Kind {
				case hub.KindAsk:
					var ask hub.Ask
					json.Unmarshal(e.Data, &ask)
					wg.Go(func() {
						h.c.Answer(ctx, id, hub.Answer{Ask: ask.ID, Shown: ask.Hash, Response: json.RawMessage(`{"behavior":"allow"}`)})
					})
				case hub.KindState: // a question whose answer was lost with the hub
					var st hub.State
					json.Unmarshal(e.Data, &st)
					for _, w := range st.Waiting {
						for _, line := range logs[v] {
							if strings.Contains(line, `"kind":"ask"`) && strings.Contains(line, w.ID) {
								x, _ := hub.ParseEntry([]byte(line))
								var ask hub.Ask
								json.Unmarshal(x.Data, &ask)
								wg.Go(func() {
									h.c.Answer(ctx, id, hub.Answer{Ask: ask.ID, Shown: ask.Hash, Response: json.RawMessage(`{"behavior":"allow"}`)})
								})
							}
						}
					}
				case hub.KindFrame:
					var m struct {
						Type  string
						UUIDs []string `json:"user_message_uuids"`
					}
					if json.Unmarshal(e.Data, &m); m.Type == "result" {
						mu.Lock()
						for _, u := range m.UUIDs {
							over[u] = true
						}
						mu.Unlock()
					}
				case hub.KindEnded:
					var x hub.Ended
					json.Unmarshal(e.Data, &x)
					mu.Lock()
					for _, u := range x.Prompts {
						over[u] = true
					}
					mu.Unlock()
				}
				if until(n) {
					return
				}
				if stop--; stop < 0 {
					mu.Lock()
					left--
					mu.Unlock()
					break
				}
			}
			pause()
		}
	}
	var viewing sync.WaitGroup
	for v := range viewers {
		viewing.Go(func() { view(v, func(uint64) bool { return false }) })
	}

	// Prompts, each sent until the hub has accepted it, and sometimes again.
	var prompts []string
	sent := 0
	send := func() {
		m := wire.Prompt(wire.Text(fmt.Sprintf("echo %d >> effects", sent)))
		m.UUID = session.NewID()
		prompts = append(prompts, m.UUID)
		sent++
		for range 1 + rand.IntN(2) {
			if err := retry(t, func() error { _, err := h.c.Prompt(ctx, id, m); return err }); err != nil {
				t.Fatal(err)
			}
		}
	}
	await := func() {
		for until := time.Now().Add(time.Minute); ; pause() {
			mu.Lock()
			done := !slices.ContainsFunc(prompts, func(u string) bool { return !over[u] })
			mu.Unlock()
			if done {
				return
			}
			if time.Now().After(until) {
				for e, err := range (&hub.Files{Dir: filepath.Join(h.dir, "hub")}).Read(t.Context(), id, 0, false) {
					t.Logf("%.200s %v", e.AppendTo(nil), err)
				}
				t.Fatalf("a prompt of %d has no end", len(prompts))
			}
		}
	}
	for range kills {
		send()
		for range rand.IntN(30) {
			pause()
		}
		h.kill()
		h.start()
	}
	for more := true; more; {
		send()
		await()
		mu.Lock()
		more = left > 0
		mu.Unlock()
	}
	await()
	cancel()
	viewing.Wait()
	wg.Wait()

	// Everything in the journal, which every viewer must have: they continue to its end.
	h.kill()
	var want []string
	b := &hub.Files{Dir: filepath.Join(h.dir, "hub")}
	asked, answered := 0, map[string]int{}
	accepted := map[string]int{}
	for e, err := range b.Read(t.Context(), id, 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, string(e.AppendTo(nil)))
		switch e.Kind {
		case hub.KindAsk:
			asked++
		case hub.KindAnswer:
			var a hub.Answer
			json.Unmarshal(e.Data, &a)
			answered[a.Ask]++
		case hub.KindPrompt:
			var p hub.Prompt
			json.Unmarshal(e.Data, &p)
			accepted[p.UUID]++
		}
	}
	for v, log := range logs {
		if len(log) > len(want) || !slices.Equal(log, want[:len(log)]) {
			for i := range min(len(log), len(want)) {
				if log[i] != want[i] {
					t.Fatalf("viewer %d, entry %d\n got %.300s\nwant %.300s", v, i+1, log[i], want[i])
				}
			}
			t.Errorf("viewer %d has %d entries of %d", v, len(log), len(want))
		}
	}
	for _, p := range prompts {
		if accepted[p] != 1 {
			t.Errorf("the prompt %s is in the journal %d times", p, accepted[p])
		}
	}
	for ask, n := range answered {
		if n != 1 {
			t.Errorf("the question %s was answered %d times", ask, n)
		}
	}
	effects, err := os.ReadFile(filepath.Join(h.dir, "effects"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	ran := map[string]int{}
	for _, w := range strings.Fields(string(effects)) {
		ran[w]++
	}
	unknown := strings.Count(strings.Join(want, "\n"), "outcome unknown")
	missing := 0
	for i := range sent {
		switch n := ran[fmt.Sprint(i)]; {
		case n > 1:
			t.Errorf("effect %d ran %d times", i, n)
		case n == 0:
			missing++
		}
	}
	if missing > unknown {
		t.Errorf("%d effects are missing, %d are reported as unknown", missing, unknown)
	}
	t.Logf("%d entries, %d prompts, %d questions, %d kills, %d disconnects; %d effects ran, %d unknown", len(want), sent, asked, kills, disconnects-left, len(ran), unknown)
}

// TestCommandsOfAgentsAreRefused checks that a command that an agent runs is rejected,
// whatever it does to hide where it comes from.
func TestCommandsOfAgentsAreRefused(t *testing.T) {
	h := startChild(t)
	ctx := t.Context()
	var id string
	err := retry(t, func() (err error) {
		id, err = h.c.Create(ctx, hub.Spec{Cwd: h.dir})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(h.dir, "socket"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	// Each attack writes its result to its own file. The last ones no longer have a parent
	// that belongs to the session, and nothing in their environment that names it. An attack
	// whose program is missing, or is not permitted, gets nothing.
	const get = `curl -s --unix-socket "$S" http://hub/v1/sessions`
	attacks := []string{
		`curl -s --unix-socket "$S" -H "Authorization: Bearer $(cat "$D"/* 2>/dev/null | tr -d "\n\r" | head -c 500)" http://hub/v1/sessions`,
		`bash -c '` + get + `'`,
		`env -i PATH="$PATH" S="$S" ` + get,
		`exec -a parley env -i PATH="$PATH" S="$S" ` + get,
		`nsenter -t 1 -a env -i PATH="$PATH" S="$S" ` + get,
		`nsenter -t $$ -m -p -U env -i PATH="$PATH" S="$S" ` + get,
		`unshare -Urpf env -i PATH="$PATH" S="$S" ` + get,
		`systemd-run --user --pipe --wait ` + get,
		`env -i PATH="$PATH" S="$S" setsid bash -c 'sleep 0.3; ` + get + `' < /dev/null &`,
		`env -i PATH="$PATH" S="$S" setsid -f setsid -f bash -c 'sleep 0.3; ` + get + `' < /dev/null`,
	}
	refused := map[int]bool{0: true, 1: true, 2: true, 3: true, 8: true, 9: true} // attacks that any system can run
	script := "D=" + h.dir + "\nexport S=$D/socket\n"
	for i, attack := range attacks {
		script += fmt.Sprintf("(%s) > out%d.new 2>/dev/null\n", attack, i)
	}
	// The only way to wait for the ones in the background is their output.
	script += "for i in $(seq 100); do [ -s out8.new ] && [ -s out9.new ] && break; sleep 0.1; done\nfor i in out*.new; do mv $i ${i%.new}; done\n"
	if err := os.WriteFile(filepath.Join(h.dir, "attack.sh"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.c.Prompt(ctx, id, wire.Prompt(wire.Text("bash attack.sh"))); err != nil {
		t.Fatal(err)
	}
	for e, err := range h.c.Attach(ctx, id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == hub.KindAsk {
			var ask hub.Ask
			json.Unmarshal(e.Data, &ask)
			if err := h.c.Answer(ctx, id, hub.Answer{Ask: ask.ID, Shown: ask.Hash, Response: json.RawMessage(`{"behavior":"allow"}`)}); err != nil {
				t.Fatal(err)
			}
		}
		if bytes.Contains(e.Data, []byte(`"type":"result"`)) {
			break
		}
	}
	for i := range attacks {
		got, err := os.ReadFile(filepath.Join(h.dir, fmt.Sprint("out", i)))
		if err != nil || strings.Contains(string(got), id) || refused[i] && !strings.Contains(string(got), "may not use the hub") {
			t.Errorf("%s\ngot %q, %v", attacks[i], got, err)
		}
	}
}
