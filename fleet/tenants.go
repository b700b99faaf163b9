package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// A Tenant is an owner of sessions, with its limits. The sessions of an actor whose name is
// "acme/alice" belong to the tenant "acme"; a name without a slash belongs to no tenant, and has no
// limits and the weight 1.
type Tenant struct {
	Name string `json:"name"`
	// Weight is its share of claims while other tenants also wait. Zero means 1.
	Weight int `json:"weight,omitempty"`
	// Running is how many of its sessions may run at once, and Queued how many of its prompts may
	// wait for a worker. Zero means any number.
	Running int `json:"running,omitempty"`
	Queued  int `json:"queued,omitempty"`
	// USDPerDay is the maximum cost of its turns in a UTC day. A running turn is not interrupted.
	// Zero means no limit.
	USDPerDay float64 `json:"usd_per_day,omitempty"`
	// Models are the allowed models; empty means all. A trailing "*" matches any suffix.
	Models []string `json:"models,omitempty"`
	// Secrets are the names of variables that its agents receive from the worker: NAME of the agent
	// is the variable PARLEY_TENANT_<tenant>_NAME of the worker's environment, upper case, "-" as
	// "_".
	Secrets []string `json:"secrets,omitempty"`
}

// TenantOf returns the tenant of an actor, or "" if it has none.
func TenantOf(actor string) string {
	tenant, _, ok := strings.Cut(actor, "/")
	if !ok {
		return ""
	}
	return tenant
}

// Sees reports whether an actor may see the sessions and tokens of another one: an actor of a tenant
// sees those of its tenant, and an actor without a tenant sees all. It is a [hub.Config.Sees].
func Sees(by, other hub.Actor) bool {
	tenant := TenantOf(by.Name)
	return tenant == "" || tenant == TenantOf(other.Name)
}

// allowsModel reports whether a tenant may use a model.
func (t *Tenant) allowsModel(model string) bool {
	return len(t.Models) == 0 || slices.ContainsFunc(t.Models, func(m string) bool {
		prefix, any := strings.CutSuffix(m, "*")
		return m == model || any && strings.HasPrefix(model, prefix)
	})
}

// SecretPrefix begins the names of the worker's variables with secrets. Keep them from agents: their tools would
// see the secrets of every tenant.
const SecretPrefix = "PARLEY_TENANT_"

// SecretVariable returns the name of the worker's variable with a secret of a tenant.
func SecretVariable(tenant, name string) string {
	return SecretPrefix + strings.ToUpper(strings.ReplaceAll(tenant, "-", "_")) + "_" + name
}

func tenantKey(name string) string { return "tenant." + name }

// SetTenant stores the limits of a tenant.
func (b *Backend) SetTenant(ctx context.Context, t Tenant) error {
	if !validTenant(t.Name) {
		return fmt.Errorf("fleet: %q is not a name of a tenant: use lower-case letters, digits and -", t.Name)
	}
	if t.Weight < 0 || t.Running < 0 || t.Queued < 0 || t.USDPerDay < 0 {
		return errors.New("fleet: the limits of a tenant cannot be negative")
	}
	var old Tenant
	return b.changeState(ctx, tenantKey(t.Name), &old, func() error { old = t; return nil })
}

