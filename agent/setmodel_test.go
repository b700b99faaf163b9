package agent_test

import (
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
)

// TestUnknownModelIsTried checks that a model that is not in the catalog is tried before the conversation uses it, and
// that known models are not.
func TestUnknownModelIsTried(t *testing.T) {
	for _, tt := range []struct {
		model string
		probe *parleytest.Turn // nil: no request is made
		error string           // empty: the model changes
	}{
		{"claude-opus-4-5", nil, ""},
		{"haiku", nil, ""},
		{"new-model", parleytest.Say("Hi").Stop("max_tokens"), ""},
		{"new-model", parleytest.Fail(404, "model: new-model"), "Model 'new-model' not found"},
		{"new-model", parleytest.Fail(403, "no access"), "model not changed"},
	} {
		used := "claude-sonnet-4-5"
		if tt.error == "" {
			used = tt.model
		}
		s := parleytest.Script(parleytest.Expect(parleytest.ModelName(used), parleytest.Field("max_tokens", "1").Exact().Not()).Say("Done."))
		if tt.probe != nil {
			s.When("probe", parleytest.Field("max_tokens", "1").Exact(), tt.probe.Expect(parleytest.ModelName(tt.model)))
		}
		api := parleytest.NewAPI(t, s, nil)
		c, err := parley.Connect(t.Context(), &parley.Options{Cwd: t.TempDir(), Model: "claude-sonnet-4-5",
			Dialer: agent.InProcess(agent.Config{Store: &session.Memory{}, Environ: []string{"ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=" + api.URL}})})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = c.SetModel(t.Context(), tt.model); (err == nil) != (tt.error == "") || err != nil && !strings.Contains(err.Error(), tt.error) {
			t.Errorf("%s: %v, want %q", tt.model, err, tt.error)
		}
		if _, err := run(t, c, "hi"); err != nil {
			t.Errorf("%s: %v", tt.model, err)
		}
		c.Close()
	}
}
