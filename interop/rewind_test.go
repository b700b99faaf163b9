package interop

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	pt "github.com/parley-go/parley/parleytest"
)

// TestTypeScriptSDKRewinds lets the official SDK restore files that a turn changed,
// with the official CLI and with ours, and checks that the results are the same.
func TestTypeScriptSDKRewinds(t *testing.T) {
	p := peers(t)
	type answer struct {
		CanRewind             bool
		FilesChanged          []string
		Insertions, Deletions *int // nil if absent
		Error                 string
	}
	rewind := func(t *testing.T, cli string) (dry answer) {
		dir := t.TempDir()
		a, b := filepath.Join(dir, "a.txt"), filepath.Join(dir, "b.txt")
		if err := os.WriteFile(a, []byte("red\ngreen\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		api := pt.NewAPI(t, pt.Script(
			pt.Call("Read", map[string]any{"file_path": a}),
			pt.Call("Edit", map[string]any{"file_path": a, "old_string": "green", "new_string": "blue\nyellow"}),
			pt.Call("Write", map[string]any{"file_path": b, "content": "new\n"}),
			pt.Say("Written."),
		), &pt.APIOptions{Lenient: true})
		cmd := exec.CommandContext(t.Context(), "node", filepath.Join("ts", "rewind.mjs"), cli, dir)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_API_KEY="+fakeKey, "IS_SANDBOX=1")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var got struct {
			Result, Error string
			Dry, Real     answer
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got.Result != "success" || got.Error != "" || !got.Real.CanRewind {
			t.Fatalf("%s", out)
		}
		if text, err := os.ReadFile(a); err != nil || string(text) != "red\ngreen\n" {
			t.Errorf("a.txt is %q, %v", text, err)
		}
		if _, err := os.Lstat(b); err == nil {
			t.Error("b.txt is still there")
		}
		for i, name := range got.Dry.FilesChanged {
			got.Dry.FilesChanged[i] = filepath.Base(name)
		}
		slices.Sort(got.Dry.FilesChanged)
		return got.Dry
	}
	var theirs, ours answer
	t.Run("claude", func(t *testing.T) { theirs = rewind(t, p.CLI()) })
	t.Run("parley", func(t *testing.T) { ours = rewind(t, parleyCLI(t)) })
	if ours.CanRewind && !reflect.DeepEqual(ours, theirs) {
		t.Errorf("ours %+v\ntheirs %+v", ours, theirs)
	}
}
