// Package socket lets the programs of one user on one machine share a hub, over a unix
// socket that only this user can open.
//
// It is a thin layer: requests are HTTP with JSON, events are lines of JSON, and every
// rule but one is the hub's. The layer rejects a process that descends from a session, so
// that a command that an agent runs cannot approve its own calls.
package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/internal/filelock"
	"github.com/parley-go/parley/wire"
)

// ErrRunning means that another process serves the socket: see [Listen].
var ErrRunning = errors.New("socket: a hub is running already")

// Listen creates the socket at path, and its directory if necessary. Only this user can
// access them. It replaces a socket that a process left behind when it died.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := acquireLock(lock, path); err != nil {
		lock.Close()
		return nil, err
	}
	os.Remove(path)
	// Nobody else can reach it in between: only this user can access the directory.
	name, dir, err := short(path)
	var l net.Listener
	if err == nil {
		l, err = net.Listen("unix", name)
	}
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		lock.Close()
		dir.Close()
		return nil, fmt.Errorf("socket: %w", err)
	}
	return &listener{l, lock, dir}, nil
}

// acquireLock acquires the lock of a socket. If a hub was just killed, a process that it was
// about to start may hold the lock for a moment.
func acquireLock(lock *os.File, path string) error {
	for until := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := filelock.Try(lock)
		if err == nil {
			return nil
		}
		if !errors.Is(err, filelock.ErrHeld) {
			return fmt.Errorf("socket: %w", err)
		}
		if answers(path) {
			return ErrRunning
		}
		if time.Now().After(until) {
			return ErrRunning
		}
	}
}

// answers reports whether a hub answers at a socket. A connection alone is not enough:
// the process that a dead hub was about to start may hold its socket.
func answers(path string) bool {
	c, err := Dial(context.Background(), path)
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(500 * time.Millisecond))
	if _, err := c.Write([]byte("GET /v1/sessions HTTP/1.0\r\n\r\n")); err != nil {
		return false
	}
	n, _ := c.Read(make([]byte, 1))
	return n == 1
}

// A listener holds the lock as long as it listens.
type listener struct {
	net.Listener
	lock *os.File
	dir  *os.File // the directory of a socket with a long path, otherwise nil
}

// Close implements [net.Listener].
func (l *listener) Close() error {
	err := errors.Join(l.Listener.Close(), l.lock.Close())
	l.dir.Close()
	return err
}

// Dial connects to the socket at path.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	name, dir, err := short(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return (&net.Dialer{}).DialContext(ctx, "unix", name)
}

// Serve serves a hub until ctx ends or a client calls [Client.Shutdown].
func Serve(ctx context.Context, h *hub.Hub, l net.Listener) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	s := &server{hub: h, hosts: map[string]*remoteHost{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/sessions", s.list)
	mux.HandleFunc("POST /v1/sessions", s.create)
	mux.HandleFunc("GET /v1/sessions/{id}/events", s.events)
	mux.HandleFunc("POST /v1/sessions/{id}/host", s.serveHost)
	mux.HandleFunc("POST /v1/hosts/{link}/leave", s.hostLeaves)
	mux.HandleFunc("POST /v1/hosts/{link}/{call}", s.hostAnswers)
	on := func(what string, f http.HandlerFunc) { mux.HandleFunc("POST /v1/sessions/{id}/"+what, f) }
	on("open", with(func(c hub.Client, r *http.Request, spec hub.Spec) (any, error) {
		spec.ID = r.PathValue("id")
		return struct{}{}, c.Open(r.Context(), spec)
	}, s))
	on("state", s.call(func(c hub.Client, r *http.Request, id string) (any, error) { return c.State(r.Context(), id) }))
	on("initialized", s.call(func(c hub.Client, r *http.Request, id string) (any, error) {
		return c.InitializeResponse(r.Context(), id)
	}))
	on("prompt", with(func(c hub.Client, r *http.Request, m wire.User) (any, error) {
		uuid, err := c.Prompt(r.Context(), r.PathValue("id"), &m)
		return Created{uuid}, err
	}, s))
	on("drop", with(func(c hub.Client, r *http.Request, uuid string) (any, error) {
		return c.Drop(r.Context(), r.PathValue("id"), uuid)
	}, s))
	on("answer", with(func(c hub.Client, r *http.Request, ans hub.Answer) (any, error) {
		return struct{}{}, c.Answer(r.Context(), r.PathValue("id"), ans)
	}, s))
	on("control", with(func(c hub.Client, r *http.Request, req json.RawMessage) (any, error) {
		return c.Control(r.Context(), r.PathValue("id"), req)
	}, s))
	on("rewind", with(func(c hub.Client, r *http.Request, uuid string) (any, error) {
		return struct{}{}, c.Rewind(r.Context(), r.PathValue("id"), uuid)
	}, s))
	on("rename", with(func(c hub.Client, r *http.Request, title string) (any, error) {
		return struct{}{}, c.Rename(r.Context(), r.PathValue("id"), title)
	}, s))
	on("stop", s.call(func(c hub.Client, r *http.Request, id string) (any, error) {
		return struct{}{}, c.Stop(r.Context(), id)
	}))
	on("remove", s.call(func(c hub.Client, r *http.Request, id string) (any, error) {
		return struct{}{}, c.Remove(r.Context(), id)
	}))
	on("delete", s.call(func(c hub.Client, r *http.Request, id string) (any, error) {
		return struct{}{}, c.Delete(r.Context(), id)
	}))
	on("merge_worktree", s.call(func(c hub.Client, r *http.Request, id string) (any, error) {
		return struct{}{}, c.MergeWorktree(r.Context(), id)
	}))
	on("remove_worktree", with(func(c hub.Client, r *http.Request, force bool) (any, error) {
		return struct{}{}, c.RemoveWorktree(r.Context(), r.PathValue("id"), force)
	}, s))
	mux.HandleFunc("POST /v1/shutdown", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, struct{}{}, nil)
		http.NewResponseController(w).Flush()
		end()
	})
	mux.HandleFunc("GET /v1/environment", func(w http.ResponseWriter, _ *http.Request) { reply(w, h.Environment(), nil) })
	mux.HandleFunc("GET /v1/worktrees", s.call(func(c hub.Client, r *http.Request, _ string) (any, error) { return c.Worktrees(r.Context()) }))
	mux.HandleFunc("GET /v1/schedules", s.call(func(c hub.Client, r *http.Request, _ string) (any, error) {
		return c.Schedules(r.Context(), r.URL.Query().Get("session"))
	}))
	mux.HandleFunc("POST /v1/schedules", with(func(c hub.Client, r *http.Request, x hub.Schedule) (any, error) {
		id, err := c.Schedule(r.Context(), x)
		return Created{id}, err
	}, s))
	mux.HandleFunc("POST /v1/unschedule", with(func(c hub.Client, r *http.Request, id string) (any, error) {
		return struct{}{}, c.Unschedule(r.Context(), id)
	}, s))
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { guard(w, r, mux) }),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, checkPeer(c))
		},
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
	}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	err := srv.Serve(l)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// peerKey is the context key of the result of checking the process at the other end.
