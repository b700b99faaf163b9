package process

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hasMarks is true: the environment of processes is visible.
const hasMarks = true

func attributes() *syscall.SysProcAttr {
	// A separate session has no terminal to read from or to type into.
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

func signalMarked(mark string, s syscall.Signal) {
	each(mark, func(pid int) { signalOne(pid, mark, s) })
}

// sweep kills the processes that carry the mark until there are none, with a limit on
// attempts.
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

// endSession waits until the command has ended, and kills its session if that is wanted. The
// process id, which is that of the session, stays in use until the command is waited for.
func (t *Tree) endSession(wanted func() bool) {
	for unix.Waitid(unix.P_PID, t.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	if wanted() {
		killSession(t.cmd.Process.Pid)
	}
}

// killSession kills the processes of a session, whose leader has ended and was not waited for.
func killSession(leader int) {
	for range 200 {
		found := false
		proc, err := os.Open("/proc")
		if err != nil {
			return
		}
		names, _ := proc.Readdirnames(-1)
		proc.Close()
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err != nil || pid == leader || !inSession(pid, leader) {
				continue
			}
			fd, err := unix.PidfdOpen(pid, 0)
			switch {
			case err == unix.ENOSYS || err == unix.EPERM:
				syscall.Kill(pid, syscall.SIGKILL)
			case err != nil:
				continue
			default:
				if inSession(pid, leader) {
					unix.PidfdSendSignal(fd, syscall.SIGKILL, nil, 0)
				}
				unix.Close(fd)
			}
			found = true
		}
		if !found {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// inSession reports whether a process belongs to a session and is not a zombie.
func inSession(pid, leader int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	// The name of the program is in parentheses and may contain anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(fields) > 3 && string(fields[0]) != "Z" && string(fields[3]) == strconv.Itoa(leader)
}

// each calls f for the processes that carry the mark. unsure is set if the environment
// of one could not be read, as in the middle of an exec.
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

// signalOne sends a signal through a pidfd, so that it cannot reach another process
// that has got the same process id meanwhile.
func signalOne(pid int, mark string, s syscall.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ENOSYS || err == unix.EPERM {
		syscall.Kill(pid, s) // before Linux 5.3, or not permitted
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

// has reports whether an environment, as the kernel shows it, contains a mark.
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
