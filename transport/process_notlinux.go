//go:build unix && !linux

package transport

import "syscall"

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// onSpawnThread calls start. Threads matter only where the kernel ties the life
// of a child to one.
func onSpawnThread(start func() error) (done func(), err error) {
	return func() {}, start()
}

// awaitExit returns when the command has ended. There is no portable way to see
// that without reaping it, so the number of its group is ours for only as long
// as the group has members; it is used once more, within moments.
func (t *processTree) awaitExit() { t.cmd.Wait() }

func (t *processTree) reap() {}

// sweep has no means here: other systems do not show the environment of a
// process. The group is all that is killed.
func sweep(id string) {}
