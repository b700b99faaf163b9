package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/parley-go/parley/wire"
)

// A server is one server and its connection.
type server struct {
	m        *Manager
	name     string
	cfg      *wire.MCPServerConfig
	manifest *wire.MCPManifest
	source   string
	before   <-chan struct{} // closed when nothing is left of the previous server with its name
	login    login

	// The fields below are guarded by the manager's mu. Goroutines of a server change them
	// only while its context, which ends under mu, has not ended.

	dynamic bool // added while the conversation ran
	cancel  context.CancelFunc
	done    chan struct{} // closed when nothing of the connection is left
	state   wire.MCPState
	err     string
	info    *wire.MCPServerInfo
	offers  []*Tool
	prompts []*Prompt
	listed  map[string]bool // addresses of resources that it has listed
	conn    *connection     // while it is connected
	host    *hostConn       // of the last connection to a server in the host, which may still be opening
	// challenge is the server's last challenge to log in.
	challenge []string
}

// kind returns the transport of the server.
func (s *server) kind() string {
	if s.cfg.Type == "" {
		return "stdio"
	}
	return s.cfg.Type
}

// startup returns who waits for the server: "required", "optional" or "lazy"; empty means
// that the first turn waits until it is connected or has failed.
func (s *server) startup() string {
	kind, _ := Startup(s.cfg)
	if kind == "" && s.m.opts.NoWait {
		return "optional"
	}
	return kind
}

// Startup returns the "startup" of a configuration: "required", "optional", "lazy", or
// empty. It returns false if it has another value.
func Startup(cfg *wire.MCPServerConfig) (kind string, ok bool) {
	raw := cfg.Extra["startup"]
	if raw == nil {
		return "", true
	}
	json.Unmarshal(raw, &kind)
	switch kind {
	case "required", "optional", "lazy":
		return kind, true
	}
	return "", false
}

// ErrUnknownType means that no transport has the type of a configuration.
var ErrUnknownType = errors.New("unknown type")

// Check returns an error if no server can be started or reached with a configuration.
func Check(cfg *wire.MCPServerConfig) error {
	if err := checkMembers(cfg); err != nil {
		return err
	}
	if _, ok := Startup(cfg); !ok {
		return fmt.Errorf("startup: expected \"required\", \"optional\" or \"lazy\", not %s", cfg.Extra["startup"])
	}
	switch cfg.Type {
	case "", "stdio":
		if cfg.Command == "" {
			return errors.New(`command: it is missing; write a string, or "type": "http" and "url"`)
		}
	case "http", "sse", "ws":
		if cfg.URL == "" {
			return errors.New("url: it is missing; write a string")
		}
	case "sdk":
	default:
		return fmt.Errorf("type: %w: expected \"stdio\", \"http\", \"sse\", \"ws\" or \"sdk\", not %q", ErrUnknownType, cfg.Type)
	}
	return nil
}

// checkMembers returns an error if a member has a value of the wrong type. Without it, the server
// would be another one than the configuration describes.
func checkMembers(cfg *wire.MCPServerConfig) error {
	for _, m := range [...]struct{ name, want string }{
		{"type", "a string"}, {"command", "a string"}, {"args", "a list of strings"}, {"env", "an object of strings"},
		{"url", "a string"}, {"headers", "an object of strings"}, {"tools", "a list of objects"},
	} {
		if raw := cfg.Extra[m.name]; raw != nil && string(raw) != "null" {
			return fmt.Errorf("%s: expected %s", m.name, m.want)
		}
	}
	return nil
}

// deadline returns how long connecting may take.
func (s *server) deadline() time.Duration {
	var ms int64
	if json.Unmarshal(s.cfg.Extra["startupTimeout"], &ms) == nil && ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return s.m.opts.ConnectTimeout
}

// shownConfig returns the configuration without secrets.
func (s *server) shownConfig() *wire.MCPServerConfig {
	switch kind := s.kind(); kind {
	case "stdio":
		c := &wire.MCPServerConfig{Type: kind, Command: s.cfg.Command, Args: s.cfg.Args}
		if c.Args == nil {
			c.Args = []string{}
		}
		return c
	case "sdk", "ws": // as with the official command
		return nil
	default:
		return &wire.MCPServerConfig{Type: kind, URL: s.cfg.URL, Headers: s.cfg.Headers}
	}
}

