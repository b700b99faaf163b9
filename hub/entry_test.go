package hub

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/parley-go/parley/session"
)

// FuzzParseEntry checks that parseQuick and a JSON decoder return the same.
func FuzzParseEntry(f *testing.F) {
	for _, e := range []Entry{
		{N: 1, Kind: KindOwner, Time: time.UnixMilli(1e12), Epoch: 1, Data: json.RawMessage(`{"hub":"a"}`)},
		{N: 12345678901, Kind: KindFrame, Time: time.UnixMilli(1e12 + 7), Epoch: 9, Item: 3, Record: "r", Recovered: true, Data: json.RawMessage(`"\"}"`)},
		{Kind: KindRecord, Log: "p/s", Data: json.RawMessage(`[1, 2]`)},
		{Kind: KindLive, Data: json.RawMessage(`null`)},
	} {
		f.Add(e.AppendTo(nil))
	}
	f.Add([]byte(`{"n":1,"kind":"a","data":1,"n":2}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := ParseEntry(line)
		if err != nil {
			return
		}
		quick, ok := parseQuick(line)
		if !ok || !json.Valid(line) { // the data was checked when it was written
			return
		}
		again, err := ParseEntry(append([]byte(" "), line...)) // never quick
		if err != nil {
			if !json.Valid(quick.Data) { // for example data that is followed by more members
				return
			}
			t.Fatalf("%s: read as %+v, and not by a decoder: %v", line, quick, err)
		}
		if json.Valid(quick.Data) && !reflect.DeepEqual(e, again) {
			t.Errorf("%s:\n got %+v\nwant %+v", line, e, again)
		}
	})
}

// TestTornLineIsRemoved checks that a journal whose process was killed in the middle of
// a line is read without that line, and continues with the same number.
func TestTornLineIsRemoved(t *testing.T) {
	id, dir := session.NewID(), t.TempDir()
	files := &Files{Dir: dir}
	name := filepath.Join(dir, id, journalName)
	entry := func(n uint64) []Entry {
		return []Entry{{N: n, Kind: KindFrame, Data: json.RawMessage(`{"text":"` + string(bytes.Repeat([]byte("x"), 100)) + `"}`)}}
	}
	if err := files.Append(t.Context(), id, 0, entry(1)); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	second := append((&entry(2)[0]).AppendTo(nil), '\n')
	for cut := range len(second) {
		if err := os.WriteFile(name, append(bytes.Clone(whole), second[:cut]...), 0o600); err != nil {
			t.Fatal(err)
		}
		n := 0
		for e, err := range files.Read(t.Context(), id, 0, false) {
			if n++; err != nil || e.N != 1 {
				t.Fatalf("cut at %d: read %+v, %v", cut, e, err)
			}
		}
		if n != 1 {
			t.Fatalf("cut at %d: %d entries", cut, n)
		}
		if err := (&Files{Dir: dir}).Append(t.Context(), id, 1, entry(2)); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if got, _ := os.ReadFile(name); !bytes.Equal(got, append(bytes.Clone(whole), second...)) {
			t.Fatalf("cut at %d: the journal is\n%s", cut, got)
		}
	}
}
