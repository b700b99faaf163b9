package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A funcTool is a tool that is a function.
type funcTool struct {
	name     string
	readOnly bool
	run      func(ctx context.Context, call *tool.Call) (*tool.Result, error)
}

func (f *funcTool) Spec() *tool.Spec {
	return &tool.Spec{Name: f.name, Description: "Does " + f.name + ".", Schema: json.RawMessage(`{"type":"object"}`), ReadOnly: f.readOnly}
}

func (f *funcTool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

func (f *funcTool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	return f.run(ctx, call)
}

func withTools(tools ...tool.Tool) func(*parley.Options, *agent.Config) {
	return func(o *parley.Options, cfg *agent.Config) {
		cfg.Tools = tools
		o.PermissionMode, o.AllowBypass = wire.ModeBypassPermissions, true
	}
}

// TestToolsThatMisbehave checks that whatever a tool does, its turn continues and the
// others run.
func TestToolsThatMisbehave(t *testing.T) {
	for name, f := range map[string]func(context.Context, *tool.Call) (*tool.Result, error){
		"panics": func(context.Context, *tool.Call) (*tool.Result, error) { panic("oops") },
		"panics in the runtime": func(context.Context, *tool.Call) (*tool.Result, error) {
			var none []int
			return nil, errors.New(string(rune(none[len(none)])))
		},
		"exits": func(context.Context, *tool.Call) (*tool.Result, error) { runtime.Goexit(); return nil, nil },
	} {
		for _, readOnly := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, read-only %v", name, readOnly), func(t *testing.T) {
				good := &funcTool{"Good", readOnly, func(context.Context, *tool.Call) (*tool.Result, error) { return tool.Text("fine", nil), nil }}
				p := prompt(t, parleytest.Script(
					parleytest.Call("Good", `{}`).Call("Bad", `{}`).Call("Good", `{}`),
					parleytest.Expect(parleytest.ToolError("unexpected way"), parleytest.ToolResult("fine")).Say("ok"),
				), withTools(good, &funcTool{"Bad", readOnly, f}))
				if p.r.Result != "ok" || outcomes(p) != "ran failed ran" {
					t.Errorf("%s, result %+v", outcomes(p), p.r)
				}
			})
		}
	}
	t.Run("returns nothing", func(t *testing.T) {
		prompt(t, parleytest.Script(parleytest.Call("Bad", `{}`), parleytest.Say("ok")),
			withTools(&funcTool{"Bad", false, func(context.Context, *tool.Call) (*tool.Result, error) { return nil, nil }}))
	})
}

// TestToolIgnoresItsContext checks that an interrupt and the end of the input do not
// wait for a tool that does not stop.
func TestToolIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		deaf := &funcTool{"Deaf", false, func(context.Context, *tool.Call) (*tool.Result, error) { <-stop; return tool.Text("late", nil), nil }}
		m := parleytest.Script(parleytest.Call("Deaf", `{}`), parleytest.Expect(parleytest.ToolError("stopped")).Say("ok")).Model()
		m.Strict = true
		a := start(t, agent.Config{Model: m, Tools: []tool.Tool{deaf}, Cwd: t.TempDir(), Environ: []string{"IS_SANDBOX=1"}}, append(streaming[:5:5], "--dangerously-skip-permissions"))
		lines := wire.NewReader(a.stdout, nil)
		next := func(want string) wire.Message {
			t.Helper()
			for {
				m, err := lines.Next()
				if err != nil {
					t.Fatal(want, err)
				}
				if typ, _ := wire.TypeOf(m); typ == want {
					return m
				}
			}
		}
		io.WriteString(a.stdin, `{"type":"user","message":{"role":"user","content":"hi"}}`+"\n")
		next("assistant")
		time.Sleep(time.Second)
		began := time.Now()
		io.WriteString(a.stdin, `{"type":"control_request","request_id":"i","request":{"subtype":"interrupt"}}`+"\n")
		next("control_response")
		if d := time.Since(began); d > 0 {
			t.Errorf("the receipt took %v", d)
		}
		// Control requests are served while the tool has time to stop.
		io.WriteString(a.stdin, `{"type":"control_request","request_id":"j","request":{"subtype":"get_session_cost"}}`+"\n")
		next("control_response")
		if d := time.Since(began); d > 0 {
			t.Errorf("an answer took %v", d)
		}
		if r := next("result").(*wire.Result); r.TerminalReason != "aborted_tools" || time.Since(began) > 6*time.Second {
			t.Errorf("%+v after %v", r, time.Since(began))
		}
		io.WriteString(a.stdin, `{"type":"user","message":{"role":"user","content":"again"}}`+"\n")
		if r := next("result").(*wire.Result); r.Result != "ok" {
			t.Errorf("%+v", r)
		}
		a.stdin.Close()
		if code := a.wait(); code != 0 {
			t.Errorf("exit status %d", code)
		}
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("it took %v in all", d)
		}
		close(stop)
	})
}

// A deafModel ignores the end of its context.
type deafModel struct{ stop chan struct{} }

func (d deafModel) Stream(context.Context, model.Request) iter.Seq2[model.Event, error] {
	return func(func(model.Event, error) bool) { <-d.stop }
}

func TestModelIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deafModel{make(chan struct{})}
		opts := &parley.Options{Cwd: t.TempDir(), Dialer: agent.InProcess(agent.Config{Model: d})}
		c, err := parley.Connect(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Second)
			c.Interrupt(t.Context())
		}()
		began := time.Now()
		if r, _ := run(t, c, "hi"); r == nil || time.Since(began) > 10*time.Second {
			t.Errorf("%+v after %v", r, time.Since(began))
		}
		c.Close()
		close(d.stop)
	})
}

// TestHostStopsReading checks that the agent ends with its host.
func TestHostStopsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := parleytest.Script(parleytest.Say(strings.Repeat("many words ", 1000)).Chunks(4096).Always()).Model()
		a := start(t, agent.Config{Model: m, Cwd: t.TempDir()}, streaming)
		for range 100 {
			io.WriteString(a.stdin, `{"type":"user","message":{"role":"user","content":"hi"}}`+"\n")
		}
		time.Sleep(time.Minute)
		began := time.Now()
		a.cancel(&cli.SignalError{Name: "SIGTERM", Status: 143})
		if code := a.wait(); code != 143 || time.Since(began) > 5*time.Second {
			t.Errorf("exit status %d after %v", code, time.Since(began))
		}
	})
}

// TestRounds plays 500 rounds with a tool. Memory grows only by the size of the
// conversation.
func TestRounds(t *testing.T) {
	rounds := 500
	if raceEnabled {
		rounds = 150
	}
	var at100, at500 uint64
	n := 0
	measure := &funcTool{"Measure", false, func(context.Context, *tool.Call) (*tool.Result, error) {
		if n++; n == 100 {
			at100 = heap()
		} else if n == rounds {
			at500 = heap()
		}
		return tool.Text(strings.Repeat("x", 100), nil), nil
	}}
	m := parleytest.Script(parleytest.Call("Measure", `{}`).Times(rounds), parleytest.Say("ok")).Model()
	opts := &parley.Options{Cwd: t.TempDir(), PermissionMode: wire.ModeBypassPermissions, AllowBypass: true,
		Dialer: agent.InProcess(agent.Config{Model: m, Tools: []tool.Tool{measure}})}
	var r *wire.Result
	for m, err := range parley.Query(t.Context(), "hi", opts) {
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := m.(*wire.Result); ok {
			r = m
		}
	}
	if r == nil || r.NumTurns != rounds+1 {
		t.Fatalf("%+v", r)
	}
	grown := (int64(at500) - int64(at100)) / int64(rounds-100)
	t.Logf("%d rounds; the heap grows by %d bytes a round", rounds, grown)
	if grown > 4<<10 {
		t.Errorf("the heap grows by %d bytes a round", grown)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// TestManySessions runs many conversations at once in this process and measures the
// memory of an idle one.
func TestManySessions(t *testing.T) {
	sessions := 1000
	if testing.Short() || raceEnabled {
		sessions = 150
	}
	dir := t.TempDir()
	m := parleytest.Script(parleytest.Say("ok").Always()).Model()
	store := &session.Memory{}
	cfg := agent.Config{Model: m, Store: store}
	dialer := agent.InProcess(cfg)
	before, routines := memory(), runtime.NumGoroutine()
	clients := make([]*parley.Client, sessions)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range clients {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			c, err := parley.Connect(t.Context(), &parley.Options{Cwd: dir, Dialer: dialer})
			if err != nil {
				t.Error(err)
				return
			}
			clients[i] = c
			if r, err := run(t, c, fmt.Sprint("prompt ", i)); err != nil || r.Result != "ok" {
				t.Error(err, r)
			}
		})
	}
	wg.Wait()
	each := (memory() - before) / uint64(sessions)
	t.Logf("%d sessions with a turn each; idle, one has %d KB (heap and stacks, both ends) and %.1f goroutines",
		sessions, each>>10, float64(runtime.NumGoroutine()-routines)/float64(sessions))
	if each > 200<<10 && !raceEnabled {
		t.Errorf("an idle session has %d KB", each>>10)
	}
	ids := map[string]bool{}
	for _, c := range clients {
		if c == nil {
			continue
		}
		ids[c.LastInit().SessionID] = true
		wg.Go(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(ids) != sessions {
		t.Errorf("%d different sessions of %d", len(ids), sessions)
	}
}

// memory returns the memory in use, stacks included.
func memory() uint64 {
	h := heap()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return h + s.StackInuse
}

// TestKeepAlive counts the keep-alive messages.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := parleytest.Script(parleytest.Pause(95 * time.Second).Say("ok")).Model()
		a := start(t, agent.Config{Model: m, Cwd: t.TempDir()}, streaming)
		go func() {
			time.Sleep(65 * time.Second)
			io.WriteString(a.stdin, `{"type":"user","message":{"role":"user","content":"hi"}}`+"\n")
			a.stdin.Close()
		}()
		var beats []string
		began := time.Now()
		lines := wire.NewReader(a.stdout, nil)
		for m, err := lines.Next(); err == nil; m, err = lines.Next() {
			if _, ok := m.(*wire.KeepAlive); ok {
				beats = append(beats, time.Since(began).String())
			}
		}
		if got := strings.Join(beats, " "); got != "30s 1m0s 1m35s 2m5s 2m35s" {
			t.Errorf("beats at %s", got)
		}
		a.wait()
	})
}
