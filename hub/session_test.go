package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/hubtest"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/session/sessiontest"
	"github.com/parley-go/parley/wire"
)

// TestAnswers checks that the first answer wins, that the others learn whose it was,
// and that nobody can answer a question that was not shown, or change more than
// permitted.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := ""
		r := newRig(t, &hub.Memory{}, func() *parleytest.Model { return writes(&file)() }).start()
		file = filepath.Join(r.dir, "effects")
		defer r.hub.Close()
		s := r.create()
		w := attach(t, s, ann, 0)
		prompt(t, s, "Do it.")
		ask := data[hub.Ask](t, w.kind(hub.KindAsk))
		answer := func(by hub.Actor, shown, response string) error {
			return s.Answer(t.Context(), by, hub.Answer{Ask: ask.ID, Shown: shown, Response: json.RawMessage(response)})
		}
		for _, c := range []struct {
			name            string
			by              hub.Actor
			shown, response string
			want            error
		}{
			{"a viewer", viewer, ask.Hash, `{"behavior":"allow"}`, hub.ErrForbidden},
			{"something else was shown", ann, "other", `{"behavior":"allow"}`, hub.ErrNotShown},
			{"nothing was shown", ann, "", `{"behavior":"allow"}`, hub.ErrNotShown},
			{"an approver changes the input", ben, ask.Hash, `{"behavior":"allow","updatedInput":{"command":"true"}}`, hub.ErrForbidden},
			{"an approver adds a rule", ben, ask.Hash, `{"behavior":"allow","updatedPermissions":[{"type":"setMode","mode":"acceptEdits","destination":"session"}]}`, hub.ErrForbidden},
			{"no decision", ann, ask.Hash, `{"behavior":"maybe"}`, nil},
			{"no JSON", ann, ask.Hash, `{`, nil},
		} {
			if err := answer(c.by, c.shown, c.response); err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if err := s.Answer(t.Context(), ann, hub.Answer{Ask: session.NewID(), Response: json.RawMessage(`{}`)}); !errors.Is(err, hub.ErrNotFound) {
			t.Errorf("an unknown question: %v", err)
		}
		var won []string
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				by := hub.Actor{Name: fmt.Sprint("actor ", i), Rights: hub.MayView | hub.MayApprove}
				err := answer(by, ask.Hash, `{"behavior":"allow"}`)
				mu.Lock()
				defer mu.Unlock()
				var late *hub.AnsweredError
				if err == nil {
					won = append(won, by.Name)
				} else if !errors.As(err, &late) {
					t.Errorf("%s: %v", by.Name, err)
				}
			})
		}
		wg.Wait()
		got := data[hub.Answer](t, w.kind(hub.KindAnswer))
		if len(won) != 1 || got.By.Name != won[0] || got.Shown != ask.Hash {
			t.Errorf("winners %v, the entry says %+v", won, got)
		}
		w.result()
		w.stop()
	})
}

// TestQuestionExpires checks that a question that nobody answers in time denies the
// request.
func TestQuestionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := ""
		r := newRig(t, &hub.Memory{}, func() *parleytest.Model {
			return parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch " + file}), parleytest.Expect(parleytest.ToolError("in time")).Say("I see.")).Model()
		})
		file = filepath.Join(r.dir, "x")
		r.cfg.AskExpiry = time.Hour
		r.start()
		defer r.hub.Close()
		s := r.create()
		w := attach(t, s, ann, 0)
		prompt(t, s, "Do it.")
		w.kind(hub.KindAsk)
		begin := time.Now()
		for e := range w.events { // which waits an hour
			w.all = append(w.all, e)
			if e.Kind == hub.KindAnswer {
				break
			}
		}
		if took := time.Since(begin); took < time.Hour || took > time.Hour+time.Minute {
			t.Errorf("it took %v", took)
		}
		if r := w.result(); r.Result != "I see." {
			t.Errorf("result %q", r.Result)
		}
		w.stop()
	})
}

