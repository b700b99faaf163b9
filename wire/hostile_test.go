package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/parley-go/parley/wire"
	"golang.org/x/tools/txtar"
)

// corpus returns the lines of testdata.
func corpus(t testing.TB) [][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]byte
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range a.Files {
			for line := range bytes.Lines(section.Data) {
				if line = bytes.TrimSpace(line); len(line) > 0 {
					lines = append(lines, line)
				}
			}
		}
	}
	return lines
}

func decode(t testing.TB, line string) wire.Message {
	t.Helper()
	m, err := wire.Decode([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func encode(t testing.TB, m wire.Message) string {
	t.Helper()
	text, err := wire.Encode(m)
	if err != nil {
		t.Fatalf("%T: %v", m, err)
	}
	return string(text)
}

// places calls visit with each value inside v and a function that replaces it.
func places(v any, path string, visit func(path string, set func(any))) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			was := v[name]
			visit(path+"/"+name, func(x any) { v[name] = x })
			v[name] = was
			places(was, path+"/"+name, visit)
		}
	case []any:
		for i, was := range v {
			visit(path+"/*", func(x any) { v[i] = x })
			v[i] = was
			places(was, path+"/*", visit)
		}
	}
}

// TestAnyValueSurvivesAnywhere puts values of all shapes into every place of every line of
// the corpus: the message keeps its kind, and nothing is lost.
func TestAnyValueSurvivesAnywhere(t *testing.T) {
	shapes := []string{`null`, `true`, `0`, `-0`, `1.0`, `1e3`, `0.10`, `1e400`, `123456789012345678901234567890`, `""`, `"text"`, `"\ud800"`,
		`[]`, `[null]`, `[[{"a":null}],"b",1.0]`, `{}`, `{"type":"text","text":7}`, `{"name":"x","a":{"b":null}}`}
	turn := 0
	for _, line := range corpus(t) {
		if line[0] != '{' {
			continue
		}
		kind := reflect.TypeOf(decode(t, string(line)))
		root := parse(t, line)
		places(root, "", func(path string, set func(any)) {
			// Use other shapes each time: there are thousands of places.
			for range shapesPerPlace {
				shape := shapes[turn%len(shapes)]
				turn++
				set(json.RawMessage(shape))
				changed, err := json.Marshal(root)
				if err != nil {
					t.Fatal(err)
				}
				m := decode(t, string(changed))
				if path != "/type" && path != "/subtype" && reflect.TypeOf(m) != kind {
					t.Errorf("%s: with %s, a %v is decoded as a %T", path, shape, kind, m)
				}
				if again := encode(t, m); !reflect.DeepEqual(parse(t, []byte(again)), parse(t, changed)) {
					t.Fatalf("%s: %T changed\n got %s\nwant %s", path, m, again, changed)
				}
			}
		})
	}
	if turn < 3000*shapesPerPlace {
		t.Errorf("only %d values", turn)
	}
}

const shapesPerPlace = 1

// wrong returns values that a field of a Go type cannot hold.
func wrong(typ reflect.Type) []string {
	switch reflect.Zero(typ).Interface().(type) {
	case json.RawMessage:
		return nil
	case wire.Content:
		return []string{`5`, `{"type":"text"}`, `true`}
	case wire.Effort:
		return []string{`1.5`, `1e1`, `[]`, `{}`, `true`}
	case wire.SystemPrompt:
		return []string{`5`, `{}`, `[5]`}
	}
	switch typ.Kind() {
	case reflect.Bool:
		return []string{`"true"`, `0`, `[]`, `{}`}
	case reflect.String:
		return []string{`5`, `true`, `[]`, `{"a":"b"}`}
	case reflect.Int, reflect.Int64:
		return []string{`"5"`, `1.5`, `1e400`, `9223372036854775808`, `true`, `[1]`, `{}`}
	case reflect.Float64:
		return []string{`"5"`, `1e400`, `true`, `[1]`, `{}`}
	case reflect.Slice:
		return []string{`5`, `"a"`, `{"0":"a"}`, `true`}
	case reflect.Map:
		return []string{`5`, `"a"`, `[["a","b"]]`, `true`}
	case reflect.Pointer:
		return wrong(typ.Elem())
	case reflect.Struct:
		return []string{`5`, `"a"`, `[1]`, `true`}
	case reflect.Interface:
		return nil // holds everything
	}
	panic(typ.String())
}

