//go:build !unix && !windows

package main

import "os"

// ttyWidth reports that the file is not a terminal.
func ttyWidth(*os.File) (int, bool) { return 0, false }
