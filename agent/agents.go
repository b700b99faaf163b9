package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/parley-go/parley/engine"
	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/wire"
)

// agents returns the subagents that the model can start: built-in ones, those in files
// of the setting sources, and those of the flags. It returns none if the tool that
// starts them is disabled. A file that cannot be read is left out with a warning.
func (set *setup) agents(p *project.Context) []*agents.Definition {
	set.agentList = set.allAgents(p)
	if !set.offersTool("Task", "Agent") {
		return nil
	}
	return set.agentList
}

// noSendMessage reports whether the tool that sends messages to subagents is disabled.
func (set *setup) noSendMessage() bool {
	f := set.flags
	return f.Tools != nil && !slices.Contains(f.Tools, "default") && !slices.Contains(f.Tools, "SendMessage") || set.withholds("SendMessage")
}

// allAgents reads the agents from all sources.
func (set *setup) allAgents(p *project.Context) []*agents.Definition {
	lists := [][]*agents.Definition{agents.BuiltIn(), set.pluginAgents(p)}
	for _, d := range set.agentDirs() {
		trusted := ofUser
		if d.source == agents.Project {
			trusted = set.trustsFile
		}
		lists = append(lists, set.readAgents(d, trusted))
	}
	return agents.Merge(append(lists, set.flags.Agents)...)
}

// pluginAgents reads the agents of plugins, which are named PLUGIN:AGENT.
func (set *setup) pluginAgents(p *project.Context) (all []*agents.Definition) {
	for _, plugin := range p.Plugins {
		if plugin.Agents == "" {
			continue
		}
		for _, d := range set.readAgents(agentDir{path: plugin.Agents, source: agents.Plugin}, ofUser) {
			d.Name = plugin.Name + ":" + d.Name
			if d.Hooks != nil {
				d.Hooks = json.RawMessage(strings.ReplaceAll(string(d.Hooks), pluginRoot, jsonText(plugin.Dir)))
			}
			all = append(all, d)
		}
	}
	return all
}

// ofUser trusts files that the user wrote or named.
func ofUser(string, []byte) bool { return true }

func (set *setup) readAgents(dir agentDir, trusted func(string, []byte) bool) []*agents.Definition {
	var list []*agents.Definition
	var problems []error
	if dir.bound == "" {
		list, problems = agents.ReadDir(dir.path, dir.source, trusted)
	} else if root, _, err := files.OpenDirectory(&tool.Call{Env: &tool.Env{Roots: []string{dir.bound}}}, dir.path); err == nil {
		list, problems = agents.ReadRoot(root, dir.path, dir.source, trusted)
		root.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		problems = []error{err}
	}
	for _, err := range problems {
		if !errors.Is(err, agents.ErrNoHeader) {
			set.skipped = append(set.skipped, err.Error())
		}
	}
	for _, d := range list {
		for _, name := range slices.Concat(d.Tools, d.Disallowed) {
			name, _, _ = strings.Cut(name, "(")
			if name == "" || name == "*" || strings.HasPrefix(name, "mcp__") {
				continue
			}
			for _, f := range policy.Lint([]policy.Rule{{Tool: name}}, set.toolNames(), nil, "") {
				set.skipped = append(set.skipped, fmt.Sprintf("%s: there is no tool %s; %s", d.Path, name, f.Hint))
			}
		}
	}
	return list
}

// findAgent returns an agent by its name.
func findAgent(list []*agents.Definition, name string) *agents.Definition {
	for _, d := range list {
		if d.Name == name {
			return d
		}
	}
	return nil
}

// mainAgent returns the agent of --agent, without the properties that other flags
// override; nil if it is not in the list.
func (set *setup) mainAgent(list []*agents.Definition) *agents.Definition {
	found := findAgent(list, set.flags.Agent)
	if found == nil {
		return nil
	}
	d, f := *found, set.flags
	if f.Model != "" {
		d.Model = ""
	}
	if f.PermissionMode != "" || f.SkipPermissions {
		d.Mode = ""
	}
	if f.MaxTurns != 0 {
		d.MaxTurns = 0
	}
	if f.Effort != "" {
		d.Effort = ""
	}
	return &d
}