// objectTypes returns all object types below typ.
func objectTypes(typ reflect.Type, into map[reflect.Type]bool) {
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		objectTypes(typ.Elem(), into)
	case reflect.Struct:
		if _, ok := typ.FieldByName("Open"); !ok || into[typ] {
			return
		}
		into[typ] = true
		for _, f := range reflect.VisibleFields(typ) {
			objectTypes(f.Type, into)
		}
	}
}

// TestValueThatAFieldCannotHoldIsKept decodes such values for every field of every object:
// the field stays zero, and the value is in Extra and is encoded again, until the field
// is set.
func TestValueThatAFieldCannotHoldIsKept(t *testing.T) {
	types := map[reflect.Type]bool{}
	requests, inputs, outputs := wire.Tables()
	for _, table := range []map[string]reflect.Type{requests, inputs, outputs, wire.Messages(), wire.BlockTypes()} {
		for _, typ := range table {
			objectTypes(typ, types)
		}
	}
	for _, a := range append(answers, wire.APIEvent{}) {
		objectTypes(reflect.TypeOf(a), types)
	}
	if want := len(wire.Objects(t)); len(types) != want {
		t.Errorf("found %d of %d types", len(types), want)
	}
	for typ := range types {
		open, _ := typ.FieldByName("Open")
		consts := ""
		for c := range strings.SplitSeq(open.Tag.Get("wire"), ",") {
			if name, value, ok := strings.Cut(c, "="); ok {
				consts += fmt.Sprintf("%q:%q,", name, value)
			}
		}
		for _, f := range reflect.VisibleFields(typ) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || !f.IsExported() {
				continue
			}
			for _, value := range wrong(f.Type) {
				if typ.Name() == "Result" && name == "errors" && value[0] == '"' {
					continue // a dialect
				}
				line := fmt.Sprintf(`{%s%q:%s}`, consts, name, value)
				v := reflect.New(typ)
				if err := json.Unmarshal([]byte(line), v.Interface()); err != nil {
					t.Errorf("%s: %v", line, err)
					continue
				}
				extra := v.Elem().FieldByIndex(open.Index).Interface().(wire.Open).Extra
				if !v.Elem().FieldByIndex(f.Index).IsZero() || string(extra[name]) != value {
					t.Errorf("%s.%s from %s: %v, Extra %s", typ.Name(), f.Name, value, v.Elem().FieldByIndex(f.Index), extra[name])
				}
				sameJSON(t, v.Interface(), line)
				if f.Type.Kind() != reflect.Struct {
					fill(v.Elem().FieldByIndex(f.Index), 7)
					text, err := json.Marshal(v.Interface())
					if err != nil {
						t.Fatal(err)
					}
					if got := parse(t, text).(map[string]any)[name]; reflect.DeepEqual(got, parse(t, []byte(value))) {
						t.Errorf("%s.%s was set, but %s is encoded", typ.Name(), f.Name, text)
					}
				}
			}
		}
	}
}

// strict reports whether text is JSON without duplicate names, lone surrogates and bytes
// that are not UTF-8.
func strict(text []byte) bool { return jsontext.Value(text).IsValid() }

func TestInvalidUTF8(t *testing.T) {
	const line = "{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\"a\xffb\xc3\x28\"},\"x\xfe\":\"\xed\xa0\x80\",\"uuid\":\"\xff\"}"
	const want = "{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\"a\ufffdb\ufffd(\"},\"x\ufffd\":\"\ufffd\",\"uuid\":\"\ufffd\"}"
	m := decode(t, line).(*wire.User)
	if got := m.Message.Content.Text; got != "a\ufffdb\ufffd(" {
		t.Errorf("got %q", got)
	}
	if got := encode(t, m); !utf8.ValidString(got) || !reflect.DeepEqual(parse(t, []byte(got)), parse(t, []byte(want))) {
		t.Errorf("got %s", got)
	}
	var u wire.User
	if err := json.Unmarshal([]byte(line), &u); err != nil {
		t.Fatal(err)
	}
	if got := encode(t, &u); !strict([]byte(got)) {
		t.Errorf("through encoding/json: %q", got)
	}

	// Strings that a caller sets also become UTF-8.
	made := wire.Prompt(wire.Text("a\xff"))
	made.UUID = "\xc3"
	made.ToolUseResult = raw("\"\xff\"")
	made.Extra = map[string]json.RawMessage{"k\xff": raw("[\"\xfe\"]")}
	if got := encode(t, made); !strict([]byte(got)) {
		t.Errorf("encodes to %q", got)
	}
	if got := encode(t, &wire.Unknown{Raw: raw("{\"a\":\"\xff\"}")}); got != "{\"a\":\"\ufffd\"}" {
		t.Errorf("encodes to %q", got)
	}
}