// timeout returns how long a call may take: the limit of its configuration, or else the
// limit of its silence.
func (s *server) timeout() (limit time.Duration, silence bool) {
	if s.cfg.Timeout >= 1000 {
		return time.Duration(s.cfg.Timeout) * time.Millisecond, false
	}
	return s.m.opts.CallTimeout, true
}

// pauses are the delays before a lost connection is opened again.
var pauses = []time.Duration{0, time.Second, 5 * time.Second}

// run keeps the server connected until ctx ends. A lost connection is retried a few times;
// a connection that was never established is not.
func (s *server) run(ctx context.Context) {
	budget, failures, losses := 0, 0, 0
	if s.kind() == "sdk" {
		budget = 1 // the host may not have been ready
	}
	for {
		conn, err := s.connect(ctx)
		if err == nil {
			began := time.Now()
			s.update(ctx, func() {
				s.state, s.err, s.info, s.offers, s.prompts, s.conn = wire.MCPConnected, "", conn.info, conn.offers, conn.prompts, conn
			})
			err = s.serve(ctx, conn)
			conn.close()
			if time.Since(began) > time.Minute {
				losses = 0
			}
			budget, failures = len(pauses), 0
			losses++
		} else {
			failures++
		}
		if ctx.Err() != nil {
			return
		}
		var refused *authError
		again := !errors.As(err, &refused) && failures <= budget && losses <= len(pauses)
		s.m.log.Warn("an MCP server is not connected", "server", s.name, "error", err, "again", again)
		if !again {
			state := wire.MCPFailed
			if refused != nil {
				state = wire.MCPNeedsAuth
			}
			s.update(ctx, func() {
				s.state, s.err, s.info, s.offers, s.prompts, s.conn = state, err.Error(), nil, nil, nil, nil
				if refused != nil {
					s.challenge = refused.challenge
				}
			})
			return
		}
		// Its tools stay, so that the model's tools do not change with every short
		// interruption.
		s.update(ctx, func() { s.state, s.err, s.conn = wire.MCPPending, err.Error(), nil })
		select {
		case <-ctx.Done():
			return
		case <-time.After(pauses[min(failures+losses-1, len(pauses)-1)]):
		}
	}
}

// update changes the state, unless this goroutine no longer owns it.
func (s *server) update(ctx context.Context, f func()) {
	s.m.mu.Lock()
	if ctx.Err() != nil {
		s.m.mu.Unlock()
		return
	}
	f()
	s.m.touch()
	s.m.mu.Unlock()
	s.m.notify()
}

// serve lists the tools and prompts again when they change, until the connection ends. It
// returns the reason.
func (s *server) serve(ctx context.Context, conn *connection) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-conn.ended:
			return conn.why()
		case <-conn.listChanged:
		}
		list, cancel := context.WithTimeoutCause(ctx, s.deadline(), errors.New("the server did not list its tools in time"))
		offers, err := s.list(list, conn)
		if err != nil {
			s.m.log.Warn("the tools of an MCP server cannot be listed", "server", s.name, "error", err)
			cancel()
		} else {
			prompts := s.listPrompts(list, conn)
			cancel()
			s.update(ctx, func() { s.offers, s.prompts = offers, prompts })
		}
		// A server that repeats this is handled at most ten times a second.
		select {
		case <-ctx.Done():
		case <-conn.ended:
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// live returns the connection, and waits if it is being established.
func (s *server) live(ctx context.Context) (*connection, error) {
	for {
		if err := s.m.waitConnected(ctx, s); err != nil {
			return nil, err
		}
		s.m.mu.Lock()
		conn, why, changed := s.conn, s.err, s.m.changed
		s.m.mu.Unlock()
		if conn == nil {
			return nil, fmt.Errorf("The MCP server %s is not connected: %s", s.name, why)
		}
		select {
		case <-conn.ended: // its state is not updated yet
		default:
			return conn, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
