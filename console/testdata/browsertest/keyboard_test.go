package browsertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
)

// tab moves the focus with the Tab key to the first element that matches a selector and has a text.
func (p *page) tab(sel, text string) {
	p.t.Helper()
	for range 80 {
		p.key("\t")
		if eval[bool](p, "document.activeElement.matches("+quote(sel)+") && (document.activeElement.innerText ?? '').includes("+quote(text)+")") {
			if eval[string](p, "(s => s.outlineStyle + s.boxShadow)(getComputedStyle(document.activeElement))") == "nonenone" {
				p.t.Errorf("%s %q does not show that it has the focus", sel, text)
			}
			return
		}
	}
	p.t.Fatalf("the Tab key does not reach %s %q", sel, text)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `\'`) + "'" }

// A person without a mouse starts a session, allows a call, sends a prompt, reviews the change, comments on it, and
// opens every screen.
func TestKeyboardOnly(t *testing.T) {
	r := newRig(t,
		parleytest.Call("Write", `{"file_path": "notes.txt", "content": "one\ntwo\n"}`),
		parleytest.Expect(parleytest.ToolResult("")).Say("First."),
		parleytest.Expect(parleytest.LastUser("and now")).Say("Second."),
		parleytest.Expect(parleytest.LastUser("Say 2.")).Say("Third."),
	)
	p := open(t, r.link(serve.ScopeAdmin))
	p.shows("h2", "Ready")
	p.tab("#new", "")
	p.key("\r")
	p.tab("form.new [name=cwd]", "")
	p.key(r.dir)
	p.tab("form.new [name=prompt]", "")
	p.key("Write notes.")
	p.tab("form.new button", "")
	p.key("\r")
	p.shows(".approval h3", "May it use Write?")
	p.ready()
	p.key("y")
	p.shows(".answer", "First.")
	if _, err := os.Stat(filepath.Join(r.dir, "notes.txt")); err != nil {
		t.Error(err)
	}
	p.tab("#prompt", "")
	p.key("and now\r")
	p.shows(".answer:last-of-type", "Second.")
	p.shows(".phase", "Ready")
	p.tab(".bar nav button", "Changes")
	p.key("\r")
	p.tab("button.number", "1")
	p.key("\r")
	p.until("document.querySelector('.comment textarea')")
	p.tab(".comment textarea", "")
	p.key("Say 2.")
	p.tab("#send-comments", "Send")
	p.key("\r")
	p.shows(".answer:last-of-type", "Third.")
	for _, screen := range []string{"cost", "schedules", "devices", "audit", "settings"} {
		p.tab("header a[href='#/"+screen+"']", "")
		p.key("\r")
		p.until("location.hash === '#/%s' && document.querySelector('main').childElementCount > 0", screen)
	}
}

// The calls of a subagent are a tree below the call that started it, with their state.
func TestSubagentTree(t *testing.T) {
	r := newRig(t,
		parleytest.Call("Agent", `{"description": "Look around", "prompt": "Look.", "subagent_type": "general-purpose", "run_in_background": false}`),
		parleytest.Expect(parleytest.LastUser("Look.")).Call("TodoWrite", `{"todos": []}`),
		parleytest.Expect(parleytest.ToolResult("")).Call("Bash", `{"command": "touch made"}`),
		parleytest.Say("There is a file."),
		parleytest.Expect(parleytest.ToolResult("There is a file.")).Say("It looked."),
	)
	r.create("Tree", "Send somebody.")
	p := open(t, r.link(serve.ScopeAdmin))
	p.enter()
	p.ready()
	p.shows(".approval .facts", "a subagent")
	p.click(".tool summary")
	p.shows(".tool > .children .tool.waits", "touch made")
	p.shot("subagent")
	p.key("y")
	p.shows(".answer", "It looked.")
	p.shows(".tool > .children .tool.done", "touch made")
	p.shows(".tool.done > summary", "Look around")
}

// The page has what a browser needs to install it: a manifest, which is read without the cookie, and an icon.
func TestInstallable(t *testing.T) {
	r := newRig(t)
	p := open(t, r.link(serve.ScopeAdmin))
	p.shows("h2", "Ready")
	eval[any](p, `void (async () => {
		const at = document.querySelector('link[rel=manifest]').href, r = await fetch(at, {credentials: 'omit'}), m = await r.json();
		const icon = new Image(); icon.src = new URL(m.icons[0].src, at); await icon.decode();
		window.installed = [r.headers.get('content-type').split(';')[0], m.name, m.display, new URL(m.start_url, at).pathname, icon.width > 0].join(' ');
	})().catch(e => { window.installed = String(e); })`)
	p.until("window.installed")
	if got, want := eval[string](p, "window.installed"), "application/manifest+json Parley standalone / true"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
