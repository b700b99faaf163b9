package shell_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/policy/shell"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// decide returns the decision about a command if a rule allows only commands that begin with a prefix.
func decide(t *testing.T, dir, prefix, command string) wire.PermissionBehavior {
	t.Helper()
	rule, err := policy.Parse("Bash("+prefix+":*)", wire.BehaviorAllow, policy.Source{Layer: policy.LayerUser})
	if err != nil {
		t.Fatal(err)
	}
	req := &policy.Request{
		Tool: &tool.Spec{Name: "Bash"}, Access: []tool.Access{{Kind: tool.Execute, Command: command}},
		Roots: []string{dir}, Home: filepath.Join(dir, "home"), Mode: wire.ModeDefault,
	}
	return policy.New(rule).Decide(req).Behavior
}

// TestRulesDoNotCoverEscapes checks testdata/escapes.txt: an allow rule for a program alone covers none
// of the ways in which its words can run another command, write another file or send one. Every program
// of the table must be in the file, so a new line cannot forget them.
func TestRulesDoNotCoverEscapes(t *testing.T) {
	data, err := os.ReadFile("testdata/escapes.txt")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	seen, rows := map[string]bool{}, 0
	for i, line := range strings.Split(string(data), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		names, command, ok := strings.Cut(line, ": ")
		if !ok {
			t.Fatalf("escapes.txt:%d: want NAMES: COMMAND, got %q", i+1, line)
		}
		if slices.Contains([]string{"none", "code", "purpose"}, names) {
			for name := range strings.FieldsSeq(command) {
				seen[name] = true
			}
			continue
		}
		for name := range strings.SplitSeq(names, ",") {
			seen[name] = true
			rows++
			if d := decide(t, dir, name, name+" "+command); d == wire.BehaviorAllow {
				t.Errorf("escapes.txt:%d: the rule Bash(%s:*) allows %s %s", i+1, name, name, command)
			}
		}
	}
	for _, name := range shell.ProgramNames() {
		if !seen[name] {
			t.Errorf("escapes.txt has no line for %s: add the ways in which its words run, write or send something, or add it to \"none\"", name)
		}
	}
	t.Logf("%d commands of %d programs", rows, len(seen))
}

// TestRulesNameRunningSubcommands checks every subcommand that the table marks: a rule for the program
// does not cover it, and a rule that names it does.
func TestRulesNameRunningSubcommands(t *testing.T) {
	dir := t.TempDir()
	names := shell.RunningSubcommands()
	for _, name := range names {
		program, _, _ := strings.Cut(name, " ")
		if d := decide(t, dir, program, name+" some-tool"); d == wire.BehaviorAllow {
			t.Errorf("the rule Bash(%s:*) allows %s some-tool", program, name)
		}
		if d := decide(t, dir, name, name+" some-tool"); d != wire.BehaviorAllow {
			t.Errorf("the rule Bash(%s:*) does not allow %s some-tool", name, name)
		}
	}
	if len(names) < 200 {
		t.Errorf("%d subcommands, want at least 200", len(names))
	}
}
