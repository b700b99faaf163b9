package sessiontest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/parley-go/parley/session"
)

// Takeover tests what happens to the lease of a writer that cannot be reached, because
// it is dead or disconnected: another one gets the session within a time limit, and
// later writes of the first one fail and leave nothing. The writer reaches the server
// at address through a proxy that the test cuts. open opens a store at an address,
// always with the same sessions, with a lease that lasts no longer than within/2.
func Takeover(t *testing.T, address string, within time.Duration, open func(t *testing.T, address string) session.Store) {
	link := newProxy(t, address)
	cut, whole := open(t, link.address), open(t, address)
	ctx := t.Context()
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	first, err := cut.Lease(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	a, b, c := record(1), record(2), record(3)
	if err := first.Append(ctx, "", []json.RawMessage{a}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(within * 3 / 4) // longer than the lease: a living holder keeps it
	if l, err := whole.Lease(ctx, key); !errors.Is(err, session.ErrLocked) {
		if err == nil {
			l.Close()
		}
		t.Fatalf("the lease of a writer that lives: %v, want ErrLocked", err)
	}
	link.cut()
	begin := time.Now()
	var second session.Lease
	for {
		if second, err = whole.Lease(ctx, key); err == nil {
			break
		}
		if !errors.Is(err, session.ErrLocked) || time.Since(begin) > within {
			t.Fatalf("the lease of a writer that is gone for %v: %v", time.Since(begin), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := second.Append(ctx, "", []json.RawMessage{b}); err != nil {
		t.Fatal(err)
	}
	link.restore()
	late := func(when, sub string) {
		t.Helper()
		// The first calls may still use connections that were cut.
		for until := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			call, cancel := context.WithTimeout(ctx, 5*time.Second)
			err := first.Append(call, sub, []json.RawMessage{c})
			cancel()
			if errors.Is(err, session.ErrLeaseLost) {
				return
			}
			if err == nil || time.Now().After(until) {
				t.Errorf("a late append %s: %v, want ErrLeaseLost", when, err)
				return
			}
		}
	}
	late("while another one writes", "")
	late("to a part that is not there", "subagents/agent-1")
	if err := errors.Join(first.Close(), second.Append(ctx, "", nil)); err != nil {
		t.Errorf("Close of a lease that was lost: %v", err)
	}
	if l, err := whole.Lease(ctx, key); !errors.Is(err, session.ErrLocked) {
		if err == nil {
			l.Close()
		}
		t.Errorf("after the late one was closed: %v, want ErrLocked", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	holds(t, whole, key, a, b)
	key.Sub = "subagents/agent-1"
	holds(t, whole, key)
}

// A proxy is a connection to a server that can be cut.
type proxy struct {
	address string
	mu      sync.Mutex
	dead    bool
	conns   map[net.Conn]bool
}

func newProxy(t *testing.T, server string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{address: l.Addr().String(), conns: map[net.Conn]bool{}}
	t.Cleanup(func() { l.Close(); p.cut() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", server)
			if err != nil || !p.add(in, out) {
				in.Close()
				if err == nil {
					out.Close()
				}
				continue
			}
			go func() { io.Copy(out, in); out.Close() }()
			go func() { io.Copy(in, out); in.Close() }()
		}
	}()
	return p
}

func (p *proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	return !p.dead
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

func (p *proxy) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = false
}
