package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// The tests of this file cancel queries and turns at random moments. Each cancel
// must reach the agent, and nothing may start once the agent has acknowledged it.

func TestCancelInProcess(t *testing.T) {
	model := cancelScenario().Model()
	cancelAtRandom(t, 50, 1000, func(dir string) *parley.Options {
		return &parley.Options{Cwd: dir, Dialer: agent.InProcess(agent.Config{Model: model, Store: &session.Memory{}})}
	})
}

func TestCancelParley(t *testing.T) {
	cli := parleyCLI(t)
	api := pt.NewAPI(t, cancelScenario(), nil)
	cancelAtRandom(t, 50, 1000, func(dir string) *parley.Options { return cancelCommand(cli, dir, api.URL) })
}

func TestCancelClaude(t *testing.T) {
	cli := peers(t).CLI()
	api := pt.NewAPI(t, cancelScenario(), nil)
	cancelAtRandom(t, 10, 200, func(dir string) *parley.Options { return cancelCommand(cli, dir, api.URL) })
}

func cancelCommand(cli, dir, url string) *parley.Options {
	return &parley.Options{
		Path: cli, Cwd: dir, Model: "claude-sonnet-4-5", SettingSources: []string{}, Dialer: &transport.Process{},
		Env: map[string]string{"HOME": filepath.Join(dir, "home"), "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": fakeKey},
	}
}

// cancelScenario returns a model that never ends by itself: it alternates between a
// command and a tool of the host.
func cancelScenario() *pt.Scenario {
	return pt.Script(
		pt.Say("I ", "run ", "it.").Drip(time.Millisecond).
			Call("Bash", map[string]any{"command": "echo x >> started", "description": "Counts"}).
			Call("mcp__host__step", map[string]any{}).Always(),
	)
}

// cancelAtRandom cancels many times: short times, or long times with PARLEY_TEST_LONG.
func cancelAtRandom(t *testing.T, short, long int, options func(dir string) *parley.Options) {
	runs := short
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		runs = long
	}
	seed := rand.Uint64()
	t.Logf("%d cancels, seed %d", runs, seed)
	var interrupted, unsent atomic.Int64
	defer func() {
		t.Logf("%d interrupted, %d cancelled before the prompt was sent", interrupted.Load(), unsent.Load())
	}()
	work := make(chan int)
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for i := range work {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				c := &cancelRun{rand: r, how: cancelWays[i%len(cancelWays)], after: r.IntN(60), dir: t.TempDir()}
				for _, problem := range c.run(t.Context(), options(c.dir)) {
					t.Errorf("run %d (%s, cancelled at line %d): %s\n%s", i, c.how.name, c.after, problem, c.frames())
				}
				if c.interrupts > 0 {
					interrupted.Add(1)
				} else if !c.prompted {
					unsent.Add(1)
				}
			}
		})
	}
	for i := range runs {
		if !t.Failed() {
			work <- i
		}
	}
	close(work)
	workers.Wait()
}

