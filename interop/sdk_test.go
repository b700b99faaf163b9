package interop

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/internal/testwait"
	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// claude returns options for the official CLI with a scripted model.
func claude(t *testing.T, s *pt.Scenario) (context.Context, *parley.Options) {
	t.Helper()
	p := peers(t)
	api := pt.NewAPI(t, s, nil)
	dir := t.TempDir()
	ctx := testwait.Context(t)
	return ctx, &parley.Options{
		Path: p.CLI(), Cwd: dir, Model: "claude-sonnet-4-5", SettingSources: []string{},
		Env: map[string]string{"HOME": filepath.Join(dir, "home"), "ANTHROPIC_BASE_URL": api.URL, "ANTHROPIC_API_KEY": fakeKey},
	}
}

// askTurn runs a turn and returns its result.
func askTurn(ctx context.Context, t *testing.T, c *parley.Client, prompt string) (*wire.Result, error) {
	t.Helper()
	var last *wire.Result
	for m, err := range c.Turn(ctx, prompt) {
		if err != nil {
			return last, err
		}
		if r, ok := m.(*wire.Result); ok {
			last = r
		}
	}
	return last, nil
}

// TestTurns runs turns of one client: each ends with its own result, whatever came
// before: one that was left early, one that was interrupted, a message that was sent in
// between.
func TestTurns(t *testing.T) {
	t.Parallel()
	ctx, o := claude(t, pt.Script(
		pt.Say("One."),
		pt.Say("Two is ", "long").Stall().After(3),
		pt.Expect(pt.LastUser("three")).Say("Three."),
		pt.Say("Four is ", "long").Stall().After(3),
		pt.Expect(pt.LastUser("five")).Say("Five."),
		pt.Expect(pt.LastUser("six")).Say("Six."),
	))
	o.PartialMessages = true
	c, err := parley.Connect(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	delta := func(m wire.Message) bool {
		e, ok := m.(*wire.StreamEvent)
		return ok && e.Text() != ""
	}

	if r, err := askTurn(ctx, t, c, "one"); err != nil || r.Result != "One." {
		t.Fatal(r, err)
	}
	for m, err := range c.Turn(ctx, "two") { // left early
		if err != nil {
			t.Fatal(err)
		}
		if delta(m) {
			break
		}
	}
	if r, err := askTurn(ctx, t, c, "three"); err != nil || r.Result != "Three." {
		t.Fatal(r, err)
	}
	var interrupted error
	var outcome wire.Outcome
	for m, err := range c.Turn(ctx, "four") { // interrupted
		interrupted = err
		if r, ok := m.(*wire.Result); ok {
			outcome = r.Outcome()
		}
		if err == nil && delta(m) {
			if _, err := c.Interrupt(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if failed := new(parley.ResultError); !errors.As(interrupted, &failed) || failed.Outcome() != wire.OutcomeInterrupted || outcome != wire.OutcomeInterrupted {
		t.Errorf("the interrupted turn ended with %v, outcome %v", interrupted, outcome)
	}
	if r, err := askTurn(ctx, t, c, "five"); err != nil || r.Result != "Five." {
		t.Fatal(r, err)
	}
	if r, err := askTurn(ctx, t, c, "six"); err != nil || r.Result != "Six." || r.NumTurns != 1 {
		t.Fatal(r, err)
	}
	if init := c.LastInit(); init == nil || init.ClaudeCodeVersion == "" {
		t.Error("no init line is remembered:", init)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
