package acp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/acp/internal/v1"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/session"
)

// A Config configures a connection.
type Config struct {
	// Hub runs the sessions, on behalf of the user of the client. It is required. The agents of
	// sessions get [hub.Args] as [hub.Spec.Agent].
	Hub hub.Client
	// Args are flags of the agent, for every session that is opened.
	Args []string
	// Sessions stores the agents' records, for session/list. If it is nil, the sessions of
	// the hub are listed.
	Sessions session.Store
	// Name and Version describe the agent, for initialize.
	Name, Version string
	// Unsaved lets the agent read and change files as they are in the editor of the client, which may not
	// have saved them, if the client has the methods fs/read_text_file and fs/write_text_file. Rules apply
	// as for files on disk, but the editor opens these files itself.
	Unsaved bool
	// Login are additional arguments for this program that let a person log in at a terminal. If
	// empty, clients are not offered this login.
	Login []string
	// Auth returns an error if the agent lacks a required key. Nil means that it has one.
	Auth func() error
	// Opened is called when a session has been opened, after the response. It may be nil, must not
	// block, and is called from several goroutines.
	Opened func()
	// Idle is called when a prompt has ended and no other one is running, after the response. It may
	// be nil, must not block for long, and is called from several goroutines.
	Idle func()
	// Log receives every line of the connection: "in" from the client, "out" to it. It may be nil.
	Log func(dir string, line []byte)
}

