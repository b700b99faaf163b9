package hub

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestGrants shows which changes of an answer hold for the rest of the session.
func TestGrants(t *testing.T) {
	const rule = `{"type":"addRules","rules":[{"toolName":"Bash"}],"behavior":"allow","destination":"session"}`
	for _, c := range []struct{ response, want string }{
		{`{"behavior":"allow","updatedPermissions":[` + rule + `]}`, rule},
		{`{"behavior":"allow","updatedPermissions":[` + rule + `,` + rule + `]}`, rule},
		{`{"behavior":"deny","updatedPermissions":[` + rule + `]}`, ""},
		{`{"updatedPermissions":[` + rule + `]}`, ""},
		{`{"behavior":"allow","updatedPermissions":[` + strings.Replace(rule, `"session"`, `"localSettings"`, 1) + `]}`, ""},
		{`{"behavior":"allow","updatedPermissions":[{"type":"setMode","mode":"acceptEdits","destination":"session"}]}`, ""},
		{`{"behavior":"allow","updatedPermissions":[7,` + rule + `]}`, rule},
		{`{"behavior":"allow","updatedPermissions":7}`, ""},
		{`{"behavior":"allow"}`, ""},
		{`7`, ""},
	} {
		var f fold
		f.grant(json.RawMessage(c.response))
		var got []string
		for _, g := range f.granted {
			got = append(got, string(g))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s grants %q, want %q", c.response, got, c.want)
		}
	}
}

// TestAnswersToForms shows what answers to an MCP server's question and to a dialog may be.
func TestAnswersToForms(t *testing.T) {
	by := Actor{Name: "phone", Rights: MayView | MayApprove}
	for of, want := range map[AskKind]map[string]bool{
		AskElicitation: {`{"action":"accept","content":{}}`: true, `{"behavior":"no"}`: true, `{`: false, ``: false},
		AskDialog:      {`"yes"`: true, `{`: false, ``: false},
		AskPermission:  {`{"behavior":"allow"}`: true, `{"action":"accept"}`: false, `"yes"`: false, `{`: false},
	} {
		ask := &Ask{ID: "a", Kind: of, Request: json.RawMessage(`{"input":{}}`)}
		ask.Hash = ask.hash()
		for response, ok := range want {
			if err := ask.check(by, &Answer{Ask: "a", Shown: ask.Hash, Response: json.RawMessage(response)}); (err == nil) != ok {
				t.Errorf("%s: the answer %s: %v", of, response, err)
			}
		}
	}
}
