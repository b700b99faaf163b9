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
		`{"type":"user","parleyMore":-}`, `{"parleyMore":1e}`, `{"type":"user","uuid":"\x"}`,
		`{"type":"user","message":{}}`, `{"type":"user"} {}`, `{"type":"user"`, `{}`, `[]`, `{"uuid":"x"}`, "{\"type\":\"a\tb\"}", `{"type":"user","n":[1,{"a":"]"}],"x":"\\"}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		strict, err := readHead(jsontext.NewDecoder(new(bytes.Buffer), lenient...), line) // it must not panic
		var quick head
		if !quick.readPlain(line) || !json.Valid(line) {
			return
		}
		if err != nil || quick != strict {
			t.Errorf("%q\ngot  %+v\nwant %+v, %v", line, quick, strict, err)
		}
	})
}

// A text is plain unless a character is not ASCII or starts an escape, at any offset.
func TestPlainText(t *testing.T) {
	const plain = `"a35c3d0c-3ad7-4c9b ~9d80"`
	if !isPlainText([]byte(plain)) {
		t.Error("got not plain, want plain")
	}
	for i := 1; i < len(plain)-1; i++ {
		for _, c := range []byte{'\\', 0x80, 0xc3, 0xff} {
			text := []byte(plain)
			text[i] = c
			if isPlainText(text) {
				t.Errorf("%q at offset %d: got plain, want not plain", c, i)
			}
		}
		for _, c := range []byte{' ', '[', ']', 0x7f} {
			text := []byte(plain)
			text[i] = c
			if !isPlainText(text) {
				t.Errorf("%q at offset %d: got not plain, want plain", c, i)
			}
		}
	}
}
