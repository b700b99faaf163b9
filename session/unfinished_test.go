package session_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/session/sessiontest"
)

func TestUnfinished(t *testing.T) {
	with := func(e *session.Entry, name, value string) *session.Entry {
		e.Fields = map[string]json.RawMessage{name: json.RawMessage(value)}
		return e
	}
	prompt := with(sessiontest.Say("user", "do it", ""), "promptId", `"p1"`)
	answer := sessiontest.Say("assistant", "I do", prompt.UUID)
	joined := with(sessiontest.Say("user", "and that", answer.UUID), "promptId", `"p1"`)
	other := with(sessiontest.Say("user", "something else", answer.UUID), "promptId", `"p2"`)
	mark := sessiontest.Say("user", "[Request interrupted by user]", answer.UUID)
	note := with(sessiontest.Say("user", "a note", answer.UUID), "isMeta", "true")
	began := session.TurnBegan(prompt.UUID, "p1")
	for _, c := range []struct {
		name    string
		entries []*session.Entry
		want    bool
	}{
		{"no turn", []*session.Entry{prompt, answer}, false},
		{"a turn that runs", []*session.Entry{prompt, began}, true},
		{"in the middle of an answer", []*session.Entry{prompt, began, answer}, true},
		{"with a prompt that joined it", []*session.Entry{prompt, began, answer, joined}, true},
		{"with a note", []*session.Entry{prompt, began, answer, note}, true},
		{"ended", []*session.Entry{prompt, began, answer, session.TurnEnded(nil)}, false},
		{"interrupted", []*session.Entry{prompt, began, answer, mark}, false},
		{"another prompt came, from elsewhere", []*session.Entry{prompt, began, answer, other}, false},
		{"rewound", []*session.Entry{prompt, began, answer, sessiontest.Say("user", "from the start", "")}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &session.Memory{}
			log, err := session.Create(t.Context(), s, sessiontest.Meta("", "/src/a"))
			if err != nil {
				t.Fatal(err)
			}
			if err := log.Append(c.entries...); err != nil {
				t.Fatal(err)
			}
			log.Close()
			log, h, err := session.Open(t.Context(), s, log.ID(), sessiontest.Meta("", "/src/a"))
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			uuid, id := h.Unfinished()
			if c.want && (uuid != prompt.UUID || id != "p1") || !c.want && (uuid != "" || id != "") {
				t.Errorf("got %q, %q", uuid, id)
			}
		})
	}
}

// TestSessionWithoutMessageBeginsAgain checks that a process that died between the first
// record and the first prompt leaves a log that cannot be resumed. Its session can be
// created again, and one that has a message cannot.
func TestSessionWithoutMessageBeginsAgain(t *testing.T) {
	const id = "00000000-0000-4000-8000-0000000000aa"
	dir := t.TempDir()
	for name, store := range map[string]session.Store{"files": &session.Files{Dir: dir}, "memory": &session.Memory{}} {
		t.Run(name, func(t *testing.T) {
			for i, e := range []*session.Entry{{Type: "parley-prefix"}, {Type: "user", UUID: session.NewID(), Message: json.RawMessage(`{"role":"user","content":"hi"}`)}} {
				log, err := session.Create(t.Context(), store, session.Meta{ID: id, Cwd: "/w"})
				if err != nil {
					t.Fatal(i, err)
				}
				if err := errors.Join(log.Append(e), log.Close()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := session.Create(t.Context(), store, session.Meta{ID: id, Cwd: "/w"}); !errors.Is(err, session.ErrExists) {
				t.Errorf("a session with a message: got %v, want %v", err, session.ErrExists)
			}
			log, h, err := session.Open(t.Context(), store, id, session.Meta{Cwd: "/w"})
			if err != nil || len(h.Entries) != 1 {
				t.Fatalf("got %+v, %v", h, err)
			}
			log.Close()
		})
	}
}
