//go:build !unix

package peer

import (
	"errors"
	"os"
	"os/exec"
)

// killSelf ends this process at once.
func killSelf() { os.Exit(137) }

func newSession(*exec.Cmd) error { return errors.New("there are no sessions on this system") }
