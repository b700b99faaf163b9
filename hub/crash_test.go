package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// writes is a turn with one call that needs permission. A model that is started again makes the
// call only if its request has no result of it yet.
func writes(file *string) func() *parleytest.Model {
	return func() *parleytest.Model {
		return parleytest.Script(
			parleytest.FirstOf(
				parleytest.Expect(parleytest.Body(`"tool_result"`)).Say("Done."),
				parleytest.Say("I write it.").Call("Bash", map[string]string{"command": "echo once >> " + *file}),
			),
			parleytest.Say("Done."),
		).Model()
	}
}

// A frozen backend is that of a process that can be stopped and continued.
type frozen struct {
	hub.Backend
	mu   sync.Mutex
	gate chan struct{} // not nil while it is frozen
}

func (f *frozen) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gate = make(chan struct{})
}

func (f *frozen) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.gate)
	f.gate = nil
}

func (f *frozen) wait() {
	f.mu.Lock()
	gate := f.gate
	f.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

func (f *frozen) Append(ctx context.Context, id string, expect uint64, entries []hub.Entry) error {
	f.wait()
	return f.Backend.Append(ctx, id, expect, entries)
}

func (f *frozen) Put(ctx context.Context, id string, item hub.Item) (hub.Item, error) {
	f.wait()
	return f.Backend.Put(ctx, id, item)
}

func (f *frozen) Inbox(ctx context.Context, id string, after uint64, follow bool) iter.Seq2[hub.Item, error] {
	return func(yield func(hub.Item, error) bool) {
		for i, err := range f.Backend.Inbox(ctx, id, after, follow) {
			f.wait()
			if !yield(i, err) {
				return
			}
		}
	}
}

// TestQuestionSurvivesItsHub answers a question after its hub was lost, while no hub runs the
// session and while another one does. It checks that the call never runs twice, whether the
// first hub is stopped for long, still runs without knowing, or was closed.
func TestQuestionSurvivesItsHub(t *testing.T) {
	for _, when := range []string{"before the next hub", "by the next hub"} {
		for _, first := range []string{"stopped", "running", "closed"} {
			t.Run(when+"/"+first, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { questionSurvives(t, when == "by the next hub", first) })
			})
		}
	}
}

func questionSurvives(t *testing.T, late bool, fate string) {
	stopped := fate == "stopped"
	m := &hub.Memory{}
	file := filepath.Join(t.TempDir(), "effects")
	ice := &frozen{Backend: m}
	first := newRig(t, ice, writes(&file)).start()
	s := first.create()
	one := attach(t, s, ann, 0)
	uuid := prompt(t, s, "Do it.")
	ask := data[hub.Ask](t, one.kind(hub.KindAsk))
	if stopped {
		ice.freeze()
	}
	if fate == "closed" {
		first.hub.Close()
	}
	m.Expire(s.ID())
	if !late {
		ans := hub.Answer{Ask: ask.ID, By: ben, Shown: ask.Hash, Outcome: hub.Answered, Response: json.RawMessage(`{"behavior":"allow"}`)}
		if _, err := m.Put(t.Context(), s.ID(), hub.Item{Key: "answer/" + ask.ID, Data: mustJSON(t, ans)}); err != nil {
			t.Fatal(err)
		}
	}
	second := newRig(t, m, writes(&file))
	second.cfg.Name = "second"
	second.start()
	defer second.hub.Close()
	s2 := second.hub.Session(s.ID())
	two := attach(t, s2, ben, 0)
	if late {
		two.phase(hub.RequiresAction)
		if err := s2.Answer(t.Context(), ben, allow(ask)); err != nil {
			t.Fatal(err)
		}
	}
	over := two.until("end of the turn", func(e hub.Entry) bool {
		// A first hub that still runs may end the turn itself, and lose the session together
		// with the result.
		return typeOf(e) == "result" || e.Kind == hub.KindEnded && fate == "running"
	})
	if !strings.Contains(string(over.Data), uuid) || typeOf(over) == "result" && !strings.Contains(string(over.Data), `"result":"Done."`) {
		t.Errorf("the turn ended with %s", over.Data)
	}
	two.phase(hub.Idle)
	if n := strings.Count(two.kinds(), "ask"); n != 1 {
		t.Errorf("asked %d times", n)
	}
	if stopped {
		ice.thaw()
	}
	one.cancel() // the viewer of the hub that lost the session
	<-one.done
	first.hub.Close()
	// A first hub that still runs may deliver the answer and lose the session while the call
	// starts. Then the call was cut off, and is not repeated.
	if got, _ := os.ReadFile(file); string(got) != "once\n" && (fate != "running" || late || len(got) > 0) {
		t.Errorf("effects: %q", got)
	}
	if got, want := numbered(two.all), stored(t, m, s.ID()); !slices.Equal(got, want) {
		t.Errorf("received\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	two.stop()
}

func mustJSON(t *testing.T, v any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// gatedReads is a backend whose journals cannot be read before a gate opens.
type gatedReads struct {
	hub.Backend
	gate chan struct{}
}

func (g gatedReads) Read(ctx context.Context, id string, after uint64, follow bool) iter.Seq2[hub.Entry, error] {
	return func(yield func(hub.Entry, error) bool) {
		<-g.gate
		g.Backend.Read(ctx, id, after, follow)(yield)
	}
}

// TestSessionIsCreatedWhileOthersLookForIt checks that a session can be created while a call that
// does not find it is still running.
func TestSessionIsCreatedWhileOthersLookForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, gatedReads{&hub.Memory{}, gate}, func() *parleytest.Model { return parleytest.Script().Model() }).start()
		defer r.hub.Close()
		const id = "22222222-2222-4222-8222-222222222222"
		looked, created := make(chan error, 1), make(chan error, 1)
		go func() { _, err := r.hub.Session(id).Spec(t.Context(), ann); looked <- err }()
		synctest.Wait()
		go func() { _, err := r.hub.Create(t.Context(), ann, hub.Spec{ID: id, Cwd: r.dir}); created <- err }()
		synctest.Wait()
		close(gate)
		if err := <-looked; !errors.Is(err, hub.ErrNotFound) {
			t.Errorf("looking for it: %v", err)
		}
		if err := <-created; err != nil {
			t.Errorf("creating it: %v", err)
		}
		if _, err := r.hub.Create(t.Context(), ann, hub.Spec{ID: id, Cwd: r.dir}); !errors.Is(err, hub.ErrExists) {
			t.Errorf("creating it twice: %v", err)
		}
	})
}

