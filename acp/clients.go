package acp

import (
	"encoding/json"
	"maps"
	"sync"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/acp/internal/v1"
	"github.com/parley-go/parley/wire"
)

// A Setup is what a client brings to a session. It lasts as long as the client has the
// session open, and is stored nowhere: it may hold keys.
type Setup struct {
	Directories  []string                         // more directories to work in
	Servers      map[string]*wire.MCPServerConfig // MCP servers, by name
	SystemPrompt string                           // in place of the agent's own
	AppendPrompt string                           // behind the agent's own
}

// Clients is what clients bring to their sessions. The zero value is ready. It is safe for
// concurrent use.
type Clients struct {
	mu     sync.Mutex
	setups map[string]*Setup
}

func (c *Clients) set(id string, x *Setup) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.setups == nil {
		c.setups = map[string]*Setup{}
	}
	if c.setups[id] = x; x == nil {
		delete(c.setups, id)
	}
}

// Apply adds to the options of a session's agent what a client brings. A hub's
// [hub.Config.Agent] calls it.
func (c *Clients) Apply(id string, opts *parley.Options) {
	c.mu.Lock()
	x := c.setups[id]
	c.mu.Unlock()
	if x == nil {
		return
	}
	opts.AddDirs = append(opts.AddDirs[:len(opts.AddDirs):len(opts.AddDirs)], x.Directories...)
	if len(x.Servers) > 0 {
		servers := maps.Clone(opts.MCPServers)
		if servers == nil {
			servers = map[string]*wire.MCPServerConfig{}
		}
		maps.Copy(servers, x.Servers)
		opts.MCPServers = servers
	}
	if x.SystemPrompt != "" {
		opts.SystemPrompt, opts.KeepSystemPrompt = x.SystemPrompt, false
	}
	if x.AppendPrompt != "" {
		opts.AppendSystemPrompt = x.AppendPrompt
	}
}

// addServers adds MCP servers as the protocol describes them.
func (x *Setup) addServers(list []v1.McpServer) error {
	x.Servers = map[string]*wire.MCPServerConfig{}
	for _, m := range list {
		c, name := &wire.MCPServerConfig{}, ""
		switch {
		case m.McpServerStdio != nil:
			name = m.McpServerStdio.Name
			c.Type, c.Command, c.Args, c.Env = "stdio", m.McpServerStdio.Command, m.McpServerStdio.Args, map[string]string{}
			for _, v := range m.McpServerStdio.Env {
				c.Env[v.Name] = v.Value
			}
		case m.Http != nil:
			name = m.Http.Name
			c.Type, c.URL, c.Headers = "http", m.Http.URL, headers(m.Http.Headers)
		case m.Sse != nil:
			name = m.Sse.Name
			c.Type, c.URL, c.Headers = "sse", m.Sse.URL, headers(m.Sse.Headers)
		default:
			return errorf(CodeInvalidParams, "mcpServers: this agent takes servers of the types stdio, http and sse")
		}
		if name == "" || c.Command == "" && c.URL == "" {
			return errorf(CodeInvalidParams, "mcpServers: a server needs a name, and a command or a url")
		}
		x.Servers[name] = c
	}
	return nil
}

func headers(list []v1.HttpHeader) map[string]string {
	m := map[string]string{}
	for _, h := range list {
		m[h.Name] = h.Value
	}
	return m
}

// addMeta adds what clients of the reference adapter put into _meta.
func (x *Setup) addMeta(meta json.RawMessage) {
	var m struct {
		SystemPrompt json.RawMessage `json:"systemPrompt"`
	}
	if json.Unmarshal(meta, &m) != nil || len(m.SystemPrompt) == 0 {
		return
	}
	if json.Unmarshal(m.SystemPrompt, &x.SystemPrompt) == nil {
		return
	}
	var part struct {
		Append string `json:"append"`
	}
	if json.Unmarshal(m.SystemPrompt, &part) == nil {
		x.AppendPrompt = part.Append
	}
}
