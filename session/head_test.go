package session

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// FuzzReadPlain checks that for a line of JSON readPlain returns the same as the strict parser, or
// reports false.
func FuzzReadPlain(f *testing.F) {
	for _, line := range []string{
		`{"parentUuid":null,"isSidechain":false,"type":"user","message":{"role":"user","content":[{"type":"text","text":"a \"quoted\" {word}"}]},"uuid":"u","timestamp":"t"}`,
		`{"type":"assistant","uuid":"a","parentUuid":"u","message":{"id":"msg_1","content":[{"type":"tool_use","id":"t","input":{"id":"x"}}],"id":"msg_2"},"isMeta":true,"isMeta":false}`,
		`{"type":"system","subtype":"compact_boundary","uuid":"b","teamName":"x","forkedFrom":{},"isCompactSummary":true}`,
		`{ "type" : "intent" , "toolUseId" : "t\u0031" , "outcome" : "ok" }`, `{"type":"user","parleyMore":2}`, `{"type":"ü","uuid":1,"message":"text"}`,
		`{"type":"user","message":{}}`, `{"type":"user"} {}`, `{"type":"user"`, `{}`, `[]`, `{"uuid":"x"}`, "{\"type\":\"a\tb\"}", `{"type":"user","n":[1,{"a":"]"}],"x":"\\"}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var quick head
		if !quick.readPlain(line) || !json.Valid(line) {
			return
		}
		strict, err := readHead(jsontext.NewDecoder(new(bytes.Buffer), lenient...), line)
		if err != nil || quick != strict {
			t.Errorf("%q\ngot  %+v\nwant %+v, %v", line, quick, strict, err)
		}
	})
}
