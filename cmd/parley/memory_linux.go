package main

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// hideMemory hides the memory and the environment of this process from others of the
// same user: they cannot trace it, nor read /proc/PID/environ. It does not affect
// children that execute a program.
func hideMemory() { unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// releaseCode unmaps the pages of this program's file, which the kernel maps again when they
// are used. A start uses little of the program, but the kernel maps 64 KiB around each page
// that is used, which adds up to most of it and would stay.
func releaseCode() {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	lines := bufio.NewScanner(bytes.NewReader(maps))
	for lines.Scan() {
		// 00400000-00e5f000 r-xp 00000000 fd:00 1234   /usr/bin/parley
		f := strings.Fields(lines.Text())
		if len(f) < 6 || f[1][1] == 'w' || f[len(f)-1] != self {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		begin, err := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err != nil || err2 != nil || end <= begin {
			continue
		}
		unix.Syscall(unix.SYS_MADVISE, uintptr(begin), uintptr(end-begin), unix.MADV_DONTNEED)
	}
}
