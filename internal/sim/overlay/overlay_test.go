package overlay

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestEditsFit shows that every edit of the runtime and every planted bug finds the text that
// it replaces: otherwise it would test nothing.
func TestEditsFit(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Write(t.TempDir(), strings.TrimSpace(string(goroot)), root, true); err != nil {
		t.Error(err)
	}
	names := map[string]bool{}
	for _, b := range Planted {
		if names[b.Name] || len(b.Edits) == 0 {
			t.Errorf("%q is there twice, or changes nothing", b.Name)
		}
		names[b.Name] = true
	}
	if len(Planted) < 25 {
		t.Errorf("%d planted bugs, want at least 25", len(Planted))
	}
}
