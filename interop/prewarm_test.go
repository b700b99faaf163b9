package interop

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	pt "github.com/parley-go/parley/parleytest"
)

// TestTypeScriptSDKPrewarms lets the official SDK start agents before their directory is
// known, with the official CLI and with ours, and checks that its user sees the same.
func TestTypeScriptSDKPrewarms(t *testing.T) {
	p := peers(t)
	play := func(t *testing.T, cli string) []byte {
		api := pt.NewAPI(t, pt.Script(pt.Call("mcp__calc__add", map[string]any{}), pt.Say("Three.")), &pt.APIOptions{Lenient: true})
		cmd := exec.CommandContext(t.Context(), "node", filepath.Join("ts", "prewarm.mjs"), cli, t.TempDir())
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_API_KEY="+fakeKey, "IS_SANDBOX=1")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return out
	}
	var theirs, ours []byte
	t.Run("claude", func(t *testing.T) { theirs = play(t, p.CLI()) })
	t.Run("parley", func(t *testing.T) { ours = play(t, parleyCLI(t)) })
	if !bytes.Equal(ours, theirs) || !bytes.Contains(ours, []byte(`"result":"success"`)) {
		t.Errorf("ours   %s\ntheirs %s", ours, theirs)
	}
}
