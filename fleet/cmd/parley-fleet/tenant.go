package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/parley-go/parley/fleet"
)

// tenant shows, sets or removes the limits of a tenant.
func tenant(ctx context.Context, args []string, stdout, _ io.Writer) error {
	var n natsFlags
	var t fleet.Tenant
	var models, secrets string
	fs := newFlags("tenant [flags] NAME", stdout)
	n.add(fs)
	fs.IntVar(&t.Weight, "weight", 0, "the tenant's share of claims while others wait; 0 means 1")
	fs.IntVar(&t.Running, "running", 0, "the `NUMBER` of sessions that may run at once; 0 means no limit")
	fs.IntVar(&t.Queued, "queued", 0, "the `NUMBER` of prompts that may wait; 0 means no limit")
	fs.Float64Var(&t.USDPerDay, "usd-per-day", 0, "the `USD` that turns may cost in a day (UTC); 0 means no limit")
	fs.StringVar(&models, "models", "", "the `MODELS` that the tenant may use, separated by commas; a * at the end matches anything")
	fs.StringVar(&secrets, "secrets", "", "the `NAMES` of variables for the tenant's agents, separated by commas; each value is PARLEY_TENANT_<TENANT>_<NAME> of the worker")
	remove := fs.Bool("remove", false, "remove the limits")
	show := fs.Bool("show", false, "print the limits and the cost of today")
	var words []string
	if err := parse(fs, args, &words); err != nil {
		return err
	}
	if len(words) != 1 {
		return usagef("usage: parley-fleet tenant [flags] NAME")
	}
	split := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
	}
	t.Name, t.Models, t.Secrets = words[0], split(models), split(secrets)
	b, end, err := n.open(ctx, "tenant")
	if err != nil {
		return err
	}
	defer end()
	switch {
	case *remove:
		return b.RemoveTenant(ctx, t.Name)
	case !*show:
		return b.SetTenant(ctx, t)
	}
	stored, err := b.Tenant(ctx, t.Name)
	if err != nil {
		return err
	}
	if stored == nil {
		return fmt.Errorf("the tenant %s has no limits", t.Name)
	}
	usd, err := b.Spent(ctx, t.Name, time.Now())
	if err != nil {
		return err
	}
	enc := json.NewEncoder(stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		*fleet.Tenant
		SpentToday float64 `json:"spent_today_usd"`
	}{stored, usd})
}
