package browsertest

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/parley-go/parley/internal/malformed"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
)

// The page shows a session whatever its agent has sent: what comes behind an odd entry is there, and
// the page stays usable.
func TestMalformedEntries(t *testing.T) {
	r := newRig(t, parleytest.Say("Hello."))
	s := r.create("Odd", "")
	p := open(t, r.link(serve.ScopeAdmin))
	p.shows(".entry strong", "Odd")
	var entries []json.RawMessage
	n := 1000
	add := func(kind, data string) {
		n++
		entries = append(entries, fmt.Appendf(nil, `{"n":%d,"kind":%q,"time":"2026-01-01T00:00:00Z","data":%s}`, n, kind, data))
	}
	for i, line := range malformed.Messages() {
		if len(line) < 1000 && i%7 == 0 {
			add("frame", line)
		}
	}
	call := `{"type":"assistant","uuid":"u%s","parent_tool_use_id":%q,"message":{"id":"m%s","content":[{"type":"tool_use","id":%q,"name":"Bash","input":{}}]}}`
	add("frame", fmt.Sprintf(call, "1", "self", "1", "self"))
	add("frame", fmt.Sprintf(call, "2", "b", "2", "a"))
	add("frame", fmt.Sprintf(call, "3", "a", "3", "b"))
	for _, content := range []string{`5`, `{}`, `[null]`, `[{"type":"text","text":{}}]`, `[{"type":"text","text":[null]}]`, `[{"type":"thinking","thinking":7}]`, `[{"type":"tool_use","id":{},"name":[],"input":7}]`} {
		add("frame", `{"type":"assistant","message":{"content":`+content+`}}`)
		add("frame", `{"type":"user","uuid":{},"message":{"content":`+content+`},"tool_use_result":{"filePath":1,"structuredPatch":[null]}}`)
	}
	add("ask", `{"id":"q","kind":"choice","tool":"AskUserQuestion","request":{"input":{"questions":[null,5]}}}`)
	add("frame", `{"type":"assistant","uuid":"last","message":{"id":"last","content":[{"type":"text","text":"The last entry."}]}}`)
	data, err := json.Marshal(entries)
	if err != nil {
		t.Fatal(err)
	}
	p.until(`(window.odd ??= import('/session.js').then(({Session}) => {
		const root = document.createElement('div');
		document.body.append(root);
		const s = new Session(root, %q);
		for (const e of %s) s.model.add(e);
		s.draw();
		root.className = 'odd';
	})) && document.querySelector('.odd .timeline')?.textContent.includes('The last entry.')`, s.ID(), data)
	p.shows(".odd .asks", "A question that cannot be shown")
}
