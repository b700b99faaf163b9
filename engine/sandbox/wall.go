package sandbox

import (
	"errors"
	"os/exec"
	"runtime"
)

// A Wall confines commands that nobody approved. Behind the read wall a command
// changes nothing and reaches nobody; behind the workspace wall it can change its
// roots as well. The zero value and nil confine nothing. It is safe for concurrent
// use.
type Wall struct {
	opts WallOptions
}

// WallOptions say what a [Wall] lets commands read.
type WallOptions struct {
	Home string // for git's configuration and tools below it; may be empty
	Path string // a list as in PATH: these directories can be read
	// Read are further files and directories that can be read.
	Read []string
	// Hide are files and directories that can never be read, such as credentials.
	Hide []string
}

// A View is what one command sees behind a wall.
type View struct {
	Roots []string // directories that can be read
	Write bool     // whether the command can change files in the roots
	Hide  []string // what cannot be read, beside what [WallOptions] hide
}

// A Confined is a command behind a wall.
type Confined struct{}

// NewWall returns a wall. It starts nothing: the first call of [Wall.Ready] finds
// out whether it holds.
func NewWall(opts WallOptions) *Wall { return &Wall{opts: opts} }

// Ready reports whether the wall holds on this machine. The first call tries it on a
// command that attacks it, which takes some milliseconds; the result is kept.
func (w *Wall) Ready() error {
	return errors.New("there is no wall for " + runtime.GOOS + " in this version")
}

// Confine changes a command that was not started so that it runs behind the wall.
func (w *Wall) Confine(cmd *exec.Cmd, view View) (*Confined, error) {
	return nil, w.Ready()
}

// Started is called with what Start returned. Its channel is closed when nothing of
// the command runs any more.
func (c *Confined) Started(err error) (over <-chan struct{}) { return atOnce(err) }

// Refused names what the command tried and the wall refused, such as "write files".
// It is complete once the command has ended.
func (c *Confined) Refused() []string { return nil }
