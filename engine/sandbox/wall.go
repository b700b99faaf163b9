package sandbox

import (
	"errors"
	"os/exec"
	"sync"
)

// A Wall confines commands that nobody approved. Behind the read wall a command changes
// nothing and reaches nobody; behind the workspace wall it can also change files in its
// roots. The kernel enforces it: a command cannot switch it off, and its children are
// behind it as well. A nil Wall is no wall. It is safe for concurrent use.
type Wall struct {
	opts WallOptions

	once sync.Once
	err  error // why it does not work, once tried

	prepare sync.Once
	work    sync.WaitGroup // what Prepare started

	wallState
}

// WallOptions configure what a [Wall] lets every command read, in addition to the system.
type WallOptions struct {
	Home string // for git's configuration and tools that are installed there; may be empty
	Path string // a list of directories as in PATH, with programs that commands run
	// GitConfig are additional git configuration files.
	GitConfig []string
	// Read are additional files and directories that can be read.
	Read []string
	// Hide are files and directories that can never be read, such as our own credentials.
	// Those of well-known programs in Home are always hidden.
	Hide []string
	// Expected means that commands are likely, so that [Wall.Prepare] has an effect.
	Expected bool
}

// A View is the file access of one command behind a wall.
type View struct {
	// Roots are directories that can be read, with the git repositories of which they are
	// work trees.
	Roots []string
	Write bool     // files in the roots can be changed
	Read  []string // additional files and directories that can be read
	// Hide are absolute paths that cannot be read. They may contain the wildcards *, **
	// and ?, which are expanded in the roots; a backslash escapes a wildcard.
	Hide []string

	attack bool // the command is that of [Wall.attack]
}

// ErrNoWall means that no wall works on this machine.
var ErrNoWall = errors.New("no wall holds on this machine")

// NewWall returns a wall. It starts nothing: see [Wall.Ready].
func NewWall(opts WallOptions) *Wall { return &Wall{opts: opts} }

// Ready returns nil if the wall works on this machine, or else an [ErrNoWall] with the
// reason. The first call in a process runs a command behind the wall that tries to
// escape, which takes some milliseconds.
func (w *Wall) Ready() error {
	if w == nil {
		return ErrNoWall
	}
	w.once.Do(func() { w.err = w.try() })
	return w.err
}

// Prepare calls [Wall.Ready] in the background, so that the first command does not wait for
// the attempt to escape, if commands are expected. [Wall.Close] waits for it. After Close it
// does nothing: calls that a turn abandoned may still reach it.
func (w *Wall) Prepare() {
	if w != nil && w.opts.Expected {
		w.prepare.Do(func() { w.work.Go(func() { w.Ready() }) })
	}
}

// Confine changes a command that was not started so that it runs behind the wall. It
// calls [Wall.Ready] first.
func (w *Wall) Confine(cmd *exec.Cmd, view View) (*Confined, error) {
	if err := w.Ready(); err != nil {
		return nil, err
	}
	return w.confine(cmd, &view)
}

// Close releases the resources of the wall. It does not stop running commands.
func (w *Wall) Close() {
	if w != nil {
		w.prepare.Do(func() {}) // from now on Prepare starts nothing
		w.work.Wait()
		w.close()
	}
}

// WallReport lists the guarantees of a wall, for people and programs.
type WallReport struct {
	Kind       string   `json:"kind"` // [Landlock], [Seatbelt] or [None]
	Guarantees []string `json:"guarantees,omitempty"`
	Missing    []string `json:"missing,omitempty"`
}

// Report returns the guarantees of the wall. It calls [Wall.Ready].
func (w *Wall) Report() WallReport {
	if err := w.Ready(); err != nil {
		return WallReport{Kind: None, Missing: []string{err.Error()}}
	}
	return w.describe()
}

// A refusal is something that a wall denied to a command.
type refusal uint8

const (
	refusedWrite refusal = 1 << iota
	refusedConnect
	refusedFork
)

// Refused lists what the command tried and the wall denied: "change files", "use the
// network", "start more processes". It is complete once the command has ended, and is
// based on the kernel's reports, not on the command's output.
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
