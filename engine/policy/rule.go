package policy

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// A Layer is the origin of a rule.
type Layer string

// The layers, from the strongest to the weakest where settings override each other. The order
// does not matter for rules: deny beats ask and ask beats allow, wherever they are written.
const (
	LayerManaged Layer = "managed" // the administrator of the machine; updates cannot remove it
	LayerCLI     Layer = "cli"     // --allowedTools, --disallowedTools
	LayerFlag    Layer = "flag"    // --settings
	LayerLocal   Layer = "local"   // .claude/settings.local.json of the project
	LayerProject Layer = "project" // .claude/settings.json of the project
	LayerUser    Layer = "user"    // .claude/settings.json in the home directory
	LayerSession Layer = "session" // added during this conversation, and gone with it
	LayerHost    Layer = "host"    // the program that started the agent, for its own needs
)

// hostNames are the names of the layers in the protocol.
var hostNames = map[Layer]string{LayerManaged: "policySettings", LayerCLI: "cliArg", LayerFlag: "flagSettings", LayerLocal: "localSettings",
	LayerProject: "projectSettings", LayerUser: "userSettings", LayerSession: "session", LayerHost: "session"}

// ProtocolName returns the name of the layer in the protocol, such as "userSettings".
func (l Layer) ProtocolName() string { return cmp.Or(hostNames[l], "command") }

// LayerOf returns the layer that an update of the protocol changes. No destination means the
// session.
func LayerOf(d wire.PermissionDestination) Layer {
	switch d {
	case wire.DestinationUserSettings:
		return LayerUser
	case wire.DestinationProjectSettings:
		return LayerProject
	case wire.DestinationLocalSettings:
		return LayerLocal
	case wire.DestinationCLIArg:
		return LayerCLI
	case "", wire.DestinationSession:
		return LayerSession
	}
	return Layer(d)
}

// A Source is where a rule is written.
type Source struct {
	Layer Layer  `json:"layer"`
	File  string `json:"file,omitempty"` // a file or a flag
	Line  int    `json:"line,omitempty"` // from 1; 0 if unknown
	// Base is the directory to which "/x" in a rule about files is relative: for settings of a
	// project, its directory. Empty means the directory where the conversation started.
	Base string `json:"base,omitempty"`
}

// BuiltIn is the Source.File of built-in rules. Such a rule denies calls that certainly match,
// but does not ask about calls that the package does not understand: a user who wrote no rule
// would not expect that.
const BuiltIn = "built in"

// ForFile returns the rule about one file, whatever characters its path has.
func ForFile(tool, path string, behavior wire.PermissionBehavior, source Source) (Rule, error) {
	return Parse(tool+"(/"+escape(filepath.ToSlash(path))+")", behavior, source)
}

// String formats the source for people: "settings.json:12 (project)".
func (s Source) String() string {
	where := s.File
	if where != "" && s.Line > 0 {
		where += ":" + strconv.Itoa(s.Line)
	}
	switch {
	case where == "" && s.Layer == "":
		return "an unnamed place"
	case where == "":
		return string(s.Layer)
	case s.Layer == "":
		return where
	}
	return where + " (" + string(s.Layer) + ")"
}

// A Rule names a tool, or some of its calls, and decides about them.
type Rule struct {
	Behavior wire.PermissionBehavior `json:"behavior"`
	Tool     string                  `json:"tool"`              // such as "Bash" or "mcp__server"
	Content  string                  `json:"content,omitempty"` // which calls, such as "git diff:*"; empty means all
	Source   Source                  `json:"source"`

	pattern *commandPattern // cached pattern of a rule about commands
}

// command returns the command pattern of the rule.
func (r *Rule) command() *commandPattern {
	if r.pattern == nil {
		return newCommandPattern(r.Content)
	}
	return r.pattern
}

// String returns the rule as it is written.
func (r Rule) String() string {
	if r.Content == "" {
		return r.Tool
	}
	return r.Tool + "(" + r.Content + ")"
}

// Parse parses a rule such as "Bash(git diff:*)".
func Parse(text string, behavior wire.PermissionBehavior, source Source) (Rule, error) {
	text = strings.TrimSpace(text)
	name, content, found := strings.Cut(text, "(")
	name = strings.TrimSpace(name)
	if found {
		if !strings.HasSuffix(content, ")") {
			return Rule{}, fmt.Errorf("policy: rule %q of %s has no closing parenthesis", text, source)
		}
		content = strings.TrimSuffix(content, ")")
	}
	if name == "" {
		return Rule{}, fmt.Errorf("policy: rule %q of %s names no tool", text, source)
	}
	if content == "*" || content == ":*" {
		content = ""
	}
	if isFileTool(name) {
		if _, err := doublestar.Match(content, ""); err != nil {
			return Rule{}, fmt.Errorf("policy: the pattern of the rule %q of %s cannot be read", text, source)
		}
	}
	return Rule{Behavior: behavior, Tool: name, Content: content, Source: source}, nil
}

