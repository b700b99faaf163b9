package browsertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
	"github.com/parley-go/parley/session"
)

// longSession writes the journal of a session with n messages of different heights, whose
// last one but one is the result of a tool with many lines.
func (r *rig) longSession(n int) string {
	r.t.Helper()
	id := session.NewID()
	var entries []hub.Entry
	add := func(kind hub.Kind, record string, data any) {
		line, err := json.Marshal(data)
		if err != nil {
			r.t.Fatal(err)
		}
		entries = append(entries, hub.Entry{N: uint64(len(entries) + 1), Kind: kind, Time: time.Now(), Record: record, Data: line})
	}
	say := func(i int, role string, content any) {
		uuid := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		add(hub.KindFrame, uuid, map[string]any{"type": role, "uuid": uuid, "message": map[string]any{"id": "m" + uuid, "role": role, "content": content}})
	}
	add(hub.KindCreated, "", map[string]any{"by": map[string]string{"name": "test"}, "cwd": r.dir, "session": id, "title": "Long"})
	for i := range n - 2 {
		text := fmt.Sprintf("message %d.%s", i, strings.Repeat("\n\nA paragraph of it, which is long enough to need more than one line on a phone.", i*7%5))
		say(i, []string{"user", "assistant"}[i%2], []map[string]string{{"type": "text", "text": text}})
	}
	say(n-2, "assistant", []map[string]any{{"type": "tool_use", "id": "t1", "name": "Bash", "input": map[string]string{"command": "seq 20000"}}})
	say(n-1, "user", []map[string]any{{"type": "tool_result", "tool_use_id": "t1", "content": strings.Repeat("a line of output\n", 20_000)}})
	add(hub.KindFrame, "", map[string]string{"type": "result", "subtype": "success"})
	if err := r.backend.Append(r.t.Context(), id, 0, entries); err != nil {
		r.t.Fatal(err)
	}
	return id
}

// middle is the number of the message in the middle of the conversation, -1 if there is none
// because the page shows nothing there.
const middle = `(() => {
	const box = document.querySelector('.timeline').getBoundingClientRect();
	for (const item of document.querySelectorAll('.timeline > .item')) {
		const r = item.getBoundingClientRect();
		if (r.top <= box.top + box.height / 2 && r.bottom >= box.top + box.height / 2) return Number(/message (\d+)/.exec(item.innerText)?.[1] ?? 9999);
	}
	return -1;
})()`

