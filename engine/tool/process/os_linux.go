package process

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hasMarks says that the environment of processes can be seen.
const hasMarks = true

func attributes() *syscall.SysProcAttr {
	// A session of its own has no terminal to read from or to type into.
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

func signalMarked(mark string, s syscall.Signal) {
	each(mark, func(pid int) { signalOne(pid, mark, s) })
}

// sweep kills the processes that carry the mark until there are none, within a
// bound.
func sweep(mark string) {
	unsureRounds := 3
	for range 200 {
		found, unsure := each(mark, func(pid int) { signalOne(pid, mark, syscall.SIGKILL) })
		if found == 0 {
			if !unsure || unsureRounds == 0 {
				return
			}
			unsureRounds--
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// each calls f for the processes that carry the mark. unsure says that there was
// one whose environment could not be seen, as in the middle of an exec.
func each(mark string, f func(pid int)) (found int, unsure bool) {
	proc, err := os.Open("/proc")
	if err != nil {
		return 0, false
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
		case has(env, mark):
			found++
			f(pid)
		case len(env) == 0:
			// Kernel threads and zombies have no executable.
			if _, err := os.Readlink("/proc/" + name + "/exe"); err == nil {
				unsure = true
			}
		}
	}
	return found, unsure
}

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// signalOne sends a signal by a handle, so that a process id which is given to
// another process meanwhile cannot make it the victim.
func signalOne(pid int, mark string, s syscall.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ENOSYS || err == unix.EPERM {
		syscall.Kill(pid, s) // before Linux 5.3, or forbidden
		return
	}
	if err != nil {
		return
	}
	defer unix.Close(fd)
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err == nil && has(env, mark) {
		unix.PidfdSendSignal(fd, s, nil, 0)
	}
}

// has reports whether an environment, as the kernel shows it, carries a mark.
func has(env []byte, mark string) bool {
	if !bytes.Contains(env, []byte(mark)) {
		return false
	}
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if value, ok := bytes.CutPrefix(kv, []byte(MarkKey+"=")); ok && bytes.Contains(value, []byte(mark)) {
			return true
		}
	}
	return false
}
