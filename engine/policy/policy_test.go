package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// call returns a tool of the tables, and the access of a call of it.
func call(t *testing.T, name, arg string) (*tool.Spec, []tool.Access) {
	switch name {
	case "Read", "Grep":
		return &tool.Spec{Name: name, ReadOnly: true}, []tool.Access{{Kind: tool.Read, Path: filepath.Clean(arg)}}
	case "Write", "Edit", "NotebookEdit":
		return &tool.Spec{Name: name}, []tool.Access{{Kind: tool.Write, Path: filepath.Clean(arg)}}
	case "Bash":
		return &tool.Spec{Name: name}, []tool.Access{{Kind: tool.Execute, Command: arg}}
	case "WebFetch":
		return &tool.Spec{Name: name, ReadOnly: true}, []tool.Access{{Kind: tool.Fetch, URL: arg}}
	case "WebSearch", "AskUserQuestion", "mcp__s__read":
		return &tool.Spec{Name: name, ReadOnly: true}, []tool.Access{{Kind: tool.Other}}
	case "mcp__s__write":
		return &tool.Spec{Name: name}, []tool.Access{{Kind: tool.Other}}
	case "EnterPlanMode":
		return &tool.Spec{Name: name, ReadOnly: true}, nil
	}
	t.Fatalf("no tool %s", name)
	return nil, nil
}

// table runs a file of testdata: groups of rules and a mode, and calls to decide.
func table(t *testing.T, file string, decide func(p *Policy, mode wire.PermissionMode, rest string) Decision) {
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	p, mode := New(), wire.ModeDefault
	for i, line := range strings.Split(string(data), "\n") {
		word, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		switch word {
		case "", "#":
		case "mode":
			mode = wire.PermissionMode(rest)
		case "rules":
			p, mode = New(), wire.ModeDefault
			for text := range strings.SplitSeq(rest, ";") {
				if text = strings.TrimSpace(text); text == "" {
					continue
				}
				behavior, rule, _ := strings.Cut(text, " ")
				r, err := Parse(rule, wire.PermissionBehavior(behavior), Source{File: "test"})
				if err != nil {
					t.Fatalf("%s:%d: %v", file, i+1, err)
				}
				p.Add(r)
			}
		default:
			if d := decide(p, mode, rest); string(d.Behavior) != word {
				t.Errorf("%s:%d: %s: %s (%s), want %s", file, i+1, rest, d.Behavior, d.Reason, word)
			}
		}
	}
}

func TestCommands(t *testing.T) {
	table(t, "commands.txt", func(p *Policy, mode wire.PermissionMode, command string) Decision {
		if strings.HasPrefix(command, `"`) {
			if s, err := strconv.Unquote(command); err == nil {
				command = s
			}
		}
		spec, access := call(t, "Bash", command)
		return p.Decide(&Request{Tool: spec, Access: access, Mode: mode, Roots: []string{"/w"}})
	})
}

func TestFiles(t *testing.T) {
	table(t, "files.txt", func(p *Policy, mode wire.PermissionMode, rest string) Decision {
		name, path, _ := strings.Cut(rest, " ")
		spec, access := call(t, name, path)
		return p.Decide(&Request{Tool: spec, Access: access, Mode: mode, Roots: []string{"/w", "/other"}, Home: "/home/u"})
	})
}

func TestModes(t *testing.T) {
	data, err := os.ReadFile("testdata/modes.txt")
	if err != nil {
		t.Fatal(err)
	}
	var modes []string
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if words[0] == "call" {
			modes = words[1:]
			continue
		}
		cells := words[len(words)-len(modes):]
		words = words[:len(words)-len(modes)]
		for i, want := range cells {
			spec, access := call(t, words[0], strings.Join(words[1:], " "))
			d := New().Decide(&Request{Tool: spec, Access: access, Mode: wire.PermissionMode(modes[i]), Roots: []string{"/w"}})
			if string(d.Behavior) != want {
				t.Errorf("%s in %s: %s, want %s", strings.Join(words, " "), modes[i], d.Behavior, want)
			}
			// Nothing makes a denied call run.
			deny := New(Rule{Behavior: wire.BehaviorAllow, Tool: words[0]}, Rule{Behavior: wire.BehaviorDeny, Tool: words[0]}, Rule{Behavior: wire.BehaviorAsk, Tool: words[0]})
			if d := deny.Decide(&Request{Tool: spec, Access: access, Mode: wire.PermissionMode(modes[i]), Roots: []string{"/w"}}); d.Behavior != wire.BehaviorDeny || d.Rule == nil {
				t.Errorf("%s in %s: a deny rule makes it %s", words[0], modes[i], d.Behavior)
			}
		}
	}
}

