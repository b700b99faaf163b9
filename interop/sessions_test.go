package interop

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
)

// TestSessionsChangeHands continues a session that one CLI began, with a subagent in it,
// with the other CLI, and then with the first again. It checks that the official TypeScript
// SDK and our functions read the same after each turn, including the subagent's transcript.
// The SDK renames and forks the session, and both CLIs continue the fork.
func TestSessionsChangeHands(t *testing.T) {
	clis := map[string]string{"claude": peers(t).CLI(), "parley": parleyCLI(t)}
	for _, order := range [][]string{{"parley", "claude", "parley"}, {"claude", "parley", "claude"}} {
		t.Run("begun by "+order[0], func(t *testing.T) {
			t.Parallel()
			config, cwd, home := t.TempDir(), t.TempDir(), t.TempDir()
			script := pt.Script(
				pt.Expect(pt.LastUser("Turn 0")).Say("I ask a colleague.").Call("Agent", `{"description":"look","prompt":"Sub prompt","subagent_type":"general-purpose","run_in_background":false}`),
				pt.Say("Answer 0"),
				pt.Expect(pt.LastUser("Turn 1")).Call("Bash", `{"command":"echo from-the-shell","description":"Test step"}`),
				pt.Expect(pt.ToolResult("from-the-shell")).Say("Answer 1"),
				pt.Expect(pt.LastUser("Turn 2")).Say("Answer 2"),
				pt.Expect(pt.LastUser("Turn 3")).Say("Answer 3"),
				pt.Expect(pt.LastUser("Turn 4")).Say("Answer 4"),
			)
			script.When("subagent", pt.FirstUser("Sub prompt"), pt.Say("Sub answer"))
			api := pt.NewAPI(t, script, &pt.APIOptions{Lenient: true})
			env := append(os.Environ(), "HOME="+home, "CLAUDE_CONFIG_DIR="+config, "ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_API_KEY="+fakeKey, "IS_SANDBOX=1")
			store := &session.Files{Dir: config}
			id := session.NewID()
			said := []string{}
			turn := func(name, prompt, answer string, args ...string) {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), clis[name], append([]string{"-p", prompt, "--model", "claude-sonnet-4-5", "--allowedTools", "Bash,Agent,Task"}, args...)...)
				cmd.Dir, cmd.Env = cwd, env
				out, err := cmd.Output()
				if err != nil || !strings.Contains(string(out), answer) {
					t.Fatalf("%s, %s: %v: %s", name, prompt, err, out)
				}
				// The model received the whole earlier conversation.
				requests := api.Requests()
				last := requests[len(requests)-1].Body
				said = append(said, prompt)
				for _, text := range said {
					if !bytes.Contains(last, []byte(text)) {
						t.Errorf("%s went on without %q", name, text)
					}
				}
				said = append(said, answer)
			}
			type reading struct {
				Listed   []string
				Messages [][2]string
				Agents   map[string][][2]string
				Fork     string
			}
			brief := func(all []session.Message, err error) [][2]string {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				out := [][2]string{}
				for _, m := range all {
					out = append(out, [2]string{m.Type, m.UUID})
				}
				return out
			}
			read := func(id, title string) (r reading) {
				t.Helper()
				messages := brief(session.Messages(t.Context(), store, id, nil))
				cmd := exec.CommandContext(t.Context(), "node", filepath.Join("ts", "sessions.mjs"), id, title)
				cmd.Env, cmd.Stderr = env, os.Stderr
				out, err := cmd.Output()
				if err == nil {
					err = json.Unmarshal(out, &r)
				}
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				if !slices.Contains(r.Listed, id) || !slices.Equal(r.Messages, messages) || len(messages) == 0 {
					t.Errorf("they list %v and read %v, we read %v", r.Listed, r.Messages, messages)
				}
				agents, err := session.Subagents(t.Context(), store, id, nil)
				if err != nil || !slices.Equal(agents, slices.Sorted(maps.Keys(r.Agents))) {
					t.Errorf("they have the subagents %v, we %v, %v", r.Agents, agents, err)
				}
				for _, agent := range agents {
					if ours := brief(session.SubagentMessages(t.Context(), store, id, agent, nil)); !slices.Equal(ours, r.Agents[agent]) || len(ours) < 2 {
						t.Errorf("of the subagent %s they read %v, we %v", agent, r.Agents[agent], ours)
					}
				}
				if found, err := session.Find(t.Context(), store, title); err != nil || found != id {
					t.Errorf("the title %q is that of %s, %v", title, found, err)
				}
				return r
			}
			turn(order[0], "Turn 0", "Answer 0", "--session-id", id)
			if r := read(id, "First title"); len(r.Agents) != 1 {
				t.Errorf("%d subagents", len(r.Agents))
			}
			turn(order[1], "Turn 1", "Answer 1", "--resume", id)
			read(id, "Second title")
			turn(order[2], "Turn 2", "Answer 2", "--resume", id)
			r := read(id, "Third title")
			turn(order[1], "Turn 3", "Answer 3", "--resume", r.Fork)
			turn(order[0], "Turn 4", "Answer 4", "--resume", r.Fork)
			read(r.Fork, "Of the fork")
		})
	}
}

