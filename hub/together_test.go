package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// TestHostsViewersAndScheduleTogether runs two hosts that take over a session from each
// other, three viewers that come and go and answer, a person who sends prompts, and a
// schedule. It checks that hooks go to the host that holds the session, that every question
// has one answer, that the schedule fires once a minute, and that all viewers have the same
// log.
func TestHostsViewersAndScheduleTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const minutes = 12
		m := &hub.Memory{}
		r := newRig(t, m, func() *parleytest.Model {
			var turns []*parleytest.Turn
			for i := range 30 {
				turns = append(turns, parleytest.Call("Bash", map[string]string{"command": fmt.Sprintf("echo %d > out", i)}), parleytest.Say("Done."))
			}
			return parleytest.Script(turns...).Default(parleytest.Say("ok")).Model()
		})
		r.start()
		defer r.hub.Close()
		s := r.create()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var work sync.WaitGroup
		if _, err := r.hub.Schedule(ctx, ann, hub.Schedule{Session: s.ID(), Prompt: "scheduled", Cron: "* * * * *"}); err != nil {
			t.Fatal(err)
		}

		// The hosts. Each holds the session for a while, until the other takes over.
		var mu sync.Mutex
		holder := "" // nobody while the session changes hands
		hooks := map[string]json.RawMessage{"hooks": json.RawMessage(`{"PreToolUse":[{"matcher":"Bash","hookCallbackIds":["cb"],"timeout":3600}]}`)}
		asked := map[string]int{}
		superseded := 0
		hold := func(name string) *hub.Host {
			mu.Lock()
			holder = ""
			mu.Unlock()
			h, err := s.Host(ctx, ann, hub.HostOptions{Initialize: hooks, TakeOver: true, Handle: func(_ context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
				mu.Lock()
				defer mu.Unlock()
				if req.Request.Subtype() != "hook_callback" {
					return nil, errors.New("others may answer")
				}
				if asked[name]++; holder != name && holder != "" {
					t.Errorf("the host %s got a hook while %s holds the session", name, holder)
				}
				return json.RawMessage(`{}`), nil
			}})
			if err != nil {
				t.Error(err)
				return nil
			}
			time.Sleep(time.Second) // the other host has finished by then
			mu.Lock()
			holder = name
			mu.Unlock()
			return h
		}
		work.Go(func() {
			var last *hub.Host
			for i := 0; ctx.Err() == nil; i++ {
				h := hold([]string{"first", "second"}[i%2])
				if last != nil {
					<-last.Done()
					if errors.Is(last.Err(), hub.ErrSuperseded) {
						superseded++
					}
				}
				last = h
				select {
				case <-time.After(97 * time.Second): // in the bubble
				case <-ctx.Done():
				}
			}
			last.Close()
		})

		// The viewers. Each leaves after some events and comes back after its last number.
		logs := make([][]string, 3)
		late, answers := 0, 0
		for v, by := range []hub.Actor{ann, ben, {Name: "cy", Rights: hub.MayView | hub.MayApprove}} {
			work.Go(func() {
				for n, left := uint64(0), 0; ctx.Err() == nil; left = 0 {
					for e, err := range s.Attach(ctx, by, n) {
						if err != nil {
							break
						}
						if e.N > 0 {
							if e.N != n+1 {
								t.Errorf("viewer %d received %d behind %d", v, e.N, n)
							}
							n = e.N
							logs[v] = append(logs[v], string(e.AppendTo(nil)))
						}
						if e.Kind == hub.KindAsk {
							ask := data[hub.Ask](t, e)
							var other *hub.AnsweredError
							err := s.Answer(ctx, by, hub.Allow(&ask))
							mu.Lock()
							switch {
							case err == nil:
								answers++
							case errors.As(err, &other):
								late++
							case ctx.Err() == nil:
								t.Errorf("viewer %d: %v", v, err)
							}
							mu.Unlock()
						}
						if left++; left > 7+5*v {
							break
						}
					}
				}
			})
		}
		for i := range minutes {
			prompt(t, s, fmt.Sprint("prompt ", i))
			time.Sleep(time.Minute)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		cancel()
		work.Wait()

		want := stored(t, m, s.ID())
		prompts, fired, open := 0, map[string]int{}, map[string]int{}
		for _, line := range want {
			e, err := hub.ParseEntry([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			switch e.Kind {
			case hub.KindPrompt:
				if p := data[hub.Prompt](t, e); p.Schedule != "" {
					fired[p.Due.String()]++
				} else {
					prompts++
				}
			case hub.KindAsk:
				open[data[hub.Ask](t, e).ID]++
			case hub.KindAnswer:
				open[data[hub.Answer](t, e).Ask]++
			}
		}
		if prompts != minutes || len(fired) != minutes {
			t.Errorf("%d prompts and %d times of the schedule, want %d of each", prompts, len(fired), minutes)
		}
		for due, n := range fired {
			if n != 1 {
				t.Errorf("the schedule fired %d times at %s", n, due)
			}
		}
		for id, n := range open {
			if n != 2 {
				t.Errorf("the question %s has %d answers", id, n-1)
			}
		}
		for v, log := range logs {
			if !slices.Equal(log, want[:len(log)]) || len(log) < len(want)-3 {
				t.Errorf("viewer %d has %d entries of %d\n%s", v, len(log), len(want), strings.Join(log[max(0, len(log)-3):], "\n"))
			}
		}
		if asked["first"] == 0 || asked["second"] == 0 || superseded == 0 || answers != len(open) || late == 0 {
			t.Errorf("hooks %v, %d hosts superseded, %d answers to %d questions, %d late", asked, superseded, answers, len(open), late)
		}
		t.Logf("%d entries, %d questions, hooks %v, %d hosts superseded, %d late answers", len(want), len(open), asked, superseded, late)
	})
}
