//go:build unix

package postgres_test

import (
	"os/exec"
	"syscall"
)

// runAs makes a command run as another user.
func runAs(cmd *exec.Cmd, uid, gid int) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return nil
}
