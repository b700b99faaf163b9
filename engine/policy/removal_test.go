package policy_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// TestRemovalOfVitalDirectoriesAsksInEveryMode checks that no mode and no rule allows a command that removes the
// root, the home or a working directory, and that other removals run as before. It runs no command.
func TestRemovalOfVitalDirectoriesAsksInEveryMode(t *testing.T) {
	base := t.TempDir()
	work, home := filepath.Join(base, "a", "work"), filepath.Join(base, "home")
	for _, dir := range []string{filepath.Join(work, "sub"), home} {
		os.MkdirAll(dir, 0o777)
	}
	os.Symlink(base, filepath.Join(work, "sub", "up"))
	decide := func(command string, mode wire.PermissionMode, rules ...policy.Rule) policy.Decision {
		return policy.New(rules...).Decide(&policy.Request{Tool: &tool.Spec{Name: "Bash"}, Mode: mode, Roots: []string{work}, Home: home,
			Access: []tool.Access{{Kind: tool.Execute, Command: command}}})
	}
	all := policy.Rule{Behavior: wire.BehaviorAllow, Tool: "Bash"}
	for _, command := range []string{
		"rm -rf /", "rm -rf /*", "rm -rf ~", "rm -rf ~/", "rm -rf $HOME", `rm -rf "$HOME"/*`, "rm -rf --no-preserve-root /", "rm -r -f -- /", "rm /",
		"sudo rm -rf /", "env A=b rm -rf /", "sh -c 'rm -rf /'", `bash -c "rm -rf ~"`, "command rm -rf /", "nice -n 5 rm -rf /", `\rm -rf /`, "/bin/rm -rf /",
		"rm -rf //", "rm -rf /./", "rm -rf /usr/..", "rm -rf /usr", "rm -rf /usr/*", "rmdir /", "true && rm -rf /", "ls; rm -rf / &", "x=$(rm -rf /)",
		"rm -rf .", "rm -rf ./", "rm -rf ..", "rm -rf *", "rm -rf ./*", "rm -rf sub/..", "rm -rf " + work, "rm -rf " + base, "rm -rf sub/up/a", "rm -rf {/,x}",
		"cd / && rm -rf *", "cd sub && rm -rf ..", "cd .. && rm -rf work", `rm -rf "$DIR"/`, `rm -rf "$DIR"/*`, `rm -rf "$DIR/"*`, "D=/; rm -rf $D",
		"find / -delete", "find ~ -delete", "find . -type f -delete", "find -delete", "find / -exec rm -rf {} +", `find ~ -exec rm {} \;`,
		"for d in / x; do rm -rf $d; done",
	} {
		for _, mode := range []wire.PermissionMode{wire.ModeBypassPermissions, wire.ModeDefault, wire.ModeAcceptEdits} {
			if d := decide(command, mode, all); d.Behavior != wire.BehaviorAsk || d.ReasonType != "safetyCheck" || len(d.Suggestions()) != 0 {
				t.Errorf("%s in mode %s: %s (%s), want ask (safetyCheck)", command, mode, d.Behavior, d.ReasonType)
			}
		}
		if d := decide(command, wire.ModeDontAsk, all); d.Behavior != wire.BehaviorDeny {
			t.Errorf("%s in mode dontAsk: %s, want deny", command, d.Behavior)
		}
	}
	for _, command := range []string{
		"rm -rf sub", "rm -rf sub/*", "rm -rf ./sub/", "rm -rf *.o", "rm -f ./*.o", "rm -rf /tmp/foo", "rm -rf " + base + "/other", "rm -rf ~/x", "rm -rf ~/.cache/*", "rm -rf node_modules dist",
		`rm -rf "$DIR/build"`, `rm -rf "$DIR"`, `rm -rf $DIR`, "TMP=$(mktemp -d); rm -rf $TMP", "D=build; rm -rf $D/", "for d in a b; do rm -rf $d/; done", "rm -rf sub/up", "rm --help",
		"find . -name '*.pyc' -delete", "find . -type d -empty -delete", "find ./ -name '*.o' -exec rm {} +", "find sub -delete", "find / -name x -delete", "echo rm -rf /", "grep 'rm -rf /' sub",
		"ls /", "touch /x", "git commit -m 'rm -rf /'", "find . -type f | xargs rm",
	} {
		if d := decide(command, wire.ModeBypassPermissions); d.Behavior != wire.BehaviorAllow {
			t.Errorf("%s in mode bypassPermissions: %s (%s), want allow", command, d.Behavior, d.Reason)
		}
	}
}

// TestReadsFilesOfTheSessionItself checks that file tools read below the readable directories without permission, and
// nothing beside them, through links, with rules against it, or to change it.
func TestReadsFilesOfTheSessionItself(t *testing.T) {
	base := t.TempDir()
	work, tasks := filepath.Join(base, "work"), filepath.Join(base, "session", "tasks")
	os.MkdirAll(work, 0o777)
	os.MkdirAll(tasks, 0o777)
	os.WriteFile(filepath.Join(base, "secret"), nil, 0o666)
	os.Symlink(filepath.Join(base, "secret"), filepath.Join(tasks, "link"))
	for _, tt := range []struct {
		path  string
		kind  tool.Kind
		bound int
		rules []policy.Rule
		want  wire.PermissionBehavior
	}{
		{"tasks/a.output", tool.Read, 0, nil, wire.BehaviorAllow},
		{"tasks", tool.Read, 0, nil, wire.BehaviorAllow},
		{"tasks/a.output", tool.Read, 1, nil, wire.BehaviorAllow},
		{"tasks/a.output", tool.Read, 0, []policy.Rule{{Behavior: wire.BehaviorDeny, Tool: "Read"}}, wire.BehaviorDeny},
		{"tasks/link", tool.Read, 0, nil, wire.BehaviorAsk},
		{"tasks/../x", tool.Read, 0, nil, wire.BehaviorAsk},
		{"tasks2/a", tool.Read, 0, nil, wire.BehaviorAsk},
		{"tasks/a.output", tool.Write, 0, nil, wire.BehaviorAsk},
	} {
		name := map[tool.Kind]string{tool.Read: "Read", tool.Write: "Write"}[tt.kind]
		d := policy.New(tt.rules...).Decide(&policy.Request{Tool: &tool.Spec{Name: name, ReadOnly: tt.kind == tool.Read}, Mode: wire.ModeDefault, Roots: []string{work}, Bound: tt.bound,
			Readable: []string{tasks}, Access: []tool.Access{{Kind: tt.kind, Path: base + "/session/" + tt.path}}})
		if d.Behavior != tt.want {
			t.Errorf("%s %s, bound %d: %s (%s), want %s", name, tt.path, tt.bound, d.Behavior, d.Reason, tt.want)
		}
	}
}
