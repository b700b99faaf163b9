package project

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/parley-go/parley/engine/tool/files"
)

// A PluginInfo is a plugin. Its commands, skills and styles are among those of the
// [Context]; the paths are for those who read the rest. A path is empty if there is
// nothing there.
type PluginInfo struct {
	Name        string
	Version     string
	Description string
	Dir         string
	Agents      string // a directory of agents
	Hooks       string // a file of hooks
	MCP         string // a file of MCP servers
	Err         error  // why it is not loaded; then only Name and Dir are set
}

// plugins reads the plugins that the user named.
func (l *loader) plugins() {
	for i, named := range l.c.opts.PluginDirs {
		dir := named
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(l.c.opts.Cwd, dir)
		}
		p, err := l.plugin(filepath.Clean(dir))
		if err != nil {
			if errors.Is(err, ErrNoPlugin) {
				l.problem(dir, "--plugin-dir: there is no such directory. Create it, or correct the path")
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

// ErrNoPlugin says that there is no such directory.
var ErrNoPlugin = errors.New("Path not found")

func (l *loader) plugin(dir string) (*PluginInfo, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%w: %s", ErrNoPlugin, dir)
	}
	at := place{Plugin, dir}
	p := &PluginInfo{Name: filepath.Base(dir), Dir: dir}
	path := filepath.Join(dir, ".claude-plugin", "plugin.json")
	if f := l.read(at, path, "plugin"); f != nil {
		var manifest struct {
			Name, Version, Description string
		}
		if err := json.Unmarshal([]byte(f.Text), &manifest); err != nil {
			return nil, fmt.Errorf("plugin.json cannot be read: %w", err)
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
