package wire

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// zeroIsAbsent lists the numbers that are left out if they are 0, because 0 means the
// same as an absent member.
var zeroIsAbsent = map[string]string{
	"AgentDefinition.MaxTurns":                     "no limit",
	"Assistant.APIErrorStatus":                     "not an HTTP status",
	"Assistant.ThinkingDurationMS":                 "never below 1",
	"ControlRequestProgress.Attempt":               "counted from 1",
	"ControlRequestProgress.MaxRetries":            "without retries there is no progress to report",
	"Delta.EstimatedTokens":                        "nothing was added",
	"GetContextUsageResponse.AutoCompactThreshold": "nothing is compacted",
	"HookMatcher.Timeout":                          "the default",
	"HookOutput.AsyncTimeout":                      "the default",
	"InitializeResponse.PID":                       "not a process",
	"ListedEvent.HookCount":                        "no hooks",
	"ListedHook.Timeout":                           "the default",
	"MCPAuthenticateResponse.CallbackPort":         "not a port",
	"MCPCall.TimeoutMS":                            "the default",
	"MCPServerConfig.Timeout":                      "the default",
	"ModelUsage.MaxOutputTokens":                   "not a limit",
	"Notification.TimeoutMS":                       "the default",
	"RateLimitInfo.OverageResetsAt":                "not a time",
	"RateLimitInfo.ResetsAt":                       "not a time",
	"ReadFile.MaxBytes":                            "the default",
	"Result.APIErrorStatus":                        "not an HTTP status",
	"SandboxNetwork.HTTPProxyPort":                 "not a port",
	"SandboxNetwork.SOCKSProxyPort":                "not a port",
	"TaskPatch.EndTime":                            "not a time",
}

// TestZeroIsEncoded checks that a number is not left out because it happens to be 0: a
// duration of 0 ms is a duration. Such a member is a pointer, or is always written.
func TestZeroIsEncoded(t *testing.T) {
	left := maps.Clone(zeroIsAbsent)
	inspect(t, func(n ast.Node) {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return
		}
		s, ok := spec.Type.(*ast.StructType)
		if !ok {
			return
		}
		for _, f := range s.Fields.List {
			id, ok := f.Type.(*ast.Ident)
			if !ok || f.Tag == nil || !strings.Contains(f.Tag.Value, ",omit") || !slices.Contains([]string{"int", "int64", "float64"}, id.Name) {
				continue
			}
			name := spec.Name.Name + "." + f.Names[0].Name
			if _, ok := left[name]; !ok {
				t.Errorf("%s is left out if it is 0: make it a pointer, or add it to zeroIsAbsent with a reason", name)
			}
			delete(left, name)
		}
	})
	for name := range left {
		t.Errorf("%s in zeroIsAbsent is not a number that may be left out", name)
	}
}