// Serve serves one client over a stream in both directions, until the input ends, the
// stream breaks or ctx ends. Sessions and their agents stay in the hub. If w is an
// [io.Closer], Serve closes it at the end.
func Serve(ctx context.Context, cfg Config, r io.Reader, w io.Writer) error {
	if cfg.Hub == nil {
		return errors.New("acp: Config.Hub is required")
	}
	if cfg.Name == "" {
		cfg.Name = "parley"
	}
	s := &server{cfg: cfg, sessions: map[string]*editing{}, notified: make(chan struct{}, maxNotified)}
	s.conn = newConn(ctx, w, s.handle)
	s.conn.log = cfg.Log
	// A reader cannot be woken, so the end of ctx closes the stream.
	stopped := context.AfterFunc(ctx, func() {
		if c, ok := r.(io.Closer); ok {
			c.Close()
		}
	})
	err := s.conn.read(r)
	stopped()
	if c, ok := w.(io.Closer); ok {
		c.Close() // writers may be blocked on a client that is gone
	}
	s.conn.work.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// A client describes the program at the other end.
type client struct {
	version    int // of the protocol
	notices    bool
	compaction bool
	forms      bool // elicitation with forms
	urls       bool // elicitation with pages
	terminals  bool // streams the output of commands
	files      bool // reads and writes files that may not be saved
	logins     bool // runs the agent in a terminal, so that a person can log in
}

// A server is one connection with an editor. The connection's reader calls handle; every session
// has its own goroutine, which writes everything that belongs to it.
type server struct {
	cfg      Config
	conn     *conn
	notified chan struct{} // holds a token for each notification that is being processed

	mu       sync.Mutex
	client   *client // nil before initialize
	sessions map[string]*editing
}

// A method serves one kind of request, or of notification if notified is set. If inOrder is set, the
// reader calls serve before it continues, so serve must not block. Otherwise serve runs in its own
// goroutine.
type method struct {
	inOrder, notified bool
	serve             func(*server, *request)
}

// maxNotified is how many notifications are processed at a time. A notification has no response, so
// a client does not notice that there are too many; those are dropped.
const maxNotified = 256

// beside returns a method that runs concurrently with others.
func beside[P any](f func(*server, *request, *P) (any, error)) method {
	return method{serve: func(s *server, r *request) {
		p := new(P)
		if err := r.decode(p); err != nil {
			r.respond(nil, err)
			return
		}
		result, err := f(s, r, p)
		if errors.Is(context.Cause(r.ctx), errCancelled) {
			result, err = nil, errorf(CodeCancelled, "the request was cancelled")
		}
		if result != later || err != nil {
			r.respond(result, rpcError(err))
		}
	}}
}

// later is the result of a method that responds by itself.
var later = new(struct{ _ int })

// empty is a result without members.
type empty struct{}

// methods has a row for each method of version 1.
var methods = map[string]method{
	"initialize":                {inOrder: true, serve: (*server).initialize},
	"authenticate":              beside((*server).authenticate),
	"logout":                    beside((*server).logout),
	"session/new":               beside((*server).newSession),
	"session/load":              beside((*server).loadSession),
	"session/resume":            beside((*server).resumeSession),
	"session/fork":              beside((*server).forkSession),
	"session/list":              beside((*server).listSessions),
	"session/delete":            beside((*server).deleteSession),
	"session/close":             beside((*server).closeSession),
	"session/prompt":            {inOrder: true, serve: (*server).prompt},
	"session/cancel":            {inOrder: true, notified: true, serve: (*server).cancel},
	"session/set_mode":          beside((*server).setMode),
	"session/set_config_option": beside((*server).setOption),
	"mcp/message":               {notified: true, serve: beside((*server).serverNotified).serve}, // unstable
	"_session/steering":         beside((*server).steer),
}

// handle is called by the reader with each request and notification.
func (s *server) handle(r *request) {
	if d := s.conn.draft.Load(); d != nil {
		if err := d.incoming(r); err != nil {
			s.respondBeside(r, err)
			return
		}
	}
	m, ok := methods[r.method]
	switch {
	case !ok:
		s.respondBeside(r, errorf(CodeMethodNotFound, "there is no method %s", r.method))
	case r.method != "initialize" && s.initializedClient() == nil:
		s.respondBeside(r, errorf(CodeInvalidRequest, "%s: the first request must be initialize", r.method))
	case m.notified && r.id != nil:
		s.respondBeside(r, errorf(CodeInvalidRequest, "%s is a notification, so it has no id", r.method))
	case !m.notified && r.id == nil:
		// Nobody waits for a response, so nobody would know what it did.
	case m.inOrder:
		m.serve(s, r)
	case m.notified:
		select {
		case s.notified <- struct{}{}:
			s.conn.work.Go(func() {
				m.serve(s, r)
				<-s.notified
			})
		default:
		}
	default:
		s.conn.work.Go(func() { m.serve(s, r) })
	}
}

// respondBeside responds without blocking the reader.
func (s *server) respondBeside(r *request, err error) {
	if r.id != nil {
		s.conn.work.Go(func() { r.respond(nil, err) })
	}
}

func (s *server) initializedClient() *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

// rpcError returns err with the code that clients expect.
func rpcError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, hub.ErrNotFound), errors.Is(err, session.ErrNotFound):
		return errorf(CodeNotFound, "there is no such session")
	case errors.Is(err, hub.ErrLocked):
		return errorf(CodeInternal, "another process runs the session: close it there first")
	}
	return err
}

// anyVersion is a protocol version, which some clients send as a string.
type anyVersion int

func (v *anyVersion) UnmarshalJSON(data []byte) error {
	n, err := strconv.ParseUint(strings.Trim(string(data), `"`), 10, 16)
	*v = anyVersion(n)
	if err != nil {
		return errors.New("protocolVersion must be a number")
	}
	return nil
}

// decodeCapabilities decodes the capabilities of a client, which may be missing.
func decodeCapabilities[C any](data json.RawMessage) (*C, error) {
	c := new(C)
	if len(data) > 0 && json.Unmarshal(data, c) != nil {
		return nil, errorf(CodeInvalidParams, "initialize: the capabilities have members of the wrong types")
	}
	return c, nil
}

