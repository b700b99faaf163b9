package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/remote"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
)

// Agents are agents on other machines, which connect to the server by themselves: see
// [remote.Offer]. A session of such an agent is like any other; its prompts are queued while
// the agent is away. The zero value is ready to use.
//
// An Agents belongs to one hub and one server: see [Agents.Wrap] and [Config.Agents].
type Agents struct {
	mu   sync.Mutex
	all  map[string]*remoteAgent // by session
	left map[string]time.Time    // when the agent of a session was last connected, unless it is now
	bell chan struct{}           // closed when an agent arrives
}

// A remoteAgent is an agent that offers to run a session.
type remoteAgent struct {
	name   string // of its token
	stream string // of its link
	link   *remote.Link
	taken  bool
	away   func(since time.Time) // reports to viewers; nil unless it is taken
	conns  int                   // connections that serve the link; a broken one may end after its successor begins
	timer  *time.Timer           // ends the link, unless there is a connection
}

// awayTime is how long the connection of an agent may be down before the agent counts as
// gone. Then another agent may run the session, or the same one with a new link.
const awayTime = 5 * time.Minute

var (
	errAgentReplaced = errors.New("serve: the agent connected anew")
	errAgentAway     = errors.New("serve: the connection to the agent was down for too long")
	errAgentStream   = &problem{http.StatusGone, "gone", "the server does not know this connection any more"}
)

// Wrap returns a [hub.Config.Agent] that waits for the remote agent of a session that has
// one, and calls next for other sessions.
func (x *Agents) Wrap(next func(context.Context, hub.Start) (*parley.Options, error)) func(context.Context, hub.Start) (*parley.Options, error) {
	return func(ctx context.Context, start hub.Start) (*parley.Options, error) {
		var spec hub.Args
		if len(start.Spec) > 0 && json.Unmarshal(start.Spec, &spec) == nil && spec.Remote != "" {
			return x.options(ctx, start, spec.Remote)
		}
		return next(ctx, start)
	}
}

// options waits for the agent of a session and returns its options.
func (x *Agents) options(ctx context.Context, start hub.Start, name string) (*parley.Options, error) {
	link, err := x.claim(ctx, start.ID, name, func(since time.Time) { start.Away(name, since) })
	if err != nil {
		return nil, err
	}
	in := bufio.NewReader(link)
	ask := func(ctx context.Context, r remote.Request) error {
		line, err := json.Marshal(r)
		if err == nil {
			_, err = link.Write(append(line, '\n'))
		}
		return err
	}
	start.Records(func(ctx context.Context, id string) (records []json.RawMessage, err error) {
		defer context.AfterFunc(ctx, func() { link.End(context.Cause(ctx)) })()
		if err := ask(ctx, remote.Request{Records: id}); err != nil {
			return nil, err
		}
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("serve: the agent did not send its records: %w", err)
		}
		if err := json.Unmarshal(line, &records); err != nil {
			return nil, fmt.Errorf("serve: the agent sent malformed records: %w", err)
		}
		return records, nil
	})
	return &parley.Options{KeepSystemPrompt: true, Dialer: transport.DialerFunc(func(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
		return transport.NewConn(struct {
			io.Reader
			io.Closer
		}{in, link}, link), ask(ctx, remote.Request{Start: spec.Args()})
	})}, nil
}

