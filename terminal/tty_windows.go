package terminal

import (
	"os"

	"golang.org/x/sys/windows"
)

// enableSequences makes a console interpret escape sequences.
func enableSequences(f *os.File) {
	var mode uint32
	if windows.GetConsoleMode(windows.Handle(f.Fd()), &mode) == nil {
		windows.SetConsoleMode(windows.Handle(f.Fd()), mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING|windows.ENABLE_PROCESSED_OUTPUT)
	}
}

// notifyResize does nothing: consoles report their size as an event.
func notifyResize(chan<- os.Signal) {}

// stopProcess does nothing: consoles have no jobs.
func stopProcess() error { return nil }
