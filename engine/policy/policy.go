// Package policy decides whether a tool call may run. It is the one place that
// every effect passes. Rules name resources: deny wins over ask, ask over allow,
// whatever the mode; what is not understood is asked.
package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// A Rule names a tool, or some of its calls, and says what happens to them.
type Rule struct {
	Behavior wire.PermissionBehavior
	Tool     string // such as "Bash" or "mcp__server"
	Content  string // which calls, such as "git diff:*"; empty means all
	Source   string // where it is written, for people
}

// String returns the rule as it is written.
func (r Rule) String() string {
	if r.Content == "" {
		return r.Tool
	}
	return r.Tool + "(" + r.Content + ")"
}

// Parse reads a rule such as "Bash(git diff:*)".
func Parse(text string, behavior wire.PermissionBehavior, source string) (Rule, error) {
	text = strings.TrimSpace(text)
	name, content, found := strings.Cut(text, "(")
	if found {
		if !strings.HasSuffix(content, ")") {
			return Rule{}, fmt.Errorf("policy: rule %q of %s has no closing parenthesis", text, source)
		}
		content = strings.TrimSuffix(content, ")")
	}
	if name == "" {
		return Rule{}, fmt.Errorf("policy: rule %q of %s names no tool", text, source)
	}
	if content == "*" {
		content = ""
	}
	return Rule{Behavior: behavior, Tool: name, Content: content, Source: source}, nil
}

