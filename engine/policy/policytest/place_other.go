//go:build !unix

package policytest

import "os"

func hardLinked(os.FileInfo) bool { return false }
