package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
)

// seatbeltProgram applies a profile to itself and executes a command. Apple calls it
// deprecated, but still ships and uses it.
const seatbeltProgram = "/usr/bin/sandbox-exec"

// changes are the commands of attack that change files and are not part of the shell.
const changes = "touch root/file; chmod 777 root/file; mkdir root/dir; "

// wallState is the state of a wall.
type wallState struct {
	mu    sync.Mutex
	fixed []grant // grants of every command
	cache lookout
}

// A Confined is a command behind a wall.
type Confined struct{ refused atomic.Uint32 }

// Started must be called with the result of Start.
func (c *Confined) Started(err error) (over <-chan struct{}) { return atOnce(err) }

// Ended must be called when the command has ended. It reports whether processes may be left.
func (c *Confined) Ended() (left bool) { return true }

// Err returns why the wall could not start the command, or nil.
func (c *Confined) Err() error { return nil }

func (w *Wall) try() error { return machine() }

// machine probes walls on this machine, once for all of them.
var machine = sync.OnceValue(func() error {
	if _, err := os.Stat(seatbeltProgram); err != nil {
		return fmt.Errorf("%w: %w", ErrNoWall, err)
	}
	if err := new(Wall).attack(); err != nil {
		return fmt.Errorf("%w: %w", ErrNoWall, err)
	}
	return nil
})

// confine runs a command with a profile. A shell sets the limit of CPU time, since Go
// cannot set one for a child.
func (w *Wall) confine(cmd *exec.Cmd, v *View) (*Confined, error) {
	if cmd.Path == "" || len(cmd.Args) == 0 {
		return nil, errors.New("sandbox: the command names no program")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fixed == nil {
		w.fixed = w.base()
	}
	hide := w.hidden()
	for _, h := range v.Hide {
		if path, ok := literal(h); ok && !v.Write {
			hide = append(hide, resolved(path))
		}
	}
	profile, err := seatbelt(append(slices.Clone(w.fixed), w.grants(v, &w.cache)...), hide)
	if err != nil {
		return nil, err
	}
	limits := "ulimit -c 0; "
	if !v.Write {
		limits += fmt.Sprintf("ulimit -t %d; ", maxTime)
	}
	cmd.Args = append([]string{seatbeltProgram, "-p", profile, "/bin/sh", "-c", limits + `exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = seatbeltProgram
	return new(Confined), nil
}

// reports reports whether the kernel notifies about what it denies.
func (w *Wall) reports() bool { return false }

// describe returns the guarantees of the wall.
func (w *Wall) describe() WallReport {
	return WallReport{
		Kind:       Seatbelt,
		Guarantees: append(slices.Clone(wallGuarantees), fmt.Sprintf("each process has at most %d seconds of a processor", maxTime)),
		Missing:    []string{"memory and processes are not limited, and results do not report what was refused: macOS has no way to do either"},
	}
}

func (w *Wall) close() {}
