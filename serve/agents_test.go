package serve

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/remote"
)

// A broken connection that ends after its successor began does not start the time after which
// an agent counts as gone.
func TestLateEndOfAConnectionKeepsTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x Agents
		a := &remoteAgent{name: "laptop", stream: "s", link: remote.NewLink()}
		x.add("id", a)
		x.connect("id", a) // breaks
		x.connect("id", a) // its successor
		x.disconnect("id", a)
		time.Sleep(2 * awayTime)
		if over(a.link) {
			t.Fatal("the agent counts as gone although it is connected")
		}
		x.disconnect("id", a)
		time.Sleep(awayTime / 2)
		if over(a.link) {
			t.Fatal("the agent counts as gone too early")
		}
		time.Sleep(awayTime)
		if !over(a.link) {
			t.Fatal("the agent never counts as gone")
		}
	})
}

// An agent may connect again as soon as it knows its stream.
func TestAgentConnectsAgainAtOnce(t *testing.T) {
	var x Agents
	h, err := hub.New(hub.Config{Backend: &hub.Memory{}, Agent: x.Wrap(nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	s, err := New(Config{Hub: h, Agents: &x})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, token, err := s.AddToken("laptop", ScopeAgent, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	defer func() { cancel(); <-ended }()
	dial := func(more http.Header) (*websocket.Conn, http.Header) {
		t.Helper()
		header := http.Header{"Authorization": {"Bearer " + token}, remote.HeaderSession: {"5d3a8f3e-7c52-4a4e-9d0f-2f1f0b7f6a11"}, remote.HeaderDir: {"/tmp"}}
		maps.Copy(header, more)
		conn, resp, err := websocket.Dial(t.Context(), "http://"+l.Addr().String()+"/v1/agent", &websocket.DialOptions{HTTPHeader: header, Subprotocols: []string{remote.Subprotocol}})
		if err != nil {
			t.Fatal(err)
		}
		return conn, resp.Header
	}
	for range 20 {
		first, got := dial(nil)
		first.CloseNow()
		second, _ := dial(http.Header{remote.HeaderStream: {got.Get(remote.HeaderStream)}, remote.HeaderReceived: {"0"}})
		second.CloseNow()
	}
}

// A stream is open for other requests before the client knows it.
func TestStreamIsOpenWhenItSaysSo(t *testing.T) {
	x := &editor{ctx: t.Context(), streams: map[string]*mailbox{}}
	stop := errors.New("stop")
	err := x.read(t.Context(), "s", 0, func() error {
		if x.box("s").readers != 1 {
			t.Error("nobody reads the stream yet")
		}
		return stop
	}, nil)
	if err != stop {
		t.Error(err)
	}
}
