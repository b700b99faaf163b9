package socket

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// CheckPeer returns an error unless the process at the other end of a connection may use a
// hub, because it is not a command that an agent runs. Neither the process nor any of its
// ancestors may be this process, run this program, or be marked as run by an agent. On a
// unix socket it must also belong to the same user. A TCP peer is checked if it is on this
// machine and this process runs commands; see [Adopt].
func CheckPeer(c net.Conn) error {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if _, ok := c.(*net.TCPConn); ok {
		return checkTCP(c)
	}
	return checkPeer(c)
}

// checkTCP checks the process on this machine that opened a connection.
func checkTCP(c net.Conn) error {
	if !hasChildren() {
		return nil // no agent runs a command
	}
	local, ok := c.LocalAddr().(*net.TCPAddr)
	remote, ok2 := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		return errors.New("the peer cannot be checked")
	}
	inode, uid, err := findSocket(remote.AddrPort(), local.AddrPort())
	if err != nil {
		return fmt.Errorf("the peer cannot be checked: %w", err)
	}
	if inode == "" || inode == "0" || uid != os.Geteuid() {
		return nil // on another machine, of another user, in another network namespace, or gone
	}
	holders := 0
	var hidden []int // processes of this user that cannot be inspected
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("the peer cannot be checked: %w", err)
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		has, err := holds(pid, inode)
		if errors.Is(err, fs.ErrPermission) && userOf(pid) == os.Getuid() {
			hidden = append(hidden, pid)
		}
		if !has {
			continue
		}
		holders++
		if pid == os.Getpid() {
			continue // this process itself, such as a test
		}
		if err := checkAncestors(pid); err != nil {
			return err
		}
	}
	if holders > 0 {
		return nil
	}
	// One of the hidden processes has the socket, such as sshd for a forwarded port. None
	// of them may be a command of an agent.
	for _, pid := range hidden {
		if err := checkAncestors(pid); err != nil {
			return err
		}
	}
	if len(hidden) == 0 { // the socket was between two processes
		return errors.New("the peer cannot be checked: no process has the other end")
	}
	return nil
}

// findSocket returns the inode and the user of the socket on this machine with the given
// local and remote address. The inode is "" if there is none.
func findSocket(local, remote netip.AddrPort) (inode string, uid int, err error) {
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(name)
		if err != nil {
			if name == "/proc/net/tcp6" && os.IsNotExist(err) {
				break
			}
			return "", 0, err
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			fields := strings.Fields(s.Text())
			if len(fields) < 10 || !sameAddress(fields[1], local) || !sameAddress(fields[2], remote) {
				continue
			}
			if uid, err = strconv.Atoi(fields[7]); err == nil {
				f.Close()
				return fields[9], uid, nil
			}
		}
		f.Close()
	}
	return "", 0, nil
}

// sameAddress reports whether text, an address as the kernel prints it, equals want.
func sameAddress(text string, want netip.AddrPort) bool {
	host, port, _ := strings.Cut(text, ":")
	if n, err := strconv.ParseUint(port, 16, 16); err != nil || uint16(n) != want.Port() {
		return false
	}
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw)%4 != 0 {
		return false
	}
	for i := 0; i < len(raw); i += 4 { // words in this machine's byte order
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	ip, ok := netip.AddrFromSlice(raw)
	return ok && ip.Unmap() == want.Addr().Unmap().WithZone("")
}

// holds reports whether a process has a socket open.
func holds(pid int, inode string) (bool, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && to == "socket:["+inode+"]" {
			return true, nil
		}
	}
	return false, nil
}

// hasChildren reports whether this process has children. They include descendants that lost
// their parent: see [Adopt].
func hasChildren() bool {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return true
	}
	for _, t := range tasks {
		data, err := os.ReadFile("/proc/self/task/" + t.Name() + "/children")
		if err != nil || len(data) > 0 {
			return true
		}
	}
	return false
}
