package bash

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/process"
)

// A run is a command that is running or has ended. It is a [tool.Task].
type run struct {
	env     *tool.Env
	tree    *process.Tree
	spool   *process.Spool
	dir     string            // where it started
	note    string            // for the model
	inside  bool              // it runs inside a sandbox
	walled  *sandbox.Confined // nil if it does not run behind a wall
	cwd     *os.File
	endDir  string        // where it ended, if known; valid after its end
	started chan struct{} // closed when tree is set
	ended   chan struct{} // closed when the command has ended and all its output is read
	letGo   chan struct{} // has an element when a person moves it to the background
	moved   chan struct{} // closed when it is in the background and that was reported

	mu       sync.Mutex
	info     tool.TaskInfo
	told     bool // it was reported as a task
	stopped  bool // it was stopped
	overflow bool
	monitor  *monitored  // nil if its output is not reported
	timer    *time.Timer // stops it if it continues for too long
}

// live holds the running commands of a conversation.
type live struct {
	mark   string // mark of all its processes
	once   sync.Once
	watch  *process.Watcher // stops them if this process is killed
	mu     sync.Mutex
	runs   map[*run]bool
	closed bool
}

type liveKey struct{}

// liveOf returns the running commands of a conversation. They are stopped when it is closed.
func liveOf(env *tool.Env) *live {
	first := false
	l := tool.Value(env, liveKey{}, func() *live {
		first = true
		return &live{mark: process.NewMark(), runs: map[*run]bool{}}
	})
	if first {
		env.OnClose(l.stop)
	}
	return l
}

func (l *live) stop() {
	l.mu.Lock()
	l.closed = true
	var all []*run
	for r := range l.runs {
		all = append(all, r)
	}
	l.mu.Unlock()
	var wg sync.WaitGroup
	for _, r := range all {
		wg.Go(func() {
			r.Stop()
			<-r.ended
		})
	}
	wg.Wait()
	process.Sweep(l.mark)
	l.once.Do(func() {}) // start no watcher any more
	l.watch.Stop()
}

