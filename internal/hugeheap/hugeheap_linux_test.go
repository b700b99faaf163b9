package hugeheap

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// TestHeapIsAdvised tests that the kernel may use huge pages at the beginning of the heap.
func TestHeapIsAdvised(t *testing.T) {
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	at := uint64(uintptr(unsafe.Pointer(inHeap)))
	inside := false
	for line := range bytes.Lines(maps) {
		words := strings.Fields(string(line))
		if from, to, ok := strings.Cut(words[0], "-"); ok && len(words) >= 5 {
			begin, _ := strconv.ParseUint(from, 16, 64)
			end, _ := strconv.ParseUint(to, 16, 64)
			inside = begin <= at && at < end
		}
		if inside && words[0] == "VmFlags:" {
			for _, flag := range words[1:] {
				if flag == "hg" {
					return
				}
			}
			if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage/enabled"); err != nil {
				t.Skip("the kernel has no huge pages")
			}
			t.Fatalf("the flags of the heap are %v, want hg among them", words[1:])
		}
	}
	t.Fatal("the maps of the process have no heap")
}
