package parley_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest/peer"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	peer.RunIfChild()
	goleak.VerifyTestMain(m)
}

// An outcome is the result of a query.
type outcome struct {
	messages []wire.Message
	result   *wire.Result
	err      error
	took     time.Duration
}

// ask runs a query to its end. slow is how long the consumer pauses now and then.
func ask(ctx context.Context, opts *parley.Options, slow time.Duration) outcome {
	var o outcome
	start := time.Now()
	for m, err := range parley.Query(ctx, "do it", opts) {
		if o.add(m, err); err != nil {
			break
		}
		if slow > 0 && len(o.messages)%100 == 1 {
			testwait.Pause(slow)
		}
	}
	o.took = time.Since(start)
	return o
}

// count counts messages of one type.
func count[T wire.Message](o outcome) int {
	n := 0
	for _, m := range o.messages {
		if _, ok := m.(T); ok {
			n++
		}
	}
	return n
}

func wantExit(t *testing.T, o outcome, reason string) *parley.ExitError {
	t.Helper()
	var exit *parley.ExitError
	if !errors.As(o.err, &exit) {
		t.Fatalf("got error %v, want an *ExitError", o.err)
	}
	if !strings.Contains(exit.Error(), reason) {
		t.Errorf("the error does not say %q: %v", reason, exit)
	}
	return exit
}

func wantResult(t *testing.T, o outcome, text string) {
	t.Helper()
	if o.err != nil || o.result == nil || !strings.Contains(o.result.Result, text) {
		t.Fatalf("got result %+v, error %v; want %q", o.result, o.err, text)
	}
}

func allow(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
	return parley.Allow(), nil
}

// hello is the start of most scripts: the first request and its response.
const hello = `
< {"type":"control_request","request_id":"$init","request":{"subtype":"initialize"}}
> {"type":"control_response","response":{"subtype":"success","request_id":"$init","response":{}}}
`

// done is a successful result.
const done = `
> {"type":"result","subtype":"success","is_error":false,"result":"done"}
`

// plays returns options for a peer that follows the steps. The test fails if they are
// not followed.
func plays(t *testing.T, steps string) *parley.Options {
	t.Helper()
	script, err := peer.Parse(t.Name(), []byte("-- steps --\n"+steps))
	if err != nil {
		t.Fatal(err)
	}
	return &parley.Options{Dialer: &peer.Dialer{Script: script, Done: func(_ *peer.Report, err error) {
		if err != nil {
			t.Errorf("the agent was not met as it expects: %v", err)
		}
	}}}
}

// bubble runs a test in virtual time. It fails if a goroutine is left.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// connect connects and closes at the end of the test.
func connect(t *testing.T, opts *parley.Options) *parley.Client {
	t.Helper()
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

// turn runs a turn to its end.
func turn(t *testing.T, c *parley.Client, prompt string) outcome {
	t.Helper()
	var o outcome
	start := time.Now()
	for m, err := range c.Turn(t.Context(), prompt) {
		o.add(m, err)
	}
	o.took = time.Since(start)
	return o
}

func (o *outcome) add(m wire.Message, err error) {
	if err != nil {
		o.err = err
		return
	}
	o.messages = append(o.messages, m)
	if r, ok := m.(*wire.Result); ok {
		o.result = r
	}
}

// A collector collects warnings.
type collector struct {
	mu   sync.Mutex
	errs []error
}

func (w *collector) add(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, err)
}

func (w *collector) all() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]error(nil), w.errs...)
}

// An agentEnd is the agent's end of a connection, for tests that scripts cannot
// express.
type agentEnd struct {
	*transport.Peer
	t     *testing.T
	lines *bufio.Reader
}

// agent returns options for an agent that is a function. It exits with the function's
// return value.
func agent(t *testing.T, f func(a *agentEnd) int) *parley.Options {
	return &parley.Options{Dialer: transport.DialerFunc(func(context.Context, transport.Spec) (transport.Conn, error) {
		conn, far := transport.Pipe()
		go func() { far.Exit(f(&agentEnd{Peer: far, t: t, lines: bufio.NewReader(far)}), "") }()
		return conn, nil
	})}
}

// A received holds the members of a frame that tests check.
type received struct {
	Type      string          `json:"type"`
	RequestID string          `json:"request_id"`
	UUID      string          `json:"uuid"`
	Composed  bool            `json:"client_composed"`
	Message   json.RawMessage `json:"message"`
	Request   struct {
		Subtype string `json:"subtype"`
	} `json:"request"`
	Response struct {
		Subtype   string          `json:"subtype"`
		RequestID string          `json:"request_id"`
		Error     string          `json:"error"`
		Response  json.RawMessage `json:"response"`
	} `json:"response"`
	eof bool
}

// next returns the next frame; its eof is set at the end of the input.
func (a *agentEnd) next() received {
	line, err := a.lines.ReadBytes('\n')
	if err == io.EOF {
		return received{eof: true}
	}
	var m received
	if err != nil || json.Unmarshal(line, &m) != nil {
		a.t.Errorf("the agent got %q, %v", line, err)
		m.eof = true
	}
	return m
}

// wait returns the next frame of a type.
func (a *agentEnd) wait(typ string) received {
	for {
		if m := a.next(); m.eof || m.Type == typ {
			return m
		}
	}
}

// hello responds to initialize.
func (a *agentEnd) hello() {
	m := a.next()
	if m.Request.Subtype != "initialize" {
		a.t.Errorf("the first frame is %+v", m)
	}
	a.send(`{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":{}}}`, m.RequestID)
}

func (a *agentEnd) send(format string, args ...any) {
	line := fmt.Sprintf(format, args...) + "\n"
	if _, err := io.Copy(a.Peer, strings.NewReader(line)); err != nil {
		a.t.Logf("the agent's output is closed: %v", err)
	}
}

// done sends a result.
func (a *agentEnd) done() {
	a.send(`{"type":"result","subtype":"success","is_error":false,"result":"done"}`)
}

func text(s string) string {
	return fmt.Sprintf(`{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":%q}]}}`, s)
}
