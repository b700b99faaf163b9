package socket

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Adopt does nothing: macOS gives orphans to launchd. See [checkChain].
func Adopt() error { return nil }

// Reap does nothing on this system.
func Reap(context.Context) {}

// checkPeer returns an error unless the process at the other end of a connection may use the
// hub. It must belong to the same user, and neither it nor any of its ancestors may be this
// process, run this program, or be marked as run by an agent. A process whose oldest
// ancestor is younger than this process may be an orphan of an agent, and is rejected.
func checkPeer(c net.Conn) error {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("the peer cannot be checked")
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Xucred
	var pid int
	var failed, failed2 error
	err = raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		pid, failed2 = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	})
	if err = errors.Join(err, failed, failed2); err != nil {
		return err
	}
	if int(cred.Uid) != os.Geteuid() {
		return errors.New("the hub belongs to another user")
	}
	if pid == os.Getpid() {
		return nil // this process itself, such as a test
	}
	self, err := unix.SysctlKinfoProc("kern.proc.pid", os.Getpid())
	if err != nil {
		return err
	}
	return checkChain(pid, lookUp, startOf(self))
}

// CheckPeer checks the process at the other end of a unix socket: see checkPeer. Over TCP it
// rejects none, because a TCP client needs a token.
func CheckPeer(c net.Conn) error {
	if _, ok := c.(*net.UnixConn); ok {
		return checkPeer(c)
	}
	return nil
}

// descends returns an error if this process descends from a session.
func descends() error {
	if err := checkMarks([]byte(strings.Join(os.Environ(), "\x00"))); err != nil {
		return err
	}
	return checkChain(os.Getppid(), lookUp, time.Time{})
}

func startOf(p *unix.KinfoProc) time.Time { return time.Unix(p.Proc.P_starttime.Unix()) }

// lookUp queries the kernel about a process.
func lookUp(pid int) (process, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return process{}, err
	}
	if int(info.Proc.P_pid) != pid { // the kernel returns an empty record for a process that has ended
		return process{}, os.ErrProcessDone
	}
	p := process{parent: int(info.Eproc.Ppid), started: startOf(info)}
	raw, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil { // for example for processes of root
		p.unread = err
		return p, nil
	}
	path, env, err := parseArguments(raw)
	if err != nil {
		p.unread = err
		return p, nil
	}
	p.env = env
	if self, err := os.Executable(); err == nil {
		p.ours = sameFile(self, path)
	}
	return p, nil
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}
