package session_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/session/sessiontest"
)

// TestIndex grows random sessions with compactions, kept messages, branches from before
// a compaction, side chains, garbage and torn ends, and checks that they have the same
// content with and without an index.
func TestIndex(t *testing.T) {
	t.Parallel()
	used := 0
	for seed := range 40 {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		dir, id := t.TempDir(), session.NewID()
		store := &session.Files{Dir: dir, Durability: session.Write}
		log, err := session.Create(t.Context(), store, sessiontest.Meta(id, "/src/a"))
		if err != nil {
			t.Fatal(err)
		}
		var all []string // uuids of messages
		parent := ""
		say := func(role, text string) *session.Entry {
			e := sessiontest.Say(role, text, parent)
			parent = e.UUID
			all = append(all, e.UUID)
			return e
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		must(log.Append(say("user", strings.Repeat("long ago ", 40_000))))
		for step := range 30 {
			switch n := rng.IntN(14); {
			case n < 5:
				must(log.Append(say("user", fmt.Sprint("prompt ", step)), say("assistant", "answer")))
			case n < 7:
				e := say("assistant", "")
				tool := fmt.Sprintf("t%d-%d", seed, step)
				e.Message = json.RawMessage(fmt.Sprintf(`{"id":"m%d","role":"assistant","content":[{"type":"tool_use","id":%q,"name":"Bash","input":{}}]}`, step, tool))
				must(log.Append(e))
				must(log.Append(session.Intent(tool, "Bash", nil)))
				if rng.IntN(2) == 0 {
					must(log.Append(session.Outcome(tool, false, json.RawMessage(`"x"`))))
				}
			case n < 9: // a compaction
				b := sessiontest.Say("system", "", "")
				b.Message = nil
				meta := "{}"
				if len(all) > 2 && rng.IntN(2) == 0 {
					k := rng.IntN(len(all) - 1)
					meta = fmt.Sprintf(`{"preservedMessages":{"anchorUuid":"","uuids":[%q,%q]}}`, all[k], all[k+1])
					if rng.IntN(2) == 0 {
						meta = fmt.Sprintf(`{"preservedSegment":{"anchorUuid":"","headUuid":%q,"tailUuid":%q}}`, all[k], all[k+1])
					}
				}
				b.Fields = map[string]json.RawMessage{"subtype": json.RawMessage(`"compact_boundary"`), "compactMetadata": json.RawMessage(meta)}
				parent = b.UUID
				s := say("user", "summary")
				s.Fields = map[string]json.RawMessage{"isCompactSummary": json.RawMessage("true")}
				must(log.Append(b, s))
			case n < 10: // back to an earlier message
				parent = all[rng.IntN(len(all))]
			case n < 11:
				e := sessiontest.Say("user", "aside", parent)
				e.Fields = map[string]json.RawMessage{"isSidechain": json.RawMessage("true")}
				must(log.Append(e))
			case n < 12:
				must(log.Append(&session.Entry{Type: fmt.Sprint("note", rng.IntN(3)), Fields: map[string]json.RawMessage{"step": json.RawMessage(fmt.Sprint(step))}}))
			case n < 13:
				file, err := os.OpenFile(log.Path(), os.O_WRONLY|os.O_APPEND, 0)
				must(err)
				fmt.Fprintln(file, "garbage")
				file.Close()
			default: // it is reopened, which may create an index
				path := log.Path()
				must(log.Close())
				if rng.IntN(3) == 0 {
					file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
					must(err)
					fmt.Fprint(file, `{"type":"user","uu`)
					file.Close()
				}
				bare := &session.Files{Dir: t.TempDir(), Durability: session.Write}
				text, err := os.ReadFile(path)
				must(err)
				must(os.MkdirAll(filepath.Join(bare.Dir, "projects", "-src-a"), 0o700))
				must(os.WriteFile(filepath.Join(bare.Dir, "projects", "-src-a", id+".jsonl"), text, 0o600))
				if _, err := os.Stat(filepath.Join(strings.TrimSuffix(path, ".jsonl"), "index.json")); err == nil {
					used++
				}
				var h, want *session.History
				log, h, err = session.Open(t.Context(), store, id, sessiontest.Meta("", "/src/a"))
				must(err)
				other, want, err := session.Open(t.Context(), bare, id, sessiontest.Meta("", "/src/a"))
				must(err)
				must(other.Close())
				if got, want := tell(h), tell(want); got != want {
					t.Fatalf("seed %d, step %d: with the index\n%s\nwithout\n%s", seed, step, got, want)
				}
			}
		}
		must(log.Close())
	}
	if used < 20 {
		t.Errorf("an index was used %d times only", used)
	}
}

// tell formats everything in a history, for comparing.
func tell(h *session.History) string {
	var b strings.Builder
	fmt.Fprintln(&b, h.Torn, h.Corrupt, h.Meta, h.Orphans())
	for _, e := range h.Entries {
		text, _ := json.Marshal(e)
		fmt.Fprintf(&b, "%.300s\n", text)
	}
	for _, id := range h.Orphans() {
		fmt.Fprintln(&b, id, h.Effect(id))
	}
	latest, _ := json.Marshal(h.Latest)
	b.Write(latest)
	return b.String()
}

// TestIndexOfAnother checks that an index that does not match its log is not used.
func TestIndexOfAnother(t *testing.T) {
	t.Parallel()
	store := &session.Files{Dir: t.TempDir(), Durability: session.Write}
	log, err := session.Create(t.Context(), store, sessiontest.Meta("", "/src/a"))
	if err != nil {
		t.Fatal(err)
	}
	path := log.Path()
	name := filepath.Join(strings.TrimSuffix(path, ".jsonl"), "index.json")
	a := sessiontest.Say("user", strings.Repeat("x", 300_000), "")
	b := sessiontest.Say("system", "", "")
	b.Message, b.Fields = nil, map[string]json.RawMessage{"subtype": json.RawMessage(`"compact_boundary"`)}
	c := sessiontest.Say("user", "after", b.UUID)
	if err := log.Append(a, b, c); err != nil {
		t.Fatal(err)
	}
	log.Close()
	open := func() int {
		log, h, err := session.Open(t.Context(), store, log.ID(), sessiontest.Meta("", "/src/a"))
		if err != nil {
			t.Fatal(err)
		}
		log.Close()
		return len(h.Entries)
	}
	if n := open(); n != 2 {
		t.Fatalf("%d entries", n)
	}
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "{", `{"version":2}`, strings.Replace(string(good), `"boundary":`, `"boundary":1`, 1), strings.Replace(string(good), `"loose":{}`, `"loose":{"x":{"off":-5,"len":9}}`, 1)} {
		if err := os.WriteFile(name, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if n := open(); n != 2 {
			t.Errorf("%d entries with the index %q", n, bad)
		}
	}
	// The log was replaced by another one.
	if err := os.WriteFile(name, good, 0o600); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(path)
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "xxxx", "yy", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := open(); n != 2 {
		t.Errorf("%d entries of the other log", n)
	}
}
