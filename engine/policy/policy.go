// Package policy decides whether a tool call may run. Every effect passes through it. Rules name
// resources: deny beats ask, and ask beats allow, in every mode; a call that the
// package does not understand needs approval.
//
// # Two ways to match
//
// An allow rule applies only if it certainly covers the call. A deny or ask rule applies if it may
// match. The package analyzes the syntax tree of a command: every program that may run and every file
// that is named, behind wrappers, quotes and substitutions. Allow rules must cover all of them. For a
// deny rule one is enough; if the match is uncertain, the call needs permission in every mode.
//
// # Where to look
//
//	policy.go   the order of decision, the modes
//	rule.go     rules and their sources
//	path.go     rules about files: patterns
//	disk.go     the file system as a decision sees it: links, the case of names
//	command.go  rules about commands: their words
//	suspect.go  what a command may do that a rule denies or asks about
//	prove.go    what a command certainly does and rules allow
//	address.go  rules about hosts
//	removal.go  commands that remove the root, the home or a working directory
//	update.go   changes of the rules; policies that are narrower than another
//	lint.go     rules that can never match
//	suggest.go  rules that would make a permission request unnecessary
//	receipt.go  recorded decisions
//	shell/      what a command does, by its syntax and a table of programs
//
// The package reads the file system to follow links, and accesses nothing else. It does not depend
// on sessions, hosts or hooks.
package policy

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/parley-go/parley/engine/policy/shell"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// A Policy is a set of rules. The zero value has none. It is safe for concurrent
// use.
type Policy struct {
	set    atomic.Pointer[ruleset]
	parent *Policy // set for a narrowed policy
	narrow Narrowing
}

// A ruleset holds the rules of a policy at one time. It is immutable.
type ruleset struct {
	deny, ask, allow []*Rule

	kept atomic.Pointer[keptGlobs]
}

var noRules ruleset

// New returns a policy with the given rules.
func New(rules ...Rule) *Policy {
	p := &Policy{}
	p.Add(rules...)
	return p
}

func (p *Policy) load() *ruleset {
	if s := p.set.Load(); s != nil {
		return s
	}
	return &noRules
}

// Rules returns the rules: deny rules first, then ask rules, then allow rules. A narrowed policy
// includes those of its parent.
func (p *Policy) Rules() []Rule {
	var rules []Rule
	if p.parent != nil {
		rules = p.parent.Rules()
	}
	s := p.load()
	for _, list := range [][]*Rule{s.deny, s.ask, s.allow} {
		for _, r := range list {
			rules = append(rules, *r)
		}
	}
	return rules
}

// A Request is a tool call to decide.
type Request struct {
	Tool   *tool.Spec
	Access []tool.Access
	Input  json.RawMessage // for the receipt
	Mode   wire.PermissionMode
	Roots  []string // working directories; the conversation started in the first one
	// Bound is how many of the roots, starting with the first, the call may touch; paths elsewhere
	// are denied. 0 means that they need permission.
	Bound int
	Cwd   string // where commands start; empty means the first root
	Home  string // home directory of the user, for "~/" in rules; may be empty
	// Readable are directories of the session itself, which file tools may read without permission.
	Readable []string
	// Resolved has the targets of the paths in Access and of the roots: the files
	// that the tool opens if the call is allowed. The policy itself follows the
	// links of other paths.
	Resolved map[string]tool.Target
	// Sandboxed means that commands run in a working sandbox, and that the settings let such
	// commands run without permission.
	Sandboxed bool
	// ReadWall means that a command which is allowed [ByProof] runs behind a working read wall, so
	// that more commands need no permission.
	ReadWall bool
}

// env returns the environment in which a command of the request starts.
func (req *Request) env() shell.Env { return shell.Env{Dir: req.cwd(), Home: req.Home} }

func (req *Request) cwd() string {
	if req.Cwd == "" && len(req.Roots) > 0 {
		return req.Roots[0]
	}
	return req.Cwd
}