// claim waits for an agent of a session and reserves it. An agent is used only once. away
// receives since when the agent is not connected, now and later.
func (x *Agents) claim(ctx context.Context, id, name string, away func(since time.Time)) (*remote.Link, error) {
	for {
		x.mu.Lock()
		a := x.all[id]
		if x.bell == nil {
			x.bell = make(chan struct{})
		}
		bell := x.bell
		if a != nil && a.name == name && !a.taken {
			a.taken, a.away = true, away
			away(x.left[id])
			x.mu.Unlock()
			return a.link, nil
		}
		away(x.leave(id))
		x.mu.Unlock()
		if a != nil {
			a.link.End(errAgentReplaced) // it will offer itself again
		}
		select {
		case <-bell:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// leave returns since when the agent of a session is away. The caller holds the lock.
func (x *Agents) leave(id string) time.Time {
	if x.left == nil {
		x.left = map[string]time.Time{}
	}
	if x.left[id].IsZero() {
		x.left[id] = time.Now().UTC().Truncate(time.Millisecond)
	}
	return x.left[id]
}

// add adds an agent, which replaces the previous one of the session.
func (x *Agents) add(id string, a *remoteAgent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.all == nil {
		x.all = map[string]*remoteAgent{}
	}
	if old := x.all[id]; old != nil {
		old.link.End(errAgentReplaced)
	}
	x.all[id] = a
	a.timer = time.AfterFunc(awayTime, func() { a.link.End(errAgentAway) })
	if x.bell != nil {
		close(x.bell)
		x.bell = nil
	}
}

// find returns the agent with a link id, or nil.
func (x *Agents) find(id, name, stream string) *remoteAgent {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.all[id]; a != nil && a.stream == stream && a.name == name && !over(a.link) {
		return a
	}
	return nil
}

func over(l *remote.Link) bool {
	select {
	case <-l.Done():
		return true
	default:
		return false
	}
}

// connect counts a connection of an agent.
func (x *Agents) connect(id string, a *remoteAgent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	a.conns++
	a.timer.Stop()
	if delete(x.left, id); a.away != nil {
		a.away(time.Time{})
	}
}

// disconnect counts the end of a connection. It removes an agent whose link has ended.
func (x *Agents) disconnect(id string, a *remoteAgent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	a.conns--
	if a.conns == 0 && x.all[id] == a {
		if since := x.leave(id); a.away != nil {
			a.away(since)
		}
	}
	switch {
	case over(a.link):
		a.timer.Stop()
		if x.all[id] == a {
			delete(x.all, id)
		}
	case a.conns == 0:
		a.timer.Reset(awayTime)
	}
}

// agentSocket serves the connection of an agent.
func agentSocket(c *call) {
	a, received, err := c.offered()
	if err != nil {
		c.s.fail(c.w, c.r, c.identity, err)
		return
	}
	id, fresh := c.r.Header.Get(remote.HeaderSession), a.timer == nil
	c.w.Header().Set(remote.HeaderStream, a.stream)
	c.w.Header().Set(remote.HeaderReceived, strconv.FormatUint(a.link.Received(), 10))
	if fresh { // before the agent knows its stream, with which it may connect again at once
		c.s.cfg.Agents.add(id, a)
	}
	c.s.cfg.Agents.connect(id, a)
	defer c.s.cfg.Agents.disconnect(id, a)
	conn, err := c.accept(remote.Subprotocol)
	if err != nil { // Accept has responded
		if fresh {
			a.link.End(err)
		}
		return
	}
	a.link.Serve(c.r.Context(), conn, received)
}

// offered returns the agent that a request offers or resumes, and how many bytes from the
// server it has received. It creates the session if there is none.
func (c *call) offered() (*remoteAgent, uint64, error) {
	h, ctx := c.r.Header, c.r.Context()
	id, stream := h.Get(remote.HeaderSession), h.Get(remote.HeaderStream)
	dir, err := url.PathUnescape(h.Get(remote.HeaderDir))
	switch {
	case h.Get("Sec-WebSocket-Key") == "" || !slices.Contains(h.Values("Sec-WebSocket-Protocol"), remote.Subprotocol):
		return nil, 0, &problem{http.StatusUpgradeRequired, "upgrade", "this is a WebSocket for agents: parley --sdk-url"}
	case !session.ValidID(id):
		return nil, 0, badRequest("%s is not the id of a session", remote.HeaderSession)
	case stream != "":
		received, err := strconv.ParseUint(h.Get(remote.HeaderReceived), 10, 64)
		if err != nil {
			return nil, 0, badRequest("%s is not a number", remote.HeaderReceived)
		}
		if a := c.s.cfg.Agents.find(id, c.Name, stream); a != nil {
			return a, received, nil
		}
		return nil, 0, errAgentStream
	case err != nil || dir == "" || len(dir) > 4096:
		return nil, 0, badRequest("%s is not a directory", remote.HeaderDir)
	}
	// The token of an agent allows only this.
	by := hub.Actor{Name: c.Name, From: c.From, Rights: hub.Everything}
	mine := hub.Args{Remote: c.Name}.Spec()
	spec, err := c.s.cfg.Hub.Session(id).Spec(ctx, by)
	if errors.Is(err, hub.ErrNotFound) {
		_, err = c.s.cfg.Hub.Create(ctx, by, hub.Spec{ID: id, Cwd: dir, Title: c.Name + ": " + filepath.Base(dir), Agent: mine})
		spec = mine
	}
	if err != nil {
		return nil, 0, err
	}
	if string(spec) != string(mine) {
		return nil, 0, &problem{http.StatusForbidden, "scope", "the session has another agent"}
	}
	return &remoteAgent{name: c.Name, stream: session.NewID(), link: remote.NewLink()}, 0, nil
}
