//go:build !linux

package socket

import (
	"context"
	"errors"
	"net"
)

// Adopt does nothing on this system.
func Adopt() error { return nil }

// Reap does nothing on this system.
func Reap(context.Context) {}

// checkPeer refuses every process: on this system it cannot be known where it comes
// from, and a command that an agent runs could approve its own calls.
func checkPeer(net.Conn) error {
	return errors.New("the hub cannot be shared on this system: it is not known which process connects")
}
