package settings

import (
	"encoding/json"
	"slices"
	"strings"
)

// A Server is an MCP server in the project's .mcp.json.
type Server struct {
	Name   string
	Config json.RawMessage
	Origin
}

// Servers returns the MCP servers of the project that are trusted and not disabled, in
// the order of the file.
func (s *Settings) Servers() []Server {
	if s == nil || s.servers == nil || s.managed("allowManagedMcpServersOnly") {
		return nil
	}
	all := s.servers.active.Get("mcpServers")
	if all == nil {
		return nil
	}
	disabled := s.List("disabledMcpjsonServers")
	var servers []Server
	for _, n := range all.names {
		if v := all.members[n]; !slices.Contains(disabled, n) && s.Admits(n, v.Raw()) {
			servers = append(servers, Server{n, v.Raw(), s.servers.at(v)})
		}
	}
	return servers
}

// Admits reports whether deniedMcpServers and allowedMcpServers allow a server,
// wherever it is configured. Their entries name a server, a command or a URL. If there
// are allowed entries, a server must match one of them.
func (s *Settings) Admits(name string, config json.RawMessage) bool {
	if s == nil {
		return true
	}
	var cfg struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
		URL     string   `json:"url"`
	}
	json.Unmarshal(config, &cfg)
	fits := func(v *Value) bool {
		if n, ok := v.Get("serverName").text(); ok {
			return n == name
		}
		if u, ok := v.Get("serverUrl").text(); ok {
			return cfg.URL != "" && fitsURL(u, cfg.URL)
		}
		if c := v.Get("serverCommand"); c != nil && cfg.Command != "" {
			var words []string
			json.Unmarshal(c.Raw(), &words)
			return slices.Equal(words, append([]string{cfg.Command}, cfg.Args...))
		}
		return false
	}
	if d := s.merged.Get("deniedMcpServers"); d != nil && slices.ContainsFunc(d.items, fits) {
		return false
	}
	for _, l := range s.layers { // each list of allowed servers restricts
		if a := l.active.Get("allowedMcpServers"); a != nil && !slices.ContainsFunc(a.items, fits) {
			return false
		}
	}
	return true
}

// fitsURL matches a URL against a pattern in which * matches anything.
func fitsURL(pattern, url string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == url
	}
	if !strings.HasPrefix(url, parts[0]) {
		return false
	}
	url = url[len(parts[0]):]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(url, p)
		if i < 0 {
			return false
		}
		url = url[i+len(p):]
	}
	return strings.HasSuffix(url, parts[len(parts)-1])
}

// serversFile has the MCP servers of a project, in its directory.
const serversFile = ".mcp.json"

// NoServerList reports whether the servers of the project have another form: those of some programs are
// in the member "servers".
func (s *Settings) NoServerList() bool {
	return s != nil && s.servers != nil && len(s.servers.all.names) > 0 && s.servers.all.Get("mcpServers") == nil
}

func checkServers(l *layer) error {
	if l.all.members == nil {
		return l.wrong(l.all, `Write {"mcpServers": { … }}.`, "the MCP servers are %s", l.all.kind())
	}
	servers := l.all.Get("mcpServers")
	if servers == nil {
		return nil
	}
	if servers.members == nil {
		return l.wrong(servers, `Write {"mcpServers": { "name": { … } }}.`, "mcpServers is %s", servers.kind())
	}
	return nil
}
