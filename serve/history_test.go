package serve_test

import (
	"math"
	"strings"
	"testing"

	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
)

// TestHistory checks that costs add up by day, session and model, and that the audit log
// records changes and not rendering.
func TestHistory(t *testing.T) {
	r := newRig(t, func() *parleytest.Model {
		return parleytest.Script(parleytest.Say("One."), parleytest.Say("Two.")).Model()
	}, nil)
	id := r.create("first")
	events := r.events(serve.ScopeView, "/v1/sessions/"+id+"/events", "")
	events.until("frame", `"type":"result"`)
	var costs serve.CostList
	for range 2 {
		if r.do(serve.ScopeView, "GET", "/v1/costs", nil).decode(t, &costs); len(costs.Costs) != 1 || costs.Costs[0].OutputTokens != 10 {
			t.Errorf("costs %+v after the first turn", costs)
		}
	}
	r.do(serve.ScopeDrive, "POST", "/v1/sessions/"+id+"/prompts", map[string]string{"text": "second"})
	last := events.until("frame", `"type":"result"`)
	r.do(serve.ScopeView, "GET", "/v1/costs", nil).decode(t, &costs)
	if len(costs.Costs) != 1 || costs.Costs[0].Session != id || costs.Costs[0].OutputTokens != 20 || math.Abs(costs.Costs[0].USD-0.0012) > 1e-9 {
		t.Errorf("costs %+v after the result %s", costs, last)
	}

	var out serve.Rendered
	r.do(serve.ScopeView, "POST", "/v1/render", map[string][]string{"markdown": {"**a** <b>"}, "diffs": {"@@ -1 +1 @@\n-a\n+b\n"}}).decode(t, &out)
	if len(out.Markdown) != 1 || len(out.Diffs) != 1 || len(out.Diffs[0]) != 3 {
		t.Errorf("rendered %+v", out)
	}
	var audit serve.AuditList
	r.do(serve.ScopeAdmin, "GET", "/v1/audit?limit=2", nil).decode(t, &audit)
	if len(audit.Events) != 2 || !strings.HasSuffix(audit.Events[0].Action, "/prompts") || audit.Events[0].By != "my drive" || audit.Events[1].Action != "POST /v1/sessions" {
		t.Errorf("the audit log has %+v", audit.Events)
	}
	if got := r.do(serve.ScopeDrive, "GET", "/v1/audit", nil); got.StatusCode != 403 {
		t.Errorf("the audit log without the scope: %s", got.Status)
	}
}
