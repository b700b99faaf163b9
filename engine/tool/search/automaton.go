package search

import (
	"bytes"
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// An automaton finds lines that may match a regular expression, one byte at a time. For
// ASCII text it is exact. For other text it accepts too much: any byte of a non-ASCII
// character stands for any such character. Its states are created when they are needed,
// and discarded when there are too many.
type automaton struct {
	prog      *syntax.Prog
	multiline bool

	class   [256]uint8 // class of each byte; the program treats all bytes of a class alike
	classes []int      // one byte of each class; nonASCII for all that are not ASCII
	shift   uint       // to convert between the number of a state and its offset in the table
	asked   past       // facts that assertions use

	table  []uint32 // for a state and a class, the offset of the next state, or one of the special entries below
	states []state  // by offset, shifted
	ids    map[string]uint32
	start  uint32
	always bool // it matches the empty text, and so every line
	memory int
	resets int // how often the states were discarded

	// Scratch space for creating states.
	stack, set, resolved []uint32
	seen                 []bool
}

// Special entries of a table.
const (
	unknown = iota // not yet created
	found          // a match ends at or before this byte
	nothing        // no match can start or continue before the end of the line
	special = nothing
)

// A state is a set of instructions that may be next, and the facts about the preceding
// text that assertions use.
type state struct {
	insts  []uint32
	before past
	end    uint8 // whether it matches at the end of the text: unknown, found or nothing
}

// A past is a set of facts about the text before a position that assertions use.
type past uint8

const (
	lineBegins past = 1 << iota
	textBegins
	afterWord  // the character before may be part of a word
	afterOther // there may be no character before, or one that is not part of a word
)

// nonASCII stands for every byte of a non-ASCII character.
const nonASCII = utf8.RuneSelf

const (
	maxMemory  = 8 << 20 // approximate limit of the memory for states, in bytes
	maxProgram = 10_000  // the longest program for which an automaton pays off
	maxResets  = 8       // number of resets after which it no longer pays off
)

func newAutomaton(prog *syntax.Prog, multiline bool) *automaton {
	a := &automaton{prog: prog, multiline: multiline, seen: make([]bool, len(prog.Inst))}
	if len(prog.Inst) > maxProgram {
		a.resets = maxResets
		return a
	}
	a.classify()
	a.reset()
	return a
}

// classify finds out which bytes the program treats alike.
func (a *automaton) classify() {
	for i := range a.prog.Inst {
		if in := &a.prog.Inst[i]; in.Op == syntax.InstEmptyWidth {
			a.asked |= asks(syntax.EmptyOp(in.Arg))
		}
	}
	known := map[string]uint8{}
	var sign []byte
	for c := range nonASCII + 1 {
		sign = sign[:0]
		for i := range a.prog.Inst {
			if in := &a.prog.Inst[i]; consumes(in) && matches(in, c) {
				sign = binary.AppendUvarint(sign, uint64(i))
			}
		}
		sign = append(sign, 0xff, 0xff, kind(c))
		id, ok := known[string(sign)]
		if !ok {
			id = uint8(len(a.classes))
			known[string(sign)] = id
			a.classes = append(a.classes, c)
		}
		if c < nonASCII {
			a.class[c] = id
			continue
		}
		for b := nonASCII; b < len(a.class); b++ {
			a.class[b] = id
		}
	}
	a.shift = 2
	for 1<<a.shift < len(a.classes) {
		a.shift++
	}
}

// asks returns the facts about the preceding text that assertions use.
func asks(op syntax.EmptyOp) past {
	var c past
	if op&(syntax.EmptyWordBoundary|syntax.EmptyNoWordBoundary) != 0 {
		c |= afterWord | afterOther
	}
	if op&syntax.EmptyBeginLine != 0 {
		c |= lineBegins
	}
	if op&syntax.EmptyBeginText != 0 {
		c |= textBegins
	}
	return c
}

// kind returns the kind of a byte, as far as assertions distinguish it.
func kind(c int) byte {
	switch {
	case c == nonASCII:
		return 3
	case c == '\n':
		return 2
	case syntax.IsWordChar(rune(c)):
		return 1
	}
	return 0
}

// consumes reports whether an instruction consumes a character.
func consumes(in *syntax.Inst) bool {
	switch in.Op {
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return true
	}
	return false
}

// matches reports whether an instruction may consume a byte.
func matches(in *syntax.Inst, c int) bool {
	if c < nonASCII {
		return in.MatchRune(rune(c))
	}
	switch in.Op {
	case syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return true
	}
	if syntax.Flags(in.Arg)&syntax.FoldCase != 0 {
		return true // some ASCII letters have non-ASCII case variants
	}
	return len(in.Rune) > 0 && in.Rune[len(in.Rune)-1] >= utf8.RuneSelf
}

// reset discards the states.
func (a *automaton) reset() {
	a.ids, a.memory = map[string]uint32{}, 0
	a.states = append(a.states[:0], state{})
	a.table = append(a.table[:0], make([]uint32, 1<<a.shift)...)
	a.set = a.set[:0]
	a.add(uint32(a.prog.Start), 0)
	a.start, a.always = a.currentState(lineBegins | textBegins | afterOther)
}

// add adds an instruction to the set, with those that follow it without consuming a
// character; assertions are followed only if they hold.
func (a *automaton) add(pc uint32, holds syntax.EmptyOp) {
	a.stack = append(a.stack[:0], pc)
	for len(a.stack) > 0 {
		pc := a.stack[len(a.stack)-1]
		a.stack = a.stack[:len(a.stack)-1]
		if a.seen[pc] {
			continue
		}
		a.seen[pc] = true
		a.set = append(a.set, pc)
		in := &a.prog.Inst[pc]
		switch in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			a.stack = append(a.stack, in.Out, in.Arg)
		case syntax.InstCapture, syntax.InstNop:
			a.stack = append(a.stack, in.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(in.Arg)&^holds == 0 {
				a.stack = append(a.stack, in.Out)
			}
		}
	}
}

// popSet empties the set into a list of instructions that consume a character or are
// assertions, and reports whether there was a match.
func (a *automaton) popSet(list []uint32) ([]uint32, bool) {
	match := false
	for _, pc := range a.set {
		a.seen[pc] = false
		switch in := &a.prog.Inst[pc]; {
		case in.Op == syntax.InstMatch:
			match = true
		case in.Op == syntax.InstEmptyWidth || consumes(in):
			list = append(list, pc)
		}
	}
	a.set = a.set[:0]
	return list, match
}

// currentState returns the state of the set, which it empties, and whether that is a match.
func (a *automaton) currentState(before past) (uint32, bool) {
	insts, match := a.popSet(nil)
	slices.Sort(insts)
	// Facts that no assertion uses make no difference.
	if slices.ContainsFunc(insts, func(pc uint32) bool { return a.prog.Inst[pc].Op == syntax.InstEmptyWidth }) {
		before &= a.asked
	} else {
		before = 0
	}
	key := make([]byte, 0, 4*len(insts)+1)
	for _, pc := range insts {
		key = binary.LittleEndian.AppendUint32(key, pc)
	}
	key = append(key, byte(before))
	if id, ok := a.ids[string(key)]; ok {
		return id, match
	}
	id := uint32(len(a.states)) << a.shift
	a.states = append(a.states, state{insts: insts, before: before})
	a.table = append(a.table, make([]uint32, 1<<a.shift)...)
	a.ids[string(key)] = id
	a.memory += 4<<a.shift + 8*len(insts) + 200
	return id, match
}

// hopeless reports whether the automaton creates more states than it reuses.
func (a *automaton) hopeless() bool { return a.resets >= maxResets }

// resolve resolves the assertions of a state before a character of a kind: those that
// hold are followed.
func (a *automaton) resolve(s *state, holds syntax.EmptyOp, kind byte) (insts []uint32, match bool) {
	if s.before&lineBegins != 0 {
		holds |= syntax.EmptyBeginLine
	}
	if s.before&textBegins != 0 {
		holds |= syntax.EmptyBeginText
	}
	word, other := kind == 1 || kind == 3, kind != 1
	if s.before&afterWord != 0 && other || s.before&afterOther != 0 && word {
		holds |= syntax.EmptyWordBoundary
	}
	if s.before&afterWord != 0 && word || s.before&afterOther != 0 && other {
		holds |= syntax.EmptyNoWordBoundary
	}
	for _, pc := range s.insts {
		a.add(pc, holds)
	}
	a.resolved, match = a.popSet(a.resolved[:0])
	return a.resolved, match
}

// step creates the state that follows a state at a byte of a class.
func (a *automaton) step(from uint32, class uint8) uint32 {
	s := a.states[from>>a.shift]
	kept := true
	if a.memory > maxMemory {
		a.reset()
		a.resets++
		kept = false // the state continues without its history
	}
	c := a.classes[class]
	var holds syntax.EmptyOp
	if c == '\n' {
		holds = syntax.EmptyEndLine
		if !a.multiline {
			holds |= syntax.EmptyEndText
		}
	}
	insts, match := a.resolve(&s, holds, kind(c))
	next := uint32(found)
	switch {
	case match:
	case c == '\n' && !a.multiline:
		next = a.start
	default:
		for _, pc := range insts {
			if in := &a.prog.Inst[pc]; consumes(in) && matches(in, c) {
				a.add(in.Out, 0)
				if c == nonASCII {
					a.add(pc, 0) // the next byte may belong to the same character
				}
			}
		}
		a.add(uint32(a.prog.Start), 0) // a match may start anywhere
		before := afterOther
		switch kind(c) {
		case 1:
			before = afterWord
		case 2:
			before |= lineBegins
		case 3:
			before |= afterWord
		}
		if next, match = a.currentState(before); match {
			next = found
		} else if !a.multiline && a.idle(next) {
			next = nothing
		}
	}
	if kept {
		a.table[from+uint32(class)] = next
	}
	return next
}

// idle reports whether only the start of a line leads out of a state.
func (a *automaton) idle(id uint32) bool {
	s := &a.states[id>>a.shift]
	return s.before&(lineBegins|textBegins) == 0 && !slices.ContainsFunc(s.insts, func(pc uint32) bool {
		in := &a.prog.Inst[pc]
		return in.Op != syntax.InstEmptyWidth || syntax.EmptyOp(in.Arg)&(syntax.EmptyBeginLine|syntax.EmptyBeginText) == 0
	})
}

// atEnd reports whether a state matches at the end of the text.
func (a *automaton) atEnd(id uint32) bool {
	s := &a.states[id>>a.shift]
	if s.end == unknown {
		s.end = nothing
		if _, match := a.resolve(s, syntax.EmptyEndLine|syntax.EmptyEndText, 0); match {
			s.end = found
		}
	}
	return s.end == found
}

// find returns a position in the first line at or after from that may match, at or
// right after the end of the match, or -1. from is the start of a line.
func (a *automaton) find(data []byte, from int) int {
	s := a.start
	if a.always {
		return from
	}
	table, class := a.table, &a.class
	for i := from; i < len(data); i++ {
		next := table[s+uint32(class[data[i]])]
		if next > special {
			s = next
			continue
		}
		if next == unknown {
			next = a.step(s, class[data[i]])
			table = a.table
		}
		switch next {
		case found:
			return i
		case nothing:
			j := bytes.IndexByte(data[i:], '\n')
			if j < 0 {
				return -1
			}
			i += j
			s = a.start
		default:
			s = next
		}
	}
	if len(data) > from && data[len(data)-1] == '\n' && !a.multiline {
		return -1 // there is no line after the last one
	}
	if a.atEnd(s) {
		return len(data)
	}
	return -1
}
