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

// A run is a command that runs or ran. It is a [tool.Task].
type run struct {
	env     *tool.Env
	tree    *process.Tree
	spool   *process.Spool
	dir     string            // where it began
	note    string            // for the model
	inside  bool              // of a sandbox
	walled  *sandbox.Confined // nil if it runs behind no wall
	cwd     *os.File
	endDir  string        // where it ended, if it said so; valid when it has ended
	started chan struct{} // closed when there is a tree
	ended   chan struct{} // closed when the command has ended and has said all
	letGo   chan struct{} // has an element when a person lets it go on in the background
	moved   chan struct{} // closed when it continues there, and that is reported

	mu       sync.Mutex
	info     tool.TaskInfo
	told     bool // whether it was reported as a task
	stopped  bool // whether somebody stopped it
	overflow bool
	monitor  *monitored  // nil if its output is not reported
	timer    *time.Timer // ends it, if it goes on too long
}

// live is what runs in a conversation, or may.
type live struct {
	mark   string // that all carry
	once   sync.Once
	watch  *process.Watcher // for when this process is killed
	mu     sync.Mutex
	runs   map[*run]bool
	closed bool
}

type liveKey struct{}

// liveOf returns what runs in a conversation. It ends when that is closed.
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
	l.once.Do(func() {}) // nobody is watched any more
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
	if r.inside = in.where(env) == tool.Inside; r.inside || call.Place != tool.Anywhere {
		if err := files.CheckRoots(env); err != nil {
			return nil, err
		}
	}
	// The shell reads these from files that have no names, so that no earlier
	// command can have changed them.
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
		return fmt.Sprintf("/dev/fd/%d", 3+len(opened)), nil // behind the standard files and cwd
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
	l.once.Do(func() { l.watch, _ = process.Watch(shell, l.mark, pathOf(env)) })
	cwd, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	r.cwd = cwd
	how := &process.Command{Args: args, Dir: dir, Env: environment(env, dir), Files: append([]*os.File{w}, opened...), Mark: l.mark, Output: r.spool}
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

// watch sees the command to its end.
func (r *run) watch(l *live) {
	left := r.tree.Settle(r.spool)
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
		// Sent with mu held: nobody sees that the command has ended before its end is sent.
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

// summary says how a command in the background has ended. It is called with mu held.
func (r *run) summary() string {
	switch code := r.info.ExitCode; {
	case r.overflow:
		return fmt.Sprintf("Background command %q was stopped because it printed too much", r.info.Description)
	case code == nil:
		return r.info.Description
	case r.monitor != nil && *code == 0:
		return fmt.Sprintf("Monitor %q stream ended", r.info.Description)
	case r.monitor != nil:
		return fmt.Sprintf("Monitor %q script failed (exit %d)", r.info.Description, *code)
	case *code == 0:
		return fmt.Sprintf("Background command %q completed (exit code 0)", r.info.Description)
	default:
		return fmt.Sprintf("Background command %q failed with exit code %d", r.info.Description, *code)
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

// tell says that the command is a task, still in the foreground.
func (r *run) tell() {
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

// show sends the end of the output if there is more than was shown. It returns how much there is.
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

// toBackground lets the command go on beside the calls, for so long at most if
// that is not zero.
func (r *run) toBackground(limit time.Duration) {
	defer close(r.moved)
	file := r.spool.Persist()
	r.mu.Lock()
	told := r.told
	r.mu.Unlock()
	if !told {
		r.env.Tasks().Add(r)
	}
	// The events are sent with mu held, so that the end comes last, whoever sends it.
	r.mu.Lock()
	defer r.mu.Unlock()
	r.info.Background = true
	r.info.OutputFile = file
	over := false
	select {
	case <-r.ended:
		// It ended just now; the end is sent below.
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

// readDir returns the directory that the command ended in, if it said so.
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

// Info says how the command stands.
func (r *run) Info() tool.TaskInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.info
}

// Output returns the end of what the command printed.
func (r *run) Output(limit int) tool.TaskOutput {
	total := r.spool.Total()
	text := strings.ToValidUTF8(string(r.spool.Tail(limit)), "\ufffd")
	return tool.TaskOutput{Text: text, Total: total, Truncated: total > int64(limit)}
}

// Stop ends the command with all it started.
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

// Background lets the command go on in the background, and waits until it does.
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
