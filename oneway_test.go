package parley

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestReadOneWay checks that an ambiguous input is never shown to the callback that
// decides.
func TestReadOneWay(t *testing.T) {
	for _, tt := range []struct{ tool, input, want string }{
		{"Bash", `{"command":"ls","description":"x"}`, ""},
		{"Bash", `{"command":"touch p","Command":"ls"}`, "differ in case only"},
		{"Bash", `{"command":"touch p","command":"ls"}`, "not valid"},
		{"Bash", `{"command":"touch p","\u0063ommand":"ls"}`, "not valid"},
		{"Bash", "{\"command\":\"touch \xff\"}", "not valid"},
		{"Bash", `{"command":"\ud800"}`, "not valid"},
		{"TodoWrite", `{"todos":[{"content":"a","Content":"b"}]}`, "differ in case only"},
		{"TodoWrite", `{"todos":[{"content":"a"},{"content":"Content"}]}`, ""},
		{"Bash", `{"tas\u212a":"a","task":"b"}`, "differ in case only"},
		{"mcp__grep__run", `{"-i":true,"-I":false}`, ""},
		{"mcp__grep__run", `{"-i":true,"-i":false}`, "not valid"},
		{"EnterPlanMode", ``, ""},
		{"EnterPlanMode", `null`, ""},
	} {
		err := readOneWay(tt.tool, json.RawMessage(tt.input))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want %q", tt.tool, tt.input, err, tt.want)
		}
	}
}
