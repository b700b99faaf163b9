package fleet

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// While one tenant floods the queue, the others get their weighted share of the claims, and nobody
// exceeds its limit.
func TestClaimsAreFairByWeight(t *testing.T) {
	tenants := map[string]*Tenant{"flood": {Name: "flood"}, "heavy": {Name: "heavy", Weight: 3}, "small": {Name: "small", Running: 2}}
	var waiting []string
	for i := range 10_000 {
		waiting = append(waiting, fmt.Sprint("flood", i))
	}
	for i := range 100 {
		waiting = append(waiting, fmt.Sprint("heavy", i), fmt.Sprint("small", i), fmt.Sprint("none", i))
	}
	of := func(id string) string { return strings.TrimRight(id, "0123456789") }
	count := func(order []string) map[string]int {
		n := map[string]int{}
		for _, id := range order {
			n[of(id)]++
		}
		return n
	}
	order := fairOrder(waiting, of, tenants, nil)
	if got := count(order[:52]); got["heavy"] != 30 || got["flood"] != 10 || got["none"] != 10 || got["small"] != 2 {
		t.Errorf("the first 52 claims: %v", got)
	}
	if order[0] != "heavy0" || len(order) != 10_202 {
		t.Errorf("the first is %s of %d", order[0], len(order))
	}
	// Running sessions count towards the share.
	order = fairOrder(waiting, of, tenants, map[string]int{"heavy": 30, "small": 2})
	if got := count(order[:20]); got["heavy"] != 0 || got["small"] != 0 || got["flood"] != 10 {
		t.Errorf("with 30 of heavy running: %v", got)
	}
}

// A tenant that exceeds a limit gets an error that names the limit; accepted prompts stay accepted,
// and other tenants are not affected.
func TestPromptOverALimitIsRefused(t *testing.T) {
	t.Parallel()
	open := place(t)
	b := open()
	h := newCrew(t, b, 0, "").hub
	begin := func(name string) (*hub.Session, hub.Actor) {
		t.Helper()
		by := hub.Actor{Name: name, Rights: hub.Everything}
		s, err := h.Create(t.Context(), by, hub.Spec{Cwd: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return s, by
	}
	if err := b.SetTenant(t.Context(), Tenant{Name: "acme", Queued: 2, USDPerDay: 5}); err != nil {
		t.Fatal(err)
	}
	s, alice := begin("acme/alice")
	first := wire.Prompt(wire.Text("one"))
	first.UUID = "11111111-1111-4111-8111-111111111111"
	send := func(s *hub.Session, by hub.Actor, m *wire.User) error {
		_, err := s.Prompt(t.Context(), by, m)
		return err
	}
	other, _ := begin("acme/alan")
	if err := errors.Join(send(s, alice, first), send(other, alice, wire.Prompt(wire.Text("two")))); err != nil {
		t.Fatal(err)
	}
	if err := send(s, alice, wire.Prompt(wire.Text("three"))); !errors.Is(err, hub.ErrLimit) || !strings.Contains(err.Error(), "2 prompts of acme are queued") {
		t.Errorf("a third prompt: %v", err)
	}
	if err := send(s, alice, first); err != nil {
		t.Errorf("one that was accepted, again: %v", err)
	}
	s2, bob := begin("other/bob")
	s3, ann := begin("ann")
	if err := errors.Join(send(s2, bob, wire.Prompt(wire.Text("one"))), send(s3, ann, wire.Prompt(wire.Text("one")))); err != nil {
		t.Errorf("other tenants: %v", err)
	}
	// The cost of a turn comes from the ledger in its result.
	w := NewWorker(b, 1, nil)
	result := hub.Entry{Kind: hub.KindFrame, N: 1, Time: time.Now(), Data: []byte(`{"type":"result","subtype":"success","is_error":false,"num_turns":1,"duration_ms":1,"duration_api_ms":1,"total_cost_usd":9,"session_id":"x","model_usage_since_last_result":{"m":{"costUSD":6.5}}}`)}
	var last uint64
	for e, err := range b.Read(t.Context(), s.ID(), 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		last = max(last, e.N)
	}
	result.N = last + 1
	if err := w.Backend().Append(t.Context(), s.ID(), last, []hub.Entry{result}); err != nil {
		t.Fatal(err)
	}
	if usd, err := b.Spent(t.Context(), "acme", time.Now()); err != nil || usd != 6.5 {
		t.Errorf("spent %v, %v", usd, err)
	}
	if err := b.SetTenant(t.Context(), Tenant{Name: "acme", USDPerDay: 5, Models: []string{"small-*"}, Secrets: []string{"API_KEY"}}); err != nil {
		t.Fatal(err)
	}
	if err := send(s, alice, wire.Prompt(wire.Text("four"))); !errors.Is(err, hub.ErrLimit) || !strings.Contains(err.Error(), "$6.50 of $5.00") {
		t.Errorf("over the dollars: %v", err)
	}
	if err := w.AllowModel(s.ID(), "large-1"); err == nil || !strings.Contains(err.Error(), "may not use the model large-1") {
		t.Errorf("another model: %v", err)
	}
	if err := errors.Join(w.AllowModel(s.ID(), "small-2"), w.AllowModel(s2.ID(), "large-1")); err != nil {
		t.Errorf("allowed models: %v", err)
	}
	env := func(name string) (string, bool) { return "canary", name == "PARLEY_TENANT_ACME_API_KEY" }
	if got, err := w.Secrets(t.Context(), s.ID(), env); err != nil || got["API_KEY"] != "canary" {
		t.Errorf("secrets %v, %v", got, err)
	}
	if got, err := w.Secrets(t.Context(), s2.ID(), env); err != nil || len(got) != 0 {
		t.Errorf("secrets of another tenant %v, %v", got, err)
	}
	if _, err := w.Secrets(t.Context(), s.ID(), func(string) (string, bool) { return "", false }); err == nil || !strings.Contains(err.Error(), "PARLEY_TENANT_ACME_API_KEY") {
		t.Errorf("without the variable: %v", err)
	}
	if err := b.RemoveTenant(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if err := send(s, alice, wire.Prompt(wire.Text("five"))); err != nil {
		t.Errorf("without limits: %v", err)
	}
}

// Sessions of a tenant at its limit wait, and those of others do not.
func TestRunningLimitHoldsPerTenant(t *testing.T) {
	t.Parallel()
	open := place(t)
	b := open()
	if err := b.SetTenant(t.Context(), Tenant{Name: "acme", Running: 1}); err != nil {
		t.Fatal(err)
	}
	gateway := newCrew(t, open(), 0, "")
	begin := func(name string) *hub.Session {
		t.Helper()
		by := hub.Actor{Name: name, Rights: hub.Everything}
		s, err := gateway.hub.Create(t.Context(), by, hub.Spec{Cwd: t.TempDir()})
		if err == nil {
			_, err = s.Prompt(t.Context(), by, wire.Prompt(wire.Text("Do it.")))
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one, two, three := begin("acme/a"), begin("acme/b"), begin("ben")
	worker := newCrew(t, b, 4, t.TempDir()+"/effects")
	var n1, n3 uint64
	until(t, one, &n1, hub.KindAsk, nil)
	until(t, three, &n3, hub.KindAsk, nil)
	if ids := strings.Join(worker.b.beat.ids(), " "); strings.Contains(ids, two.ID()) {
		t.Errorf("it runs %s, with the second session of acme", ids)
	}
	st, err := gateway.b.Status(t.Context())
	if err != nil || st.Queued != 1 || st.Running != 2 {
		t.Errorf("status %+v, %v", st, err)
	}
}
