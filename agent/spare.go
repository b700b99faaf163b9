package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parley-go/parley/engine"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A spare is an agent that was started with --await-claim, before its session is known. Until the
// host claims it, it answers requests in the directory where it was started, without MCP servers
// and prompts. A claim names the directory of the session: the agent starts there with the same
// requests, and its response to initialize is a part of the response to the claim.
type spare struct {
	since    time.Time
	requests []*wire.ControlRequest // of the host, to be repeated
	model    string                 // that the host chose, or empty
	claim    *claimSession          // nil until a claim was accepted
	set      *setup                 // of the claimed session
	failed   bool                   // the last prompt came before a claim
}

// A claimSession is the request of the host that binds a spare to a session.
type claimSession struct {
	id                    string
	Cwd                   string                           `json:"cwd"`
	Env                   map[string]string                `json:"env"`
	PermissionMode        wire.PermissionMode              `json:"permission_mode"`
	AdditionalDirectories []string                         `json:"additional_directories"`
	AppendSystemPrompt    string                           `json:"append_system_prompt"`
	Title                 string                           `json:"title"`
	Agents                map[string]*wire.AgentDefinition `json:"agents"`
	IncludeInitialize     bool                             `json:"include_initialize"`
}

const claimName = "claim_session"

// claimable are the variables that a claim may set: no part of the agent reads them at its start.
var claimable = []string{"CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_SESSION_ACCESS_TOKEN", "CLAUDE_CODE_HOST_SESSION_ID"}

// repeated are the requests before a claim that also hold for the claimed session.
var repeated = []string{"initialize", "apply_flag_settings", "set_max_thinking_tokens", "mcp_set_servers"}

var errNotSpare = errors.New("not_a_spare: claim_session is only for an agent that was started with --await-claim and is not claimed yet")

// serveSpare runs an agent that waits for a claim, and then the claimed session. It returns the
// exit status.
func serveSpare(ctx context.Context, set *setup, r io.Reader, w, stderr io.Writer) int {
	sp := &spare{since: time.Now()}
	lines := newLines(r)
	code := serveLines(ctx, set, lines, w, stderr, sp)
	if sp.set == nil {
		if sp.failed {
			code = 1
		}
		return code
	}
	defer sp.set.close()
	for _, n := range sp.set.notices {
		if !slices.Contains(set.notices, n) {
			fmt.Fprintf(stderr, "Warning: %s\n", n)
		}
	}
	return serveLines(ctx, sp.set, lines, w, stderr, sp)
}

// waits reports whether the agent still waits for a claim.
func (s *server) waits() bool { return s.spare != nil && s.spare.claim == nil }

// whileSpare handles a message of the host to an agent that waits for a claim. handled means that
// there is nothing more to do; claimed ends the wait.
func (s *server) whileSpare(m wire.Message) (handled, claimed bool) {
	switch m := m.(type) {
	case *wire.User:
		s.spare.failed = true
		zero := 0
		s.sendMessage(&wire.Result{Subtype: "error_during_execution", IsError: true, Usage: engine.NoUsage(), ModelUsage: map[string]*wire.ModelUsage{},
			Errors:            []string{"not_claimed: this agent was started with --await-claim and is not claimed yet. Send claim_session before the first prompt"},
			PermissionDenials: []*wire.PermissionDenial{}, ResultIndex: &zero})
		return true, false
	case *wire.Assistant:
		return true, false
	case *wire.ControlRequest:
		if slices.Contains(repeated, m.Request.Subtype()) {
			s.spare.requests = append(s.spare.requests, m)
		}
		if req, ok := m.Request.(*wire.SetModel); ok {
			s.spare.model = req.Model
		}
		if m.Request.Subtype() != claimName {
			return false, false
		}
		c, next, err := s.checkClaim(m)
		if err != nil {
			s.respond(m.RequestID, nil, err)
			return true, false
		}
		s.spare.claim, s.spare.set, s.spare.failed = c, next, false
		return true, true
	}
	return false, false
}

