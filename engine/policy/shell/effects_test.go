package shell

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/effects.txt")

// TestEffects compares the effects of commands with testdata/effects.txt: a line with "$
// " and the command, in Go quotes if it starts with one, then its effects.
func TestEffects(t *testing.T) {
	const golden = "testdata/effects.txt"
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(data)) {
		command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "$ ")
		if !ok {
			if strings.HasPrefix(line, "#") || line == "\n" {
				got.WriteString(line)
			}
			continue
		}
		got.WriteString(line)
		if text, err := strconv.Unquote(command); err == nil && command[0] == '"' {
			command = text
		}
		got.WriteString(describe(Analyze(command, Env{Dir: "/w", Home: "/home/u"})))
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got.String() != string(data) {
		have, want := strings.Split(got.String(), "\n"), strings.Split(string(data), "\n")
		command := ""
		for i := range min(len(have), len(want)) {
			if strings.HasPrefix(have[i], "$ ") {
				command = have[i]
			}
			if have[i] != want[i] {
				t.Fatalf("effects.txt:%d: %s\n got %q\nwant %q\nIf that is meant, run go test -update and review the difference.", i+1, command, have[i], want[i])
			}
		}
		t.Fatalf("effects.txt has %d lines, want %d", len(have), len(want))
	}
}

// describe formats the effects of a script for people.
func describe(s *Script) string {
	var b strings.Builder
	for _, c := range s.Calls {
		if c.Guess {
			b.WriteString("  may run")
		} else {
			b.WriteString("  runs")
		}
		for _, a := range c.Args {
			if text := a.Text(); !a.Static() {
				fmt.Fprintf(&b, " <%s>", strings.NewReplacer("\n", "\\n", "\t", "\\t").Replace(text))
			} else if consistsOf(text, plainBytes+"=") {
				b.WriteString(" " + text)
			} else {
				b.WriteString(" " + strconv.Quote(text))
			}
		}
		for _, trait := range []struct {
			has  bool
			name string
		}{{c.Quiet, "quiet"}, {c.Reads && !c.Quiet, "reads"}, {c.Edits, "edits"}, {c.Clear, "clear"}, {c.Loose, "loose"}} {
			if trait.has {
				b.WriteString(", " + trait.name)
			}
		}
		for _, d := range c.Danger {
			b.WriteString(", danger " + strconv.Quote(d.Word))
		}
		for _, p := range c.Places {
			b.WriteString(", at " + strconv.Quote(p.Word.Text()))
		}
		b.WriteByte('\n')
	}
	for _, f := range s.Files {
		if f.Loose {
			continue // it may not be a file
		}
		fmt.Fprintf(&b, "  %ss ", f.Kind)
		if f.Word.Static() {
			b.WriteString(f.Word.Text())
		} else {
			b.WriteString("<" + f.Word.Raw + ">")
		}
		if f.Deep {
			b.WriteString(" and all below")
		}
		if f.Owner == nil {
			b.WriteString(" by " + f.Via)
		}
		b.WriteByte('\n')
	}
	for _, why := range []struct{ name, text string }{{"unclear", s.Unclear}, {"acts", s.Acts}, {"unproven", s.Unproven}} {
		if why.text != "" {
			b.WriteString("  " + why.name + ": " + why.text + "\n")
		}
	}
	if s.AnyDir {
		b.WriteString("  works anywhere\n")
	} else if len(s.Dirs) > 1 {
		b.WriteString("  works in " + strings.Join(s.Dirs, ", ") + "\n")
	}
	return b.String()
}

// TestHashInWord checks that a # in the middle of a word starts no comment, wherever the
// word is: what follows it is found, or the command is unclear.
func TestHashInWord(t *testing.T) {
	places := []string{"@", "case a in a) @;; esac", "x $(@)", "x `@`", "x <(@)", "( @ )", "{ @; }", "a=(@)", "f() { @; }", "f() ( @ )", "if @; then :; fi", "while @; do :; done", "for i in 1; do @; done", "x \"$(@)\"", "cat <<E\n$(@)\nE", "case a in a) x;& b) @;; esac", "case a in a) $(@);; esac", "x ${v:-$(@)}", "(( $(@) ))", "[[ -n $(@) ]]", "coproc { @; }", "a=$(@)", "a=($(@))", "select i in 1; do @; done", "! @", "time @", "x | @", "x && @", "case $(@) in a) :;; esac", "x $(case a in a) @;; esac)", "case a in a) if @; then :; fi;; esac", "case a in a) { @; };; esac", "case a in a) ( @ );; esac", "case a in a) f() { @; };; esac", "case a in a) x=1 @;; esac", "case a in\na) # b\n@;; esac", "x $(\n@)", "case a in a) for i in 1; do @; done;; esac"}
	words := []string{"'a'#", "\"a\"#", "$v#", "${v}#", "$'a'#", "x 'a'#", "x $v#", "x \"$v\"#b", "x ${v}#", "x $?#", "x a'b'#", "x {a,b}#", "x [a]#", "v='a'#", "v=$v#", "x >'a'#", "x >$v#", "x <<<'a'#", "x @(a)#", "x $(y)#", "x `y`#", "x $((1))#", "x <(y)#", "x a\\ #", "x \\'#", "x -#", "x a,#", "x =#", "x %#", "x ^#", "x ~#", "x !#"}
	for _, place := range places {
		for _, word := range words {
			command := strings.ReplaceAll(place, "@", word+" ; rm x\n")
			s := Analyze(command, Env{Dir: "/w", Home: "/h"})
			if s.Unclear == "" && !slices.ContainsFunc(s.Calls, func(c *Call) bool { return c.Args[0].Text() == "rm" }) {
				t.Errorf("%q: the program behind the # is not found", command)
			}
		}
	}
}
