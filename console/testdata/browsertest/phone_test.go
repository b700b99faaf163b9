package browsertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
)

// A question whose diff has long lines does not make the overview wider than a phone.
func TestWideQuestionOnAPhone(t *testing.T) {
	wide := strings.Repeat("wide ", 60)
	r := newRig(t, parleytest.Call("Write", map[string]string{"file_path": "notes.txt", "content": "old\n"}),
		parleytest.Call("Edit", map[string]string{"file_path": "notes.txt", "old_string": "old", "new_string": wide}), parleytest.Say("Done."))
	r.allowed = []string{"Write"}
	r.create("Phone", "Change the notes.")
	p := open(t, r.link(serve.ScopeAdmin))
	p.look(390, 844, "light")
	p.shows(".group .approval .line", "wide")
	if outside := eval[string](p, "[...document.querySelectorAll('.entry, .approval, .approval > *, button, input')].filter(e => e.getBoundingClientRect().right > 390).map(e => e.className || e.innerText || e.tagName).join(', ')"); outside != "" {
		t.Errorf("outside of a phone are %s", outside)
	}
	p.shot("phone-question")
}

// While a command runs, its card shows how long it has run and its last lines.
func TestRunningCommand(t *testing.T) {
	r := newRig(t, parleytest.Call("Bash", map[string]string{"command": "seq 1 20; echo '<b>halfway</b>'; until [ -e go ]; do sleep 0.1; done; rm go"}), parleytest.Expect(parleytest.ToolResult("halfway")).Say("Done."))
	r.allowed = []string{"Bash"}
	r.create("Command", "Run it.")
	p := open(t, r.link(serve.ScopeAdmin))
	p.click(".entry a")
	p.shows(".tail", "17\n18\n19\n20\n<b>halfway</b>")
	p.shows(".tool .status", "runs · ")
	p.shot("running")
	if err := os.WriteFile(filepath.Join(r.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.shows(".answer", "Done.")
	p.gone(".tail")
}
