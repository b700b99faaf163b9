package rawjson

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
)

func TestSet(t *testing.T) {
	for _, c := range []struct{ in, set, deleted string }{
		{`{}`, `{"stream":true}`, `{}`},
		{` { } `, ` { "stream":true} `, ` { } `},
		{`{"a":1}`, `{"a":1,"stream":true}`, `{"a":1}`},
		{`{"stream":false}`, `{"stream":true}`, `{}`},
		{`{"stream":true}`, `{"stream":true}`, `{}`},
		{`{"stream" : false , "b":1}`, `{"stream" : true , "b":1}`, `{"b":1}`},
		{`{"a":1, "stream":null }`, `{"a":1, "stream":true }`, `{"a":1 }`},
		{`{"a":{"stream":false},"b":["stream",false]}`, `{"a":{"stream":false},"b":["stream",false],"stream":true}`, `{"a":{"stream":false},"b":["stream",false]}`},
		{`{"a":"\\\"}{","stream":[1,{"x":"]"}],"c":-1e5}`, `{"a":"\\\"}{","stream":true,"c":-1e5}`, `{"a":"\\\"}{","c":-1e5}`},
		{`{"stream":1,"a":2,"stream":3}`, `{"stream":1,"a":2,"stream":true}`, `{"a":2}`},
	} {
		in := []byte(c.in)
		if got := string(Set(in, "stream", "true")); got != c.set {
			t.Errorf("set in %s: got %s, want %s", c.in, got, c.set)
		}
		if got := string(Delete(in, "stream")); got != c.deleted {
			t.Errorf("deleted from %s: got %s, want %s", c.in, got, c.deleted)
		}
		if string(in) != c.in {
			t.Errorf("%s was changed", c.in)
		}
	}
}

func TestString(t *testing.T) {
	in := []byte(`{"a":"x","b":1,"c":"\u0078\"","d":null,"e":"","f":{"a":"y"}}`)
	for name, want := range map[string]string{"a": "x", "b": "", "c": `x"`, "d": "", "e": "", "f": "", "g": ""} {
		if got := String(in, name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// Valid input is read as by encoding/json; invalid input does no harm.
func FuzzMembers(f *testing.F) {
	f.Add(`{"a":1, "stream":null }`)
	f.Add(`{"a":"\\\"}{","stream":[1,{"x":"]"}],"c":-1e5}`)
	f.Add(`{"a`)
	f.Fuzz(func(t *testing.T, in string) {
		set, deleted := Set([]byte(in), "stream", "true"), Delete([]byte(in), "stream")
		String([]byte(in), "a")
		var want map[string]any
		if json.Unmarshal([]byte(in), &want) != nil || want == nil {
			return
		}
		for k := range want {
			if reflect.DeepEqual([]byte(k), []byte("stream")) && Get([]byte(in), k) == nil {
				return // written with escapes
			}
		}
		without := maps.Clone(want)
		delete(without, "stream")
		want["stream"] = true
		for _, c := range []struct {
			out  []byte
			want map[string]any
		}{{set, want}, {deleted, without}} {
			var got map[string]any
			if err := json.Unmarshal(c.out, &got); err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s became %s: %v", in, c.out, err)
			}
		}
	})
}

// TestElements: valid arrays and objects are taken apart as by encoding/json, in any nesting.
func TestElements(t *testing.T) {
	for in, want := range map[string][]string{
		`[]`: nil, `{}`: nil, ``: nil, `[ ]`: nil, ` [1 , "a,]" ,{"x":[2]} , [ ] ]`: {"1", `"a,]"`, `{"x":[2]}`, "[ ]"}, `["\\",null]`: {`"\\"`, "null"}, `[true`: {"true"},
	} {
		var got []string
		for _, e := range Elements([]byte(in)) {
			got = append(got, string(e))
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
}

// TestWalk: an object that has no end, or something behind it, is reported.
func TestWalk(t *testing.T) {
	for in, want := range map[string]bool{
		`{}`: true, ` { } `: true, `{"a":1}`: true, `{"a":{"b":[1]} , "c":"}"} `: true, `{"a":1`: false, `{"a":1,}`: false, `{"a":1}}`: false, `{"a":1} 2`: false, `[]`: false, ``: false, `{"a"}`: false,
	} {
		if got := Walk([]byte(in), func(name, value []byte) {}); got != want {
			t.Errorf("%s: got %v, want %v", in, got, want)
		}
	}
}

func TestOrder(t *testing.T) {
	for object, want := range map[string]string{
		`{"a":1, "b" : {"x":[1,2]},"c":"}"}`: `{"c":"}","a":1,"b":{"x":[1,2]}}`,
		`{}`:                                 `{}`,
		`{"\u0063":1,"b":2}`:                 `{"\u0063":1,"b":2}`,
		`{"b":1,"\u0061":2}`:                 `{"\u0061":2,"b":1}`,
		`[1]`:                                `[1]`,
		`{"a":1`:                             `{"a":1`,
	} {
		if got := string(Order([]byte(object), []string{"c", "missing", "a"})); got != want {
			t.Errorf("%s: got %s, want %s", object, got, want)
		}
	}
	if got := strings.Join(Names([]byte(`{"b":1,"\u0061":{"x":2}}`)), " "); got != "b a" {
		t.Errorf("names %q", got)
	}
}
