package parley_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/wire"
)

// unread runs a turn of an agent that sends n messages and then asks for permission. It
// waits for the response with only one message read.
func unread(t *testing.T, n, size int, opts parley.Options, then func()) {
	t.Helper()
	opts.Dialer = agent(t, func(a *agentEnd) int {
		a.hello()
		a.wait("user")
		line := text(strings.Repeat("x", size))
		for range n {
			a.send("%s", line)
		}
		a.send(`{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"X","input":{}}}`)
		a.wait("control_response")
		a.done()
		a.wait("")
		return 0
	}).Dialer
	asked := make(chan struct{})
	opts.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
		close(asked)
		return parley.Allow(), nil
	}
	c := connect(t, &opts)
	read := 0
	for _, err := range c.Turn(t.Context(), "hi") {
		if err != nil {
			t.Fatal(err)
		}
		if read++; read == 1 {
			select {
			case <-asked:
			case <-testwait.Late(t):
				t.Fatal("the question waits for the loop")
			}
			if then != nil {
				then()
				return
			}
		}
	}
	if read != n+1 {
		t.Errorf("%d of %d messages came", read, n+1)
	}
}

func TestUnread(t *testing.T) {
	bubble(t, func(t *testing.T) { unread(t, 400, 100, parley.Options{}, nil) })
}

// TestUnreadSpills checks that up to 100 MB of unread messages are not held in memory,
// and leave no file.
func TestUnreadSpills(t *testing.T) {
	if runtime.GOOS != "windows" {
		t.Setenv("TMPDIR", t.TempDir())
	}
	const size = 64 << 10
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for bound, total := range map[int64]int{1 << 20: 100 << 20, 0: 40 << 20} { // 0 means 16 MiB
		before := heap()
		unread(t, total/size, size, parley.Options{MaxBuffered: bound}, func() {
			limit := max(bound, 16<<20*int64(b2i(bound == 0))) + 8<<20
			if held := heap() - before; held > limit {
				t.Errorf("%d MiB are held with a bound of %d MiB", held>>20, bound>>20)
			}
			if entries, err := os.ReadDir(os.TempDir()); runtime.GOOS != "windows" && (err != nil || len(entries) > 0) {
				t.Errorf("there are files with names: %v, %v", entries, err)
			}
		})
	}
}

// TestOverflowEndsTurn checks that a consumer that falls too far behind gets an error.
func TestOverflowEndsTurn(t *testing.T) {
	for name, bounds := range map[string][2]int64{"file": {64 << 10, 1 << 20}, "memory": {4 << 20, 1 << 20}} {
		t.Run(name, func(t *testing.T) {
			opts := agent(t, func(a *agentEnd) int {
				a.hello()
				a.wait("user")
				line := text(strings.Repeat("x", 10<<10))
				for a.Context().Err() == nil {
					a.send("%s", line)
				}
				return 0
			})
			opts.CloseTimeout = 100 * time.Millisecond
			opts.MaxBuffered, opts.MaxQueued = bounds[0], bounds[1]
			run := func(seq func(func(wire.Message, error) bool)) {
				t.Helper()
				var o outcome
				for m, err := range seq {
					o.add(m, err)
					if len(o.messages) == 1 && err == nil {
						testwait.Pause(300 * time.Millisecond)
					}
				}
				var overflow *parley.OverflowError
				if !errors.As(o.err, &overflow) || overflow.Limit != 1<<20 || len(o.messages) < 50 {
					t.Errorf("got %v after %d messages", o.err, len(o.messages))
				}
			}
			run(parley.Query(t.Context(), "hi", opts))
			c, err := parley.Connect(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			run(c.Turn(t.Context(), "hi"))
		})
	}
}

// TestUnreadWithoutTemporaryFiles checks that the error says so if no temporary file
// can be written, and does not blame the agent.
func TestUnreadWithoutTemporaryFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("TMPDIR means nothing here")
	}
	t.Setenv("TMPDIR", "/there/is/no/such/directory")
	over := make(chan struct{})
	opts := agent(t, func(a *agentEnd) int {
		defer close(over)
		a.hello()
		a.wait("user")
		for range 100 {
			a.send("%s", text(strings.Repeat("x", 1000)))
		}
		a.done()
		a.wait("")
		return 0
	})
	opts.MaxBuffered = 1 << 10
	var got error
	for _, err := range parley.Query(t.Context(), "hi", opts) {
		got = err
		<-over // nothing is read
	}
	var unwritable *parley.BufferError
	var exit *parley.ExitError
	if !errors.As(got, &unwritable) || errors.As(got, &exit) || !strings.Contains(got.Error(), "TMPDIR") {
		t.Errorf("got %v, want a *BufferError", got)
	}
}
