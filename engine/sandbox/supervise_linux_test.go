//go:build amd64 || arm64

package sandbox

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A string is read from the memory of a process wherever it is: across a page boundary,
// and up to the end of the last page.
func TestTextAt(t *testing.T) {
	pages, err := unix.Mmap(-1, 0, 3*4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(pages)
	if err := unix.Mprotect(pages[2*4096:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	const text = "/var/run/nscd/socket"
	for _, at := range []int{0, 4096 - len(text) - 1, 4096 - len(text), 4096 - 1, 4096, 2*4096 - len(text) - 1} {
		clear(pages[:2*4096])
		copy(pages[at:], text)
		if got, ok := textAt(os.Getpid(), uint64(uintptr(unsafe.Pointer(&pages[at])))); got != text || !ok {
			t.Errorf("at %d: %q, %v", at, got, ok)
		}
	}
	copy(pages[2*4096-len(text):], text) // not terminated
	if got, ok := textAt(os.Getpid(), uint64(uintptr(unsafe.Pointer(&pages[2*4096-len(text)])))); ok {
		t.Errorf("a string without an end: %q", got)
	}
}
