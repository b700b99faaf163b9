package search

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"unicode/utf8"
)

// lines finds matching lines one by one, in a slow but obvious way.
func lines(s *Searcher, data []byte) (starts []int) {
	for start := 0; start < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[start:], '\n'); i >= 0 {
			end = start + i
		}
		if s.asked(data[start:end]) {
			starts = append(starts, start)
		}
		start = end + 1
	}
	return starts
}

// For every pattern the lines are those that the regular expression matches.
func FuzzPattern(f *testing.F) {
	for _, seed := range [][2]string{
		{"abc", "xabc\nab\nabc"}, {"(?i)needle", "a NEEDLE\nneeDle\n"}, {"[A-Z]{3}[0-9]+", "ABC12\nAB12\n"}, {"^$", "\n\na\n"}, {"\\bfoo\\b", "foo\nfood\n"},
		{"é+", "caf\xc3\xa9\n\xe9\n"}, {"(?i)k", "\u212a\n"}, {"(?i)strasse", "STRA\u017fSE\n"}, {"[^a]", "a\na\nb"}, {"x*", "a\nb"}, {"(a|b)*c$", "abc\ncab\n"}, {".", "\xff\n\n"}, {"(?i)x-1", "X-1\n"},
		{"(foo|bar)+ ", "a foo\nbar b\n"}, {"^\\s+\\w\\w$", "\tab\n\tabc\n \u00e9a"}, {"\\Bx\\b", "ax\nx\n\u00e9x"}, {"^(a|$)", "b\n\na"}, {"\\A\\bx|y\\z", "x\ny\n"},
	} {
		f.Add(seed[0], []byte(seed[1]), false)
	}
	f.Fuzz(func(t *testing.T, expr string, data []byte, ignoreCase bool) {
		p, err := Compile(expr, ignoreCase, false)
		if err != nil || len(expr) > 100 {
			return
		}
		s := p.NewSearcher(t.Context())
		want := lines(s, data)
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
			t.Fatalf("%q in %q: %v, want %v (needles %v)", expr, data, got, want, p.needles)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%q in %q: %v, want %v", expr, data, got, want)
			}
		}
	})
}

// The machine finds the same as package regexp, where that is right.
func FuzzMachine(f *testing.F) {
	for _, seed := range [][2]string{{"a+?b|c*", "xaab\ncc"}, {"^$", "\n\na"}, {"(a|ab)(c|bcd)(d*)", "abcd"}, {"\\w+@\\w+$", "me@h\u00f6me\n"}, {"(?i)\u212a", "k K"}, {"x*", "a\u00e9x"}} {
		f.Add(seed[0], []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, expr string, data []byte) {
		p, err := Compile(expr, false, true)
		if err != nil || len(expr) > 100 || p.words || !utf8.Valid(data) {
			return
		}
		s := p.NewSearcher(t.Context())
		got := [2]int{}
		got[0], got[1] = s.vm.find(data, 0)
		want := [2]int{-1, -1}
		if loc := p.re.FindIndex(data); loc != nil {
			copy(want[:], loc)
		}
		if got != want {
			t.Fatalf("%q in %q: %v, want %v", expr, data, got, want)
		}
		if at := s.automaton().find(data, 0); want[0] >= 0 && at < 0 || want[0] < 0 && at >= 0 && isASCII(data) && !s.dfa.hopeless() {
			t.Fatalf("%q in %q: the automaton says %d, want %v", expr, data, at, want)
		}
	})
}

// A pattern with very many states does not exceed its memory limit.
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
	s := p.NewSearcher(t.Context())
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

// endingContext ends after it was checked a number of times.
type endingContext struct {
	context.Context
	looks int
}

func (c *endingContext) Err() error {
	if c.looks--; c.looks < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// A search ends soon after its context, whatever the pattern and the length of the
// text, and finds nothing then.
func TestSearchEnds(t *testing.T) {
	ascii, foreign := bytes.Repeat([]byte("ab "), 100_000), bytes.Repeat([]byte("ab\xff "), 75_000)
	lines := bytes.Repeat([]byte("ab\n"), 100_000)
	for _, c := range []struct {
		pattern string
		data    []byte
		looks   int // checks of the context before it ends
	}{
		{"(?s).*", ascii, 3}, {"(?s).*", foreign, 3}, {"(a|b| )*?x", ascii, 3}, {`\b(a|b| |.)*?x`, foreign, 3}, {"(?s).*", lines, 3},
		{"a", lines, 1000}, {"(?s)a.*?b", lines, 1000},
	} {
		for _, multiline := range []bool{false, true} {
			p, err := Compile(c.pattern, false, multiline)
			if err != nil {
				t.Fatal(err)
			}
			ctx := &endingContext{t.Context(), c.looks}
			s := p.NewSearcher(ctx)
			found, end, ok := 0, -1, true
			for ok {
				if _, end, ok = s.Next(c.data, end+1); ok {
					found++
				}
			}
			for range s.Matches(c.data) {
				found++
			}
			if found > c.looks {
				t.Errorf("%s: found %d times, and the context was looked at %d times before it ended", c.pattern, found, c.looks)
			}
			if whole := p.NewSearcher(t.Context()); c.looks > 3 {
				if _, _, ok := whole.Next(c.data, 0); !ok {
					t.Errorf("%s: nothing found with time enough", c.pattern)
				}
			}
		}
	}
}

// The matching parts are the same in a text of any length.
func TestMatchesOfLongText(t *testing.T) {
	for _, expr := range []string{"a+", `\bab\b`, "^a|b$", "x*", "(a|ab)(c|bcd)?"} {
		p, err := Compile(expr, false, true)
		if err != nil {
			t.Fatal(err)
		}
		s, text := p.NewSearcher(t.Context()), bytes.Repeat([]byte("ab aab\ncab "), longText/10)
		var want [][]byte
		for _, loc := range p.re.FindAllIndex(text, -1) {
			if loc[0] < loc[1] {
				want = append(want, text[loc[0]:loc[1]])
			}
		}
		if got := slices.Collect(s.Matches(text)); !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s: %d parts, want %d", expr, len(got), len(want))
		}
	}
}
