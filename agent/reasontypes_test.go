package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/parley-go/parley"
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

// TestAskRulesNameTheirSource checks that hosts learn which rule asks, and where it is.
func TestAskRulesNameTheirSource(t *testing.T) {
	for _, tt := range []struct{ name, rule, command, want string }{
		{"some calls", "Bash(touch:*)", "touch made", "rule flagSettings path=false"},
		{"a whole tool that would ask anyway", "Bash", "touch made", "Bash of flagSettings path=true"},
		{"a whole tool whose call is harmless", "Bash", "pwd", "rule flagSettings path=false"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := workdir(t)
			s := parleytest.Script(parleytest.Call("Bash", map[string]string{"command": tt.command}), parleytest.Say("done"))
			got := ""
			promptIn(t, dir, s, func(o *parley.Options, _ *agent.Config) {
				o.Settings = json.RawMessage(`{"permissions":{"ask":["` + tt.rule + `"]}}`)
				o.CanUseTool = func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
					if r := req.MatchedAskRule; r != nil {
						got = r.ToolName + r.RuleContent + " of " + r.Source
					} else {
						got = req.DecisionReasonType + " " + req.DecisionReasonRuleSource
					}
					got += fmt.Sprintf(" path=%t", req.BlockedPath != "")
					return parley.Deny("no"), nil
				}
			})
			if got != tt.want {
				t.Errorf("asked with %q, want %q", got, tt.want)
			}
		})
	}
}

// TestDenialsNameTheirSource checks whom the results of denied calls name: the person who answered, or added a rule for a
// whole tool, or else the configuration.
func TestDenialsNameTheirSource(t *testing.T) {
	add := func(content string) *wire.PermissionResult {
		return &wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedPermissions: []*wire.PermissionUpdate{{Type: wire.UpdateAddRules,
			Rules: []*wire.PermissionRule{{ToolName: "Bash", RuleContent: content}}, Behavior: wire.BehaviorDeny, Destination: wire.DestinationSession}}}
	}
	for _, tt := range []struct {
		name   string
		answer *wire.PermissionResult
		want   string
	}{
		{"a rule of the session about some calls", add("touch:*"), "accept user_temporary ; reject config subcommandResults"},
		{"a rule of the session about a tool", add(""), "accept user_temporary ; reject user_reject rule"},
		{"an answer", parley.Deny("no"), "reject user_reject ; reject user_reject "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := workdir(t)
			s := parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch a"}), parleytest.Call("Bash", map[string]string{"command": "touch b"}), parleytest.Say("done"))
			p := promptIn(t, dir, s, func(o *parley.Options, _ *agent.Config) {
				o.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) { return tt.answer, nil }
			})
			var got []string
			for _, m := range p.all {
				if u, ok := m.(*wire.User); ok {
					for _, meta := range u.ToolResultMeta {
						d := meta.PermissionDecision
						got = append(got, d.Decision+" "+d.Source+" "+d.ReasonType)
					}
				}
			}
			if text := strings.Join(got, "; "); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
		})
	}
}

// TestUpdatesOfSettingsThatAreOff checks that an answer cannot allow more in settings that are left out, but can deny more.
func TestUpdatesOfSettingsThatAreOff(t *testing.T) {
	for _, tt := range []struct {
		behavior wire.PermissionBehavior
		asked    int
	}{{wire.BehaviorAllow, 2}, {wire.BehaviorDeny, 1}} {
		t.Run(string(tt.behavior), func(t *testing.T) {
			dir, _ := workdir(t)
			s := parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch a"}), parleytest.Call("Bash", map[string]string{"command": "touch b"}), parleytest.Say("done"))
			asked := 0
			promptIn(t, dir, s, func(o *parley.Options, cfg *agent.Config) {
				cfg.SettingSources = []string{"user"}
				o.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
					asked++
					return &wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedPermissions: []*wire.PermissionUpdate{{Type: wire.UpdateAddRules,
						Rules: []*wire.PermissionRule{{ToolName: "Bash", RuleContent: "touch:*"}}, Behavior: tt.behavior, Destination: wire.DestinationLocalSettings}}}, nil
				}
			})
			if asked != tt.asked {
				t.Errorf("asked %d times, want %d", asked, tt.asked)
			}
		})
	}
}
