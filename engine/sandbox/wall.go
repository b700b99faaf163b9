package sandbox

import (
	"errors"
	"os/exec"
	"sync"
)

// A Wall confines commands that nobody approved. Behind the read wall a command
// changes nothing and reaches nobody; behind the workspace wall it can change files
// in its roots as well. The kernel holds it: a command cannot switch it off, whatever
// it does, and its children are behind it as well. Nil is no wall. It is safe for
// concurrent use.
type Wall struct {
	opts WallOptions

	once sync.Once
	err  error // why it does not hold, once tried

	wallState
}

// WallOptions say what a [Wall] lets every command read, beside the system.
type WallOptions struct {
	Home string // for git's configuration and for tools that are installed there; may be empty
	Path string // a list as in PATH, with programs that commands run
	// GitConfig are further files of git's configuration.
	GitConfig []string
	// Read are further files and directories that can be read.
	Read []string
	// Hide are files and directories that can never be read, such as our own
	// credentials. Those of well-known programs in Home are hidden anyway.
	Hide []string
}

// A View is what one command sees behind a wall.
type View struct {
	// Roots are directories that can be read, and the repositories of git that they
	// are work trees of.
	Roots []string
	Write bool     // whether files in the roots can be changed
	Read  []string // further files and directories that can be read
	// Hide are absolute paths that cannot be read. They may hold the wildcards *, ** and
	// ?, which are looked for in the roots; a backslash makes one an ordinary character.
	Hide []string
}

// ErrNoWall says that no wall holds on this machine.
var ErrNoWall = errors.New("no wall holds on this machine")

// NewWall returns a wall. It starts nothing: see [Wall.Ready].
func NewWall(opts WallOptions) *Wall { return &Wall{opts: opts} }

// Ready returns nil if the wall holds on this machine, else an [ErrNoWall] that says
// why not. The first call in a process starts a command behind the wall that tries to get
// out, which takes some milliseconds.
func (w *Wall) Ready() error {
	if w == nil {
		return ErrNoWall
	}
	w.once.Do(func() { w.err = w.try() })
	return w.err
}

// Confine changes a command that was not started so that it runs behind the wall. It
// calls [Wall.Ready] first.
func (w *Wall) Confine(cmd *exec.Cmd, view View) (*Confined, error) {
	if err := w.Ready(); err != nil {
		return nil, err
	}
	return w.confine(cmd, &view)
}

// Close frees what the wall holds. Commands that run are not ended.
func (w *Wall) Close() {
	if w != nil {
		w.close()
	}
}

// WallReport says what a wall guarantees, for people and programs.
type WallReport struct {
	Kind       string   `json:"kind"` // [Landlock], [Seatbelt] or [None]
	Guarantees []string `json:"guarantees,omitempty"`
	Missing    []string `json:"missing,omitempty"`
}

// Report says what the wall guarantees. It calls [Wall.Ready].
func (w *Wall) Report() WallReport {
	if err := w.Ready(); err != nil {
		return WallReport{Kind: None, Missing: []string{err.Error()}}
	}
	return w.describe()
}

// A refusal is something that a wall refused to a command.
type refusal uint8

const (
	refusedWrite refusal = 1 << iota
	refusedConnect
	refusedFork
)

// Refused names what the command tried and the wall refused: "change files", "use the
// network", "start more processes". It is complete once the command has ended, and
// rests on what the kernel saw, not on what the command printed.
func (c *Confined) Refused() (list []string) {
	if c == nil {
		return nil
	}
	r := refusal(c.refused.Load())
	for _, n := range []struct {
		bit  refusal
		name string
	}{{refusedWrite, "change files"}, {refusedConnect, "use the network"}, {refusedFork, "start more processes"}} {
		if r&n.bit != 0 {
			list = append(list, n.name)
		}
	}
	return list
}
