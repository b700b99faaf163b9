package process

import "syscall"

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

func (t *Tree) terminate() { t.cmd.Process.Kill() }

func (t *Tree) kill() { t.cmd.Process.Kill() }

func (t *Tree) unread() bool { return false }

func sweep(string) {}

func (t *Tree) endSession(func() bool) {}

// hasMarks is false: the environment of processes is not visible.
const hasMarks = false

func ownGroup() *syscall.SysProcAttr { return attributes() }

// newSession does nothing: there is no terminal to leave.
func newSession(*syscall.SysProcAttr) {}
