package agent

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/parley-go/parley/engine/agents"
)

// agents returns the subagents that the model can start: those that come with us,
// those of the files that the setting sources name, those of the flags. None if
// the tool that starts them is taken away. A file that is no agent is told to the
// log and left out.
func (set *setup) agents() []*agents.Definition {
	f := set.flags
	named := func(list []string) bool { return slices.Contains(list, "Task") || slices.Contains(list, "Agent") }
	if f.Tools != nil && !slices.Contains(f.Tools, "default") && !named(f.Tools) || f.Tools == nil && f.Bare || named(f.DisallowedTools) {
		return nil
	}
	lists := [][]*agents.Definition{agents.BuiltIn()}
	for _, d := range set.agentDirs() {
		list, problems := agents.ReadDir(d.path, d.source)
		for _, err := range problems {
			if set.cfg.Logger != nil {
				set.cfg.Logger.Warn("an agent cannot be used", "error", err)
			}
		}
		lists = append(lists, list)
	}
	return agents.Merge(append(lists, f.Agents)...)
}

type agentDir struct {
	path   string
	source agents.Source
}

// agentDirs returns the directories that agents are in, the strongest last.
func (set *setup) agentDirs() []agentDir {
	sources := set.flags.SettingSources
	if sources == nil && !set.flags.Bare {
		sources = set.cfg.SettingSources
	}
	from := func(source string) bool { return slices.Contains(sources, source) }
	var dirs []agentDir
	if from("user") {
		if dir := set.cfg.ConfigDir(); dir != "" {
			dirs = append(dirs, agentDir{filepath.Join(dir, "agents"), agents.User})
		}
	}
	if from("project") {
		for _, dir := range set.projectDirs() {
			dirs = append(dirs, agentDir{filepath.Join(dir, ".claude", "agents"), agents.Project})
		}
	}
	return dirs
}

// projectDirs returns the working directory and those above it up to that of its
// repository, from the top down. Outside of a repository it is alone.
func (set *setup) projectDirs() []string {
	dirs := []string{}
	for dir := set.cfg.Cwd; ; dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			slices.Reverse(dirs)
			return dirs
		}
		if dir == filepath.Dir(dir) || dir == set.cfg.Home {
			return []string{set.cfg.Cwd}
		}
	}
}
