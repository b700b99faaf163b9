//go:build unix

package transport

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// A processTree is a command and its descendants. On unix it is a process group, whose
// number is the command's process id.
//
// That number must not be used once the command was reaped and its group is empty,
// since the system may reuse it. So the command stays a zombie until release, on
// systems that let us see the end of a process without reaping it.
type processTree struct {
	cmd       *exec.Cmd
	id        string // of the connection, in connIDKey
	endThread func() // releases the thread that started it

	mu       sync.Mutex
	released bool
}

// sleep is [time.Sleep] except in tests.
var sleep = time.Sleep

func startTree(cmd *exec.Cmd, id string) (*processTree, error) {
	t := &processTree{cmd: cmd, id: id}
	cmd.SysProcAttr = sysProcAttr()
	for try := 0; ; try++ {
		var err error
		if t.endThread, err = onSpawnThread(cmd.Start); err == nil {
			return t, nil
		}
		if !errors.Is(err, syscall.ETXTBSY) || try == 5 {
			return nil, err
		}
		// The executable is being written, by an installer or by another goroutine of
		// ours whose child still has it open. It is free in a moment.
		sleep(10 * time.Millisecond << try)
		// A Cmd can be started once.
		t.cmd = &exec.Cmd{
			Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir,
			Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr,
			SysProcAttr: cmd.SysProcAttr,
		}
		cmd = t.cmd
	}
}

func (t *processTree) pid() int { return t.cmd.Process.Pid }

// watch makes the watchdog kill the group when this process is killed.
func (t *processTree) watch() { theWatchdog.add(t.pid(), t.id) }

// terminate asks the group to end. A stopped process does not receive the signal before
// it continues.
func (t *processTree) terminate() {
	t.signal(syscall.SIGTERM)
	t.signal(syscall.SIGCONT)
}

// kill kills the group, and descendants that have left it, as far as they can be found.
func (t *processTree) kill() {
	t.signal(syscall.SIGKILL)
	sweep(t.id)
}

func (t *processTree) signal(sig syscall.Signal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.released {
		return
	}
	if syscall.Kill(-t.pid(), sig) != nil {
		t.cmd.Process.Signal(sig) // it moved to another group
	}
}

// release gives up the group and returns how the command ended, nil if unknown. Call it
// after awaitExit.
func (t *processTree) release() *os.ProcessState {
	// Do this while the number is still ours, so that the watchdog cannot kill another
	// group.
	theWatchdog.remove(t.pid())
	t.mu.Lock()
	t.released = true
	t.mu.Unlock()
	t.reap()
	t.endThread()
	return t.cmd.ProcessState
}

func exitStatus(state *os.ProcessState) (code int, signal string) {
	if state == nil {
		return -1, ""
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return -1, ws.Signal().String()
	}
	return state.ExitCode(), ""
}

func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

// systemAdvice returns a remedy for an error of the system.
func systemAdvice(err error) string {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return "it is not a program for this machine, or a script whose first line does not name its interpreter"
	case errors.Is(err, syscall.ETXTBSY):
		return "somebody is writing to it, such as an installer: try again when it has finished"
	case errors.Is(err, syscall.E2BIG):
		return "the arguments or the environment are too long: pass long values in files"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "close connections that are no longer used, or raise the limit (ulimit -n)"
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return "the system has no room for another process: close connections that are no longer used"
	case errors.Is(err, syscall.EINVAL):
		return "an argument or a variable of the environment may hold a NUL byte"
	}
	return ""
}

// theWatchdog is shared by all connections of this process.
var theWatchdog = watchdog{shell: "/bin/sh"}

// A watchdog kills process groups if this process ends without doing so itself. It is a
// shell that reads our connections from a pipe. Only this process holds the writing
// end: if the pipe ends while groups are left, this process was killed. The shell runs
// as long as there are connections that are not new, in its own group, so that a signal
// for our group does not end it. Without a shell there is no watchdog.
type watchdog struct {
	shell string

	mu     sync.Mutex
	groups map[int]string // with their connection ids
	timer  *time.Timer    // starts the shell
	pipe   *os.File       // nil if the shell was not, or could not be, started
	proc   *os.Process
}

// watchdogDelay keeps the start of the shell from delaying the first answer. Until then
// the kernel (on Linux) or the end of its input ends an abandoned command.
const watchdogDelay = 25 * time.Millisecond

// watchdogScript uses only shell builtins, apart from grep, which finds the descendants
// that left their group on systems with /proc. It looks twice because a fork may
// overtake the first look.
const watchdogScript = `
list=
while read -r op group id; do
	case $op in
	+) list="$list $group:$id" ;;
	-) kept=
		for x in $list; do
			case $x in $group:*) ;; *) kept="$kept $x" ;; esac
		done
		list=$kept ;;
	esac
done
for x in $list; do
	kill -9 -"${x%%:*}"
done
[ -n "$list" ] && [ -r /proc/self/environ ] || exit 0
for again in 1 2; do
	for x in $list; do
		for f in $(grep -ls "` + connIDKey + `=[0-9a-f,]*${x#*:}" /proc/[0-9]*/environ); do
			f=${f#/proc/}
			kill -9 "${f%/environ}"
		done
	done
done
`

func (w *watchdog) add(group int, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.groups == nil {
		w.groups = map[int]string{}
	}
	w.groups[group] = id
	if len(w.groups) == 1 {
		w.timer = time.AfterFunc(watchdogDelay, w.begin)
	} else {
		w.signal("+ %d %s\n", group, id)
	}
}

// begin starts the shell if it is still needed.
func (w *watchdog) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pipe != nil || len(w.groups) == 0 {
		return
	}
	w.start()
	for group, id := range w.groups {
		w.signal("+ %d %s\n", group, id)
	}
}

func (w *watchdog) remove(group int) {
	w.mu.Lock()
	w.signal("- %d\n", group)
	var pipe *os.File
	var proc *os.Process
	if delete(w.groups, group); len(w.groups) == 0 {
		w.timer.Stop()
		pipe, proc = w.pipe, w.proc
		w.pipe, w.proc = nil, nil
	}
	w.mu.Unlock()
	if pipe == nil {
		return
	}
	// Its list is empty, so the end of the pipe ends the shell. Kill it if that takes
	// too long.
	pipe.Close()
	kill := time.AfterFunc(time.Second, func() { proc.Kill() })
	defer kill.Stop()
	proc.Wait()
}

// start starts the shell. The caller holds mu.
func (w *watchdog) start() {
	r, pipe, err := os.Pipe()
	if err != nil {
		return
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		pipe.Close()
		return
	}
	defer null.Close()
	proc, err := os.StartProcess(w.shell, []string{"sh", "-c", watchdogScript}, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"PATH=/usr/bin:/bin"},
		Files: []*os.File{r, null, null},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		pipe.Close()
		return
	}
	w.pipe, w.proc = pipe, proc
}

// signal sends the shell a line. The caller holds mu. It ignores errors of a watchdog
// that was killed, because the watchdog is only the second safety net.
func (w *watchdog) signal(format string, args ...any) {
	if w.pipe != nil {
		w.pipe.SetWriteDeadline(time.Now().Add(time.Second))
		fmt.Fprintf(w.pipe, format, args...)
	}
}
