package parleytest

import (
	"encoding/json"
	"testing"
)

// TestRules breaks every rule of the table over HTTP.
func TestRules(t *testing.T) {
	seen := map[string]bool{}
	for _, rule := range Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			if seen[rule.Name] || rule.Says == "" || rule.Known == "" {
				t.Errorf("the rule is not well described: %+v", rule)
			}
			seen[rule.Name] = true
			// The first turn is there for the rule on thinking that was dropped.
			api := NewHandler(Script(Think("hm").Call("a", "{}"), Say("never")), nil)
			if err := api.Listen("127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			defer api.Close()
			if resp, body := postHeader(t, api.URL+"/v1/messages", goodHeader(), goodBody); resp.StatusCode != 200 {
				t.Fatalf("a good request got %d: %s", resp.StatusCode, body)
			}
			header, body := rule.Breaks()
			resp, got := postHeader(t, api.URL+"/v1/messages", header, string(body))
			var e struct {
				Type      string
				Error     struct{ Type, Message string }
				RequestID string `json:"request_id"`
			}
			if err := json.Unmarshal([]byte(got), &e); err != nil {
				t.Fatalf("%v: %s", err, got)
			}
			if resp.StatusCode != rule.Status || e.Type != "error" || e.Error.Type != rule.Type || e.Error.Message != rule.Message {
				t.Errorf("got  %d %s %s: %s\nwant %d %s: %s", resp.StatusCode, e.Type, e.Error.Type, e.Error.Message, rule.Status, rule.Type, rule.Message)
			}
			if e.RequestID == "" || e.RequestID != resp.Header.Get("request-id") {
				t.Errorf("request id %q in the body, %q in the header", e.RequestID, resp.Header.Get("request-id"))
			}
			reqs := api.Requests()
			ref, ok := reqs[1].Err.(*Refusal)
			if !ok || ref.Rule != rule.Name {
				t.Errorf("refused by %v, want rule %s", reqs[1].Err, rule.Name)
			}
			if api.Err() == nil {
				t.Error("the refusal is not reported")
			}
		})
	}
}

// FuzzRules checks that any request, however odd, is at most rejected.
func FuzzRules(f *testing.F) {
	for _, rule := range Rules() {
		if _, body := rule.Breaks(); len(body) < 10_000 {
			f.Add(body)
		}
	}
	for _, rule := range ChatRules() {
		_, body := rule.Breaks()
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := &Request{Header: goodHeader(), Body: body, view: new(view)}
		(&checked{r: r, http: true, memory: new(memory)}).refuse()
		r.LastUser()
		r.ToolResults()
		r.Field("messages.0.content.0")
		new(cache).use(r.parse(), 0, r.Time)
		q := &chatRequest{r: r}
		q.parse()
		for _, rule := range chatRules {
			rule.check(q)
		}
		q.messagesBody()
	})
}
