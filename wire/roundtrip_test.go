package wire_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/parley-go/parley/wire"
	"golang.org/x/tools/txtar"
)

// parse reads JSON so that two texts with the same meaning compare equal and two
// spellings of a number do not.
func parse(t testing.TB, text []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// roundTrip checks that a line survives Decode and Encode, and the same through
// encoding/json.
func roundTrip(t testing.TB, line []byte) wire.Message {
	t.Helper()
	m, err := wire.Decode(line)
	if err != nil {
		t.Fatal(err)
	}
	want := parse(t, line)
	again, err := wire.Encode(m)
	if err != nil {
		t.Fatalf("Encode(%T): %v", m, err)
	}
	if got := parse(t, again); !reflect.DeepEqual(got, want) {
		t.Fatalf("%T changed\n got %s\nwant %s", m, again, line)
	}
	std, err := json.Marshal(m)
	if err != nil {
		t.Fatalf("json.Marshal(%T): %v", m, err)
	}
	if got := parse(t, std); !reflect.DeepEqual(got, want) {
		t.Fatalf("%T changed by encoding/json\n got %s\nwant %s", m, std, line)
	}
	fresh := reflect.New(reflect.TypeOf(m).Elem())
	if err := json.Unmarshal(line, fresh.Interface()); err != nil {
		t.Fatalf("json.Unmarshal(%T): %v", m, err)
	}
	if again, err = wire.Encode(fresh.Interface().(wire.Message)); err != nil {
		t.Fatal(err)
	}
	if got := parse(t, again); !reflect.DeepEqual(got, want) {
		t.Fatalf("%T changed by encoding/json\n got %s\nwant %s", m, again, line)
	}
	return m
}

// TestCorpusRoundTrips round-trips every line of testdata. A file is prose, then sections
// of lines; the name of a section is the type that its lines decode to.
func TestCorpusRoundTrips(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no corpus:", err)
	}
	kinds := map[string]bool{}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range a.Files {
			t.Run(filepath.Base(file)+"/"+section.Name, func(t *testing.T) {
				for line := range bytes.Lines(section.Data) {
					if len(bytes.TrimSpace(line)) == 0 {
						continue
					}
					m := roundTrip(t, bytes.TrimSpace(line))
					kind := strings.TrimPrefix(reflect.TypeOf(m).String(), "*wire.")
					if want, _, _ := strings.Cut(section.Name, "/"); kind != want {
						t.Errorf("got a %s, want a %s: %s", kind, want, line)
					}
					kinds[kind] = true
				}
			})
		}
	}
	for _, kind := range wire.Kinds() {
		if !kinds[kind] {
			t.Errorf("no line of the corpus is a %s", kind)
		}
	}
}

// TestTranscriptsRoundTrip round-trips the recorded conversations in the directory
// PARLEY_TRANSCRIPTS, if it is set.
func TestTranscriptsRoundTrip(t *testing.T) {
	dir := os.Getenv("PARLEY_TRANSCRIPTS")
	if dir == "" {
		t.Skip("PARLEY_TRANSCRIPTS is not set")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts:", err)
	}
	lines, unknown := 0, map[string]int{}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		s := bufio.NewScanner(f)
		s.Buffer(nil, 64<<20)
		for s.Scan() {
			var rec struct {
				Dir string
				Msg json.RawMessage
			}
			if err := json.Unmarshal(s.Bytes(), &rec); err != nil {
				t.Fatal(file, err)
			}
			if (rec.Dir != "in" && rec.Dir != "out") || rec.Msg[0] != '{' {
				continue
			}
			lines++
			if u, ok := roundTrip(t, rec.Msg).(*wire.Unknown); ok {
				unknown[u.Type+"/"+u.Subtype]++
			}
		}
		if s.Err() != nil {
			t.Fatal(file, s.Err())
		}
		f.Close()
	}
	t.Logf("%d lines of %d transcripts; of unknown kinds: %v", lines, len(files), unknown)
}
