//go:build unix && !linux

package process

import "syscall"

// hasMarks is false: other systems do not show the environment of processes.
const hasMarks = false

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func signalMarked(string, syscall.Signal) {}

func sweep(string) {}

func (t *Tree) endSession(func() bool) {}

func ownGroup() *syscall.SysProcAttr { return attributes() }
