package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/fleet"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A bar is a measurement with its limit.
type bar struct {
	name        string
	value, most float64
	unit        string
}

// String reports whether the measurement is within its limit. On a busy machine it may not be.
func (b bar) String() string {
	held := "held"
	if b.value > b.most {
		held = "MISSED"
	}
	return fmt.Sprintf("bar: %s: %.4g %s, at most %.4g: %s", b.name, b.value, b.unit, b.most, held)
}

// runBars measures a node alone: what sessions at rest cost, how long it takes to attach and to accept a prompt,
// and who gets the claims while a tenant floods it.
func runBars(ctx context.Context, text string) error {
	var spec struct {
		Dir      string
		Sessions int
	}
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	s, err := fleet.StartServer(fleet.ServerConfig{Name: "alone", Dir: filepath.Join(spec.Dir, "alone")})
	if err != nil {
		return err
	}
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	nc, err := fleet.Connect(s)
	if err != nil {
		return err
	}
	defer nc.Close()
	b, err := fleet.Open(ctx, fleet.Config{Conn: nc})
	if err != nil {
		return err
	}
	defer b.Close()
	h, err := hub.New(hub.Config{Backend: b, Gateway: true, Sees: fleet.Sees, Agent: func(context.Context, hub.Start) (*parley.Options, error) {
		return nil, errors.New("a gateway runs no agents")
	}})
	if err != nil {
		return err
	}
	defer h.Close()
	before := memory()
	flood, err := createSessions(ctx, b, "flood/f", spec.Sessions, spec.Dir)
	if err != nil {
		return err
	}
	fmt.Println(bar{fmt.Sprintf("%d sessions at rest cost", len(flood)), memory() - before, 100, "MB"})
	if err := attachBar(ctx, b, h); err != nil {
		return err
	}
	if err := acceptBar(ctx, b, h, spec.Dir); err != nil {
		return err
	}
	return floodBar(ctx, b, h, flood, spec.Dir)
}

// measureAlone measures a node in a process of its own.
func measureAlone(ctx context.Context, dir string, sessions int) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	spec, err := json.Marshal(map[string]any{"Dir": dir, "Sessions": sessions})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, exe, "-role", "bars", "-spec", string(spec))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// memory returns the resident memory of the process, in megabytes.
func memory() float64 {
	debug.FreeOSMemory()
	data, _ := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(fields[1], 64)
	return pages * float64(os.Getpagesize()) / 1e6
}

