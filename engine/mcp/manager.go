// Package mcp is the MCP client of one conversation.
//
// A [Manager] holds connections to servers of the Model Context Protocol: processes, servers
// on the network, and servers that run in the host. It connects them concurrently and never
// makes its caller wait; each reaches a final state within a deadline. They offer tools,
// which the engine names mcp__server__tool, resources, which three more tools list and read,
// and prompts.
//
// A server is not trusted. It receives no credentials of ours, only those in its
// configuration. A server that hangs, dies, floods, or sends malformed messages loses only
// its own connection and calls: what it sends is limited in size and rate, and its tools in
// number and size. The server's annotations, such as that a tool only reads, are never a
// reason to allow a call.
//
// The official SDK implements the protocol itself.
package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// Options configure a [Manager]. The zero value is usable.
type Options struct {
	// Host sends a JSON-RPC message to a server that runs in the host and returns its
	// response; for a notification the response is ignored. It is called from several
	// goroutines. If nil, there are no such servers.
	Host func(ctx context.Context, server string, message json.RawMessage) (json.RawMessage, error)
	// Elicit sends a question of a server to the user. If nil, servers cannot ask.
	Elicit func(ctx context.Context, q *wire.Elicitation) (*wire.ElicitResult, error)
	// Elicited is called when a question with an id was answered on a page of the server. It
	// must not block.
	Elicited func(server, id string)
	// OnChange is called when tools or states have changed. It must not block.
	OnChange func()
	// Hidden reports whether a tool is not offered. If nil, all are offered.
	Hidden func(tool string) bool

	// Logins stores the user's logins. If nil, they end with the manager.
	Logins *Logins

	// Env is the environment, "KEY=value". Servers receive only the variables that they need
	// to run, such as PATH.
	Env []string
	// Dir is the working directory of servers.
	Dir string
	// Sandbox confines the processes of servers from a project. If nil, they are not
	// confined.
	Sandbox *sandbox.Sandbox

	ConnectTimeout time.Duration // of one connection; zero means 30 s
	// NoWait disables waiting for servers whose configuration does not set "startup".
	NoWait bool
	// CallTimeout is how long a call may be silent if its server's configuration sets no
	// timeout; progress resets it. Zero means half an hour.
	CallTimeout time.Duration
	// MaxResult is how many characters of a result are sent to the model; a longer result is
	// written to a file. Zero means 100,000, about 25,000 tokens.
	MaxResult int

	Version string // of the agent, sent to servers
	Logger  *slog.Logger
}

// A Server is a server by its name.
type Server struct {
	Name   string
	Config *wire.MCPServerConfig
	// Manifest holds the responses of a server in the host to the first requests; nil means
	// that they are sent.
	Manifest *wire.MCPManifest
}

// A Manager manages the MCP servers of one conversation. It is safe for concurrent use.
type Manager struct {
	opts   Options
	log    *slog.Logger
	ctx    context.Context // ends with the manager
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu         sync.Mutex // guards the fields below and the state of the servers
	servers    []*server
	changed    chan struct{} // closed, and replaced, when a state changes
	tools      []tool.Tool
	generation uint64 // of tools
	prompts    []*Prompt
	edition    uint64 // of prompts
	begun      bool   // a turn was started
	closed     bool

	list, read, dir *ResourceTool
}

// New returns a manager without servers.
func New(opts Options) *Manager {
	if opts.ConnectTimeout <= 0 {
		opts.ConnectTimeout = 30 * time.Second
	}
	if opts.CallTimeout <= 0 {
		opts.CallTimeout = 30 * time.Minute
	}
	if opts.MaxResult <= 0 {
		opts.MaxResult = 100_000
	}
	m := &Manager{opts: opts, log: opts.Logger, changed: make(chan struct{})}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.list, m.read, m.dir = newResourceTools(m)
	return m
}

// errRemoved is the error of calls to a removed server.
const errRemoved = "the server was removed"

// Set adds servers, or replaces those with the same names, and starts to connect them. The
// source is their origin, as in [wire.MCPServerStatus].
func (m *Manager) Set(source string, servers ...Server) {
	m.mu.Lock()
	for _, srv := range servers {
		if srv.Config != nil && !m.closed {
			m.put(source, srv, false)
		}
	}
	m.mu.Unlock()
	m.notify()
}

