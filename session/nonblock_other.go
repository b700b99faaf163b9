//go:build !unix

package session

const nonblock = 0