// launch starts the shell.
func (t *Tool) launch(call *tool.Call, in *Input, shell string, snapshot []byte, dir string) (*run, error) {
	env := call.Env
	r := &run{env: env, dir: dir, started: make(chan struct{}), ended: make(chan struct{}), letGo: make(chan struct{}, 1), moved: make(chan struct{})}
	r.info = tool.TaskInfo{
		Agent: env.Agent,
		ID:    tool.NewTaskID("b"), RunID: tool.NewRunID(), ToolUseID: call.ID, Kind: tool.TaskBash,
		Description: in.Description, Command: in.Command, Status: tool.TaskRunning, Started: time.Now(),
	}
	if r.info.Description == "" {
		r.info.Description = in.Command
	}
	if in.monitored {
		r.monitor = new(monitored)
	}
	var store process.Store
	if file := files.InSession(env, "tasks/"+r.info.ID+".output"); file != nil {
		store = file
	}
	r.spool = process.NewSpool(store, t.opts.MaxDisk, r.overflows)

	// A wall leaves the targets of the roots writable.
	if r.inside = in.where(env) == tool.Inside; r.inside || call.Place == tool.ReadWall || call.Place == tool.Workspace {
		if err := files.CheckRoots(env); err != nil {
			return nil, err
		}
	}
	// The shell reads these from unnamed files, so that no earlier command can have changed them.
	var opened []*os.File
	defer func() {
		for _, f := range opened {
			f.Close()
		}
	}()
	read := func(text []byte) (path string, err error) {
		f, err := process.Private(text)
		if err != nil {
			return "", err
		}
		opened = append(opened, f)
		return fmt.Sprintf("/dev/fd/%d", 3+len(opened)), nil // after the standard files and cwd
	}
	first := ""
	var err error
	if len(snapshot) > 0 {
		if first, err = read(snapshot); err != nil {
			return nil, err
		}
	}
	command := in.Command
	// One argument cannot be longer than 128 KiB on Linux.
	if len(command) > 100_000 {
		file, err := read([]byte(command))
		if err != nil {
			return nil, fmt.Errorf("the command is too long to be passed on, and cannot be put into a file: %w", err)
		}
		command = ". " + file
	}
	args := []string{shell, "-c", script(command, first)}
	l := liveOf(env)
	l.once.Do(func() { l.watch, _ = process.Watch(shell, l.mark, pathOf(env), sandbox.AtEndOfInput) })
	cwd, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	r.cwd = cwd
	how := &process.Command{Args: args, Dir: dir, Env: environment(env, dir), Files: append([]*os.File{w}, opened...), Mark: l.mark, Output: r.spool}
	if call.Effort != "" {
		how.Env = append(how.Env, "CLAUDE_EFFORT="+string(call.Effort))
	}
	if call.Place == tool.Listed {
		how.Env = append(how.Env, "PATH="+strings.Join(machinePath(env), string(filepath.ListSeparator)))
	}
	roots := slices.Clone(env.Roots)
	switch {
	case (call.Place == tool.ReadWall || call.Place == tool.Workspace && !r.inside) && env.Wall.Ready() == nil:
		r.inside = false
		how.Env = sandbox.Environ(how.Env)
		how.Confine = func(cmd *exec.Cmd) (func(error) <-chan struct{}, error) {
			var err error
			view := sandbox.View{Roots: roots, Write: call.Place == tool.Workspace, Read: []string{env.Dir}}
			if env.HiddenPatterns != nil {
				view.Hide = env.HiddenPatterns()
			}
			if r.walled, err = env.Wall.Confine(cmd, view); err != nil {
				return nil, err
			}
			if call.Place == tool.ReadWall { // nobody approved a process that stays
				how.Ended = r.walled.Ended
			}
			return r.walled.Started, nil
		}
	case r.inside:
		how.Env = env.Sandbox.Environ(how.Env)
		how.Confine = func(cmd *exec.Cmd) (func(error) <-chan struct{}, error) { return env.Sandbox.Confine(cmd, roots...) }
	}
	r.tree, err = process.Start(how)
	w.Close()
	if err != nil {
		cwd.Close()
		return nil, err
	}
	close(r.started)
	l.mu.Lock()
	l.runs[r] = true
	closed := l.closed
	l.mu.Unlock()
	go r.watch(l)
	if closed {
		r.Stop()
		return nil, errors.New("the conversation has ended")
	}
	return r, nil
}

// watch waits for the end of the command and reports it.
func (r *run) watch(l *live) {
	left := r.tree.WaitOutput(r.spool)
	code := r.tree.Code()
	r.endDir = r.readDir()
	r.mu.Lock()
	if r.timer != nil {
		r.timer.Stop()
	}
	r.info.Ended = time.Now()
	r.info.Status = tool.TaskCompleted
	r.info.Summary = r.info.Description
	if r.stopped {
		r.info.Status = tool.TaskKilled
	} else {
		r.info.ExitCode = &code
		if code != 0 {
			r.info.Status = tool.TaskFailed
		}
	}
	if r.overflow {
		r.info.Status = tool.TaskFailed
	}
	if r.info.Background || r.overflow {
		r.info.Summary = r.summary()
	}
	if r.monitor != nil {
		r.info.Event = r.monitor.lines(r.spool, true)
	}
	if r.told && r.info.Background {
		r.told = false
		// Sent while holding mu: the end of the command is not visible before it is sent.
		r.env.Send(tool.TaskEnded{Info: r.info})
	}
	close(r.ended)
	r.mu.Unlock()
	// Processes that the command left behind end with the conversation.
	if left {
		<-r.tree.Drained()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.runs, r)
}

// summary describes how a command in the background has ended. The caller holds mu.
func (r *run) summary() string {
	switch code := r.info.ExitCode; {
	case r.overflow:
		return fmt.Sprintf("Background command \"%s\" was stopped because it printed too much", r.info.Description)
	case code == nil:
		return r.info.Description
	case r.monitor != nil && *code == 0:
		return fmt.Sprintf("Monitor \"%s\" stream ended", r.info.Description)
	case r.monitor != nil:
		return fmt.Sprintf("Monitor \"%s\" script failed (exit %d)", r.info.Description, *code)
	case *code == 0:
		return fmt.Sprintf("Background command \"%s\" completed (exit code 0)", r.info.Description)
	default:
		return fmt.Sprintf("Background command \"%s\" failed with exit code %d", r.info.Description, *code)
	}
}