// TestHosts checks that hooks go only to the host that registered them. While it is
// away they wait, and then expire. A second host is rejected, or takes over. Questions
// go to hosts, too.
func TestHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &hub.Memory{}, func() *parleytest.Model {
			var turns []*parleytest.Turn
			for range 3 {
				turns = append(turns, parleytest.Call("Bash", map[string]string{"command": "true && touch x"}), parleytest.Say("Done."))
			}
			return parleytest.Script(turns...).Model()
		})
		r.cfg.HostGrace = 5 * time.Minute
		r.start()
		defer r.hub.Close()
		s := r.create()
		w := attach(t, s, ann, 0)
		hooks := map[string]json.RawMessage{"hooks": json.RawMessage(`{"PreToolUse":[{"matcher":"Bash","hookCallbackIds":["cb"],"timeout":3600}]}`)}
		type call struct{ host, subtype string }
		var mu sync.Mutex
		var calls []call
		host := func(name string) hub.HostOptions {
			return hub.HostOptions{Initialize: hooks, Handle: func(_ context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, call{name, req.Request.Subtype()})
				if req.Request.Subtype() == "can_use_tool" {
					return json.RawMessage(`{"behavior":"deny","message":"the host says no"}`), nil
				}
				return json.RawMessage(`{}`), nil
			}}
		}
		if _, err := s.Host(t.Context(), ben, host("ben")); !errors.Is(err, hub.ErrForbidden) {
			t.Errorf("who may not drive is host: %v", err)
		}
		first, err := s.Host(t.Context(), ann, host("first"))
		if err != nil {
			t.Fatal(err)
		}
		prompt(t, s, "one")
		if res := w.result(); len(res.PermissionDenials) != 1 {
			t.Errorf("denials %v", res.PermissionDenials)
		}
		if want := []call{{"first", "hook_callback"}, {"first", "can_use_tool"}}; !slices.Equal(calls, want) {
			t.Errorf("calls %v", calls)
		}
		var held *hub.HeldError
		if _, err := s.Host(t.Context(), ann, host("second")); !errors.As(err, &held) || held.Epoch != first.Epoch() {
			t.Errorf("a second host: %v", err)
		}
		opts := host("second")
		opts.TakeOver = true
		second, err := s.Host(t.Context(), ann, opts)
		if err != nil {
			t.Fatal(err)
		}
		<-first.Done()
		if !errors.Is(first.Err(), hub.ErrSuperseded) || second.Epoch() <= first.Epoch() {
			t.Errorf("the first host ends with %v, epochs %d and %d", first.Err(), first.Epoch(), second.Epoch())
		}
		// The host goes away: its hook waits for it.
		second.Close()
		calls = nil
		prompt(t, s, "two")
		st := w.phase(hub.RequiresAction)
		if len(st.Waiting) != 1 || st.Waiting[0].Kind != "host" || st.Host == nil || !st.Host.Away {
			t.Errorf("state %+v", st)
		}
		time.Sleep(time.Minute)
		third, err := s.Host(t.Context(), ann, host("third"))
		if err != nil {
			t.Fatal(err)
		}
		w.result()
		if want := []call{{"third", "hook_callback"}, {"third", "can_use_tool"}}; !slices.Equal(calls, want) {
			t.Errorf("calls %v", calls)
		}
		// The host goes away and does not come back: the hook's action is denied.
		third.Close()
		prompt(t, s, "three")
		w.phase(hub.RequiresAction)
		begin := time.Now()
		for e := range w.events {
			if w.all = append(w.all, e); typeOf(e) == "result" {
				break
			}
			if e.Kind == hub.KindAsk { // in case the agent asks nevertheless
				s.Answer(t.Context(), ann, hub.Answer{Ask: data[hub.Ask](t, e).ID, Shown: data[hub.Ask](t, e).Hash, Response: json.RawMessage(`{"behavior":"deny","message":"no"}`)})
			}
		}
		if took := time.Since(begin); took < 5*time.Minute {
			t.Errorf("the hook expired after %v", took)
		}
		if _, err := os.Stat(filepath.Join(r.dir, "x")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the call ran: %v", err)
		}
		w.stop()
	})
}