func TestLoneSurrogates(t *testing.T) {
	const line = `{"type":"user","message":{"role":"user","content":"a\ud800b"},"session_id":"\udc00\ud800","uuid":"\ud83d\ude00","tool_use_result":{"x":"\ud800"},"more":["\udfff"]}`
	m := decode(t, line).(*wire.User)
	if m.Message.Content.Text != "a\ufffdb" || m.SessionID != "\ufffd\ufffd" || m.UUID != "😀" {
		t.Errorf("got %+v", m)
	}
	// They are encoded unchanged: a peer that can read them loses nothing.
	for _, part := range []string{`"a\ud800b"`, `"\udc00\ud800"`, `{"x":"\ud800"}`, `["\udfff"]`} {
		if got := encode(t, m); !strings.Contains(got, part) {
			t.Errorf("%s is lost: %s", part, got)
		}
	}
	m.SessionID = "other"
	if got := encode(t, m); strings.Contains(got, `\udc00`) {
		t.Errorf("old text: %s", got)
	}
}

func TestUnchangedNumberKeepsItsText(t *testing.T) {
	for text, want := range map[string]int{
		`1`: 1, `1.0`: 1, `1e3`: 1000, `10E-1`: 1, `-0`: 0, `-0.0`: 0, `0e9`: 0, `-12`: -12, `1.000`: 1, `2147483647`: math.MaxInt32,
		`1.5`: 0, `1e400`: 0, `-1e400`: 0, `123456789012345678901234567890`: 0, `1e300`: 0, `"1"`: 0, `9223372036854775808`: 0,
	} {
		line := fmt.Sprintf(`{"type":"result","subtype":"success","num_turns":%s,"result_index":%[1]s,"total_cost_usd":%[1]s,"usage":{"input_tokens":%[1]s,"output_tokens":7},"modelUsage":{"m":{"costUSD":%[1]s}}}`, text)
		m := roundTrip(t, []byte(line)).(*wire.Result)
		if m.NumTurns != want || m.Usage.InputTokens != int64(want) || m.Usage.OutputTokens != 7 {
			t.Errorf("%s is read as %d and %d, want %d", text, m.NumTurns, m.Usage.InputTokens, want)
		}
		m.NumTurns, m.Usage.InputTokens, m.TotalCostUSD = 5, 6, 0.25
		var got struct {
			NumTurns int     `json:"num_turns"`
			Cost     float64 `json:"total_cost_usd"`
			Usage    struct {
				Input int `json:"input_tokens"`
			}
			Index json.RawMessage `json:"result_index"`
		}
		if err := json.Unmarshal([]byte(encode(t, m)), &got); err != nil {
			t.Fatal(err)
		}
		if got.NumTurns != 5 || got.Usage.Input != 6 || got.Cost != 0.25 || string(got.Index) != text {
			t.Errorf("%s was changed and encodes to %+v", text, got)
		}
	}
	if _, err := wire.Encode(&wire.Result{TotalCostUSD: math.NaN()}); err == nil {
		t.Error("NaN was encoded")
	}
	for f, want := range map[float64]string{0: "0", 1e21: "1e+21", 1e-7: "1e-7", 1e-10: "1e-10", 0.000001: "0.000001", 123456789: "123456789", -1.5: "-1.5", 5e-324: "5e-324"} {
		got := encode(t, &wire.Result{TotalCostUSD: f})
		if !strings.Contains(got, `"total_cost_usd":`+want+`,`) && !strings.Contains(got, `"total_cost_usd":`+want+`}`) {
			t.Errorf("%v is encoded in %s, want %s", f, got, want)
		}
	}
}

