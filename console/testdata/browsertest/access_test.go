package browsertest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
)

// axe is the program that looks for barriers. Without it the test fails: scripts/axe installs it.
var axe = sync.OnceValues(func() (string, error) {
	dir := os.Getenv("PARLEY_AXE")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(cache, "parley-axe")
	}
	data, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	return string(data), err
})

// accessible reports what axe-core finds to be serious or critical, on a desk and on a phone,
// in light and dark.
func (p *page) accessible(where string) {
	p.t.Helper()
	script, err := axe()
	if err != nil {
		p.t.Fatalf("axe-core is not installed, scripts/axe does: %v", err)
	}
	for _, look := range []struct {
		width, height int64
		colours       string
	}{{1280, 860, "light"}, {1280, 860, "dark"}, {390, 844, "light"}, {390, 844, "dark"}} {
		p.look(look.width, look.height, look.colours)
		eval[any](p, "window.axe || ("+strings.TrimRight(script, "; \n")+", 0); 0")
		eval[any](p, `window.found = null; void axe.run(document, {resultTypes: ['violations']}).then(r => {
			window.found = JSON.stringify(r.violations.filter(v => ['serious', 'critical'].includes(v.impact)).map(v => ({id: v.id, impact: v.impact, nodes: v.nodes.slice(0, 4).map(n => n.html + ' ' + n.failureSummary)})));
		}, e => { window.found = JSON.stringify([{id: String(e)}]); })`)
		p.until("window.found")
		var found []struct {
			ID, Impact string
			Nodes      []string
		}
		json.Unmarshal([]byte(eval[string](p, "window.found")), &found)
		for _, f := range found {
			p.t.Errorf("%s, %d wide, %s: %s %s:\n%s", where, look.width, look.colours, f.Impact, f.ID, strings.Join(f.Nodes, "\n"))
		}
		p.shot(fmt.Sprintf("%s-%d-%s", strings.ReplaceAll(where, " ", "-"), look.width, look.colours))
	}
	if os.Getenv("PARLEY_SHOTS") != "" {
		p.look(1920, 1080, "light")
		p.shot(strings.ReplaceAll(where, " ", "-") + "-1920-light")
	}
	p.look(1280, 860, "light")
}

// No screen has a serious barrier, with everything on it that can be there.
func TestAccessible(t *testing.T) {
	r := newRig(t,
		parleytest.Think("What is there?").Say("# A plan\n\nI **look**, see [the docs](https://example.com/docs).\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```go\nfunc main() {}\n```").
			Call("TodoWrite", `{"todos": [{"content": "Look", "status": "completed", "activeForm": "Looking"}, {"content": "Write", "status": "in_progress", "activeForm": "Writing"}]}`).
			Call("Write", `{"file_path": "notes.txt", "content": "one\ntwo\nthree\n"}`),
		parleytest.Expect(parleytest.ToolResult("")).Call("AskUserQuestion", `{"questions": [{"question": "Which colour?", "header": "Colour", "multiSelect": false, "options": [{"label": "Red", "description": "like fire"}, {"label": "Blue", "description": "like water"}]}]}`),
		parleytest.Say("Done, in blue."),
	)
	login := open(t, r.url)
	login.shows("form.login", "Token")
	login.accessible("login")

	r.create("Look at \u202eit", "Look around and write notes.")
	p := open(t, r.link(serve.ScopeAdmin))
	p.ready()
	p.click("#new")
	p.shows("form.new", "Directory")
	p.accessible("overview")
	p.enter()
	p.ready()
	p.click(".thinking summary")
	p.click(".tasks summary")
	p.until("document.querySelector('.prose table')")
	p.accessible("approval")
	p.click(".approval .yes")
	p.shows(".approval legend", "Which colour?")
	p.ready()
	p.accessible("question")
	eval[any](p, "[...document.querySelectorAll('.option input')].at(1).click(); 0")
	p.click(".approval .yes")
	p.shows(".answer", "Done, in blue.")
	p.shows(".phase", "Ready")
	p.until("document.querySelectorAll('.tool').length === 3")
	eval[any](p, "for (const s of document.querySelectorAll('.tool summary')) s.click(); 0")
	p.until("document.querySelector('.tool .diff')")
	p.accessible("session")
	p.click(".bar nav button:last-child")
	p.click(".line:nth-of-type(2) button.number")
	p.write(".comment textarea", "Say 2 instead.")
	p.accessible("review")

	p.click("a[href='#/schedules']")
	p.write("form.new [name=prompt]", "Every morning")
	p.write("form.new [name=cron]", "0 9 * * 1-5")
	p.click("form.new button")
	p.shows("table", "Every morning")
	p.accessible("schedules")
	p.click("a[href='#/devices']")
	p.write("form.new [name=name]", "phone")
	p.click("form.new button")
	p.shows(".made", "#t=")
	p.accessible("devices")
	p.click("a[href='#/audit']")
	p.shows("table", "POST /v1/tokens")
	p.accessible("audit log")
	p.click("a[href='#/cost']")
	p.until("document.querySelector('#plot canvas')")
	p.accessible("cost")
	r.proxy.cut(true)
	eval[any](p, "location.hash = '#/'; 0")
	p.until("!document.getElementById('banner').hidden")
	p.accessible("connection down")
	r.proxy.cut(false)
}
