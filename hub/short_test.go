package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/session"
)

// A short backend is one whose readings may end before entries that are there, as on a server that lags.
type short struct {
	Memory
	ends []uint64 // where the next readings end; 0 means at the end
}

func (b *short) Read(ctx context.Context, id string, after uint64, follow bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		end := uint64(0)
		if len(b.ends) > 0 && !follow {
			end, b.ends = b.ends[0], b.ends[1:]
		}
		for e, err := range b.Memory.Read(ctx, id, after, follow) {
			if end > 0 && e.N > end || !yield(e, err) {
				return
			}
		}
	}
}

func shortHub(t *testing.T, b Backend) (*Hub, *Session) {
	h, err := New(Config{Backend: b, Name: "a", OwnOnly: true, Agent: func(context.Context, Start) (*parley.Options, error) { return nil, errors.New("no agent") }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Create(t.Context(), ann, Spec{Cwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return h, s
}

var ann = Actor{Name: "ann", From: "test", Rights: Everything}

// A viewer misses nothing, although the backend answers a reading with less than the room has. A viewer that has seen more
// than the room gets nothing twice.
func TestViewerOfABackendThatLags(t *testing.T) {
	for _, after := range []uint64{0, 2, 9} {
		synctest.Test(t, func(t *testing.T) {
			b := &short{}
			h, s := shortHub(t, b)
			defer h.Close()
			r, err := h.enter(t.Context(), s.id, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer h.exit(r)
			add := func() {
				if err := r.do(t.Context(), func(x *tx) error { x.append(KindArchived, json.RawMessage(`{}`), nil); return nil }); err != nil {
					t.Error(err)
				}
			}
			for r.fold.n < 5 {
				add()
			}
			b.ends = []uint64{3, 3, 4, 5}
			var more sync.Once
			var adding sync.WaitGroup
			defer adding.Wait()
			var got, want []uint64
			for n := after + 1; n <= 12; n++ {
				want = append(want, n)
			}
			for e, err := range s.Attach(t.Context(), ann, after) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Kind == KindState {
					more.Do(func() {
						adding.Go(func() {
							for range 12 - 5 {
								add()
							}
						})
					})
				}
				if e.N > 0 {
					got = append(got, e.N)
				}
				if e.N == 12 {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("after %d: %d, want %d", after, got, want)
			}
		})
	}
}

// A new owner appends no frame for a record whose frame is there, although the backend answers a reading with less than
// the journal has, and although frames and records change while it reads.
func TestOwnerOfABackendThatLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &short{}
		h, s := shortHub(t, b)
		defer h.Close()
		r, err := h.enter(t.Context(), s.id, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer h.exit(r)
		prompt := json.RawMessage(`{"type":"user","uuid":"one","promptId":"x","sessionId":"s","message":{"role":"user","content":"x"}}`)
		key := session.Key{Project: "p", Session: s.id}
		if err := r.do(t.Context(), func(x *tx) error {
			x.append(KindRecord, prompt, func(e *Entry) { e.Log = key.String() })
			x.append(KindFrame, prompt, func(e *Entry) { e.Record = "one" })
			x.append(KindArchived, json.RawMessage(`{}`), nil)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for end := range r.fold.n {
			b.ends = []uint64{end + 1}
			_, err := r.catchUp(t.Context(), s.id, "", nil)
			if short := end+1 < r.fold.n; short != errors.Is(err, ErrUnavailable) {
				t.Errorf("a reading up to %d of %d: %v", end+1, r.fold.n, err)
			}
		}
		var frames []string
		for e, err := range b.Read(t.Context(), s.id, 0, false) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == KindFrame {
				frames = append(frames, fmt.Sprint(e.N, " ", e.Recovered))
			}
		}
		if len(frames) != 1 {
			t.Errorf("the prompt has the frames %q, want one", frames)
		}
	})
}

// A late backend gets more entries after its next reading, as when the last owner of a session still runs.
type late struct {
	Memory
	more []Entry
}

func (b *late) Read(ctx context.Context, id string, after uint64, follow bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e, err := range b.Memory.Read(ctx, id, after, follow) {
			if !yield(e, err) {
				return
			}
		}
		if more := b.more; len(more) > 0 {
			b.more = nil
			if err := b.Append(ctx, id, 1, more); err != nil {
				yield(Entry{}, err)
			}
		}
	}
}

// An agent finds the records that the last owner added while the room of the agent was opened. Otherwise its session
// could not be resumed, although its prompt was consumed.
func TestRecordsAddedWhileTheRoomOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &late{}
		before, s := shortHub(t, b)
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		h, err := New(Config{Backend: b, Name: "b", OwnOnly: true, Agent: func(context.Context, Start) (*parley.Options, error) { return nil, errors.New("no agent") }})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		key := session.Key{Project: "p", Session: s.id}
		b.more = []Entry{{Kind: KindRecord, Log: key.String(), Data: json.RawMessage(`{"type":"user","uuid":"one","promptId":"x","sessionId":"s","message":{"role":"user","content":"x"}}`)}}
		r, err := h.enter(t.Context(), s.id, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer h.exit(r)
		if listed, err := r.store().List(t.Context(), key); len(listed) != 1 || err != nil {
			t.Errorf("the agent's store lists %v, %v, want one log", listed, err)
		}
		var kinds []Kind
		for e := range b.Read(t.Context(), s.id, 0, false) {
			kinds = append(kinds, e.Kind)
		}
		if want := []Kind{KindCreated, KindRecord, KindOwner, KindFrame}; !slices.Equal(kinds, want) {
			t.Errorf("the journal has %v, want %v", kinds, want)
		}
	})
}

// A prompt that has its frame gets no other, whoever would add it.
func TestPromptIsConsumedOnce(t *testing.T) {
	prompt := json.RawMessage(`{"type":"user","uuid":"one","message":{"role":"user","content":"x"}}`)
	r := &room{fold: newFold(), owner: true}
	r.fold.add(&Entry{N: 1, Kind: KindPrompt, Data: mustJSON(Prompt{UUID: "one", Message: prompt})})
	x := &tx{r: r}
	for range 2 {
		x.appendFrames([]Entry{{Record: "one", Data: prompt}, {Record: "other", Data: json.RawMessage(`{"type":"assistant"}`)}})
	}
	if len(x.entries) != 3 {
		t.Errorf("%d frames, want 3", len(x.entries))
	}
}
