//go:build unix

package process

import "syscall"

// newSession makes a command the first of a session; it is that of a group, too.
func newSession(a *syscall.SysProcAttr) { a.Setpgid, a.Setsid = false, true }

// terminate asks the group to end.
func (t *Tree) terminate() { t.signal(syscall.SIGTERM) }

// kill kills the group and what left it.
func (t *Tree) kill() {
	t.signal(syscall.SIGKILL)
	sweep(t.mark)
}

// signal sends a signal to the group. The number of the group is ours as long as
// the command has not been waited for; where the kernel shows no marks it is taken
// to be ours as long as something holds the output open.
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
