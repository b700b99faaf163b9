package browsertest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
	"github.com/parley-go/parley/wire"
)

// TestPictures makes the pictures of the documentation: "make pictures" writes them to
// docs/img. Elsewhere it checks that the screens on them are there.
func TestPictures(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "parser")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	r := newRig(t,
		parleytest.Say("The test starts a server on a **fixed port**. If two runs use it at the same time, one of them fails.\n\nI let the system choose the port:").Call("Bash", map[string]string{"command": "sed -i 's/:8080/:0/' server_test.go && go test -count=20 ./...", "description": "Use a free port, and run the tests 20 times"}),
		parleytest.Say("All tests pass 20 times now."),
		parleytest.Say("The release notes are written."),
	)
	me := hub.Actor{Name: "ann", Rights: hub.Everything}
	start := func(title, prompt string) {
		s, err := r.hub.Create(t.Context(), me, hub.Spec{Cwd: dir, Title: title})
		if err == nil {
			_, err = s.Prompt(t.Context(), me, wire.Prompt(wire.Text(prompt)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	start("Fix the flaky test", "The test of the server fails sometimes. Find out why and fix it.")
	p := open(t, r.link(serve.ScopeAdmin))
	p.ready()
	short := fmt.Sprintf("for (const w = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); w.nextNode();) w.currentNode.data = w.currentNode.data.replaceAll(%q, '~/src/parser'); 0", dir)
	p.enter()
	p.ready()
	p.until("document.querySelector('.prose strong')")
	for _, colours := range []string{"light", "dark"} {
		p.look(1100, 800, colours)
		eval[any](p, short)
		p.shot("console-" + colours)
		p.look(390, 780, colours)
		p.until("document.querySelector('.answers .yes').getBoundingClientRect().bottom <= innerHeight") // the answers are on the screen
		p.shot("console-phone-" + colours)
	}
	p.click(".approval .yes")
	p.shows(".answer:not(.live)", "All tests pass")
}
