package engine

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

func newPermissions() (*permissions, *[]wire.Message) {
	var emitted []wire.Message
	p := &permissions{mode: wire.ModeDefault, policy: policy.New(), start: &tool.Env{Roots: []string{"/work"}, Environ: []string{"A=1", "B=2"}}, others: func(*call.View) {},
		log: slog.New(slog.DiscardHandler), rec: recorder.New(recorder.Options{Now: time.Now, Emit: func(m wire.Message) { emitted = append(emitted, m) }})}
	p.publish()
	return p, &emitted
}

func TestModeIsNarrowedByWhatIsAllowed(t *testing.T) {
	for _, test := range []struct {
		set    wire.PermissionMode
		bypass bool
		want   wire.PermissionMode
	}{
		{wire.ModePlan, false, wire.ModePlan},
		{wire.ModeManual, false, wire.ModeDefault},
		{wire.ModeBypassPermissions, false, wire.ModeDefault},
		{wire.ModeBypassPermissions, true, wire.ModeBypassPermissions},
		{"nonsense", true, wire.ModeDefault},
	} {
		p, emitted := newPermissions()
		p.allowBypass = test.bypass
		p.Apply(&wire.PermissionUpdate{Type: wire.UpdateSetMode, Mode: test.set})
		if p.Mode() != test.want || p.view.Load().Mode != test.want {
			t.Errorf("%s: got %s, and calls see %s; want %s", test.set, p.Mode(), p.view.Load().Mode, test.want)
		}
		if changed := test.want != wire.ModeDefault; changed != (len(*emitted) == 1) {
			t.Errorf("%s: got %d messages", test.set, len(*emitted))
		}
		if p.SetRules(Rules{}); p.Mode() == wire.ModeBypassPermissions {
			t.Error("a mode that is not allowed any more goes on")
		}
	}
}

func TestLeavingPlanModeRestoresTheModeBefore(t *testing.T) {
	p, _ := newPermissions()
	p.SetMode(wire.ModeAcceptEdits)
	p.SetMode(wire.ModePlan)
	if p.leavePlan(); p.Mode() != wire.ModeAcceptEdits {
		t.Errorf("got %s", p.Mode())
	}
	if p.leavePlan(); p.Mode() != wire.ModeAcceptEdits {
		t.Errorf("outside of plan mode: got %s", p.Mode())
	}
}

func TestViewsNeverChange(t *testing.T) {
	p, _ := newPermissions()
	before := p.view.Load()
	p.Apply(&wire.PermissionUpdate{Type: wire.UpdateAddDirectories, Directories: []string{"/more", "relative"}})
	p.SetServerMode("web", wire.ModePlan)
	two := "two"
	p.ChangeEnviron(map[string]*string{"A": nil, "B": &two})
	if !slices.Equal(before.Env.Roots, []string{"/work"}) || before.ServerModes != nil || !slices.Equal(before.Env.Environ, []string{"A=1", "B=2"}) {
		t.Errorf("an old view has become %+v", before)
	}
	now := p.view.Load()
	if !slices.Equal(p.Roots(), []string{"/work", "/more"}) || now.ServerModes["web"] != wire.ModePlan || !slices.Equal(now.Env.Environ, []string{"B=two"}) {
		t.Errorf("got %v, %v and %v", p.Roots(), now.ServerModes, now.Env.Environ)
	}
	p.Apply(&wire.PermissionUpdate{Type: wire.UpdateRemoveDirectories, Directories: []string{"/work", "/more"}})
	if !slices.Equal(p.Roots(), []string{"/work"}) {
		t.Errorf("got %v, want that the first directory stays", p.Roots())
	}
}

func TestFixedAllowsRefuseNewAllowRules(t *testing.T) {
	p, _ := newPermissions()
	p.fixedAllows = true
	for _, behavior := range []wire.PermissionBehavior{wire.BehaviorAllow, wire.BehaviorDeny} {
		p.Apply(&wire.PermissionUpdate{Type: wire.UpdateAddRules, Behavior: behavior, Destination: "session", Rules: []*wire.PermissionRule{{ToolName: "Bash"}}})
	}
	if rules := p.Rules(); len(rules) != 1 || rules[0].Behavior != wire.BehaviorDeny {
		t.Errorf("got the rules %v", rules)
	}
}

func TestOwnerServesWhileItWaits(t *testing.T) {
	o := &owner{calls: make(chan func()), over: make(chan struct{})}
	ran := false
	o.runWhileServing(func() {
		if !o.Do(func() { ran = true }) {
			t.Error("Do did not run")
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := await(ctx, o, make(chan int)); ok || !ran {
		t.Errorf("got %v and %v", ok, ran)
	}
	close(o.over)
	if o.Do(func() {}) {
		t.Error("Do ran after the end")
	}
}

// TestModeHoldsWhenAnswered checks that a mode is in effect for calls before the host knows it, and
// that the message about it comes after the response.
func TestModeHoldsWhenAnswered(t *testing.T) {
	p, emitted := newPermissions()
	for range 2 {
		answered := false
		p.SetModeFor(wire.ModePlan, func() {
			answered = true
			if p.view.Load().Mode != wire.ModePlan || len(*emitted) > 1 {
				t.Errorf("calls see %s, and %d messages were sent", p.view.Load().Mode, len(*emitted))
			}
		})
		if !answered {
			t.Error("no response")
		}
	}
	if len(*emitted) != 1 {
		t.Errorf("got %d messages", len(*emitted))
	}
}
