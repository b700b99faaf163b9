package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A failingLog records entries until it fails.
type failingLog struct {
	session.Log
	entries []*session.Entry
	err     error
}

func (l *failingLog) Append(entries ...*session.Entry) error {
	if l.err == nil {
		l.entries = append(l.entries, entries...)
	}
	return l.err
}

// newWriter returns a writer, its log, and a function that returns the messages that it has emitted.
func newWriter() (*writer, *failingLog, func() []wire.Message) {
	log := &failingLog{}
	var emitted []wire.Message
	rec := recorder.New(recorder.Options{Place: recorder.Place{ID: "s", Log: log}, Now: time.Now, Emit: func(m wire.Message) { emitted = append(emitted, m) }})
	return &writer{rec: rec}, log, func() []wire.Message { return emitted }
}

func TestUnrecordedTextIsNotSent(t *testing.T) {
	w, log, emitted := newWriter()
	log.err = errors.New("the disk is full")
	if err := w.appendAndEmitNote(&turn{}, "Go on.", ""); !errors.Is(err, recorder.ErrUnwritten) || len(w.hist.Messages) != 0 || len(emitted()) != 0 {
		t.Errorf("got %v, %d messages in the history and %d emitted", err, len(w.hist.Messages), len(emitted()))
	}
}

func TestResultIsRecordedBeforeItIsEmitted(t *testing.T) {
	w, log, emitted := newWriter()
	tu := &turn{}
	out := &call.Outcome{Result: tool.Text("done", nil), Denied: true}
	if _, err := w.emitResult(tu, &call.Call{ID: "c1", Name: "Bash"}, out); err != nil {
		t.Fatal(err)
	}
	m, ok := emitted()[0].(*wire.User)
	if !ok || len(log.entries) != 1 || m.UUID != log.entries[0].UUID || tu.userLines != 1 || len(tu.denials) != 1 {
		t.Errorf("got %+v, %d records, %d lines, %d denials", emitted()[0], len(log.entries), tu.userLines, len(tu.denials))
	}
	log.err = errors.New("the disk is full")
	if _, err := w.emitResult(tu, &call.Call{ID: "c2", Name: "Bash"}, out); err == nil || len(emitted()) != 1 {
		t.Errorf("got %v, and %d messages", err, len(emitted()))
	}
}

func TestInterruptedTurnHasAMarker(t *testing.T) {
	w, _, emitted := newWriter()
	end := w.interrupted(&turn{}, "[Request interrupted by user]", "aborted_streaming", errInterrupted)
	if end.subtype != "error_during_execution" || !strings.Contains(end.errors[0], "interrupted by the user") || len(emitted()) != 1 || len(w.hist.Messages) != 1 {
		t.Errorf("got %+v, %d emitted, %d in the history", end, len(emitted()), len(w.hist.Messages))
	}
	if end := w.interrupted(&turn{shownText: "so far"}, "", "", errSuperseded); end.isError || end.text != "so far" || len(emitted()) != 1 {
		t.Errorf("a prompt that came first: got %+v", end)
	}
}

func TestBrokenTurnAnswersItsCalls(t *testing.T) {
	w, _, _ := newWriter()
	w.hist.Add("assistant", mustJSON(&wire.ToolUseBlock{ID: "c1", Name: "Bash", Input: []byte("{}")}))
	if end := w.broken(errors.New("the disk is full")); !end.isError || end.errors[0] != "the disk is full" {
		t.Errorf("got %+v", end)
	}
	if got := string(w.hist.AppendMessages(nil, false)); !strings.Contains(got, `"tool_use_id":"c1"`) {
		t.Errorf("the call has no result: %s", got)
	}
}
