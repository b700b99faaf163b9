package transport

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// Process is the [Dialer] that starts a command and communicates through its standard
// input and output. The zero value is ready to use.
//
// The command runs in its own process group, and nothing of it outlives its connection:
// when the command has ended, or was ended by Close, everything it left behind is
// killed. On Linux that includes descendants that moved to another session; they are
// identified by the environment variable PARLEY_CONN_ID, which they inherit. When this
// process itself is killed, the command and its group are killed with it (on Windows by
// a job object; on other systems by a watchdog that needs /bin/sh, and on Linux also by
// the kernel).
//
// Standard error is always read, whatever its volume and the length of its lines. Its
// tail is part of [Exit]. Spec.Stderr is called with its lines, one at a time and in
// order; a line longer than 64 KiB comes in pieces. The command never waits for the
// callback: one that falls behind by 8 MiB loses lines, gets a line that states how
// many, and [Exit] counts them. When the command has ended, the callback has a second
// for the queued lines; it is not called after Close has returned. A callback that
// panics is called again for the next line, and Close reports the panic.
//
// If Spec.Path is empty, [Find] looks for an agent in the environment that the command
// will have. A nil Spec.Env means the environment of this process.
type Process struct {
	// EOFGrace is how long Close waits for the command to end after its input was
	// ended, before it sends SIGTERM. Zero means Spec.CloseTimeout, or 5 seconds. It is
	// generous because an agent writes the last lines of its transcript in this time.
	EOFGrace time.Duration
	// TermGrace is how long Close waits after SIGTERM before it sends SIGKILL. Zero
	// means Spec.CloseTimeout, or 5 seconds.
	TermGrace time.Duration
	// KillGrace is how long Close waits after SIGKILL before it gives up on a command
	// that the system cannot end. Zero means 5 seconds.
	KillGrace time.Duration
	// Linger is how long, after the command has ended, other processes that hold its
	// output open may stay silent before they are killed. They may write for ten times
	// as long in total. Earlier output is not lost, however slowly it is read. Zero
	// means 500 milliseconds.
	Linger time.Duration
	// StderrTail is how many bytes of standard error are kept. Zero means 64 KiB,
	// a negative number means none.
	StderrTail int
}

const (
	defaultGrace  = 5 * time.Second
	defaultLinger = 500 * time.Millisecond

	// hurriedGrace replaces a longer TermGrace when the context of a Close is done.
	hurriedGrace = 500 * time.Millisecond

	// connIDKey marks a command's descendants. Its value is the comma-separated list of
	// the connections under which the process runs, outermost first.
	connIDKey = "PARLEY_CONN_ID"
)

// Dial starts the command. ctx bounds only the start.
//
// The error is a [*NotFoundError] if there is nothing to start and a [*StartError] if
// starting failed.
func (p *Process) Dial(ctx context.Context, spec Spec) (Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	env := newVariables(foldEnv)
	inherited := spec.Env
	if inherited == nil {
		inherited = os.Environ()
	}
	for _, kv := range inherited {
		env.apply(kv)
	}
	path, err := Find(spec.Path, env.get)
	if err != nil {
		return nil, err
	}
	if err := CheckDir(spec.Dir); err != nil {
		return nil, &StartError{Path: path, Dir: spec.Dir, Err: err}
	}
	id := newConnID()
	if outer := env.get(connIDKey); outer != "" {
		env.set(connIDKey, outer+","+id)
	} else {
		env.set(connIDKey, id)
	}

	cmd := &exec.Cmd{
		Path: path,
		Args: append([]string{path}, spec.Args()...),
		Env:  env.list(),
		Dir:  spec.Dir,
	}
	c := &processConn{
		settings: p.withDefaults(&spec),
		exited:   make(chan struct{}),
		done:     make(chan struct{}),
		hurry:    make(chan struct{}),
		closed:   make(chan struct{}),
	}
	if err := c.start(cmd, id, spec.Stderr); err != nil {
		return nil, &StartError{Path: path, Dir: spec.Dir, Err: err}
	}
	return c, nil
}

func (p *Process) withDefaults(spec *Spec) Process {
	return Process{
		EOFGrace:   cmp.Or(p.EOFGrace, spec.CloseTimeout, defaultGrace),
		TermGrace:  cmp.Or(p.TermGrace, spec.CloseTimeout, defaultGrace),
		KillGrace:  cmp.Or(p.KillGrace, defaultGrace),
		Linger:     cmp.Or(p.Linger, defaultLinger),
		StderrTail: cmp.Or(p.StderrTail, defaultStderrTail),
	}
}

