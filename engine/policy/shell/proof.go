package shell

import (
	"slices"
	"strings"
)

// Steady reports whether everything that the script runs and touches is known.
func (s *Script) Steady() bool {
	return s.Unproven == "" && !s.AnyDir && len(s.Calls)+len(s.Files) > 0 && !slices.ContainsFunc(s.Files, func(f *File) bool { return !f.Word.Static() })
}

// OnlyReads reports whether the script only reads files and prints, as far as its
// programs are known. A mistake must do no harm: it is meant for commands that run behind
// a wall which only lets them read.
func (s *Script) OnlyReads() bool {
	if s.Acts != "" || len(s.Calls)+len(s.Files) == 0 {
		return false
	}
	for _, c := range s.Calls {
		if !c.Guess && !c.Reads && !c.Clear {
			return false
		}
	}
	return !slices.ContainsFunc(s.Files, func(f *File) bool { return f.Kind == Write && !f.Loose })
}

// IsListed reports whether the command consists of plain words only, and each of its
// programs is listed as harmless with its options: as one of the literal forms of the
// table, or as one that only reads. This involves no parser, so nothing can be
// misunderstood. It returns the files that are read, and whether one of the forms is
// about the machine, so that the command would fail behind a wall.
func IsListed(command string) (files []string, machine, ok bool) {
	if len(command) > 500 {
		return nil, false, false
	}
	for stage := range strings.SplitSeq(command, "|") {
		words := strings.Split(strings.Trim(stage, " "), " ")
		isPlain := true
		for i, w := range words {
			switch {
			case consistsOf(w, plainBytes):
			case i > 0 && strings.HasPrefix(w, "--") && consistsOf(w, plainBytes+"="): // in a form only
				isPlain = false
			default:
				return nil, false, false
			}
		}
		if programs().form(words) {
			machine = true
			continue
		}
		read, ok := programs().listed(words)
		if !ok || !isPlain {
			return nil, false, false
		}
		files = append(files, read...)
	}
	return files, machine, true
}

// MayBeForm reports whether the table has literal forms for a program of the command.
// Only then can IsListed report that the command is about the machine.
func MayBeForm(command string) bool {
	for stage := range strings.SplitSeq(command, "|") {
		if first, _, _ := strings.Cut(strings.Trim(stage, " "), " "); programs().forms[first] != nil {
			return true
		}
	}
	return false
}

// plainBytes have no special meaning for a shell in any position.
const plainBytes = nameBytes + "/:,@%+"

// listed reports whether a simple command of plain words is listed as harmless.
func (t *table) listed(words []string) (files []string, ok bool) {
	p := t.program(words[0])
	if !p.is(plainTrait) {
		return nil, false
	}
	c := &Call{}
	for _, w := range words {
		c.Args = append(c.Args, Literal(w))
	}
	s := newAnalysis(&Script{}, Env{}, 0)
	s.program(c, p, 1, nil)
	if !c.Quiet || s.Unclear != "" || s.Unproven != "" || len(s.Calls) > 0 || len(c.Danger)+len(c.Places) > 0 {
		return nil, false
	}
	for _, f := range s.Files {
		if f.Kind != Read || !f.Word.Static() {
			return nil, false
		}
		files = append(files, f.Word.Text())
	}
	return files, true
}

// IsReader reports whether a program of this name only reads, unless an option changes
// that.
func IsReader(name string) bool { return lookup(name).is(readsTrait) }
