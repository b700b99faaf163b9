//go:build unix

package main

import "syscall"

// detached makes a started process outlive this one and its terminal.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
