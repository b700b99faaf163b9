package parleytest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestSetAside checks that a request is rejected and read alike if its tools are set aside
// and if they are not, which is so with a space before the colon.
func TestSetAside(t *testing.T) {
	bodies := []string{
		tool(`{"name":"a","input_schema":{"type":"object"}}`),
		tool(`{"name":"a","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}`, `"tool_choice":{"type":"tool","name":"b"}`),
		tool(`{"name":"\ud83d","input_schema":{"type":"object"}}`),
		tool(`{"name":"a","input_schema":{"tools":[{"name":"b"}]}}`),
		tool(`{"name":"a","input_schema":{"type":"object"}},7`),
		tool(`{"name":"a","input_schema":{"type":"object"}}`) + "}",
		tool(`{"name":"a","input_schema":{"type":"object"}}`, `"tools":[{"name":"b","input_schema":{"type":"object"}}]`),
		tool(`{"name":"a","input_schema":{"type":"object"}}`, `"tools":7`),
		tool(asideTool),
		tool("") + " ",
		`{"tools":[{"name":"a"`,
		`{"tools":7}`,
		`{"metadata":{"tools":[{"name":"a"}]},"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`,
		`{"metadata":{"tools":[{"name":"a"}]},"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"b","input_schema":{}}]}`,
		`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"hi","tools":[]}]}],"tools":[]}`,
		`["tools":[{"name":"a"}]]`,
	}
	for _, rule := range Rules() {
		if _, body := rule.Breaks(); len(body) < 10_000 {
			bodies = append(bodies, string(body))
		}
	}
	read := func(body string) (*checked, *Refusal, string) {
		r := &Request{Header: goodHeader(), Body: []byte(body), view: new(view)}
		c := &checked{r: r, http: true, memory: new(memory)}
		refused := c.refuse()
		data, err := json.Marshal(r.parse())
		as := fmt.Sprintf("%s %v", data, err)
		for _, tool := range r.parse().Tools {
			as += " " + string(tool.raw)
		}
		return c, refused, strings.ReplaceAll(as, `"tools" :`, `"tools":`)
	}
	used := 0
	for _, body := range bodies {
		_, want, slow := read(strings.ReplaceAll(body, `"tools":`, `"tools" :`))
		for range 2 { // the second time the list is known
			c, got, fast := read(body)
			if string(c.rest) != body {
				used++
			}
			if want != nil && got != nil && want.Rule == "surrogates" {
				got.Message, want.Message = "", "" // it has the column
			}
			if !reflect.DeepEqual(got, want) || fast != slow {
				t.Errorf("%s\nis rejected by %v and read as %s,\nwith a space by %v and as %s", body, got, fast, want, slow)
			}
		}
	}
	if used < 8 {
		t.Errorf("tools were set aside %d times", used)
	}
}
