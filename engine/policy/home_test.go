package policy

import (
	"testing"

	"github.com/parley-go/parley/wire"
)

// Hidden files, bin and Library in the home directory configure what programs execute. Changing one needs
// permission, unless the project is in the same place, or a rule names it.
func TestHiddenFilesOfTheHome(t *testing.T) {
	rule := func(content string) Rule {
		return Rule{Behavior: wire.BehaviorAllow, Tool: "Edit", Content: content}
	}
	for _, c := range []struct {
		root, tool, arg string
		rules           []Rule
		want            wire.PermissionBehavior
	}{
		{"/home/u", "Write", "/home/u/notes.txt", nil, wire.BehaviorAllow},
		{"/home/u", "Write", "/home/u/src/.env", nil, wire.BehaviorAllow},
		{"/home/u", "Write", "/home/u/.config/git/config", nil, wire.BehaviorAsk},
		{"/home/u", "Write", "/home/u/.local/bin/ls", nil, wire.BehaviorAsk},
		{"/home/u", "Write", "/home/u/.psqlrc", nil, wire.BehaviorAsk},
		{"/home/u", "Write", "/home/u/bin/ls", nil, wire.BehaviorAsk},
		{"/home/u", "Bash", "cp a Library/LaunchAgents/x.plist", nil, wire.BehaviorAsk},
		{"/home/u/app", "Write", "/home/u/app/bin/x", nil, wire.BehaviorAllow},
		{"/home/u/app", "Write", "/home/u/app/.helix/languages.toml", nil, wire.BehaviorAsk},
		{"/home/u", "Bash", "touch .local/bin/ls", nil, wire.BehaviorAsk},
		{"/home/u", "Bash", "touch notes.txt", nil, wire.BehaviorAllow},
		{"/home", "Write", "/home/u/.config/fish/config.fish", nil, wire.BehaviorAsk},
		{"/home/u/.config/nvim", "Write", "/home/u/.config/nvim/init.lua", nil, wire.BehaviorAllow},
		{"/home/u/.dotfiles", "Bash", "touch bashrc", nil, wire.BehaviorAllow},
		{"/home/u", "Write", "/home/u/.config/app/x", []Rule{rule("~/.config/app/**")}, wire.BehaviorAllow},
		{"/home/u", "Write", "/home/u/.config/app/x", []Rule{rule("~/**")}, wire.BehaviorAsk},
	} {
		spec, access := call(t, c.tool, c.arg)
		d := New(c.rules...).Decide(&Request{Tool: spec, Access: access, Mode: wire.ModeAcceptEdits, Roots: []string{c.root}, Home: "/home/u"})
		if d.Behavior != c.want {
			t.Errorf("%s %s in %s: %s, want %s", c.tool, c.arg, c.root, d.Behavior, c.want)
		}
	}
}
