//go:build !linux

package process

import "os"

// unnamed creates a file without a name, which no other program can open.
func unnamed() (*os.File, error) { return temporary() }