// put adds a server to the manager. If one with the same name and configuration exists, put
// keeps it and returns false. The caller holds mu.
func (m *Manager) put(source string, srv Server, dynamic bool) (*server, bool) {
	s := &server{m: m, name: srv.Name, cfg: srv.Config, manifest: srv.Manifest, source: source, dynamic: dynamic}
	i := slices.IndexFunc(m.servers, func(have *server) bool { return have.name == srv.Name })
	if i < 0 {
		m.servers = append(m.servers, s)
	} else {
		have := m.servers[i]
		if have.source == source && reflect.DeepEqual(have.cfg, srv.Config) && have.state != wire.MCPFailed {
			have.dynamic = have.dynamic || dynamic
			return have, false
		}
		m.stop(have, wire.MCPDisabled, errRemoved)
		s.before = have.done
		m.servers[i] = s
	}
	if s.startup() == "lazy" && !m.begun && !dynamic {
		s.state = wire.MCPPending // until a turn starts
		m.touch()
		return s, true
	}
	m.start(s)
	return s, true
}

// start starts to connect a server. The caller holds mu.
func (m *Manager) start(s *server) {
	before := s.before
	if s.done != nil {
		before = s.done
	}
	ctx, cancel := context.WithCancel(m.ctx)
	done := make(chan struct{})
	s.cancel, s.done, s.state, s.err, s.conn = cancel, done, wire.MCPPending, "", nil
	m.wg.Go(func() {
		defer close(done)
		defer cancel()
		if before != nil {
			<-before
		}
		s.run(ctx)
	})
	m.touch()
}

// stop closes the connection of a server. The caller holds mu.
func (m *Manager) stop(s *server, state wire.MCPState, why string) {
	if s.cancel != nil {
		s.cancel()
	}
	s.state, s.err, s.conn, s.info, s.offers, s.prompts = state, why, nil, nil, nil, nil
	m.touch()
}

// touch signals that a state has changed. The caller holds mu.
func (m *Manager) touch() {
	close(m.changed)
	m.changed = make(chan struct{})
	var tools []tool.Tool
	var prompts []*Prompt
	seen := map[string]bool{}
	resources := false
	for _, s := range m.servers {
		for _, t := range s.offers {
			if name := t.spec.Name; !seen[name] && !m.hidden(name) {
				seen[name] = true
				tools = append(tools, t)
			}
		}
		if !m.hidden("mcp__" + badRune().ReplaceAllString(s.name, "_")) {
			prompts = append(prompts, s.prompts...)
			resources = resources || s.hasResources()
		}
	}
	if resources {
		for _, t := range []*ResourceTool{m.list, m.dir, m.read} {
			if !m.hidden(t.spec.Name) && !m.hidden(t.spec.Aliases[0]) {
				tools = append(tools, t)
			}
		}
	}
	if !slices.Equal(tools, m.tools) {
		m.tools = tools
		m.generation++
	}
	if !slices.Equal(prompts, m.prompts) {
		m.prompts = prompts
		m.edition++
	}
}

func (m *Manager) hidden(name string) bool { return m.opts.Hidden != nil && m.opts.Hidden(name) }

// notify calls OnChange. The caller does not hold mu.
func (m *Manager) notify() {
	if m.opts.OnChange != nil {
		m.opts.OnChange()
	}
}

// Tools returns the tools that the servers offer now, in the order of the servers and of
// their lists, and a generation that changes whenever the tools change.
func (m *Manager) Tools() (tools []tool.Tool, generation uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.tools), m.generation
}

// Offers reports whether a tool is one that a [Manager] offers.
func Offers(t tool.Tool) bool {
	switch t.(type) {
	case *Tool, *ResourceTool:
		return true
	}
	return false
}

// Begin is called when a turn starts. Lazy servers are connected only then. It waits, at
// most for wait, for servers that are connecting and whose configuration does not set
// "startup".
func (m *Manager) Begin(ctx context.Context, wait time.Duration) {
	m.mu.Lock()
	m.begun = true
	for _, s := range m.servers {
		if s.done == nil && s.state == wire.MCPPending && !m.closed {
			m.start(s)
		}
	}
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	m.await(ctx, func(s *server) bool { return s.startup() == "" })
}