// ParseList reads rules that are separated by commas or spaces outside of
// parentheses.
func ParseList(text string, behavior wire.PermissionBehavior, source string) ([]Rule, error) {
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

// Split splits a list at commas and spaces that are outside of parentheses.
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

// A Policy is a set of rules. The zero value has none. It is not safe for
// concurrent use.
type Policy struct {
	Rules []Rule
}

// A Request is what is to be decided.
type Request struct {
	Tool   *tool.Spec
	Access []tool.Access
	Mode   wire.PermissionMode
	Roots  []string // directories that may be worked in
}

// A Decision is what is to happen, and why.
type Decision struct {
	Behavior   wire.PermissionBehavior
	Reason     string // for people
	ReasonType string // "rule", "mode", "workingDir" … as the protocol has it
	Rule       *Rule  // the one that decided, if one did
	Path       string // the file that made it so, if one did
}

// Decide decides about a call. Deny rules come first, then ask rules, then the
// mode, then allow rules; what nothing decides is asked.
func (p *Policy) Decide(req *Request) Decision {
	if r := p.find(wire.BehaviorDeny, req, suspects); r != nil {
		return Decision{Behavior: wire.BehaviorDeny, Reason: "denied by the rule " + r.String(), ReasonType: "rule", Rule: r}
	}
	if r := p.find(wire.BehaviorAsk, req, suspects); r != nil {
		return p.unasked(req, Decision{Behavior: wire.BehaviorAsk, Reason: "the rule " + r.String() + " asks", ReasonType: "rule", Rule: r})
	}
	outside := outsidePath(req)
	switch req.Mode {
	case wire.ModeBypassPermissions:
		return Decision{Behavior: wire.BehaviorAllow, ReasonType: "mode"}
	case wire.ModePlan:
		if !req.harmless() && !req.Tool.ReadOnly {
			return Decision{Behavior: wire.BehaviorDeny, ReasonType: "mode",
				Reason: "plan mode changes nothing: look, then present the plan with ExitPlanMode"}
		}
	case wire.ModeAcceptEdits:
		if req.editsOnly() && outside == "" {
			return Decision{Behavior: wire.BehaviorAllow, ReasonType: "mode"}
		}
	}
	if r := p.allowed(req); r != nil {
		return Decision{Behavior: wire.BehaviorAllow, ReasonType: "rule", Rule: r}
	}
	if req.harmless() {
		if outside == "" {
			return Decision{Behavior: wire.BehaviorAllow, ReasonType: "mode"}
		}
		return p.unasked(req, Decision{Behavior: wire.BehaviorAsk, ReasonType: "workingDir", Path: outside,
			Reason: "Path is outside allowed working directories"})
	}
	return p.unasked(req, Decision{Behavior: wire.BehaviorAsk, Path: outside})
}

// unasked turns a question into what the mode makes of it.
func (p *Policy) unasked(req *Request, d Decision) Decision {
	if req.Mode == wire.ModeDontAsk {
		d.Behavior, d.ReasonType = wire.BehaviorDeny, "mode"
		d.Reason = "nobody is asked in this mode, and no rule allows the call"
	}
	return d
}

// harmless reports whether a call changes nothing.
func (req *Request) harmless() bool {
	if req.Tool.ReadOnly {
		// What an MCP server says of its own tools proves nothing.
		return !strings.HasPrefix(req.Tool.Name, "mcp__")
	}
	for _, a := range req.Access {
		if a.Kind != tool.Read && (a.Kind != tool.Execute || !quiet(a.Command)) {
			return false
		}
	}
	return len(req.Access) > 0
}

func (req *Request) editsOnly() bool {
	for _, a := range req.Access {
		if a.Kind != tool.Read && a.Kind != tool.Write {
			return false
		}
	}
	return len(req.Access) > 0
}

// outsidePath returns a path of the call that is in none of the roots.
func outsidePath(req *Request) string {
	for _, a := range req.Access {
		if a.Path != "" && !slices.ContainsFunc(req.Roots, func(root string) bool { return Within(root, a.Path) }) {
			return a.Path
		}
	}
	return ""
}

// Within reports whether a path is a directory or below it, both as they are
// written and with links resolved.
func Within(root, path string) bool {
	if !below(root, path) {
		return false
	}
	return below(resolve(root), resolve(path))
}

func below(root, path string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// resolve follows the links of a path as far as it exists.
func resolve(path string) string {
	rest := ""
	for p := path; ; p = filepath.Dir(p) {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			return filepath.Join(real, rest)
		}
		if p == filepath.Dir(p) {
			return path
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
}

// quiet reports whether a command surely does nothing but print.
func quiet(command string) bool {
	if !simple(command) {
		return false
	}
	switch name, _, _ := strings.Cut(strings.TrimSpace(command), " "); name {
	case "echo", "pwd", "true", "false", "date", "whoami", "uname":
		return true
	}
	return false
}

// simple reports whether a command is one program with its arguments: nothing in
// it means anything to the shell but spaces and quotes.
func simple(command string) bool {
	return !strings.ContainsAny(command, ";&|`$(){}<>\n\r\\*?[]~!#\x00")
}

type matcher func(r *Rule, a tool.Access, req *Request) bool

// find returns the first rule of a behavior that fits the call.
func (p *Policy) find(behavior wire.PermissionBehavior, req *Request, fits matcher) *Rule {
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Behavior != behavior {
			continue
		}
		if r.names(req.Tool) && r.Content == "" {
			return r
		}
		for _, a := range req.Access {
			if fits(r, a, req) {
				return r
			}
		}
	}
	return nil
}

// allowed returns a rule that allows the call if rules allow everything it
// touches.
func (p *Policy) allowed(req *Request) *Rule {
	if r := p.find(wire.BehaviorAllow, req, func(*Rule, tool.Access, *Request) bool { return false }); r != nil {
		return r // the whole tool
	}
	var last *Rule
	for _, a := range req.Access {
		last = nil
		for i := range p.Rules {
			if r := &p.Rules[i]; r.Behavior == wire.BehaviorAllow && proves(r, a, req) {
				last = r
				break
			}
		}
		if last == nil {
			return nil
		}
	}
	return last
}

// names reports whether the rule is about a tool.
func (r *Rule) names(spec *tool.Spec) bool {
	if r.Tool == spec.Name || slices.Contains(spec.Aliases, r.Tool) {
		return true
	}
	if server, ok := strings.CutPrefix(r.Tool, "mcp__"); ok && strings.HasPrefix(spec.Name, "mcp__") {
		server = strings.TrimSuffix(server, "__*")
		return server == "*" || strings.HasPrefix(spec.Name, "mcp__"+server+"__")
	}
	return false
}

// fileRule reports whether the rule is about files, in the way that the access is.
func (r *Rule) fileRule(kind tool.Kind) bool {
	switch r.Tool {
	case "Read":
		return kind == tool.Read
	case "Edit", "Write", "MultiEdit", "NotebookEdit":
		return kind == tool.Write
	}
	return false
}

// proves reports whether a rule surely covers an access.
func proves(r *Rule, a tool.Access, req *Request) bool {
	switch {
	case a.Path != "":
		return r.fileRule(a.Kind) && matchPath(r.Content, a.Path, req) && matchPath(r.Content, resolve(a.Path), req)
	case a.Kind == tool.Execute:
		return r.names(req.Tool) && simple(a.Command) && matchCommand(r.Content, strings.TrimSpace(a.Command))
	case a.Kind == tool.Fetch:
		return r.names(req.Tool) && matchURL(r.Content, a.URL)
	}
	return false
}

// suspects reports whether a rule may cover an access.
func suspects(r *Rule, a tool.Access, req *Request) bool {
	switch {
	case a.Path != "":
		// A rule against reading is one against writing, too: what may not be
		// seen may not be replaced.
		kind := r.fileRule(a.Kind) || r.fileRule(tool.Read) && a.Kind == tool.Write
		return kind && (r.Content == "" || matchPath(r.Content, a.Path, req) || matchPath(r.Content, resolve(a.Path), req))
	case a.Kind == tool.Execute:
		if r.fileRule(tool.Read) || r.fileRule(tool.Write) {
			return mentions(a.Command, r.Content)
		}
		if !r.names(req.Tool) {
			return false
		}
		for _, part := range commandParts(a.Command) {
			if matchCommand(r.Content, part) {
				return true
			}
		}
	case a.Kind == tool.Fetch:
		return r.names(req.Tool) && matchURL(r.Content, a.URL)
	}
	return false
}

// mentions reports whether a command may be about the files of a path rule: its
// fixed parts occur in it.
func mentions(command, pattern string) bool {
	for _, part := range strings.FieldsFunc(pattern, func(r rune) bool { return strings.ContainsRune("/*?[]{}~", r) }) {
		if len(part) > 1 && !strings.Contains(command, part) {
			return false
		}
	}
	return pattern != ""
}

// commandParts splits a command at everything that may begin another one.
func commandParts(command string) []string {
	command = strings.NewReplacer(`\`, "", `"`, "", "'", "").Replace(command)
	parts := strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(";&|`\n\r(){}<>", r) })
	for i, p := range parts {
		parts[i] = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(p), "$"))
	}
	for _, p := range slices.Clone(parts) {
		// What runs other programs is looked into, too.
		words := strings.Fields(p)
		for i := 1; i < len(words); i++ {
			parts = append(parts, strings.Join(words[i:], " "))
		}
	}
	return parts
}