// checkClaim returns a claim and the setup of its session, or why it is refused.
func (s *server) checkClaim(m *wire.ControlRequest) (*claimSession, *setup, error) {
	c := &claimSession{id: m.RequestID}
	if u, ok := m.Request.(*wire.UnknownRequest); !ok || json.Unmarshal(u.Raw, c) != nil || c.Cwd == "" {
		return nil, nil, errors.New("invalid_request: the claim cannot be read, or has no cwd")
	}
	for _, key := range slices.Sorted(maps.Keys(c.Env)) {
		if !slices.Contains(claimable, key) {
			return nil, nil, fmt.Errorf("env_key_not_claimable: %s is read when the agent starts; set it in the environment of the spare", key)
		}
	}
	dir := c.Cwd
	if rest, ok := strings.CutPrefix(dir, "~/"); ok && s.set.cfg.Home != "" {
		dir = filepath.Join(s.set.cfg.Home, rest)
	}
	dir, err := filepath.EvalSymlinks(s.set.absolute([]string{dir})[0])
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(dir)
	}
	switch {
	case err != nil:
		return nil, nil, errors.New("cwd_not_found: the directory of the claim does not exist or cannot be read")
	case !info.IsDir():
		return nil, nil, errors.New("cwd_not_a_directory: the cwd of the claim is not a directory")
	}
	c.Cwd = dir
	cfg, flags := s.set.cfg, *s.set.flags
	cfg.Cwd = dir
	for _, key := range slices.Sorted(maps.Keys(c.Env)) {
		cfg.Environ = append(slices.Clip(cfg.Environ), key+"="+c.Env[key])
	}
	flags.AwaitClaim, flags.SessionID, flags.Model = false, s.set.sessionID, cmp.Or(s.spare.model, flags.Model)
	var mode wire.PermissionMode
	s.conv.Do(func() { mode = s.conv.Mode() })
	if c.PermissionMode != "" {
		if mode, err = s.checkMode(c.PermissionMode); err != nil {
			return nil, nil, fmt.Errorf("permission_mode_not_claimable: %w", err)
		}
	}
	if mode != s.set.mode() { // it was changed since the start
		flags.AllowBypass = flags.AllowBypass || flags.SkipPermissions
		flags.PermissionMode, flags.SkipPermissions = mode, false
	}
	for _, d := range c.AdditionalDirectories {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		if info, err := os.Stat(d); err == nil && info.IsDir() {
			flags.AddDirs = append(slices.Clip(flags.AddDirs), d)
		}
	}
	next, err := newSetup(&cfg, &flags)
	if err != nil {
		return nil, nil, fmt.Errorf("claim_failed: %w", err)
	}
	return c, next, nil
}

// prepareClaim prepares the requests that the host sent to the spare for a server that repeats them,
// before it starts. They get new ids, because the host has received responses to the old ones.
func (s *server) prepareClaim() {
	c := s.spare.claim
	s.repeats = map[string]*wire.ControlRequest{}
	list := s.spare.requests
	if !slices.ContainsFunc(list, func(m *wire.ControlRequest) bool { return m.Request.Subtype() == "initialize" }) {
		list = append([]*wire.ControlRequest{{Request: &wire.Initialize{}}}, list...)
	}
	for i, m := range list {
		m = &wire.ControlRequest{RequestID: session.NewID(), Request: m.Request}
		if init, ok := m.Request.(*wire.Initialize); ok {
			init.Title = c.Title
			init.AppendSystemPrompt = strings.TrimSpace(init.AppendSystemPrompt + "\n\n" + c.AppendSystemPrompt)
			if init.Agents == nil {
				init.Agents = map[string]*wire.AgentDefinition{}
			}
			maps.Copy(init.Agents, c.Agents)
		}
		s.repeats[m.RequestID], list[i] = m, m
	}
	s.spare.requests = list
}

// acceptClaim repeats the requests and responds to the claim.
func (s *server) acceptClaim() {
	for _, m := range s.spare.requests {
		s.control(m)
	}
	c := s.spare.claim
	s.conv.Do(func() {
		payload := map[string]any{"status": "ok", "cwd": c.Cwd, "session_id": s.set.sessionID, "parked_ms": time.Since(s.spare.since).Milliseconds(), "sdk_mcp_settled": true}
		if c.IncludeInitialize && s.greeting != nil {
			payload["initialize"] = s.greeting
		}
		s.respond(c.id, payload, nil)
	})
}

// withholds reports whether a message is the response to a repeated request. That to initialize is
// kept for the response to the claim.
func (s *server) withholds(m wire.Message) bool {
	r, ok := m.(*wire.ControlResponse)
	if !ok {
		return false
	}
	asked, ok := s.repeats[r.Response.RequestID]
	if ok && asked.Request.Subtype() == "initialize" {
		s.greeting = r.Response.Response
	}
	return ok
}
