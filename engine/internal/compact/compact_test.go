package compact_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/ask"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/compact"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/todowrite"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A fixture is a conversation as a compactor sees it.
type fixture struct {
	*compact.Compactor
	turn    compact.Turn
	log     *fakeLog
	emitted []wire.Message
	asked   []history.Transcript // requests for summaries
	replies []func() (compact.Reply, error)
	hooks   func(in wire.HookInput) *hook.Verdict
	informs []string
}

// A fakeLog keeps appended records, or fails.
type fakeLog struct {
	session.Log
	all []*session.Entry
	err error
}

func (l *fakeLog) Append(entries ...*session.Entry) error {
	if l.err == nil {
		l.all = append(l.all, entries...)
	}
	return l.err
}

// newFixture returns a conversation that is compacted at 100 tokens.
func newFixture(ctx context.Context) *fixture {
	f := &fixture{log: &fakeLog{}}
	c := &compact.Compactor{
		Hist: &history.History{}, Env: &tool.Env{}, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		View: func() *call.View { return nil }, Serve: func(f func()) { f() },
		Limits:  func() compact.Limits { return compact.Limits{Window: 1000, At: 100, Auto: true} },
		HasTool: func(string) bool { return false }, Path: func() string { return "the/log" },
	}
	c.Rec = recorder.New(recorder.Options{Place: recorder.Place{ID: "s", Log: f.log}, Now: time.Now, Follow: c.Follow,
		Emit: func(m wire.Message) { f.emitted = append(f.emitted, m) }})
	f.Compactor = c
	f.turn = compact.Turn{Ctx: ctx, Replaced: func() {}, EmitInit: func() {}, SendContext: func() error { return nil }, SessionHooks: func() []string { return nil },
		EmitUser: func(m *wire.User) { f.emitted = append(f.emitted, m) },
		Inform:   func(text string) error { f.informs = append(f.informs, text); return nil },
		Hooks: func(in wire.HookInput, _ string) *hook.Verdict {
			if f.hooks == nil {
				return &hook.Verdict{}
			}
			return f.hooks(in)
		},
		Ask: func(of history.Transcript, _ bool) (compact.Reply, error) {
			f.asked = append(f.asked, of)
			if len(f.replies) == 0 {
				return compact.Reply{Text: "<summary>It was long.</summary>"}, nil
			}
			reply := f.replies[0]
			f.replies = f.replies[1:]
			return reply()
		}}
	return f
}

// say records a message and adds it to the history.
func (f *fixture) say(t *testing.T, role, text string) {
	t.Helper()
	raw := recorder.JSON(&wire.TextBlock{Text: text})
	if err := f.Rec.Record(&session.Entry{Type: role, Message: recorder.JSON(map[string]any{"role": role, "content": []json.RawMessage{raw}})}); err != nil {
		t.Fatal(err)
	}
	if role == "user" {
		f.Hist.Add(role, raw)
		return
	}
	f.Hist.Answer("m", raw)
	f.NoteAnswer()
}

func (f *fixture) text() string { return string(f.Hist.AppendMessages(nil, false)) }

// warnings returns the texts of the messages to the user.
func (f *fixture) warnings() (texts []string) {
	for _, m := range f.emitted {
		if m, ok := m.(*wire.Informational); ok {
			texts = append(texts, m.Content)
		}
	}
	return texts
}

func TestSummaryReplacesAnsweredMessages(t *testing.T) {
	f := newFixture(t.Context())
	todowrite.Set(f.Env, []todowrite.Todo{{Content: "finish", Status: "pending"}})
	f.say(t, "user", strings.Repeat("old ", 200))
	f.say(t, "assistant", "old answer")
	f.say(t, "user", "unanswered")
	if err := f.MakeRoom(f.turn); err != nil {
		t.Fatal(err)
	}
	if got := f.text(); strings.Contains(got, "old answer") || !strings.Contains(got, "It was long.") || !strings.Contains(got, "the/log") || !strings.Contains(got, "[pending] finish") ||
		strings.LastIndex(got, "unanswered") < strings.Index(got, "It was long.") {
		t.Errorf("got %s, want the summary and then the prompt without an answer", got)
	}
	if got := string(f.asked[0].AppendMessages(nil, false)); strings.Contains(got, "unanswered") {
		t.Errorf("the model summarizes %s, want only messages with an answer", got)
	}
	var boundary *wire.CompactBoundary
	for _, m := range f.emitted {
		if m, ok := m.(*wire.CompactBoundary); ok {
			boundary = m
		}
	}
	if boundary == nil || boundary.Metadata.Trigger != "auto" || boundary.Metadata.PreservedSegment == nil || *boundary.Metadata.CumulativeDroppedTokens <= 0 {
		t.Errorf("got the boundary %+v", boundary)
	}
	if f.MakeRoom(f.turn); len(f.asked) != 1 {
		t.Error("it was compacted again before the model answered")
	}
}