// ParseList parses rules that are separated by commas or spaces outside of parentheses.
func ParseList(text string, behavior wire.PermissionBehavior, source Source) ([]Rule, error) {
	var rules []Rule
	for _, item := range Split(text) {
		r, err := Parse(item, behavior, source)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// Split splits a list at commas and spaces outside of parentheses.
func Split(text string) []string {
	var items []string
	depth, start := 0, 0
	flush := func(end int) {
		if item := strings.TrimSpace(text[start:end]); item != "" {
			items = append(items, item)
		}
	}
	for i, r := range text {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		case ',', ' ', '\n', '\t':
			if depth <= 0 {
				flush(i)
				start = i + 1
			}
		}
	}
	flush(len(text))
	return items
}

// NamesTool reports whether the rule names a tool, by its name and its other names.
func (r *Rule) NamesTool(names ...string) bool {
	return r.names(&tool.Spec{Name: names[0], Aliases: names[1:]})
}

// names reports whether the rule names a tool. In a deny or ask rule, * stands for any part of the name.
func (r *Rule) names(spec *tool.Spec) bool {
	if r.Tool == spec.Name || r.Tool == spec.RulesOf && r.Tool != "" || slices.Contains(spec.Aliases, r.Tool) {
		return true
	}
	if r.Behavior != wire.BehaviorAllow && strings.Contains(r.Tool, "*") {
		match := func(name string) bool { return wildcard(r.Tool, name) }
		return match(spec.Name) || spec.RulesOf != "" && match(spec.RulesOf) || slices.ContainsFunc(spec.Aliases, match)
	}
	if strings.HasPrefix(r.Tool, "mcp__") && strings.HasPrefix(spec.Name, "mcp__") {
		return r.namesServer(spec)
	}
	return alias(r.Tool) == alias(spec.Name)
}

// MatchesName reports whether a rule about an agent or a skill matches a name, ignoring case.
func (r *Rule) MatchesName(name string) bool {
	return matchName(strings.ToLower(r.Content), strings.ToLower(name))
}

// namesServer reports whether the rule names a tool of an MCP server: all tools of the
// server, or those that match a wildcard. An allow rule names one server: the text before the
// last two underscores of mcp__server__*, else before the first two. A deny or ask rule
// applies to every server that may be meant.
func (r *Rule) namesServer(spec *tool.Spec) bool {
	if r.Behavior != wire.BehaviorAllow {
		return strings.HasPrefix(spec.Name, r.Tool+"__")
	}
	server, rest := spec.Server, strings.TrimPrefix(r.Tool, "mcp__")
	if server == "" {
		var found bool
		if server, _, found = strings.Cut(strings.TrimPrefix(spec.Name, "mcp__"), "__"); !found {
			return false
		}
	}
	if whole, ok := strings.CutSuffix(rest, "__*"); ok && !strings.Contains(whole, "*") {
		return whole == server
	}
	if !strings.Contains(rest, "*") {
		return rest == server && !strings.Contains(rest, "__")
	}
	named, _, _ := strings.Cut(rest, "__")
	return (named == server || strings.Contains(named, "*")) && wildcard(r.Tool, spec.Name)
}

// alias returns the canonical name of a tool with several names.
func alias(name string) string {
	switch name {
	case "Agent":
		return "Task"
	case "SlashCommand":
		return "Skill"
	case "BashOutput", "AgentOutputTool":
		return "TaskOutput"
	case "KillShell", "KillBash":
		return "TaskStop"
	}
	return name
}

// isFileTool reports whether a tool's name in a rule with content stands for files that are
// read or changed, by whatever tool.
func isFileTool(name string) bool { return isReadTool(name) || isEditTool(name) }

func isReadTool(name string) bool {
	switch name {
	case "Read", "Glob", "Grep", "LS", "NotebookRead":
		return true
	}
	return false
}

func isEditTool(name string) bool {
	switch name {
	case "Edit", "Write", "MultiEdit", "NotebookEdit":
		return true
	}
	return false
}
