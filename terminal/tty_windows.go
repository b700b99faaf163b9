package terminal

import (
	"os"
	"os/exec"

	"golang.org/x/sys/windows"
)

// A console remembers the modes of the Windows console.
type console struct {
	in, out         windows.Handle
	inMode, outMode uint32 // 0 if it is not a console
}

// openConsole makes a console interpret escape sequences.
func openConsole(in, out *os.File) console {
	c := console{in: windows.Handle(in.Fd()), out: windows.Handle(out.Fd())}
	if windows.GetConsoleMode(c.in, &c.inMode) != nil {
		c.inMode = 0
	}
	if windows.GetConsoleMode(c.out, &c.outMode) != nil {
		c.outMode = 0
	} else {
		windows.SetConsoleMode(c.out, outputMode(c.outMode))
	}
	return c
}

// allowSelection lets the person select text with the mouse again, after the reader has set its modes.
func (c console) allowSelection() {
	var mode uint32
	if c.inMode != 0 && windows.GetConsoleMode(c.in, &mode) == nil {
		windows.SetConsoleMode(c.in, inputMode(mode, c.inMode))
	}
}

// restore restores the modes.
func (c console) restore() {
	if c.inMode != 0 {
		windows.SetConsoleMode(c.in, c.inMode)
	}
	if c.outMode != 0 {
		windows.SetConsoleMode(c.out, c.outMode)
	}
}

// notifyChange does nothing: consoles report their size as an event.
func notifyChange(chan<- os.Signal) {}

// isCooked is always false: nobody changes the modes of a console meanwhile.
func isCooked(uintptr) bool { return false }

// stopProcess does nothing: consoles have no jobs.
func stopProcess() error { return nil }

// Windows has no sessions of processes: only the shell of a command is ended.
func ownSession(*exec.Cmd)  {}
func killSession(*exec.Cmd) {}