// CheckDir returns an error if an agent cannot work in a directory: it does not exist,
// or is a file. Empty means the directory of this process. All dialers whose agents run
// on this machine use it, so that they reject the same directories.
func CheckDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", errDirMissing, fs.ErrNotExist)
	case err != nil:
		return err
	case !info.IsDir():
		return errDirNotADir
	}
	return nil
}

func newConnID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// A processConn is a connection to a command.
//
// Three goroutines belong to it: supervise, which waits for the end of the command and
// cleans up after it; the drain of standard error; and, once Close was called,
// shutdown, with a helper that discards output that nobody reads. All of them end
// before done and closed are closed, except those held up by a command that the system
// cannot kill, or by a callback that never returns.
type processConn struct {
	settings Process
	tree     *processTree
	stdin    *os.File
	out      *peerPipe // standard output, read through output
	errs     *peerPipe // standard error, read by stderr
	output   *output
	stderr   *stderrDrain

	inputOnce sync.Once
	inputErr  error

	stepMu sync.Mutex
	step   Step

	exited chan struct{} // closed when the command ended
	done   chan struct{} // closed when it has ended and exit is set
	exit   Exit

	closeOnce sync.Once
	hurryOnce sync.Once
	hurry     chan struct{} // closed when a caller of Close runs out of time
	closed    chan struct{} // closed when shutdown ended and closeErr is set
	closeErr  error
}

// start starts the command with our own pipes. exec's pipes do not work here: its Wait
// closes them while they are being read.
func (c *processConn) start(cmd *exec.Cmd, id string, line func(string)) (err error) {
	var ends []*os.File
	defer func() {
		if err != nil {
			for _, f := range ends {
				f.Close()
			}
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			if r, w, err = os.Pipe(); err == nil {
				ends = append(ends, r, w)
			}
		}
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	errR, errW := pipe()
	if err != nil {
		return err
	}
	enlarge(outR)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	if c.tree, err = startTree(cmd, id); err != nil {
		return err
	}
	inR.Close()
	outW.Close()
	errW.Close()

	c.stdin = inW
	c.out, c.errs = &peerPipe{file: outR}, &peerPipe{file: errR}
	c.output = newOutput(c.out)
	c.stderr = drainStderr(c.errs, c.settings.StderrTail, line)
	go c.supervise()
	return nil
}

func (c *processConn) Read(p []byte) (int, error) { return c.output.Read(p) }

func (c *processConn) Write(p []byte) (int, error) {
	n, err := c.stdin.Write(p)
	if err != nil {
		if isBrokenPipe(err) {
			err = fmt.Errorf("%w: the peer stopped reading or is gone: %w", ErrInputClosed, err)
		} else if errors.Is(err, os.ErrClosed) {
			err = ErrInputClosed
		}
	}
	return n, err
}

func (c *processConn) CloseWrite() error {
	c.inputOnce.Do(func() {
		c.raise(StepEOF)
		c.inputErr = c.stdin.Close()
	})
	return c.inputErr
}

// raise records the step that is used, unless the command has already ended.
func (c *processConn) raise(s Step) {
	c.stepMu.Lock()
	defer c.stepMu.Unlock()
	select {
	case <-c.exited:
	default:
		c.step = max(c.step, s)
	}
}

func (c *processConn) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-c.done:
		return c.exit, nil
	default:
	}
	select {
	case <-c.done:
		return c.exit, nil
	case <-ctx.Done():
		return Exit{Code: -1}, ctx.Err()
	}
}

func (c *processConn) Close(ctx context.Context) error {
	c.closeOnce.Do(func() { go c.shutdown() })
	select {
	case <-c.closed:
	case <-ctx.Done():
		c.hurryOnce.Do(func() { close(c.hurry) })
		<-c.closed
	}
	return c.closeErr
}

// supervise waits for the command to end, and then makes sure that nothing else keeps
// the connection open.
func (c *processConn) supervise() {
	c.tree.watch()
	c.tree.awaitExit()
	c.stepMu.Lock()
	close(c.exited)
	c.stepMu.Unlock()
	// Nobody is there to read input. A writer that is blocked on a pipe that some
	// descendant holds would wait forever.
	c.CloseWrite()

	c.linger()
	c.tree.kill()
	state := c.tree.release()
	c.out.abandon()
	c.errs.abandon()
	<-c.stderr.end
	c.errs.file.Close()
	<-c.output.end
	c.out.file.Close()

	code, signal := exitStatus(state)
	c.exit = Exit{Code: code, Signal: signal, Stderr: c.stderr.text(), Dropped: c.stderr.dropped(), Step: c.step}
	close(c.done)
}