// TestSlowViewer checks that a viewer that does not read loses pieces of answers, then
// its connection, with the number to continue from. It misses no entry, and the agent
// does not wait for it.
func TestSlowViewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("word ", 4000)
		var turns []*parleytest.Turn
		for range 10 {
			turns = append(turns, parleytest.Say(long))
		}
		r := newRig(t, &hub.Memory{}, func() *parleytest.Model { return parleytest.Script(turns...).Model() })
		r.cfg.ViewerBytes = 1 << 18
		r.start()
		defer r.hub.Close()
		s := r.create()
		fast := attach(t, s, ann, 0)
		var got []hub.Entry
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		step := make(chan bool)
		ended := make(chan error, 1)
		go func() {
			var last error
			for e, err := range s.Attach(ctx, viewer, 0) {
				if last = err; err == nil {
					got = append(got, e)
					if e.Kind == hub.KindState {
						<-step
					}
				}
			}
			ended <- last
		}()
		for i := range 10 {
			prompt(t, s, fmt.Sprint("prompt ", i))
			fast.result()
		}
		close(step)
		var lagged *hub.LaggedError
		if err := <-ended; !errors.As(err, &lagged) {
			t.Fatalf("a viewer that does not read: %v", err)
		}
		lines := numbered(got)
		if n := uint64(len(lines)); lagged.After != n {
			t.Errorf("go on behind %d, received %d", lagged.After, n)
		}
		rest := attach(t, s, viewer, lagged.After)
		rest.phase(hub.Idle)
		lines = append(lines, numbered(rest.all)...)
		fast.phase(hub.Idle)
		if want := stored(t, r.backend, s.ID()); !slices.Equal(lines, want) || !slices.Equal(numbered(fast.all), want) {
			t.Errorf("slow %d, fast %d, journal %d", len(lines), len(numbered(fast.all)), len(want))
		}
		rest.stop()
		fast.stop()
	})
}

// TestSessionFromOutside checks that the messages of a session that began outside of a
// hub get numbers when it is opened, and that messages that are added outside later get
// the next ones.
func TestSessionFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &session.Memory{}
		id := session.NewID()
		a := sessiontest.Say("user", "hello", "")
		b := sessiontest.Say("assistant", "hi", a.UUID)
		log, err := session.Create(t.Context(), store, sessiontest.Meta(id, "/src"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(log.Append(a, b), log.Close()); err != nil {
			t.Fatal(err)
		}
		r := newRig(t, &hub.Memory{}, func() *parleytest.Model { return parleytest.Script().Model() })
		r.cfg.Sessions = store
		r.start()
		defer r.hub.Close()
		s := r.hub.Session(id)
		w := attach(t, s, viewer, 0)
		w.phase(hub.Idle)
		w.stop()
		if got := strings.ReplaceAll(w.kinds(), " state", ""); got != "created owner user assistant" {
			t.Errorf("received %s", got)
		}
		before := numbered(w.all)
		time.Sleep(time.Second)
		log, _, err = session.Open(t.Context(), store, id, sessiontest.Meta("", "/src"))
		if err != nil {
			t.Fatal(err)
		}
		c := sessiontest.Say("user", "again", b.UUID)
		if err := errors.Join(log.Append(c), log.Close()); err != nil {
			t.Fatal(err)
		}
		w = attach(t, s, viewer, 0)
		w.phase(hub.Idle)
		w.stop()
		after := numbered(w.all)
		if len(after) != len(before)+2 || !slices.Equal(after[:len(before)], before) || w.all[len(after)-1].Record != c.UUID || !w.all[len(after)-1].Recovered {
			t.Errorf("before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
		}
		if err := attachError(t, r.hub.Session(session.NewID())); !errors.Is(err, hub.ErrNotFound) {
			t.Errorf("an unknown session: %v", err)
		}
	})
}

func attachError(t *testing.T, s *hub.Session) (err error) {
	for _, err = range s.Attach(t.Context(), viewer, 0) {
		break
	}
	return err
}

