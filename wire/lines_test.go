package wire_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/parley-go/parley/wire"
)

// kindsOf reads all messages and returns their types.
func kindsOf(t testing.TB, r *wire.Reader) []string {
	t.Helper()
	var got []string
	for {
		m, err := r.Next()
		if err == io.EOF {
			return got
		}
		if err != nil {
			return append(got, "error: "+err.Error())
		}
		switch m := m.(type) {
		case *wire.BadLine:
			got = append(got, fmt.Sprintf("bad %d: %v", m.Size, m.Err))
		default:
			typ, _ := wire.TypeOf(m)
			got = append(got, typ)
		}
	}
}

func TestReader(t *testing.T) {
	const ka, cc = `{"type":"keep_alive"}`, `{"type":"control_cancel_request","request_id":"a"}`
	long := `{"type":"keep_alive","pad":"` + strings.Repeat("x", 200) + `"}`
	tests := []struct {
		name, in string
		want     []string
	}{
		{"two lines", ka + "\n" + cc + "\n", []string{"keep_alive", "control_cancel_request"}},
		{"no line end at the end", ka + "\n" + cc, []string{"keep_alive", "control_cancel_request"}},
		{"carriage returns", ka + "\r\n" + cc + "\r\n", []string{"keep_alive", "control_cancel_request"}},
		{"blank lines", "\n\r\n  \n" + ka + "\n\n", []string{"keep_alive"}},
		{"byte order mark", "\xEF\xBB\xBF" + ka + "\n" + ka, []string{"keep_alive", "keep_alive"}},
		{"U+2028 inside a string", `{"type":"x` + "\u2028" + `y"}` + "\n", []string{"x\u2028y"}},
		{"bare carriage return inside white space", "{\"type\":\r\"keep_alive\"}\n", []string{"keep_alive"}},
		{"text", "warming up\n" + ka + "\n", []string{"bad 10: not JSON", "keep_alive"}},
		{"cut off", ka + "\n" + `{"type":"ass`, []string{"keep_alive", "bad 12: unexpected EOF"}},
		{"two objects on a line", ka + ka + "\n" + ka, []string{"bad 42: not JSON", "keep_alive"}},
		{"not an object", "[1,2]\n\"s\"\n3\nnull\n", []string{"", "", "", ""}},
		{"too long", ka + "\n" + long + "\n" + cc, []string{"keep_alive", "bad 230: line too long", "control_cancel_request"}},
		{"too long at the end", ka + "\n" + long, []string{"keep_alive", "bad 230: line too long"}},
		{"nothing", "", nil},
	}
	readers := map[string]func(io.Reader) io.Reader{
		"whole":         func(r io.Reader) io.Reader { return r },
		"byte by byte":  iotest.OneByteReader,
		"half":          iotest.HalfReader,
		"data with EOF": iotest.DataErrReader,
	}
	for _, tt := range tests {
		for how, split := range readers {
			t.Run(tt.name+"/"+how, func(t *testing.T) {
				r := wire.NewReader(split(strings.NewReader(tt.in)), &wire.ReaderOptions{MaxLine: 100})
				if got := kindsOf(t, r); fmt.Sprint(got) != fmt.Sprint(tt.want) {
					t.Errorf("got  %q\nwant %q", got, tt.want)
				}
			})
		}
	}
}

func TestReaderReturnsErrorOfItsSource(t *testing.T) {
	broken := errors.New("broken pipe")
	src := io.MultiReader(strings.NewReader("{\"type\":\"keep_alive\"}\n{\"ty"), iotest.ErrReader(broken))
	r := wire.NewReader(src, nil)
	want := []string{"keep_alive", "bad 4: unexpected EOF", "error: broken pipe"}
	if got := kindsOf(t, r); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for m, err := range wire.NewReader(iotest.ErrReader(broken), nil).All() {
		if m != nil || err != broken {
			t.Errorf("All yields %v, %v", m, err)
		}
	}
}

// TestReaderFreesMemoryOfALongLine reads a line of 20 MB and a short one.
func TestReaderFreesMemoryOfALongLine(t *testing.T) {
	body := strings.Repeat("a", 20<<20)
	src := io.MultiReader(strings.NewReader(`{"type":"x","pad":"`+body+"\"}\n"), strings.NewReader("{\"type\":\"keep_alive\"}\n"))
	r := wire.NewReader(src, nil)
	m, err := r.Next()
	if u, ok := m.(*wire.Unknown); err != nil || !ok || len(u.Raw) != len(body)+21 {
		t.Fatalf("20 MB line: %T, %v", m, err)
	}
	if m, err = r.Next(); err != nil {
		t.Fatal(err)
	}
	if _, ok := m.(*wire.KeepAlive); !ok {
		t.Fatalf("after the long line: %T", m)
	}
	if n := wire.BufferSize(r); n > 1<<20 {
		t.Errorf("the reader still holds %d bytes", n)
	}
}

func TestPeekType(t *testing.T) {
	for line, want := range map[string]string{
		`{"type":"user","message":{}}`:                "user",
		`{"type":"assistant"}`:                        "assistant",
		`{"type":"stream_event"}`:                     "stream_event",
		`{"type":"system","subtype":"init"}`:          "system",
		`{"type":"new"}`:                              "new",
		`{"type":""}`:                                 "",
		`{"type": "user"}`:                            "",
		`{"uuid":"u","type":"user"}`:                  "",
		`{"type":5}`:                                  "",
		`{"type":"user`:                               "",
		`{"type":"` + strings.Repeat("x", 100) + `"}`: "",
		`not JSON`:                                    "",
		"":                                            "",
	} {
		if got := wire.PeekType([]byte(line)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// TestReaderShrinksAfterLoad reads many lines at once and then single ones.
func TestReaderShrinksAfterLoad(t *testing.T) {
	line := strings.Repeat("x", 1000) + "\n"
	src := &parts{strings.Repeat(line, 2000)}
	for range 40 {
		*src = append(*src, line)
	}
	r := wire.NewReader(src, nil)
	most := 0
	for n := 0; ; n++ {
		if _, err := r.ReadLine(); err != nil {
			if err != io.EOF || n != 2040 {
				t.Fatalf("%d lines, then %v", n, err)
			}
			break
		}
		most = max(most, r.Held())
	}
	if most < 128<<10 || r.Held() > 16<<10 {
		t.Errorf("the reader held %d bytes at most and %d at the end", most, r.Held())
	}
}

// parts is a source that returns at most one part for each Read.
type parts []string

func (p *parts) Read(b []byte) (int, error) {
	if len(*p) == 0 {
		return 0, io.EOF
	}
	n := copy(b, (*p)[0])
	if (*p)[0] = (*p)[0][n:]; (*p)[0] == "" {
		*p = (*p)[1:]
	}
	return n, nil
}
