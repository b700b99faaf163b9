package interop

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/parley-go/parley"
	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A session that is mirrored to a store is resumed from it where none of its files are:
// the model is told what was said before.
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
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			id := session.NewID()
			say := func(prompt, want string, o parley.Options) {
				t.Helper()
				o.Path, o.Cwd, o.Model, o.SettingSources, o.SessionStore = path, cwd, "claude-sonnet-4-5", []string{}, store
				home := t.TempDir() // nothing is left from the last time
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
