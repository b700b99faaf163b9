// Package agents holds the definitions of subagents: the built-in ones, and those that
// a host, a flag or a directory of Markdown files defines. It reads the given
// directories and nothing else, and runs nothing; the engine runs subagents.
package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/internal/frontmatter"
	"github.com/parley-go/parley/internal/regular"
	"github.com/parley-go/parley/wire"
)

// A Source is the origin of a definition.
type Source string

// The sources, from the weakest to the strongest: of two agents with the same name, the
// stronger one wins.
const (
	Builtin Source = "built-in"
	Plugin  Source = "plugin"
	User    Source = "userSettings"    // a file in the user's directory
	Project Source = "projectSettings" // a file of the project, which may be untrusted
	Flag    Source = "flagSettings"    // --agents
	Host    Source = "sdk"             // the host's initialize
)

// A Definition defines a kind of subagent.
type Definition struct {
	Name        string
	Description string   // tells the model when to use it
	Prompt      string   // its system prompt
	Tools       []string // rules for the tools that it has, such as "Read" or "Bash(git log:*)"; nil means all
	Disallowed  []string // tools that it does not have
	ReadOnly    bool     // none of its calls may change anything
	Model       string   // an alias or a model; empty or "inherit" means that of its parent
	Effort      string
	Mode        wire.PermissionMode // empty means that of its parent; it is never wider than that
	MaxTurns    int                 // 0 means no limit
	Background  bool                // nothing waits for it
	OmitContext bool                // it does not receive the project's instructions
	Reminder    string              // sent after its prompt
	Skills      []string            // skills that it starts with
	MCPServers  []*wire.MCPServerRef
	Hooks       json.RawMessage // as in settings; nil means none
	First       string          // its first prompt, if it is the conversation itself
	Places

	// Trusted allows its hooks and servers to run. Those of an untrusted file do not
	// run without it.
	Trusted bool

	Origin
}

// Origin is where a definition comes from.
type Origin struct {
	Source Source
	Path   string // of its file, if it comes from one
}

// Places are where an agent works and stores its memory.
type Places struct {
	Memory    string // where it stores its memory: "user", "project" or "local"; empty means nowhere
	Isolation string // "worktree" for its own worktree; empty means none
}

// FromWire returns the definition of an agent that a host or a flag defines.
func FromWire(name string, d *wire.AgentDefinition, source Source) (*Definition, error) {
	def := &Definition{
		Name: strings.TrimSpace(name), Description: d.Description, Prompt: d.Prompt, Tools: d.Tools, Disallowed: d.DisallowedTools,
		Model: d.Model, Effort: string(d.Effort), Mode: d.PermissionMode, MaxTurns: d.MaxTurns, Background: d.Background,
		OmitContext: d.OmitClaudeMD, Reminder: d.CriticalSystemReminder, Skills: d.Skills, MCPServers: d.MCPServers, Origin: Origin{Source: source},
		Places: Places{Memory: d.Memory}, First: d.InitialPrompt, Trusted: true,
	}
	if raw := d.Extra["mcpServers"]; raw != nil {
		def.MCPServers = serverRefs(raw)
	}
	return def, def.check()
}

// serverRefs parses a list of MCP servers. The configuration of a server that cannot be read is nil.
func serverRefs(raw json.RawMessage) (refs []*wire.MCPServerRef) {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return []*wire.MCPServerRef{{Configs: map[string]*wire.MCPServerConfig{"mcpServers": nil}}}
	}
	for i, item := range items {
		ref := &wire.MCPServerRef{}
		var configs map[string]json.RawMessage
		if json.Unmarshal(item, &ref.Name) == nil && ref.Name != "" {
			refs = append(refs, ref)
			continue
		}
		if json.Unmarshal(item, &configs) != nil || configs == nil {
			configs = map[string]json.RawMessage{fmt.Sprintf("mcpServers[%d]", i): nil}
		}
		ref.Configs = map[string]*wire.MCPServerConfig{}
		for name, config := range configs {
			if ref.Configs[name] = new(wire.MCPServerConfig); len(config) == 0 || config[0] != '{' || json.Unmarshal(config, ref.Configs[name]) != nil {
				ref.Configs[name] = nil
			}
		}
		refs = append(refs, ref)
	}
	return refs
}

// Parse parses the definitions of --agents: a JSON object of them by name.
func Parse(text string, source Source) ([]*Definition, error) {
	var byName map[string]*wire.AgentDefinition
	if err := json.Unmarshal([]byte(text), &byName); err != nil {
		return nil, fmt.Errorf(`the agents are not a JSON object such as {"NAME": {"description": "…", "prompt": "…"}}: %w`, err)
	}
	return FromMap(byName, source)
}

