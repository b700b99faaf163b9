//go:build !unix

package main

import "syscall"

// detached returns no attributes: a started process stays as it is.
func detached() *syscall.SysProcAttr { return nil }
