package policy

import (
	"strings"
	"testing"

	"github.com/parley-go/parley/wire"
)

func TestLint(t *testing.T) {
	for rule, want := range map[string]string{
		"allow Bash(git diff:*)": "", "deny Read(.env)": "", "allow mcp__s": "", "deny Task(Explore)": "", "allow Skill(pdf)": "", "allow WebFetch(domain:x.org)": "", "allow WebFetch(domain:*.x.org)": "",
		"deny *": "", "ask W*": "", "deny mcp__*": "",
		"allow *":                           "names one tool",
		"allow W*":                          "names one tool",
		"deny bash(rm:*)":                   "called Bash",
		"deny Basj":                         "no such tool",
		"allow mcp__s__t(x)":                "nothing in parentheses",
		"allow TodoWrite(x)":                "nothing in parentheses",
		"deny WebFetch(x.org)":              "WebFetch(domain:x.org)",
		"deny WebFetch(domain:https://x.y)": "is followed by a host name",
		"deny Bash(git:* push)":             "only special at the end",
		"allow Bash(cd x && npm:*)":         "a rule for each",
		"allow Bash(echo $(date):*)":        "with the whole command",
		"allow Bash(xargs:*)":               "a rule of its own",
		"deny Read(~bob/x)":                 "only ~/",
		"deny Read(/etc/passwd)":            "two slashes: //etc/passwd",
		"deny Read(a/../b)":                 "write the rule without it",
		"deny Write(src/**)":                "Edit(src/**)",
	} {
		behavior, text, _ := strings.Cut(rule, " ")
		r, err := Parse(text, wire.PermissionBehavior(behavior), Source{LayerUser, "settings.json", 12, ""})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range Lint([]Rule{r}, nil, []string{"/w"}, "/home/u") {
			got = append(got, f.String())
		}
		all := strings.Join(got, "; ")
		if (want == "") != (all == "") || !strings.Contains(all, want) {
			t.Errorf("%s: %q, want %q", rule, all, want)
		}
		if all != "" && !strings.HasPrefix(all, "settings.json:12 (user): ") {
			t.Errorf("%s: %q does not say where", rule, all)
		}
	}
	a, b := Rule{Behavior: wire.BehaviorAllow, Tool: "Bash", Content: "ls"}, Rule{Behavior: wire.BehaviorDeny, Tool: "Bash", Source: Source{File: "b", Line: 3}}
	if f := Lint([]Rule{a, b}, nil, nil, ""); len(f) != 1 || !strings.Contains(f[0].Hint, "b:3") {
		t.Errorf("%v", f)
	}
}