// Decide decides a call, in this order; the first match wins.
//
//  1. A rule that denies it, and a path outside of the worktree that the call is bound to, unless a
//     rule allows that path.
//  2. Mode plan, if it may have an effect: denied.
//  3. A rule that asks about it, and a deny rule that possibly matches.
//  4. The removal of the root of the file system, the home, or a working directory: ask, in every
//     mode and whatever a rule or hook allows.
//  5. Mode bypassPermissions: allowed.
//  6. A change of a file that configures what programs execute, unless a rule allows that
//     file by its name: ask.
//  7. Rules that allow all of it.
//  8. Mode acceptEdits, if it changes files in the roots and does nothing else.
//  9. The sandbox, if commands in it need no permission.
//  10. A call that certainly has no effect and reads nothing outside of the roots: allowed.
//  11. Anything else: ask. In mode dontAsk it is denied, and so are 3, 4 and 6.
func (p *Policy) Decide(req *Request) Decision {
	if p.parent != nil {
		return p.decideNarrow(req)
	}
	return decide(p.load(), req)
}

func decide(set *ruleset, req *Request) Decision {
	j := newJudgement(req, set)
	d := j.decide()
	if d.Behavior == wire.BehaviorAsk && req.Mode == wire.ModeDontAsk {
		d.Behavior, d.DecidedBy = wire.BehaviorDeny, ByMode
		if d.Rule == nil {
			d.ReasonType, d.Reason = "mode", "this mode asks nobody, and no rule allows the call"
		} else {
			d.ReasonType, d.Reason = "mode", "this mode asks nobody, and "+d.Reason
		}
	}
	if d.Path != "" {
		d.Path = filepath.Clean(d.Path)
	}
	d.req, d.seen = req, j.shell
	j.forget()
	return d
}

// A judgement is a decision in progress: a request, and what was found out about it so far.
type judgement struct {
	disk
	set   *ruleset
	shell *shell.Script // its command, once analyzed
	kept  *keptGlobs
	named *shell.Script // the script whose words are in names
	names string        // words of programs, each ended by a zero byte
	open  bool          // one of the words is not known

	input bool     // said is set
	said  []string // the texts in the input of an unknown tool
}

// newJudgement starts a decision.
func newJudgement(req *Request, set *ruleset) *judgement {
	j := &judgement{disk: disk{req: req, sights: oldSights.Get().(*sights)}, set: set, kept: set.keptFor(req)}
	j.globs = slices.Grow(j.globs[:0], len(j.kept.rules))[:len(j.kept.rules)]
	return j
}

func (j *judgement) decide() Decision {
	deny, sure := j.find(j.set.deny)
	if deny != nil && sure {
		return byRule(deny, wire.BehaviorDeny, "denied by the rule "+deny.String()+" of "+deny.Source.String())
	}
	if path := unbound(j); path != "" {
		return Decision{Behavior: wire.BehaviorDeny, ReasonType: "workingDir", DecidedBy: BySafety, Path: path,
			Reason: path + " is outside the worktree " + j.req.Roots[0] + ", and this agent may only work inside it"}
	}
	if j.req.Mode == wire.ModePlan && !j.effectless() {
		return Decision{Behavior: wire.BehaviorDeny, ReasonType: "mode", DecidedBy: ByMode,
			Reason: "plan mode is read-only: explore, then present the plan with ExitPlanMode"}
	}
	if r, _ := j.find(j.set.ask); r != nil {
		d := byRule(r, wire.BehaviorAsk, "the rule "+r.String()+" of "+r.Source.String()+" asks")
		if r.Content == "" {
			if beside := j.decideUnrestricted(); beside.Behavior == wire.BehaviorAsk {
				d.Beside = &beside
			}
		}
		return d
	}
	if deny != nil {
		reason := "the rule " + deny.String() + " of " + deny.Source.String() + " might deny it: Parley cannot tell all of its effects"
		if j.shell != nil && j.shell.Unclear != "" {
			reason += " (" + j.shell.Unclear + ")"
		}
		return byRule(deny, wire.BehaviorAsk, reason)
	}
	if path := j.vitalRemoved(); path != "" {
		return Decision{Behavior: wire.BehaviorAsk, ReasonType: "safetyCheck", DecidedBy: ByRemoval, Path: path,
			Reason: "it would remove " + path + ", so it needs approval in every mode"}
	}
	if j.req.Mode == wire.ModeBypassPermissions {
		return Decision{Behavior: wire.BehaviorAllow, ReasonType: "mode", DecidedBy: ByMode, Reason: "the mode is bypassPermissions"}
	}
	if path := j.protected(); path != "" {
		return Decision{Behavior: wire.BehaviorAsk, ReasonType: "safetyCheck", DecidedBy: BySafety, Path: path,
			Reason: "this file decides which programs run, so changing it needs approval"}
	}
	d := j.decideUnrestricted()
	if d.Behavior == wire.BehaviorAllow && j.req.Mode == wire.ModePlan && j.executes() {
		d.DecidedBy = ByProof // the mode promises that nothing changes, whatever a rule allows
	}
	return d
}

