//go:build !linux && !darwin

package socket

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
)

// Adopt does nothing on this system.
func Adopt() error { return nil }

// Reap does nothing on this system.
func Reap(context.Context) {}

// checkPeer rejects every process: on this system the origin of a process is unknown,
// and a command that an agent runs could approve its own calls.
func checkPeer(net.Conn) error {
	return errors.New("the hub cannot be shared on this system: the system does not report which process connects")
}

// CheckPeer rejects every process at a unix socket: see checkPeer. Over TCP it rejects
// none, because a TCP client needs a token.
func CheckPeer(c net.Conn) error {
	if _, ok := c.(*net.UnixConn); ok {
		return checkPeer(c)
	}
	return nil
}

// descends returns an error if this process descends from a session, as far as the
// environment shows.
func descends() error { return checkMarks([]byte(strings.Join(os.Environ(), "\x00"))) }
