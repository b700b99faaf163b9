package acp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// An Agent is a program that speaks the Agent Client Protocol, such as goose, codex-acp or gemini. It is a
// [transport.Dialer], so the SDK and the hub can drive it like Parley:
//
//	opts := &parley.Options{Dialer: &acp.Agent{Command: []string{"goose", "acp"}}, KeepSystemPrompt: true}
//
// Options that the Agent Client Protocol cannot express fail: flags with a [*transport.SpecError], others
// with the error of the first request. A call to the agent that it cannot express, such as RewindFiles,
// fails alone. An Agent is safe for concurrent use; every Dial starts the program.
type Agent struct {
	// Command is the program and its arguments.
	Command []string
	// Dialer connects to the agent, instead of starting Command as a process.
	Dialer transport.Dialer
	// AuthMethod is the id of the authentication method to use if the agent requires one. If it is empty,
	// such an agent fails with an error that lists its methods.
	AuthMethod string
	// Sessions is a directory for the ids that agents give to sessions, so that Resume and the hub can
	// continue a session by its id in the SDK. If it is empty, Resume accepts ids of the agent.
	Sessions string
	// Log receives every line of the connection: "in" from the agent, "out" to it. It may be nil.
	Log func(dir string, line []byte)
}

// Dial starts the agent.
func (a *Agent) Dial(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
	if spec.Path != "" {
		return nil, &transport.SpecError{Option: "Path", Reason: "the program is the Command of the acp.Agent"}
	}
	b := &bridge{agent: a, cwd: spec.Dir, asked: map[string]*asked{}}
	if err := b.parse(spec.Args()); err != nil {
		return nil, err
	}
	var err error
	if b.cwd, err = filepath.Abs(b.cwd); err != nil {
		return nil, err
	}
	spec.Words, spec.Flags = nil, nil
	dialer := a.Dialer
	if dialer == nil {
		if len(a.Command) == 0 {
			return nil, &transport.SpecError{Option: "Dialer", Reason: "the acp.Agent has neither a Command nor a Dialer"}
		}
		dialer = &transport.Process{EOFGrace: cmp.Or(spec.CloseTimeout, 2*time.Second)}
	}
	if len(a.Command) > 0 {
		spec.Path, spec.Words = a.Command[0], a.Command[1:]
	}
	inner, err := dialer.Dial(ctx, spec)
	if err != nil {
		return nil, err
	}
	host, peer := transport.Pipe()
	peer.SetCloseTimeout(spec.CloseTimeout)
	b.host = peer
	go b.run(inner)
	return host, nil
}

// A started describes how to open a session.
type started struct {
	partial, echo, ask bool // for the connection with the host
	id                 string
	resume             bool
	fork               bool
	dirs               []string
	servers            map[string]*wire.MCPServerConfig
	options            [3]string // by index: mode, model, effort
}

// Indexes of the session options that flags and requests of the host set.
const (
	indexMode = iota
	indexModel
	indexEffort
)

// optionCategories are the categories of configuration options, by index.
var optionCategories = [3]string{"mode", "model", "thought_level"}

// parse parses the flags. A flag that cannot be expressed is an error.
func (b *bridge) parse(args []string) error {
	s := &b.start
	s.servers = map[string]*wire.MCPServerConfig{}
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		next := func() string {
			if !joined && i+1 < len(args) {
				i++
				value = args[i]
			}
			return value
		}
		switch name {
		case "--verbose", "--print", "-p", "--await-initialize", "--allow-dangerously-skip-permissions":
		case "--input-format", "--output-format":
			next()
		case "--include-partial-messages":
			s.partial = true
		case "--replay-user-messages":
			s.echo = true
		case "--permission-prompt-tool":
			s.ask = next() == "stdio"
		case "--session-id":
			s.id = next()
		case "--resume":
			s.id, s.resume = next(), true
		case "--fork-session":
			s.fork = true
		case "--add-dir":
			s.dirs = append(s.dirs, next())
		case "--permission-mode":
			s.options[indexMode] = next()
		case "--model":
			s.options[indexModel] = next()
		case "--effort":
			s.options[indexEffort] = next()
		case "--mcp-config":
			if err := s.addServers(next()); err != nil {
				return err
			}
		default:
			return &transport.SpecError{Option: "Dialer", Reason: "the Agent Client Protocol cannot express " + name}
		}
	}
	return nil
}

