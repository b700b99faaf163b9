package search

import (
	"bytes"
	"regexp"
	"testing"
)

// lines finds matching lines one by one, as slowly as it is plain.
func lines(re *regexp.Regexp, data []byte) (starts []int) {
	for start := 0; start < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[start:], '\n'); i >= 0 {
			end = start + i
		}
		if re.Match(data[start:end]) {
			starts = append(starts, start)
		}
		start = end + 1
	}
	return starts
}

// Whatever the pattern, the lines are those that the regular expression matches.
func FuzzPattern(f *testing.F) {
	for _, seed := range [][2]string{
		{"abc", "xabc\nab\nabc"}, {"(?i)needle", "a NEEDLE\nneeDle\n"}, {"[A-Z]{3}[0-9]+", "ABC12\nAB12\n"}, {"^$", "\n\na\n"}, {"\\bfoo\\b", "foo\nfood\n"},
		{"é+", "caf\xc3\xa9\n\xe9\n"}, {"(?i)k", "\u212a\n"}, {"(?i)strasse", "STRA\u017fSE\n"}, {"[^a]", "a\na\nb"}, {"x*", "a\nb"}, {"(a|b)*c$", "abc\ncab\n"}, {".", "\xff\n\n"}, {"(?i)x-1", "X-1\n"},
	} {
		f.Add(seed[0], []byte(seed[1]), false)
	}
	f.Fuzz(func(t *testing.T, expr string, data []byte, ignoreCase bool) {
		p, err := Compile(expr, ignoreCase, false)
		if err != nil || len(expr) > 100 {
			return
		}
		want := lines(p.re, data)
		s := p.NewSearcher()
		var got []int
		for from := 0; ; {
			start, end, ok := s.Next(data, from)
			if !ok {
				break
			}
			got = append(got, start)
			from = end + 1
		}
		if len(got) != len(want) {
			t.Fatalf("%q in %q: %v, want %v (literal %q, fold %v)", expr, data, got, want, p.literal, p.fold)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%q in %q: %v, want %v", expr, data, got, want)
			}
		}
	})
}

// A pattern with very many states does not take more memory than it may.
func TestAutomatonBounded(t *testing.T) {
	p, err := Compile("[ab]*[ae][ab]{14}[cd]", false, false)
	if err != nil || p.prog == nil {
		t.Fatal(err, "no automaton")
	}
	data := make([]byte, 64<<10)
	x := uint32(1)
	for i := range data {
		x = x*1664525 + 1013904223
		data[i] = 'a' + byte(x>>31)
	}
	s := p.NewSearcher()
	if _, _, ok := s.Next(data, 0); ok {
		t.Error("there is nothing to find")
	}
	if s.dfa.memory > maxMemory+1<<20 || s.dfa.resets == 0 {
		t.Errorf("%d bytes of states, thrown away %d times", s.dfa.memory, s.dfa.resets)
	}
	copy(data[len(data)-17:], "aaaaaaaaaaaaaaaac")
	if _, _, ok := s.Next(data, 0); !ok {
		t.Error("there is something to find")
	}
}
