//go:build unix && !linux

package transport

import "syscall"

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// onSpawnThread calls start. Threads matter only where the kernel ties the
// lifetime of a child to one.
func onSpawnThread(start func() error) (done func(), err error) {
	return func() {}, start()
}

// awaitExit returns when the command has ended. There is no portable way to detect that
// without reaping the command, so the number of its group is ours only as long as the
// group has members; it is used once more, within moments.
func (t *processTree) awaitExit() { t.cmd.Wait() }

func (t *processTree) reap() {}

// sweep does nothing: other systems do not show the environment of a process, so only
// the group is killed.
func sweep(id string) {}