// addServers adds the MCP servers of a configuration: JSON, or a file.
func (s *started) addServers(text string) error {
	data := []byte(text)
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		var err error
		if data, err = os.ReadFile(text); err != nil {
			return &transport.SpecError{Option: "MCPConfig", Reason: err.Error()}
		}
	}
	var c struct {
		Servers map[string]*wire.MCPServerConfig `json:"mcpServers"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return &transport.SpecError{Option: "MCPConfig", Reason: err.Error()}
	}
	for name, server := range c.Servers {
		if server != nil && server.Type != "sdk" { // servers of the host come with initialize
			s.servers[name] = server
		}
	}
	return nil
}

// inexpressible returns the features that an initialize request needs and the agent does not have.
func (b *bridge) inexpressible(r *wire.Initialize) (list []string) {
	for name, asked := range map[string]bool{
		"hooks": len(r.Hooks) > 0, "subagents": len(r.Agents) > 0, "structured output": len(r.JSONSchema) > 0, "skills": len(r.Skills) > 0, "plugins": len(r.Plugins) > 0,
		"tool aliases": len(r.ToolAliases) > 0, "instructions for plan mode": r.PlanModeInstructions != "",
		"a system prompt (the agent does not accept one)":                        b.system(r) != nil && b.can.SessionCapabilities.SystemPrompt == nil,
		"tools of the host (the agent does not accept MCP servers of this kind)": len(r.SDKMCPServers) > 0 && !b.can.McpCapabilities.Acp,
	} {
		if asked {
			list = append(list, name)
		}
	}
	return list
}

// system returns the system prompt of an initialize request, nil if it has none.
func (b *bridge) system(r *wire.Initialize) any {
	text := func(mode, s string) any {
		return map[string]any{"mode": mode, "content": []any{map[string]string{"type": "text", "text": s}}}
	}
	if own := strings.Join(r.SystemPrompt, "\n\n"); own != "" {
		return text("override", strings.TrimSpace(own+"\n\n"+r.AppendSystemPrompt))
	}
	if r.AppendSystemPrompt != "" {
		return text("append", r.AppendSystemPrompt)
	}
	return nil
}

// mcpServers returns the MCP servers for the agent.
func (b *bridge) mcpServers(host []string) ([]any, error) {
	list := []any{}
	pairs := func(m map[string]string) []any {
		all := []any{}
		for name, value := range m {
			all = append(all, map[string]string{"name": name, "value": value})
		}
		return all
	}
	for name, c := range b.start.servers {
		switch {
		case c.Type == "" || c.Type == "stdio":
			list = append(list, map[string]any{"name": name, "command": c.Command, "args": append([]string{}, c.Args...), "env": pairs(c.Env)})
		case c.Type == "http" && b.can.McpCapabilities.Http, c.Type == "sse" && b.can.McpCapabilities.Sse:
			list = append(list, map[string]any{"type": c.Type, "name": name, "url": c.URL, "headers": pairs(c.Headers)})
		default:
			return nil, fmt.Errorf("the agent does not accept the MCP server %s of the type %s", name, c.Type)
		}
	}
	for _, name := range host {
		list = append(list, map[string]any{"type": "acp", "name": name, "serverId": name})
	}
	return list, nil
}

// agentSession returns the agent's id of the session, empty if the session must be created.
func (b *bridge) agentSession() string {
	s := &b.start
	if b.agent.Sessions != "" && session.ValidID(s.id) {
		if data, err := os.ReadFile(filepath.Join(b.agent.Sessions, s.id)); err == nil {
			return string(data)
		}
	}
	if s.resume {
		return s.id
	}
	return ""
}

// keep stores the agent's id of the session.
func (b *bridge) keep() error {
	if b.agent.Sessions == "" || !session.ValidID(b.id) || b.id == b.session {
		return nil
	}
	if err := os.MkdirAll(b.agent.Sessions, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.agent.Sessions, b.id), []byte(b.session), 0o600)
}