// Ready waits for the servers that must be connected before the model is asked: those with
// "startup":"required", and, on their first connection, those that do not set it, each up to
// its deadline. It returns an error if a required server has failed, or ctx ends.
func (m *Manager) Ready(ctx context.Context) error {
	if err := m.await(ctx, func(s *server) bool {
		kind := s.startup()
		return kind == "required" || kind == "" && s.info == nil
	}); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.servers {
		if s.startup() == "required" && (s.state == wire.MCPFailed || s.state == wire.MCPNeedsAuth) {
			return fmt.Errorf("Failed to connect to MCP server %s: %s", s.name, s.err)
		}
	}
	return nil
}

var errClosed = errors.New("mcp: the manager is closed")

// waitConnected waits until none of the servers is connecting.
func (m *Manager) waitConnected(ctx context.Context, servers ...*server) error {
	return m.awaitAny(ctx, func() bool {
		return slices.ContainsFunc(servers, func(s *server) bool { return s.state == wire.MCPPending })
	})
}

// await waits until none of the manager's servers for which counts returns true is
// connecting.
func (m *Manager) await(ctx context.Context, counts func(*server) bool) error {
	return m.awaitAny(ctx, func() bool {
		return slices.ContainsFunc(m.servers, func(s *server) bool { return s.state == wire.MCPPending && counts(s) })
	})
}

// awaitAny waits while pending returns true, which it calls with mu held.
func (m *Manager) awaitAny(ctx context.Context, pending func() bool) error {
	for {
		m.mu.Lock()
		changed := m.changed
		wait := pending()
		m.mu.Unlock()
		if !wait {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.ctx.Done():
			return errClosed
		}
	}
}

// Status returns the status of the servers.
func (m *Manager) Status() []*wire.MCPServerStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := []*wire.MCPServerStatus{}
	for _, s := range m.servers {
		st := &wire.MCPServerStatus{Name: s.name, Status: s.state, Config: s.shownConfig(), Transport: s.kind(), Scope: "dynamic", Source: s.source}
		if s.source != "sdk" {
			st.Scope = s.source
		}
		switch s.state {
		case wire.MCPConnected:
			st.ServerInfo = s.info
			st.Tools = []*wire.MCPToolInfo{}
			for _, t := range s.offers {
				st.Tools = append(st.Tools, &wire.MCPToolInfo{Name: t.name, Annotations: &wire.MCPToolAnnotations{
					ReadOnly: t.hints.ReadOnly, Destructive: t.hints.Destructive, OpenWorld: t.hints.OpenWorld}})
			}
		case wire.MCPFailed, wire.MCPNeedsAuth:
			st.Error = s.err
		}
		list = append(list, st)
	}
	return list
}

// Instructions are the text of a server about the use of its tools.
type Instructions struct{ Server, Text string }

// maxInstructions limits the instructions of a server, in bytes.
const maxInstructions = 8 << 10

// Instructions returns the instructions of the connected servers that have some.
func (m *Manager) Instructions() (list []Instructions) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.servers {
		if s.conn == nil {
			continue
		}
		if r := s.conn.session.InitializeResult(); r != nil && strings.TrimSpace(r.Instructions) != "" {
			list = append(list, Instructions{s.name, clip(strings.TrimSpace(r.Instructions), maxInstructions)})
		}
	}
	return list
}

// InitServers returns the servers for the first message of a turn.
func (m *Manager) InitServers() []*wire.InitMCPServer {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := []*wire.InitMCPServer{}
	for _, s := range m.servers {
		list = append(list, &wire.InitMCPServer{Name: s.name, Status: string(s.state), Source: s.source})
	}
	return list
}

// A NotFoundError names an unknown server.
type NotFoundError struct{ Name string }

// Error returns the message of the protocol.
func (e *NotFoundError) Error() string { return "Server not found: " + e.Name }

// find returns a server. The caller holds mu.
func (m *Manager) find(name string) (*server, error) {
	for _, s := range m.servers {
		if s.name == name {
			return s, nil
		}
	}
	return nil, &NotFoundError{name}
}

// The methods below change servers immediately and in the order of the calls. The function
// that each returns waits until the servers are connected or have failed.

