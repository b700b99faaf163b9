package sse

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// list reads all events of a stream, one line each, and its final error.
func list(r io.Reader, limit int) string {
	var b strings.Builder
	for rd := NewReader(r, limit); ; {
		e, err := rd.Next()
		if err != nil {
			fmt.Fprint(&b, err)
			return b.String()
		}
		fmt.Fprintf(&b, "%s:%q", e.Name, e.Data)
		if e.Partial {
			b.WriteString("…")
		}
		b.WriteByte(' ')
	}
}

var cases = []struct{ in, want string }{
	{"", "EOF"},
	{"\n\n\r\n", "EOF"},
	{"data: a\n\n", `:"a" EOF`},
	{"event: x\ndata: a\n\ndata:b\n\n", `x:"a" :"b" EOF`},
	{"event: x\r\ndata: a\r\n\r\ndata: b\r\n\r\n", `x:"a" :"b" EOF`},
	{"event: x\rdata: a\r\rdata: b\r\r", `x:"a" :"b" EOF`},
	{"data: a\r\ndata: b\n\r\ndata: c\r\r", `:"a\nb" :"c" EOF`},
	{"data: a\ndata:\ndata\ndata:  b\n\n", `:"a\n\n\n b" EOF`},
	{": comment\n\n:\n\ndata: a\n: in between\ndata: b\n\n", `:"a\nb" EOF`},
	{"\xef\xbb\xbfdata: a\n\n", `:"a" EOF`},
	{"\xef\xbbdata: a\n\n", `EOF`},
	{"\xef", `EOF`},
	{"id: 1\nretry: 5\nother\ndata: a\nid: 2\n\n", `:"a" EOF`},
	{"event: lost\n\ndata: a\n\n", `:"a" EOF`},
	{"data\n\n", `:"" EOF`},
	{"data: a\n", `:"a"… EOF`},
	{"data: a", `:"a"… EOF`},
	{"data: a\r", `:"a"… EOF`},
	{"data: a\n\ndata: b\ndata: c", `:"a" :"b\nc"… EOF`},
	{"datax: a\n\nxdata: b\n\n", `EOF`},
	{"data: a:b: c\n\n", `:"a:b: c" EOF`},
}

// Events are the same however reads split the stream.
func TestNext(t *testing.T) {
	for _, c := range cases {
		for name, r := range map[string]io.Reader{
			"whole": strings.NewReader(c.in),
			"bytes": iotest.OneByteReader(strings.NewReader(c.in)),
			"half":  iotest.HalfReader(strings.NewReader(c.in)),
			"eof":   iotest.DataErrReader(strings.NewReader(c.in)),
		} {
			if got := list(r, 0); got != c.want {
				t.Errorf("%q, %s: got %s, want %s", c.in, name, got, c.want)
			}
		}
		for i := range c.in {
			if got := list(io.MultiReader(strings.NewReader(c.in[:i]), strings.NewReader(c.in[i:])), 0); got != c.want {
				t.Errorf("%q, cut at %d: got %s, want %s", c.in, i, got, c.want)
			}
		}
	}
}

// A stream that breaks returns its error and not an incomplete event.
func TestBroken(t *testing.T) {
	why := errors.New("reset")
	r := NewReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(why)), 0)
	if e, err := r.Next(); err != nil || string(e.Data) != "a" {
		t.Errorf("%q %v", e.Data, err)
	}
	for range 2 {
		if e, err := r.Next(); err != why {
			t.Errorf("%q %v", e.Data, err)
		}
	}
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

func TestNoProgress(t *testing.T) {
	if _, err := NewReader(nothing{}, 0).Next(); err != io.ErrNoProgress {
		t.Error(err)
	}
}

func TestLimit(t *testing.T) {
	for _, c := range []struct {
		in   string
		want string
	}{
		{"data: " + strings.Repeat("x", 99_000) + "\n\n", "ok"},
		{"data: " + strings.Repeat("x", 100_001) + "\n\n", ErrTooLarge.Error()},
		{"data: " + strings.Repeat("x", 10_000_000), ErrTooLarge.Error()},
		{strings.Repeat("data: x\n", 20_000) + "\n\n", ErrTooLarge.Error()},
		{strings.Repeat(": nothing\n", 50_000) + "data: x\n\n", "ok"},
		{strings.Repeat("data: x\n\n", 50_000), "ok"},
	} {
		r := NewReader(strings.NewReader(c.in), 100_000)
		got := "ok"
		if _, err := r.Next(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%.20q…: got %s, want %s", c.in, got, c.want)
		}
		if len(r.buf) > 100_000 {
			t.Errorf("%.20q…: a buffer of %d bytes", c.in, len(r.buf))
		}
	}
	if _, err := NewReader(strings.NewReader("data: 12345\n\n"), 4).Next(); err != ErrTooLarge {
		t.Error(err)
	}
}

// naive implements the specification literally, for a stream in memory.
func naive(in string) string {
	in = strings.TrimPrefix(in, "\xef\xbb\xbf")
	in = strings.ReplaceAll(in, "\r\n", "\n")
	in = strings.ReplaceAll(in, "\r", "\n")
	var b strings.Builder
	var name string
	var data []string
	lines := strings.Split(in, "\n")
	for i, line := range lines {
		last := i == len(lines)-1
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data = append(data, value)
		case "event":
			name = value
		}
		if (line == "" || last) && data != nil {
			fmt.Fprintf(&b, "%s:%q", name, strings.Join(data, "\n"))
			if last {
				b.WriteString("…")
			}
			b.WriteByte(' ')
		}
		if line == "" {
			name, data = "", nil
		}
	}
	return b.String() + "EOF"
}

func FuzzReader(f *testing.F) {
	for _, c := range cases {
		f.Add(c.in, 3)
	}
	f.Fuzz(func(t *testing.T, in string, cut int) {
		want := naive(in)
		if got := list(strings.NewReader(in), 0); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
		if got := list(iotest.OneByteReader(strings.NewReader(in)), 0); got != want {
			t.Errorf("%q, byte by byte: got %s, want %s", in, got, want)
		}
		if cut > 0 && cut < len(in) {
			if got := list(io.MultiReader(strings.NewReader(in[:cut]), strings.NewReader(in[cut:])), 0); got != want {
				t.Errorf("%q, cut at %d: got %s, want %s", in, cut, got, want)
			}
		}
		list(strings.NewReader(in), 5) // ends
	})
}

const delta = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"some words of an answer, "}}`

// One delta in a stream of 10,000, as parsed by this package, and with encoding/json on
// top of it.
func BenchmarkNext(b *testing.B) {
	const events = 10_000
	stream := bytes.Repeat([]byte("event: content_block_delta\ndata: "+delta+"\n\n"), events)
	for _, decode := range []bool{false, true} {
		name := "raw"
		if decode {
			name = "encoding-json"
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(stream) / events))
			for n := 0; n < b.N; {
				r := NewReader(bytes.NewReader(stream), 0)
				for n < b.N {
					e, err := r.Next()
					if err != nil {
						break
					}
					n++
					if !decode {
						continue
					}
					var v struct {
						Type  string
						Index int
						Delta struct{ Type, Text string }
					}
					if err := json.Unmarshal(e.Data, &v); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
