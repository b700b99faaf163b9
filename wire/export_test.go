package wire

import (
	"maps"
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

// BufferSize returns how much memory a reader holds.
func BufferSize(r *Reader) int { return cap(r.buf) }