func (s *server) initialize(r *request) {
	var p struct {
		ProtocolVersion    *anyVersion     `json:"protocolVersion"`
		ClientCapabilities json.RawMessage `json:"clientCapabilities"`
		Capabilities       json.RawMessage `json:"capabilities"` // of version 2
	}
	err := r.decode(&p)
	if err == nil && p.ProtocolVersion == nil {
		err = errorf(CodeInvalidParams, "initialize: protocolVersion is missing")
	}
	var c *v1.ClientCapabilities
	if err == nil {
		if *p.ProtocolVersion >= 2 {
			c, err = draftCapabilities(p.Capabilities)
		} else {
			c, err = decodeCapabilities[v1.ClientCapabilities](p.ClientCapabilities)
		}
	}
	s.mu.Lock()
	if err == nil && len(s.sessions) > 0 {
		err = errorf(CodeInvalidRequest, "initialize: the connection has sessions already")
	}
	if err == nil {
		s.client = &client{version: 1}
		if *p.ProtocolVersion >= 2 {
			s.client = &client{version: 2, notices: true, compaction: true}
		}
		if c.Session != nil {
			s.client.notices, s.client.compaction = c.Session.Notices != nil, c.Session.Compaction != nil
		}
		if c.Elicitation != nil {
			s.client.forms, s.client.urls = c.Elicitation.Form != nil, c.Elicitation.URL != nil
		}
		var meta struct {
			TerminalOutput bool `json:"terminal_output"`
		}
		json.Unmarshal(c.Meta, &meta)
		s.client.files = c.Fs != nil && c.Fs.ReadTextFile && c.Fs.WriteTextFile
		s.client.logins = c.Auth != nil && c.Auth.Terminal
		s.client.terminals = meta.TerminalOutput && s.client.version == 1 // version 2 has its own terminals
	}
	s.mu.Unlock()
	if err != nil {
		s.respondBeside(r, err)
		return
	}
	if s.initializedClient().version == 2 {
		s.conn.draft.Store(newDraft())
		s.conn.work.Go(func() { r.respond(s.initializeDraft(), nil) })
		return
	}
	s.conn.draft.Store(nil)
	result := &v1.InitializeResponse{
		ProtocolVersion: 1,
		AgentInfo:       &v1.Implementation{Name: s.cfg.Name, Title: "Parley", Version: firstOf(s.cfg.Version, "0")},
		AgentCapabilities: &v1.AgentCapabilities{
			LoadSession:        true,
			PromptCapabilities: &v1.PromptCapabilities{Image: true, EmbeddedContext: true},
			McpCapabilities:    &v1.McpCapabilities{Http: true, Sse: true, Acp: true},
			SessionCapabilities: &v1.SessionCapabilities{List: &v1.SessionListCapabilities{}, Delete: &v1.SessionDeleteCapabilities{}, Resume: &v1.SessionResumeCapabilities{},
				Close: &v1.SessionCloseCapabilities{}, Fork: &v1.SessionForkCapabilities{}, AdditionalDirectories: &v1.SessionAdditionalDirectoriesCapabilities{}},
			Auth: &v1.AgentAuthCapabilities{Logout: &v1.LogoutCapabilities{}},
		},
		AuthMethods: s.authMethods(),
		Meta:        json.RawMessage(`{"steering":{"supported":true}}`),
	}
	s.conn.work.Go(func() { r.respond(result, nil) })
}

// authMethods lists the ways to get a key: a client can try again, and one that has terminals can run
// the agent with other arguments in one, if Config.Login is set.
func (s *server) authMethods() []v1.AuthMethod {
	list := []v1.AuthMethod{{AuthMethodAgent: &v1.AuthMethodAgent{ID: "api-key", Name: "API key",
		Description: "Set ANTHROPIC_API_KEY, or the variables of another provider, in the environment of the agent."}}}
	if c := s.initializedClient(); c != nil && c.logins && len(s.cfg.Login) > 0 {
		list = append(list, v1.AuthMethod{Terminal: &v1.AuthMethodTerminal{ID: "login", Name: "Enter an API key",
			Description: "Stores an API key for this user.", Args: s.cfg.Login}})
	}
	return list
}

