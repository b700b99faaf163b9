package session

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// FuzzLog reads a log of any bytes. It checks that reading neither fails nor accepts
// incomplete records, and that the result can be appended to a new log and read again.
func FuzzLog(f *testing.F) {
	for _, lines := range [][]string{
		{rec("user", 1, 0, ""), rec("assistant", 2, 1, ""), `{"type":"mode"}`},
		{rec("user", 1, 2, ""), rec("assistant", 2, 1, ""), rec("user", 3, 3, "")},
		{call(2, 1, "a"), call(3, 2, "b"), result(4, 2, "a"), `{"type":"parley-intent","toolUseId":"b"}`},
		{rec("system", 4, 0, `,"subtype":"compact_boundary","compactMetadata":{"preservedSegment":{"headUuid":"`+num(1)+`","tailUuid":"`+num(1)+`"}}`), rec("user", 1, 4, `,"parleyMore":1`)},
		{`{"type":"user","uuid":"u","message":5,"timestamp":7}`, "{", "\x00", `{"type":"user","uuid":"v","parentUuid":"u","message":{"content":[{"type":"tool_use"}]}}`},
	} {
		f.Add([]byte(strings.Join(lines, "\n") + "\n"))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, end, err := scanLog(bytes.NewReader(text))
		if err != nil || end > int64(len(text)) {
			t.Fatalf("%v, ends at %d of %d", err, end, len(text))
		}
		h, err := s.history(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		// The good part alone gives the same result.
		again, end2, err := scanLog(bytes.NewReader(text[:end]))
		if err != nil || end2 != end || len(again.nodes) != len(s.nodes) {
			t.Fatalf("%v, %d instead of %d, %d records instead of %d", err, end2, end, len(again.nodes), len(s.nodes))
		}
		Repair(h)
		if left := h.Orphans(); len(left) != 0 {
			t.Fatalf("not repaired: %q", left)
		}
		for _, e := range h.Entries {
			line, err := newEncoder(Meta{ID: testID}).lines(nil, []*Entry{e})
			if err != nil {
				t.Fatalf("%+v: %v", e, err)
			}
			if bytes.Count(line, []byte("\n")) != 1 {
				t.Fatalf("more than one line: %q", line)
			}
			back, _, err := decodeEntry(bytes.TrimSpace(line))
			if err != nil || back.UUID != e.UUID || back.Type != e.Type || len(back.Fields) != len(e.Fields) {
				t.Fatalf("%+v came back as %+v, %v", e, back, err)
			}
		}
		digestOf(text, text)
		if k, err := s.fork(testID, ""); err == nil {
			var out bytes.Buffer
			if err := k.write(t.Context(), &out, &lineReader{r: bytes.NewReader(text)}); err != nil {
				t.Fatal(err)
			}
			for line := range bytes.Lines(out.Bytes()) {
				if !json.Valid(bytes.ToValidUTF8(line, nil)) {
					t.Fatalf("%q", line)
				}
			}
		}
	})
}
