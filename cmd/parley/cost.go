package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

const costHelp = `
Shows the cost of a session by model and agent, from its record of each request. Retries,
subagents and summaries are included. Without SESSION it shows the last session of this
directory. An id can be shortened, and a title can replace it.

  parley cost                     the last session of this directory
  parley cost 1f2e3d4c            this session
  parley cost --day today         all sessions of a day, of every directory
  parley cost --day 2026-11-15

If the price of a model is unknown, the total is marked as incomplete. For sessions of the
claude command, which have no such records, it shows the total that they recorded.`

// A costAccount adds up requests.
type costAccount struct {
	Name       string  `json:"name,omitempty"` // of the model, or of the agent
	Requests   int     `json:"requests"`
	Input      int64   `json:"inputTokens"`
	Output     int64   `json:"outputTokens"`
	CacheRead  int64   `json:"cacheReadInputTokens"`
	CacheWrite int64   `json:"cacheCreationInputTokens"`
	Write5m    int64   `json:"cacheCreationEphemeral5mInputTokens"`
	Write1h    int64   `json:"cacheCreationEphemeral1hInputTokens"`
	Searches   int64   `json:"webSearchRequests"`
	Nanos      int64   `json:"costNanos"`
	USD        float64 `json:"costUSD"`
	Unknown    bool    `json:"costUnknown,omitempty"` // of some requests
}

// A costReport is the output of parley cost.
type costReport struct {
	Session  string         `json:"sessionId,omitempty"`
	Day      string         `json:"day,omitempty"`
	Sessions int            `json:"sessions,omitempty"`
	Total    *costAccount   `json:"total"`
	Models   []*costAccount `json:"models"`
	Agents   []*costAccount `json:"agents"`

	models, agents map[string]*costAccount
	seen           map[string]bool // requests already counted, because a fork of a session also has them
}

// A costRecord is a record of a session about one request, or about all.
type costRecord struct {
	Type      string     `json:"type"`
	Time      time.Time  `json:"timestamp"`
	ID        string     `json:"id"`
	Model     string     `json:"model"`
	Purpose   string     `json:"purpose"`
	AgentType string     `json:"agentType"`
	Usage     wire.Usage `json:"usage"`
	Nanos     int64      `json:"costNanos"`
	Unknown   bool       `json:"costUnknown"`

	ModelUsage map[string]*wire.ModelUsage `json:"modelUsage"` // from a cost-state record
}

// costCommand implements parley cost.
func costCommand(ctx context.Context, p *process, args []string) error {
	fs := newFlags(p, "cost", "[SESSION] [--day DAY] [--json]", costHelp)
	day := fs.String("day", "", "all sessions of this `DAY`: today, yesterday or YYYY-MM-DD")
	asJSON := fs.Bool("json", false, "print JSON")
	words, err := parseWords(fs, args)
	if err != nil {
		return err
	}
	if len(words) > 1 || len(words) == 1 && *day != "" {
		return usagef("usage: parley cost [SESSION], or parley cost --day DAY")
	}
	store, cwd, err := sessionFiles(p)
	if err != nil {
		return err
	}
	r := &costReport{Total: &costAccount{}, models: map[string]*costAccount{}, agents: map[string]*costAccount{}, seen: map[string]bool{}}
	switch {
	case *day != "":
		err = r.ofDay(ctx, store, *day, time.Now())
	case len(words) == 1:
		r.Session, err = (&sessionsCommand{p: p, store: store, cwd: cwd, all: true}).find(ctx, words[0])
	default:
		if r.Session, err = session.Latest(ctx, store, cwd); errors.Is(err, session.ErrNotFound) || err == nil && r.Session == "" {
			return errors.New("this directory has no session yet; \"parley sessions --all\" lists the sessions of every directory")
		}
	}
	if err != nil {
		return err
	}
	if r.Session != "" {
		if err := r.add(ctx, store, r.Session, time.Time{}, time.Time{}); err != nil {
			return explain(r.Session, err)
		}
	}
	r.Models, r.Agents = sorted(r.models), sorted(r.agents)
	for _, a := range append(append([]*costAccount{r.Total}, r.Models...), r.Agents...) {
		a.USD = float64(a.Nanos) / 1e9
	}
	if *asJSON {
		out := json.NewEncoder(p.stdout)
		out.SetIndent("", "  ")
		return out.Encode(r)
	}
	return r.print(p)
}

// ofDay adds the costs of a day.
func (r *costReport) ofDay(ctx context.Context, store session.Store, day string, now time.Time) error {
	from := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	switch day {
	case "today":
	case "yesterday":
		from = from.AddDate(0, 0, -1)
	default:
		var err error
		if from, err = time.ParseInLocation("2006-01-02", day, now.Location()); err != nil {
			return usagef("--day %s: use today, yesterday or a date such as 2026-11-15", day)
		}
	}
	r.Day = from.Format("2006-01-02")
	infos, err := session.List(ctx, store, nil)
	if err != nil {
		return err
	}
	for _, i := range infos {
		if i.Modified.Before(from) {
			continue
		}
		if err := r.add(ctx, store, i.ID, from, from.AddDate(0, 0, 1)); err != nil && !errors.Is(err, session.ErrNotFound) {
			return err
		}
	}
	return nil
}