// TestLastOfTwoMembersCounts checks it for values of all kinds.
func TestLastOfTwoMembersCounts(t *testing.T) {
	values := []string{`"a"`, `null`, `5`, `""`, `"\ud800"`, `{"x":1}`}
	for _, first := range values {
		for _, second := range values {
			line := fmt.Sprintf(`{"type":"user","message":{"role":"user","content":"c"},"session_id":%s,"session\u005fid":%s,"other":%[1]s,"other":%[2]s}`, first, second)
			once := fmt.Sprintf(`{"type":"user","message":{"role":"user","content":"c"},"session_id":%s,"other":%[1]s}`, second)
			got, want := decode(t, line), decode(t, once)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s\n got %+v\nwant %+v", line, got, want)
			}
			if got, want := encode(t, got), encode(t, want); got != want || !strict([]byte(got)) && first != `"\ud800"` && second != `"\ud800"` {
				t.Errorf("%s\n got %s\nwant %s", line, got, want)
			}
		}
	}
	const init = `{"type":"system","subtype":"init","session_id":"one","cwd":"/","tools":[],"session_id":"two"}`
	if m := decode(t, init).(*wire.Init); m.SessionID != "two" {
		t.Errorf("session id %q", m.SessionID)
	}
	// This includes the members that determine the Go type.
	for line, want := range map[string]string{
		`{"type":"user","type":"keep_alive"}`:                                            "*wire.KeepAlive",
		`{"type":"nothing","type":"keep_alive"}`:                                         "*wire.KeepAlive",
		`{"type":"keep_alive","ty\u0070e":"nothing"}`:                                    "*wire.Unknown",
		`{"type":"keep_alive","type":null}`:                                              "*wire.Unknown",
		`{"type":"system","subtype":"init","subtype":"status"}`:                          "*wire.Status",
		`{"type":"control_request","request":{"subtype":"x","subtype":"interrupt"}}`:     "*wire.Interrupt",
		`{"type":"user","message":{"content":[{"type":"a_tool_result","type":"text"}]}}`: "*wire.TextBlock",
	} {
		var got any = decode(t, line)
		switch m := got.(type) {
		case *wire.ControlRequest:
			got = m.Request
		case *wire.User:
			got = m.Message.Content.Blocks[0]
		}
		if fmt.Sprintf("%T", got) != want {
			t.Errorf("%s is a %T, want %s", line, got, want)
		}
	}
}

func TestTypeMembersSelectTheGoType(t *testing.T) {
	for line, want := range map[string]string{
		`{}`:                                    `*wire.Unknown "" ""`,
		`{"type":5}`:                            `*wire.Unknown "" ""`,
		`{"type":null,"subtype":"a"}`:           `*wire.Unknown "" "a"`,
		`{"type":["user"]}`:                     `*wire.Unknown "" ""`,
		`{"type":"USER"}`:                       `*wire.Unknown "USER" ""`,
		`{"type":"new","subtype":"s"}`:          `*wire.Unknown "new" "s"`,
		`{"type":"system"}`:                     `*wire.Unknown "system" ""`,
		`{"type":"system/init"}`:                `*wire.Unknown "system/init" ""`,
		`{"type":"a","subtype":{}}`:             `*wire.Unknown "a" ""`,
		`{"ty\u0070e":"user"}`:                  `*wire.User "user" ""`,
		`{"type":"us\u0065r"}`:                  `*wire.User "user" ""`,
		"\ufeff{\"type\":\"user\"}":             `*wire.User "user" ""`,
		" \t{\"type\":\"user\"}\r\n":            `*wire.User "user" ""`,
		`{"type":"result","subtype":"success"}`: `*wire.Result "result" "success"`,
		`{"type":"control_request","request":{"subtype":"interrupt"}}`:    `*wire.ControlRequest "control_request" "interrupt"`,
		`{"type":"control_request","request":{"subtype":"new"}}`:          `*wire.ControlRequest "control_request" "new"`,
		`{"type":"control_request"}`:                                      `*wire.ControlRequest "control_request" ""`,
		`{"type":"control_response","response":{"subtype":"error"}}`:      `*wire.ControlResponse "control_response" "error"`,
		`{"type":"system","subtype":"init"}`:                              `*wire.Init "system" "init"`,
		`{"a":{"type":"user"},"type":"keep_alive","b":{"type":"result"}}`: `*wire.KeepAlive "keep_alive" ""`,
	} {
		m := decode(t, line)
		typ, subtype := wire.TypeOf(m)
		if got := fmt.Sprintf("%T %q %q", m, typ, subtype); got != want {
			t.Errorf("%s is %s, want %s", line, got, want)
		}
		text := strings.TrimSpace(strings.TrimPrefix(line, "\ufeff"))
		roundTrip(t, []byte(text))
	}
	for _, line := range []string{"", " ", "\ufeff", "hello", "{", `{"type":"user"}{}`, `{"type":"user"},`, "{\"type\":\"user\"}\x00", "\x00", "{\"a\":\"\x00\"}", `{'a':1}`, `{"a":01}`, `{"a":NaN}`, "{\"a\":\"b\nc\"}"} {
		m, err := wire.Decode([]byte(line))
		var bad *wire.BadLine
		if m != nil || !errors.As(err, &bad) || bad.Size != int64(len(line)) || !strings.HasPrefix(line, string(bad.Text)) {
			t.Errorf("%q: %v, %v", line, m, err)
		}
	}
	if _, err := wire.Decode(bytes.Repeat([]byte("x"), 10000)); err == nil || len(err.Error()) > 1000 {
		t.Errorf("error of %d bytes", len(err.Error()))
	}
}

