// Package process runs the commands of tools as process trees that are stopped
// completely.
//
// A [Tree] is a command in its own process group, with all processes that it starts.
// Its output goes to a [Spool]. Stopping it sends SIGTERM to the group and kills what
// is left after a grace period, on Linux including processes that left the group: they
// are recognized by a mark in their environment. On Linux the kernel also kills the
// command if this process dies.
package process

import (
	"crypto/rand"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// MarkKey is the environment variable that marks the processes of a tree. Its value
// lists marks; a command that runs trees itself adds its own.
const MarkKey = "PARLEY_TASK_MARK"

// Grace is the time between terminating a tree and killing it.
const Grace = 2 * time.Second

// A Command describes what to run.
type Command struct {
	Args   []string // the first is the path of the executable
	Dir    string
	Env    []string // "KEY=value"
	Files  []*os.File
	Mark   string // additional mark; may be empty
	Output *Spool // receives both output streams

	// Confine changes the command before it is started, to run it in a sandbox. The
	// returned function is called with the result of the start; the command has ended
	// only when the channel is closed, too. It may be nil.
	Confine func(*exec.Cmd) (started func(error) (over <-chan struct{}), err error)
	// Ended is called when the command has ended, on Linux. If it returns true, all processes
	// in its session are killed. It may be nil.
	Ended   func() bool
	Session bool // run in a separate session, without a terminal

	Stdin  *os.File // its standard input; nil means empty
	Stdout *os.File // receives its standard output instead of Output, if not nil
}

// A Tree is a running command, with all processes that it starts. It is safe for
// concurrent use.
type Tree struct {
	cmd     *exec.Cmd
	mark    string
	output  *os.File
	exited  chan struct{} // closed when the command has ended
	drained chan struct{} // closed at the end of its output
	killing sync.Mutex
}

// StartPiped starts a command whose standard input and output are pipes, and returns
// our ends of them. The caller closes both.
func StartPiped(c *Command) (t *Tree, stdin, stdout *os.File, err error) {
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		in.Close()
		stdin.Close()
		return nil, nil, nil, err
	}
	piped := *c
	piped.Stdin, piped.Stdout = in, out
	t, err = Start(&piped)
	in.Close()
	out.Close()
	if err != nil {
		stdin.Close()
		stdout.Close()
		return nil, nil, nil, err
	}
	return t, stdin, stdout, nil
}

// Start starts a command. The spool is closed at the end of its output.
func Start(c *Command) (*Tree, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	t := &Tree{mark: NewMark(), output: r, exited: make(chan struct{}), drained: make(chan struct{})}
	t.cmd = &exec.Cmd{Path: c.Args[0], Args: c.Args, Dir: c.Dir, Env: marked(c.Env, c.Mark, t.mark), Stdout: w, Stderr: w, ExtraFiles: c.Files, SysProcAttr: attributes()}
	if c.Session {
		newSession(t.cmd.SysProcAttr)
	}
	if c.Stdin != nil {
		t.cmd.Stdin = c.Stdin
	}
	if c.Stdout != nil {
		t.cmd.Stdout = c.Stdout
	}
	confined := func(error) <-chan struct{} { return nil }
	if c.Confine != nil {
		if confined, err = c.Confine(t.cmd); err != nil {
			r.Close()
			w.Close()
			return nil, err
		}
	}
	started := make(chan error)
	go func() {
		// The kernel monitors the thread that starts the command, so that thread must
		// live as long as the command does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := t.cmd.Start()
		over := confined(err)
		started <- err
		if err == nil {
			if c.Ended != nil {
				t.endSession(c.Ended)
			}
			t.cmd.Wait()
			if over != nil {
				select {
				case <-over:
				case <-time.After(time.Second):
				}
			}
			close(t.exited)
		}
	}()
	err = <-started
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	go func() {
		io.Copy(c.Output, onlyReader{r})
		r.Close()
		c.Output.Close()
		close(t.drained)
	}()
	return t, nil
}

// onlyReader hides the other methods of a file.
type onlyReader struct{ io.Reader }

// marked adds marks to an environment.
func marked(env []string, marks ...string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if outer, ok := strings.CutPrefix(kv, MarkKey+"="); ok {
			marks = append([]string{outer}, marks...)
			continue
		}
		out = append(out, kv)
	}
	return append(out, MarkKey+"="+strings.Join(marks, ","))
}

// Pid returns the process id of the command, which is also that of its group.
func (t *Tree) Pid() int { return t.cmd.Process.Pid }

// Exited returns a channel that is closed when the command has ended. Its children may
// still run.
func (t *Tree) Exited() <-chan struct{} { return t.exited }

// Drained returns a channel that is closed at the end of the output.
func (t *Tree) Drained() <-chan struct{} { return t.drained }

// Code returns the exit code of a command that has ended; 128 plus the number of the
// signal if one killed it.
func (t *Tree) Code() int {
	<-t.exited
	state := t.cmd.ProcessState
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// WaitOutput waits after the end of the command for the rest of its output. It gives up
// when nothing arrives for a moment, and reports whether something still holds the
// output open.
func (t *Tree) WaitOutput(spool *Spool) (left bool) {
	<-t.exited
	const moment = 50 * time.Millisecond
	timer := time.NewTimer(moment)
	defer timer.Stop()
	// On a busy machine time may pass before what is there can be read, or was read but not written.
	for seen, quiet := spool.Total(), 0; quiet < 2; timer.Reset(moment) {
		select {
		case <-t.drained:
			return false
		case <-timer.C:
			quiet++
			if now := spool.Total(); now != seen || t.unread() {
				seen, quiet = now, 0
			}
		}
	}
	return true
}

// Stop stops the tree: it terminates it, and kills it after [Grace]. It returns when
// none of its processes is left.
func (t *Tree) Stop() {
	t.killing.Lock()
	defer t.killing.Unlock()
	if t.ended() {
		return
	}
	t.terminate()
	timer := time.NewTimer(Grace)
	defer timer.Stop()
	for _, c := range []<-chan struct{}{t.exited, t.drained} {
		select {
		case <-c:
		case <-timer.C:
			timer.Reset(0)
		}
	}
	t.kill()
	<-t.exited
	// No visible process holds the output any more.
	last := time.NewTimer(500 * time.Millisecond)
	defer last.Stop()
	select {
	case <-t.drained:
	case <-last.C:
		t.output.Close()
		<-t.drained
	}
}

// ended reports whether the command and its output have ended.
func (t *Tree) ended() bool {
	for _, c := range []<-chan struct{}{t.exited, t.drained} {
		select {
		case <-c:
		default:
			return false
		}
	}
	return true
}

// NewMark returns a mark for the trees of a conversation; see [Command] and [Sweep].
func NewMark() string {
	var random [8]byte
	rand.Read(random[:])
	return hex.EncodeToString(random[:])
}

// Sweep kills every process that carries a mark, on Linux, including those that left
// their group and closed their output.
func Sweep(mark string) { sweep(mark) }
