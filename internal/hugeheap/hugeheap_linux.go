package hugeheap

import (
	"syscall"
	"unsafe"
)

// chunk is by how much the heap grows: its first chunk is aligned to it.
const chunk = 4 << 20

var inHeap *[64]byte

// The advice is bounded to one chunk: what the kernel adds to huge pages of an idle process later is
// less than that. If it fails, or the kernel is configured without huge pages, nothing changes.
func init() {
	inHeap = new([64]byte)
	start := uintptr(unsafe.Pointer(inHeap)) &^ (chunk - 1)
	syscall.Syscall(syscall.SYS_MADVISE, start, chunk, syscall.MADV_HUGEPAGE)
}
