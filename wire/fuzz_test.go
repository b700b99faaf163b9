package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/wire"
)

// FuzzDecode decodes any text.
func FuzzDecode(f *testing.F) {
	for _, line := range corpus(f) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) { check(t, line) })
}

// check decodes any text. A line that is JSON is a message. It encodes to one line with the
// same meaning, also through encoding/json. That package defines the meaning of text that
// is not strictly JSON: of two members with the same name the last one counts, and a lone
// surrogate is U+FFFD.
func check(t *testing.T, line []byte) {
	t.Helper()
	buf := bytes.Clone(line)
	m, err := wire.Decode(buf)
	if !bytes.Equal(buf, line) {
		t.Fatal("Decode changed its argument")
	}
	for i := range buf {
		buf[i] = 'x' // the message must not refer to the buffer
	}
	text := bytes.ToValidUTF8(bytes.TrimPrefix(line, []byte("\ufeff")), []byte("\ufffd"))
	if err != nil {
		var bad *wire.BadLine
		if m != nil || !errors.As(err, &bad) || bad.Size != int64(len(line)) {
			t.Fatalf("got %v, %v", m, err)
		}
		if json.Valid(text) {
			t.Fatalf("valid JSON: %v", err)
		}
		return
	}
	want := parse(t, text)

	encoded, err := wire.Encode(m)
	if err != nil {
		t.Fatalf("%T: %v", m, err)
	}
	if bytes.ContainsAny(encoded, "\n\r\u2028\u2029") {
		t.Fatalf("more than one line: %q", encoded)
	}
	if strict(text) && !strict(encoded) {
		t.Fatalf("%s becomes %s", text, encoded)
	}
	if got := parse(t, encoded); !reflect.DeepEqual(got, want) {
		t.Fatalf("%T\n got %s\nwant %s", m, encoded, text)
	}

	again, err := wire.Decode(encoded)
	if err != nil || reflect.TypeOf(again) != reflect.TypeOf(m) {
		t.Fatalf("%T becomes %T, %v", m, again, err)
	}
	twice, err := wire.Encode(again)
	if err != nil || !bytes.Equal(twice, encoded) {
		t.Fatalf("%T\n first %s\n then %s, %v", m, encoded, twice, err)
	}
	typ, subtype := wire.TypeOf(m)
	if t2, s2 := wire.TypeOf(again); t2 != typ || s2 != subtype {
		t.Fatalf("%s/%s becomes %s/%s", typ, subtype, t2, s2)
	}

	std, err := json.Marshal(m)
	if err != nil {
		t.Fatalf("json.Marshal(%T): %v", m, err)
	}
	if got := parse(t, std); !reflect.DeepEqual(got, want) {
		t.Fatalf("%T through encoding/json\n got %s\nwant %s", m, std, text)
	}
	fresh := reflect.New(reflect.TypeOf(m).Elem()).Interface().(wire.Message)
	if err := json.Unmarshal(text, fresh); err != nil {
		t.Fatalf("json.Unmarshal(%T): %v", m, err)
	}
	if got, err := wire.Encode(fresh); err != nil || !bytes.Equal(got, encoded) {
		t.Fatalf("%T from encoding/json\n got %s, %v\nwant %s", m, got, err, encoded)
	}

	switch m := m.(type) {
	case *wire.StreamEvent:
		m.Text()
		if event, err := m.Parse(); err == nil && m.Event[0] == '{' {
			if got, err := json.Marshal(event); err != nil || !reflect.DeepEqual(parse(t, got), parse(t, m.Event)) {
				t.Fatalf("event\n got %s, %v\nwant %s", got, err, m.Event)
			}
		}
	case *wire.Result:
		if o := m.Outcome(); o.String() == "unknown outcome" {
			t.Fatalf("outcome %d", o)
		}
		m.Reason()
	case *wire.ControlResponse:
		for _, a := range append(answers, &wire.Usage{}) {
			m.Response.Decode(reflect.New(reflect.TypeOf(a).Elem()).Interface())
		}
	}
}

// TestSplicedLinesRoundTrip moves values between lines of the corpus and duplicates
// members, which a fuzzer that changes bytes takes long to do.
func TestSplicedLinesRoundTrip(t *testing.T) {
	lines := corpus(t)
	found := make([][]wire.Span, len(lines))
	for i, line := range lines {
		found[i] = wire.Spans(line)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range spliceRuns {
		line := lines[rnd.IntN(len(lines))]
		for range 1 + rnd.IntN(3) {
			all := wire.Spans(line)
			to := all[rnd.IntN(len(all))]
			j := rnd.IntN(len(lines))
			from := found[j][rnd.IntN(len(found[j]))]
			value := lines[j][from.Start:from.End]
			switch n := rnd.IntN(4); {
			case n == 0 && to.Name >= 0: // the same member twice
				line = slices.Concat(line[:to.End], []byte(","), line[to.Name:to.Start], value, line[to.End:])
			case n == 1 && to.Name >= 0 && from.Name >= 0: // one more member
				line = slices.Concat(line[:to.Name], lines[j][from.Name:from.End], []byte(","), line[to.Name:])
			default: // another value
				line = slices.Concat(line[:to.Start], value, line[to.End:])
			}
		}
		check(t, line)
	}
}

const spliceRuns = 1000

// pieces is a reader that returns its data in pieces.
type pieces struct {
	data  []byte
	sizes []byte // of the pieces, repeated; 0 is an empty read
	next  int
	err   error // at the end
	early bool  // err comes with the last piece
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, p.err
	}
	n := len(p.data)
	if len(p.sizes) > 0 {
		n = int(p.sizes[p.next%len(p.sizes)])
		p.next++
		if p.next > 50 && n == 0 {
			n = 1 // a reader must not return nothing forever
		}
	}
	n = copy(b, p.data[:min(n, len(p.data))])
	p.data = p.data[n:]
	if len(p.data) == 0 && p.early {
		return n, p.err
	}
	return n, nil
}

