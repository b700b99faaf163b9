//go:build unix

package terminal

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/charmbracelet/x/term"
)

// A console needs no modes of its own: terminals interpret escape sequences.
type console struct{}

func openConsole(_, _ *os.File) console { return console{} }
func (console) allowSelection()         {}
func (console) restore()                {}

// notifyChange sends to ch when the size of the terminal changes, and when the program continues after it was stopped.
func notifyChange(ch chan<- os.Signal) { signal.Notify(ch, syscall.SIGWINCH, syscall.SIGCONT) }

// isCooked reports whether a terminal is not in raw mode.
func isCooked(fd uintptr) bool {
	state, err := term.GetState(fd)
	return err == nil && state.Lflag&syscall.ICANON != 0
}

// ownSession starts a command in a session of its own, without a terminal: its input is not the person's. When its context
// ends, all its processes are interrupted.
func ownSession(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
}

// killSession ends what is left of a command that was interrupted.
func killSession(cmd *exec.Cmd) {
	if cmd.Process != nil {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}

// stopProcess stops the program like Ctrl-Z, until the shell continues it.
func stopProcess() error {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if err := syscall.Kill(0, syscall.SIGTSTP); err != nil {
		return err
	}
	// The call may return before the program stops. Without a shell that could continue it,
	// the system does not stop it at all.
	select {
	case <-continued:
	case <-time.After(200 * time.Millisecond):
	}
	return nil
}
