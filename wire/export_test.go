package wire

import (
	"maps"
	"reflect"
	"slices"
)

// Kinds returns the names of all messages, requests, blocks and hook inputs.
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

// BufferSize returns the size of a reader's buffer.
func BufferSize(r *Reader) int { return cap(r.buf) }

// A Span is the position of a value in a line, and that of the member's name, or -1.
type Span struct{ Name, Start, End int }

// Spans returns the positions of all values in a line, including the line itself.
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

// Held returns the capacity of a reader's buffer.
func (r *Reader) Held() int { return cap(r.buf) }
