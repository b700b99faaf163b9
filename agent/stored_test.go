package agent_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestLocalCommandsAreNotReplayed checks that prompts are replayed, but not commands that no
// model answers, as with the official CLI.
func TestLocalCommandsAreNotReplayed(t *testing.T) {
	m := parleytest.Script(parleytest.Say("ok")).Model()
	cost := strings.Replace(hello, "hi", "/cost", 1)
	got := say(t, agent.Config{Model: m, Cwd: t.TempDir()}, []string{"--replay-user-messages"}, cost, hello)
	var replayed []string
	for _, m := range got.all {
		if u, ok := m.(*wire.User); ok && u.IsReplay {
			replayed = append(replayed, u.Message.Content.String())
		}
	}
	if all := strings.Join(replayed, ", "); all != "hi" {
		t.Errorf("told back: %q, want hi", all)
	}
}

// TestSubagentPromptIsStoredAsText checks that the log of a subagent has its prompt as a
// string, as with the official CLI.
func TestSubagentPromptIsStoredAsText(t *testing.T) {
	dir, _ := workdir(t)
	store := &session.Memory{}
	const id = "11111111-2222-4333-8444-555555555556"
	s := parleytest.Script(parleytest.Call("Agent", `{"description":"d","prompt":"SUB","run_in_background":false}`), parleytest.Say("main"))
	s.When("sub", parleytest.FirstUser("SUB"), parleytest.Say("report"))
	play(t, agent.Config{Cwd: dir, Store: store}, s, "--session-id", id)
	key := session.Key{Project: session.ProjectKey(dir), Session: id}
	subs, err := store.Subkeys(t.Context(), key)
	if err != nil || len(subs) != 1 {
		t.Fatal(subs, err)
	}
	key.Sub = subs[0]
	lines, err := store.Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		var e struct {
			Type    string
			Message struct{ Content json.RawMessage }
		}
		if json.Unmarshal(line, &e) == nil && e.Type == "user" {
			if got := string(e.Message.Content); got != `"SUB"` {
				t.Errorf("the prompt is stored as %s", got)
			}
			return
		}
	}
	t.Error("the prompt is not stored")
}