// TestLinks reaches a file by other names.
func TestLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, secret := filepath.Join(dir, "w[1]{a,b}"), filepath.Join(dir, "secret")
	for _, d := range []string{root, secret, filepath.Join(root, "keys")} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		filepath.Join(root, "out"): secret, filepath.Join(root, "k"): filepath.Join(root, "keys"), filepath.Join(dir, "alias"): secret,
	} {
		if err := os.Symlink(to, link); err != nil {
			t.Skip(err)
		}
	}
	for _, tt := range []struct{ rule, path, want string }{
		{"", filepath.Join(root, "a"), "allow"},
		{"", filepath.Join(root, "out", "a"), "ask"},
		{"deny Read(/" + secret + "/**)", filepath.Join(root, "out", "a"), "deny"},
		{"deny Read(/" + dir + "/alias/**)", filepath.Join(secret, "a"), "deny"},
		{"deny Read(keys/**)", filepath.Join(root, "k", "a"), "deny"},
		{"deny Read(/keys/**)", filepath.Join(root, "keys", "a"), "deny"},
		{"allow Read(/" + dir + "/w*/out/**)", filepath.Join(root, "out", "a"), "ask"}, // it is elsewhere
	} {
		p := New()
		if tt.rule != "" {
			behavior, text, _ := strings.Cut(tt.rule, " ")
			r, err := Parse(text, wire.PermissionBehavior(behavior), Source{File: "test"})
			if err != nil {
				t.Fatal(err)
			}
			p.Add(r)
		}
		spec, access := call(t, "Read", tt.path)
		if d := p.Decide(&Request{Tool: spec, Access: access, Roots: []string{root}}); string(d.Behavior) != tt.want {
			t.Errorf("%s, %s: %s (%s), want %s", tt.rule, tt.path, d.Behavior, d.Reason, tt.want)
		}
		if hides := p.Hides(&Request{Roots: []string{root}}, tt.path, nil); hides != (tt.want == "deny") {
			t.Errorf("%s hides %s: %v", tt.rule, tt.path, hides)
		}
	}
}

func TestOtherTools(t *testing.T) {
	for _, tt := range []struct{ rule, name, arg, want string }{
		{"mcp__s", "mcp__s__read", "", "yes"},
		{"mcp__s__*", "mcp__s__read", "", "yes"},
		{"mcp__s__re*", "mcp__s__read", "", "yes"},
		{"mcp__*", "mcp__s__read", "", "yes"},
		{"mcp__s__read", "mcp__s__read", "", "yes"},
		{"mcp__s__rea", "mcp__s__read", "", "no"},
		{"mcp__t", "mcp__s__read", "", "no"},
		{"Bash", "mcp__s__read", "", "no"},
		{"WebFetch(domain:x.org)", "WebFetch", "https://x.org/a", "yes"},
		{"WebFetch(domain:x.org)", "WebFetch", "https://X.org:443/a", "yes"},
		{"WebFetch(domain:x.org)", "WebFetch", "https://x.org./a", "yes"},
		{"WebFetch(domain:x.org)", "WebFetch", "https://x.org@evil.com/a", "no"},
		{"WebFetch(domain:x.org)", "WebFetch", "https://evil.com/x.org", "no"},
		{"WebFetch(domain:x.org)", "WebFetch", "https://ax.org/", "no"},
		{"WebFetch(domain:*.x.org)", "WebFetch", "https://a.x.org/", "yes"},
		{"WebFetch(domain:*.x.org)", "WebFetch", "https://x.org/", "no"},
		{"WebFetch", "WebFetch", "https://x.org/", "yes"},
	} {
		for _, behavior := range []wire.PermissionBehavior{wire.BehaviorAllow, wire.BehaviorDeny} {
			r, err := Parse(tt.rule, behavior, Source{File: "test"})
			if err != nil {
				t.Fatal(err)
			}
			spec, access := call(t, tt.name, tt.arg)
			d := New(r).Decide(&Request{Tool: spec, Access: access})
			if got := d.Behavior == behavior; got != (tt.want == "yes") {
				t.Errorf("%s %s: %s %s is %s", behavior, tt.rule, tt.name, tt.arg, d.Behavior)
			}
		}
	}
}

