//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A notice is a system call that the kernel reports to the supervisor: struct seccomp_notif.
type notice struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// A verdict is the supervisor's response: struct seccomp_notif_resp.
type verdict struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// listen responds to the system calls that the filter reports, until no process has the
// filter any more.
func (c *Confined) listen(listener *os.File) {
	defer listener.Close()
	raw, err := listener.SyscallConn()
	if err != nil {
		return
	}
	for open := true; open; {
		err := raw.Read(func(fd uintptr) bool {
			for {
				ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
				if _, err := unix.Poll(ready, 0); err == unix.EINTR {
					continue
				}
				switch {
				case ready[0].Revents&unix.POLLIN != 0:
					c.answer(fd)
				case ready[0].Revents != 0: // no process is left
					open = false
					return true
				default:
					return false
				}
			}
		})
		if err != nil {
			return
		}
	}
}

// answer responds to one call.
func (c *Confined) answer(fd uintptr) {
	var n notice
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); errno != 0 {
		return // the process was killed
	}
	if n.nr == unix.SYS_RT_SIGACTION {
		restartCalls(fd, &n)
	}
	v := verdict{id: n.id}
	if errno := c.judge(&n); errno != 0 {
		v.errno = -int32(errno)
	} else {
		// The kernel continues and checks the call itself.
		v.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
	}
	unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&v)))
}

// judge decides a reported call. Opened files are only recorded here: Landlock decides,
// because the path in the memory of the process may change.
func (c *Confined) judge(n *notice) unix.Errno {
	switch a := answerOf(uint32(n.nr)); {
	case a == opening:
		at := 1
		if n.nr != unix.SYS_OPENAT {
			at = 0
		}
		if path, ok := textAt(int(n.pid), n.args[at]); !ok || harmlessTarget(path) {
			return 0
		}
		c.note(refusedWrite)
		return unix.EROFS
	case n.nr == unix.SYS_RT_SIGACTION:
		return 0
	case a == forking || n.nr == unix.SYS_CLONE || n.nr == unix.SYS_CLONE3:
		if !c.mayFork() {
			c.note(refusedFork)
			return unix.EAGAIN
		}
		return 0
	case a == linking || n.nr == unix.SYS_SOCKET:
		if n.nr != unix.SYS_CONNECT || !nameService(int(n.pid), n.args[1]) {
			c.note(refusedConnect)
		}
		return unix.EACCES
	}
	c.note(refusedWrite)
	return unix.EROFS
}

func (c *Confined) note(r refusal) { c.refused.Or(uint32(r)) }

// answerOf returns the entry of the tables for a call.
func answerOf(nr uint32) answer {
	for _, table := range []map[answer][]uint32{calls, machineCalls} {
		for _, a := range []answer{opening, forking, linking} {
			for _, n := range table[a] {
				if n == nr {
					return a
				}
			}
		}
	}
	return absent
}

// harmlessTarget reports whether everybody may open a path for writing, or it is a file that
// is already open.
func harmlessTarget(path string) bool {
	for _, d := range devices {
		if path == d {
			return true
		}
	}
	switch path {
	case "/dev/stdout", "/dev/stderr", "/dev/stdin":
		return true
	}
	for _, dir := range []string{"/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/"} {
		if rest, ok := strings.CutPrefix(path, dir); ok && !strings.Contains(rest, "/") {
			return true
		}
	}
	return false
}

// nameService reports whether an address in the memory of a process is that of a service
// which the C library uses to look up users and hosts.
func nameService(pid int, address uint64) bool {
	family, ok := textAt(pid, address)
	path, ok2 := textAt(pid, address+2)
	return ok && ok2 && family == "\x01" && (strings.HasSuffix(path, "/nscd/socket") || strings.HasPrefix(path, "/run/systemd/"))
}

// textAt reads a short string from the memory of a process, if possible.
func textAt(pid int, address uint64) (string, bool) {
	buf := make([]byte, 64)
	local := []unix.Iovec{{Base: &buf[0]}}
	local[0].SetLen(len(buf))
	// In two parts, because the next page may not be mapped.
	size := min(len(buf), int(4096-address%4096))
	n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(address), Len: size}, {Base: uintptr(address) + uintptr(size), Len: len(buf) - size}}, 0)
	if err != nil || n <= 0 {
		return "", false
	}
	text, _, ok := bytes.Cut(buf[:n], []byte{0})
	return string(text), ok || n == len(buf)
}

// restartCalls changes the action for SIGCHLD that a process is about to set, if possible, so
// that the kernel restarts a call that the signal interrupts. Between a reported call and the
// moment when the supervisor receives the notice, every signal with a handler interrupts the
// call. Without this flag a shell whose child ends in that moment fails to fork.
func restartCalls(listener uintptr, n *notice) {
	if n.args[1] == 0 {
		return
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", n.pid), os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer memory.Close()
	// The file belongs to the waiting process, and not to a later one with the same pid.
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, listener, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, uintptr(unsafe.Pointer(&n.id))); errno != 0 {
		return
	}
	const saRestart = 0x10000000
	var action [16]byte // the handler and the flags, the start of struct sigaction
	if _, err := memory.ReadAt(action[:], int64(n.args[1])); err != nil {
		return
	}
	handler, flags := binary.NativeEndian.Uint64(action[:]), binary.NativeEndian.Uint64(action[8:])
	if handler > 1 && flags&saRestart == 0 { // 0 is SIG_DFL, 1 SIG_IGN
		binary.NativeEndian.PutUint64(action[8:], flags|saRestart)
		memory.WriteAt(action[8:], int64(n.args[1])+8)
	}
}

// mayFork reports whether another process or thread may be created. They are counted only
// occasionally.
func (c *Confined) mayFork() bool {
	if c.ended.Load() {
		return false
	}
	if c.left == 0 {
		c.left = (c.limit - tasksBelow(c.top)) / 2
	}
	if c.left <= 0 {
		c.left = 0
		return false
	}
	c.left--
	return true
}

// tasksBelow counts the threads of a process and of all its descendants.
func tasksBelow(top int) (tasks int) {
	proc, err := os.Open("/proc")
	if err != nil {
		return 1 << 20
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	type process struct{ parent, threads int }
	all := map[int]process{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		// The name of the program is in parentheses and may contain anything.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 18 {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		threads, _ := strconv.Atoi(fields[17])
		all[pid] = process{parent, threads}
	}
	for pid, p := range all {
		for at, steps := pid, 0; steps < len(all); steps++ {
			if at == top {
				tasks += p.threads
				break
			}
			next, ok := all[at]
			if !ok {
				break
			}
			at = next.parent
		}
	}
	return tasks
}
