package main

import "golang.org/x/sys/unix"

// hideMemory keeps memory and environment of this process from others of the same user:
// they cannot trace it, nor read /proc/PID/environ. Children that execute a program are
// not concerned.
func hideMemory() { unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