// TestPatternsOfTools checks that * in the name of a tool stands for any part of it in deny and ask rules, and that an
// allow rule allows nothing by such a name.
func TestPatternsOfTools(t *testing.T) {
	for _, tt := range []struct {
		rule, name string
		matches    bool
	}{
		{"*", "TodoWrite", true}, {"*", "mcp__s__read", true}, {"T*", "TodoWrite", true}, {"*Write", "TodoWrite", true},
		{"*(*)", "TodoWrite", true}, {"W*", "TodoWrite", false}, {"*s__read", "mcp__s__read", true}, {"Kill*", "TaskStop", true},
	} {
		for _, b := range []wire.PermissionBehavior{wire.BehaviorAllow, wire.BehaviorDeny, wire.BehaviorAsk} {
			r, err := Parse(tt.rule, b, Source{File: "test"})
			if err != nil {
				t.Fatal(err)
			}
			spec := &tool.Spec{Name: tt.name}
			if tt.name == "TaskStop" {
				spec.Aliases = []string{"KillShell"}
			}
			d := New(r).Decide(&Request{Tool: spec, Access: []tool.Access{{Kind: tool.Other}}})
			if want := tt.matches && b != wire.BehaviorAllow; (d.Rule != nil) != want {
				t.Errorf("%s %s: %s is %s by %v, want that the rule matches: %v", b, tt.rule, tt.name, d.Behavior, d.Rule, want)
			}
		}
	}
}

// TestServerNames checks that an allow rule for a server does not allow another one
// whose name has it as a prefix, and that a deny rule also covers such a server.
func TestServerNames(t *testing.T) {
	for _, tt := range []struct {
		rule, server, name string
		allows             bool
	}{
		{"mcp__s", "s", "mcp__s__read", true},
		{"mcp__s", "s", "mcp__s__x__read", true}, // a tool with two underscores in its name
		{"mcp__s", "s__x", "mcp__s__x__read", false},
		{"mcp__s__*", "s__x", "mcp__s__x__read", false},
		{"mcp__s__x*", "s__x", "mcp__s__x__read", false},
		{"mcp__s__x", "s__x", "mcp__s__x__read", false}, // it is the tool x of s
		{"mcp__s__x__*", "s", "mcp__s__x__read", false}, // it is the server s__x
		{"mcp__s__r*", "s", "mcp__s__read", true},
		{"mcp__s_", "s_", "mcp__s___read", true},
		{"mcp__s_", "s", "mcp__s___read", false},
		{"mcp__s___*", "s", "mcp__s___read", false},
		{"mcp__s__x__*", "s__x", "mcp__s__x__read", true},
		{"mcp__s*", "s__x", "mcp__s__x__read", true},
		{"mcp__*", "s__x", "mcp__s__x__read", true},
		{"mcp__s__x__read", "s__x", "mcp__s__x__read", true},
		{"mcp__s", "", "mcp__s__read", true}, // of a record that does not name the server
	} {
		for _, b := range []wire.PermissionBehavior{wire.BehaviorAllow, wire.BehaviorDeny, wire.BehaviorAsk} {
			r, err := Parse(tt.rule, b, Source{File: "test"})
			if err != nil {
				t.Fatal(err)
			}
			spec, access := &tool.Spec{Name: tt.name, Server: tt.server}, []tool.Access{{Kind: tool.Other}}
			d := New(r).Decide(&Request{Tool: spec, Access: access})
			if got := d.Behavior == b; got != (tt.allows || b != wire.BehaviorAllow) {
				t.Errorf("%s %s: %s of %q is %s", b, tt.rule, tt.name, tt.server, d.Behavior)
			}
			if again := New(r).Decide(d.Receipt().Request()); again.Behavior != d.Behavior {
				t.Errorf("%s %s: %s of %q is %s again", b, tt.rule, tt.name, tt.server, again.Behavior)
			}
		}
	}
}

