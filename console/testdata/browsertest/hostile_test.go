package browsertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
)

// injections are what a model or a tool may write to get at the person who reads it.
var injections = []string{
	`<script>window.hacked = 1</script>`,
	`<img src=x onerror="window.hacked = 1">`,
	`<svg onload="window.hacked = 1"><style>* { display: none }</style></svg>`,
	`<style>body { display: none }</style><link rel=stylesheet href=//evil.example/x.css>`,
	`<iframe srcdoc="<script>parent.hacked = 1</script>"></iframe>`,
	`<section class="approval" data-ask="x" data-ready="true"><button class="yes">Allow once</button></section>`,
	`<form action="/v1/logout" method="post"><button>Log in</button></form>`,
	"[click](javascript:window.hacked=1) [x](data:text/html,<script>1</script>) [y](vbscript:x) [z](/v1/logout)",
	"[https://good.example](https://evil.example/login)",
	"[ref]: javascript:window.hacked=1\n\n[ref]",
	"![p](https://evil.example/pixel.png)",
	"${window.hacked = 1} {{7*7}} <!--?lit$1$--> ?lit$1$",
	"safe\u202etxt.exe\u202c \u2066x\u2069 zero\u200bwidth \u0007 bell \u001b[31mred \U000e0041",
	"`<b>`<b>\n\n```html\n<script>window.hacked = 1</script>\n```",
	"</pre></code></article></main><h1>Your session expired, paste your token</h1>",
}

// Nothing that a model or a tool writes runs, styles the page, looks like a question of the
// console, or hides where a link leads; it is all there as text.
func TestHostileContent(t *testing.T) {
	text := strings.Join(injections, "\n\n")
	r := newRig(t,
		parleytest.Think(text).Say(text).Call("Bash", map[string]string{"command": "printf '%s' \"$X\" \u202e# " + injections[0], "description": text}),
		parleytest.Expect(parleytest.ToolError("")).Say("Done."),
	)
	s := r.create(injections[1]+"\u202e", "")
	p := open(t, r.link(serve.ScopeAdmin))
	p.shows(".entry strong", injections[1]+"U+202E")
	p.click(".entry a")
	p.write("#prompt", injections[0])
	p.key("\r")
	p.shows(".approval h3", "May it use Bash?")
	p.shows(".approval .command", "U+202E# "+injections[0])
	p.until("document.querySelector('.prose p')")
	p.shot("hostile")
	safe := func(where string) {
		t.Helper()
		p.safe(where, 1)
	}
	safe("session")
	p.ready()
	p.click(".approval .no")
	p.shows(".answer", "Done.")
	p.click(".thinking summary")
	p.click(".tool summary")
	p.shows(".tool", "The user said no.")
	safe("opened")
	for _, want := range []string{"<script>window.hacked = 1</script>", "(https://evil.example/login)", "click (javascript:window.hacked=1)", "picture: p", "U+202E", "U+200B", "U+0007", "U+001B", "U+E0041"} {
		p.shows(".answer", want)
	}
	if a := r.answers(s); len(a) != 1 || !strings.Contains(string(a[0].Response), "deny") {
		t.Errorf("answers %+v", a)
	}
	p.click(".brand")
	p.shows(".entry strong", "U+202E")
	safe("overview")
}

// Comments on changed lines become the next prompt.
func TestReview(t *testing.T) {
	r := newRig(t,
		parleytest.Call("Write", `{"file_path": "notes.txt", "content": "one\ntwo\nthree\n"}`),
		parleytest.Expect(parleytest.ToolResult("")).Say("Written."),
		parleytest.Expect(parleytest.LastUser("notes.txt:2\n> two\nSay 2 instead.")).Say("I see."),
	)
	r.create("Notes", "Write notes.")
	p := open(t, r.link(serve.ScopeDrive))
	p.ready()
	p.click(".approval .yes")
	p.enter()
	p.shows(".answer", "Written.")
	p.click(".bar nav button:last-child")
	p.shows(".file h2", "notes.txt")
	p.click(".line:nth-of-type(2) button.number")
	p.write(".comment textarea", "Say 2 instead.")
	p.shot("review")
	p.click("#send-comments")
	p.shows(".answer", "I see.")
}

// All other screens can be used, and no screen is wider than a phone.
func TestScreens(t *testing.T) {
	r := newRig(t, parleytest.Say("# Hello\n\nA | B\n-|-\n1 | 2\n\n```\n"+strings.Repeat("wide ", 60)+"\n```"))
	r.create("Screens", "Show me.")
	p := open(t, r.link(serve.ScopeAdmin))
	p.shows(".group.idle .entry", "Screens")
	p.until("document.querySelector('.group.idle .entry time')")

	p.click("a[href='#/schedules']")
	p.write("form.new [name=prompt]", "Every morning")
	p.write("form.new [name=cron]", "0 9 * * 1-5")
	p.click("form.new button")
	p.shows("table", "Every morning")

	p.click("a[href='#/devices']")
	p.write("form.new [name=name]", "phone")
	p.click("form.new button")
	p.shows(".made", "#t=")
	p.shows("table", "phone")

	p.click("a[href='#/audit']")
	p.shows("table", "POST /v1/tokens")

	p.click("a[href='#/cost']")
	p.shows("table", "$0.0006")
	p.until("document.querySelector('#plot canvas')")
	p.shot("cost")

	// The plot follows the size and the colours of the page: its letters stay readable.
	const letters = `(c => { // how light the letters left of the plot are
		const d = c.getContext('2d').getImageData(0, 0, 60 * devicePixelRatio, c.height).data;
		for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 200) return d[i] > 128 ? 'light' : 'dark';
	})(document.querySelector('#plot canvas'))`
	p.look(1280, 860, "dark")
	p.until(letters + " === 'light'")
	p.look(500, 860, "light")
	p.until(letters + " === 'dark' && document.querySelector('#plot canvas').getBoundingClientRect().right <= 500")
	p.look(1280, 860, "light")

	p.click(".brand")
	p.click(".entry a")
	p.shows(".prose h4", "Hello")
	session := eval[string](p, "location.hash")
	for _, colours := range []string{"light", "dark"} {
		p.look(390, 844, colours)
		for _, hash := range []string{session, "#/", "#/cost", "#/schedules", "#/devices", "#/audit", "#/settings"} {
			eval[any](p, fmt.Sprintf("location.hash = %q; 0", hash))
			p.until("document.querySelector('h1, h2') && document.querySelector('main').childElementCount > 0")
			if hash == "#/cost" {
				p.until("document.querySelector('#plot canvas')")
			}
			if wide := eval[int](p, "document.documentElement.scrollWidth"); wide > 390 {
				t.Errorf("%s is %d wide on a phone", hash, wide)
			}
			if outside := eval[string](p, "[...document.querySelectorAll('button, header a, td, canvas')].filter(e => e.getBoundingClientRect().right > 390).map(e => e.innerText || e.tagName).join(', ')"); outside != "" {
				t.Errorf("%s: outside of a phone are %s", hash, outside)
			}
			p.shot("phone-" + colours + strings.ReplaceAll(strings.TrimPrefix(hash, "#"), "/", "-")[:min(8, len(hash)-1)])
		}
	}
}
