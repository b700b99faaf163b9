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

// Adopt makes this process the parent of its descendants whose own parents have ended, so
// that none of them can hide where it comes from. Call it before any session runs.
func Adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// checkPeer returns an error unless the process at the other end of a connection may use
// the hub. It must belong to the same user, and neither it nor any of its ancestors may
// be this process, run this program, or be marked as run by an agent.
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

// checkAncestors returns an error if an agent runs, or may run, a process or one of its
// ancestors.
func checkAncestors(pid int) error {
	return checkChain(pid, lookUp, time.Time{})
}

// lookUp reads the information about a process from /proc.
func lookUp(pid int) (p process, err error) {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return p, err
	}
	if p.env, err = os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); errors.Is(err, fs.ErrPermission) {
		// The process cannot be traced, like this program or that of another user. Its
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
	// The name, in parentheses, may contain anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return p, errors.New("its parent is not known")
	}
	p.parent, err = strconv.Atoi(fields[1])
	return p, err
}

// isHidden reports whether a process that cannot be traced may be this program: it
// belongs to this user and has the same name.
func isHidden(pid int) bool {
	ours, err := os.ReadFile("/proc/self/comm")
	theirs, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err != nil || err2 != nil || userOf(pid) == os.Getuid() && bytes.Equal(ours, theirs)
}

// userOf returns the user id of a process, or -1 if the process is gone. It cannot use
// the owner of the files in /proc, which is root for a process that cannot be traced.
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

// Reap collects adopted processes that have ended, until ctx ends. Processes that this
// one started and waits for are collected long before.
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
