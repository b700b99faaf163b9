//go:build unix

package policytest

import (
	"os"
	"syscall"
)

func hardLinked(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Nlink > 1
}
