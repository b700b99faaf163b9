package socket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Adopt makes this process the parent of its descendants whose own parents have ended,
// so that none of them can hide where it comes from. It is called before any session
// runs.
func Adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// checkPeer returns an error unless the process at the other end of a connection may use
// the hub: it is of the same user, and neither it nor any process that it descends from
// is this one, runs this program, or is marked as run by an agent.
func checkPeer(c net.Conn) error {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("the peer cannot be checked")
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	if int(cred.Uid) != os.Geteuid() {
		return errors.New("the hub belongs to another user")
	}
	if int(cred.Pid) == os.Getpid() {
		return nil // this process itself, such as a test
	}
	return checkAncestors(int(cred.Pid))
}

// descends returns an error if this process descends from a session.
func descends() error {
	if err := checkMarks([]byte(strings.Join(os.Environ(), "\x00"))); err != nil {
		return err
	}
	return checkAncestors(os.Getppid())
}

// checkAncestors returns an error if a process, or one that it descends from, is or may
// be run by an agent.
func checkAncestors(pid int) error {
	return checkChain(pid, lookUp, time.Time{})
}

// lookUp reads what /proc holds of a process.
func lookUp(pid int) (p process, err error) {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return p, err
	}
	if p.env, err = os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); errors.Is(err, fs.ErrPermission) {
		// The process cannot be traced, as this program and that of another user. Its
		// ancestors are visible all the same.
		p.ours = isHidden(pid)
	} else if err != nil {
		p.unread = err
	}
	if exe, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && os.SameFile(exe, self) {
		p.ours = true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, err
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return p, errors.New("its parent is not known")
	}
	p.parent, err = strconv.Atoi(fields[1])
	return p, err
}

// isHidden reports whether a process that cannot be traced may be this program: it is of
// this user and has the same name.
func isHidden(pid int) bool {
	ours, err := os.ReadFile("/proc/self/comm")
	theirs, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err != nil || err2 != nil || userOf(pid) == os.Getuid() && bytes.Equal(ours, theirs)
}

// userOf returns the user of a process, -1 if it is gone. The owner of its files in /proc
// is root if it cannot be traced.
func userOf(pid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := bytes.Cut(status, []byte("\nUid:"))
	if fields := bytes.Fields(rest); len(fields) > 0 {
		if uid, err := strconv.Atoi(string(fields[0])); err == nil {
			return uid
		}
	}
	return -1
}

// Reap ends what is left of adopted processes that have ended, until ctx ends. A process
// that this one started and waits for is gone long before.
func Reap(ctx context.Context) {
	before := map[int]bool{}
	for {
		select {
		case <-time.After(30 * time.Second):
		case <-ctx.Done():
			return
		}
		now := map[int]bool{}
		dirs, _ := os.ReadDir("/proc")
		for _, d := range dirs {
			pid, err := strconv.Atoi(d.Name())
			if err != nil {
				continue
			}
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil {
				continue
			}
			fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
			if len(fields) > 1 && fields[0] == "Z" && fields[1] == strconv.Itoa(os.Getpid()) {
				if now[pid] = true; before[pid] {
					unix.Wait4(pid, nil, unix.WNOHANG, nil)
				}
			}
		}
		before = now
	}
}
