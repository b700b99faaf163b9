package hook

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/parley-go/parley/wire"
)

// A Matcher selects the subjects of a hook. The zero value matches all.
type Matcher struct{ pattern *regexp.Regexp }

// Compile parses a matcher as the official command does: a name, several as "Write|Edit" or "Write, Edit", or a regular
// expression that must match a part of the subject. Empty and "*" match all.
func Compile(text string) (Matcher, error) {
	if text == "" || text == "*" {
		return Matcher{}, nil
	}
	if nameList().MatchString(text) {
		text = "^(?:" + separator().ReplaceAllString(strings.TrimSpace(text), "|") + ")$"
	}
	re, err := regexp.Compile(text)
	return Matcher{re}, err
}

var (
	nameList  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\w ,|-]+$`) })
	separator = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(` *[,|] *`) })
)

// Earlier names of tools still match. A hook that guards the commands of Bash also guards those of
// Monitor.
var formerly = map[string]string{"Monitor": "Bash", "Agent": "Task", "Task": "Agent", "KillShell": "TaskStop", "TaskStop": "KillShell", "BashOutput": "TaskOutput", "TaskOutput": "BashOutput"}

// Match reports whether a hook applies to a subject. An event without a subject, such as a prompt,
// matches every hook of the event, so that no guard is skipped.
func (m Matcher) Match(subject string) bool {
	if m.pattern == nil || subject == "" || m.pattern.MatchString(subject) {
		return true
	}
	other := formerly[subject]
	return other != "" && m.pattern.MatchString(other)
}

// Check returns the errors in the answer of a hook. Unknown members are accepted;
// known members of another type are not.
func Check(out *wire.HookOutput, event wire.HookEvent) error {
	for _, name := range []string{"async", "continue", "decision", "reason", "stopReason", "hookSpecificOutput"} {
		if raw, ok := out.Extra[name]; ok && string(raw) != "null" {
			return fmt.Errorf("%s is %s", name, raw)
		}
	}
	if out.Async {
		return nil
	}
	if out.Decision != "" && out.Decision != wire.DecisionBlock && out.Decision != wire.DecisionApprove {
		return fmt.Errorf("the decision is %q", out.Decision)
	}
	if out.HookSpecificOutput == nil {
		return nil
	}
	if got := out.HookSpecificOutput.Event(); got != event {
		return fmt.Errorf("the hookEventName is %q and should be %q", got, event)
	}
	switch o := out.HookSpecificOutput.(type) {
	case *wire.PreToolUseOutput:
		switch o.PermissionDecision {
		case "", wire.BehaviorAllow, wire.BehaviorDeny, wire.BehaviorAsk, wire.BehaviorDefer:
		default:
			return fmt.Errorf("the permissionDecision is %q", o.PermissionDecision)
		}
		for _, name := range []string{"permissionDecision", "updatedInput"} {
			if raw, ok := o.Extra[name]; ok && string(raw) != "null" {
				return fmt.Errorf("%s is %s", name, raw)
			}
		}
	case *wire.PermissionRequestOutput:
		if raw, ok := o.Extra["decision"]; ok && string(raw) != "null" {
			return fmt.Errorf("the decision is %s", raw)
		}
		if o.Decision != nil && o.Decision.Behavior != wire.BehaviorAllow && o.Decision.Behavior != wire.BehaviorDeny {
			return fmt.Errorf("the behavior is %q", o.Decision.Behavior)
		}
	}
	return nil
}