// cancelWays are the ways to use an agent under a context that ends.
var cancelWays = []struct {
	name string
	ask  func(ctx context.Context, o *parley.Options) error
}{
	{"Query", func(ctx context.Context, o *parley.Options) error {
		for _, err := range parley.Query(ctx, "go on", o) {
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{"Run", func(ctx context.Context, o *parley.Options) error {
		_, err := parley.Run(ctx, "go on", o)
		return err
	}},
	{"RunAs", func(ctx context.Context, o *parley.Options) error {
		_, _, err := parley.RunAs[struct{ N int }](ctx, "go on", o)
		return err
	}},
	{"QueryStream", func(ctx context.Context, o *parley.Options) error {
		prompts := func(yield func(*wire.User) bool) {
			for i := 0; i < 5 && yield(wire.Prompt(wire.Text(fmt.Sprint("go on ", i)))); i++ {
				runtime.Gosched()
			}
		}
		for _, err := range parley.QueryStream(ctx, prompts, o) {
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{"left loop", func(ctx context.Context, o *parley.Options) error {
		for _, err := range parley.Query(context.Background(), "go on", o) {
			if err != nil || ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
		}
		return nil
	}},
	{"Turn", func(ctx context.Context, o *parley.Options) error {
		c, err := parley.Connect(ctx, o)
		if err != nil {
			return err
		}
		defer c.Close()
		for _, err := range c.Turn(ctx, "go on") {
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{"Close", func(ctx context.Context, o *parley.Options) error {
		c, err := parley.Connect(ctx, o)
		if err != nil {
			return err
		}
		closed := make(chan struct{})
		context.AfterFunc(ctx, func() { defer close(closed); c.Close() })
		defer func() { <-closed }()
		for _, err := range c.Turn(context.Background(), "go on") {
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{"Send and Close", func(ctx context.Context, o *parley.Options) error {
		c, err := parley.Connect(ctx, o)
		if err != nil {
			return err
		}
		if err := c.Send(ctx, wire.Prompt(wire.Text("go on"))); err == nil {
			<-ctx.Done()
		}
		c.Close()
		return ctx.Err()
	}},
}

// A cancelRun is one conversation that is cancelled.
type cancelRun struct {
	rand *rand.Rand
	how  struct {
		name string
		ask  func(ctx context.Context, o *parley.Options) error
	}
	after int // lines, in either direction
	dir   string

	mu         sync.Mutex
	lines      []string
	cancel     context.CancelFunc
	prompted   bool
	interrupts int
	sent       map[string]bool // ids of interrupts
	acked      bool            // one of them was acknowledged
	startedAck int             // commands that had started by then
	returned   bool
	problems   []string
}

func (c *cancelRun) run(ctx context.Context, o *parley.Options) []string {
	ctx, c.cancel = context.WithCancel(ctx)
	defer c.cancel()
	c.sent = map[string]bool{}
	o.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
		c.called("CanUseTool")
		return parley.Allow(), nil
	}
	o.Hooks = []parley.Hook{parley.On("", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) {
		c.called("PreToolUse")
		return nil, nil
	})}
	o.Stderr = func(string) { c.called("Stderr") }
	o.OnWarning = func(error) { c.called("OnWarning") }
	o.ToolServers = map[string]*mcp.Server{"host": parley.ToolServer("host", parley.NewTool("step", "Steps.",
		func(context.Context, struct{}) (string, error) {
			c.called("step")
			return "stepped", nil
		}))}
	o.Dialer = c.tap(o.Dialer)
	if c.after == 0 {
		c.cancel()
	}
	err := c.how.ask(ctx, o)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.returned = true
	if err == nil {
		c.problem("it ended without an error")
	}
	if c.prompted && c.interrupts == 0 { // the model never ends a turn
		c.problem("no interrupt was sent; the error is %v", err)
	}
	if n := c.started(); c.acked && n > c.startedAck+1 {
		c.problem("%d commands had started when the interrupt was acknowledged, %d at the end", c.startedAck, n)
	}
	return c.problems
}

func (c *cancelRun) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

func (c *cancelRun) frames() string {
	var b bytes.Buffer
	for _, line := range c.lines {
		if len(line) > 300 {
			line = line[:300] + "…"
		}
		fmt.Fprintln(&b, line)
	}
	return b.String()
}

// called is called by every callback.
func (c *cancelRun) called(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.returned {
		panic(name + " was called after the end")
	}
}

// started returns how many commands have started.
func (c *cancelRun) started() int {
	text, _ := os.ReadFile(filepath.Join(c.dir, "started"))
	return bytes.Count(text, []byte("\n"))
}

// see processes one line.
func (c *cancelRun) see(dir byte, line []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, string(dir)+" "+string(line))
	if len(c.lines) == c.after {
		if c.rand.IntN(2) == 0 {
			c.cancel()
		} else { // a moment later
			n := c.rand.IntN(20000)
			go func() {
				for range n {
					runtime.Gosched()
				}
				c.cancel()
			}()
		}
	}
	var m struct {
		Type      string `json:"type"`
		RequestID string `json:"request_id"`
		Request   struct {
			Subtype    string `json:"subtype"`
			CallbackID string `json:"callback_id"`
			Message    struct {
				Method string `json:"method"`
			} `json:"message"`
		} `json:"request"`
		Response struct {
			RequestID string `json:"request_id"`
		} `json:"response"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		c.problem("%v: %s", err, line)
	}
	switch {
	case dir == '>' && m.Type == "user":
		if c.interrupts > 0 {
			c.problem("a prompt was sent after an interrupt")
		}
		c.prompted = true
	case dir == '>' && m.Request.Subtype == "interrupt":
		c.interrupts++
		c.sent[m.RequestID] = true
	case dir == '<' && m.Type == "control_response" && c.sent[m.Response.RequestID] && !c.acked:
		c.acked = true
		c.startedAck = c.started()
	case dir == '<' && m.Type == "control_request" && c.acked:
		switch {
		case m.Request.Subtype == "can_use_tool", m.Request.Message.Method == "tools/call",
			m.Request.Subtype == "hook_callback":
			c.problem("something starts after the interrupt was acknowledged: %s", line)
		}
	}
}

// tap returns a dialer that shows all lines to c.
func (c *cancelRun) tap(d transport.Dialer) transport.Dialer {
	return transport.DialerFunc(func(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
		conn, err := d.Dial(ctx, spec)
		if err != nil {
			return nil, err
		}
		return &tapConn{Conn: conn, in: lineTap{see: func(line []byte) { c.see('>', line) }}, out: lineTap{see: func(line []byte) { c.see('<', line) }}}, nil
	})
}

type tapConn struct {
	transport.Conn
	in, out lineTap
}

func (c *tapConn) Write(p []byte) (int, error) {
	c.in.write(p)
	return c.Conn.Write(p)
}

func (c *tapConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.out.write(p[:n])
	return n, err
}

// A lineTap splits bytes into lines.
type lineTap struct {
	rest []byte
	see  func(line []byte)
}

func (l *lineTap) write(p []byte) {
	l.rest = append(l.rest, p...)
	for {
		n, line, _ := bufio.ScanLines(l.rest, false)
		if n == 0 {
			return
		}
		l.see(line)
		l.rest = l.rest[n:]
	}
}