// decideUnrestricted decides a call that no rule and no mode restricts.
func (j *judgement) decideUnrestricted() Decision {
	outside := j.outside()
	if r := j.allowed(); r != nil {
		d := byRule(r, wire.BehaviorAllow, "allowed by the rule "+r.String()+" of "+r.Source.String())
		if r.Content != "" && !j.verbatim(r) {
			d.ReasonType = j.partly("rule")
		}
		return d
	}
	if j.req.Mode == wire.ModeAcceptEdits && outside == "" && j.edits() {
		return Decision{Behavior: wire.BehaviorAllow, ReasonType: "mode", DecidedBy: ByEdits, Reason: "the mode is acceptEdits"}
	}
	if j.req.Sandboxed && j.executes() {
		return Decision{Behavior: wire.BehaviorAllow, ReasonType: "sandbox", DecidedBy: BySandbox, Reason: "it runs in the sandbox"}
	}
	if basis, ok := j.harmless(); ok {
		if outside == "" {
			return Decision{Behavior: wire.BehaviorAllow, ReasonType: j.partly("mode"), DecidedBy: basis, Reason: "it has no effect"}
		}
		return Decision{Behavior: wire.BehaviorAsk, ReasonType: "workingDir", Path: outside, Reason: "Path is outside allowed working directories"}
	}
	d := Decision{Behavior: wire.BehaviorAsk, Path: outside}
	if slices.ContainsFunc(j.req.Access, func(a tool.Access) bool { return a.Unwalled }) {
		d.ReasonType, d.Reason = "sandboxOverride", "the command asks to run outside the read wall"
		return d
	}
	if j.shell == nil {
		return d
	}
	d.Reason = j.shell.Unproven
	if changed := writes(j.shell); d.Path == "" && len(changed) > 0 {
		d.Path = changed[0]
	}
	switch {
	case commands(j.shell) > 1:
		d.ReasonType = "subcommandResults"
	case d.Path == "":
		d.ReasonType = "other"
		if d.Reason == "" {
			d.Reason = "no rule allows this command"
		}
	}
	return d
}

// byRule returns the decision of a rule.
func byRule(r *Rule, behavior wire.PermissionBehavior, reason string) Decision {
	return Decision{Behavior: behavior, Reason: reason, ReasonType: "rule", DecidedBy: ByRule, Rule: r}
}

// verbatim reports whether a rule is the command of the call word for word, apart from any arguments.
func (j *judgement) verbatim(r *Rule) bool {
	content := strings.TrimSuffix(r.Content, ":*")
	return len(j.req.Access) == 1 && strings.TrimSpace(j.req.Access[0].Command) == content
}

// partly returns the type of a reason. The protocol has a special one for commands, which are
// decided part by part.
func (j *judgement) partly(otherwise string) string {
	if j.executes() {
		return "subcommandResults"
	}
	return otherwise
}

// find returns a deny or ask rule of a list that matches the call, preferably one that certainly
// does.
func (j *judgement) find(list []*Rule) (rule *Rule, sure bool) {
	for _, r := range list {
		switch j.suspects(r) {
		case yes:
			return r, true
		case maybe:
			if rule == nil {
				rule = r
			}
		}
	}
	return rule, false
}

// A certainty is how certainly a rule matches a call.
type certainty int

const (
	no certainty = iota
	maybe
	yes
)

func sure(ok bool) certainty {
	if ok {
		return yes
	}
	return no
}

