package policytest

import (
	_ "embed"
	"strconv"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

//go:embed official.txt
var official string

// officialAsks returns the commands of official.txt, and whether the official CLI asks
// for permission for each.
func officialAsks() map[string]bool {
	asks := map[string]bool{}
	for line := range strings.Lines(official) {
		word, command, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if text, err := strconv.Unquote(command); err == nil && command[0] == '"' {
			command = text
		}
		if word == "asks" || word == "runs" {
			asks[command] = word == "asks"
		}
	}
	return asks
}

// decideCommand decides a command without rules.
func decideCommand(t *testing.T, dir, command string, wall bool) policy.Decision {
	t.Helper()
	return policy.New().Decide(&policy.Request{Tool: &tool.Spec{Name: "Bash"}, Access: []tool.Access{{Kind: tool.Execute, Command: command}},
		Mode: wire.ModeDefault, Roots: []string{dir}, Home: "/home/u", ReadWall: wall})
}

// TestAsksNoMoreThanOfficial checks that behind a read wall Parley asks for permission
// for no command that the official CLI runs without it.
func TestAsksNoMoreThanOfficial(t *testing.T) {
	dir, asked, theirs := t.TempDir(), 0, 0
	list := officialAsks()
	for command, asks := range list {
		d := decideCommand(t, dir, command, true)
		if asks {
			theirs++
		}
		if d.Behavior == wire.BehaviorAllow {
			continue
		}
		asked++
		if !asks {
			t.Errorf("%q: %s (%s), and the official CLI runs it", command, d.Behavior, d.Reason)
		}
	}
	t.Logf("of %d commands Parley asks about %d, the official CLI about %d", len(list), asked, theirs)
	if len(list) < 500 {
		t.Errorf("only %d commands were compared", len(list))
	}
}

// TestEverydayUnasked checks that behind a read wall everyday commands need no
// permission, except those for which the official CLI asks, too.
func TestEverydayUnasked(t *testing.T) {
	dir, list, asked := t.TempDir(), officialAsks(), 0
	for _, c := range EverydayCommands() {
		d := decideCommand(t, dir, c.Command, true)
		if d.Behavior == wire.BehaviorAllow {
			continue
		}
		if asked++; !list[c.Command] {
			t.Errorf("everyday.txt:%d: %s: %s (%s)", c.Line, c.Command, d.Behavior, d.Reason)
		}
	}
	if asked > 3 {
		t.Errorf("%d of %d are asked about", asked, len(EverydayCommands()))
	}
}

// TestUnaskedWithoutWall checks that without a wall only commands of plain words run
// without permission, and that each of them is allowed by the table.
func TestUnaskedWithoutWall(t *testing.T) {
	dir := t.TempDir()
	for command := range officialAsks() {
		d := decideCommand(t, dir, command, false)
		if d.Behavior == wire.BehaviorAllow && (d.DecidedBy != policy.ByTable || strings.ContainsAny(command, "\"'`$\\;&<>(){}[]*?~#!\n=")) {
			t.Errorf("%q is allowed by %s without a wall", command, d.DecidedBy)
		}
	}
	for command, want := range map[string]wire.PermissionBehavior{
		"ls -la": wire.BehaviorAllow, "cat a.txt": wire.BehaviorAllow, "pwd": wire.BehaviorAllow, "ps aux": wire.BehaviorAllow, "df -h": wire.BehaviorAllow,
		"grep -n foo a.txt": wire.BehaviorAllow, "ps aux | grep node": wire.BehaviorAllow, "git status": wire.BehaviorAsk, "ls *.go": wire.BehaviorAsk, "cat 'a'": wire.BehaviorAsk,
		"sort -o out a": wire.BehaviorAsk, "uniq a out": wire.BehaviorAsk, "cat /etc/hosts": wire.BehaviorAsk, "rg foo": wire.BehaviorAsk,
		"find . -name x": wire.BehaviorAsk, "ps e": wire.BehaviorAsk, "ps auxe": wire.BehaviorAsk, "ls; ls": wire.BehaviorAsk, "ls # x": wire.BehaviorAsk,
		"ps aux --sort=-%mem": wire.BehaviorAllow, "ps -ef --sort=-%cpu": wire.BehaviorAllow, "ps -eo pid,comm --sort=-rss": wire.BehaviorAllow, "top -bn1": wire.BehaviorAllow,
		"docker logs x --tail 5": wire.BehaviorAllow, "systemctl status x": wire.BehaviorAllow, "systemctl stop x": wire.BehaviorAsk, "docker inspect x": wire.BehaviorAsk,
		"a=b ps aux": wire.BehaviorAsk, "grep --color=auto x a.txt": wire.BehaviorAsk, "ps aux --sort=~": wire.BehaviorAsk,
		"date -f x": wire.BehaviorAsk, "strings @x": wire.BehaviorAsk, "wc --files0-from=x": wire.BehaviorAsk, "file -C -m x": wire.BehaviorAsk, "time ls": wire.BehaviorAsk,
	} {
		if d := decideCommand(t, dir, command, false); d.Behavior != want {
			t.Errorf("%q without a wall: %s (%s), want %s", command, d.Behavior, d.Reason, want)
		}
	}
}