// TestPromptsQueueAndAreAcceptedOnce checks that a prompt is accepted once, however often it is
// sent, and that prompts have their turns in order.
func TestPromptsQueueAndAreAcceptedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &hub.Memory{}, func() *parleytest.Model {
			return parleytest.Script(parleytest.Pause(time.Second).Say("one"), parleytest.Say("two"), parleytest.Say("three")).Model()
		}).start()
		defer r.hub.Close()
		s := r.create()
		w := attach(t, s, ann, 0)
		m := wire.Prompt(wire.Text("first"))
		m.UUID = "11111111-1111-4111-8111-111111111111"
		for range 3 {
			if _, err := s.Prompt(t.Context(), ann, m); err != nil {
				t.Fatal(err)
			}
		}
		m2 := wire.Prompt(wire.Text("second"))
		m2.Priority = "later"
		if _, err := s.Prompt(t.Context(), ann, m2); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Prompt(t.Context(), ben, m2); !errors.Is(err, hub.ErrForbidden) {
			t.Errorf("a prompt of who may only approve: %v", err)
		}
		if r := w.result(); r.UserMessageUUID != m.UUID {
			t.Errorf("first result for %s", r.UserMessageUUID)
		}
		w.result()
		w.phase(hub.Idle)
		if _, err := s.Prompt(t.Context(), ann, m); err != nil { // again, much later
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if st, err := s.State(t.Context(), viewer); err != nil || st.Phase != hub.Idle {
			t.Errorf("state %+v, %v", st, err)
		}
		w.stop()
		prompts := 0
		for _, line := range stored(t, r.backend, s.ID()) {
			if strings.Contains(line, `"kind":"prompt"`) {
				prompts++
			}
		}
		if prompts != 2 {
			t.Errorf("%d prompts in the journal", prompts)
		}
	})
}