// matchCommand matches a command against "git diff:*", "git *" or an exact text.
func matchCommand(pattern, command string) bool {
	if pattern == "" {
		return true
	}
	if prefix, ok := strings.CutSuffix(pattern, ":*"); ok {
		return command == prefix || strings.HasPrefix(command, prefix+" ")
	}
	if prefix, ok := strings.CutSuffix(pattern, " *"); ok && !strings.Contains(prefix, "*") {
		return command == prefix || strings.HasPrefix(command, prefix+" ")
	}
	if strings.Contains(pattern, "*") {
		ok, err := doublestar.Match(strings.ReplaceAll(pattern, "*", "**"), command)
		return ok && err == nil
	}
	return command == pattern
}

// matchPath matches an absolute path against a pattern: "//x" is absolute, "/x" and
// "x" are relative to the first root, as in a .gitignore file.
func matchPath(pattern, path string, req *Request) bool {
	if pattern == "" {
		return true
	}
	root := ""
	if len(req.Roots) > 0 {
		root = req.Roots[0]
	}
	switch {
	case strings.HasPrefix(pattern, "//"):
		pattern = pattern[1:]
	case strings.HasPrefix(pattern, "/"):
		pattern = filepath.Join(root, pattern)
	case strings.HasPrefix(pattern, "./"):
		pattern = filepath.Join(root, pattern)
	case strings.Contains(strings.TrimSuffix(pattern, "/**"), "/"):
		pattern = filepath.Join(root, pattern)
	default:
		pattern = filepath.Join(root, "**", pattern)
	}
	for _, p := range []string{pattern, pattern + "/**"} {
		if ok, err := doublestar.Match(p, path); err == nil && ok {
			return true
		}
	}
	return false
}

func matchURL(pattern, url string) bool {
	domain, ok := strings.CutPrefix(pattern, "domain:")
	if !ok {
		return pattern == "" || pattern == url
	}
	_, rest, _ := strings.Cut(url, "://")
	host, _, _ := strings.Cut(rest, "/")
	host, _, _ = strings.Cut(host, ":")
	return strings.EqualFold(host, domain)
}
