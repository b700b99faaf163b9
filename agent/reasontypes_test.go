package agent_test

import (
	"strings"
	"testing"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// TestReasonTypesOfCommands checks that decisions about commands name their reason as the official command does.
func TestReasonTypesOfCommands(t *testing.T) {
	dir, _ := workdir(t)
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"a deny rule", []string{"--disallowedTools", "Bash(touch *)"}, "permission_denied subcommandResults; reject permission-rule subcommandResults"},
		{"a mode", []string{"--permission-mode", "acceptEdits"}, "accept  subcommandResults"},
		{"a mode that allows all", []string{"--dangerously-skip-permissions"}, "accept  mode"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Say("done"))
			var got []string
			for _, m := range play(t, agent.Config{Cwd: dir}, s, tt.args...) {
				switch m := m.(type) {
				case *wire.PermissionDenied:
					got = append(got, "permission_denied "+m.DecisionReasonType+m.DecisionReason)
				case *wire.User:
					for _, meta := range m.ToolResultMeta {
						d := meta.PermissionDecision
						got = append(got, d.Decision+" "+meta.NonExecutionKind+" "+d.ReasonType)
					}
				}
			}
			if text := strings.Join(got, "; "); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
		})
	}
}