func TestParse(t *testing.T) {
	for _, bad := range []string{"", "(x)", "Bash(x", "  ", "Read([a)"} {
		if r, err := Parse(bad, wire.BehaviorDeny, Source{File: "test"}); err == nil {
			t.Errorf("%q is taken as %+v", bad, r)
		}
	}
	rules, err := ParseList("Read, Bash(git diff:*, x) mcp__s  Edit( a b )", wire.BehaviorAllow, Source{File: "test"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rules {
		got = append(got, r.String())
	}
	if want := []string{"Read", "Bash(git diff:*, x)", "mcp__s", "Edit( a b )"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func BenchmarkDecide(b *testing.B) {
	p := New(Rule{Behavior: wire.BehaviorDeny, Tool: "Bash", Content: "rm:*"}, Rule{Behavior: wire.BehaviorDeny, Tool: "Read", Content: ".env"}, Rule{Behavior: wire.BehaviorAllow, Tool: "Bash", Content: "git diff:*"})
	req := &Request{Tool: &tool.Spec{Name: "Bash"}, Access: []tool.Access{{Kind: tool.Execute, Command: "git diff HEAD -- engine/policy/policy.go"}}, Roots: []string{"/w"}}
	for b.Loop() {
		p.Decide(req)
	}
}

// BenchmarkNoRules measures a call that no rule and no mode decides.
func BenchmarkNoRules(b *testing.B) {
	p := New()
	req := &Request{Tool: &tool.Spec{Name: "Bash"}, Access: []tool.Access{{Kind: tool.Execute, Command: "git diff HEAD -- engine/policy/policy.go"}}, Roots: []string{"/w"}, Mode: wire.ModeBypassPermissions}
	for b.Loop() {
		p.Decide(req)
	}
}

// The reason of a decision has the form that hosts expect: a rule before the mode, and
// the parts of a command that is decided part by part.
func TestReasonType(t *testing.T) {
	for _, c := range []struct {
		name, arg, rule, want string
		mode                  wire.PermissionMode
	}{
		{"Read", "/w/a", "", "mode", wire.ModeDefault},
		{"Read", "/w/a", "Read", "rule", wire.ModeAcceptEdits},
		{"Write", "/w/a", "", "mode", wire.ModeAcceptEdits},
		{"Bash", "echo hi", "", "subcommandResults", wire.ModeDefault},
		{"Bash", "make all", "Bash", "rule", wire.ModeDefault},
		{"Bash", "make all", "Bash(make *)", "subcommandResults", wire.ModeDefault},
	} {
		p := New()
		if c.rule != "" {
			name, content, _ := strings.Cut(strings.TrimSuffix(c.rule, ")"), "(")
			p.Update(&wire.PermissionUpdate{Type: wire.UpdateAddRules, Behavior: wire.BehaviorAllow, Destination: wire.DestinationSession,
				Rules: []*wire.PermissionRule{{ToolName: name, RuleContent: content}}})
		}
		spec, access := call(t, c.name, c.arg)
		d := p.Decide(&Request{Tool: spec, Access: access, Mode: c.mode, Roots: []string{"/w"}})
		if d.Behavior != wire.BehaviorAllow || d.ReasonType != c.want {
			t.Errorf("%s %s with %q in %s: %s, %s; want %s", c.name, c.arg, c.rule, c.mode, d.Behavior, d.ReasonType, c.want)
		}
	}
}

// A decision names its basis, so that a command that nobody approved can run behind the
// read wall.
func TestDecidedBy(t *testing.T) {
	rule := func(b wire.PermissionBehavior, content string) Rule {
		return Rule{Behavior: b, Tool: "Bash", Content: content}
	}
	allow := rule(wire.BehaviorAllow, "")
	for _, c := range []struct {
		command  string
		rules    []Rule
		mode     wire.PermissionMode
		behavior wire.PermissionBehavior
		want     Basis
	}{
		{"cat a", nil, wire.ModeDefault, wire.BehaviorAllow, ByTable},
		{"cat a", []Rule{allow}, wire.ModeDefault, wire.BehaviorAllow, ByRule},
		{"cat a", []Rule{allow}, wire.ModePlan, wire.BehaviorAllow, ByProof},
		{"make", []Rule{allow}, wire.ModePlan, wire.BehaviorDeny, ByMode},
		{"make", []Rule{rule(wire.BehaviorAllow, "make:*")}, wire.ModeDefault, wire.BehaviorAllow, ByRule},
		{"make", []Rule{rule(wire.BehaviorDeny, "make:*")}, wire.ModeDefault, wire.BehaviorDeny, ByRule},
		{"make", []Rule{rule(wire.BehaviorAsk, "make:*")}, wire.ModeDefault, wire.BehaviorAsk, ByRule},
		{"make", []Rule{rule(wire.BehaviorAsk, "make:*")}, wire.ModeDontAsk, wire.BehaviorDeny, ByMode},
		{"make", nil, wire.ModeDefault, wire.BehaviorAsk, ""},
		{"make", nil, wire.ModeBypassPermissions, wire.BehaviorAllow, ByMode},
		{"touch a", nil, wire.ModeAcceptEdits, wire.BehaviorAllow, ByEdits},
		{"touch .git/config", nil, wire.ModeAcceptEdits, wire.BehaviorAsk, BySafety},
	} {
		spec, access := call(t, "Bash", c.command)
		d := New(c.rules...).Decide(&Request{Tool: spec, Access: access, Mode: c.mode, Roots: []string{"/w"}})
		if d.Behavior != c.behavior || d.DecidedBy != c.want {
			t.Errorf("%s with %v in mode %s: %s by %q, want %s by %q", c.command, c.rules, c.mode, d.Behavior, d.DecidedBy, c.behavior, c.want)
		}
	}
	// A narrower policy that needs a proof runs the command behind the wall, although
	// the wider one approves it.
	spec, access := call(t, "Bash", "cat a")
	child := New(allow).Narrow(Narrowing{Mode: wire.ModePlan})
	if d := child.Decide(&Request{Tool: spec, Access: access, Mode: wire.ModeBypassPermissions, Roots: []string{"/w"}}); d.DecidedBy != ByProof {
		t.Errorf("a subagent in plan mode: %s by %q, want %q", d.Behavior, d.DecidedBy, ByProof)
	}
}

// A built-in rule denies what it names, and does not ask about anything that is not
// understood.
func TestBuiltIn(t *testing.T) {
	r, err := ForFile("Read", "/home/u/.claude/.credentials.json", wire.BehaviorDeny, Source{Layer: LayerManaged, File: BuiltIn})
	if err != nil {
		t.Fatal(err)
	}
	p := New(r)
	for command, stopped := range map[string]bool{
		"cat /home/u/.claude/.credentials.json": true, "cat ~/.claude/.c*": true, "cd ~/.claude; cat .credentials.json": true, "f=.credentials.json; cat ~/.claude/$f": true,
		"python3 -c 'print(1)'": false, `cat "$X"`: false, "cat src/$X": false, "$X": false, "cd $X; make": false, "sed '/x/{p}' a": false, `echo x > "$OUT"`: false,
	} {
		spec, access := call(t, "Bash", command)
		d := p.Decide(&Request{Tool: spec, Access: access, Mode: wire.ModeBypassPermissions, Roots: []string{"/w"}, Home: "/home/u"})
		if (d.Behavior != wire.BehaviorAllow) != stopped {
			t.Errorf("%s: %s (%s)", command, d.Behavior, d.Reason)
		}
	}
}

// A rule about a file matches that file, whatever characters its path has.
func TestForFile(t *testing.T) {
	for _, path := range []string{"/home/a b/x.json", "/home/[me]/{x}*.json", `/home/!me/^x?.json`} {
		r, err := ForFile("Read", path, wire.BehaviorDeny, Source{Layer: LayerManaged})
		if err != nil {
			t.Fatal(path, err)
		}
		p := New(r)
		for file, denied := range map[string]bool{path: true, "/home/me/x.json": false, path + "x": false} {
			spec, access := call(t, "Read", file)
			d := p.Decide(&Request{Tool: spec, Access: access, Roots: []string{"/home"}})
			if (d.Behavior == wire.BehaviorDeny) != denied {
				t.Errorf("%s against %s: %s", file, path, d.Behavior)
			}
		}
	}
}

// TestCleanedIsClean compares cleaned with filepath.Clean for all short paths of these letters.
func TestCleanedIsClean(t *testing.T) {
	paths := []string{""}
	for len(paths[0]) < 7 {
		path := paths[0]
		if got, want := cleaned(path), filepath.Clean(path); got != want {
			t.Errorf("cleaned(%q) = %q, want %q", path, got, want)
		}
		paths = append(paths[1:], path+"/", path+".", path+"a")
	}
}

// TestNoSuggestionForAllFiles checks that a request about a file in the root directory does not suggest to allow all files.
func TestNoSuggestionForAllFiles(t *testing.T) {
	d := New().Decide(&Request{Tool: &tool.Spec{Name: "Read"}, Access: []tool.Access{{Kind: tool.Read, Path: "/no-such-file"}},
		Mode: wire.ModeDefault, Roots: []string{t.TempDir()}})
	if got := d.Suggestions(); d.Behavior != wire.BehaviorAsk || len(got) != 0 {
		t.Errorf("got %s with %d suggestions, want ask without suggestions", d.Behavior, len(got))
	}
}
