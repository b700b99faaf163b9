package policy

import (
	"cmp"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/parley-go/parley/engine/policy/shell"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
	"mvdan.cc/sh/v3/syntax"
)

// Suggestions returns changes of the rules that would make the permission request
// unnecessary the next time, for a host to show and to send back. A rule among them
// always covers the call in question, and is readable for people: it never ends inside
// of a quoted word.
func (d Decision) Suggestions() []*wire.PermissionUpdate {
	if !d.suggestible() {
		return nil
	}
	req := d.req
	add := func(dest wire.PermissionDestination, name string, contents ...string) *wire.PermissionUpdate {
		u := &wire.PermissionUpdate{Type: wire.UpdateAddRules, Behavior: wire.BehaviorAllow, Destination: dest}
		for _, c := range contents {
			u.Rules = append(u.Rules, &wire.PermissionRule{ToolName: name, RuleContent: c})
		}
		return u
	}
	acceptEdits := &wire.PermissionUpdate{Type: wire.UpdateSetMode, Mode: wire.ModeAcceptEdits, Destination: wire.DestinationSession}
	var all []*wire.PermissionUpdate
	for _, a := range req.Access {
		switch {
		case a.Kind == tool.Execute:
			j := newJudgement(req, &noRules)
			j.shell = d.seen
			s := j.script(a.Command)
			if rules := j.suggest(s); len(rules) > 0 {
				all = append(all, add(wire.DestinationLocalSettings, cmp.Or(req.Tool.RulesOf, req.Tool.Name), rules...))
			}
			switch path, outside := d.Path, j.outside(); {
			case outside != "" && quiet(s):
				if dir := directory(outside); dir != "/" {
					all = append(all, add(wire.DestinationSession, "Read", "/"+escape(dir)+"/**"))
				}
			case path != "" && edits(s):
				if dir := directory(path); dir != "/" {
					more := &wire.PermissionUpdate{Type: wire.UpdateAddDirectories, Directories: []string{dir}, Destination: wire.DestinationSession}
					all = append(all, more, acceptEdits)
				}
			}
			return all
		case a.Kind == tool.Write && a.Path != "":
			all = append(all, acceptEdits)
			if dir := directory(d.Path); d.Path != "" && d.ReasonType == "" && dir != "/" {
				all = append(all, &wire.PermissionUpdate{Type: wire.UpdateAddDirectories, Directories: []string{dir}, Destination: wire.DestinationSession})
			}
			return all
		case a.Kind == tool.Read && d.Path != "":
			if dir := directory(d.Path); dir != "/" {
				return append(all, add(wire.DestinationSession, "Read", "/"+escape(dir)+"/**"))
			}
			return []*wire.PermissionUpdate{} // nobody should allow all files at once
		case a.Kind == tool.Fetch:
			if u, err := url.Parse(a.URL); err == nil && u.Hostname() != "" && plainHost(u.Hostname()) {
				return append(all, add(wire.DestinationLocalSettings, req.Tool.Name, "domain:"+strings.ToLower(u.Hostname())))
			}
			return all
		case a.Name != "" && !strings.Contains(a.Name, "*"):
			all = append(all, add(wire.DestinationLocalSettings, req.Tool.Name, a.Name))
			if a.Kind == tool.Skill { // and with any arguments
				all = append(all, add(wire.DestinationLocalSettings, req.Tool.Name, a.Name+":*"))
			}
			return all
		}
	}
	return append(all, add(wire.DestinationLocalSettings, req.Tool.Name, ""))
}

// suggestible reports whether a rule can make the permission request unnecessary. It cannot if a rule asks, if the
// command removes a vital directory, or if it runs outside of the wall: that is approved one call at a time.
func (d Decision) suggestible() bool {
	return d.req != nil && (d.Rule == nil || d.Rule.Behavior == wire.BehaviorAllow) && d.DecidedBy != ByRemoval &&
		!slices.ContainsFunc(d.req.Access, func(a tool.Access) bool { return a.Unwalled })
}

// directory returns a path if it is a directory, and otherwise its parent.
func directory(path string) string {
	if fi, err := os.Stat(path); err != nil || !fi.IsDir() {
		path = filepath.Dir(path)
	}
	return filepath.ToSlash(filepath.Clean(path))
}

// suggest returns rules that would prove a script: one for each program that needs one,
// or the whole command verbatim.
func (j *judgement) suggest(s *shell.Script) []string {
	text := strings.TrimSpace(s.Text)
	whole := func() []string {
		if strings.Contains(text, "*") || strings.ContainsAny(text, "\n\r") || len(text) > 500 || text == "" {
			return nil // a rule cannot express it
		}
		return []string{text}
	}
	if s.Unproven != "" || len(s.Calls) == 0 {
		return whole()
	}
	var rules []string
	for _, c := range s.Calls {
		if c.Guess || c.Clear || c.Quiet && commands(s) > 1 {
			continue
		}
		rule := suggestCall(c)
		if rule == "" {
			return whole()
		}
		if exact := whole(); commands(s) == 1 && !strings.HasSuffix(rule, " *") && exact != nil && newCommandPattern(text).proves(c) {
			rule = text // verbatim
		}
		if !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	// Check that they are enough.
	set := &ruleset{}
	for _, rule := range rules {
		set.add(Rule{Behavior: wire.BehaviorAllow, Tool: j.req.Tool.Name, Content: rule})
	}
	again := newJudgement(j.req, set)
	if again.proved(again.script(s.Text)) == nil {
		return whole()
	}
	return rules
}

// plainRE matches names of subcommands.
var plainRE = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9-]*$`) })

// suggestCall returns a rule for one program: its first two words with any arguments,
// if the second looks like the name of a subcommand. Otherwise, and for programs that
// run others as another user, the rule contains all of its words.
func suggestCall(c *shell.Call) string {
	if len(c.Danger) > 0 || !c.Args[0].Static() {
		return ""
	}
	quote := func(args []shell.Word) (string, bool) {
		var words []string
		for _, a := range args {
			q, err := syntax.Quote(a.Text(), syntax.LangBash)
			if err != nil || !a.Static() || strings.ContainsAny(q, "*\n\r") {
				return "", false
			}
			words = append(words, q)
		}
		return strings.Join(words, " "), true
	}
	short := c.Args[:min(2, len(c.Args))]
	text, ok := quote(short)
	if len(short) < 2 || !plainRE().MatchString(short[1].Text()) || slices.Contains([]string{"sudo", "doas", "su", "runuser"}, short[0].Text()) {
		ok = false
	}
	if plain := !slices.ContainsFunc(short, func(a shell.Word) bool { return !a.Static() || strings.ContainsAny(text, `"'\$`) }); ok && plain {
		text += " *"
	} else if text, ok = quote(c.Args); !ok {
		return ""
	}
	if !newCommandPattern(text).proves(c) {
		return ""
	}
	return text
}

// commands counts the calls that are written in a script, without guesses.
func commands(s *shell.Script) (n int) {
	for _, c := range s.Calls {
		if !c.Guess {
			n++
		}
	}
	return n
}