// each calls f for the numbers below n, eight at a time.
func each(n int, f func(int) error) error {
	var work sync.WaitGroup
	errs := make([]error, 8)
	for k := range errs {
		work.Go(func() {
			for i := k; i < n && errs[k] == nil; i += len(errs) {
				errs[k] = f(i)
			}
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

// createSessions creates idle sessions of an actor.
func createSessions(ctx context.Context, b *fleet.Backend, by string, n int, cwd string) ([]string, error) {
	ids := make([]string, n)
	return ids, each(n, func(i int) error {
		ids[i] = session.NewID()
		data, err := json.Marshal(hub.Created{By: hub.Actor{Name: by}, Cwd: cwd, Session: ids[i]})
		if err != nil {
			return err
		}
		return b.Append(ctx, ids[i], 0, []hub.Entry{{N: 1, Kind: hub.KindCreated, Time: time.Now(), Data: data}})
	})
}

// attachBar attaches to a session with 10,000 entries of 1 KB.
func attachBar(ctx context.Context, b *fleet.Backend, h *hub.Hub) error {
	const count = 10_000
	ids, err := createSessions(ctx, b, "chaos", 1, "/")
	if err != nil {
		return err
	}
	data, _ := json.Marshal(map[string]string{"type": "system", "subtype": "status", "text": strings.Repeat("x", 1000)})
	for n := uint64(1); n < count; {
		var entries []hub.Entry
		for ; n < count && len(entries) < 200; n++ {
			entries = append(entries, hub.Entry{N: n + 1, Kind: hub.KindFrame, Time: time.Now(), Data: data})
		}
		if err := b.Append(ctx, ids[0], entries[0].N-1, entries); err != nil {
			return err
		}
	}
	var times []float64
	for range 7 {
		began := time.Now()
		for e, err := range h.Session(ids[0]).Attach(ctx, chaos, 0) {
			if err != nil {
				return err
			}
			if e.N == count {
				break
			}
		}
		times = append(times, float64(time.Since(began).Microseconds())/1000)
	}
	fmt.Println(bar{"attach with 10,000 entries, p50", median(times), 150, "ms"})
	return nil
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// acceptBar sends prompts to a session that has a viewer.
func acceptBar(ctx context.Context, b *fleet.Backend, h *hub.Hub, cwd string) error {
	ids, err := createSessions(ctx, b, "chaos", 1, cwd)
	if err != nil {
		return err
	}
	s := h.Session(ids[0])
	watching, stop := context.WithCancel(ctx)
	defer stop()
	attached := make(chan struct{})
	go func() {
		once := sync.OnceFunc(func() { close(attached) })
		for range s.Attach(watching, chaos, 0) {
			once()
		}
	}()
	<-attached
	var times []float64
	for i := range 300 {
		began := time.Now()
		if _, err := s.Prompt(ctx, chaos, wire.Prompt(wire.Text(fmt.Sprint("accept-", i)))); err != nil {
			return err
		}
		times = append(times, float64(time.Since(began).Microseconds())/1000)
	}
	fmt.Println(bar{"a prompt is accepted durably, p50", median(times), 1, "ms"})
	return b.Rest(ctx, ids[0])
}

// floodBar makes a tenant send a prompt to each of its sessions while other tenants also wait, one of them with the weight
// 3, and measures which tenants get the claims.
func floodBar(ctx context.Context, b *fleet.Backend, h *hub.Hub, flood []string, cwd string) error {
	if err := b.SetTenant(ctx, fleet.Tenant{Name: "heavy", Weight: 3}); err != nil {
		return err
	}
	const others, claims = 60, 80
	tenant := map[string]string{}
	began := time.Now()
	send := func(ids []string, by string) error {
		for _, id := range ids {
			tenant[id] = fleet.TenantOf(by)
		}
		return each(len(ids), func(i int) error {
			_, err := h.Session(ids[i]).Prompt(ctx, hub.Actor{Name: by, Rights: hub.Everything}, wire.Prompt(wire.Text("flood")))
			return err
		})
	}
	if err := send(flood, "flood/f"); err != nil {
		return err
	}
	fmt.Printf("flood: %d prompts accepted in %v\n", len(flood), time.Since(began).Round(time.Millisecond))
	for _, by := range []string{"heavy/h", "light/l"} {
		ids, err := createSessions(ctx, b, by, others, cwd)
		if err == nil {
			err = send(ids, by)
		}
		if err != nil {
			return err
		}
	}
	got := make(chan string, 1000)
	w := fleet.NewWorker(b, 10, nil)
	worker, err := hub.New(hub.Config{Backend: w.Backend(), Name: "worker", IdleAfter: time.Millisecond, Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
		got <- tenant[start.ID]
		return &parley.Options{Cwd: start.Cwd, Dialer: agent.InProcess(agent.Config{Model: parleytest.Script(parleytest.Say("Done.")).Model(), Store: start.Store, Environ: os.Environ()})}, nil
	}})
	if err != nil {
		return err
	}
	began = time.Now()
	claiming, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(claiming, worker) }()
	shares := map[string]float64{}
	for range claims {
		select {
		case name := <-got:
			shares[name] += 100.0 / claims
		case <-ctx.Done():
		}
	}
	fmt.Printf("flood: the first %d claims took %v\n", claims, time.Since(began).Round(time.Millisecond))
	stop()
	<-done
	worker.Close()
	for _, x := range []struct {
		name string
		due  float64
	}{{"heavy", 60}, {"light", 20}, {"flood", 20}} {
		fmt.Println(bar{fmt.Sprintf("share of claims of %s, due %.0f%%: it has %.0f%%, off by", x.name, x.due, shares[x.name]), max(shares[x.name]-x.due, x.due-shares[x.name]), 10, "%"})
	}
	return nil
}
