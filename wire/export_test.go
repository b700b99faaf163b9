package wire

import (
	"maps"
	"reflect"
	"slices"
)

// Kinds returns the names of all messages, requests, blocks and hook inputs that
// are lines or parts of lines.
func Kinds() []string {
	var names []string
	for t := range maps.Values(messageTypes) {
		names = append(names, t.Name())
	}
	slices.Sort(names)
	return names
}

// Messages returns the Go types of all messages.
func Messages() map[string]reflect.Type { return maps.Clone(messageTypes) }

// BlockTypes returns the Go types of all content blocks.
func BlockTypes() map[string]reflect.Type {
	types := maps.Clone(blockTypes)
	types["*_tool_result"] = reflect.TypeFor[ServerToolResultBlock]()
	return types
}

// BufferSize returns how much memory a reader holds.
func BufferSize(r *Reader) int { return cap(r.buf) }

// A Span is where a value stands in a line, and the name of the member that it is
// or -1.
type Span struct{ Name, Start, End int }

// Spans finds all values inside a line, itself included.
func Spans(line []byte) []Span {
	d, err := scan(line)
	if err != nil {
		panic(err)
	}
	defer d.release()
	var all []Span
	var visit func(x item, name int)
	visit = func(x item, name int) {
		n := d.tape[x.i]
		all = append(all, Span{name, int(n.start), int(n.end)})
		x.members(func(name, x item) bool { visit(x, int(d.tape[name.i].start)); return true })
		x.elements(func(x item) bool { visit(x, -1); return true })
	}
	visit(d.root(), -1)
	return all
}

// Held returns how much memory a reader keeps for what comes next.
func (r *Reader) Held() int { return cap(r.buf) }