// finishForeground reports the end of a command that was reported as a task while its
// call waited.
func (r *run) finishForeground() {
	r.mu.Lock()
	info, told := r.info, r.told
	r.told = false
	r.mu.Unlock()
	if told {
		info.OutputFile = ""
		info.Summary = info.Description
		r.env.Send(tool.TaskEnded{Info: info})
	}
}

// announce reports the command as a task in the foreground.
func (r *run) announce() {
	r.mu.Lock()
	select {
	case <-r.ended:
		r.mu.Unlock()
		return
	default:
	}
	r.told = true
	info := r.info
	r.mu.Unlock()
	r.env.Tasks().Add(r)
	r.env.Send(tool.TaskStarted{Info: info})
}

// show sends the end of the output if there is more than was shown. It returns the total size.
func (r *run) show(shown int64) int64 {
	total := r.spool.Total()
	if total > shown {
		r.mu.Lock()
		info := r.info
		r.mu.Unlock()
		r.env.Send(tool.TaskPrinted{Info: info, Tail: clean(r.spool.Tail(tailShown))})
	}
	return total
}

// tailShown is how many bytes of the output of a running command are sent.
const tailShown = 2 << 10

// toBackground moves the command to the background, and stops it after limit if that is not zero.
func (r *run) toBackground(limit time.Duration) {
	defer close(r.moved)
	file := r.spool.Persist()
	r.mu.Lock()
	told := r.told
	r.mu.Unlock()
	if !told {
		r.env.Tasks().Add(r)
	}
	// The events are sent while holding mu, so that the end comes last, whoever sends it.
	r.mu.Lock()
	defer r.mu.Unlock()
	r.info.Background = true
	r.info.OutputFile = file
	over := false
	select {
	case <-r.ended:
		// It has just ended; the end is sent below.
		over = true
		r.info.Summary = r.summary()
		if r.monitor != nil {
			r.info.Event = r.monitor.lines(r.spool, true)
		}
	default:
		if limit > 0 {
			r.timer = time.AfterFunc(limit, r.Stop)
		}
	}
	if told {
		r.env.Send(tool.TaskUpdated{Info: r.info})
	} else {
		r.env.Send(tool.TaskStarted{Info: r.info})
	}
	r.told = !over
	if over {
		r.env.Send(tool.TaskEnded{Info: r.info})
	}
}

// readDir returns the directory in which the command ended, if it was reported.
func (r *run) readDir() string {
	defer r.cwd.Close()
	r.cwd.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	buf := make([]byte, 16<<10)
	n := 0
	for n < len(buf) {
		k, err := r.cwd.Read(buf[n:])
		n += k
		if err != nil || k > 0 && buf[n-1] == '\n' {
			break
		}
	}
	dir := strings.TrimSuffix(string(buf[:n]), "\n")
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Clean(dir)
}

func (r *run) overflows() {
	r.mu.Lock()
	r.overflow = true
	r.mu.Unlock()
	<-r.started
	r.tree.Stop()
}

func (r *run) overflowed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.overflow
}

// Info returns the status of the command.
func (r *run) Info() tool.TaskInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.info
}

// Output returns the end of the command's output.
func (r *run) Output(limit int) tool.TaskOutput {
	total := r.spool.Total()
	text := strings.ToValidUTF8(string(r.spool.Tail(limit)), "\ufffd")
	return tool.TaskOutput{Text: text, Total: total, Truncated: total > int64(limit)}
}

// Stop stops the command and all its processes.
func (r *run) Stop() {
	r.mu.Lock()
	select {
	case <-r.ended:
	default:
		r.stopped = true
	}
	r.mu.Unlock()
	r.tree.Stop()
	<-r.ended
}

// Background moves the command to the background, and waits until it is there.
func (r *run) Background() bool {
	r.mu.Lock()
	can := !r.info.Background && r.info.Status == tool.TaskRunning
	r.mu.Unlock()
	if !can {
		return false
	}
	select {
	case r.letGo <- struct{}{}:
	default:
	}
	select {
	case <-r.moved:
		return true
	case <-r.ended:
		return false
	}
}

// Done is closed when the command has ended.
func (r *run) Done() <-chan struct{} { return r.ended }