// TestNestingLimit nests known and unknown objects up to and beyond the limit.
func TestNestingLimit(t *testing.T) {
	for _, part := range []struct{ open, close string }{
		{`[`, `]`}, {`{"a":`, `}`},
		{`{"type":"tool_result","content":[`, `]}`},
		{`{"type":"document","source":{"content":[`, `]}}`},
	} {
		for _, levels := range []int{3332, 4998, 9997, 10001, 50000} {
			nested := strings.Repeat(part.open, levels) + `null` + strings.Repeat(part.close, levels)
			for _, frame := range []string{`%s`, `{"type":"user","message":{"role":"user","content":[%s]}}`} {
				line := fmt.Sprintf(frame, nested)
				m, err := wire.Decode([]byte(line))
				var bad *wire.BadLine
				if err != nil && !errors.As(err, &bad) {
					t.Fatal(err)
				}
				containers := func(s string) int { return strings.Count(s, "{") + strings.Count(s, "[") }
				if depth := containers(frame) + levels*containers(part.open); (err == nil) != (depth <= 10000) {
					t.Errorf("%d levels of %s in %s: %T, %v", levels, part.open, frame, m, err)
				}
				if err != nil {
					continue
				}
				if got := encode(t, m); len(got) != len(line) {
					t.Errorf("%d levels of %s encode to %d bytes, want %d", levels, part.open, len(got), len(line))
				}
			}
		}
	}
}

func TestLongNamesTextsAndListsSurvive(t *testing.T) {
	key := strings.Repeat("k", 100_000)
	m := roundTrip(t, fmt.Appendf(nil, `{"type":"user","message":{"role":"user","content":"c"},%q:1}`, key)).(*wire.User)
	if string(m.Extra[key]) != "1" {
		t.Error("a long name is lost")
	}
	body := strings.Repeat("0123456789abcdef\\n", 1<<20/18)
	a := decode(t, `{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"`+body+`"}]}}`).(*wire.Assistant)
	if got := a.Message.Content.String(); len(got) != len(body)/18*17 {
		t.Errorf("%d bytes of text", len(got))
	}
	if got := encode(t, a); len(got) < len(body) {
		t.Errorf("%d bytes encoded", len(got))
	}
	many := strings.Repeat(`{"type":"text","text":"x"},`, 20_000)
	u := decode(t, `{"type":"user","message":{"role":"user","content":[`+many[:len(many)-1]+`]}}`).(*wire.User)
	if len(u.Message.Content.Blocks) != 20_000 {
		t.Error("blocks are lost")
	}
}

// TestMessageIsAlwaysOneLine encodes messages with line breaks of all kinds.
func TestMessageIsAlwaysOneLine(t *testing.T) {
	nasty := raw("{\r\n \"a\": [1,\n2],\u2003\"b\":\"\u2028\u2029\u0085\"}"[:14] + "1,\n2],\"b\":\"\u2028\u2029\u0085\"}")
	if !json.Valid(nasty) {
		t.Fatalf("%q", nasty)
	}
	for _, m := range []wire.Message{
		&wire.Unknown{Raw: nasty},
		&wire.StreamEvent{Event: nasty},
		&wire.User{ToolUseResult: nasty, Message: wire.UserMessage{Role: "user", Content: wire.Text("a\nb\r\n\u2028\u2029")}},
		&wire.User{Message: wire.UserMessage{Content: wire.Blocks(&wire.UnknownBlock{Raw: nasty}, &wire.ToolUseBlock{Input: nasty})}},
		&wire.KeepAlive{Open: wire.Open{Extra: map[string]json.RawMessage{"x\n\u2028": nasty}}},
		&wire.ControlRequest{Request: &wire.UnknownRequest{Raw: nasty}},
		&wire.ControlRequest{Request: &wire.HookCallback{Input: &wire.UnknownInput{Raw: nasty}}},
		&wire.TranscriptMirror{Entries: []json.RawMessage{nasty, nil}},
		decode(t, string(nasty)),
	} {
		text := encode(t, m)
		if strings.ContainsAny(text, "\n\r\u2028\u2029") {
			t.Errorf("%T: %q", m, text)
		}
		std, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(parse(t, []byte(text)), parse(t, std)) {
			t.Errorf("%T\n got %s\nwant %s", m, text, std)
		}
	}
	dst := []byte("kept\n")
	out, err := wire.AppendMessage(dst, &wire.Unknown{Raw: nasty})
	if err != nil || !bytes.HasPrefix(out, dst) || bytes.Count(out, []byte("\n")) != 1 {
		t.Errorf("AppendMessage: %q, %v", out, err)
	}
}