// suspects returns whether a deny or ask rule may match the call.
func (j *judgement) suspects(r *Rule) certainty {
	if r.Content == "" {
		named := r.names(j.req.Tool)
		// The rule is about the tool, not about its resources. But a rule against Edit applies to
		// all tools that edit files, and one against Read to all that read them.
		if !named && len(j.req.Access) > 0 && !strings.HasPrefix(j.req.Tool.Name, "mcp__") && j.req.Access[0].Path != "" {
			named = r.Tool == "Edit" && isEditTool(j.req.Tool.Name) || r.Tool == "Read" && isReadTool(j.req.Tool.Name)
		}
		return sure(named || j.ofServer(r))
	}
	found := no
	for _, a := range j.req.Access {
		found = max(found, j.suspectsAccess(r, a))
	}
	if found == no && strings.HasPrefix(j.req.Tool.Name, "mcp__") && (isFileTool(r.Tool) || r.Tool == "WebFetch") {
		found = j.namedInInput(r)
	}
	return found
}

// namedInInput returns whether the input of an MCP tool names a file or a host of a rule. It is
// unknown how the server uses it, so the match is never certain.
func (j *judgement) namedInInput(r *Rule) certainty {
	if !j.input {
		j.input = true
		dec := json.NewDecoder(bytes.NewReader(j.req.Input))
		for len(j.said) <= shell.MaxFiles {
			t, err := dec.Token()
			if err != nil {
				break
			}
			if text, ok := t.(string); ok && text != "" {
				j.said = append(j.said, text)
			}
		}
	}
	if len(j.said) > shell.MaxFiles {
		return maybe
	}
	if slices.ContainsFunc(j.said, func(text string) bool { return j.namedInText(r, text) }) {
		return maybe
	}
	// A directory and a name in it may be two members.
	if len(j.said) <= 20 && r.Tool != "WebFetch" && restricts(r, tool.Write) && j.namedInPair(r) {
		return maybe
	}
	return no
}

// namedInText reports whether a text in the input of a tool may name a file or a host of a rule. It
// is unknown which tools only read.
func (j *judgement) namedInText(r *Rule, text string) bool {
	fetch := r.Tool == "WebFetch"
	if shell.LooksLikeCommand(text) {
		// A server may run it.
		if s := shell.Analyze(text, j.req.env()); fetch && mayFetch(s, r) != no || !fetch && j.mayTouch(s, r) != no {
			return true
		}
	}
	if fetch {
		return namesHost(r, text)
	}
	return restricts(r, tool.Write) && slices.ContainsFunc(listed(text), func(part string) bool {
		return slices.ContainsFunc(j.pathsIn(part), func(p string) bool { return j.touches(r, p) }) || strings.ContainsAny(part, "*?[{") && j.patternIn(r, part)
	})
}

// listed returns a text, and its parts if it may be a list: lines, a,b or an object in JSON.
func listed(text string) []string {
	const between = ",;|=\"'\n\r\t"
	if len(text) > 4096 || !strings.ContainsAny(text, between) {
		return []string{text}
	}
	return append(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(between, r) }), text)
}

// namesHost reports whether a text may be an address at the host of a rule.
func namesHost(r *Rule, text string) bool {
	if strings.ContainsAny(text, " \n") || !strings.Contains(text, ".") && !strings.Contains(text, ":") {
		return false
	}
	host := hostOf(text)
	if host == "" {
		return false
	}
	return slices.ContainsFunc([]string{text, "x://" + host}, func(address string) bool {
		return matchURL(r.Content, address) || suspectURL(r.Content, address)
	})
}

// namedInPair reports whether a directory and a name in it, which are two texts of the input, form
// a file of a rule.
func (j *judgement) namedInPair(r *Rule) bool {
	for _, dir := range j.said {
		for _, d := range j.pathsIn(dir) {
			if j.isDir(d) && slices.ContainsFunc(j.said, func(name string) bool {
				return name != "" && len(name) < 256 && !filepath.IsAbs(name) && j.touches(r, d+"/"+name)
			}) {
				return true
			}
		}
	}
	return false
}