// TestCompactedSessionsChangeHands compacts a session with one CLI and continues it with the other, and then with the
// first again. Both must go on from the summary, without the messages that it replaces.
func TestCompactedSessionsChangeHands(t *testing.T) {
	clis := map[string]string{"claude": peers(t).CLI(), "parley": parleyCLI(t)}
	for _, order := range [][]string{{"parley", "claude"}, {"claude", "parley"}} {
		t.Run("compacted by "+order[0], func(t *testing.T) {
			t.Parallel()
			config, cwd, home := t.TempDir(), t.TempDir(), t.TempDir()
			script := pt.Script(
				pt.Expect(pt.LastUser("Turn 0")).Call("Bash", `{"command":"echo from-the-shell","description":"Test step"}`),
				pt.Say("Answer 0"), pt.Expect(pt.LastUser("Turn 1")).Say("Answer 1"),
				pt.Say("<summary>What was said so far</summary>"),
				pt.Expect(pt.LastUser("Turn 2")).Say("Answer 2"), pt.Expect(pt.LastUser("Turn 3")).Say("Answer 3"),
			)
			api := pt.NewAPI(t, script, &pt.APIOptions{Lenient: true})
			env := append(os.Environ(), "HOME="+home, "CLAUDE_CONFIG_DIR="+config, "ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_API_KEY="+fakeKey, "IS_SANDBOX=1")
			id := session.NewID()
			turn := func(name, prompt string, args ...string) []byte {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), clis[name], append([]string{"-p", prompt, "--model", "claude-sonnet-4-5", "--allowedTools", "Bash"}, args...)...)
				cmd.Dir, cmd.Env = cwd, env
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s, %s: %v: %s", name, prompt, err, out)
				}
				requests := api.Requests()
				return requests[len(requests)-1].Body
			}
			turn(order[0], "Turn 0", "--session-id", id)
			turn(order[0], "Turn 1", "--resume", id)
			turn(order[0], "/compact", "--resume", id)
			body := turn(order[1], "Turn 2", "--resume", id)
			again := turn(order[0], "Turn 3", "--resume", id)
			for _, text := range []string{"What was said so far", "Turn 2"} {
				if !bytes.Contains(body, []byte(text)) || !bytes.Contains(again, []byte(text)) {
					t.Errorf("%q is missing in the request of %s or of %s", text, order[1], order[0])
				}
			}
			for _, text := range []string{"Turn 0", "from-the-shell", "Answer 0"} {
				if bytes.Contains(body, []byte(text)) || bytes.Contains(again, []byte(text)) {
					t.Errorf("%q, which the summary replaces, is in the request of %s (%v) or of %s (%v)", text, order[1], bytes.Contains(body, []byte(text)), order[0], bytes.Contains(again, []byte(text)))
				}
			}
			if !bytes.Contains(again, []byte("Answer 2")) {
				t.Errorf("%s goes on without the answer of %s", order[0], order[1])
			}
		})
	}
}
