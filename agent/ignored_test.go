package agent_test

import (
	"strings"
	"testing"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// Settings and members of initialize that have no effect are reported once, on standard error and to the host; others are not.
func TestIgnoredIsReported(t *testing.T) {
	request := func(body string) string {
		return `{"type":"control_request","request_id":"1","request":{` + body + `}}`
	}
	const theme = `settings without effect in this version: theme (--settings:1), permissions.workingDirectoriesAsGiven (--settings:1)`
	given := request(`"subtype":"initialize","agentProgressSummaries":true,"excludeDynamicSections":true,"systemPromptSnapshot":false,"supportedDialogKinds":["x"],"fromLater":{"a":1},"nothing":null,"title":"T"`)
	const members = `members of initialize without effect in this version: "fromLater", agentProgressSummaries, supportedDialogKinds, systemPromptSnapshot`
	for _, c := range []struct {
		name  string
		args  []string
		lines []string
		want  []string
	}{
		{"settings", []string{"--settings", `{"theme":"dark","model":"opus","ofAnother":1,"permissions":{"deny":["Bash"],"workingDirectoriesAsGiven":true}}`}, []string{hello}, []string{theme}},
		{"misspelled", []string{"--settings", `{"modle":"opus","permissions":{"denny":[]},"hooks":{"PreToolUs":[{"hooks":[{"type":"command","command":"x"}]}]},"sandbox":{"enabld":true}}`}, []string{hello}, []string{
			`these settings of the sandbox have no effect: enabld (did you mean enabled?)`,
			`settings without effect in this version: modle (--settings:1; did you mean model?), permissions.denny (--settings:1; did you mean deny?), hooks.PreToolUs (--settings:1; did you mean PreToolUse?)`}},
		{"initialize", nil, []string{given, given, hello, given}, []string{members}},
		{"late", nil, []string{hello, given, given}, []string{members}},
		{"both", []string{"--settings", `{"theme":"dark","permissions":{"workingDirectoriesAsGiven":true}}`}, []string{given, hello}, []string{theme, members}},
		{"applied", []string{"--settings", `{"theme":"dark","permissions":{"workingDirectoriesAsGiven":true}}`},
			[]string{initialize, request(`"subtype":"apply_flag_settings","settings":{"theme":"light","verbose":true,"language":"german"}`), request(`"subtype":"apply_flag_settings","settings":{"verbose":false}`), hello},
			[]string{theme, `settings without effect in this version: verbose (--settings:1)`}},
		{"values", []string{"--effort", "huge", "--betas", "context-1m-2025-08-07,b"}, []string{hello}, []string{
			`--effort huge has no effect, and the model uses its default: the levels are low, medium, high, xhigh, max`,
			`--betas b has no effect: the flag takes context-1m-2025-08-07; name other features in ANTHROPIC_BETAS`}},
		{"satisfied", []string{"--settings", `{"includeCoAuthoredBy":false,"enableAllProjectMcpServers":true,"enabledMcpjsonServers":["x"]}`}, []string{hello}, nil},
		{"not satisfied", []string{"--settings", `{"includeCoAuthoredBy":true,"enableAllProjectMcpServers":false}`}, []string{hello}, []string{
			`settings without effect in this version: includeCoAuthoredBy (--settings:1), enableAllProjectMcpServers (--settings:1)`}},
		{"effect", []string{"--settings", `{"$schema":"https://example.test/schema.json","model":"opus","language":"german","fallbackModel":"haiku","statusLine":{"type":"command","command":"date"},"awsCredentialExport":"x","ofAnother":1}`},
			[]string{request(`"subtype":"initialize","hooks":null,"title":"T","agentProgressSummaries":false,"systemPromptSnapshot":true,"supportedDialogKinds":[],"promptSuggestions":false,"keepsTurns":false,"permissionUpdates":[]`), hello}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := say(t, agent.Config{Model: parleytest.Script(parleytest.Say("ok")).Model(), Store: &session.Memory{}}, c.args, c.lines...)
			var stderr, notices []string
			for _, m := range got.all {
				if i, ok := m.(*wire.Informational); ok {
					notices = append(notices, i.Content)
				}
			}
			for line := range strings.Lines(got.stderr) {
				stderr = append(stderr, strings.TrimSpace(strings.TrimPrefix(line, "Warning: ")))
			}
			want := strings.Join(c.want, "\n")
			if has := strings.Join(stderr, "\n"); has != want {
				t.Errorf("standard error:\n%s\nwant:\n%s", has, want)
			}
			if has := strings.Join(notices, "\n"); has != want {
				t.Errorf("the host received:\n%s\nwant:\n%s", has, want)
			}
		})
	}
}

// An output style that does not exist is reported on standard error, and the default is used.
func TestUnknownOutputStyleIsReported(t *testing.T) {
	got := say(t, agent.Config{Model: parleytest.Script(parleytest.Say("ok")).Model(), Store: &session.Memory{}}, []string{"--settings", `{"outputStyle":"nope"}`}, hello)
	if !strings.Contains(got.stderr, `the output style "nope" of the settings does not exist`) {
		t.Errorf("standard error: %s", got.stderr)
	}
}