// TestForkRewindTrim checks that the numbers of forks start at 1, and that rewinding
// and trimming change no number.
func TestForkRewindTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &hub.Memory{}, func() *parleytest.Model {
			return parleytest.Script(parleytest.Say("one"), parleytest.Say("two")).Default(parleytest.Say("more")).Model()
		}).start()
		defer r.hub.Close()
		s := r.create()
		w := attach(t, s, ann, 0)
		first := prompt(t, s, "first")
		w.result()
		prompt(t, s, "second")
		w.result()
		w.phase(hub.Idle)
		before := numbered(w.all)

		f, err := s.Fork(t.Context(), ann, 0)
		if err != nil {
			t.Fatal(err)
		}
		fw := attach(t, f, ann, 0)
		fw.phase(hub.Idle)
		if got := strings.ReplaceAll(fw.kinds(), " state", ""); got != "forked owner user assistant user assistant" || fw.all[0].N != 1 {
			t.Errorf("the fork holds %s", got)
		}
		prompt(t, f, "in the fork")
		fw.result()
		fw.stop()

		if err := s.Rewind(t.Context(), ann, first); err != nil {
			t.Fatal(err)
		}
		prompt(t, s, "third")
		w.result()
		w.phase(hub.Idle)
		if got := numbered(w.all); !slices.Equal(got[:len(before)], before) {
			t.Error("a number changed")
		}
		all := numbered(w.all)
		if err := s.Trim(t.Context(), ann, 5); err != nil {
			t.Fatal(err)
		}
		w.stop()
		time.Sleep(5 * time.Minute) // the session is closed and reopened
		late := attach(t, s, viewer, 2)
		late.phase(hub.Idle)
		if late.all[0].Kind != hub.KindTrimmed || late.all[0].N != 0 || data[hub.Trimmed](t, late.all[0]).Before != 5 {
			t.Errorf("first event %s", late.all[0].Data)
		}
		if got := numbered(late.all); !slices.Equal(got[:len(all)-4], all[4:]) {
			t.Errorf("after trimming\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(all[4:], "\n"))
		}
		prompt(t, s, "fourth")
		late.result()
		late.stop()
	})
}

// TestAttachTime attaches with 1,000 events. With PARLEY_TEST_LONG it checks that attaching with 10,000 events takes at
// most 60 ms.
func TestAttachTime(t *testing.T) {
	count, attempts := 1000, 1
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		count, attempts = 10_000, 5
	}
	files := &hub.Files{Dir: t.TempDir(), Durability: session.Write}
	id := session.NewID()
	entries := []hub.Entry{{N: 1, Kind: hub.KindCreated, Time: time.Now(), Data: json.RawMessage(`{"by":{"name":"ann"},"cwd":"/","session":"` + id + `"}`)}}
	text := strings.Repeat("x", 700)
	for _, e := range hubtest.Entries(1, count-1) {
		e.Data = json.RawMessage(`{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"` + text + `"}]},"uuid":"` + e.Record + `"}`)
		entries = append(entries, e)
	}
	entries[len(entries)-1].Data, entries[len(entries)-1].Record = json.RawMessage(`{"type":"result","subtype":"success"}`), ""
	if err := files.Append(t.Context(), id, 0, entries); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, files, nil)
	r.cfg.Sessions = &session.Memory{}
	r.start()
	defer r.hub.Close()
	best := time.Hour
	for range attempts {
		begin := time.Now()
		n := 0
		for e, err := range r.hub.Session(id).Attach(t.Context(), viewer, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == hub.KindState {
				break
			}
			n++
		}
		if best = min(best, time.Since(begin)); n != count {
			t.Fatalf("%d events", n)
		}
	}
	t.Logf("attach with %d events: %v", count, best)
	if limit := 60 * time.Millisecond; best > limit && attempts > 1 {
		t.Errorf("attach took %v, want at most %v", best, limit)
	}
}

// TestClosedSessionsCostLittle checks that a thousand closed sessions add at most 20
// MB.
func TestClosedSessionsCostLittle(t *testing.T) {
	n := 100
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		n = 1000
	}
	r := newRig(t, &hub.Files{Dir: t.TempDir(), Durability: session.Write}, nil)
	r.cfg.Sessions = &session.Memory{}
	r.start()
	defer r.hub.Close()
	inUse := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := inUse()
	for range n {
		s := r.create()
		for _, err := range s.Attach(t.Context(), viewer, 0) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if all, err := r.hub.List(t.Context(), viewer); err != nil || len(all) != n {
		t.Fatalf("%d sessions, %v", len(all), err)
	}
	for r.hub.Busy() {
		runtime.Gosched()
	}
	after := inUse()
	added := float64(after) - float64(before)
	t.Logf("%d closed sessions add %.2f MB", n, added/1e6)
	if limit := 20e6 * float64(n) / 1000; added > max(limit, 4e6) {
		t.Errorf("%d closed sessions add %.1f MB, want at most %.1f", n, added/1e6, limit/1e6)
	}
}

