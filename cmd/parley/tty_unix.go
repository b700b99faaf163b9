//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// ttyWidth returns how many columns a terminal has. It reports false if the file is not
// a terminal.
func ttyWidth(f *os.File) (int, bool) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Col), true
}
