package policy

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/policy/shell"
	"github.com/parley-go/parley/internal/spelling"
	"github.com/parley-go/parley/wire"
)

// A Finding is a warning about a rule for its author, mostly that the rule can never
// match.
type Finding struct {
	Rule  Rule
	Never bool   // the rule can never have an effect
	Text  string // describes the problem
	Hint  string // what to write instead
}

// String returns the finding for people, with the file and line of the rule.
func (f Finding) String() string {
	text := fmt.Sprintf("%s: the %s rule %s %s", f.Rule.Source, f.Rule.Behavior, f.Rule, f.Text)
	if f.Hint != "" {
		text += ": " + f.Hint
	}
	return text
}

// toolNames are the tools that rules may name; those of MCP servers start with mcp__.
var toolNames = strings.Fields(`Agent AskUserQuestion Bash BashOutput Config CronCreate CronDelete CronList Edit EnterPlanMode EnterWorktree
ExitPlanMode ExitWorktree Glob Grep KillBash KillShell LS LSP ListMcpResources ListMcpResourcesTool Monitor MultiEdit NotebookEdit NotebookRead
PowerShell Read ReadMcpResource ReadMcpResourceDir ReadMcpResourceDirTool ReadMcpResourceTool ScheduleWakeup SendMessage Skill SlashCommand
StructuredOutput Task TaskCreate TaskGet TaskList TaskOutput TaskStop TaskUpdate TodoRead TodoWrite ToolSearch WebFetch WebSearch Workflow Write`)

// Lint finds rules that can never match, or that do not mean what they seem to. tools
// are additional names of tools; roots and home are as in a [Request], and may be
// empty.
func Lint(rules []Rule, tools []string, roots []string, home string) []Finding {
	var all []Finding
	for i := range rules {
		r := &rules[i]
		add := func(never bool, text, hint string) {
			all = append(all, Finding{Rule: *r, Never: never, Text: text, Hint: hint})
		}
		switch {
		case strings.HasPrefix(r.Tool, "mcp__"):
			if r.Content != "" {
				add(true, "never matches", "a rule for an MCP tool takes nothing in parentheses")
			}
			if strings.Contains(r.Tool, " ") {
				add(true, "never matches", "the name of an MCP tool contains no spaces")
			}
		case strings.Contains(r.Tool, "*"):
			if r.Behavior == wire.BehaviorAllow {
				add(true, "never matches", "an allow rule names one tool; * in the name of a tool is for deny and ask rules")
			}
		case !slices.Contains(toolNames, r.Tool) && !slices.Contains(tools, r.Tool):
			hint := "tool names look like Bash, Read or mcp__server__tool"
			if name := spelling.Closest(r.Tool, slices.Concat(toolNames, tools)); name != "" {
				hint = "did you mean " + name + "?"
			}
			for _, name := range toolNames {
				if strings.EqualFold(name, r.Tool) {
					hint = "the tool is called " + name
				}
			}
			add(true, "never matches: there is no such tool", hint)
		case r.Content == "":
		case isFileTool(r.Tool):
			lintFiles(r, roots, home, add)
		case r.Tool == "Bash", r.Tool == "PowerShell":
			lintCommand(r, add)
		case r.Tool == "WebFetch":
			lintDomain(r, add)
		case r.Tool == "Task", r.Tool == "Agent", r.Tool == "Skill", r.Tool == "SlashCommand", slices.Contains(tools, r.Tool):
		default:
			add(true, "never matches", r.Tool+" takes nothing in parentheses")
		}
		if r.Behavior != wire.BehaviorDeny {
			for k := range rules {
				if d := &rules[k]; d.Behavior == wire.BehaviorDeny && d.Tool == r.Tool && (d.Content == "" || d.Content == r.Content) {
					add(true, "never takes effect", "the rule "+d.String()+" of "+d.Source.String()+" denies it")
					break
				}
			}
		}
	}
	return all
}

func lintFiles(r *Rule, roots []string, home string, add func(bool, string, string)) {
	c := filepath.ToSlash(r.Content)
	switch {
	case strings.HasPrefix(c, "~") && c != "~" && !strings.HasPrefix(c, "~/"):
		add(true, "never matches", "only ~/ is supported; write another user's home directory as //home/name")
	case strings.HasPrefix(c, "~") && home == "" && roots != nil:
		add(true, "never matches", "the home directory is not known")
	case strings.Contains(c, "$"):
		add(false, "contains a $, which is matched literally", "variables are not replaced in rules")
	case strings.Contains(strings.TrimPrefix(strings.TrimPrefix(c, "//"), "../"), "/../"):
		add(true, "never matches", "paths are compared after .. is resolved; write the rule without it")
	case strings.HasPrefix(c, "/") && !strings.HasPrefix(c, "//"):
		base := r.Source.Base
		if base == "" && len(roots) > 0 {
			base = roots[0]
		}
		first, _, _ := strings.Cut(c[1:], "/")
		if base == "" || strings.ContainsAny(first, "*?[{") {
			return
		}
		if _, err := os.Lstat(filepath.Join(base, first)); err == nil {
			return
		}
		if _, err := os.Lstat("/" + first); err == nil {
			add(false, "begins at "+base, "a path from the root of the file system is written with two slashes: /"+c)
		}
	case !isReadTool(r.Tool) && r.Tool != "Edit":
		add(false, "applies to every tool that changes files", "write Edit("+r.Content+") to make that clear")
	}
}

func lintCommand(r *Rule, add func(bool, string, string)) {
	c := strings.TrimSpace(r.Content)
	p := newCommandPattern(c)
	wild := p.prefix || p.glob != ""
	s := shell.Analyze(strings.TrimSuffix(strings.TrimSuffix(c, ":*"), " *"), shell.Env{})
	switch {
	case strings.Contains(strings.TrimSuffix(c, ":*"), ":*"):
		add(true, "never matches", "\":*\" is only special at the end; use * elsewhere")
	case r.Behavior == wire.BehaviorAllow && wild && s.Unproven != "" && !strings.Contains(s.Unproven, "which files"):
		add(true, "never matches", s.Unproven+", so only a rule with the whole command can allow it")
	case commands(s) > 1 && wild:
		add(true, "never matches", "each command of a list is checked separately; write a rule for each")
	case r.Behavior == wire.BehaviorAllow && commands(s) == 1 && wild && p.program() == "":
		add(false, "applies to every program", "begin it with the name of a program")
	case r.Behavior == wire.BehaviorAllow && len(s.Calls) > 0 && wild && len(p.words) == 1:
		if shell.RunsOthers(p.words[0]) {
			add(false, "does not allow what "+p.words[0]+" runs", "that needs a rule of its own")
		}
	}
}

func lintDomain(r *Rule, add func(bool, string, string)) {
	domain, ok := strings.CutPrefix(r.Content, "domain:")
	if !ok {
		if u, err := url.Parse(strings.ReplaceAll(r.Content, "*", "x")); err != nil || u.Scheme == "" || u.Host == "" {
			add(true, "never matches", "write WebFetch(domain:"+r.Content+")")
		}
		return
	}
	if domain == "" || strings.ContainsAny(strings.TrimPrefix(domain, "*."), "/:*@ ") {
		add(true, "never matches", "domain: is followed by a host name, or by *. and a host name, and nothing else")
	}
}
