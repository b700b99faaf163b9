package session

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// sameInParts checks that a log that is read in parts has the result of one that is read at once.
func sameInParts(t *testing.T, want *scan, end int64, text []byte, part int64) {
	t.Helper()
	got := newScan()
	last, rest, err := got.readParts(bytes.NewReader(text), 0, int64(len(text)), part, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	if last := got.finish(last, rest); last != end {
		t.Fatalf("in parts of %d bytes it ends at %d, want %d: %q", part, last, end, text)
	}
	if !reflect.DeepEqual(got.nodes, want.nodes) || !reflect.DeepEqual(got.loose, want.loose) || !reflect.DeepEqual(got.effects, want.effects) ||
		!slices.Equal(got.corruptAt, want.corruptAt) || got.unended != want.unended {
		t.Fatalf("in parts of %d bytes: %+v, want %+v: %q", part, got, want, text)
	}
}

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
		s, end, err := scanLog(bytes.NewReader(text), int64(len(text)))
		if err != nil || end > int64(len(text)) {
			t.Fatalf("%v, ends at %d of %d", err, end, len(text))
		}
		for _, part := range []int64{1, 10, 100} {
			sameInParts(t, s, end, text, part)
		}
		h, err := s.history(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		// The good part alone gives the same result.
		again, end2, err := scanLog(bytes.NewReader(text[:end]), end)
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
