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
