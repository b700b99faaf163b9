//go:build unix

package policytest

import "golang.org/x/sys/unix"

// stampOf returns the stamp of a file and the number of its hard links.
func stampOf(path string) (stamp, int, error) {
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil {
		return stamp{}, 0, err
	}
	return stamp{file: s.Ino, changed: s.Ctim.Nano()}, int(s.Nlink), nil
}
