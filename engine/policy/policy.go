// Package policy decides whether a tool call may run. It is the one place that
// every effect passes. Rules name resources: deny wins over ask, ask over allow,
// whatever the mode; what is not understood is asked.
//
// # Two ways to match
//
// A rule that allows must surely cover a call, a rule that denies or asks need only
// perhaps do so. So an allow rule about commands covers nothing that means anything
// to a shell but words and quotes, while a deny rule looks behind wrappers, quotes
// and substitutions; and where it cannot, the call is asked about in every mode.
// Commands are read as text here, not as a syntax tree.
//
// The package looks at the file system to follow symbolic links, and touches
// nothing else.
package policy

import (
	"fmt"
	"net/url"
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
	if _, err := doublestar.Match(content, ""); err != nil && isFileTool(name) {
		return Rule{}, fmt.Errorf("policy: the pattern of the rule %q of %s cannot be read", text, source)
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
	Home   string   // of the user, that "~/" in rules means; may be empty
}

// A Decision is what is to happen, and why.
type Decision struct {
	Behavior   wire.PermissionBehavior
	Reason     string // for people
	ReasonType string // "rule", "mode", "workingDir" … as the protocol has it
	Rule       *Rule  // the one that decided, if one did
	Path       string // the file that made it so, if one did
}

// Decide decides about a call. Deny rules come first, then ask rules, then deny
// rules that may be about the call and may not, which are asked about; then the
// mode, then allow rules; what nothing decides is asked.
func (p *Policy) Decide(req *Request) Decision {
	deny, sure := p.find(wire.BehaviorDeny, req)
	if deny != nil && sure {
		return Decision{Behavior: wire.BehaviorDeny, Reason: "denied by the rule " + deny.String(), ReasonType: "rule", Rule: deny}
	}
	if r, _ := p.find(wire.BehaviorAsk, req); r != nil {
		return p.unasked(req, Decision{Behavior: wire.BehaviorAsk, Reason: "the rule " + r.String() + " asks", ReasonType: "rule", Rule: r})
	}
	if deny != nil {
		return p.unasked(req, Decision{Behavior: wire.BehaviorAsk, ReasonType: "rule", Rule: deny,
			Reason: "the rule " + deny.String() + " may deny it: what it does cannot be told for sure"})
	}
	outside := outsidePath(req)
	switch req.Mode {
	case wire.ModeBypassPermissions:
		return Decision{Behavior: wire.BehaviorAllow, ReasonType: "mode"}
	case wire.ModePlan:
		if !req.Tool.ReadOnly && !req.harmless() {
			return Decision{Behavior: wire.BehaviorDeny, ReasonType: "mode",
				Reason: "plan mode changes nothing: look, then present the plan with ExitPlanMode"}
		}
	case wire.ModeAcceptEdits:
		if req.editsOnly() && outside == "" {
			path := protectedPath(req)
			if path == "" {
				return Decision{Behavior: wire.BehaviorAllow, ReasonType: "mode"}
			}
			if p.allowed(req) == nil {
				return Decision{Behavior: wire.BehaviorAsk, ReasonType: "safetyCheck", Path: path,
					Reason: "the file says what programs run, so its change is asked about"}
			}
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

// Hides reports whether a rule denies that a file is read. Tools that look at many
// files leave it out.
func (p *Policy) Hides(path string, roots []string, home string) bool {
	req := &Request{Tool: &tool.Spec{Name: "Read", ReadOnly: true}, Roots: roots, Home: home}
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Behavior == wire.BehaviorDeny && r.fileRule(tool.Read) && r.touches(path, req) {
			return true
		}
	}
	return false
}

// unasked turns a question into what the mode makes of it.
func (p *Policy) unasked(req *Request, d Decision) Decision {
	if req.Mode == wire.ModeDontAsk {
		d.Behavior, d.ReasonType = wire.BehaviorDeny, "mode"
		d.Reason = "nobody is asked in this mode, and no rule allows the call"
	}
	return d
}

// harmless reports whether a call surely changes nothing and tells nobody anything:
// it reads files, or prints. What a tool says of itself is not enough for one that
// reaches out of the machine.
func (req *Request) harmless() bool {
	for _, a := range req.Access {
		if a.Kind != tool.Read && (a.Kind != tool.Execute || !quiet(a.Command)) {
			return false
		}
	}
	return len(req.Access) > 0 || req.Tool.ReadOnly && !strings.HasPrefix(req.Tool.Name, "mcp__")
}

func (req *Request) editsOnly() bool {
	for _, a := range req.Access {
		if a.Kind != tool.Read && a.Kind != tool.Write {
			return false
		}
	}
	return len(req.Access) > 0
}

// protectedPath returns a file that a call would change and that says what programs
// run: of a repository, of an agent, of an editor.
func protectedPath(req *Request) string {
	for _, a := range req.Access {
		if a.Kind != tool.Write {
			continue
		}
		for _, path := range []string{a.Path, resolve(a.Path)} {
			for dir := range strings.SplitSeq(filepath.ToSlash(filepath.Dir(path)), "/") {
				switch strings.ToLower(dir) {
				case ".git", ".hg", ".claude", ".parley", ".vscode", ".idea", ".husky":
					return a.Path
				}
			}
			switch strings.ToLower(filepath.Base(path)) {
			case ".git", ".gitmodules", ".mcp.json", ".envrc", ".bashrc", ".bash_profile", ".zshrc", ".profile":
				return a.Path
			}
		}
	}
	return ""
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

// find returns a rule of a behavior that fits the call, one that surely does if
// there is one.
func (p *Policy) find(behavior wire.PermissionBehavior, req *Request) (rule *Rule, sure bool) {
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Behavior != behavior {
			continue
		}
		if r.names(req.Tool) && r.Content == "" {
			return r, true
		}
		for _, a := range req.Access {
			switch r.suspects(a, req) {
			case yes:
				return r, true
			case maybe:
				if rule == nil {
					rule = r
				}
			}
		}
	}
	return rule, false
}

// allowed returns a rule that allows the call if rules allow everything it
// touches.
func (p *Policy) allowed(req *Request) *Rule {
	for i := range p.Rules {
		if r := &p.Rules[i]; r.Behavior == wire.BehaviorAllow && r.Content == "" && r.names(req.Tool) {
			return r // the whole tool
		}
	}
	var last *Rule
	for _, a := range req.Access {
		last = nil
		for i := range p.Rules {
			if r := &p.Rules[i]; r.Behavior == wire.BehaviorAllow && r.proves(a, req) {
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
	if strings.HasPrefix(r.Tool, "mcp__") && strings.HasPrefix(spec.Name, "mcp__") {
		return wildcard(r.Tool, spec.Name) || strings.HasPrefix(spec.Name, r.Tool+"__")
	}
	return false
}

func isFileTool(name string) bool {
	switch name {
	case "Read", "Edit", "Write", "MultiEdit", "NotebookEdit":
		return true
	}
	return false
}

// fileRule reports whether the rule is about files, in the way that the access is.
func (r *Rule) fileRule(kind tool.Kind) bool {
	return isFileTool(r.Tool) && (r.Tool == "Read") == (kind == tool.Read) && (kind == tool.Read || kind == tool.Write)
}

// proves reports whether a rule surely covers an access.
func (r *Rule) proves(a tool.Access, req *Request) bool {
	switch {
	case a.Path != "":
		roots := req.Roots[:min(1, len(req.Roots))]
		return r.fileRule(a.Kind) && r.Content != "" && matchPath(r.Content, a.Path, roots, req.Home) && matchPath(r.Content, resolve(a.Path), resolveAll(roots), req.Home)
	case a.Kind == tool.Execute:
		return r.names(req.Tool) && simple(a.Command) && matchCommand(r.Content, strings.TrimSpace(a.Command))
	case a.Kind == tool.Fetch:
		return r.names(req.Tool) && matchURL(r.Content, a.URL)
	}
	return false
}

// A certainty is how sure it is that a rule is about an access.
type certainty int

const (
	no certainty = iota
	maybe
	yes
)

// suspects tells whether a rule that restricts may cover an access.
func (r *Rule) suspects(a tool.Access, req *Request) certainty {
	sure := func(ok bool) certainty {
		if ok {
			return yes
		}
		return no
	}
	switch {
	case a.Path != "":
		// A rule against reading is one against writing, too: what may not be
		// seen may not be replaced.
		kind := r.fileRule(a.Kind) || r.fileRule(tool.Read) && a.Kind == tool.Write
		return sure(kind && r.touches(a.Path, req))
	case a.Kind == tool.Execute:
		if isFileTool(r.Tool) {
			if r.Content == "" {
				return no // the tool is taken away, not the files
			}
			return mentions(a.Command, r.Content)
		}
		if !r.names(req.Tool) {
			return no
		}
		return runs(a.Command, r.Content)
	case a.Kind == tool.Fetch:
		return sure(r.names(req.Tool) && (r.Content == "" || matchURL(r.Content, a.URL)))
	}
	return no
}

// touches reports whether a rule about files that restricts is about a path, however
// it is reached.
func (r *Rule) touches(path string, req *Request) bool {
	if r.Content == "" {
		return true
	}
	real := resolve(path)
	return matchPath(r.Content, path, req.Roots, req.Home) || matchPath(r.Content, real, req.Roots, req.Home) ||
		matchPath(r.Content, real, resolveAll(req.Roots), resolve(req.Home)) || matchResolved(r.Content, real)
}

func resolveAll(paths []string) []string {
	var all []string
	for _, p := range paths {
		all = append(all, resolve(p))
	}
	return all
}

// matchPath matches an absolute path against a pattern: "//x" is absolute, "~/x" in
// the home, "/x" and "x" are relative to a root, as in a .gitignore file.
func matchPath(pattern, path string, roots []string, home string) bool {
	switch {
	case strings.HasPrefix(pattern, "//"):
		return matchGlob(pattern[1:], path)
	case pattern == "~", strings.HasPrefix(pattern, "~/"):
		return home != "" && matchGlob(escape(home)+pattern[1:], path)
	case pattern == "**":
		pattern = "/**"
	}
	if !strings.HasPrefix(pattern, "/") && !strings.HasPrefix(pattern, "./") && !strings.Contains(strings.TrimSuffix(pattern, "/**"), "/") {
		pattern = "**/" + pattern
	}
	pattern = strings.TrimPrefix(strings.TrimPrefix(pattern, "."), "/")
	for _, root := range roots {
		if matchGlob(strings.TrimSuffix(escape(root), "/")+"/"+pattern, path) {
			return true
		}
	}
	return false
}

// matchResolved matches a path against an absolute pattern whose beginning is a
// symbolic link.
func matchResolved(pattern, path string) bool {
	if !strings.HasPrefix(pattern, "//") {
		return false
	}
	base, rest := doublestar.SplitPattern(pattern[1:])
	real := resolve(base)
	return real != base && matchGlob(escape(real)+"/"+rest, path)
}

func matchGlob(pattern, path string) bool {
	pattern = strings.TrimSuffix(pattern, "/")
	for _, p := range []string{pattern, pattern + "/**"} {
		if ok, err := doublestar.Match(p, path); err == nil && ok {
			return true
		}
	}
	return false
}

// escape writes a path as a pattern that matches it alone.
func escape(path string) string {
	var b strings.Builder
	for _, r := range path {
		if strings.ContainsRune(`*?[]{}\!^`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// matchURL matches an address against "domain:example.com", which is that host and
// those below it, or against the whole of it.
func matchURL(pattern, address string) bool {
	domain, ok := strings.CutPrefix(pattern, "domain:")
	if !ok {
		return pattern == "" || pattern == address || wildcard(pattern, address) && strings.Contains(pattern, "*")
	}
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	domain = strings.ToLower(strings.TrimSuffix(domain, "."))
	if below, ok := strings.CutPrefix(domain, "*."); ok {
		return strings.HasSuffix(host, "."+below)
	}
	return host == domain
}