func (s *server) authenticate(_ *request, p *v1.AuthenticateRequest) (any, error) {
	if !slices.ContainsFunc(s.authMethods(), func(m v1.AuthMethod) bool {
		return m.AuthMethodAgent != nil && m.AuthMethodAgent.ID == p.MethodID || m.Terminal != nil && m.Terminal.ID == p.MethodID
	}) {
		return nil, errorf(CodeInvalidParams, "authenticate: there is no method %q", p.MethodID)
	}
	return empty{}, s.authorized()
}

// logout does nothing: a key is part of the environment.
func (s *server) logout(*request, *v1.LogoutRequest) (any, error) { return empty{}, nil }

// authorized returns an error if the agent has no key.
func (s *server) authorized() error {
	if s.cfg.Auth == nil {
		return nil
	}
	if err := s.cfg.Auth(); err != nil {
		return &Error{Code: CodeAuthRequired, Message: err.Error(), Data: mustJSON(map[string]any{"authMethods": s.authMethods()})}
	}
	return nil
}

func (s *server) newSession(r *request, p *v1.NewSessionRequest) (any, error) {
	x, err := s.newSetup(p.Cwd, p.AdditionalDirectories, p.McpServers, p.Meta)
	if err != nil {
		return nil, err
	}
	id, err := s.cfg.Hub.Create(r.ctx, hub.Spec{Cwd: filepath.Clean(p.Cwd), Agent: x.spec()})
	if err != nil {
		return nil, err
	}
	return s.openNew(r, id, x, opened{respond: func(e *editing) any {
		return &v1.NewSessionResponse{SessionID: id, Modes: e.modes(), ConfigOptions: e.options()}
	}})
}

// openNew opens a session that was just created, and deletes it if that fails.
func (s *server) openNew(r *request, id string, x *setup, how opened) (any, error) {
	result, err := s.open(r, id, x, how)
	if err != nil {
		s.cfg.Hub.Delete(context.WithoutCancel(r.ctx), id)
	}
	return result, err
}

func (s *server) loadSession(r *request, p *v1.LoadSessionRequest) (any, error) {
	return s.reopen(r, p.SessionID, p.Cwd, p.AdditionalDirectories, p.McpServers, p.Meta, opened{replay: true, respond: func(e *editing) any {
		return &v1.LoadSessionResponse{Modes: e.modes(), ConfigOptions: e.options()}
	}})
}

func (s *server) resumeSession(r *request, p *v1.ResumeSessionRequest) (any, error) {
	return s.reopen(r, p.SessionID, p.Cwd, p.AdditionalDirectories, p.McpServers, p.Meta, opened{respond: func(e *editing) any {
		return &v1.ResumeSessionResponse{Modes: e.modes(), ConfigOptions: e.options()}
	}})
}

// reopen opens an existing session.
func (s *server) reopen(r *request, id, cwd string, dirs []string, servers []v1.McpServer, meta json.RawMessage, how opened) (any, error) {
	x, err := s.newSetup(cwd, dirs, servers, meta)
	if err != nil {
		return nil, err
	}
	if err := s.exists(r.ctx, id); err != nil {
		return nil, err
	}
	if spec := x.spec(); spec != nil {
		if err := s.cfg.Hub.Open(r.ctx, hub.Spec{ID: id, Agent: spec}); err != nil {
			return nil, err
		}
	}
	return s.open(r, id, x, how)
}

// exists returns an error unless there is a session with an id.
func (s *server) exists(ctx context.Context, id string) error {
	if !session.ValidID(id) {
		return errorf(CodeNotFound, "there is no session %s", id)
	}
	_, err := s.cfg.Hub.State(ctx, id)
	return err
}

func (s *server) forkSession(r *request, p *v1.ForkSessionRequest) (any, error) {
	x, err := s.newSetup(p.Cwd, p.AdditionalDirectories, p.McpServers, p.Meta)
	if err != nil {
		return nil, err
	}
	if err := s.exists(r.ctx, p.SessionID); err != nil {
		return nil, err
	}
	id, err := s.cfg.Hub.Create(r.ctx, hub.Spec{From: &hub.Reference{Session: p.SessionID}, Agent: x.spec()})
	if err != nil {
		return nil, err
	}
	return s.openNew(r, id, x, opened{respond: func(e *editing) any {
		return &v1.ForkSessionResponse{SessionID: id, Modes: e.modes(), ConfigOptions: e.options()}
	}})
}

