package agent

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/project/market"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/internal/regular"
)

// pluginRoot is the placeholder for the directory of a plugin.
const pluginRoot = "${CLAUDE_PLUGIN_ROOT}"

// A plugin is used because the user or the host named its directory, or the user installed and enabled it.
// So its agents, hooks and MCP servers run as if they had written them. Package project handles commands,
// skills and styles.

// installedPlugins returns the ids of the plugins that the user installed and the settings enable, by their
// directories. A project cannot enable any.
func (set *setup) installedPlugins() map[string]string {
	dir := set.cfg.ConfigDir()
	raw, _ := set.prefs().Get("enabledPlugins")
	var enabled map[string]json.RawMessage
	if dir == "" || !set.prefs().Sources().User || json.Unmarshal(raw, &enabled) != nil {
		return nil
	}
	store := &market.Store{Dir: filepath.Join(dir, "plugins")}
	have, err := store.Installed()
	if err != nil {
		have = nil // each of them is reported as missing
	}
	ids := map[string]string{}
	for id, on := range enabled {
		if string(on) == "false" || string(on) == "null" {
			continue
		}
		at := have[id].InstallPath
		if !filepath.IsAbs(at) {
			at = filepath.Join(store.Dir, "cache", filepath.Base(id))
		}
		ids[filepath.Clean(at)] = id
	}
	return ids
}

// plugins returns all plugins.
func (s *server) plugins() []*project.PluginInfo {
	if s.conv == nil || s.conv.Project() == nil {
		return nil
	}
	return s.conv.Project().Plugins
}

// readPlugin reads a JSON file of a plugin and replaces the placeholder of its directory.
func readPlugin(p *project.PluginInfo, path string) ([]byte, error) {
	text, err := regular.Read(path, maxFile)
	return []byte(strings.ReplaceAll(string(text), pluginRoot, jsonText(p.Dir))), err
}

// jsonText returns a text as the inside of a JSON string.
func jsonText(s string) string {
	raw, _ := json.Marshal(s)
	return string(raw[1 : len(raw)-1])
}

// pluginHooks reads the hooks of a plugin.
func (set *setup) pluginHooks(prefs *settings.Settings, p *project.PluginInfo) ([]settings.Hook, error) {
	if p.Hooks == "" {
		return nil, nil
	}
	text, err := readPlugin(p, p.Hooks)
	if err != nil {
		return nil, fmt.Errorf("the hooks of the plugin %s cannot be read: %w", p.Name, err)
	}
	return prefs.HooksIn(p.Hooks, text)
}

// connectPlugins starts to connect the MCP servers of plugins, which are named plugin:PLUGIN:SERVER.
func (s *server) connectPlugins() {
	if s.set.flags.StrictMCP {
		return
	}
	for _, p := range s.plugins() {
		if p.MCP == "" {
			continue
		}
		servers, malformed, err := s.set.pluginServers(p)
		if err != nil {
			fmt.Fprintf(s.stderr, "Warning: %s: the MCP servers of the plugin %s cannot be read: %v\n", p.MCP, p.Name, err)
			continue
		}
		for _, bad := range malformed {
			fmt.Fprintf(s.stderr, "Warning: %s: %s\n", p.MCP, bad.Message)
		}
		s.mcp.Set("plugin", servers...)
	}
}

func (set *setup) pluginServers(p *project.PluginInfo) (admitted []mcp.Server, malformed []badServer, err error) {
	text, err := readPlugin(p, p.MCP)
	if err != nil {
		return nil, nil, err
	}
	var doc map[string]json.RawMessage
	if json.Unmarshal(text, &doc) == nil && doc["mcpServers"] == nil {
		// A file with only the servers is valid as well.
		text = append(append([]byte(`{"mcpServers":`), text...), '}')
	}
	servers, malformed, err := parseServers(text, set.vars)
	if err != nil {
		return nil, nil, err
	}
	for _, srv := range servers {
		srv.Name = "plugin:" + p.Name + ":" + srv.Name
		raw, _ := json.Marshal(srv.Config)
		if srv.Config.Type == "sdk" || !set.prefs().Admits(srv.Name, raw) {
			continue
		}
		if srv.Config.Env == nil {
			srv.Config.Env = map[string]string{}
		}
		srv.Config.Env["CLAUDE_PLUGIN_ROOT"] = p.Dir
		admitted = append(admitted, srv)
	}
	return admitted, malformed, nil
}
