//go:build !linux

package main

// hideMemory does nothing on this system.
func hideMemory() {}

// releaseCode does nothing on this system.
func releaseCode() {}