// TestIdleAgentIsClosedAndResumed checks that an idle agent ends after a minute, that the next
// prompt starts it again, and that the conversation continues.
func TestIdleAgentIsClosedAndResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		r := newRig(t, &hub.Memory{}, func() *parleytest.Model {
			starts++
			if starts == 1 {
				return parleytest.Script(parleytest.Say("one")).Model()
			}
			return parleytest.Script(parleytest.Expect(parleytest.FirstUser("first")).Say("two")).Model()
		}).start()
		defer r.hub.Close()
		s := r.create()
		w := attach(t, s, ann, 0)
		prompt(t, s, "first")
		w.result()
		time.Sleep(59 * time.Second)
		if starts != 1 {
			t.Fatalf("%d starts", starts)
		}
		time.Sleep(2 * time.Minute)
		w.stop()
		time.Sleep(time.Second)
		// Nobody uses the room any more: the lease is free.
		l, err := r.backend.Lease(t.Context(), s.ID())
		if err != nil {
			t.Fatalf("the lease of an idle session: %v", err)
		}
		l.Close()
		w = attach(t, s, ann, 0)
		prompt(t, s, "second")
		w.result()
		if r := w.result(); r.Result != "two" || starts != 2 {
			t.Errorf("result %q, %d starts", r.Result, starts)
		}
		w.stop()
	})
}

// TestInterruptedTurnDoesNotContinue checks that nothing starts after an interrupt was
// acknowledged, even if the hub dies right then.
func TestInterruptedTurnDoesNotContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &hub.Memory{}
		file := filepath.Join(t.TempDir(), "effects")
		first := newRig(t, m, writes(&file)).start()
		s := first.create()
		one := attach(t, s, ann, 0)
		prompt(t, s, "Do it.")
		one.kind(hub.KindAsk)
		m.Expire(s.ID()) // the first hub is lost
		one.cancel()
		second := newRig(t, m, writes(&file))
		// No agent can be started here, so that the interrupt comes first.
		starts := 0
		agent := second.cfg.Agent
		second.cfg.Agent = func(ctx context.Context, s hub.Start) (*parley.Options, error) {
			if starts++; starts == 1 {
				return nil, errors.New("not now")
			}
			return agent(ctx, s)
		}
		second.start()
		defer second.hub.Close()
		s2 := second.hub.Session(s.ID())
		if err := s2.Interrupt(t.Context(), ann); err != nil {
			t.Fatal(err)
		}
		two := attach(t, s2, ann, 0)
		two.phase(hub.Idle)
		time.Sleep(time.Hour)
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the call ran: %v", err)
		}
		if !strings.Contains(two.kinds(), "answer") || starts > 1 {
			t.Errorf("received %s, %d starts", two.kinds(), starts)
		}
		two.stop()
		<-one.done
		first.hub.Close()
	})
}