// linger gives descendants of an ended command that hold its output open their time: as
// long as they write, within limits.
func (c *processConn) linger() {
	start := time.Now()
	limit := start.Add(10 * c.settings.Linger)
	outEnd, errEnd := c.output.end, c.stderr.end
	for outEnd != nil || errEnd != nil {
		last := start
		for _, p := range []*peerPipe{c.out, c.errs} {
			if t := time.Unix(0, p.heard.Load()); t.After(last) {
				last = t
			}
		}
		until := last.Add(c.settings.Linger)
		if limit.Before(until) {
			until = limit
		}
		left := time.Until(until)
		if left <= 0 {
			return
		}
		silence := time.NewTimer(left)
		select {
		case <-outEnd:
			outEnd = nil
		case <-errEnd:
			errEnd = nil
		case <-c.hurry:
			silence.Stop()
			return
		case <-silence.C:
		}
		silence.Stop()
	}
}

// shutdown runs the steps that end the command. It runs once, no matter how often Close
// is called.
func (c *processConn) shutdown() {
	defer close(c.closed)
	stop := make(chan struct{})
	discarded := make(chan struct{})
	go func() {
		defer close(discarded)
		c.output.discard(stop)
	}()

	c.closeErr = c.end()
	if c.closeErr != nil {
		close(stop)
		return
	}
	<-discarded
	c.closeErr = c.stderr.failure()
}

// end ends the command and waits until it is gone.
func (c *processConn) end() error {
	select {
	case <-c.exited:
	default:
		c.CloseWrite()
		if c.within(c.settings.EOFGrace, 0) {
			break
		}
		c.raise(StepTerminate)
		c.tree.terminate()
		if c.within(c.settings.TermGrace, hurriedGrace) {
			break
		}
		c.raise(StepKill)
		c.tree.kill()
		select {
		case <-c.exited:
		case <-time.After(c.settings.KillGrace):
			return c.stuck()
		}
	}
	// The rest is bounded: linger, then reading the rest of the pipes. The sum is the
	// limit for what should never take that long.
	bound := time.NewTimer(10*c.settings.Linger + c.settings.KillGrace + 2*stderrGrace)
	defer bound.Stop()
	select {
	case <-c.done:
		return nil
	case <-bound.C:
		return c.stuck()
	}
}

func (c *processConn) stuck() error {
	select {
	case <-c.exited:
		return fmt.Errorf("transport: process %d ended, but its output is still being read", c.tree.pid())
	default:
		return fmt.Errorf("transport: process %d did not end although it was killed: the system holds it, often in a file system that does not answer", c.tree.pid())
	}
}

// within reports whether the command ends within d, or within hurried after a caller of
// Close runs out of time.
func (c *processConn) within(d, hurried time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.exited:
		return true
	case <-t.C:
		return false
	case <-c.hurry:
	}
	t.Reset(min(d, hurried))
	select {
	case <-c.exited:
		return true
	case <-t.C:
		return false
	}
}

// maxLeftover limits how much is read from an abandoned pipe: more than any pipe holds.
const maxLeftover = 4 << 20

// A peerPipe is the read end of a pipe that the command writes to.
type peerPipe struct {
	file      *os.File
	heard     atomic.Int64 // time of the last read, in Unix nanoseconds
	abandoned atomic.Bool
	leftover  int // bytes read since abandoned; used only by the reader
}

func (p *peerPipe) Read(b []byte) (int, error) {
	for {
		abandoned := p.abandoned.Load()
		if abandoned {
			if p.leftover > maxLeftover {
				return 0, io.EOF
			}
			// The output of the command is in the pipe, so it can be read without
			// waiting. The deadline is not in the past because then nothing would be
			// read.
			p.file.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		}
		n, err := p.file.Read(b)
		if n > 0 {
			p.heard.Store(time.Now().UnixNano())
			if abandoned {
				p.leftover += n
			}
			return n, nil
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if !abandoned {
				continue
			}
			err = io.EOF
		}
		if err == nil && len(b) > 0 {
			continue
		}
		return n, err
	}
}

// abandon makes the pipe end after its current content, in case an unknown process
// still holds the other end.
func (p *peerPipe) abandon() {
	// The order matters: a Read that sees abandoned sets its deadline after this
	// one.
	p.file.SetReadDeadline(time.Now())
	p.abandoned.Store(true)
}
