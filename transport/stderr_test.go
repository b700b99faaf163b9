package transport

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

func TestStderrLines(t *testing.T) {
	long := strings.Repeat("l", maxStderrPiece)
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"one", "a\n", []string{"a"}},
		{"no newline", "a\nb", []string{"a", "b"}},
		{"blank lines", "\n\na\n", []string{"", "", "a"}},
		{"CRLF", "a\r\nb\r\n", []string{"a", "b"}},
		{"not UTF-8", "a\xffb\n", []string{"a\uFFFDb"}},
		{"exactly a piece", long + "\nb\n", []string{long, "b"}},
		{"more than a piece", long + "m\n", []string{long, "m"}},
		{"two pieces", long + long + "\nb", []string{long, long, "b"}},
	} {
		for name, r := range map[string]io.Reader{
			"whole": strings.NewReader(tt.in),
			"bytes": iotest.OneByteReader(strings.NewReader(tt.in)),
		} {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				var got []string
				d := drainStderr(r, 1<<20, func(line string) { got = append(got, line) })
				<-d.end
				if !slices.Equal(got, tt.want) {
					t.Errorf("got %d lines, want %d", len(got), len(tt.want))
				}
			})
		}
	}
}

func TestStderrTail(t *testing.T) {
	for _, tt := range []struct {
		limit    int
		in, want string
	}{
		{5, "", ""},
		{5, "abc", "abc"},
		{5, "abcdefghijklmnop", "lmnop"},
		{2, "aé", "é"},
		{2, "éa", "a"}, // drop an incomplete character
		{0, "abc", ""},
		{-1, "abc", ""},
	} {
		d := drainStderr(iotest.OneByteReader(strings.NewReader(tt.in)), tt.limit, nil)
		<-d.end
		if got := d.text(); got != tt.want {
			t.Errorf("the last %d of %q: %q, want %q", tt.limit, tt.in, got, tt.want)
		}
	}
}

// TestStderrFallsBehind checks that a callback that blocks for a while loses lines and
// receives their number, and that reading continues in the meantime.
func TestStderrFallsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		var first, last string
		var lines int
		d := drainStderr(r, 10, func(line string) {
			if lines++; lines == 1 {
				first = line
				time.Sleep(time.Hour)
			}
			if strings.Contains(line, "dropped") {
				last = line
			}
		})
		line := append(bytes.Repeat([]byte("x"), 1023), '\n')
		start := time.Now()
		for range 3 * stderrQueue >> 10 {
			w.Write(line)
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("the writer waited %v", waited)
		}
		time.Sleep(2 * time.Hour)
		io.WriteString(w, "end\n")
		w.Close()
		<-d.end
		if len(first) != 1023 || lines < stderrQueue>>10 || lines > stderrQueue>>10+5 || !strings.Contains(last, "lines dropped") {
			t.Errorf("%d lines, and %q", lines, last)
		}
		if got, want := d.dropped(), 3*stderrQueue>>10-(lines-2); got != want {
			t.Errorf("%d lines were dropped, want %d", got, want)
		}
		if d.text() != "xxxxx\nend\n" {
			t.Errorf("tail %q", d.text())
		}
	})
}

// TestStderrNotCalledAfterEnd checks that a callback that is slow at the end loses the
// rest, and is not called after the end.
func TestStderrNotCalledAfterEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, calls := false, 0
		d := drainStderr(strings.NewReader(strings.Repeat("line\n", 10000)), 10, func(string) {
			if calls++; ended {
				t.Error("it was called after the end")
			}
			time.Sleep(time.Millisecond)
		})
		start := time.Now()
		<-d.end
		ended = true
		if took := time.Since(start); took > stderrGrace+time.Millisecond {
			t.Errorf("the end took %v", took)
		}
		if calls < 900 || calls+d.dropped() != 10000 {
			t.Errorf("%d calls and %d dropped lines of 10000", calls, d.dropped())
		}
		time.Sleep(time.Minute)
	})
}
