//go:build !linux

package transport

import "os"

// enlarge does nothing: pipes have the size that the system gives them.
func enlarge(*os.File) {}
