package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/internal/regular"
)

// UserFile returns the file of the user in which the official command stores MCP servers and trusted
// projects, or "" without a home directory.
func (cfg *Config) UserFile() string {
	if cfg.Home == "" {
		return ""
	}
	if dir := cfg.ConfigDir(); dir != filepath.Join(cfg.Home, ".claude") {
		return filepath.Join(dir, ".claude.json")
	}
	return filepath.Join(cfg.Home, ".claude.json")
}

// userServers are the MCP servers in the user's file: for all projects, and for each.
type userServers struct {
	Servers  json.RawMessage `json:"mcpServers"`
	Projects map[string]struct {
		Servers json.RawMessage `json:"mcpServers"`
	} `json:"projects"`
}

// loadUserServers reads the MCP servers that the user has added, for this project and for all. Those
// of the flags take precedence; then those for this project, those of .mcp.json, and those for all.
func (set *setup) loadUserServers() {
	sources, file := set.prefs().Sources(), set.cfg.UserFile()
	if set.flags.StrictMCP || file == "" || !sources.User && !sources.Local {
		return
	}
	text, err := regular.Read(file, maxUserFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var doc userServers
	if err == nil {
		err = json.Unmarshal(text, &doc)
	}
	if err != nil {
		set.notices = append(set.notices, fmt.Sprintf("the MCP servers of %s are left out: %v. Correct the file", file, err))
		return
	}
	has := func(list []mcp.Server, name string) bool {
		return slices.ContainsFunc(list, func(s mcp.Server) bool { return s.Name == name })
	}
	add := func(raw json.RawMessage, local bool) {
		if len(raw) == 0 || string(raw) == "null" {
			return
		}
		servers, malformed, err := parseServers([]byte(`{"mcpServers":`+string(raw)+`}`), set.vars)
		if err != nil {
			set.notices = append(set.notices, fmt.Sprintf("the MCP servers of %s are left out: %v. Correct the file", file, err))
			return
		}
		for _, bad := range malformed {
			set.notices = append(set.notices, file+": "+bad.Message)
		}
		set.badServers = append(set.badServers, malformed...)
		for _, srv := range servers {
			if has(set.servers, srv.Name) || has(set.userServers, srv.Name) || !local && has(set.projectServers, srv.Name) || srv.Config.Type == "sdk" {
				continue
			}
			if !set.allowsServer(srv.Name, srv.Config) {
				set.notices = append(set.notices, fmt.Sprintf("the MCP server %s is left out: %s", srv.Name, notAdmitted))
				continue
			}
			set.projectServers = slices.DeleteFunc(set.projectServers, func(s mcp.Server) bool { return s.Name == srv.Name })
			set.userServers = append(set.userServers, srv)
		}
	}
	if sources.Local {
		add(doc.Projects[set.cfg.Cwd].Servers, true)
	}
	if sources.User {
		add(doc.Servers, false)
	}
}
