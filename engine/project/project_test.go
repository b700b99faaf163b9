package project_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/project"
)

// tree writes files into a new directory, which is a repository. A name that ends in "->" is
// a symbolic link to its content.
func tree(t testing.TB, names map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	names[".git/HEAD"] = "ref: refs/heads/trunk\n"
	for name, text := range names {
		path := filepath.Join(dir, strings.TrimSuffix(name, "->"))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "->") {
			if err := os.Symlink(text, path); err != nil {
				t.Skip("no symbolic links here:", err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var all = []string{project.User, project.Project, project.Local}

func paths(base string, list []*project.File) string {
	var names []string
	for _, f := range list {
		rel, err := filepath.Rel(base, f.Path)
		if err != nil || strings.HasPrefix(rel, "..") {
			rel = filepath.Base(f.Path)
		}
		names = append(names, filepath.ToSlash(rel))
	}
	return strings.Join(names, " ")
}

func problems(c *project.Context) string {
	var b strings.Builder
	for _, p := range c.Problems {
		fmt.Fprintf(&b, "%s: %s\n", p.Path, p.Reason)
	}
	return b.String()
}

func TestInstructions(t *testing.T) {
	home := tree(t, map[string]string{"CLAUDE.md": "mine, see @more.md", "more.md": "more", "rules/r.md": "my rule"})
	dir := tree(t, map[string]string{
		"CLAUDE.md":           "root @a/one.md and `@code.md` and me@example.com\n```\n@fenced.md\n```\n",
		"a/one.md":            "one @two.md @one.md",
		"a/two.md":            "two @one.md",
		"code.md":             "never",
		"fenced.md":           "never",
		"CLAUDE.local.md":     "local",
		".claude/CLAUDE.md":   "dotted",
		".claude/rules/go.md": "---\npaths: \"**/*.go\"\n---\nfor go",
		".claude/rules/x.md":  "always",
		"sub/CLAUDE.md":       "sub",
		"sub/deep/CLAUDE.md":  "deep @side.md",
		"sub/deep/side.md":    "side",
		"sub/deep/x.go":       "package x",
	})
	for _, tt := range []struct {
		sources []string
		cwd     string
		want    string
	}{
		{nil, dir, ""},
		{[]string{project.User}, dir, "CLAUDE.md more.md r.md"},
		{[]string{project.Local}, dir, "CLAUDE.local.md"},
		{[]string{project.Project}, dir, "CLAUDE.md a/one.md a/two.md .claude/CLAUDE.md .claude/rules/x.md"},
		{[]string{project.Project}, filepath.Join(dir, "sub"), "CLAUDE.md a/one.md a/two.md .claude/CLAUDE.md .claude/rules/x.md sub/CLAUDE.md"},
	} {
		c := project.Load(project.Options{Cwd: tt.cwd, ConfigDir: home, Sources: tt.sources})
		if got := paths(dir, c.Instructions); got != tt.want {
			t.Errorf("%v in %s: %s\nwant %s\n%s", tt.sources, tt.cwd, got, tt.want, problems(c))
		}
		for _, f := range c.Files {
			data, err := os.ReadFile(f.Path)
			if err != nil || f.Sum != sha256.Sum256(data) || f.Size != len(data) {
				t.Errorf("the hash of %s is wrong", f.Path)
			}
		}
	}

	c := project.Load(project.Options{Cwd: dir, Sources: all})
	file := filepath.Join(dir, "sub", "deep", "x.go")
	if got := paths(dir, c.Below(file)); got != ".claude/rules/go.md sub/CLAUDE.md sub/deep/CLAUDE.md sub/deep/side.md" {
		t.Error(got)
	}
	if got := c.Below(file); len(got) > 0 {
		t.Error("told twice:", paths(dir, got))
	}
	c.Forget()
	c.MarkSent(filepath.Join(dir, "sub", "CLAUDE.md"))
	if got := paths(dir, c.Below(file)); got != ".claude/rules/go.md sub/deep/CLAUDE.md sub/deep/side.md" {
		t.Error(got)
	}
	if got := c.Below(filepath.Join(filepath.Dir(dir), "elsewhere", "f.txt")); len(got) > 0 {
		t.Error("of another place:", paths(dir, got))
	}
}

// An untrusted project is read within limits, and every file that is not read is reported.
func TestHostile(t *testing.T) {
	outside := tree(t, map[string]string{"secret.md": "secret", "skills/x/SKILL.md": "---\nname: x\n---\nstolen"})
	big := strings.Repeat("x", 300<<10)
	chain := map[string]string{"CLAUDE.md": "@n0.md @" + outside + "/secret.md @../../up.md"}
	for i := range 9 {
		chain[fmt.Sprintf("n%d.md", i)] = fmt.Sprintf("@n%d.md", i+1)
	}
	dir := tree(t, chain)
	c := project.Load(project.Options{Cwd: dir, Sources: all})
	if got := paths(dir, c.Instructions); got != "CLAUDE.md n0.md n1.md n2.md n3.md n4.md" {
		t.Error(got)
	}
	for _, want := range []string{"secret.md: ", "from outside the project", "n5.md", "up.md"} {
		if !strings.Contains(problems(c), want) {
			t.Errorf("%q is not among %s", want, problems(c))
		}
	}

	dir = tree(t, map[string]string{
		"CLAUDE.md->":                 filepath.Join(outside, "secret.md"),
		"CLAUDE.local.md":             "a\x00b",
		".claude/CLAUDE.md":           big,
		".claude/skills->":            filepath.Join(outside, "skills"),
		".claude/commands/ok.md":      "ok",
		".claude/commands/b:d.md":     "bad name? no",
		".claude/commands/a b.md":     "bad name",
		".claude/commands/\xff.md":    "bad name",
		".claude/commands/wrong.md->": filepath.Join(outside, "secret.md"),
	})
	c = project.Load(project.Options{Cwd: dir, Sources: all})
	if len(c.Instructions) > 0 {
		t.Error(paths(dir, c.Instructions))
	}
	var names []string
	for _, cmd := range c.Commands {
		names = append(names, cmd.Name)
	}
	if !slices.Equal(names, []string{"b:d", "ok"}) {
		t.Errorf("%q", names)
	}
	for _, want := range []string{"CLAUDE.md: ", "not text", "leads out of", "skills: ", "a b.md", "wrong.md"} {
		if !strings.Contains(problems(c), want) {
			t.Errorf("%q is not among\n%s", want, problems(c))
		}
	}

	many := map[string]string{}
	dir = tree(t, many)
	if err := os.MkdirAll(filepath.Join(dir, ".claude", "commands"), 0o777); err != nil {
		t.Fatal(err)
	}
	for i := range 2100 {
		if err := os.WriteFile(filepath.Join(dir, ".claude", "commands", fmt.Sprintf("c%d.md", i)), []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	c = project.Load(project.Options{Cwd: dir, Sources: all})
	if len(c.Commands) != 2000 || !strings.Contains(problems(c), "more than is read") {
		t.Errorf("%d commands\n%s", len(c.Commands), problems(c))
	}
}

func TestCommands(t *testing.T) {
	home := tree(t, map[string]string{"commands/foo.md": "the user's foo", "commands/own.md": "---\nallowed-tools: Bash(ls:*)\n---\nown"})
	dir := tree(t, map[string]string{
		".claude/commands/foo.md":         "---\ndescription: Foo it\nargument-hint: [x]\nallowed-tools: Bash(git log:*), Read\nmodel: haiku\n---\nDo $ARGUMENTS: $0, $1, $2 and $ARGUMENTS[1].\n!`git log $0`\nend",
		".claude/commands/ns/bar.md":      "# Bar\n\nwithout a head",
		".claude/skills/help-me/SKILL.md": "---\nname: other\ndescription: Helps.\ndisable-model-invocation: true\nuser-invocable: false\n---\nbody",
	})
	trusted := map[string]bool{}
	load := func() *project.Context {
		return project.Load(project.Options{Cwd: dir, ConfigDir: home, Sources: all,
			Trusted: func(path string, _ []byte) bool { return trusted[filepath.Base(path)] }})
	}
	c := load()
	foo := c.Command("foo")
	if foo == nil || foo.Description != "Foo it" || foo.ArgumentHint != "[x]" || foo.Model != "haiku" || foo.Source != project.Project || foo.Trusted ||
		!slices.Equal(foo.AllowedTools, []string{"Bash(git log:*)", "Read"}) {
		t.Fatalf("%+v", foo)
	}
	if own := c.Command("own"); own == nil || !own.Trusted || own.Source != project.User {
		t.Errorf("%+v", own)
	}
	if bar := c.Command("ns:bar"); bar == nil || bar.Description != "Bar" {
		t.Errorf("%+v", bar)
	}
	if s := c.Command("help-me"); s == nil || !s.Skill || !s.NoModel || !s.NoPerson || s.Dir != filepath.Join(dir, ".claude", "skills", "help-me") {
		t.Errorf("%+v", s)
	}
	trusted["foo.md"] = true
	if foo := load().Command("foo"); !foo.Trusted {
		t.Error("foo is not trusted")
	}

	for _, tt := range []struct{ args, want string }{
		{`one "two three"`, "Do one \"two three\": one, two three, $2 and two three.\n|!git log one|\nend"},
		{"", "Do : $0, $1, $2 and $ARGUMENTS[1].\n|!git log $0|\nend"},
		{"x !`rm -rf /`", "Do x !`rm -rf /`: x, !`rm, -rf and !`rm.\n|!git log x|\nend"},
	} {
		if got := show(foo.Expand(tt.args)); got != tt.want {
			t.Errorf("%q becomes\n%s\nwant\n%s", tt.args, got, tt.want)
		}
	}
	// As the official command does, observed from outside: missing arguments keep their
	// placeholder, a backslash escapes one, and arguments can have names.
	dir = tree(t, map[string]string{
		".claude/commands/all.md":   `all=[$ARGUMENTS] 0=[$0] 1=[$1] 9=[$9] 10=[$10] i0=[$ARGUMENTS[0]] i7=[$ARGUMENTS[7]] esc=[\$1] \$ARGUMENTS name=[$name] dd=[$$1] brace=[${1}]`,
		".claude/commands/named.md": "---\narguments: [issue, branch]\n---\nfix $issue on $branch, all $ARGUMENTS, $issues",
		".claude/commands/words.md": "---\narguments: issue branch\n---\n$branch",
	})
	c = load()
	for _, tt := range []struct{ name, args, want string }{
		{"all", `a "b c"`, `all=[a "b c"] 0=[a] 1=[b c] 9=[$9] 10=[$10] i0=[a] i7=[$ARGUMENTS[7]] esc=[$1] $ARGUMENTS name=[$name] dd=[$b c] brace=[${1}]`},
		{"all", "", `all=[] 0=[$0] 1=[$1] 9=[$9] 10=[$10] i0=[$ARGUMENTS[0]] i7=[$ARGUMENTS[7]] esc=[$1] $ARGUMENTS name=[$name] dd=[$$1] brace=[${1}]`},
		{"all", "$1 $ARGUMENTS", `all=[$1 $ARGUMENTS] 0=[$1] 1=[$ARGUMENTS] 9=[$9] 10=[$10] i0=[$1] i7=[$ARGUMENTS[7]] esc=[$1] $ARGUMENTS name=[$name] dd=[$$ARGUMENTS] brace=[${1}]`},
		{"named", "12 main extra", "fix 12 on main, all 12 main extra, $issues"},
		{"named", "12", "fix 12 on $branch, all 12, $issues"},
		{"words", "12 main", "main"},
	} {
		if got := show(c.Command(tt.name).Expand(tt.args)); got != tt.want {
			t.Errorf("%s %q becomes\n%s\nwant\n%s", tt.name, tt.args, got, tt.want)
		}
	}
	c = project.Load(project.Options{Cwd: tree(t, map[string]string{".claude/commands/ns/bar.md": "# Bar\n\nwithout a head"}), Sources: all})
	if got := show(c.Command("ns:bar").Expand("a b")); got != "# Bar\n\nwithout a head|\n\nARGUMENTS: a b" {
		t.Errorf("%q", got)
	}
}

func show(parts []project.Part) string {
	var texts []string
	for _, p := range parts {
		if p.Shell {
			p.Text = "!" + p.Text
		}
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "|")
}

func TestStylesAndPlugins(t *testing.T) {
	plug := tree(t, map[string]string{
		".claude-plugin/plugin.json": `{"name":"plug","version":"1.2.3"}`, "commands/pc.md": "PC", "skills/ps/SKILL.md": "PS", "agents/pa.md": "x",
		"hooks/hooks.json": "{}", ".mcp.json->": "/etc/hostname",
	})
	bad := tree(t, map[string]string{".claude-plugin/plugin.json": `{"name":`})
	dir := tree(t, map[string]string{".claude/output-styles/pirate.md": "---\nname: Pirate\n---\nArr."})
	c := project.Load(project.Options{Cwd: dir, Sources: all, PluginDirs: []string{plug, bad, "nowhere"}})
	if s := c.Style("pirate"); s == nil || s.Text != "Arr." || s.Name != "Pirate" {
		t.Errorf("%+v", s)
	}
	if len(c.Plugins) != 3 {
		t.Fatal(len(c.Plugins))
	}
	p := c.Plugins[0]
	if p.Err != nil || p.Name != "plug" || p.Version != "1.2.3" || p.Agents == "" || p.Hooks == "" || p.MCP != "" {
		t.Errorf("%+v", p)
	}
	if c.Plugins[1].Err == nil || c.Plugins[2].Err == nil || c.Plugins[2].Name != "inline[2]" {
		t.Errorf("%+v, %+v", c.Plugins[1], c.Plugins[2])
	}
	if cmd := c.Command("ps"); cmd == nil || cmd.Name != "plug:ps" || !cmd.Trusted {
		t.Errorf("%+v", cmd)
	}
	if c.Command("plug:pc") == nil || c.Command("pc") != nil {
		t.Error("commands of a plugin have its name before theirs")
	}
}

func TestGit(t *testing.T) {
	run := func(_ context.Context, _ string, args []string) ([]byte, error) {
		if slices.Contains(args, "status") {
			return []byte(" M a.go\n?? \x1b[31mb.go\n"), nil
		}
		return []byte("abc123 first\n"), nil
	}
	for config, runs := range map[string]bool{
		"[core]\n\tbare = false\n[remote \"origin\"]\n\turl = x\n":        true,
		"[core]\n\tfsmonitor = ./evil\n":                                  false,
		"[filter \"x\"]\n\tclean = ./evil\n":                              false,
		"[include]\n\tpath = evil\n":                                      false,
		"[core]\n\tbare = false\\\n\n":                                    false,
		"[remote \"o\"]\n\turl = x\n\tuploadpack = evil\n":                false,
		"[core] fsmonitor = ./evil\n":                                     false,
		"[core]\n\tbare = false\n[CORE]\n\tsshCommand = evil\n":           false,
		"[remote \"]\"]\n[core]\nbare=true\n[core] hookspath=x\n[pull]\n": false,
	} {
		dir := tree(t, map[string]string{".git/config": config})
		c := project.Load(project.Options{Cwd: dir, Sources: all})
		got := c.Git(t.Context(), run)
		if !strings.Contains(got, "Branch: trunk") || strings.Contains(got, "M a.go") != runs || strings.Contains(got, "\x1b") {
			t.Errorf("with\n%s\n%s", config, got)
		}
	}
	c := project.Load(project.Options{Cwd: tree(t, map[string]string{}), Sources: []string{project.User}})
	if got := c.Git(t.Context(), run); got != "" {
		t.Error(got)
	}
}

func TestWords(t *testing.T) {
	for in, want := range map[string]string{"": "", `a  b`: "a|b", `"a b" 'c d' e"f g"h`: "a b|c d|ef gh", `it's fine`: "it's|fine", `"open`: "open", `""`: "",
		`e\ f g`: "e f|g", `"c\"d" e`: `c\"d|e`, `C:\temp\x \\`: `C:\temp\x|\`, `a\`: `a\`} {
		if got := strings.Join(project.Words(in), "|"); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("$0 !`x`", "a")
	f.Fuzz(func(t *testing.T, body, args string) {
		dir := t.TempDir()
		os.MkdirAll(filepath.Join(dir, ".claude", "commands"), 0o777)
		os.WriteFile(filepath.Join(dir, ".claude", "commands", "c.md"), []byte(body), 0o666)
		c := project.Load(project.Options{Cwd: dir, Sources: all})
		cmd := c.Command("c")
		if cmd == nil {
			return
		}
		shells := func(args string) (n int) {
			for _, p := range cmd.Expand(args) {
				if p.Shell {
					n++
				}
			}
			return n
		}
		if shells(args) != shells("") {
			t.Errorf("arguments %q change what %q runs", args, body)
		}
		project.Mentions(body)
	})
}

func ExampleLoad() {
	dir, _ := os.MkdirTemp("", "project")
	defer os.RemoveAll(dir)
	os.WriteFile(filepath.Join(dir, "CLAUDE.md"), []byte("Use tabs."), 0o666)
	c := project.Load(project.Options{Cwd: dir, Sources: []string{project.Project}})
	for _, f := range c.Instructions {
		fmt.Println(filepath.Base(f.Path), f.Source, f.Text)
	}
	// Output: CLAUDE.md project Use tabs.
}

// TestAgentsFile checks that AGENTS.md is read in directories without a CLAUDE.md, including
// nested ones.
func TestAgentsFile(t *testing.T) {
	dir := tree(t, map[string]string{
		".git/HEAD": "ref: refs/heads/main\n", "AGENTS.md": "root", "with/CLAUDE.md": "claude", "with/AGENTS.md": "agents", "sub/AGENTS.md": "sub", "sub/f.go": "package sub",
	})
	c := project.Load(project.Options{Cwd: dir, Sources: []string{project.Project}})
	if got := paths(dir, c.Instructions); got != "AGENTS.md" {
		t.Errorf("read at the start: %q, want AGENTS.md", got)
	}
	if got := paths(dir, c.Below(filepath.Join(dir, "sub", "f.go"))); got != "sub/AGENTS.md" {
		t.Errorf("read for a file below: %q, want sub/AGENTS.md", got)
	}
	c = project.Load(project.Options{Cwd: filepath.Join(dir, "with"), Sources: []string{project.Project}})
	if got := paths(dir, c.Instructions); got != "AGENTS.md with/CLAUDE.md" {
		t.Errorf("beside CLAUDE.md: %q, want AGENTS.md with/CLAUDE.md", got)
	}
}

// TestBuiltinStyles checks that the three built-in styles always exist, and that a file of
// the same name takes precedence.
func TestBuiltinStyles(t *testing.T) {
	dir := tree(t, map[string]string{".claude/output-styles/concise.md": "---\nname: Concise\n---\nmine"})
	c := project.Load(project.Options{Cwd: dir, Sources: []string{project.Project}})
	for _, name := range []string{"Explanatory", "Learning", "Concise"} {
		if s := c.Style(name); s == nil || s.Text == "" || name == "Concise" && s.Text != "mine" {
			t.Errorf("the style %s is %+v", name, s)
		}
	}
}
