package acp

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"

	"github.com/parley-go/parley/acp/internal/v1"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// A setup is the client's configuration of a session.
type setup struct {
	args []string // flags of the agent
	// servers are MCP servers, by name. They last as long as the client has the session
	// open, and are not stored, because they may contain keys.
	servers map[string]*wire.MCPServerConfig
	own     map[string]string // ids of the MCP servers that the client serves over the connection, by name
}

// newSetup returns the setup for a client's parameters. Its error is for the client.
func (s *server) newSetup(cwd string, dirs []string, servers []v1.McpServer, meta json.RawMessage) (*setup, error) {
	x := &setup{args: slices.Clone(s.cfg.Args), servers: map[string]*wire.MCPServerConfig{}, own: map[string]string{}}
	if !filepath.IsAbs(cwd) {
		return nil, errorf(CodeInvalidParams, "cwd must be an absolute path")
	}
	for _, d := range dirs {
		if !filepath.IsAbs(d) {
			return nil, errorf(CodeInvalidParams, "additionalDirectories must be absolute paths")
		}
		x.args = append(x.args, "--add-dir", d)
	}
	for _, m := range servers {
		if m.Acp != nil {
			if m.Acp.Name == "" || m.Acp.ServerID == "" || x.own[m.Acp.Name] != "" || slices.Contains(slices.Collect(maps.Values(x.own)), m.Acp.ServerID) {
				return nil, errorf(CodeInvalidParams, "mcpServers: a server of the type acp needs a name and a serverId of its own")
			}
			x.own[m.Acp.Name] = m.Acp.ServerID
			continue
		}
		name, c := serverOf(m)
		if c == nil {
			return nil, errorf(CodeInvalidParams, "mcpServers: this agent takes servers of the types stdio, http, sse and acp")
		}
		if name == "" || c.Command == "" && c.URL == "" {
			return nil, errorf(CodeInvalidParams, "mcpServers: a server needs a name, and a command or a url")
		}
		x.servers[name] = c
	}
	x.addMeta(meta)
	return x, s.authorized()
}

// spec returns the flags for the hub, nil if there are none.
func (x *setup) spec() json.RawMessage {
	if len(x.args) == 0 {
		return nil
	}
	return hub.Args{Args: x.args}.Spec()
}

// serverOf converts an MCP server to the agent's form, nil if its type is unknown.
func serverOf(m v1.McpServer) (name string, c *wire.MCPServerConfig) {
	switch {
	case m.McpServerStdio != nil:
		c = &wire.MCPServerConfig{Type: "stdio", Command: m.McpServerStdio.Command, Args: m.McpServerStdio.Args, Env: map[string]string{}}
		for _, v := range m.McpServerStdio.Env {
			c.Env[v.Name] = v.Value
		}
		return m.McpServerStdio.Name, c
	case m.Http != nil:
		return m.Http.Name, &wire.MCPServerConfig{Type: "http", URL: m.Http.URL, Headers: headers(m.Http.Headers)}
	case m.Sse != nil:
		return m.Sse.Name, &wire.MCPServerConfig{Type: "sse", URL: m.Sse.URL, Headers: headers(m.Sse.Headers)}
	}
	return "", nil
}

func headers(list []v1.HttpHeader) map[string]string {
	m := map[string]string{}
	for _, h := range list {
		m[h.Name] = h.Value
	}
	return m
}

// addMeta adds settings that clients of the reference adapter put into _meta: a system
// prompt, as a string or as {"append": text}.
func (x *setup) addMeta(meta json.RawMessage) {
	var m struct {
		SystemPrompt json.RawMessage `json:"systemPrompt"`
	}
	var whole string
	var part struct {
		Append string `json:"append"`
	}
	if json.Unmarshal(meta, &m) != nil || len(m.SystemPrompt) == 0 {
		return
	}
	if json.Unmarshal(m.SystemPrompt, &whole) == nil && whole != "" {
		x.args = append(x.args, "--system-prompt", whole)
	} else if json.Unmarshal(m.SystemPrompt, &part) == nil && part.Append != "" {
		x.args = append(x.args, "--append-system-prompt", part.Append)
	}
}
