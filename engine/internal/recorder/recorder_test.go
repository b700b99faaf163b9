package recorder_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

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

func newRecorder(log session.Log, agent string) (*recorder.Recorder, *[]wire.Message) {
	var emitted []wire.Message
	return recorder.New(recorder.Options{
		Place: recorder.Place{ID: "s", Log: log}, Agent: agent, Now: func() time.Time { return noon },
		Emit: func(m wire.Message) { emitted = append(emitted, m) },
		Sum:  func() *session.Entry { return &session.Entry{Type: recorder.CostType} },
	}), &emitted
}

// TestEmitSetsWhatIsMissing checks that a message gets a uuid, the session id and the time,
// unless it has them, and that a control message gets nothing.
func TestEmitSetsWhatIsMissing(t *testing.T) {
	r, emitted := newRecorder(nil, "")
	r.Emit(&wire.Status{Status: "a"})
	r.Emit(&wire.User{UUID: "u", SessionID: "other", Timestamp: "t"})
	r.Emit(&wire.ControlCancelRequest{RequestID: "r"})
	first := (*emitted)[0].(*wire.Status)
	if !session.ValidID(first.UUID) || first.SessionID != "s" || first.Timestamp != "2026-01-02T12:00:00.000Z" {
		t.Errorf("got %+v", first)
	}
	if second := (*emitted)[1].(*wire.User); second.UUID != "u" || second.SessionID != "other" || second.Timestamp != "t" {
		t.Errorf("got %+v, want it as it was", second)
	}
	r.Begin(recorder.Place{ID: "next"})
	r.Emit(&wire.Status{})
	if m := (*emitted)[3].(*wire.Status); m.SessionID != "next" || m.UUID == first.UUID {
		t.Errorf("after another session has begun: got %+v", m)
	}
}

// TestRecordKeepsTheTree checks that records of the conversation form a chain, that others
// are outside of the tree, and that deferred and owed records are written first, the owed ones with
// their sum.
func TestRecordKeepsTheTree(t *testing.T) {
	log := &fakeLog{}
	r, _ := newRecorder(log, "agent")
	r.Defer(&session.Entry{Type: "prefix"})
	user := &session.Entry{Type: "user"}
	if err := r.Record(user, &session.Entry{Type: "last-prompt"}); err != nil {
		t.Fatal(err)
	}
	r.Owe(&session.Entry{Type: "request"})
	answer := &session.Entry{Type: "assistant"}
	if err := r.Record(answer); err != nil {
		t.Fatal(err)
	}
	var types string
	for _, e := range log.all {
		types += e.Type + " "
		if !e.Time.Equal(noon) || string(e.Fields["agentId"]) != `"agent"` {
			t.Errorf("%s: time %v, fields %v", e.Type, e.Time, e.Fields)
		}
	}
	if want := "prefix user last-prompt request cost-state assistant "; types != want {
		t.Errorf("got %s, want %s", types, want)
	}
	if !session.ValidID(user.UUID) || user.ParentUUID != "" || answer.ParentUUID != user.UUID || r.Parent() != answer.UUID || log.all[2].UUID != "" {
		t.Errorf("the tree is wrong: %+v, %+v", user, answer)
	}
	boundary := &session.Entry{Type: "system"}
	if err := r.Replace(boundary); err != nil || boundary.ParentUUID != "" {
		t.Errorf("the parent is %q, error %v; want none", boundary.ParentUUID, err)
	}
}

// TestErrorsAreReturned checks that a failed write is returned as an error, with advice if it
// is about a file.
func TestErrorsAreReturned(t *testing.T) {
	log := &fakeLog{err: &fs.PathError{Op: "write", Path: "x.jsonl", Err: errors.New("no space left")}}
	r, _ := newRecorder(log, "")
	for name, err := range map[string]error{
		"Record": r.Record(&session.Entry{Type: "user", Message: json.RawMessage("{}")}), "Replace": r.Replace(&session.Entry{Type: "system"}),
		"Append": r.Place().Append(&session.Entry{Type: "intent"}),
	} {
		if !errors.Is(err, recorder.ErrUnwritten) || !errors.As(err, new(*fs.PathError)) {
			t.Errorf("%s: got the error %v", name, err)
		}
	}
}

// TestFailedRecordIsNoParent checks that a record after a failed one becomes the child of the
// last record in the log. Otherwise everything before it would be lost when the session is
// resumed.
func TestFailedRecordIsNoParent(t *testing.T) {
	log := &fakeLog{}
	r, _ := newRecorder(log, "")
	first, lost, next := &session.Entry{Type: "user"}, &session.Entry{Type: "assistant"}, &session.Entry{Type: "user"}
	if err := r.Record(first); err != nil {
		t.Fatal(err)
	}
	log.err = errors.New("no space left")
	if r.Record(lost) == nil {
		t.Fatal("the record was written")
	}
	log.err = nil
	if err := r.Record(next); err != nil || next.ParentUUID != first.UUID {
		t.Errorf("the parent is %q, want %q; error %v", next.ParentUUID, first.UUID, err)
	}
}

// TestOwedRecordsSurviveAFailure checks that owed records are written once, with the next
// record that the log accepts, and before another session starts.
func TestOwedRecordsSurviveAFailure(t *testing.T) {
	log := &fakeLog{}
	r, _ := newRecorder(log, "")
	r.Owe(&session.Entry{Type: "request"})
	log.err = errors.New("no space left")
	for range 2 {
		if r.Record(&session.Entry{Type: "assistant"}) == nil {
			t.Fatal("the record was written")
		}
	}
	log.err = nil
	r.Owe(&session.Entry{Type: "request"})
	if err := r.Record(&session.Entry{Type: "user"}); err != nil {
		t.Fatal(err)
	}
	r.Owe(&session.Entry{Type: "request"})
	for range 2 { // the second time nothing is owed
		if err := r.Record(); err != nil {
			t.Fatal(err)
		}
	}
	r.Begin(recorder.Place{ID: "next"})
	var types string
	for _, e := range log.all {
		types += e.Type + " "
	}
	if want := "request request cost-state user request cost-state "; types != want {
		t.Errorf("got %s, want %s", types, want)
	}
}
