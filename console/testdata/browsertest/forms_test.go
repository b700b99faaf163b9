package browsertest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
	"github.com/parley-go/parley/wire"
)

// form is what the MCP server of the test asks for: every kind of field that the protocol has.
const form = `{"type": "object", "required": ["name", "size"], "properties": {
	"name": {"type": "string", "title": "Name <b>", "description": "of the \u202erelease", "minLength": 2},
	"mail": {"type": "string", "format": "email"},
	"count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
	"draft": {"type": "boolean", "default": true},
	"size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
	"colour": {"type": "string", "enum": ["red", "blue"], "enumNames": ["Red", "Blue"]},
	"parts": {"type": "array", "items": {"type": "string", "enum": ["docs", "code"]}}
}}`

// formServer is an MCP server whose tool asks the user to fill in the form, or to open a page,
// and returns the answer.
func formServer(t *testing.T) *wire.MCPServerConfig {
	s := mcp.NewServer(&mcp.Implementation{Name: "forms", Version: "1"}, nil)
	add := func(name string, ask *mcp.ElicitParams) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			a, err := r.Session.Elicit(ctx, ask)
			if err != nil {
				return nil, err
			}
			text, err := json.Marshal(a.Content)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Action + " " + string(text)}}}, err
		})
	}
	add("fill", &mcp.ElicitParams{Message: "Fill it in: <img src=x onerror=alert(1)>", RequestedSchema: json.RawMessage(form)})
	add("again", &mcp.ElicitParams{Message: "And again?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"why":{"type":"string"}}}`)})
	add("login", &mcp.ElicitParams{Mode: "url", ElicitationID: "e1", URL: "https://login.example/start?a=1", Message: "Log in, please. <a href=//evil.example>here</a>"})
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return &wire.MCPServerConfig{Type: "http", URL: srv.URL}
}

// A person fills in the form of an MCP server, declines another one, answers the questions of
// the model, and approves a plan together with its edits.
func TestForms(t *testing.T) {
	r := newRig(t,
		parleytest.Call("mcp__forms__fill", `{}`),
		parleytest.Expect(parleytest.ToolResult("accept")).Call("mcp__forms__again", `{}`),
		parleytest.Expect(parleytest.ToolResult("decline")).Call("AskUserQuestion", `{"questions": [
			{"question": "Which colour?", "header": "Colour", "multiSelect": false, "options": [{"label": "Red", "description": "like fire", "preview": "<b>red</b>"}, {"label": "Blue", "description": "like water"}]},
			{"question": "Which parts?", "header": "Parts", "multiSelect": true, "options": [{"label": "Docs", "description": ""}, {"label": "Code", "description": ""}]}]}`),
		parleytest.Expect(parleytest.ToolResult("Green")).Say("Thanks."),
		parleytest.Call("ExitPlanMode", `{"plan": "# The plan\n\n1. Write **notes**."}`),
		parleytest.Expect(parleytest.ToolResult("")).Call("Write", `{"file_path": "notes.txt", "content": "x"}`),
		parleytest.Say("All done."),
	)
	r.servers, r.allowed = map[string]*wire.MCPServerConfig{"forms": formServer(t)}, []string{"mcp__forms__fill", "mcp__forms__again"}
	s := r.create("Forms", "")
	p := open(t, r.link(serve.ScopeDrive))
	p.enter()
	p.until("document.querySelector('#prompt')")
	p.write("#prompt", "Go.")
	p.key("\r")

	// The form: what is required has to be there, and what is shown is what is sent.
	p.shows(".approval h3", "The MCP server forms asks")
	p.shows(".approval", "Fill it in: <img src=x onerror=alert(1)>")
	p.shows(".approval", "U+202E")
	p.ready()
	p.click(".approval .yes")
	p.until("document.activeElement.matches('.fields input:invalid')")
	p.write(".fields input:invalid", "Two\t")
	p.click(".approval .yes")
	p.until("document.activeElement.matches('.fields select:invalid')")
	if a := r.answers(s); len(a) != 0 {
		t.Fatalf("a form that is not complete was sent: %s", a[0].Response)
	}
	p.key("Large\t")
	p.until("document.querySelector('.fields input[type=number]').value === '3'")
	eval[any](p, "document.querySelector('.fields input[type=number]').select(); 0")
	p.write(".fields input[type=number]", "\b4\t")
	eval[any](p, "for (const b of document.querySelectorAll('.fields input[type=checkbox]')) b.click(); 0")
	p.accessible("elicitation")
	p.look(390, 844, "light")
	if wide := eval[float64](p, "Math.max(...[...document.querySelectorAll('.approval *')].map(e => e.getBoundingClientRect().right))"); wide > 390 {
		t.Errorf("the form is %v wide on a phone", wide)
	}
	p.look(1280, 860, "light")
	p.accept()

	p.gone(".fields select")
	const want = `{"action":"accept","content":{"count":4,"draft":false,"name":"Two","parts":["docs","code"],"size":"l"}}`
	if a := r.answers(s); len(a) != 1 || !sameJSON(string(a[0].Response), want) {
		t.Fatalf("the answers are %+v, want %s", a, want)
	}

	// Another one, by a key.
	p.shows(".approval", "And again?")
	p.ready()
	p.key("n")

	// Questions: each needs an answer; another answer takes the place of a choice.
	p.shows(".approval legend", "Which colour?")
	p.ready()
	p.click(".approval .yes")
	p.shows("#notice, [role=alert], [role=status]", "Answer every question first.")
	eval[any](p, "document.querySelectorAll('.option input')[0].click(); 0")
	p.write(".approval fieldset:nth-of-type(1) .other", "Green")
	p.until("!document.querySelector('.option input[type=radio]:checked')")
	eval[any](p, "for (const b of document.querySelectorAll('.option input[type=checkbox]')) b.click(); 0")
	p.accessible("questions")
	p.accept()

	// The plan, with its edits.
	p.shows(".answer", "Thanks.")
	eval[any](p, `(m => { m.value = 'plan'; m.dispatchEvent(new Event('change', {bubbles: true})); })([...document.querySelectorAll('select')].find(s => [...s.options].some(o => o.value === 'plan'))); 0`)
	p.write("#prompt", "Plan it.")
	p.key("\r")
	p.shows(".approval h3", "Carry out this plan?")
	p.shows(".approval strong", "notes")
	p.ready()
	p.accessible("plan")
	eval[any](p, "document.querySelector('.approval').focus(); 0") // the prompt has it
	p.key("Y")
	p.shows(".answer", "All done.")
	if _, err := os.Stat(filepath.Join(r.dir, "notes.txt")); err != nil {
		t.Error(err)
	}
	if a := r.answers(s); len(a) != 4 {
		t.Errorf("%d answers, want 4", len(a))
	}
}

// sameJSON reports whether two values differ in order only.
func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// accept clicks the first answer of a card, which may be moving: the size of the page changed.
func (p *page) accept() {
	p.t.Helper()
	p.ready()
	eval[any](p, "document.querySelector('.approval .yes').click(); 0")
}
