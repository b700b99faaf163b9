package browsertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
)

// png is the smallest picture.
const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// A person changes mode and model, adds a picture and a file to a prompt, picks a command,
// forks the session and goes back in it.
func TestControls(t *testing.T) {
	r := newRig(t, parleytest.Say("One."), parleytest.Say("Two."), parleytest.Say("Three."), parleytest.Say("Four."))
	s := r.create("Controls", "First prompt.")
	p := open(t, r.link(serve.ScopeAdmin))
	p.enter()
	p.shows(".answer:not(.live)", "One.")
	p.shows(".phase", "Ready")

	p.write("#mode", "acc")
	p.shows(".note", "Mode acceptEdits, set by my admin")
	eval[any](p, "document.getElementById('model').select(); 0")
	p.key("haiku\r")
	p.shows(".note", "Model haiku, set by my admin")

	// A picture is pasted, another one dropped, and a file chosen; one of them is removed.
	eval[any](p, fmt.Sprintf(`(() => {
		const bytes = Uint8Array.from(atob(%q), c => c.charCodeAt(0)), of = (...list) => { const d = new DataTransfer(); for (const f of list) d.items.add(f); return d; };
		const box = document.getElementById('prompt');
		box.dispatchEvent(new ClipboardEvent('paste', {clipboardData: of(new File([bytes], 'pasted.png', {type: 'image/png'})), bubbles: true}));
		box.dispatchEvent(new DragEvent('drop', {dataTransfer: of(new File([bytes], 'dropped.png', {type: 'image/png'})), bubbles: true, cancelable: true}));
		const input = document.querySelector('.attach input');
		input.files = of(new File(['read me'], 'notes.txt', {type: 'text/plain'})).files;
		input.dispatchEvent(new Event('change'));
	})()`, png))
	p.until("document.querySelectorAll('.composer .commands button').length === 3")
	p.click(".commands [aria-label='Remove dropped.png']")
	p.until("document.querySelectorAll('.composer .commands button').length === 2")
	p.write("#prompt", "What is in it?\r")
	p.shows(".answer:not(.live)", "Two.")
	p.gone(".composer .commands")
	var sent string
	for e, err := range s.Entries(t.Context(), me, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == hub.KindPrompt {
			sent = string(e.Data)
		}
	}
	if !strings.Contains(sent, png) || !strings.Contains(sent, "notes.txt:\\n\\nread me") || !strings.Contains(sent, "What is in it?") || strings.Count(sent, `"image"`) != 1 {
		t.Errorf("the prompt is %s", sent)
	}

	// Commands of the agent are offered, and one is picked.
	p.write("#prompt", "/comp")
	p.until("(b => b?.innerText === '/compact' && (b.click(), true))(document.querySelector('.commands button'))") // it moves while the list gets shorter
	p.until("document.getElementById('prompt').value === '/compact '")
	eval[any](p, "(b => { b.value = ''; b.dispatchEvent(new Event('input')); })(document.getElementById('prompt'))")

	// A fork at the end of the first turn has that turn only.
	before := eval[string](p, "location.hash")
	p.click(".turn button")
	p.until("location.hash !== %q && location.hash.startsWith('#/s/')", before)
	p.shows(".note", "A copy of another session")
	p.shows(".answer:not(.live)", "One.")
	if eval[bool](p, "document.querySelector('.timeline').innerText.includes('Two.')") {
		t.Error("the fork has what came behind it")
	}

	// The first session goes back to the end of its first turn and continues there.
	eval[any](p, fmt.Sprintf("location.hash = %q; 0", before))
	p.shows(".answer:not(.live)", "Two.")
	p.click(".turn button:last-child")
	p.shows("#notice", "The next prompt continues from there.")
	p.write("#prompt", "Again.\r")
	p.shows(".answer:not(.live)", "Three.")
	p.shows(".note", "went back")
}

