//go:build !(linux && (amd64 || arm64))

package sandbox

import (
	"errors"
	"os/exec"
)

// AtEndOfInput fails: there are no starters on this system.
func AtEndOfInput(*exec.Cmd) (started func(), err error) { return nil, errors.ErrUnsupported }
