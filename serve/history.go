package serve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

type auditQuery struct {
	Limit int `json:"-" query:"limit"` // 200 if omitted
}

// AuditList is the end of the audit log, newest event first.
type AuditList struct {
	Events []Event `json:"events"`
}

func listAudit(c *call, _ context.Context, in *auditQuery) (AuditList, error) {
	events, err := c.s.audit.latest(cmp.Or(max(in.Limit, 0), 200), func(e *Event) bool { return c.sees(e.By) })
	return AuditList{events}, err
}

// latest returns up to n events for which shown returns true, newest first.
func (a *auditLog) latest(n int, shown func(*Event) bool) (out []Event, err error) {
	if a.path == "" {
		return nil, nil
	}
	for _, name := range []string{a.path, a.path + ".1"} {
		data, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		lines := bytes.Split(data, []byte("\n"))
		slices.Reverse(lines)
		for _, line := range lines {
			var e Event
			if len(line) == 0 || json.Unmarshal(line, &e) != nil { // a crash may have cut it off
				continue
			}
			if !shown(&e) {
				continue
			}
			if out = append(out, e); len(out) == n {
				return out, nil
			}
		}
	}
	return out, nil
}

// A Cost is the cost of a session for one model on one day.
type Cost struct {
	Day              string  `json:"day"` // in the time zone of the server, such as 2026-11-15
	Session          string  `json:"session"`
	Model            string  `json:"model"`
	USD              float64 `json:"usd"`
	InputTokens      int64   `json:"input_tokens"`
	OutputTokens     int64   `json:"output_tokens"`
	CacheReadTokens  int64   `json:"cache_read_tokens"`
	CacheWriteTokens int64   `json:"cache_write_tokens"`
}

// CostList is the cost of all sessions, oldest day first.
type CostList struct {
	Costs []Cost `json:"costs"`
}

func listCosts(c *call, ctx context.Context, _ *none) (list CostList, err error) {
	all, err := c.s.cfg.Hub.List(ctx, c.Actor)
	if err != nil {
		return list, err
	}
	c.s.spent.Lock()
	defer c.s.spent.Unlock()
	known := map[string]*spending{}
	for _, i := range all {
		x := c.s.spent.all[i.ID]
		if x == nil || i.State.N < x.n {
			x = &spending{before: map[string]*wire.ModelUsage{}}
		}
		if x.n < i.State.N {
			err := c.s.addCosts(ctx, c.Actor, i.ID, x)
			if errors.Is(err, hub.ErrNotFound) { // it was removed in the meantime
				continue
			}
			if err != nil {
				return list, err
			}
		}
		known[i.ID] = x
		list.Costs = append(list.Costs, x.costs...)
	}
	c.s.spent.all = known
	slices.SortStableFunc(list.Costs, func(a, b Cost) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Session, b.Session), cmp.Compare(a.Model, b.Model))
	})
	return list, nil
}

// A spending is the cost of a session up to an entry. Journals only grow, so each entry
// is read once.
type spending struct {
	n      uint64 // the last entry that is included
	costs  []Cost
	before map[string]*wire.ModelUsage // the totals of the last result
}

// addCosts adds the results of a session that are not yet in x.
func (s *Server) addCosts(ctx context.Context, by hub.Actor, id string, x *spending) error {
	for e, err := range s.cfg.Hub.Session(id).Entries(ctx, by, x.n) {
		if err != nil {
			return err
		}
		x.n = max(x.n, e.N)
		if e.Kind != hub.KindFrame || wire.PeekType(e.Data) != "result" {
			continue
		}
		m, err := wire.Decode(e.Data)
		r, ok := m.(*wire.Result)
		if err != nil || !ok {
			continue
		}
		day := e.Time.Local().Format("2006-01-02")
		for model, u := range r.ModelUsage {
			if u == nil {
				continue
			}
			// Totals accumulate from the start of the agent's session, which may have
			// started more than once.
			old := x.before[model]
			if old == nil || old.CostUSD > u.CostUSD || old.OutputTokens > u.OutputTokens {
				old = new(wire.ModelUsage)
			}
			x.before[model] = u
			i := slices.IndexFunc(x.costs, func(c Cost) bool { return c.Day == day && c.Model == model })
			if i < 0 {
				i = len(x.costs)
				x.costs = append(x.costs, Cost{Day: day, Session: id, Model: model})
			}
			x.costs[i].USD += u.CostUSD - old.CostUSD
			x.costs[i].InputTokens += u.InputTokens - old.InputTokens
			x.costs[i].OutputTokens += u.OutputTokens - old.OutputTokens
			x.costs[i].CacheReadTokens += u.CacheReadInputTokens - old.CacheReadInputTokens
			x.costs[i].CacheWriteTokens += u.CacheCreationInputTokens - old.CacheCreationInputTokens
		}
	}
	return nil
}
