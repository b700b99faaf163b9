package hook_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/wire"
)

func decides(b wire.PermissionBehavior, reason string) hook.Answer {
	return hook.Answer{Source: reason, Output: &wire.HookOutput{HookSpecificOutput: &wire.PreToolUseOutput{PermissionDecision: b, PermissionDecisionReason: reason}}}
}

// TestStrictestDecisionWins checks that, in any order, deny beats defer, defer beats ask,
// and ask beats allow, and that the reason is that of the winning hook.
func TestStrictestDecisionWins(t *testing.T) {
	answers := []hook.Answer{
		{}, {Output: &wire.HookOutput{Decision: wire.DecisionApprove}}, decides(wire.BehaviorAllow, "allow"),
		{Source: "ask", Err: errors.New("crash"), Ask: true}, decides(wire.BehaviorDefer, "defer"), decides(wire.BehaviorDeny, "deny"),
	}
	want := []wire.PermissionBehavior{"", wire.BehaviorAllow, wire.BehaviorAllow, wire.BehaviorAsk, wire.BehaviorDefer, wire.BehaviorDeny}
	for n := range answers {
		for range 2 {
			v := hook.Merge(&wire.PreToolUseInput{}, "Bash", answers[:n+1])
			if v.Behavior != want[n] || n > 2 && v.Source != string(want[n]) {
				t.Errorf("of %d answers: got %s by %q, want %s", n+1, v.Behavior, v.Source, want[n])
			}
			slices.Reverse(answers[:n+1])
		}
	}
}

// TestFailuresBlock checks that a failed hook blocks if it guards, and is reported
// otherwise.
func TestFailuresBlock(t *testing.T) {
	for _, a := range []hook.Answer{{Err: errors.New("crash")}, {Err: errors.New("crash"), Block: true}, {Err: errors.New("crash"), Ask: true}} {
		v := hook.Merge(&wire.UserPromptSubmitInput{}, "", []hook.Answer{a})
		reason, blocked := v.Blocked()
		if blocked != (a.Block || a.Ask) || blocked && reason != "a hook failed: crash" || len(v.Notes) != 1 {
			t.Errorf("%+v: blocked %v because of %q, %d notes", a, blocked, reason, len(v.Notes))
		}
	}
}

// TestMergeKeepsWhatHooksSay checks that messages, context and objections of all hooks are
// kept, in order.
func TestMergeKeepsWhatHooksSay(t *testing.T) {
	no := false
	v := hook.Merge(&wire.PostToolBatchInput{}, "", []hook.Answer{
		{Output: &wire.HookOutput{SystemMessage: "one", HookSpecificOutput: &wire.PostToolBatchOutput{AdditionalContext: "first"}}},
		{Output: &wire.HookOutput{Decision: wire.DecisionBlock, Reason: "bad"}},
		{Output: &wire.HookOutput{Continue: &no, StopReason: "enough", HookSpecificOutput: &wire.UnknownOutput{Raw: []byte(`{"additionalContext":"second"}`)}}},
	})
	if len(v.Notes) != 1 || v.Notes[0].(*wire.Informational).Content != "PostToolBatch says: one" {
		t.Errorf("notes: %v", v.Notes)
	}
	want := []string{"A hook of the user objects to that:\nbad", "Context from a hook of the user:\nfirst", "Context from a hook of the user:\nsecond"}
	if got := v.ForModel("that"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !v.Stopped || v.StopReason != "enough" {
		t.Errorf("stopped %v because of %q", v.Stopped, v.StopReason)
	}
}

// TestFillLeavesOutWhatAnEventHasNot checks that the start of a session has no prompt and
// no mode.
func TestFillLeavesOutWhatAnEventHasNot(t *testing.T) {
	base := wire.HookBase{SessionID: "s", TranscriptPath: "t", Cwd: "/", PromptID: "p", PermissionMode: wire.ModePlan, AgentID: "a"}
	start, stop, display := &wire.SessionStartInput{}, &wire.StopInput{HookBase: wire.HookBase{Cwd: "/own"}}, &wire.MessageDisplayInput{}
	hook.Fill(start, base)
	hook.Fill(stop, base)
	hook.Fill(display, base)
	if b := start.HookBase; b.SessionID != "s" || b.PromptID != "" || b.PermissionMode != "" {
		t.Errorf("SessionStart: %+v", b)
	}
	if b := stop.HookBase; b.Cwd != "/own" || b.PromptID != "p" || b.PermissionMode != wire.ModePlan || b.AgentID != "a" {
		t.Errorf("Stop: %+v", b)
	}
	if b := display.HookBase; b.PromptID != "p" || b.PermissionMode != "" {
		t.Errorf("MessageDisplay: %+v", b)
	}
}

// TestLastDenialGivesTheReason checks that the last of several denials of a call gives the reason, but not a later allow.
func TestLastDenialGivesTheReason(t *testing.T) {
	v := hook.Merge(&wire.PreToolUseInput{ToolName: "Bash"}, "Bash", []hook.Answer{
		decides(wire.BehaviorDeny, "one"), decides(wire.BehaviorDeny, "two"), decides(wire.BehaviorAllow, "three"),
	})
	if v.Behavior != wire.BehaviorDeny || v.Reason != "two" || v.Result.Message != "two" {
		t.Errorf("%s because of %q, result %+v", v.Behavior, v.Reason, v.Result)
	}
}
