package policy

import (
	"testing"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// A command that must run outside of the read wall needs permission although it only
// reads, and the request suggests no rule. A rule allows it as before.
func TestOutsideOfTheWallIsAsked(t *testing.T) {
	spec, access := call(t, "Bash", "cat a")
	access[0].Unwalled = true
	req := &Request{Tool: spec, Access: access, Mode: wire.ModeDefault, Roots: []string{"/w"}, ReadWall: true}
	d := New().Decide(req)
	if d.Behavior != wire.BehaviorAsk || d.ReasonType != "sandboxOverride" || d.Suggestions() != nil {
		t.Errorf("%s because of %s (%s), suggesting %v", d.Behavior, d.ReasonType, d.Reason, d.Suggestions())
	}
	allow, err := Parse("Bash(cat:*)", wire.BehaviorAllow, Source{Layer: LayerCLI})
	if err != nil {
		t.Fatal(err)
	}
	if d := New(allow).Decide(req); d.Behavior != wire.BehaviorAllow || d.DecidedBy.Place() != tool.Anywhere {
		t.Errorf("with a rule: %s by %s", d.Behavior, d.DecidedBy)
	}
}
