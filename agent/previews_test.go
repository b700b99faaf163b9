package agent_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// CLAUDE_CODE_QUESTION_PREVIEW_FORMAT, which the TypeScript SDK sets for toolConfig.askUserQuestion.previewFormat,
// determines how the model writes previews. A preview that is more than a fragment of HTML is dropped.
func TestQuestionPreviews(t *testing.T) {
	for format, want := range map[string]string{"": "", "markdown": "as Markdown", "html": "as a fragment of HTML"} {
		body, _ := requestWith(t, "CLAUDE_CODE_QUESTION_PREVIEW_FORMAT="+format, "--permission-prompt-tool stdio")
		var text string
		for _, tl := range body["tools"].([]any) {
			if tl := tl.(map[string]any); tl["name"] == "AskUserQuestion" {
				text = tl["description"].(string)
			}
		}
		if text == "" || strings.Contains(text, "An option can have a preview") != (want != "") || !strings.Contains(text, want) {
			t.Errorf("%q: the tool is described as %q", format, text)
		}
	}
	ask := func(preview string) map[string]any {
		return map[string]any{"questions": []any{map[string]any{"question": "Which?", "header": "Which", "multiSelect": false, "options": []any{
			map[string]any{"label": "a", "description": "A", "preview": preview}, map[string]any{"label": "b", "description": "B"}}}}}
	}
	s := parleytest.Script(
		parleytest.Call("AskUserQuestion", ask("<div>ok</div><SCRIPT>alert(1)</SCRIPT>")),
		parleytest.Expect(parleytest.ToolError("without html, head, body, script")).Call("AskUserQuestion", ask("<b style='color:red'>ok</b>")),
		parleytest.Expect(parleytest.ToolResult("Which?")).Say("done"))
	asked := 0
	m := s.Model()
	res, err := parley.Run(t.Context(), "Ask.", &parley.Options{
		Dialer: agent.InProcess(agent.Config{Cwd: t.TempDir(), Model: m, Store: &session.Memory{}, Environ: []string{"CLAUDE_CODE_QUESTION_PREVIEW_FORMAT=html"}}),
		CanUseTool: func(_ context.Context, r *wire.CanUseTool) (*wire.PermissionResult, error) {
			asked++
			return parley.AllowInput(json.RawMessage(strings.Replace(string(r.Input), `{"questions"`, `{"answers":{"Which?":"a"},"questions"`, 1))), nil
		},
	})
	if err != nil || asked != 1 || res.Result != "done" || m.Done() != nil {
		t.Errorf("the host was asked %d times, want 1; the result is %+v, %v, %v", asked, res, err, m.Done())
	}
}
