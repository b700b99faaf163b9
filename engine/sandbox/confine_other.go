//go:build !linux || (!amd64 && !arm64)

package sandbox

import (
	"errors"
	"io/fs"
	"os/exec"
	"runtime"
)

// A placeholder is not used on this system.
type placeholder struct{}

func placeheld(fs.FileInfo) bool { return false }

func holdPlace(string, bool) (*placeholder, error) { return nil, errors.ErrUnsupported }

func (p *placeholder) release() {}

func (s *Sandbox) find() error {
	return errors.New("there is no sandbox for " + runtime.GOOS + " in this version")
}

func (s *Sandbox) describe() []string { return nil }

func (s *Sandbox) confine(*exec.Cmd, []string) (func(error) <-chan struct{}, error) {
	return nil, errors.ErrUnsupported
}