// listPage is the number of sessions on a page of the list.
const listPage = 100

func (s *server) listSessions(r *request, p *v1.ListSessionsRequest) (any, error) {
	if p.Cwd != "" && !filepath.IsAbs(p.Cwd) {
		return nil, errorf(CodeInvalidParams, "cwd must be an absolute path")
	}
	from := 0
	if p.Cursor != "" {
		n, err := strconv.Atoi(p.Cursor)
		if err != nil || n < 0 {
			return nil, errorf(CodeInvalidParams, "the cursor %q is not one of this list", p.Cursor)
		}
		from = n
	}
	all, err := s.list(r.ctx, p.Cwd)
	if err != nil {
		return nil, err
	}
	result := &v1.ListSessionsResponse{Sessions: []v1.SessionInfo{}}
	if from < len(all) {
		result.Sessions = all[from:min(len(all), from+listPage)]
	}
	if from+listPage < len(all) {
		result.NextCursor = strconv.Itoa(from + listPage)
	}
	return result, nil
}

// list returns the sessions, most recently changed first.
func (s *server) list(ctx context.Context, cwd string) ([]v1.SessionInfo, error) {
	var all []v1.SessionInfo
	stamp := func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
	if s.cfg.Sessions != nil {
		infos, err := session.List(ctx, s.cfg.Sessions, &session.ListOptions{Dir: cwd, NoWorktrees: true})
		if err != nil {
			return nil, err
		}
		for _, x := range infos {
			all = append(all, v1.SessionInfo{SessionID: x.ID, Cwd: x.Cwd, Title: x.Summary, UpdatedAt: stamp(x.Modified)})
		}
		return all, nil
	}
	infos, err := s.cfg.Hub.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, x := range infos {
		if cwd == "" || filepath.Clean(cwd) == x.State.Cwd {
			all = append(all, v1.SessionInfo{SessionID: x.ID, Cwd: x.State.Cwd, Title: x.State.Title, UpdatedAt: stamp(x.Modified)})
		}
	}
	return all, nil
}

func (s *server) deleteSession(r *request, p *v1.DeleteSessionRequest) (any, error) {
	if err := s.exists(r.ctx, p.SessionID); err != nil {
		return nil, err
	}
	if e := s.editing(p.SessionID); e != nil {
		s.closeEditing(e)
	}
	return empty{}, s.cfg.Hub.Delete(r.ctx, p.SessionID)
}

func (s *server) closeSession(r *request, p *v1.CloseSessionRequest) (any, error) {
	e, err := s.opened(p.SessionID)
	if err != nil {
		return nil, err
	}
	e.cancelAll()
	if err := e.hub.Stop(r.ctx, e.id); err != nil {
		return nil, err
	}
	s.closeEditing(e)
	return empty{}, nil
}

// idle calls Config.Idle unless a prompt is running.
func (s *server) idle() {
	if s.cfg.Idle == nil {
		return
	}
	s.mu.Lock()
	open := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	if !slices.ContainsFunc(open, func(e *editing) bool { return len(e.pending()) > 0 }) {
		s.cfg.Idle()
	}
}

// editing returns a session that the client has open, or nil.
func (s *server) editing(id string) *editing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

// opened is like editing but returns an error.
func (s *server) opened(id string) (*editing, error) {
	if e := s.editing(id); e != nil {
		return e, nil
	}
	return nil, errorf(CodeNotFound, "the session %q is not open; use session/new, session/load or session/resume", id)
}

// closeEditing ends a session of the connection.
func (s *server) closeEditing(e *editing) {
	s.mu.Lock()
	if s.sessions[e.id] == e {
		delete(s.sessions, e.id)
	}
	s.mu.Unlock()
	e.end()
}