type peerKey struct{}

// guard rejects processes that may not use the hub.
func guard(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if err, _ := r.Context().Value(peerKey{}).(error); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 64<<20)
	next.ServeHTTP(w, r)
}

type server struct {
	hub *hub.Hub

	mu    sync.Mutex
	hosts map[string]*remoteHost // by their links
}

// by returns the sender of a request: the user, who has all rights.
func by(r *http.Request) hub.Actor {
	name := r.Header.Get("Parley-Name")
	if name == "" {
		name = "user"
	}
	return hub.Actor{Name: name, From: "socket", Rights: hub.Everything}
}

func (s *server) session(r *http.Request) *hub.Session { return s.hub.Session(r.PathValue("id")) }

// reply writes a value, or an error with a matching status.
func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

// call returns a handler for requests about a session without a body.
func (s *server) call(f func(c hub.Client, r *http.Request, id string) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(s.hub.Client(by(r)), r, r.PathValue("id"))
		reply(w, v, err)
	}
}

// with returns a handler for requests with a body.
func with[T any](f func(c hub.Client, r *http.Request, body T) (any, error), s *server) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if body, ok := read[T](w, r); ok {
			v, err := f(s.hub.Client(by(r)), r, body)
			reply(w, v, err)
		}
	}
}

// read decodes the body of a request.
func read[T any](w http.ResponseWriter, r *http.Request) (v T, ok bool) {
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		http.Error(w, "the body cannot be read: "+err.Error(), http.StatusBadRequest)
		return v, false
	}
	return v, true
}

func (s *server) list(w http.ResponseWriter, r *http.Request) {
	all, err := s.hub.List(r.Context(), by(r))
	reply(w, all, err)
}

// A Created is the response to a request that creates something.
type Created struct {
	ID string `json:"id"`
}

func (s *server) create(w http.ResponseWriter, r *http.Request) {
	if spec, ok := read[hub.Spec](w, r); ok {
		id, err := s.hub.Client(by(r)).Create(r.Context(), spec)
		reply(w, Created{id}, err)
	}
}

// events sends entries and events, one per line, until the viewer leaves.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
	if err != nil && r.URL.Query().Get("after") != "" {
		reply(w, nil, fmt.Errorf("after is not a number: %w", err))
		return
	}
	out := http.NewResponseController(w)
	begun := false
	exists := true // the entry was there before the viewer: its state follows them
	var lines []byte
	for e, err := range s.session(r).Attach(r.Context(), by(r), after) {
		if err != nil {
			if !begun {
				reply(w, nil, err)
			} else if r.Context().Err() == nil {
				w.Write(lines)
				json.NewEncoder(w).Encode(failureOf(err))
			}
			return
		}
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		lines = append(e.AppendTo(lines), '\n')
		if exists = exists && e.Kind != hub.KindState; exists && len(lines) < 64<<10 {
			continue // send them together
		}
		// A viewer that does not read loses its connection, but not its position.
		out.SetWriteDeadline(time.Now().Add(time.Minute))
		_, err := w.Write(lines)
		if lines = lines[:0]; !exists && cap(lines) > 16<<10 {
			lines = nil // what follows is small, and may be hours away
		}
		if err != nil || out.Flush() != nil {
			return
		}
	}
}