// linesOf is a simple model of a reader: it returns the lines of data.
func linesOf(data []byte, limit int) (want []string) {
	first := true
	for line := range bytes.Lines(data) {
		line, ended := bytes.CutSuffix(line, []byte("\n"))
		if len(line) > limit {
			want = append(want, fmt.Sprintf("bad %d %q %v", len(line), line[:min(limit, 512)], wire.ErrLineTooLong))
			first = false
			continue
		}
		if first {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
			first = false
		}
		if len(bytes.Trim(line, " \t\r\n")) == 0 {
			continue
		}
		m, err := wire.Decode(line)
		var bad *wire.BadLine
		switch {
		case err == nil:
			text, _ := wire.Encode(m)
			want = append(want, fmt.Sprintf("%T %s", m, text))
		case errors.As(err, &bad) && ended:
			want = append(want, fmt.Sprintf("bad %d %q %v", bad.Size, bad.Text, bad.Err))
		default:
			want = append(want, fmt.Sprintf("bad %d %q %v", len(line), line[:min(len(line), 512)], io.ErrUnexpectedEOF))
		}
	}
	return want
}

// FuzzReader reads any bytes in any pieces: the messages do not depend on the
// pieces, memory is bounded by the limit, and an error ends the stream.
func FuzzReader(f *testing.F) {
	const ka = `{"type":"keep_alive"}`
	f.Add([]byte(ka+"\n"+ka), []byte{}, uint16(100), false)
	f.Add([]byte("\ufeff\r\n\n"+ka+"\r\n{\"type\":\"x\u2028\"}\n"), []byte{1, 0, 3}, uint16(100), true)
	f.Add([]byte(ka+"\nnot JSON\n"+strings.Repeat("long", 50)+"\n"+ka), []byte{7}, uint16(30), true)
	f.Add([]byte("not JSON\n"), []byte{}, uint16(100), true)
	f.Add([]byte(`{"type":"ass`), []byte{5}, uint16(100), false)
	f.Add([]byte(strings.Repeat("x", 1000)), []byte{255, 1}, uint16(0), false)
	f.Add([]byte("\xff\xfe\x00\n \t\n\x00\n"), []byte{2}, uint16(3), false)
	f.Fuzz(func(t *testing.T, data, sizes []byte, limit uint16, early bool) {
		if limit == 0 {
			limit = 1
		}
		broken := errors.New("broken")
		src := &pieces{data: data, sizes: sizes, err: broken, early: early}
		r := wire.NewReader(src, &wire.ReaderOptions{MaxLine: int(limit)})
		want := linesOf(data, int(limit))
		var got []string
		for m, err := range r.All() {
			if n := wire.BufferSize(r); n > 2*int(limit)+128<<10 {
				t.Fatalf("the reader holds %d bytes with a limit of %d", n, limit)
			}
			if err != nil {
				if m != nil || err != broken {
					t.Fatalf("got %v, %v", m, err)
				}
				got = append(got, "end")
				continue
			}
			if bad, ok := m.(*wire.BadLine); ok {
				got = append(got, fmt.Sprintf("bad %d %q %v", bad.Size, bad.Text, bad.Err))
				if !bytes.HasPrefix(r.Line(), bad.Text) {
					t.Fatalf("Line is %q, Text %q", r.Line(), bad.Text)
				}
				continue
			}
			text, err := wire.Encode(m)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%T %s", m, text))
			if again, err := wire.Decode(r.Line()); err != nil || !reflect.DeepEqual(again, m) {
				t.Fatalf("Line is %q", r.Line())
			}
		}
		if want = append(want, "end"); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
		for range 2 {
			if m, err := r.Next(); m != nil || err != broken {
				t.Fatalf("after the end: %v, %v", m, err)
			}
		}

		// The same lines, for the caller to decode.
		r = wire.NewReader(&pieces{data: data, sizes: sizes, err: broken, early: !early}, &wire.ReaderOptions{MaxLine: int(limit)})
		got = got[:0]
		for {
			line, err := r.ReadLine()
			if err == broken {
				break
			}
			var m wire.Message
			if err == nil {
				m, err = wire.Decode(line)
				if !bytes.Equal(line, r.Line()) {
					t.Fatalf("Line is %q, want %q", r.Line(), line)
				}
			}
			var bad *wire.BadLine
			switch {
			case errors.As(err, &bad):
				got = append(got, fmt.Sprintf("bad %d %q", bad.Size, bad.Text))
			case err != nil:
				t.Fatal(err)
			default:
				text, _ := wire.Encode(m)
				got = append(got, fmt.Sprintf("%T %s", m, text))
				if typ, _ := wire.TypeOf(m); strict(line) && !bytes.Contains(line, []byte{'\\'}) && bytes.HasPrefix(line, []byte(`{"type":"`)) && len(typ) < 64 && wire.PeekType(line) != typ {
					t.Fatalf("PeekType is %q, TypeOf %q", wire.PeekType(line), typ)
				}
			}
		}
		for i, w := range want[:len(want)-1] {
			if i >= len(got) || !strings.HasPrefix(w, got[i]) {
				t.Fatalf("ReadLine\n got  %q\nwant %q", got, want)
			}
		}
	})
}
