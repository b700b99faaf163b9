//go:build !darwin && !(linux && (amd64 || arm64))

package sandbox

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync/atomic"
)

type wallState struct{}

// A Confined is a command behind a wall.
type Confined struct{ refused atomic.Uint32 }

// Started must be called with the result of Start.
func (c *Confined) Started(err error) (over <-chan struct{}) { return atOnce(err) }

// Ended must be called when the command has ended. It reports whether processes may be left.
func (c *Confined) Ended() (left bool) { return true }

// Err returns why the wall could not start the command, or nil.
func (c *Confined) Err() error { return nil }

func (w *Wall) try() error {
	return fmt.Errorf("%w: there is none for %s/%s in this version", ErrNoWall, runtime.GOOS, runtime.GOARCH)
}

func (w *Wall) confine(*exec.Cmd, *View) (*Confined, error) { return nil, w.try() }
func (w *Wall) describe() WallReport                        { return WallReport{Kind: None} }
func (w *Wall) close()                                      {}
