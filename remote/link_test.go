package remote_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/remote"
)

// linked returns the two ends of a link and a function that ends them. Its connections break
// after random numbers of bytes.
func linked(t *testing.T, seed uint64, cut *cutter) (here, there *remote.Link, broke func() int) {
	ctx, cancel := context.WithCancel(testwait.Context(t))
	here, there = remote.NewLink(), remote.NewLink()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseUint(r.Header.Get(remote.HeaderReceived), 10, 64)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set(remote.HeaderReceived, strconv.FormatUint(there.Received(), 10))
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		there.Serve(ctx, conn, n)
	}))
	random := rand.New(rand.NewPCG(seed, 1))
	broken := 0
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			conn, resp, err := websocket.Dial(ctx, server.URL, &websocket.DialOptions{HTTPHeader: http.Header{remote.HeaderReceived: {strconv.FormatUint(here.Received(), 10)}}})
			if err != nil {
				continue
			}
			n, _ := strconv.ParseUint(resp.Header.Get(remote.HeaderReceived), 10, 64)
			turn, end := context.WithCancel(ctx)
			cut.arm(random.Int64N(100_000), end)
			here.Serve(turn, conn, n)
			end()
			select {
			case <-here.Done():
				return
			default:
				broken++
			}
		}
	})
	return here, there, func() int {
		cancel()
		here.Close()
		there.Close()
		server.CloseClientConnections()
		server.Close()
		work.Wait()
		return broken
	}
}

// A cutter calls a function after a number of bytes was written to it, unless everything was
// written by then.
type cutter struct {
	mu          sync.Mutex
	until, rest int64
	end         func()
}

func (c *cutter) arm(n int64, end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until, c.end = n, end
}

func (c *cutter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest -= int64(len(p))
	if c.until -= int64(len(p)); c.until <= 0 && c.end != nil && c.rest > 0 {
		c.end()
		c.end = nil
	}
	return len(p), nil
}

// TestLinkLosesNothing checks that both directions of a link arrive complete and in order,
// however often its connections break, and that its end arrives after everything else.
func TestLinkLosesNothing(t *testing.T) {
	for seed := range uint64(2) {
		cut := &cutter{rest: 8 << 20}
		here, there, stop := linked(t, seed, cut)
		sums := make(chan [32]byte, 2)
		copyAll := func(from *remote.Link) {
			h := sha256.New()
			if _, err := io.CopyN(io.MultiWriter(h, cut), from, 4<<20); err != nil {
				t.Error(err)
			}
			sums <- [32]byte(h.Sum(nil))
		}
		data := make([]byte, 4<<20)
		rand.NewChaCha8([32]byte{byte(seed)}).Read(data)
		go copyAll(here)
		go copyAll(there)
		for _, to := range []*remote.Link{here, there} {
			go func() {
				for rest := data; len(rest) > 0; {
					n := min(len(rest), 10_000)
					if _, err := to.Write(rest[:n]); err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
				}
			}()
		}
		want := sha256.Sum256(data)
		for range 2 {
			if got := <-sums; got != want {
				t.Error("what arrived is something else")
			}
		}
		there.Write([]byte("the last line"))
		there.CloseWrite()
		if got, err := io.ReadAll(here); err != nil || string(got) != "the last line" {
			t.Errorf("the end: %q, %v", got, err)
		}
		if n := stop(); n < 3 {
			t.Errorf("%d connections broke, want more", n)
		}
	}
}

// TestHostileLinkPeers checks that a peer that counts wrongly, or sends something else, ends
// its connection.
func TestHostileLinkPeers(t *testing.T) {
	for name, message := range map[string][]byte{
		"a count above what was sent": {1, 0, 0, 0, 0, 0, 0, 1, 0},
		"a count of all bits":         {1, 255, 255, 255, 255, 255, 255, 255, 255},
		"a short count":               {1, 0},
		"an unknown tag":              {7, 1, 2, 3},
		"nothing":                     {},
		"a piece that is too large":   bytes.Repeat([]byte{0}, 100<<10),
	} {
		link := remote.NewLink()
		served := make(chan error, 1)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, err := websocket.Accept(w, r, nil)
			if err == nil {
				err = link.Serve(r.Context(), conn, 0)
			}
			served <- err
		}))
		conn, _, err := websocket.Dial(t.Context(), server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(t.Context(), websocket.MessageBinary, message)
		go conn.Read(context.WithoutCancel(t.Context()))
		if err := <-served; err == nil {
			t.Errorf("%s: the connection ended without an error", name)
		}
		select {
		case <-link.Done():
			t.Errorf("%s: the link is over", name)
		default:
		}
		// A connection that claims more than was sent ends the link: bytes would be missing.
		link.Close()
		conn.CloseNow()
		server.Close()
	}
	link := remote.NewLink()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, err := websocket.Accept(w, r, nil); err == nil {
			link.Serve(r.Context(), conn, 5)
		}
	}))
	defer server.Close()
	conn, _, err := websocket.Dial(t.Context(), server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if _, err := link.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a peer that has received more than was sent: %v", err)
	}
}