func TestFailedCompactionChangesNothing(t *testing.T) {
	objection := func(in wire.HookInput) *hook.Verdict { return &hook.Verdict{Objections: []string{"not now"}} }
	for name, fail := range map[string]func(f *fixture){
		"model": func(f *fixture) {
			f.replies = append(f.replies, func() (compact.Reply, error) { return compact.Reply{}, errors.New("down") })
		},
		"refusal": func(f *fixture) {
			f.replies = append(f.replies, func() (compact.Reply, error) { return compact.Reply{Refused: true}, nil })
		},
		"hook": func(f *fixture) { f.hooks = objection },
		"log":  func(f *fixture) { f.log.err = errors.New("disk full") },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t.Context())
			f.say(t, "user", strings.Repeat("old ", 200))
			f.say(t, "assistant", "old answer")
			before := f.text()
			fail(f)
			if err := f.Replace(f.turn, compact.Manual, "", false); err == nil {
				t.Error("got no error")
			}
			if got := f.text(); got != before {
				t.Errorf("got %s, want the conversation as it was", got)
			}
			f.log.err = nil
			f.say(t, "user", "next")
			if got := f.log.all[len(f.log.all)-1].ParentUUID; got != f.log.all[1].UUID {
				t.Errorf("the next record stands behind %q, want the last answer", got)
			}
		})
	}
}

func TestSummaryThatDoesNotFitShrinks(t *testing.T) {
	f := newFixture(t.Context())
	f.say(t, "user", "first")
	f.Hist.Answer("m", recorder.JSON(&wire.ToolUseBlock{ID: "c", Name: "Bash", Input: json.RawMessage("{}")}))
	f.Hist.Add("user", recorder.JSON(&wire.ToolResultBlock{ToolUseID: "c", Content: wire.Text(strings.Repeat("x", 5000))}))
	f.say(t, "assistant", "answer")
	f.replies = append(f.replies, func() (compact.Reply, error) { return compact.Reply{}, &ask.Overflow{} })
	if err := f.Replace(f.turn, compact.Manual, "", false); err != nil {
		t.Fatal(err)
	}
	if len(f.asked) != 2 || f.asked[1].Size() >= f.asked[0].Size() {
		t.Errorf("got %d requests, want a second one without the result", len(f.asked))
	}
	if !strings.Contains(f.text(), "Tools that were used in it: Bash.") {
		t.Errorf("got %s", f.text())
	}
}

func TestCallInPlaceOfSummaryIsAskedAgain(t *testing.T) {
	f := newFixture(t.Context())
	f.say(t, "user", "first")
	f.replies = append(f.replies, func() (compact.Reply, error) { return compact.Reply{Called: true}, nil })
	if err := f.Replace(f.turn, compact.Manual, "", false); err != nil || len(f.asked) != 2 {
		t.Errorf("got %v after %d requests, want a summary after 2", err, len(f.asked))
	}
}

func TestAutoCompactionGivesUpUntilTheSessionIsCleared(t *testing.T) {
	f := newFixture(t.Context())
	for range 6 {
		f.say(t, "user", strings.Repeat("long ", 200))
		f.say(t, "assistant", "answer")
		f.say(t, "user", strings.Repeat("long ", 200))
		f.MakeRoom(f.turn)
	}
	if got := f.warnings(); len(got) != 1 || !strings.Contains(got[0], "full again right after") {
		t.Errorf("got the warnings %q", got)
	}
	asked := len(f.asked)
	f.Reset()
	f.say(t, "assistant", "answer")
	f.say(t, "user", "more")
	if f.MakeRoom(f.turn); len(f.asked) != asked+1 {
		t.Error("after /clear it is not compacted by itself")
	}
}

func TestFailuresInARowGiveUp(t *testing.T) {
	f := newFixture(t.Context())
	f.say(t, "user", strings.Repeat("long ", 200))
	f.say(t, "assistant", "answer")
	f.say(t, "user", "more")
	for range 5 {
		f.replies = []func() (compact.Reply, error){func() (compact.Reply, error) { return compact.Reply{}, errors.New("down") }}
		f.MakeRoom(f.turn)
	}
	if got := f.warnings(); len(f.asked) != 3 || len(got) != 1 {
		t.Errorf("got %d requests and the warnings %q, want 3 and one", len(f.asked), got)
	}
}

func TestRecoverSaysWhyThereIsNoRoom(t *testing.T) {
	f := newFixture(t.Context())
	f.say(t, "user", "single")
	if _, err := f.Recover(f.turn, &ask.Overflow{Local: true}); err == nil || !strings.Contains(err.Error(), "single exchange") {
		t.Errorf("got %v", err)
	}
	for i := range 5 {
		f.say(t, "assistant", fmt.Sprint("answer ", i))
		f.say(t, "user", "more")
		_, err := f.Recover(f.turn, &ask.Overflow{})
		if want := i >= 3; (err != nil) != want {
			t.Errorf("time %d of a turn: got %v", i+1, err)
		}
	}
	f.BeginTurn()
	f.say(t, "assistant", "answer")
	if _, err := f.Recover(f.turn, &ask.Overflow{}); err != nil {
		t.Errorf("in another turn: %v", err)
	}
}

func TestInterruptedCompactionCountsAsNoFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := newFixture(ctx)
	f.say(t, "user", strings.Repeat("long ", 200))
	f.say(t, "assistant", "answer")
	f.say(t, "user", "more")
	cancel()
	for range 4 {
		if err := f.MakeRoom(f.turn); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	if got := f.warnings(); got != nil {
		t.Errorf("got the warnings %q", got)
	}
}
