// Package deepstack prepares goroutines that call deep functions.
package deepstack

// Grow grows the stack of the calling goroutine to at least 16 KiB, in one step. A goroutine calls it
// first: growing later copies the stack several times, each time with all frames that are on it.
//
//go:noinline
func Grow() {
	var frame [12 << 10]byte
	touch(&frame)
}

//go:noinline
func touch(frame *[12 << 10]byte) { frame[0] = 1 }