// TestAgentAwayIsShown checks that viewers see that a session waits for an agent that is away, since when, and
// that it is back.
func TestAgentAwayIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &hub.Memory{}, func() *parleytest.Model { return parleytest.Script(parleytest.Say("Here.")).Model() })
		back, next := make(chan struct{}), r.cfg.Agent
		r.cfg.Agent = func(ctx context.Context, start hub.Start) (*parley.Options, error) {
			start.Away("builder", time.Now())
			<-back
			start.Away("builder", time.Time{})
			return next(ctx, start)
		}
		r.start()
		defer r.hub.Close()
		s := r.create()
		began := time.Now()
		prompt(t, s, "Hello.")
		synctest.Wait()
		time.Sleep(time.Hour)
		state := func() *hub.State {
			i, _, err := s.Info(t.Context(), viewer)
			if err != nil {
				t.Fatal(err)
			}
			return &i.State
		}
		if got := state(); got.Phase != hub.Running || len(got.Waiting) != 1 || got.Waiting[0].Kind != "agent" || got.Waiting[0].About != "builder" || !got.Waiting[0].Since.Equal(began) || got.AgentAway() == "" {
			t.Errorf("while the agent is away: %+v", got)
		}
		close(back)
		synctest.Wait()
		if got := state(); got.Phase != hub.Idle || len(got.Waiting) != 0 || got.AgentAway() != "" {
			t.Errorf("when the agent is back: %+v", got)
		}
	})
}

// TestLateViewerSeesRunningOutput checks that a viewer who attaches while a command runs receives what it printed last,
// although it prints nothing more, and that nobody receives it after the command has ended.
func TestLateViewerSeesRunningOutput(t *testing.T) {
	r := newRig(t, &hub.Memory{}, func() *parleytest.Model {
		return parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "echo halfway; until [ -e go ]; do sleep 0.01; done"}), parleytest.Say("Done.")).Model()
	})
	agent := r.cfg.Agent
	r.cfg.Agent = func(ctx context.Context, start hub.Start) (*parley.Options, error) {
		opts, err := agent(ctx, start)
		opts.AllowedTools = []string{"Bash"}
		return opts, err
	}
	r.start()
	defer r.hub.Close()
	s := r.create()
	// next receives events until ok accepts one; the command takes real time.
	next := func(w *watch, ok func(hub.Entry) bool) hub.Entry {
		for e := range w.events {
			if w.all = append(w.all, e); ok(e) {
				return e
			}
		}
		t.Fatalf("the events end after %s", w.kinds())
		return hub.Entry{}
	}
	printed := func(e hub.Entry) bool { return e.Kind == hub.KindLive && strings.Contains(string(e.Data), `"halfway`) }
	idle := func(e hub.Entry) bool { return e.Kind == hub.KindState && state(e).Phase == hub.Idle }
	first := attach(t, s, ann, 0)
	next(first, idle)
	prompt(t, s, "Run it.")
	next(first, printed)
	late := attach(t, s, ann, 0)
	next(late, printed)
	if err := os.WriteFile(filepath.Join(r.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	res := data[wire.Result](t, next(first, func(e hub.Entry) bool { return typeOf(e) == "result" }))
	if st := state(next(first, idle)); res.TotalCostUSD == 0 || st.CostUSD != res.TotalCostUSD {
		t.Errorf("the state has the cost %v, want that of the result, %v", st.CostUSD, res.TotalCostUSD)
	}
	last := attach(t, s, ann, 0)
	next(last, idle)
	for _, w := range []*watch{first, late, last} {
		w.cancel()
		for range w.events {
		}
	}
	if slices.ContainsFunc(last.all, printed) {
		t.Error("the output of a command that has ended is sent as its progress")
	}
}