func validTenant(name string) bool {
	return name != "" && len(name) <= 32 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// RemoveTenant removes the limits of a tenant.
func (b *Backend) RemoveTenant(ctx context.Context, name string) error {
	return b.state.Purge(ctx, tenantKey(name))
}

// Tenants returns all tenants that have limits, by name.
func (b *Backend) Tenants(ctx context.Context) (map[string]*Tenant, error) {
	all := map[string]*Tenant{}
	entries, err := b.last(ctx, "KV_"+b.cfg.Name+"-"+stateKV)
	if err != nil {
		return nil, err
	}
	for _, m := range entries {
		t := new(Tenant)
		if strings.Contains(m.subject, ".tenant.") && m.header.Get("KV-Operation") == "" && json.Unmarshal(m.data, t) == nil {
			all[t.Name] = t
		}
	}
	return all, nil
}

// Tenant returns a tenant, or nil if it has no limits.
func (b *Backend) Tenant(ctx context.Context, name string) (*Tenant, error) {
	if !validTenant(name) {
		return nil, nil
	}
	t := new(Tenant)
	revision, err := b.getState(ctx, tenantKey(name), t)
	if err != nil || revision == 0 {
		return nil, err
	}
	return t, nil
}

// A spent is the cost of a tenant in a day. It stores the last total of each session, because a session may
// have started on another day.
type spent struct {
	USD float64 `json:"usd"`
}

func spentKey(tenant string, day time.Time) string {
	return "spent." + tenant + "." + day.UTC().Format("20060102")
}

// Spent returns the cost of a tenant in the UTC day of a time.
func (b *Backend) Spent(ctx context.Context, tenant string, at time.Time) (float64, error) {
	var s spent
	_, err := b.getState(ctx, spentKey(tenant, at), &s)
	return s.USD, err
}

// spend adds the cost of a turn.
func (b *Backend) spend(ctx context.Context, tenant string, usd float64) error {
	if tenant == "" || usd <= 0 {
		return nil
	}
	var s spent
	return b.changeState(ctx, spentKey(tenant, time.Now()), &s, func() error { s.USD += usd; return nil })
}

// tenantOf returns the tenant of a session.
func (b *Backend) tenantOf(ctx context.Context, id string) (string, error) {
	c, err := b.created(ctx, id)
	if err != nil || c == nil {
		return "", err
	}
	return TenantOf(c.By.Name), nil
}

// turnCost returns the cost that a result adds to a session.
func turnCost(result *wire.Result) (usd float64) {
	for _, u := range result.ModelUsageSinceLastResult {
		usd += u.CostUSD
	}
	return usd
}

// checkPrompt returns an error if a tenant may not send another prompt now.
func (b *Backend) checkPrompt(ctx context.Context, id string) error {
	name, err := b.tenantOf(ctx, id)
	if err != nil || name == "" {
		return err
	}
	t, err := b.Tenant(ctx, name)
	if err != nil || t == nil {
		return err
	}
	if t.USDPerDay > 0 {
		usd, err := b.Spent(ctx, name, time.Now())
		if err != nil {
			return err
		}
		if usd >= t.USDPerDay {
			return fmt.Errorf("%w: %s has spent $%.2f of $%.2f today; the day ends at midnight UTC", hub.ErrLimit, name, usd, t.USDPerDay)
		}
	}
	if t.Queued > 0 {
		n, err := b.waiting(ctx, name, t.Queued)
		if err != nil {
			return err
		}
		if n >= t.Queued {
			return fmt.Errorf("%w: %d prompts of %s are queued, and its limit is %d; retry when some have started", hub.ErrLimit, n, name, t.Queued)
		}
	}
	return nil
}

// waiting returns how many prompts of a tenant wait for a worker, in its sessions that have work.
// It stops counting at the number most.
func (b *Backend) waiting(ctx context.Context, tenant string, most int) (n int, err error) {
	queued, err := b.last(ctx, b.stream(workStream))
	if err != nil {
		return 0, err
	}
	for _, m := range queued {
		id := idOf(m.subject)
		if string(m.data) != tenant {
			continue
		}
		k, err := b.pending(ctx, id)
		if err != nil {
			return 0, err
		}
		if n += k; n >= most {
			break
		}
	}
	return n, nil
}

// pending returns how many prompts of a session have no turn yet.
func (b *Backend) pending(ctx context.Context, id string) (n int, err error) {
	var consumed uint64
	begun := map[string]bool{}
	for e, err := range b.Read(ctx, id, 0, false) {
		if err != nil {
			return 0, err
		}
		consumed = max(consumed, e.Item)
		switch e.Kind {
		case hub.KindPrompt:
			var p hub.Prompt
			if json.Unmarshal(e.Data, &p) == nil && !begun[p.UUID] {
				begun[p.UUID] = false
			}
		case hub.KindDropped:
			var d hub.Dropped
			json.Unmarshal(e.Data, &d)
			begun[d.UUID] = true
		case hub.KindEnded:
			for uuid := range begun {
				begun[uuid] = true
			}
		case hub.KindFrame:
			if e.Record != "" {
				begun[e.Record] = true
			}
		}
	}
	for _, yes := range begun {
		if !yes {
			n++
		}
	}
	for i, err := range b.Inbox(ctx, id, consumed, false) {
		if err != nil {
			return 0, err
		}
		if strings.HasPrefix(i.Key, promptPrefix) {
			n++
		}
	}
	return n, nil
}

// fairOrder sorts waiting sessions in the order in which they should be claimed: the next is always
// from the tenant that runs the least for its weight, and of those the one that has waited longest.
// Tenants at their limit of running sessions are left out.
func fairOrder(waiting []string, tenantOf func(string) string, tenants map[string]*Tenant, running map[string]int) (order []string) {
	byTenant := map[string][]string{}
	var names []string
	for _, id := range waiting {
		name := tenantOf(id)
		if byTenant[name] == nil {
			names = append(names, name)
		}
		byTenant[name] = append(byTenant[name], id)
	}
	count := map[string]int{}
	for name, n := range running {
		count[name] = n
	}
	limits := func(name string) (weight, most int) {
		weight = 1
		if t := tenants[name]; t != nil {
			weight, most = max(t.Weight, 1), t.Running
		}
		return weight, most
	}
	for {
		var best string
		found := false
		for _, name := range names { // in the order in which they started to wait
			weight, most := limits(name)
			if len(byTenant[name]) == 0 || most > 0 && count[name] >= most {
				continue
			}
			if !found {
				best, found = name, true
				continue
			}
			bestWeight, _ := limits(best)
			if cmp.Compare((count[name]+1)*bestWeight, (count[best]+1)*weight) < 0 {
				best = name
			}
		}
		if !found {
			return order
		}
		order = append(order, byTenant[best][0])
		byTenant[best] = byTenant[best][1:]
		count[best]++
	}
}

// promptPrefix is the prefix of the keys of prompts in an inbox.
const promptPrefix = "prompt/"

// workMsg returns the message that a session has work. It names the tenant, so that workers need not read the
// journal.
func (b *Backend) workMsg(ctx context.Context, id string) *nats.Msg {
	tenant, _ := b.tenantOf(ctx, id) // without it, workers read the journal
	return newMsg(b.workSubject(id), []byte(tenant))
}

// order returns the queued sessions in the order in which they should be claimed.
func (w *Worker) order(ctx context.Context, queued []*stored, held map[string]holder) ([]string, error) {
	tenants, err := w.b.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	of, running := map[string]string{}, map[string]int{}
	var ran, waiting []string
	for _, m := range queued {
		id := idOf(m.subject)
		of[id] = string(m.data)
		if _, ok := held[id]; ok { // first, because its worker may have died
			running[of[id]]++
			ran = append(ran, id)
			continue
		}
		waiting = append(waiting, id)
	}
	return append(ran, fairOrder(waiting, func(id string) string { return of[id] }, tenants, running)...), nil
}

// account adds the cost of a turn to its tenant's cost of today.
func (b *Backend) account(ctx context.Context, id string, result json.RawMessage) error {
	tenant, err := b.tenantOf(ctx, id)
	if err != nil || tenant == "" {
		return err
	}
	m, err := wire.Decode(result)
	if err != nil {
		return err
	}
	r, ok := m.(*wire.Result)
	if !ok {
		return nil
	}
	return b.spend(ctx, tenant, turnCost(r))
}

// AllowModel returns an error if the tenant of a session may not use a model.
func (w *Worker) AllowModel(id, model string) error {
	ctx, cancel := context.WithTimeout(w.b.ctx, w.b.cfg.Lease)
	defer cancel()
	name, err := w.b.tenantOf(ctx, id)
	if err != nil || name == "" {
		return err
	}
	t, err := w.b.Tenant(ctx, name)
	if err != nil || t == nil || t.allowsModel(model) {
		return err
	}
	return fmt.Errorf("the tenant %s may not use the model %s; it may use %s", name, model, strings.Join(t.Models, ", "))
}

// Secrets returns the secret variables for the agent of a session. They come from this process, and are
// never stored.
func (w *Worker) Secrets(ctx context.Context, id string, lookup func(string) (string, bool)) (map[string]string, error) {
	name, err := w.b.tenantOf(ctx, id)
	if err != nil || name == "" {
		return nil, err
	}
	t, err := w.b.Tenant(ctx, name)
	if err != nil || t == nil {
		return nil, err
	}
	all := map[string]string{}
	for _, secret := range t.Secrets {
		value, ok := lookup(SecretVariable(name, secret))
		if !ok {
			return nil, fmt.Errorf("fleet: the worker %s has no variable %s with a secret of the tenant %s", w.b.cfg.Worker, SecretVariable(name, secret), name)
		}
		all[secret] = value
	}
	return all, nil
}