// add adds the requests of a session and of its subagents, or only those of a day.
func (r *costReport) add(ctx context.Context, store session.Store, id string, from, to time.Time) error {
	parts := []string{""}
	agents, err := session.Subagents(ctx, store, id, nil)
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return err
	}
	for _, a := range agents {
		parts = append(parts, "subagents/agent-"+a)
	}
	found, counted := false, false
	var sum *costRecord
	for _, part := range parts {
		records, err := session.Records(ctx, store, id, part, nil)
		if err != nil && (part == "" || !errors.Is(err, session.ErrNotFound)) {
			return err
		}
		for _, raw := range records {
			// Most records are messages, and long.
			if text := string(raw[:min(len(raw), 4096)]); !strings.Contains(text, `"parley-request"`) && !strings.Contains(text, `"cost-state"`) {
				continue
			}
			var rec costRecord
			if json.Unmarshal(raw, &rec) != nil {
				continue
			}
			switch rec.Type {
			case "cost-state":
				if part == "" {
					sum = &rec
				}
			case "parley-request":
				found = true
				if !from.IsZero() && (rec.Time.Before(from) || !rec.Time.Before(to)) || rec.ID != "" && r.seen[rec.ID] {
					continue
				}
				r.seen[rec.ID] = true
				counted = true
				r.book(&rec)
			}
		}
	}
	if !found && sum != nil && from.IsZero() {
		for name, u := range sum.ModelUsage {
			if u == nil {
				continue
			}
			rec := &costRecord{Model: name, Nanos: int64(math.Round(u.CostUSD * 1e9)), Unknown: u.CostBasis == "unknown", Usage: wire.Usage{InputTokens: u.InputTokens,
				OutputTokens: u.OutputTokens, CacheReadInputTokens: u.CacheReadInputTokens, CacheCreationInputTokens: u.CacheCreationInputTokens}}
			for _, a := range []*costAccount{r.Total, of(r.models, name)} {
				a.add(rec, 0)
			}
		}
	}
	if counted {
		r.Sessions++
	}
	return nil
}

// book adds one request.
func (r *costReport) book(rec *costRecord) {
	agent := rec.AgentType
	if agent == "" {
		agent = "main"
	}
	if rec.Purpose == "summary" || rec.Purpose == "tool" {
		agent += " (" + map[string]string{"summary": "compaction", "tool": "asked by tools"}[rec.Purpose] + ")"
	}
	for _, a := range []*costAccount{r.Total, of(r.models, rec.Model), of(r.agents, agent)} {
		a.add(rec, 1)
	}
}

func of(m map[string]*costAccount, name string) *costAccount {
	if m[name] == nil {
		m[name] = &costAccount{Name: name}
	}
	return m[name]
}

func (a *costAccount) add(rec *costRecord, requests int) {
	u := &rec.Usage
	a.Requests += requests
	a.Input += u.InputTokens
	a.Output += u.OutputTokens
	a.CacheRead += u.CacheReadInputTokens
	if c := u.CacheCreation; c != nil && c.Ephemeral5mInputTokens+c.Ephemeral1hInputTokens > 0 {
		a.Write5m += c.Ephemeral5mInputTokens
		a.Write1h += c.Ephemeral1hInputTokens
		a.CacheWrite += c.Ephemeral5mInputTokens + c.Ephemeral1hInputTokens
	} else {
		a.Write5m += u.CacheCreationInputTokens
		a.CacheWrite += u.CacheCreationInputTokens
	}
	if u.ServerToolUse != nil {
		a.Searches += u.ServerToolUse.WebSearchRequests
	}
	a.Nanos += rec.Nanos
	a.Unknown = a.Unknown || rec.Unknown
}

// sorted returns accounts, most expensive first.
func sorted(m map[string]*costAccount) []*costAccount {
	list := slices.Collect(maps.Values(m))
	slices.SortFunc(list, func(a, b *costAccount) int {
		return cmp.Or(cmp.Compare(b.Nanos, a.Nanos), cmp.Compare(a.Name, b.Name))
	})
	if list == nil {
		list = []*costAccount{}
	}
	return list
}

// money formats the cost of an account.
func (a *costAccount) money() string {
	s := fmt.Sprintf("$%.4f", float64(a.Nanos)/1e9)
	switch {
	case !a.Unknown && a.Nanos > 0 && a.Nanos < 50_000: // which is more than nothing
		return "< $0.0001"
	case a.Unknown && a.Nanos == 0:
		return "unknown"
	case a.Unknown:
		return "more than " + s
	}
	return s
}

// counted formats a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

func (r *costReport) print(p *process) error {
	what := "Session " + r.Session
	if r.Day != "" {
		what = r.Day + ", " + counted(r.Sessions, "session")
	}
	requests := counted(r.Total.Requests, "request")
	if r.Total.Requests == 0 && r.Total.Nanos > 0 {
		requests = "no records of requests"
	}
	fmt.Fprintf(p.stdout, "%s: %s (%s)\n", what, r.Total.money(), requests)
	for _, part := range []struct {
		head string
		list []*costAccount
	}{{"MODEL", r.Models}, {"AGENT", r.Agents}} {
		if len(part.list) == 0 {
			continue
		}
		rows := [][]string{{part.head, "REQUESTS", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "COST"}}
		for _, a := range part.list {
			row := []string{clean(a.Name)}
			for _, n := range []int64{int64(a.Requests), a.Input, a.Output, a.CacheRead, a.CacheWrite} {
				row = append(row, strconv.FormatInt(n, 10))
			}
			rows = append(rows, append(row, a.money()))
		}
		fmt.Fprintln(p.stdout)
		if err := table(p.stdout, rows); err != nil {
			return err
		}
	}
	return nil
}