// Reconnect connects a server again.
func (m *Manager) Reconnect(name string) (settled func(context.Context) error) {
	m.mu.Lock()
	s, err := m.find(name)
	if err == nil && m.closed {
		err = errClosed
	}
	if err != nil {
		m.mu.Unlock()
		return func(context.Context) error { return err }
	}
	m.stop(s, wire.MCPPending, "")
	m.start(s)
	m.mu.Unlock()
	m.notify()
	return func(ctx context.Context) error {
		if err := m.waitConnected(ctx, s); err != nil {
			return err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if s.state == wire.MCPFailed || s.state == wire.MCPNeedsAuth {
			return errors.New(s.err)
		}
		return nil
	}
}

// Toggle enables or disables a server.
func (m *Manager) Toggle(name string, enabled bool) (settled func(context.Context) error) {
	m.mu.Lock()
	s, err := m.find(name)
	running := err == nil && (s.state == wire.MCPConnected || s.state == wire.MCPPending)
	if err == nil && !enabled {
		m.stop(s, wire.MCPDisabled, "the server is switched off")
	}
	m.mu.Unlock()
	switch {
	case err != nil:
	case !enabled:
		m.notify()
	case !running:
		return m.Reconnect(name)
	}
	return func(context.Context) error { return err }
}

// SetDynamic replaces the servers of earlier calls, and those that run in the host, by the
// given ones.
func (m *Manager) SetDynamic(configs map[string]*wire.MCPServerConfig) (settled func(context.Context) (*wire.MCPSetServersResponse, error)) {
	r := &wire.MCPSetServersResponse{Added: []string{}, Removed: []string{}, Errors: map[string]string{}}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return func(context.Context) (*wire.MCPSetServersResponse, error) { return nil, errClosed }
	}
	m.servers = slices.DeleteFunc(m.servers, func(s *server) bool {
		if cfg := configs[s.name]; cfg != nil || !s.dynamic && s.kind() != "sdk" {
			return false
		}
		m.stop(s, wire.MCPDisabled, errRemoved)
		r.Removed = append(r.Removed, s.name)
		return true
	})
	var wait []*server
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		cfg := configs[name]
		if cfg == nil {
			continue
		}
		source := "dynamic"
		if cfg.Type == "sdk" {
			source = "sdk"
		}
		s, added := m.put(source, Server{Name: name, Config: cfg}, true)
		if added {
			r.Added = append(r.Added, name)
		}
		wait = append(wait, s)
	}
	m.touch()
	m.mu.Unlock()
	m.notify()
	return func(ctx context.Context) (*wire.MCPSetServersResponse, error) {
		if err := m.waitConnected(ctx, wait...); err != nil {
			return nil, err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, s := range wait {
			if s.state == wire.MCPFailed || s.state == wire.MCPNeedsAuth || s.err == errRemoved {
				r.Errors[s.name] = s.err
			}
		}
		return r, nil
	}
}

// Deliver handles a message that a server in the host sends on its own. It ignores an
// unknown server.
func (m *Manager) Deliver(name string, message json.RawMessage) {
	m.mu.Lock()
	s, err := m.find(name)
	var host *hostConn
	if err == nil {
		host = s.host
	}
	m.mu.Unlock()
	if host != nil {
		host.deliver(message)
	}
}

// CancelQuestions cancels the questions of servers whose requests were cancelled. Otherwise
// that happens a moment after the request is cancelled.
func (m *Manager) CancelQuestions() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.servers {
		if s.conn != nil {
			s.conn.cancelQuestions()
		}
	}
}

// Call calls a tool by its full name, without the model, and returns the server's response.
func (m *Manager) Call(ctx context.Context, name, toolUseID string, arguments json.RawMessage) (*wire.MCPCallResponse, error) {
	if !strings.HasPrefix(name, "mcp__") || strings.Count(name, "__") < 2 {
		return nil, fmt.Errorf("Not a fully-qualified MCP tool name: %s", name)
	}
	m.mu.Lock()
	var t *Tool
	for _, have := range m.tools {
		if have, ok := have.(*Tool); ok && have.spec.Name == name {
			t = have
		}
	}
	m.mu.Unlock()
	if t == nil {
		server, _, _ := strings.Cut(strings.TrimPrefix(name, "mcp__"), "__")
		return nil, fmt.Errorf("MCP server not connected: %s", server)
	}
	raw, err := t.call(ctx, toolUseID, arguments)
	if err != nil {
		return nil, err
	}
	r := new(wire.MCPCallResponse)
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("the answer of the server cannot be read: %w", err)
	}
	return r, nil
}

// Close closes all connections, and stops the processes behind them with everything that
// they started. It returns when that is done, within a few seconds.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.cancel()
	m.mu.Unlock()
	m.wg.Wait()
}
