package browsertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
)

// A person opens the link, starts a session, allows one command by a key, denies another
// with a reason, and reads the answer.
func TestStartApproveDeny(t *testing.T) {
	r := newRig(t,
		parleytest.Say("I **make** it.").Call("Bash", map[string]string{"command": "mkdir made && touch made/file", "description": "Make a directory"}),
		parleytest.Expect(parleytest.ToolResult("")).Say("Now I remove it.").Call("Bash", map[string]string{"command": "rm -rf made"}),
		parleytest.Expect(parleytest.ToolError("keep the directory")).Say("It stays, with `made/file` in it."),
	)
	p := open(t, r.link(serve.ScopeAdmin))
	p.shows("h2", "Ready")
	if at := eval[string](p, "location.href"); strings.Contains(at, "t=") {
		t.Errorf("the token is still in the address %s", at)
	}
	p.click("#new")
	p.write("form.new [name=cwd]", r.dir)
	p.write("form.new [name=prompt]", "Make a directory and tidy up.")
	p.click("form.new button")
	p.shows(".approval h3", "May it use Bash?")
	p.shows(".approval .command", "mkdir made && touch made/file")
	p.shows(".approval .facts", "Bash(mkdir made")
	p.shows(".prose strong", "make")
	p.ready()
	p.shot("approval")
	p.key("y")
	p.shows(".approval .command", "rm -rf made")
	if _, err := os.Stat(filepath.Join(r.dir, "made", "file")); err != nil {
		t.Error(err)
	}
	p.ready()
	p.key("N")
	p.until(`document.activeElement.id.startsWith('reason-')`)
	p.key("keep the directory yes\r") // y, n and others are text here
	p.shows(".answer code", "made/file")
	p.gone(".approval")
	p.shows(".phase", "Ready")
	p.shows(".turn", "Turn 1")
	if _, err := os.Stat(filepath.Join(r.dir, "made")); err != nil {
		t.Error(err)
	}
	p.shot("session")
	p.click(".brand")
	p.shows(".group.idle .entry", r.dir)
	p.write("#search", "TIDY up")
	p.shows(".match", "Make a directory and tidy up.")
	p.shot("overview")
}

// Text streams in, a prompt queues behind it and is taken back, and the turn is interrupted.
func TestStreamAndInterrupt(t *testing.T) {
	r := newRig(t, parleytest.Say("Once upon a time", "the end").Stall().After(3), parleytest.Say("Yes."))
	s := r.create("Stories", "")
	p := open(t, r.link(serve.ScopeDrive))
	p.shows(".group.idle .entry", "Stories")
	p.click(".entry a")
	p.until("document.querySelector('.session[data-phase=idle]') && !document.title.startsWith('Session')") // it is attached
	p.write("#prompt", "Tell me a story.\r")
	p.shows(".answer.live", "Once upon a time")
	p.shows(".phase", "Working")
	p.write("#prompt", "Shorter, please.\r")
	p.shows(".said .tag", "waits")
	p.shot("streaming")
	p.click(".said button")
	p.shows(".said .tag", "dropped")
	p.click("#interrupt")
	p.shows(".phase", "Ready")
	p.shows(".note", "Interrupted by my drive")
	p.write("#prompt", "Are you there?\r")
	p.shows(".answer:not(.live)", "Yes.")
	if info, _, err := s.Info(t.Context(), me); err != nil || info.State.Phase != hub.Idle {
		t.Errorf("the session is %+v, %v", info, err)
	}
}

// The network fails in the middle and returns: the banner shows and goes, every entry is
// there once, and the draft survives that and a reload.
func TestReconnect(t *testing.T) {
	var turns []*parleytest.Turn
	for i := range 12 {
		turns = append(turns, parleytest.Say(fmt.Sprintf("answer %d", i)))
	}
	r := newRig(t, turns...)
	s := r.create("Network", "prompt 0")
	p := open(t, r.link(serve.ScopeDrive))
	p.enter()
	p.shows(".answer:not(.live)", "answer 0")
	p.write("#prompt", "a draft")
	for i := 1; i < 12; i++ {
		switch i {
		case 3:
			r.proxy.cut(true)
			p.until("!document.getElementById('banner').hidden")
			p.shot("banner")
		case 6:
			r.proxy.cut(false)
		case 8:
			r.proxy.cut(false) // for a moment only
		}
		r.prompt(s, fmt.Sprintf("prompt %d", i))
	}
	p.shows(".answer:not(.live)", "answer 11")
	p.until("document.getElementById('banner').hidden")
	everything := func() {
		t.Helper()
		for i := range 12 {
			for _, text := range []string{fmt.Sprintf("prompt %d", i), fmt.Sprintf("answer %d", i)} {
				n := eval[int](p, fmt.Sprintf("[...document.querySelectorAll('.timeline .plain, .timeline .prose p')].filter(e => e.innerText.trim() === %q).length", text))
				if n != 1 {
					t.Errorf("%q is there %d times", text, n)
				}
			}
		}
	}
	p.look(1280, 4000, "light") // all of it is on the screen
	p.until("document.querySelectorAll('.turn').length === 12 && document.querySelectorAll('.prose p').length === 12")
	everything()
	p.do(chromedp.Reload())
	p.until("document.querySelectorAll('.turn').length === 12 && document.querySelectorAll('.prose p').length === 12")
	everything()
	p.until("document.getElementById('prompt').value === 'a draft'")
}

// Two browsers are in step: what one answers is gone in the other, which learns by whom. A
// token that may only watch has no buttons, and one that is revoked has nothing.
func TestTwoBrowsers(t *testing.T) {
	r := newRig(t, parleytest.Call("Bash", map[string]string{"command": "touch x"}), parleytest.Expect(parleytest.ToolResult("")).Say("Done."))
	s := r.create("Shared", "Touch it.")
	one, two := open(t, r.link(serve.ScopeApprove)), open(t, r.link(serve.ScopeView))
	one.ready() // on the overview
	two.enter()
	two.shows(".approval", "Your token may only watch.")
	two.key("y")
	if two.gone("#prompt, .approval button"); len(r.answers(s)) != 0 {
		t.Fatal("a viewer has answered")
	}
	one.click(".approval .yes")
	two.shows(".answer", "Done.")
	two.gone(".approval")
	one.gone(".approval")
	two.click(".tool summary")
	two.shows(".tool", "Allowed by my approve")
	for _, tok := range r.server.Tokens() {
		if tok.Scope == serve.ScopeView {
			admin := open(t, r.link(serve.ScopeAdmin))
			admin.click("a[href='#/devices']")
			admin.shows("table", "my view")
			eval[any](admin, "[...document.querySelectorAll('tr')].find(r => r.innerText.includes('my view')).querySelector('button').click()")
			admin.until("!document.querySelector('table').innerText.includes('my view')")
		}
	}
	two.shows("form.login", "Token")
}

// A session whose agent is on another machine and away says so, in the list and on its own page.
func TestAgentAway(t *testing.T) {
	r := newRig(t)
	s, err := r.hub.Create(t.Context(), me, hub.Spec{Cwd: r.dir, Title: "Far", Agent: hub.Args{Remote: "builder"}.Spec()})
	if err != nil {
		t.Fatal(err)
	}
	r.prompt(s, "Hello.")
	p := open(t, r.link(serve.ScopeView))
	p.shows(".entry .away", "Waiting for the agent builder, away since")
	p.click(".entry a")
	p.shows(".session .away", "Waiting for the agent builder, away since")
}
