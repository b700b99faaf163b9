package policy

import (
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// A command can be written to be hard to parse. For every size and shape there must be
// a decision soon, and it must not be allow, because nobody could know what such a
// command does. The time limit is generous, for a busy machine with the race detector.
func TestHostileSizes(t *testing.T) {
	p := New(Rule{Behavior: wire.BehaviorDeny, Tool: "Bash", Content: "rm:*"}, Rule{Behavior: wire.BehaviorDeny, Tool: "Bash", Content: "git * x"},
		Rule{Behavior: wire.BehaviorDeny, Tool: "Read", Content: ".env"}, Rule{Behavior: wire.BehaviorDeny, Tool: "Edit", Content: "secrets/**"})
	again := strings.Repeat
	for name, command := range map[string]string{
		"a quote that does not end":    "'" + again("a ", 32000),
		"words of an unknown program":  "foo " + again("a ", 30000),
		"texts for an unknown program": "foo " + again("'a b c;d' ", 6000),
		"patterns from the root":       "cat " + again("/*/*/*/*/*/* ", 10),
		"patterns":                     "cat " + again("*/*/*/*/*/* ", 5000),
		"a long pattern":               "cat " + again("*a", 30000),
		"braces":                       "cat " + again("{a,b}", 5000),
		"substitutions":                again("$(", 20000) + again(")", 20000),
		"substitutions without an end": again("$(", 20000),
		"back quotes":                  again("`", 60000),
		"subshells":                    again("(", 30000) + again(")", 30000),
		"calculation":                  "$((" + again("(", 30000) + "1" + again(")", 30000) + "))",
		"defaults":                     again("${x:-", 10000) + again("}", 10000),
		"a list":                       again("a;", 30000),
		"git, often":                   again("git -C . status;", 4000),
		"directories":                  again("cd a;cat b;", 5000),
		"documents":                    again("cat <<E\na\nE\n", 5000),
		"shells in shells":             again("bash -c '", 20) + "x",
		"wrappers":                     "xargs " + again("xargs ", 10000),
		"hosts":                        "ssh h " + again("ssh h ", 9000),
		"conditions":                   again("if true; then ", 4000) + "x" + again("; fi", 4000),
		"64 MB":                        again("x ", 32<<20),
		"64 MB and a quote":            "'" + again("x ", 32<<20),
	} {
		d := p.Decide(&Request{Tool: &tool.Spec{Name: "Bash"}, Access: []tool.Access{{Kind: tool.Execute, Command: command}}, Roots: []string{"/w"}, Home: "/h", Mode: wire.ModeBypassPermissions})
		if d.Behavior == wire.BehaviorAllow {
			t.Errorf("%s is allowed: %s", name, d.Reason)
		}
	}
}

// The cost of a decision must not grow. Allocations are what can be compared on any
// machine. Where the mode decides, only the command is analyzed, because it may remove the home.
func TestCost(t *testing.T) {
	req := &Request{Tool: &tool.Spec{Name: "Bash"}, Access: []tool.Access{{Kind: tool.Execute, Command: "git diff HEAD -- engine/policy/policy.go"}}, Roots: []string{"/w"}}
	rules := New(Rule{Behavior: wire.BehaviorDeny, Tool: "Bash", Content: "rm:*"}, Rule{Behavior: wire.BehaviorDeny, Tool: "Read", Content: ".env"}, Rule{Behavior: wire.BehaviorAllow, Tool: "Bash", Content: "git diff:*"})
	if n := testing.AllocsPerRun(100, func() { rules.Decide(req) }); n > 130 {
		t.Errorf("a decision allocates %v times", n)
	}
	none, bypass := New(), *req
	bypass.Mode = wire.ModeBypassPermissions
	if n := testing.AllocsPerRun(100, func() { none.Decide(&bypass) }); n > 40 {
		t.Errorf("a decision without rules allocates %v times", n)
	}
}
