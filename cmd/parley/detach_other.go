//go:build !unix

package main

import "syscall"

// detached leaves a process that is started as it is.
func detached() *syscall.SysProcAttr { return nil }
