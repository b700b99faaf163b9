package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// FuzzScan compares our scanner with the library: they must accept the same text, and
// decode each string alike.
func FuzzScan(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-0,0.5,1e9,1E-2,true,false,null,"x"],"b":{}}`, `[]`, `""`, ` { } `, `[1,]`, `{"a":1,}`, `01`, `1.`, `-`, `+1`,
		`"\u00e9\ud83d\ude00\ud800\n\"\\\/"`, `"\u12"`, `"\x"`, "\"a\tb\"", `{"a" : [ ] }`, `tru`, `nul`, `[`, `{"a"`, `{"a":`, `"abc`, `"abcdefgh\"`,
		`{"a":1,"a":2}`, `"1234567"`, `"12345678"`, "\"\x7f\"", `[[[[[[]]]]]]`, `{"":""}`, `1 2`, "",
	} {
		f.Add([]byte(s))
	}
	lenient := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !utf8.Valid(text) {
			return // Decode makes it valid first
		}
		want := jsontext.Value(text).IsValid(lenient...)
		d, err := scan(text)
		if (err == nil) != want {
			t.Fatalf("scan says %v, the library %v: %q", err, want, text)
		}
		if err != nil {
			return
		}
		defer d.release()
		for i, n := range d.tape {
			x := item{d, uint32(i)}
			if !valid(x.text()) {
				t.Fatalf("node %d is %q of %q", i, x.text(), text)
			}
			if n.next <= uint32(i) || int(n.next) > len(d.tape) {
				t.Fatalf("node %d has next %d", i, n.next)
			}
			if x.kind() != '"' {
				continue
			}
			want, err := jsontext.AppendUnquote(nil, x.text())
			if got, exact := x.string(); got != string(want) || exact != (err == nil) {
				t.Fatalf("%s is %q, %v; the library says %q, %v", x.text(), got, exact, want, err)
			}
		}
	})
}

// TestTooManyValuesAreRejected scans a short line that would need much memory.
func TestTooManyValuesAreRejected(t *testing.T) {
	line := append([]byte("["), bytes.Repeat([]byte("0,"), maxNodes+1)...)
	line = append(line, "0]"...)
	if _, err := scan(line); !errors.Is(err, errValues) {
		t.Errorf("scan says %v", err)
	}
}

// Text that needs no escapes is written unchanged, all other text as by the library.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "plain", `a "quote"`, "back\\slash", "line\nend", "\x00\x1f\x7f", "é\u2028\u2029\U0001f600", "bad\xff\xc0utf8", strings.Repeat("long plain text ", 30), strings.Repeat("x", 100) + "\t", "<&>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := jsontext.AppendQuote(nil, s)
		if err != nil {
			want, _ = jsontext.AppendQuote(nil, strings.ToValidUTF8(s, "\uFFFD"))
		}
		got := appendString(nil, s)
		var a, b string
		if json.Unmarshal(got, &a) != nil || json.Unmarshal(want, &b) != nil || a != b {
			t.Errorf("%q: got %s, the library writes %s", s, got, want)
		}
	})
}

// All four characters of an escape must be digits.
func TestEscapesHaveFourDigits(t *testing.T) {
	for i := range 4 {
		digits := []byte("00e9")
		digits[i] = 'g'
		if m, err := Decode([]byte(`{"type":"keep_alive","x":"\u` + string(digits) + `"}`)); err == nil {
			t.Errorf("\\u%s was decoded as %+v", digits, m)
		}
	}
	if _, err := Decode([]byte(`{"type":"keep_alive","x":"\u00e9"}`)); err != nil {
		t.Error(err)
	}
}
