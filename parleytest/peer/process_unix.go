//go:build unix

package peer

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
)

// killSelf ends this process as kill -9 does.
func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // it cannot fail
	select {}
}

// running reports whether the process runs; a zombie does not.
func running(pid int) bool {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		// There is no /proc, or the process has exited.
		return !errors.Is(err, os.ErrNotExist) || runtime.GOOS != "linux"
	}
	// The state follows the name, which is in parentheses and may contain any byte.
	_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return !bytes.HasPrefix(state, []byte("Z")) && !bytes.HasPrefix(state, []byte("X"))
}

func newSession(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return nil
}