// A person turns notifications on and off, and asks what the rules make of a command.
func TestSettings(t *testing.T) {
	received := make(chan string, 10)
	service := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		received <- r.URL.Path
		w.WriteHeader(http.StatusCreated)
	}))
	defer service.Close()
	r := newRigWith(t, func(c *serve.Config) {
		c.PushClient = service.Client()
		c.Rules = func(cwd string, q *serve.RulesQuery) (serve.Rules, error) {
			out := serve.Rules{Mode: "default", Rules: []serve.Rule{{Behavior: "deny", Rule: "Bash(git push:*)", Source: cwd + "/.claude/settings.json:3"}}}
			if q.Tool != "" {
				out.Explanation = fmt.Sprintf("deny: the rule of %s about %s", q.Tool, q.Input)
			}
			return out, nil
		}
	}, parleytest.Call("Bash", map[string]string{"command": "touch x"}), parleytest.Expect(parleytest.ToolResult("")).Say("Done."))
	s := r.create("Watched", "")
	p := open(t, r.link(serve.ScopeAdmin))
	p.click("a[href='#/settings']")
	p.shows("#rules", "Bash(git push:*)")
	p.write("#explain [name=input]", "git push --force")
	p.click("#explain button")
	p.shows("#said", `deny: the rule of Bash about {"command":"git push --force"}`)
	p.accessible("settings")

	// The push service of a real browser is not reached in tests: what it would return is given.
	eval[any](p, fmt.Sprintf(`Notification.requestPermission = async () => 'granted'; window.endpoint = %q;
		PushManager.prototype.subscribe = async function(o) {
			if (!o.userVisibleOnly || o.applicationServerKey.length !== 65) throw new Error('options');
			const k = await crypto.subtle.exportKey('raw', (await crypto.subtle.generateKey({name: 'ECDH', namedCurve: 'P-256'}, true, ['deriveBits'])).publicKey);
			const text = b => btoa(String.fromCharCode(...new Uint8Array(b))).replace(/\+/g, '-').replace(/\//g, '_').replace(/=/g, '');
			return {toJSON: () => ({endpoint: window.endpoint, keys: {p256dh: text(k), auth: text(new Uint8Array(16))}})};
		}; 0`, service.URL+"/device"))
	p.click("#push button")
	p.shows("[aria-label=Subscriptions]", "a session asks, there is a problem")
	eval[any](p, "void navigator.serviceWorker.ready.then(r => { window.active = r.active.scriptURL; })")
	p.until("window.active?.endsWith('/push.js')")
	r.prompt(s, "Touch it.")
	if path := <-received; path != "/device" {
		t.Errorf("the push service received %s", path)
	}
	p.click("[aria-label=Subscriptions] button")
	p.gone("[aria-label=Subscriptions]")

	// The worker shows what it receives, as text, and a click opens the session.
	eval[any](p, `void fetch('/push.js').then(r => r.text()).then(t => { window.worker = t; })`)
	p.until("window.worker")
	source := eval[string](p, "window.worker")
	out := eval[string](p, `(() => {
		const on = {}, done = [], client = {postMessage: u => done.push(['open', new URL(u).hash]), focus: () => done.push(['focus'])};
		const self = {addEventListener: (n, f) => { on[n] = f; }, registration: {scope: location.origin + '/', showNotification: (title, o) => done.push(['show', title, o.body, o.tag])}, clients: {matchAll: async () => [client]}};
		`+source+`
		on.push({data: {json: () => ({event: 'ask', title: 'T', body: '<b>B', session: 'abc'})}, waitUntil() {}});
		on.notificationclick({notification: {close: () => done.push(['close']), data: 'abc'}, waitUntil() {}});
		window.did = done;
		return 'ok';
	})()`)
	p.until("window.did.length === 4")
	data, _ := json.Marshal(eval[[][]string](p, "window.did"))
	if want := `[["show","Needs attention: T","\u003cb\u003eB","abc"],["close"],["open","#/s/abc"],["focus"]]`; out != "ok" || string(data) != want {
		t.Errorf("the worker did %s, want %s", data, want)
	}
}
