//go:build unix

package main

import "syscall"

// detached has a process that is started outlive this one and its terminal.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
