package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/internal/testwait"
	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestSessionStore checks that a session that is mirrored to a store is resumed from it
// where none of its files exist: the model receives the earlier conversation.
func TestSessionStore(t *testing.T) {
	for name, cli := range map[string]func(t *testing.T) string{
		"claude": func(t *testing.T) string { return peers(t).CLI() },
		"parley": parleyCLI,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := cli(t)
			api := pt.NewAPI(t, pt.Script(
				pt.Say("Blue."),
				pt.Expect(pt.LastUser("again")).Say("Blue, I said."),
				pt.Expect(pt.LastUser("once more")).Say("Still blue."),
			), nil)
			store := &session.Memory{}
			cwd := t.TempDir()
			ctx := testwait.Context(t)
			id := session.NewID()
			say := func(prompt, want string, o parley.Options) {
				t.Helper()
				o.Path, o.Cwd, o.Model, o.SettingSources, o.SessionStore = path, cwd, "claude-sonnet-4-5", []string{}, store
				home := t.TempDir() // nothing is left from the last run
				o.Env = map[string]string{"HOME": home, "CLAUDE_CONFIG_DIR": filepath.Join(home, "config"), "ANTHROPIC_BASE_URL": api.URL, "ANTHROPIC_API_KEY": fakeKey}
				o.OnWarning = func(err error) { t.Error(err) }
				for m, err := range parley.Query(ctx, prompt, &o) {
					if err != nil {
						t.Fatalf("%s: %v", prompt, err)
					}
					switch m := m.(type) {
					case *wire.MirrorError:
						t.Errorf("%+v", m)
					case *wire.Result:
						if m.Result != want || m.SessionID != id {
							t.Errorf("%s: %q in the session %s, want %q in %s", prompt, m.Result, m.SessionID, want, id)
						}
						if said, err := session.Messages(ctx, store, id, nil); err != nil || len(said) < 2 {
							t.Errorf("at the result the store holds %d messages, %v", len(said), err)
						}
					}
				}
			}
			say("which colour?", "Blue.", parley.Options{SessionID: id})
			say("again", "Blue, I said.", parley.Options{Resume: id})
			say("once more", "Still blue.", parley.Options{Continue: true})
			said, err := session.Messages(ctx, store, id, nil)
			if err != nil || len(said) != 6 {
				t.Errorf("the store holds %d messages, %v, want 6", len(said), err)
			}
		})
	}
}

// TestTypeScriptSDKSessionStore lets the official SDK mirror a session to its own store
// and resume it from there: with the official CLI, and with ours.
func TestTypeScriptSDKSessionStore(t *testing.T) {
	p := peers(t)
	for name, cli := range map[string]func(t *testing.T) string{
		"claude": func(*testing.T) string { return p.CLI() },
		"parley": parleyCLI,
	} {
		t.Run(name, func(t *testing.T) {
			api := pt.NewAPI(t, pt.Script(pt.Say("One."), pt.Expect(pt.LastUser("prompt 1")).Say("Two.")), &pt.APIOptions{Lenient: true})
			cmd := exec.CommandContext(t.Context(), "node", filepath.Join("ts", "store.mjs"), cli(t), t.TempDir(), t.TempDir(), t.TempDir())
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_API_KEY="+fakeKey, "IS_SANDBOX=1")
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			const want = `{"results":["One.","Two."],"errors":[],"types":["user","assistant","user","assistant"]}`
			if got := strings.TrimSpace(string(out)); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}
