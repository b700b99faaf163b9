package search

import (
	"bytes"
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// An automaton finds lines that may match a regular expression, one byte at a time.
// It lets through more than matches: assertions hold everywhere, and a byte of a
// character that is not ASCII is any such character. Its states are made as they
// are needed, and thrown away when there are too many.
type automaton struct {
	prog   *syntax.Prog
	states map[string]*state
	start  *state
	memory int
	resets int // how often the states were thrown away

	// Space for making states.
	stack, set []uint32
	seen       []bool
}

// A state is a set of instructions that may be next.
type state struct {
	insts []uint32
	match bool // one of them is that all has matched
	next  [nonASCII + 1]*state
}

// nonASCII stands for every byte of a character that is not ASCII.
const nonASCII = utf8.RuneSelf

// maxMemory bounds the states, in bytes, roughly.
const maxMemory = 8 << 20

func newAutomaton(prog *syntax.Prog) *automaton {
	a := &automaton{prog: prog, seen: make([]bool, len(prog.Inst))}
	a.reset()
	return a
}

// reset throws the states away.
func (a *automaton) reset() {
	a.states, a.memory = map[string]*state{}, 0
	a.set = a.set[:0]
	a.add(uint32(a.prog.Start))
	a.start = a.made()
}

// add puts an instruction into the set, and those that follow it without a byte.
func (a *automaton) add(pc uint32) {
	a.stack = append(a.stack[:0], pc)
	for len(a.stack) > 0 {
		pc := a.stack[len(a.stack)-1]
		a.stack = a.stack[:len(a.stack)-1]
		if a.seen[pc] {
			continue
		}
		a.seen[pc] = true
		in := &a.prog.Inst[pc]
		switch in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			a.stack = append(a.stack, in.Out, in.Arg)
		case syntax.InstCapture, syntax.InstNop, syntax.InstEmptyWidth:
			a.stack = append(a.stack, in.Out)
		}
		a.set = append(a.set, pc)
	}
}

// made returns the state of the set, which it empties.
func (a *automaton) made() *state {
	var insts []uint32
	match := false
	for _, pc := range a.set {
		a.seen[pc] = false
		switch a.prog.Inst[pc].Op {
		case syntax.InstMatch:
			match = true
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			insts = append(insts, pc)
		}
	}
	a.set = a.set[:0]
	slices.Sort(insts)
	key := make([]byte, 0, 4*len(insts)+1)
	for _, pc := range insts {
		key = binary.LittleEndian.AppendUint32(key, pc)
	}
	if match {
		key = append(key, 1)
	}
	if s, ok := a.states[string(key)]; ok {
		return s
	}
	s := &state{insts: insts, match: match}
	a.states[string(key)] = s
	a.memory += 8*len(s.next) + 10*len(insts) + 100
	return s
}

// hopeless reports whether the automaton makes states more than it uses them.
func (a *automaton) hopeless() bool { return a.resets > 8 }

// step returns the state that follows one.
func (a *automaton) step(s *state, c int) *state {
	if a.memory > maxMemory {
		insts, match := s.insts, s.match
		a.reset()
		a.resets++
		// The state goes on without its past.
		s = &state{insts: insts, match: match}
	}
	for _, pc := range s.insts {
		in := &a.prog.Inst[pc]
		if c < nonASCII {
			if in.MatchRune(rune(c)) {
				a.add(in.Out)
			}
		} else if beyondASCII(in) {
			a.add(in.Out)
			a.add(pc) // the next byte may be of the same character
		}
	}
	a.add(uint32(a.prog.Start)) // a match may begin anywhere
	next := a.made()
	s.next[c] = next
	return next
}

// beyondASCII reports whether an instruction may match a character that is not
// ASCII.
func beyondASCII(in *syntax.Inst) bool {
	switch in.Op {
	case syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return true
	}
	if syntax.Flags(in.Arg)&syntax.FoldCase != 0 {
		return true // some ASCII letters are others in other cases
	}
	return len(in.Rune) > 0 && in.Rune[len(in.Rune)-1] >= utf8.RuneSelf
}

// find returns a place in the first line at or after an offset, which is where a
// line begins, that may match; -1 if there is none.
func (a *automaton) find(data []byte, from int) int {
	s := a.start
	if s.match {
		return from // it matches nothing, anywhere
	}
	for i := from; i < len(data); i++ {
		b := data[i]
		if b == '\n' {
			s = a.start
			continue
		}
		c := min(int(b), nonASCII)
		next := s.next[c]
		if next == nil {
			next = a.step(s, c)
		}
		if s = next; s.match {
			return i
		}
		// Nothing has begun: on to the next byte that begins something is what
		// the loop does anyway; a line that is all through is skipped.
		if len(s.insts) == 0 {
			j := bytes.IndexByte(data[i:], '\n')
			if j < 0 {
				return -1
			}
			i += j - 1
		}
	}
	return -1
}
