package policytest

import (
	"testing"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// TestEverydayUnasked: behind a read wall no question is asked about the commands that
// people run all day.
func TestEverydayUnasked(t *testing.T) {
	dir := t.TempDir()
	asked := 0
	for _, c := range EverydayCommands() {
		req := &policy.Request{Tool: &tool.Spec{Name: "Bash"}, Access: []tool.Access{{Kind: tool.Execute, Command: c.Command}},
			Mode: wire.ModeDefault, Roots: []string{dir}, Home: "/home/u", ReadWall: true}
		if d := policy.New().Decide(req); d.Behavior != wire.BehaviorAllow {
			asked++
			t.Errorf("everyday.txt:%d: %s: %s (%s)", c.Line, c.Command, d.Behavior, d.Reason)
		}
	}
	t.Logf("%d of %d are asked about", asked, len(EverydayCommands()))
}
