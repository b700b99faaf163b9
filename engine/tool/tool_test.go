package tool_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const schema = `{"type":"object","properties":{
	"path":{"type":"string","minLength":1,"description":"The file. More of it"},
	"n":{"type":"integer","minimum":0,"maximum":10,"description":"x"},
	"f":{"type":"number","description":"x"},
	"b":{"type":"boolean","description":"x"},
	"mode":{"type":"string","enum":["one","two"],"description":"x"},
	"list":{"type":"array","minItems":1,"maxItems":2,"description":"x","items":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}
},"required":["path"]}`

func TestValidate(t *testing.T) {
	spec := &tool.Spec{Name: "Test", Schema: json.RawMessage(schema)}
	for input, want := range map[string]string{
		`{"path":"a"}`: "",
		`{"path":"a","n":3,"f":1.5,"b":true,"mode":"one","list":[{"name":"x"}]}`: "",
		`{"path":"a","n":"3","f":"1.5","b":"true"}`:                              "",
		`{"path":"a","n":3.0}`:                "",
		`{"path":"a","other":1}`:              "",
		``:                                    "The required parameter `path` is missing (The file)",
		`{}`:                                  "The required parameter `path` is missing (The file)",
		`{"file":"a"}`:                        "The required parameter `path` is missing (The file)\nThe parameter `file` is unknown",
		`{"path":1}`:                          "The parameter `path` must be a string, but a number was given",
		`{"path":null}`:                       "The parameter `path` must be a string, but null was given",
		`{"path":""}`:                         "The parameter `path` must not be empty",
		`{"path":"a","n":1.5}`:                "The parameter `n` must be an integer, but a number was given",
		`{"path":"a","n":"x"}`:                "The parameter `n` must be an integer, but a string was given",
		`{"path":"a","n":11}`:                 "The parameter `n` must be at most 10, but 11 was given",
		`{"path":"a","n":-1}`:                 "The parameter `n` must be at least 0, but -1 was given",
		`{"path":"a","b":"yes"}`:              "The parameter `b` must be a boolean, but a string was given",
		`{"path":"a","mode":"three"}`:         "The parameter `mode` must be one of \"one\", \"two\", but \"three\" was given",
		`{"path":"a","list":[]}`:              "The parameter `list` needs at least 1 items",
		`{"path":"a","list":[{},{"name":1}]}`: "The required parameter `list[0].name` is missing\nThe parameter `list[1].name` must be a string, but a number was given",
		`{"path":"a","list":[{"name":""},{},{}]}`: "The parameter `list` takes at most 2 items, but 3 were given",
		`[]`:                       "The input must be an object, but an array was given",
		`{"path":"a"`:              "is not JSON",
		`{"path":"a","path":"b"}`:  "is not JSON (",
		`{"PATH":"a"}`:             "The required parameter `path` is missing (The file)\nThe parameter `PATH` differs from `path` only in case",
		`{"path":"a","Path":"b"}`:  "The parameter `Path` differs from `path` only in case",
		`{"path":"a","x":1,"X":2}`: "The parameter `X` differs from `x` only in case\nThe parameter `x` differs from `X` only in case",
		`{"path":"a","list":[{"name":"","nAme":""}]}`: "The parameter `list[0].nAme` differs from `list[0].name` only in case",
		`{"path":"a","x":[{"y":{"k":1,"\u212a":2}}]}`: "differs from",
		"{\"path\":\"a\xff\"}":                        "is not JSON (",
		`{"path":"\ud800"}`:                           "is not JSON (",
	} {
		err := tool.Validate(spec, json.RawMessage(input))
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", input, err)
			}
			continue
		}
		use, ok := err.(*tool.UseError)
		if !ok || !strings.Contains(use.Message, want) || !strings.HasPrefix(use.Message, "InputValidationError: Test ") {
			t.Errorf("%s: %v, want %q", input, err, want)
		}
	}
	if err := tool.Validate(&tool.Spec{Name: "Bad", Schema: json.RawMessage(`{"type":1}`)}, nil); err == nil {
		t.Error("a schema that is none")
	} else if _, ok := err.(*tool.UseError); ok {
		t.Error("a bad schema is not the model's fault")
	}
}

// Valid input can be decoded.
func FuzzValidate(f *testing.F) {
	spec := &tool.Spec{Name: "Test", Schema: json.RawMessage(schema)}
	for _, s := range []string{`{"path":"a","n":"3","b":"false"}`, `{"path":"a","n":1e1,"f":" 2 "}`, `{"path":"a","n":" 7 "}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, input string) {
		if tool.Validate(spec, json.RawMessage(input)) != nil {
			return
		}
		var in struct {
			Path string    `json:"path"`
			N    tool.Int  `json:"n"`
			B    tool.Bool `json:"b"`
		}
		if err := tool.Decode(json.RawMessage(input), &in); err != nil {
			t.Fatalf("%q: %v", input, err)
		}
	})
}

func TestEnv(t *testing.T) {
	env := &tool.Env{Roots: []string{"/w"}}
	if env.Cwd() != "/w" {
		t.Error(env.Cwd())
	}
	env.SetCwd("/w/x")
	if env.Cwd() != "/w/x" {
		t.Error(env.Cwd())
	}
	var order []int
	env.OnClose(func() { order = append(order, 1) })
	env.OnClose(func() { order = append(order, 2) })
	env.Close()
	env.Close()
	env.OnClose(func() { order = append(order, 3) })
	if len(order) != 3 || order[0] != 2 || order[1] != 1 || order[2] != 3 {
		t.Error(order)
	}
	type key struct{}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { tool.Value(env, key{}, func() *int { return new(int) }) })
	}
	wg.Wait()
	if a, b := tool.Value(env, key{}, func() *int { return nil }), tool.Value(env, key{}, func() *int { return nil }); a == nil || a != b {
		t.Error("made twice")
	}
}

func TestFailed(t *testing.T) {
	r := tool.Failed(tool.Misuse("wrong %d", 1))
	if r.Content.Text != "<tool_use_error>wrong 1</tool_use_error>" || r.Structured != "Error: wrong 1" || !r.IsError {
		t.Errorf("%+v", r)
	}
}

func TestIDs(t *testing.T) {
	if id := tool.NewTaskID("b"); len(id) != 9 || id[0] != 'b' || id == tool.NewTaskID("b") {
		t.Error(id)
	}
	if id := tool.NewRunID(); len(id) != 18 || id[9] != '-' {
		t.Error(id)
	}
}

func TestComplete(t *testing.T) {
	spec := &tool.Spec{Name: "T", Schema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"boolean","default":false},"c":{"type":"integer","default":7}},"required":["a"]}`)}
	for in, want := range map[string]string{
		`{"a":"x"}`:                    `{"a":"x","b":false,"c":7}`,
		` {"a":"x","b":true} `:         `{"a":"x","b":true,"c":7}`,
		`{"a":"x","b":false,"c":1}`:    `{"a":"x","b":false,"c":1}`,
		`{"b":true}`:                   `{"b":true}`, // it does not match
		`{"a":"1","b":"true","c":"2"}`: `{"a":"1","b":true,"c":2}`,
		`{"a":"1","b":"maybe"}`:        `{"a":"1","b":"maybe"}`,
		`[]`:                           `[]`,
		`{"a":"}","c":1, "b": false }`: `{"a":"}","c":1, "b": false }`,
	} {
		if got := tool.Complete(spec, json.RawMessage(in)); string(got) != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
}