// FromMap returns the definitions of a host, sorted by name.
func FromMap(byName map[string]*wire.AgentDefinition, source Source) ([]*Definition, error) {
	var list []*Definition
	for name, d := range byName {
		if d == nil {
			return nil, fmt.Errorf("the agent %q has no definition", name)
		}
		def, err := FromWire(name, d, source)
		if err != nil {
			return nil, err
		}
		list = append(list, def)
	}
	slices.SortFunc(list, func(a, b *Definition) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// check returns an error if a definition is invalid.
func (d *Definition) check() error {
	switch {
	case d.Name == "":
		return errors.New("an agent has no name")
	case len(d.Name) > 200 || strings.ContainsAny(d.Name, "\n\r\x00()<>,"):
		return fmt.Errorf("the agent %.40q has an invalid name: use letters, digits, - and _", d.Name)
	case strings.TrimSpace(d.Description) == "":
		return fmt.Errorf("the agent %q has no description; write one, so that the model can decide when to use the agent", d.Name)
	case strings.TrimSpace(d.Prompt) == "":
		return fmt.Errorf("the agent %q has no prompt", d.Name)
	case d.MaxTurns < 0:
		return fmt.Errorf("maxTurns of the agent %q is less than zero", d.Name)
	}
	switch d.Memory {
	case "", "user", "project", "local":
	default:
		return fmt.Errorf("the agent %q has the unknown memory %q: use user, project or local", d.Name, d.Memory)
	}
	if d.Isolation != "" && d.Isolation != "worktree" {
		return fmt.Errorf("the agent %q has the unknown isolation %q: use worktree", d.Name, d.Isolation)
	}
	switch d.Mode {
	case "", wire.ModeDefault, wire.ModeAcceptEdits, wire.ModePlan, wire.ModeDontAsk, wire.ModeBypassPermissions, wire.ModeAuto, wire.ModeManual, wire.ModeDelegate:
		return nil
	}
	return fmt.Errorf("the agent %q has the unknown permission mode %q", d.Name, d.Mode)
}

// maxFiles is how many files of a directory are read.
const maxFiles = 500

// ReadDir reads the Markdown files of a directory and of those below it. A file that is
// not an agent is left out and listed among the problems; a directory that does not
// exist has none. trusted reports whether the hooks and servers of a file may run; nil
// means that none may.
func ReadDir(dir string, source Source, trusted func(path string, content []byte) bool) (list []*Definition, problems []error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, err)
		}
		return nil, problems
	}
	defer root.Close()
	return ReadRoot(root, dir, source, trusted)
}

// ReadRoot is like [ReadDir] for an open directory.
func ReadRoot(root *os.Root, dir string, source Source, trusted func(path string, content []byte) bool) (list []*Definition, problems []error) {
	files := 0
	fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.EqualFold(filepath.Ext(name), ".md") {
			return nil
		}
		if files++; files > maxFiles {
			problems = append(problems, fmt.Errorf("%s: only %d files are read", dir, maxFiles))
			return fs.SkipAll
		}
		def, err := readFile(root, dir, name, source, trusted)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", filepath.Join(dir, filepath.FromSlash(name)), err))
			return nil
		}
		list = append(list, def)
		return nil
	})
	return list, problems
}

func readFile(root *os.Root, dir, name string, source Source, trusted func(string, []byte) bool) (*Definition, error) {
	text, err := regular.ReadIn(root, filepath.FromSlash(name), frontmatter.MaxSize)
	if err != nil {
		return nil, err
	}
	def, err := parseFile(text, source)
	if err != nil {
		return nil, err
	}
	def.Path = filepath.Join(dir, filepath.FromSlash(name))
	def.Trusted = trusted != nil && trusted(def.Path, text)
	return def, nil
}

// ErrNoHeader means that a file has no header and is not an agent, such as a README.
var ErrNoHeader = errors.New("it has no header with a name and a description")

// parseFile parses the definition in a file.
func parseFile(text []byte, source Source) (*Definition, error) {
	doc, err := frontmatter.Parse(text)
	if err != nil {
		return nil, err
	}
	if doc.Problem != "" {
		return nil, errors.New(doc.Problem)
	}
	if len(doc.Fields) == 0 {
		return nil, ErrNoHeader
	}
	if !doc.Has("name") && !doc.Has("description") {
		return nil, errors.New("its header has neither a name nor a description")
	}
	def := &Definition{
		Name: doc.String("name"), Description: doc.String("description"), Prompt: doc.Body,
		Tools: doc.List("tools"), Disallowed: doc.List("disallowedTools"), Skills: doc.List("skills"),
		Model: doc.String("model"), Effort: doc.String("effort"), Mode: wire.PermissionMode(doc.String("permissionMode")), Hooks: doc.JSON("hooks"), Origin: Origin{Source: source},
		Places: Places{Memory: doc.String("memory"), Isolation: doc.String("isolation")}, First: doc.String("initialPrompt"),
	}
	if doc.Has("maxTurns") {
		n, ok := doc.Int("maxTurns")
		if !ok || n <= 0 {
			return nil, errors.New("maxTurns is not a number above zero")
		}
		def.MaxTurns = n
	}
	def.Background, _ = doc.Bool("background")
	def.OmitContext, _ = doc.Bool("omitClaudeMd")
	if raw := doc.JSON("mcpServers"); raw != nil {
		// A list of names and configurations, a single name, or configurations by name.
		switch raw[0] {
		case '"':
			for _, name := range doc.List("mcpServers") {
				def.MCPServers = append(def.MCPServers, &wire.MCPServerRef{Name: name})
			}
		case '{':
			raw = append(append(json.RawMessage("["), raw...), ']')
			fallthrough
		default:
			def.MCPServers = serverRefs(raw)
		}
	}
	if slices.Equal(def.Tools, []string{"*"}) {
		def.Tools = nil
	}
	return def, def.check()
}

// Merge merges lists of agents and sorts them by name. If a name occurs several times,
// the last one wins.
func Merge(lists ...[]*Definition) []*Definition {
	byName := map[string]*Definition{}
	for _, list := range lists {
		for _, d := range list {
			byName[d.Name] = d
		}
	}
	all := make([]*Definition, 0, len(byName))
	for _, d := range byName {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *Definition) int {
		if c := strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all
}
