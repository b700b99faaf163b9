//go:build unix

package terminal

import (
	"os"
	"os/signal"
	"syscall"
)

// enableSequences makes a terminal understand escape sequences, which it does.
func enableSequences(*os.File) {}

// notifyResize sends to ch when the terminal has another size.
func notifyResize(ch chan<- os.Signal) { signal.Notify(ch, syscall.SIGWINCH) }

// stopProcess stops the program as Ctrl-Z does, until the shell continues it.
func stopProcess() error { return syscall.Kill(0, syscall.SIGTSTP) }
