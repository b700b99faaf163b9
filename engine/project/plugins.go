package project

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/tool/files"
)

// A PluginInfo describes a plugin. Its commands, skills and styles are among those of
// the [Context]; the paths are for code that reads the rest. A path is empty if nothing
// exists there.
type PluginInfo struct {
	Name        string
	Version     string
	Description string
	Dir         string
	Agents      string // a directory of agents
	Hooks       string // a file of hooks
	MCP         string // a file of MCP servers
	Err         error  // why it is not loaded; then only Name and Dir are set

	id      string
	Ignored []string // members of its manifest that have no effect in this version
}

// ID returns NAME@MARKETPLACE, or NAME@inline for a plugin that is given by its
// directory.
func (p *PluginInfo) ID() string {
	if p.id != "" {
		return p.id
	}
	return p.Name + "@inline"
}

// parts are the members of a manifest that name more components; only components in the
// standard directories are read.
var parts = []string{"agents", "channels", "commands", "hooks", "lspServers", "mcpServers", "monitors", "outputStyles", "skills", "themes", "userConfig"}

// plugins reads the plugins of the user.
func (l *loader) plugins() {
	for i, named := range l.c.opts.PluginDirs {
		dir := named
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(l.c.opts.Cwd, dir)
		}
		p, err := l.plugin(filepath.Clean(dir))
		if err != nil {
			if id := l.c.opts.PluginIDs[named]; errors.Is(err, ErrNoPlugin) && id != "" {
				l.problem(dir, "the plugin %s is enabled in your settings and is not here. Run \"parley plugin install %s\", or \"parley plugin disable %s\"", id, id, id)
			} else if errors.Is(err, ErrNoPlugin) {
				l.problem(dir, "no such directory. Create it, or correct --plugin-dir")
			} else {
				l.problem(dir, "%v", err)
			}
			p = &PluginInfo{Name: fmt.Sprintf("inline[%d]", i), Dir: dir, Err: err}
		}
		if slices.Contains(l.c.opts.NoServers, named) {
			p.MCP = ""
		}
		l.c.Plugins = append(l.c.Plugins, p)
	}
}

// ErrNoPlugin means that the directory does not exist.
var ErrNoPlugin = errors.New("Path not found")

func (l *loader) plugin(dir string) (*PluginInfo, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%w: %s", ErrNoPlugin, dir)
	}
	at := place{Plugin, dir}
	p := &PluginInfo{Name: filepath.Base(dir), Dir: dir, id: l.c.opts.PluginIDs[dir]}
	if name, _, ok := strings.Cut(p.id, "@"); ok {
		p.Name = name
	}
	path := filepath.Join(dir, ".claude-plugin", "plugin.json")
	if f := l.read(at, path, "plugin"); f != nil {
		var manifest struct {
			Name, Version, Description string
		}
		if err := json.Unmarshal([]byte(f.Text), &manifest); err != nil {
			return nil, fmt.Errorf("plugin.json is not valid JSON: %w. Fix the file", err)
		}
		var all map[string]json.RawMessage
		_ = json.Unmarshal([]byte(f.Text), &all) // f.Text is an object
		for _, name := range parts {
			if raw := string(all[name]); raw != "" && raw != "null" && raw != "[]" && raw != "{}" {
				p.Ignored = append(p.Ignored, name)
			}
		}
		if p.Ignored != nil {
			l.problem(path, "without effect in this version: %s; the components of a plugin are in its directories", strings.Join(p.Ignored, ", "))
		}
		f.Text = ""
		if manifest.Name != "" {
			p.Name = manifest.Name
		}
		p.Version, p.Description = clean(manifest.Version, 100), clean(manifest.Description, 300)
	}
	if !namePattern().MatchString(p.Name) {
		return nil, fmt.Errorf("%q cannot be the name of a plugin", p.Name)
	}
	if slices.ContainsFunc(l.c.Plugins, func(o *PluginInfo) bool { return o.Err == nil && o.Name == p.Name }) {
		return nil, fmt.Errorf("there is another plugin with the name %s", p.Name)
	}
	inside := func(rel string, wantDir bool) string {
		path := filepath.Join(dir, rel)
		real, err := files.Resolve(path)
		bound, err2 := files.Resolve(dir)
		if err != nil || err2 != nil || !files.Within(bound, real) {
			return ""
		}
		if info, err := os.Stat(real); err != nil || info.IsDir() != wantDir || !wantDir && !info.Mode().IsRegular() {
			return ""
		}
		return path
	}
	p.Agents = inside("agents", true)
	p.Hooks = inside(filepath.Join("hooks", "hooks.json"), false)
	p.MCP = inside(".mcp.json", false)
	h := home{at, dir}
	l.commandsOf(h, p.Name)
	l.stylesOf(h, p.Name)
	return p, nil
}
