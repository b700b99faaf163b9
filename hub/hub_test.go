package hub_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ann    = hub.Actor{Name: "ann", From: "test", Rights: hub.Everything}
	ben    = hub.Actor{Name: "ben", From: "phone", Rights: hub.MayView | hub.MayApprove}
	viewer = hub.Actor{Name: "viewer", Rights: hub.MayView}
)

// A rig is a hub whose agents play a script, in a bubble.
type rig struct {
	t       *testing.T
	dir     string
	backend hub.Backend
	cfg     hub.Config
	hub     *hub.Hub
}

// newRig returns a rig for a backend; agents keep their records in the journal. The
// function model makes a model for each start of an agent.
func newRig(t *testing.T, b hub.Backend, model func() *parleytest.Model) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), backend: b}
	r.cfg = hub.Config{Backend: b, Name: "test", Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
		cfg := agent.Config{Model: model(), Store: start.Store, Environ: os.Environ()}
		return &parley.Options{Cwd: start.Cwd, Dialer: agent.InProcess(cfg), OnWarning: func(err error) { t.Log("warning:", err) }, Stderr: func(s string) { t.Log("stderr:", s) }}, nil
	}}
	return r
}

func (r *rig) start() *rig {
	r.t.Helper()
	h, err := hub.New(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.hub = h
	return r
}

func (r *rig) create() *hub.Session {
	r.t.Helper()
	s, err := r.hub.Create(r.t.Context(), ann, hub.Spec{Cwd: r.dir})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func prompt(t *testing.T, s *hub.Session, text string) string {
	t.Helper()
	id, err := s.Prompt(t.Context(), ann, wire.Prompt(wire.Text(text)))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A watch holds the events that a viewer receives.
type watch struct {
	t      *testing.T
	cancel context.CancelFunc
	events chan hub.Entry
	done   chan error
	all    []hub.Entry
}

func attach(t *testing.T, s *hub.Session, by hub.Actor, after uint64) *watch {
	ctx, cancel := context.WithCancel(t.Context())
	w := &watch{t: t, cancel: cancel, events: make(chan hub.Entry, 1<<16), done: make(chan error, 1)}
	go func() {
		var last error
		for e, err := range s.Attach(ctx, by, after) {
			if last = err; err == nil {
				w.events <- e
			}
		}
		w.done <- last
		close(w.events)
	}()
	return w
}

// until receives events until ok accepts one.
func (w *watch) until(what string, ok func(hub.Entry) bool) hub.Entry {
	w.t.Helper()
	late := testwait.Late(w.t) // in a bubble: only the progress of calls is still reported
	for {
		select {
		case e, open := <-w.events:
			if !open {
				w.t.Fatalf("no %s, but the end, after %s", what, w.kinds())
			}
			w.all = append(w.all, e)
			if ok(e) {
				return e
			}
		case <-late:
			w.t.Fatalf("no %s after %s", what, w.kinds())
		}
	}
}

func (w *watch) kind(k hub.Kind) hub.Entry {
	w.t.Helper()
	return w.until(string(k), func(e hub.Entry) bool { return e.Kind == k })
}

func (w *watch) result() *wire.Result {
	w.t.Helper()
	e := w.until("result", func(e hub.Entry) bool { return typeOf(e) == "result" })
	m, err := wire.Decode(e.Data)
	if err != nil {
		w.t.Fatal(err)
	}
	return m.(*wire.Result)
}

func (w *watch) phase(p hub.Phase) hub.State {
	w.t.Helper()
	e := w.until("phase "+string(p), func(e hub.Entry) bool {
		return e.Kind == hub.KindState && state(e).Phase == p
	})
	return state(e)
}

func state(e hub.Entry) (s hub.State) {
	json.Unmarshal(e.Data, &s)
	return s
}

func data[T any](t *testing.T, e hub.Entry) (v T) {
	t.Helper()
	if err := json.Unmarshal(e.Data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func (w *watch) stop() {
	w.cancel()
	<-w.done
}

// kinds lists the kinds of the received entries, without pieces of answers.
func (w *watch) kinds() string {
	var names []string
	for _, e := range w.all {
		if e.Kind != hub.KindLive {
			names = append(names, typeOf(e))
		}
	}
	return strings.Join(names, " ")
}

func typeOf(e hub.Entry) string {
	if e.Kind != hub.KindFrame {
		return string(e.Kind)
	}
	var m struct{ Type, Subtype string }
	json.Unmarshal(e.Data, &m)
	if m.Type == "system" {
		return m.Type + "/" + m.Subtype
	}
	return m.Type
}

// numbered returns the numbered entries of a list, as lines.
func numbered(entries []hub.Entry) []string {
	var lines []string
	for _, e := range entries {
		if e.N > 0 {
			lines = append(lines, string(e.AppendTo(nil)))
		}
	}
	return lines
}

// stored returns the numbered entries of a journal, as lines.
func stored(t *testing.T, b hub.Backend, id string) []string {
	t.Helper()
	var all []hub.Entry
	for e, err := range b.Read(t.Context(), id, 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return numbered(all)
}

func allow(ask hub.Ask) hub.Answer {
	return hub.Answer{Ask: ask.ID, Shown: ask.Hash, Response: json.RawMessage(`{"behavior":"allow"}`)}
}

// TestHub is the hub in one test: a session, two viewers, a prompt, a question that a
// viewer who may approve answers, and the result; then a third viewer that has missed
// everything.
func TestHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := ""
		r := newRig(t, &hub.Memory{}, func() *parleytest.Model {
			return parleytest.Script(
				parleytest.Say("I write it.").Call("Write", map[string]string{"file_path": file, "content": "hello\n"}),
				parleytest.Expect(parleytest.ToolResult("")).Say("Done."),
			).Model()
		}).start()
		defer r.hub.Close()
		file = filepath.Join(r.dir, "hello.txt")
		s := r.create()
		one, two := attach(t, s, ann, 0), attach(t, s, ben, 0)
		uuid := prompt(t, s, "Write it.")

		ask := data[hub.Ask](t, two.kind(hub.KindAsk))
		if ask.Kind != hub.AskPermission || ask.Tool != "Write" {
			t.Errorf("asked %+v", ask)
		}
		if st := two.phase(hub.RequiresAction); len(st.Waiting) != 1 || st.Waiting[0].ID != ask.ID {
			t.Errorf("state %+v", st)
		}
		if err := s.Answer(t.Context(), ben, allow(ask)); err != nil {
			t.Fatal(err)
		}
		if res := one.result(); res.Result != "Done." || res.UserMessageUUID != uuid {
			t.Errorf("result %q for %s", res.Result, res.UserMessageUUID)
		}
		if got, err := os.ReadFile(file); string(got) != "hello\n" {
			t.Errorf("the file holds %q, %v", got, err)
		}
		if ans := one.all[slices.IndexFunc(one.all, func(e hub.Entry) bool { return e.Kind == hub.KindAnswer })]; data[hub.Answer](t, ans).By.Name != "ben" {
			t.Errorf("answer %s", ans.Data)
		}
		one.phase(hub.Idle)
		two.result()
		two.phase(hub.Idle)
		late := attach(t, s, viewer, 0)
		late.phase(hub.Idle)
		want := stored(t, r.backend, s.ID())
		for name, w := range map[string]*watch{"one": one, "two": two, "late": late} {
			if got := numbered(w.all); !slices.Equal(got, want) {
				t.Errorf("%s has\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			w.stop()
		}
		if got, want := one.kinds(), "created owner prompt system/init user assistant assistant ask answer user assistant result"; strings.ReplaceAll(got, " state", "") != want {
			t.Errorf("received %s", got)
		}
	})
}