func TestCannotEncode(t *testing.T) {
	for _, m := range []wire.Message{
		nil, (*wire.User)(nil), (*wire.Unknown)(nil), (*wire.BadLine)(nil), (*wire.Result)(nil), (*wire.ControlRequest)(nil),
		&wire.BadLine{Err: io.ErrUnexpectedEOF},
		&wire.Unknown{Raw: raw("{")}, &wire.Unknown{Raw: raw("")}, &wire.Unknown{Raw: raw("{} {}")},
		&wire.StreamEvent{Event: raw("{\"a\":\"\n\"}")},
		&wire.KeepAlive{Open: wire.Open{Extra: map[string]json.RawMessage{"x": raw("nope")}}},
		wire.Prompt(wire.Blocks(&wire.ToolUseBlock{Input: raw("{]")})),
	} {
		if text, err := wire.Encode(m); err == nil {
			t.Errorf("%T encodes to %s", m, text)
		}
		if m == nil || reflect.ValueOf(m).IsNil() {
			if typ, subtype := wire.TypeOf(m); typ != "" || subtype != "" {
				t.Errorf("TypeOf(%T) = %q, %q", m, typ, subtype)
			}
		}
	}
	// A message may lack its content.
	for _, m := range []wire.Message{
		&wire.ControlRequest{}, wire.Prompt(wire.Blocks(nil, (*wire.TextBlock)(nil))), &wire.ControlRequest{Request: (*wire.Interrupt)(nil)},
		&wire.Init{MCPServers: []*wire.InitMCPServer{nil}}, &wire.Result{ModelUsage: map[string]*wire.ModelUsage{"m": nil}},
	} {
		if text := encode(t, m); !strict([]byte(text)) {
			t.Errorf("%T encodes to %s", m, text)
		}
	}
}