// pathsIn returns the files that a text in the input of a tool may name.
func (j *disk) pathsIn(text string) []string {
	if len(text) > 4096 {
		return nil // no path is that long
	}
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\x00") // where some programs stop
	if path, ok := filePath(text); ok {
		text = path
	} else if scheme, rest, ok := strings.Cut(text, "://"); ok {
		// A custom scheme of the server may be one for files.
		if strings.HasPrefix(strings.ToLower(scheme), "http") {
			return nil
		}
		_, path, _ := strings.Cut(rest, "/")
		text = "/" + path
	}
	if strings.Contains(text, `\`) {
		text = strings.ReplaceAll(text, `\`, "/")
	}
	for _, home := range []string{"~/", "$HOME/", "${HOME}/"} {
		if rest, ok := strings.CutPrefix(text, home); ok && j.req.Home != "" {
			text = filepath.Join(j.req.Home, rest)
		}
	}
	if strings.HasPrefix(text, "$") { // another variable that the server may expand
		_, text, _ = strings.Cut(text, "/")
	}
	if text == "" {
		return nil
	}
	if filepath.IsAbs(text) {
		return []string{text}
	}
	var paths []string
	for _, root := range append([]string{j.req.cwd()}, j.req.Roots...) {
		paths = append(paths, filepath.Join(root, text))
	}
	return paths
}

// patternIn reports whether a text is a pattern of names that matches a file of a rule. A pattern
// without any letter or digit is ignored.
func (j *judgement) patternIn(r *Rule, text string) bool {
	name := text[strings.LastIndexByte(text, '/')+1:]
	says := strings.ContainsFunc(name, func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) })
	if len(text) > 200 || strings.ContainsAny(text, " \n") || !says {
		return false
	}
	for _, g := range j.wide(r) {
		for _, root := range append([]string{""}, j.req.Roots...) {
			if root != "" {
				root += "/"
			}
			if shell.Overlap(globRunes(g.text), globRunes(escape(root)+text)) {
				return true
			}
		}
	}
	return false
}

func (j *judgement) suspectsAccess(r *Rule, a tool.Access) certainty {
	switch {
	case a.Path != "":
		return sure(restricts(r, a.Kind) && j.touches(r, a.Path))
	case a.Kind == tool.Execute:
		if isFileTool(r.Tool) {
			return j.mayTouch(j.script(a.Command), r)
		}
		if r.Tool == "WebFetch" {
			return mayFetch(j.script(a.Command), r)
		}
		if r.names(j.req.Tool) {
			return j.mayRun(j.script(a.Command), r)
		}
	case a.URL != "":
		if path, ok := filePath(a.URL); ok && isFileTool(r.Tool) {
			if !filepath.IsAbs(path) {
				path = filepath.Join(j.req.cwd(), path)
			}
			return sure(restricts(r, tool.Read) && j.touches(r, path))
		}
		return sure(r.names(j.req.Tool) && (matchURL(r.Content, a.URL) || a.Kind == tool.Fetch && suspectURL(r.Content, a.URL)))
	case a.Name != "":
		return sure(r.names(j.req.Tool) && r.MatchesName(a.Name))
	}
	return no
}

// ofServer reports whether a rule names the whole MCP server whose resource the call accesses.
func (j *judgement) ofServer(r *Rule) bool {
	if len(j.req.Access) != 1 || !strings.HasPrefix(r.Tool, "mcp__") {
		return false
	}
	a := j.req.Access[0]
	return a.Kind == tool.Other && strings.HasPrefix(a.Name, "mcp__") &&
		(wildcard(r.Tool, a.Name) || wildcard(strings.TrimSuffix(r.Tool, "__*"), a.Name))
}

// allowed returns a rule that allows the call, if rules allow everything it touches.
func (j *judgement) allowed() *Rule {
	for _, r := range j.set.allow {
		if r.Content == "" && (r.names(j.req.Tool) || j.ofServer(r)) {
			return r // the whole tool, or the whole server
		}
	}
	var last *Rule
	for _, a := range j.req.Access {
		if last = j.allows(a); last == nil {
			return nil
		}
	}
	return last
}

// allows returns a rule that certainly covers an access.
func (j *judgement) allows(a tool.Access) *Rule {
	if a.Kind == tool.Execute {
		return j.proved(j.script(a.Command))
	}
	for _, r := range j.set.allow {
		if r.Content == "" {
			continue
		}
		ok := false
		switch {
		case a.Path != "":
			ok = covers(r, a.Kind) && j.within(r, a.Path)
		case a.Kind == tool.Fetch:
			ok = r.names(j.req.Tool) && matchURL(r.Content, a.URL)
		case a.Name != "":
			ok = r.names(j.req.Tool) && matchName(r.Content, a.Name)
		}
		if ok {
			return r
		}
	}
	return nil
}

// effectless reports whether a call certainly changes nothing; it may still need permission. The
// annotations of an MCP tool are no proof.
func (j *judgement) effectless() bool {
	if strings.HasPrefix(j.req.Tool.Name, "mcp__") {
		return false
	}
	if j.req.Tool.ReadOnly {
		return true
	}
	for _, a := range j.req.Access {
		switch a.Kind {
		case tool.Read, tool.Agent, tool.Skill: // the calls of an agent are decided separately
		case tool.Execute:
			if s := j.script(a.Command); !passive(s) && !s.OnlyReads() {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// harmless reports whether a call certainly changes nothing and sends nothing: it reads files,
// prints, or touches only the conversation. It returns the basis of that. The annotations of a tool
// are not enough if it reaches other machines.
func (j *judgement) harmless() (Basis, bool) {
	if strings.HasPrefix(j.req.Tool.Name, "mcp__") {
		return "", false
	}
	basis := ByProof
	for _, a := range j.req.Access {
		switch a.Kind {
		case tool.Read, tool.Agent:
		case tool.Skill:
			if !a.Plain {
				return "", false
			}
		case tool.Other:
			if !a.Plain || strings.HasPrefix(strings.ToLower(strings.TrimSpace(a.URL)), "file:") {
				return "", false
			}
		case tool.Execute:
			if a.Unwalled {
				return "", false
			}
			var machine, ok bool
			if !j.req.ReadWall || shell.MayBeForm(a.Command) { // behind a wall, only forms about the machine matter
				machine, ok = j.listed(a.Command)
			}
			switch {
			case ok && (machine || !j.req.ReadWall):
				basis = ByTable
			case j.req.ReadWall && j.script(a.Command).OnlyReads():
			default:
				return "", false
			}
		default:
			return "", false
		}
	}
	return basis, true
}

// listed reports whether a command of plain words is listed as harmless and reads nothing outside
// of the roots, and whether it is about the machine.
func (j *judgement) listed(command string) (machine, ok bool) {
	files, machine, ok := shell.IsListed(command)
	return machine, ok && !slices.ContainsFunc(files, func(f string) bool {
		return slices.ContainsFunc(absolute(j.script(command), f, false), func(p string) bool { return !j.insideRoots(p) })
	})
}

// edits reports whether a call certainly does nothing but read and change files.
func (j *judgement) edits() bool {
	for _, a := range j.req.Access {
		switch a.Kind {
		case tool.Read, tool.Write:
		case tool.Execute:
			if !edits(j.script(a.Command)) {
				return false
			}
		default:
			return false
		}
	}
	return len(j.req.Access) > 0
}

func (j *judgement) executes() bool {
	return slices.ContainsFunc(j.req.Access, func(a tool.Access) bool { return a.Kind == tool.Execute })
}

// script analyzes the command of the call.
func (j *judgement) script(command string) *shell.Script {
	if j.shell == nil || j.shell.Text != command {
		j.shell = shell.Analyze(command, j.req.env())
	}
	return j.shell
}

// matchName matches the name of an agent or a skill: "name", "name:*" for names with that prefix,
// or a pattern with *.
func matchName(pattern, name string) bool {
	pattern, name = strings.TrimPrefix(pattern, "/"), strings.TrimPrefix(name, "/")
	if prefix, ok := strings.CutSuffix(pattern, ":*"); ok && (name == prefix || strings.HasPrefix(name, prefix+":") || strings.HasPrefix(name, prefix+" ")) {
		return true
	}
	return wildcard(pattern, name)
}

// wildcard matches a text against a pattern in which * stands for anything.
func wildcard(pattern, text string) bool {
	first, rest, found := strings.Cut(pattern, "*")
	if !found {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	for ok {
		var part string
		if part, rest, found = strings.Cut(rest, "*"); !found {
			return strings.HasSuffix(text, part)
		}
		var i int
		if i = strings.Index(text, part); i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return false
}
