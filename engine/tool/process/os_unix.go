//go:build unix

package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// unread reports whether the output has something to read, or its end.
func (t *Tree) unread() (ready bool) {
	if raw, err := t.output.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			ready = n > 0
		})
	}
	return ready
}

// newSession makes a command the leader of a session, and so of a process group.
func newSession(a *syscall.SysProcAttr) { a.Setpgid, a.Setsid = false, true }

// terminate sends SIGTERM to the group.
func (t *Tree) terminate() { t.signal(syscall.SIGTERM) }

// kill kills the group and processes that left it.
func (t *Tree) kill() {
	t.signal(syscall.SIGKILL)
	sweep(t.mark)
}

// signal sends a signal to the group. The id of the group is ours until the command was
// waited for; where the kernel shows no marks, it is assumed to be ours as long as
// something holds the output open.
func (t *Tree) signal(s syscall.Signal) {
	select {
	case <-t.exited:
		if hasMarks {
			signalMarked(t.mark, s)
			return
		}
		select {
		case <-t.drained:
			return
		default:
		}
	default:
	}
	syscall.Kill(-t.cmd.Process.Pid, s)
}
