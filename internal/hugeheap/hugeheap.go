// Package hugeheap lets the kernel map the beginning of the heap with huge pages. Programs import
// it for this effect only.
//
// A short run touches a few MiB of fresh heap, 4 KiB at a time, and each of these page faults takes
// longer than the allocations that use the page. One fault for 2 MiB takes as long as about fifty of
// them. The package imports nothing that needs much of the heap itself, so Go initializes it before the
// packages that do.
package hugeheap
