package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// ttyWidth returns how many columns a terminal has. It reports false if the file is not
// a terminal, or one without escape sequences.
func ttyWidth(f *os.File) (int, bool) {
	console := windows.Handle(f.Fd())
	var mode uint32
	if windows.GetConsoleMode(console, &mode) != nil {
		return 0, false
	}
	var info windows.ConsoleScreenBufferInfo
	if windows.GetConsoleScreenBufferInfo(console, &info) != nil {
		return 0, true // the input
	}
	if windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) != nil {
		return 0, false
	}
	return int(info.Window.Right-info.Window.Left) + 1, true
}
