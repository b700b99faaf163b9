package fleet

import (
	"bytes"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// A cutServer makes connections that break instead of delivering the first message with a text.
type cutServer struct {
	*server.Server
	text  []byte
	armed atomic.Bool
	cut   atomic.Bool
}

func (s *cutServer) InProcessConn() (net.Conn, error) {
	c, err := s.Server.InProcessConn()
	return &cutConn{Conn: c, s: s}, err
}

type cutConn struct {
	net.Conn
	s *cutServer
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.s.armed.Load() && bytes.Contains(p[:n], c.s.text) && c.s.cut.CompareAndSwap(false, true) {
		c.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// A change of the state counts once, even if the connection breaks before it is acknowledged.
func TestChangeWithoutAcknowledgementCountsOnce(t *testing.T) {
	t.Parallel()
	s, err := oneServer()
	if err != nil {
		t.Fatal(err)
	}
	cut := &cutServer{Server: s, text: []byte(`{"stream":"KV_cut-state"`)}
	nc, err := nats.Connect("", nats.InProcessServer(cut), nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b, err := Open(t.Context(), Config{Conn: nc, Name: "cut"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	cut.armed.Store(true)
	for range 3 {
		if err := b.spend(t.Context(), "acme", 1.5); err != nil {
			t.Fatal(err)
		}
	}
	if usd, err := b.Spent(t.Context(), "acme", time.Now()); err != nil || usd != 4.5 {
		t.Errorf("spent %v, %v; want 4.5", usd, err)
	}
	if !cut.cut.Load() {
		t.Error("no acknowledgement was lost")
	}
}

// A deleted entry can be stored again.
func TestDeletedStateIsStoredAgain(t *testing.T) {
	t.Parallel()
	b := place(t)()
	key := spentKey("acme", time.Now())
	if err := b.spend(t.Context(), "acme", 2); err != nil {
		t.Fatal(err)
	}
	if err := b.state.Purge(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if err := b.spend(t.Context(), "acme", 1); err != nil {
		t.Fatal(err)
	}
	if usd, err := b.Spent(t.Context(), "acme", time.Now()); err != nil || usd != 1 {
		t.Errorf("spent %v, %v; want 1", usd, err)
	}
}