// TestAnswersForTheSessionOutliveTheAgent checks that rules and modes that an answer sets for
// the session still apply after its agent was restarted, also after a trim.
func TestAnswersForTheSessionOutliveTheAgent(t *testing.T) {
	for name, update := range map[string]string{
		"rule": `{"type":"addRules","behavior":"allow","destination":"session","rules":[{"toolName":"Bash","ruleContent":"touch:*"}]}`,
		"mode": `{"type":"setMode","mode":"acceptEdits","destination":"session"}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &hub.Memory{}, func() *parleytest.Model {
					return parleytest.Script().When("go", parleytest.LastUser("go"), parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Say("done")).Default(parleytest.Say("ok")).Model()
				}).start()
				defer r.hub.Close()
				s := r.create()
				w := attach(t, s, ann, 0)
				prompt(t, s, "go")
				ask := data[hub.Ask](t, w.kind(hub.KindAsk))
				if err := s.Answer(t.Context(), ann, hub.Answer{Ask: ask.ID, Shown: ask.Hash, Response: json.RawMessage(`{"behavior":"allow","updatedPermissions":[` + update + `]}`)}); err != nil {
					t.Fatal(err)
				}
				w.result()
				for i := range 2 {
					time.Sleep(2 * time.Minute)
					prompt(t, s, "go")
					e := w.until("result or question", func(e hub.Entry) bool { return e.Kind == hub.KindAsk || typeOf(e) == "result" })
					if e.Kind == hub.KindAsk {
						t.Fatalf("start %d: it asks again", i+2)
					}
					if err := s.Trim(t.Context(), ann, e.N); err != nil {
						t.Fatal(err)
					}
				}
				w.stop()
			})
		})
	}
}

// A taped backend records everything that is written, so that a test can make a backend that
// holds what a process had written when it died at any time.
type taped struct {
	hub.Backend
	mu   sync.Mutex
	tape []written
}

type written struct {
	entries []hub.Entry // for an append
	do      func(hub.Backend) error
}

func (b *taped) note(w written) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := w.do(b.Backend)
	if err == nil {
		b.tape = append(b.tape, w)
	}
	return err
}

func (b *taped) Append(_ context.Context, id string, expect uint64, entries []hub.Entry) error {
	return b.note(written{entries, func(b hub.Backend) error { return b.Append(context.Background(), id, expect, entries) }})
}

func (b *taped) Put(_ context.Context, id string, item hub.Item) (got hub.Item, err error) {
	return got, b.note(written{do: func(b hub.Backend) error { got, err = b.Put(context.Background(), id, item); return err }})
}

func (b *taped) Wake(_ context.Context, id string) error {
	return b.note(written{do: func(b hub.Backend) error { return b.Wake(context.Background(), id) }})
}

func (b *taped) Rest(_ context.Context, id string) error {
	return b.note(written{do: func(b hub.Backend) error { return b.Rest(context.Background(), id) }})
}

// crashed returns a backend with the recorded writes.
func crashed(t *testing.T, tape []written) *taped {
	t.Helper()
	b := &taped{Backend: &hub.Memory{}}
	for _, w := range tape {
		if err := b.note(w); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// TestPromptHasOneResultWhereverHubsDie checks that an accepted prompt has one result, wherever
// its hub dies, and wherever the next one does: also between the last record of the turn and
// its result, and before its prompt is recorded. No turn ends without a result.
func TestPromptHasOneResultWhereverHubsDie(t *testing.T) {
	model := func() *parleytest.Model {
		return parleytest.Script(
			parleytest.FirstOf(
				parleytest.Expect(parleytest.ToolResult("")).Say("Done."),
				parleytest.Say("I look.").Call("Bash", map[string]string{"command": "true", "description": "nothing"}),
			),
			parleytest.Say("Done."),
		).Model()
	}
	dir := t.TempDir()
	// play runs a hub until the session is idle.
	play := func(t *testing.T, b *taped, id, uuid string, begin bool) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, b, model).start()
			defer r.hub.Close()
			s := r.hub.Session(id)
			if begin {
				if _, err := r.hub.Create(t.Context(), ann, hub.Spec{ID: id, Cwd: dir}); err != nil {
					t.Fatal(err)
				}
				m := wire.Prompt(wire.Text("Do it."))
				m.UUID = uuid
				if _, err := s.Prompt(t.Context(), ann, m); err != nil {
					t.Fatal(err)
				}
			}
			w := attach(t, s, ann, 0)
			w.result()
			w.phase(hub.Idle)
			w.stop()
			results := 0
			for _, e := range w.all {
				if e.Kind == hub.KindEnded {
					t.Errorf("a turn ended without a result: %s", e.Data)
				}
				if typeOf(e) != "result" {
					continue
				}
				if results++; !strings.Contains(string(e.Data), uuid) || !strings.Contains(string(e.Data), `"is_error":false`) {
					t.Errorf("result %s", e.Data)
				}
			}
			if results != 1 {
				t.Errorf("%d results", results)
			}
		})
	}
	id, uuid := "22222222-2222-4222-8222-222222222222", "11111111-1111-4111-8111-111111111111"
	whole := &taped{Backend: &hub.Memory{}}
	play(t, whole, id, uuid, true)
	has := func(tape []written, ok func(e hub.Entry) bool) bool {
		return slices.ContainsFunc(tape, func(w written) bool { return slices.ContainsFunc(w.entries, ok) })
	}
	step := 19 // between the places where the second hub dies
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		step = 1
	}
	for n := range len(whole.tape) + 1 {
		tape := whole.tape[:n]
		if !has(tape, func(e hub.Entry) bool { return e.Kind == hub.KindPrompt }) {
			continue // it was not accepted
		}
		if !has(tape[:n-1], func(e hub.Entry) bool { return typeOf(e) == "system/init" }) && has(tape, func(e hub.Entry) bool { return typeOf(e) == "system/init" }) {
			// The record of the prompt comes from another goroutine, and may be missing.
			tape = slices.DeleteFunc(slices.Clone(tape), func(w written) bool { return len(w.entries) > 0 && w.entries[0].Kind == hub.KindRecord })
		}
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			b := crashed(t, tape)
			play(t, b, id, uuid, false)
			for m := len(tape) + 1 + n%step; m < len(b.tape); m += step {
				t.Run(strconv.Itoa(m-len(tape)), func(t *testing.T) { play(t, crashed(t, b.tape[:m]), id, uuid, false) })
			}
		})
	}
}