// agentParts prepares the parts of an agent: hooks, MCP servers, memory. The parts from
// a file of the project need trust; without it they are reported to the host.
func (s *server) agentParts(def *agents.Definition) (*engine.AgentParts, error) {
	set := s.set
	parts := &engine.AgentParts{}
	var servers []mcp.Server
	for _, ref := range def.MCPServers {
		for _, name := range slices.Sorted(maps.Keys(ref.Configs)) {
			raw, err := json.Marshal(ref.Configs[name]) // a copy, because it is changed below
			if err != nil {
				return nil, err
			}
			cfg, err := parseServer(raw)
			if err != nil {
				s.sendMessage(&wire.Informational{Content: fmt.Sprintf("The agent %s: %s", def.Name, leftOut(name, err)), Level: "warning"})
				continue
			}
			if set.prefs().Admits(name, raw) && !(def.Path != "" && set.flags.StrictMCP) {
				servers = append(servers, mcp.Server{Name: name, Config: cfg})
			}
		}
	}
	if !def.Trusted && (def.Hooks != nil || servers != nil) {
		s.sendMessage(&wire.Informational{Content: fmt.Sprintf("The hooks and MCP servers of the agent %s are left out: %s is not trusted. \"parley trust\" shows it.", def.Name, def.Path),
			Level: "warning"})
		servers = nil
	}
	var runner *hook.Runner
	if def.Hooks != nil {
		text, err := json.Marshal(map[string]json.RawMessage{"hooks": def.Hooks})
		if err != nil {
			return nil, err
		}
		hooks, err := set.prefs().HooksIn(def.Path, text)
		if err != nil {
			return nil, err
		}
		// For a subagent, the end of its turn is a SubagentStop event.
		for _, h := range hooks {
			if h.Event == wire.EventStop {
				h.Event = wire.EventSubagentStop
				hooks = append(hooks, h)
			}
		}
		if !def.Trusted {
			hooks = settings.Guarding(hooks)
		}
		if runner, err = s.newRunner(hooks); err != nil {
			return nil, err
		}
		parts.Hooks = runner.Run
	}
	if servers != nil {
		vars := maps.Clone(set.vars)
		if def.Source == agents.Project {
			maps.DeleteFunc(vars, func(k, _ string) bool { return isCredential(k) })
		}
		source := "dynamic"
		if def.Source == agents.Project {
			source = "project"
		}
		parts.MCP = s.newManager()
		for _, srv := range servers {
			expand(srv.Config, vars)
			parts.MCP.Set(source, srv)
		}
	}
	if text := set.agentMemory(def); text != "" {
		parts.Context = append(parts.Context, text)
	}
	parts.Close = func() {
		runner.Close()
		if parts.MCP != nil {
			parts.MCP.Close()
		}
	}
	return parts, nil
}

// Limits of the memory that an agent receives.
const (
	memoryLines = 200
	memoryBytes = 25 << 10
)

// agentMemory describes the directory of an agent's memory to the agent, with its
// content.
func (set *setup) agentMemory(def *agents.Definition) string {
	base, dir := set.cfg.Cwd, ".claude/agent-memory"
	sources := set.prefs().Sources()
	on := sources.Project
	switch def.Memory {
	case "user":
		base, dir, on = set.cfg.ConfigDir(), "agent-memory", sources.User
	case "project":
	case "local":
		dir, on = ".claude/agent-memory-local", sources.Local
	default:
		return ""
	}
	if base == "" || !on {
		return ""
	}
	dir = filepath.Join(filepath.FromSlash(dir), unsafeName().ReplaceAllString(def.Name, "-"))
	text := fmt.Sprintf("You have a memory that outlives this conversation, in %s. Write what is worth knowing next time to MEMORY.md there, in a few lines; put details into files beside it, and name them in MEMORY.md.",
		filepath.Join(base, dir))
	// A link must not lead out of the project, nor to a file that a rule hides.
	at, err := files.Open(&tool.Call{Env: &tool.Env{Roots: []string{base}}}, filepath.Join(base, dir, "MEMORY.md"))
	if err != nil {
		return text
	}
	defer at.Close()
	f, info, err := at.Read()
	if err != nil {
		return text + " It is empty so far."
	}
	defer f.Close()
	if set.hides()(at.Real, &tool.Target{Path: at.Real, Info: info}) {
		return text
	}
	said, _ := io.ReadAll(io.LimitReader(f, memoryBytes))
	lines := strings.SplitAfter(strings.ToValidUTF8(string(said), "�"), "\n")
	lines = lines[:min(len(lines), memoryLines)]
	return text + "\n\nMEMORY.md says:\n\n" + strings.TrimSpace(strings.Join(lines, ""))
}

var unsafeName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9_-]`) })

type agentDir struct {
	path   string
	bound  string // links must not lead out of it, unless it is empty
	source agents.Source
}

// agentDirs returns the directories of agents, the strongest last.
func (set *setup) agentDirs() []agentDir {
	sources := set.flags.SettingSources
	if sources == nil && !set.flags.Bare {
		sources = set.cfg.SettingSources
	}
	from := func(source string) bool { return slices.Contains(sources, source) }
	var dirs []agentDir
	if from("user") {
		if dir := set.cfg.ConfigDir(); dir != "" {
			dirs = append(dirs, agentDir{path: filepath.Join(dir, "agents"), source: agents.User})
		}
	}
	if from("project") {
		above := set.projectDirs()
		for _, dir := range above {
			dirs = append(dirs, agentDir{filepath.Join(dir, ".claude", "agents"), above[0], agents.Project})
		}
	}
	return dirs
}

// projectDirs returns the directory of the project and those above it up to the root of its
// repository, from the top down. Outside of a repository it is alone.
func (set *setup) projectDirs() []string {
	dirs := []string{}
	for dir := set.projectRoot(); ; dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			slices.Reverse(dirs)
			return dirs
		}
		if dir == filepath.Dir(dir) || dir == set.cfg.Home {
			return []string{set.projectRoot()}
		}
	}
}
