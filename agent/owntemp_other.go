//go:build !unix

package agent

import "io/fs"

// ownedAlone trusts the temporary directory, which belongs to the user on this system.
func ownedAlone(string, fs.FileInfo, fs.FileInfo) error { return nil }