// TestChangedFieldIsEncoded changes fields that were decoded from unusual text: the new
// value is encoded, and the other members stay.
func TestChangedFieldIsEncoded(t *testing.T) {
	tests := []struct {
		name, line string
		change     func(wire.Message)
		want       string
	}{
		{"explicit zero", `{"type":"user","message":{"role":"user","content":"a"},"isReplay":false,"uuid":"","x":1}`,
			func(m wire.Message) { u := m.(*wire.User); u.IsReplay, u.UUID = true, "u" },
			`{"type":"user","message":{"role":"user","content":"a"},"isReplay":true,"uuid":"u","x":1}`},
		{"null", `{"type":"user","message":{"role":"user","content":null},"parent_tool_use_id":null,"session_id":null}`,
			func(m wire.Message) {
				u := m.(*wire.User)
				u.Message.Content, u.ParentToolUseID, u.SessionID = wire.Text("b"), "p", "s"
			},
			`{"type":"user","message":{"role":"user","content":"b"},"parent_tool_use_id":"p","session_id":"s"}`},
		{"missing", `{"type":"user","message":{}}`,
			func(m wire.Message) { u := m.(*wire.User); u.Message.Role, u.ParentToolUseID = "user", "p" },
			`{"type":"user","message":{"role":"user"},"parent_tool_use_id":"p"}`},
		{"set and then unset", `{"type":"user","message":{"role":"user","content":"a"},"uuid":"u","session_id":"s"}`,
			func(m wire.Message) { u := m.(*wire.User); u.UUID, u.Message.Role = "", "" },
			`{"type":"user","message":{"role":"","content":"a"},"session_id":"s"}`},
		{"1.0", `{"type":"result","subtype":"success","num_turns":1.0,"duration_ms":1e3,"result_index":2.0,"total_cost_usd":1.50}`,
			func(m wire.Message) {
				r := m.(*wire.Result)
				r.NumTurns, *r.ResultIndex, r.TotalCostUSD = 2, 3, 1.25
			},
			`{"type":"result","subtype":"success","num_turns":2,"duration_ms":1e3,"result_index":3,"total_cost_usd":1.25}`},
		{"1.0 becomes zero", `{"type":"result","subtype":"success","num_turns":1.0}`,
			func(m wire.Message) { m.(*wire.Result).NumTurns = 0 },
			`{"type":"result","subtype":"success","num_turns":0}`},
		{"usage from flat counts", `{"type":"result","subtype":"success","input_tokens":3,"output_tokens":4}`,
			func(m wire.Message) { m.(*wire.Result).Usage.InputTokens = 5 },
			`{"type":"result","subtype":"success","input_tokens":3,"output_tokens":4,"usage":{"input_tokens":5,"output_tokens":4,"cache_creation_input_tokens":0,"cache_read_input_tokens":0}}`},
		{"another field than the usage", `{"type":"result","subtype":"success","input_tokens":3,"usage":null}`,
			func(m wire.Message) { m.(*wire.Result).Subtype = "error" },
			`{"type":"result","subtype":"error","input_tokens":3,"usage":null}`},
		{"errors as text", `{"type":"result","subtype":"error","errors":"one"}`,
			func(m wire.Message) { r := m.(*wire.Result); r.Errors = append(r.Errors, "two") },
			`{"type":"result","subtype":"error","errors":["one","two"]}`},
		{"errors as text, removed", `{"type":"result","subtype":"error","errors":"one"}`,
			func(m wire.Message) { m.(*wire.Result).Errors = nil },
			`{"type":"result","subtype":"error"}`},
		{"error of the message", `{"type":"assistant","message":{"role":"assistant","content":[],"error":"rate_limit"},"error":null}`,
			func(m wire.Message) { m.(*wire.Assistant).Error = wire.ErrorServer },
			`{"type":"assistant","message":{"role":"assistant","content":[],"error":"rate_limit"},"error":"server_error"}`},
		{"tools as objects", `{"type":"system","subtype":"init","tools":[{"name":"A","x":1},"B"]}`,
			func(m wire.Message) { i := m.(*wire.Init); i.Tools = append(i.Tools, "C") },
			`{"type":"system","subtype":"init","tools":["A","B","C"]}`},
		{"wrong shape", `{"type":"user","message":5,"uuid":7,"tool_result_meta":{"a":1}}`,
			func(m wire.Message) {
				u := m.(*wire.User)
				u.UUID, u.ToolResultMeta = "u", []*wire.ToolResultMeta{{ID: "t"}}
			},
			`{"type":"user","message":5,"uuid":"u","tool_result_meta":[{"id":"t"}]}`},
		{"wrong shape, given up", `{"type":"user","message":{"role":"user","content":"c"},"uuid":7}`,
			func(m wire.Message) { delete(m.(*wire.User).Extra, "uuid") },
			`{"type":"user","message":{"role":"user","content":"c"}}`},
		{"extra members", `{"type":"keep_alive","a":1,"b":2}`,
			func(m wire.Message) { k := m.(*wire.KeepAlive); delete(k.Extra, "a"); k.Extra["c"] = raw("3") },
			`{"type":"keep_alive","b":2,"c":3}`},
		{"deep inside", `{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"a","x":1},{"type":"tool_use","id":"t","name":"N","input":{"a":1.0}}],"usage":{"input_tokens":1.0,"y":null}}}`,
			func(m wire.Message) {
				a := m.(*wire.Assistant)
				a.Message.Content.Blocks[0].(*wire.TextBlock).Text = "b"
				a.Message.Usage.InputTokens++
			},
			`{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"b","x":1},{"type":"tool_use","id":"t","name":"N","input":{"a":1.0}}],"usage":{"input_tokens":2,"y":null}}}`},
		{"text becomes blocks", `{"type":"user","message":{"role":"user","content":"\ud800"}}`,
			func(m wire.Message) { m.(*wire.User).Message.Content = wire.Blocks(&wire.TextBlock{Text: "b"}) },
			`{"type":"user","message":{"role":"user","content":[{"type":"text","text":"b"}]}}`},
		{"list with a lone surrogate", `{"type":"auth_status","isAuthenticating":true,"output":["\ud800","b"]}`,
			func(m wire.Message) { m.(*wire.AuthStatus).Output[1] = "c" },
			`{"type":"auth_status","isAuthenticating":true,"output":["\ufffd","c"]}`},
		{"an element of a map", `{"type":"update_environment_variables","variables":{"A":null,"B":"b"}}`,
			func(m wire.Message) { m.(*wire.UpdateEnvironmentVariables).Variables["B"] = "c" },
			`{"type":"update_environment_variables","variables":{"A":"","B":"c"}}`},
		{"a pending request without type", `{"type":"control_response","response":{"subtype":"success","pending_permission_requests":[{"request_id":"p","request":{"subtype":"interrupt"}}]}}`,
			func(m wire.Message) { m.(*wire.ControlResponse).Response.PendingPermissionRequests[0].RequestID = "q" },
			`{"type":"control_response","response":{"subtype":"success","pending_permission_requests":[{"request_id":"q","request":{"subtype":"interrupt"}}]}}`},
		{"input of a hook that goes by name", `{"type":"control_request","request":{"subtype":"hook_callback","hook_name":"Stop","hook_data":{},"input":null}}`,
			func(m wire.Message) {
				m.(*wire.ControlRequest).Request.(*wire.HookCallback).Input.(*wire.StopInput).SessionID = "s"
			},
			`{"type":"control_request","request":{"subtype":"hook_callback","hook_name":"Stop","hook_data":{},"input":{"hook_event_name":"Stop","session_id":"s"}}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := roundTrip(t, []byte(tt.line))
			tt.change(m)
			if got := encode(t, m); !reflect.DeepEqual(parse(t, []byte(got)), parse(t, []byte(tt.want))) {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestDecodeDoesNotRetainTheLine overwrites the buffer that a message was decoded from.
func TestDecodeDoesNotRetainTheLine(t *testing.T) {
	for _, line := range corpus(t) {
		buf := bytes.Clone(line)
		m, err := wire.Decode(buf)
		if err != nil {
			t.Fatal(err)
		}
		before := encode(t, m)
		for i := range buf {
			buf[i] = '!'
		}
		if after := encode(t, m); after != before {
			t.Fatalf("%T changed with its buffer\n got %s\nwant %s", m, after, before)
		}
		// Nor does encoded text share memory with the message.
		text, _ := wire.Encode(m)
		for i := range text {
			text[i] = '!'
		}
		if after := encode(t, m); after != before {
			t.Fatalf("%T changed with its text", m)
		}
	}
	buf := []byte("not JSON")
	_, err := wire.Decode(buf)
	copy(buf, "XXXXXXXX")
	if !strings.Contains(err.Error(), "not JSON") || strings.Contains(err.Error(), "X") {
		t.Errorf("the error changed: %v", err)
	}
}

// TestConcurrent encodes and decodes the same messages in several goroutines.
func TestConcurrent(t *testing.T) {
	lines := corpus(t)
	var messages []wire.Message
	var want []string
	for _, line := range lines {
		m := decode(t, string(line))
		messages = append(messages, m)
		want = append(want, encode(t, m))
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i, m := range messages {
				text, err := wire.Encode(m)
				if err != nil || string(text) != want[i] {
					t.Errorf("%s: %s, %v", want[i], text, err)
				}
				if _, err := wire.Decode(lines[i]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// TestUnmarshalIsFresh: a value that is used again keeps nothing of before.
func TestUnmarshalIsFresh(t *testing.T) {
	var u wire.User
	for _, line := range []string{
		`{"type":"user","message":{"role":"user","content":"a","y":1},"uuid":7,"x":1,"isReplay":false}`,
		`{"type":"user","message":{"role":"user","content":[]},"session_id":"s"}`,
	} {
		if err := json.Unmarshal([]byte(line), &u); err != nil {
			t.Fatal(err)
		}
		sameJSON(t, &u, line)
		sameJSON(t, u, line)
	}
	before := encode(t, &u)
	for _, line := range []string{`{"type":"assistant"}`, `[]`, `5`} {
		if err := json.Unmarshal([]byte(line), &u); err == nil {
			t.Errorf("%s is no user message", line)
		}
	}
	if err := json.Unmarshal([]byte(`null`), &u); err != nil {
		t.Error(err)
	}
	if got := encode(t, &u); got != before {
		t.Errorf("got %s, want %s", got, before)
	}
	// A message that was read without a type is written with one.
	if err := json.Unmarshal([]byte(`{"message":{"role":"user","content":"a"}}`), &u); err != nil {
		t.Fatal(err)
	}
	sameJSON(t, &u, `{"type":"user","message":{"role":"user","content":"a"}}`)
	sameJSON(t, wire.Unknown{Raw: raw(`{"a":1}`)}, `{"a":1}`)
}