// A session with 10,000 messages has only those near the screen in the page. It opens at the
// end, scrolls to the beginning and back without gaps and jumps, and folds a large output.
func TestTenThousandMessages(t *testing.T) {
	r := newRig(t, parleytest.Say("A new message"), parleytest.Say("One more"))
	id := r.longSession(10_000)
	p := open(t, r.link(serve.ScopeView))
	p.shows(".entry", "Long")
	p.click(".entry a")
	p.shows(".timeline", "message 9997.")
	p.until("document.querySelector('.tool') && document.querySelector('.turn')")
	small := func(where string) {
		t.Helper()
		if items, nodes := eval[int](p, "document.querySelectorAll('.timeline > .item').length"), eval[int](p, "document.querySelectorAll('*').length"); items > 120 || nodes > 3000 {
			t.Errorf("%s: %d messages and %d elements are in the page", where, items, nodes)
		} else {
			t.Logf("%s: %d messages, %d elements", where, items, nodes)
		}
	}
	const atEnd = "(t => t.scrollHeight - t.scrollTop - t.clientHeight < 2)(document.querySelector('.timeline'))"
	p.until(atEnd)
	small("at the end")

	// A large output shows its beginning, and all of it on demand.
	p.click(".tool summary")
	p.shows(".tool button", "Show all")
	if n := eval[int](p, "document.querySelector('.tool').innerText.length"); n > 6000 {
		t.Errorf("a folded output has %d characters", n)
	}
	p.until(atEnd)
	p.click(".tool button.quiet")
	p.until("document.querySelector('.tool').innerText.length > 300000")
	p.until(atEnd)
	p.click(".tool button.quiet")
	p.until("document.querySelector('.tool').innerText.length < 6000")
	p.click(".tool summary")

	// Steps of about a page, as a wheel makes them: no gap, never in the other direction.
	scroll := func(by, steps int) []int {
		t.Helper()
		eval[any](p, fmt.Sprintf(`void (async () => {
			window.steps = null;
			const seen = [], box = document.querySelector('.timeline'), frame = () => new Promise(requestAnimationFrame);
			for (let i = 0; i < %d; i++) {
				box.scrollTop += %d;
				await frame(); await frame();
				seen.push(%s);
			}
			window.steps = seen;
		})()`, steps, by, middle))
		p.until("window.steps")
		return eval[[]int](p, "window.steps")
	}
	check := func(where string, list []int, down bool) {
		t.Helper()
		if slices.Contains(list, -1) {
			t.Errorf("%s: nothing is shown at times: %v", where, list)
		}
		for i := 1; i < len(list); i++ {
			if step := list[i] - list[i-1]; down && (step < 0 || step > 40) || !down && (step > 0 || step < -40) {
				t.Errorf("%s: from message %d to %d in a step of one page", where, list[i-1], list[i])
			}
		}
	}
	check("up", scroll(-500, 20), false)
	small("in the middle")
	check("down", scroll(500, 8), true)

	p.click(".timeline")
	for range 5 { // straight to the ends, wherever the heights of messages are not known yet
		p.key(kb.Home)
		p.until("document.querySelector('.timeline').scrollTop < 2")
		p.key(kb.End)
		p.until(atEnd)
	}
	p.key(kb.Home)
	p.shows(".timeline", "message 0.")
	p.until("document.querySelector('.timeline').scrollTop < 2")
	small("at the beginning")
	check("from the beginning", scroll(500, 20), true)

	// It stays there while others write, and follows them again at the end.
	before := eval[int](p, middle)
	r.prompt(r.hub.Session(id), "Go on.")
	p.until("document.querySelector('.session[data-phase=running]') || document.querySelector('.bar').innerText.includes('$')")
	if now := eval[int](p, middle); now != before {
		t.Errorf("the page moved from message %d to %d", before, now)
	}
	eval[any](p, "document.querySelector('.timeline').scrollTop = 1e9; 0")
	p.shows(".timeline", "A new message")
	p.until(atEnd)
	r.prompt(r.hub.Session(id), "Once more.")
	p.shows(".timeline", "One more")
	p.until(atEnd)
	small("at the end again")
}

// The first paint comes within 150 ms and within twice the time of a static page. The best
// of some attempts counts, and none if the machine is so busy that a static page takes long, too.
func TestFirstPaint(t *testing.T) {
	r := newRig(t, parleytest.Say("Yes."))
	r.create("Fast", "Now.")
	static := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<!doctype html><html lang="en"><title>Static</title><link rel="icon" href="data:,"><h1>Static</h1><p>A page of text.</p>`)
	}))
	defer static.Close()
	// The browser paints only the page in front: each is opened, loaded some times and closed.
	first, ready := [2]float64{1e9, 1e9}, 1e9
	for range 8 {
		for i, url := range []string{r.link(serve.ScopeView), static.URL} {
			t.Run("load", func(t *testing.T) {
				p := open(t, url)
				for range 4 {
					p.until("!window.before && performance.getEntriesByName('first-contentful-paint').length && document.querySelector('.entry, h1')")
					first[i] = min(first[i], eval[float64](p, "performance.getEntriesByName('first-contentful-paint')[0].startTime"))
					if i == 0 {
						ready = min(ready, eval[float64](p, "performance.getEntriesByName('shown')[0].startTime"))
					}
					eval[any](p, "window.before = true; location.reload(); 0")
				}
				p.until("!window.before")
			})
		}
		if first[0] <= 150 && first[0] <= 2*first[1] {
			break
		}
	}
	t.Logf("first paint after %.0f ms, sessions after %.0f ms; a static page after %.0f ms", first[0], ready, first[1])
	if first[1] > 75 {
		t.Skip("the machine is too busy to measure: a static page takes more than 75 ms")
	}
	if first[0] > 2*first[1] || first[0] > 150 {
		t.Error("the first paint is late")
	}
}
