package transport

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sysProcAttr puts the command into its own group and makes the kernel kill it when the
// thread that started it ends.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// spawning is the thread that starts all commands of this process.
//
// The kernel sends Pdeathsig when the thread that forked ends, not when the process
// does, and Go ends threads as it sees fit. So one goroutine keeps one thread for as
// long as there are commands. Starting them one after the other costs nothing: package
// syscall does not fork concurrently either.
var spawning struct {
	mu    sync.Mutex
	users int
	work  chan func()
}

// onSpawnThread calls start on the thread for commands. If start succeeds, the
// thread lives at least until done is called.
func onSpawnThread(start func() error) (done func(), err error) {
	s := &spawning
	s.mu.Lock()
	if s.users++; s.users == 1 {
		work := make(chan func())
		s.work = work
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for f := range work {
				f()
			}
		}()
	}
	work := s.work
	s.mu.Unlock()

	done = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users--; s.users == 0 {
			close(s.work)
		}
	}
	result := make(chan error, 1)
	work <- func() { result <- start() }
	if err := <-result; err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// awaitExit returns when the command has ended. It leaves the zombie, so that
// the id of its group is not reused.
func (t *processTree) awaitExit() {
	for {
		err := unix.Waitid(unix.P_PID, t.pid(), nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}

func (t *processTree) reap() { t.cmd.Wait() }

// sweep kills the processes that carry the connection's mark and returns when there are
// none, within a limit.
func sweep(id string) {
	unsureRounds := 3
	for range 100 {
		killed, unsure := killMarked(id)
		if !killed {
			if !unsure || unsureRounds == 0 {
				return
			}
			unsureRounds--
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// killMarked kills the processes that carry the mark now. unsure reports that the
// environment of a process could not be read, for example in the middle of an exec.
func killMarked(id string) (killed, unsure bool) {
	proc, err := os.Open("/proc")
	if err != nil {
		return false, false
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	self := os.Getpid()
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == self {
			continue
		}
		env, err := os.ReadFile("/proc/" + name + "/environ")
		switch {
		case err != nil:
		case marked(env, id):
			killed = killIfMarked(pid, id) || killed
		case len(env) == 0:
			// Kernel threads and zombies have no executable.
			if _, err := os.Readlink("/proc/" + name + "/exe"); err == nil {
				unsure = true
			}
		}
	}
	return killed, unsure
}

// killIfMarked kills the process by a handle, so that it cannot kill another process
// that gets the same process id in the meantime.
func killIfMarked(pid int, id string) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ENOSYS || err == unix.EPERM {
		return syscall.Kill(pid, syscall.SIGKILL) == nil // before Linux 5.3, or forbidden
	}
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !marked(env, id) {
		return false
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// marked reports whether an environment, in the kernel's format, carries the
// connection's mark.
func marked(env []byte, id string) bool {
	if !bytes.Contains(env, []byte(id)) {
		return false
	}
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		value, ok := bytes.CutPrefix(kv, []byte(connIDKey+"="))
		if ok && bytes.Contains(value, []byte(id)) {
			return true
		}
	}
	return false
}
