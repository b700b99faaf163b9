//go:build amd64 || arm64

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"time"

	"golang.org/x/sys/unix"
)

// find selects the first kind of sandbox that works. If none does, the error contains
// the reasons.
func (s *Sandbox) find() error {
	var reasons []string
	named := s.set.BwrapPath != "" && s.opts.Only == ""
	for _, try := range []struct {
		kind string
		f    func() error
	}{{Bubblewrap, s.tryBwrap}, {Landlock, s.tryLandlock}} {
		if s.opts.Only != "" && s.opts.Only != try.kind {
			continue
		}
		err := try.f()
		if err == nil {
			s.kind = try.kind
			if try.kind == Landlock && named {
				s.unheld = append(s.unheld, "bwrapPath: "+reasons[0])
			}
			return nil
		}
		reasons = append(reasons, try.kind+": "+err.Error())
	}
	s.proxy = nil
	return errors.New(strings.Join(reasons, "; "))
}

func (s *Sandbox) tryBwrap() error {
	var err error
	if s.bwrap, err = s.findBwrap(); err != nil {
		return err
	}
	kinds := []uint32{unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}
	if s.set.Network.AllUnixSockets {
		kinds = append(kinds, unix.AF_UNIX)
	}
	s.filter = (&filterSpec{write: true, sockets: kinds, namespaces: s.set.NestedNamespaces, alone: true}).program()
	if n := &s.set.Network; len(n.AllowedDomains) > 0 || n.HTTPProxyPort != 0 {
		s.proxy = newProxy(n, s.opts.Lookup)
	}
	ways := []bool{false}
	if os.Geteuid() == 0 {
		ways = []bool{true, false}
	}
	for _, s.root = range ways {
		if err = s.probe(func(cmd *exec.Cmd) (func(error) <-chan struct{}, error) { return s.confineBwrap(cmd, &plan{}) }); err == nil {
			return nil
		}
	}
	return err
}

func (s *Sandbox) tryLandlock() error {
	if s.version = landlockVersion(); s.version < 3 {
		return fmt.Errorf("the kernel has version %d of it, and 3 is needed", s.version)
	}
	s.proxy = nil
	return s.probe(func(cmd *exec.Cmd) (func(error) <-chan struct{}, error) { return s.confineLandlock(cmd, s.opts.Roots) })
}

// probe checks whether commands can be confined.
func (s *Sandbox) probe(confine func(*exec.Cmd) (func(error) <-chan struct{}, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", "exit 42")
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin"}
	var said strings.Builder
	cmd.Stderr = &said
	started, err := confine(cmd)
	if err != nil {
		return err
	}
	err = cmd.Start()
	started(err)
	if err == nil {
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 42 {
		return nil
	}
	return fmt.Errorf("it does not work here (%v): %s", err, strings.TrimSpace(said.String()))
}

// describe fills in the report. It returns the restrictions that the settings name
// explicitly and that cannot be enforced.
func (s *Sandbox) describe() (asked []string) {
	asked = s.unheld
	r := &s.report
	fs, n := &s.set.Filesystem, &s.set.Network
	p, err := s.makePlan(s.opts.Roots, false)
	if err != nil {
		return append(asked, err.Error())
	}
	if fs.Disabled {
		r.Missing = append(r.Missing, "files: switched off by filesystem.disabled")
	} else {
		r.Enforced = append(r.Enforced, "writes only below the working directories, the temporary directory and filesystem.allowWrite")
	}
	r.Enforced = append(r.Enforced, "credentials are not in the environment, nor in /proc", "system calls that lead out are refused")
	if n.AllUnixSockets {
		r.Missing = append(r.Missing, "Unix sockets: opened by network.allowAllUnixSockets")
	} else {
		r.Enforced = append(r.Enforced, "no Unix sockets")
	}
	wantsNet := len(n.AllowedDomains) > 0 || n.HTTPProxyPort != 0
	if s.kind == Bubblewrap {
		if !fs.Disabled {
			r.Enforced = append(r.Enforced, "protected paths in writable directories: "+strings.Join(Protected(), ", "))
			for _, w := range p.weak {
				r.Missing = append(r.Missing, "protected paths: "+w)
			}
		}
		r.Enforced = append(r.Enforced, "paths of filesystem.denyRead cannot be read", "own process, network and IPC namespaces")
		switch {
		case n.HTTPProxyPort != 0:
			r.Enforced = append(r.Enforced, "network only through the proxy on port "+strconv.Itoa(n.HTTPProxyPort)+", which decides")
		case wantsNet:
			r.Enforced = append(r.Enforced, "network only to network.allowedDomains, through a proxy")
		default:
			r.Enforced = append(r.Enforced, "no network")
		}
		return asked
	}

	r.Enforced = append(r.Enforced, "no network", "processes outside cannot be traced")
	if s.version >= 6 {
		r.Enforced = append(r.Enforced, "processes outside get no signals")
	} else {
		r.Missing = append(r.Missing, "signals: processes outside can be signalled (the kernel's Landlock is too old)")
	}
	if !fs.Disabled {
		r.Missing = append(r.Missing, "protected paths: Landlock cannot protect paths inside a writable directory, such as "+strings.Join(Protected(), ", "))
	}
	r.Missing = append(r.Missing, "modes, owners and times of files outside: Landlock does not know them", "own process namespace: other processes and their arguments can be listed")
	if wantsNet {
		asked = append(asked, "network.allowedDomains: Landlock cannot let single names through, so there is no network at all")
	}
	if len(fs.DenyWrite) > 0 {
		for path, a := range p.entries {
			if a == readOnly && slices.ContainsFunc(fs.DenyWrite, func(d string) bool { return resolved(s.absolute(d)) == path }) {
				asked = append(asked, "filesystem.denyWrite: "+path+" is inside a writable directory")
			}
		}
	}
	for path, a := range p.entries {
		if a == hidden && p.access(filepath.Dir(path)) == writable {
			asked = append(asked, "filesystem.denyRead: "+path+" is inside a writable directory")
		}
	}
	if len(asked) == 0 {
		r.Enforced = append(r.Enforced, "paths of filesystem.denyRead outside writable directories cannot be read")
	}
	slices.Sort(asked)
	return asked
}

func (s *Sandbox) confine(cmd *exec.Cmd, roots []string) (func(error) <-chan struct{}, error) {
	if s.kind == Landlock {
		return s.confineLandlock(cmd, roots)
	}
	p, err := s.makePlan(roots, true)
	if err != nil {
		return nil, err
	}
	return s.confineBwrap(cmd, p)
}

// An attachment passes additional files to a command.
type attachment struct {
	cmd  *exec.Cmd
	ours []*os.File // to be closed here once the command has them
}

// add adds a file and returns its number in the command.
func (a *attachment) add(f *os.File, close bool) string {
	a.cmd.ExtraFiles = append(a.cmd.ExtraFiles, f)
	if close {
		a.ours = append(a.ours, f)
	}
	return strconv.Itoa(2 + len(a.cmd.ExtraFiles))
}

// data adds a file with the given content.
func (a *attachment) data(name string, data []byte) (string, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(data); err == nil {
		_, err = f.Seek(0, 0)
	}
	return a.add(f, true), err
}

func (a *attachment) close() {
	for _, f := range a.ours {
		f.Close()
	}
}

// confineBwrap runs a command in bubblewrap.
func (s *Sandbox) confineBwrap(cmd *exec.Cmd, p *plan) (_ func(error) <-chan struct{}, err error) {
	before := len(cmd.ExtraFiles)
	a := &attachment{cmd: cmd}
	var alive *os.File // its other end is open while something runs inside
	var channel *os.File
	undo := func() {
		a.close()
		p.release()
		for _, f := range []*os.File{alive, channel} {
			if f != nil {
				f.Close()
			}
		}
	}
	defer func() {
		if err != nil {
			cmd.ExtraFiles = cmd.ExtraFiles[:before]
			undo()
		}
	}()
	var life *os.File
	if alive, life, err = os.Pipe(); err != nil {
		return nil, err
	}
	args := append(s.namespaces(), files(p)...)
	args = append(args, "--sync-fd", a.add(life, true))
	seccomp, err := a.data("seccomp", s.filter)
	if err != nil {
		return nil, err
	}
	args = append(args, "--seccomp", seccomp)
	dir := cmd.Dir
	if dir == "" {
		dir = "/"
	}
	args = append(args, "--chdir", dir)
	program := append([]string{cmd.Path}, cmd.Args[1:]...)
	if s.proxy != nil {
		var theirs *os.File
		if channel, theirs, err = socketPair(); err != nil {
			return nil, err
		}
		cmd.Env = proxied(cmd.Env)
		to, self := 3+len(cmd.ExtraFiles), 4+len(cmd.ExtraFiles)
		a.add(theirs, true)
		var st starter
		st.listen(to, self, proxyPort)
		st.exec(cmd, program[0])
		file, err := st.file(to)
		if err != nil {
			return nil, err
		}
		a.add(file, true)
		program = []string{"/proc/self/fd/" + strconv.Itoa(self)}
	}
	list, err := a.data("arguments", []byte(strings.Join(args, "\x00")+"\x00"))
	if err != nil {
		return nil, err
	}
	cmd.Path = s.bwrap
	cmd.Args = append([]string{"bwrap", "--args", list, "--"}, program...)
	if !s.running.Enter() {
		return nil, errors.New("sandbox: the conversation has ended")
	}
	return func(err error) <-chan struct{} {
		over := make(chan struct{})
		if err != nil {
			undo()
			s.running.Leave()
			close(over)
			return over
		}
		a.close()
		var listener net.Listener
		served := make(chan struct{})
		go func() {
			defer close(served)
			if channel == nil {
				return
			}
			l, err := receiveListener(channel)
			channel.Close()
			if err != nil {
				return // it ended before it listened
			}
			listener = l
			go s.proxy.serve(l)
		}()
		go func() {
			defer s.running.Leave()
			defer close(over)
			alive.Read(make([]byte, 1))
			alive.Close()
			p.release()
			<-served
			if listener != nil {
				listener.Close()
			}
		}()
		return over
	}, nil
}

// namespaces returns the arguments that do not depend on files.
func (s *Sandbox) namespaces() []string {
	args := []string{"--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL"}
	if !s.root {
		return append(args, "--unshare-user")
	}
	// Root also works on files of other users. Read-only files stay read-only.
	return append(args, "--cap-add", "CAP_CHOWN", "--cap-add", "CAP_DAC_OVERRIDE", "--cap-add", "CAP_FOWNER")
}

// files returns the arguments about files.
func files(p *plan) []string {
	base := "--ro-bind"
	if p.entries["/"] == writable {
		base = "--bind"
	}
	args := []string{base, "/", "/", "--dev", "/dev", "--proc", "/proc"}
	// Root could change the kernel through these files, as their owner.
	for _, name := range []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi", "/proc/mtrr"} {
		args = append(args, "--ro-bind-try", name, name)
	}
	for _, name := range []string{"/proc/kcore", "/proc/keys", "/proc/kmsg", "/proc/kpagecount", "/proc/kpageflags"} {
		if exists(name) {
			args = append(args, "--ro-bind", "/dev/null", name)
		}
	}
	var empty []string
	for _, m := range p.mounts() {
		switch {
		case m.path == "/":
		case m.access == writable:
			args = append(args, "--bind", m.path, m.path)
		case m.access == readOnly:
			args = append(args, "--ro-bind", m.path, m.path)
		default:
			info, err := os.Stat(m.path)
			switch {
			case err == nil && info.IsDir():
				mode := "0000"
				for path, a := range p.entries {
					if a != hidden && path != m.path && within(m.path, path) {
						mode = "0111"
					}
				}
				args = append(args, "--perms", mode, "--tmpfs", m.path)
				empty = append(empty, "--remount-ro", m.path)
			case err == nil:
				// A device on a mount that allows none: it cannot be opened.
				args = append(args, "--ro-bind", "/dev/null", m.path)
			}
		}
	}
	return append(args, empty...)
}

// proxied adds the environment variables for the proxy.
func proxied(env []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY"}, strings.ToUpper(name))
	})
	address := "http://127.0.0.1:" + strconv.Itoa(proxyPort)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		env = append(env, name+"="+address, strings.ToLower(name)+"="+address)
	}
	return append(env, "NO_PROXY=localhost,127.0.0.1,::1", "no_proxy=localhost,127.0.0.1,::1")
}

// socketPair returns two ends of a Unix socket.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	unix.SetNonblock(fds[0], true)
	return os.NewFile(uintptr(fds[0]), "sandbox"), os.NewFile(uintptr(fds[1]), "sandbox"), nil
}

// receiveListener receives the listener that the helper created in the network of the
// command.
func receiveListener(channel *os.File) (net.Listener, error) {
	conn, err := net.FileConn(channel)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	data, oob := make([]byte, 1), make([]byte, 64)
	_, n, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(data, oob)
	if err != nil {
		return nil, err
	}
	f := receivedFile(oob[:n])
	if f == nil {
		return nil, errors.New("the starter sent no listener")
	}
	defer f.Close()
	return net.FileListener(f)
}

// confineLandlock lets a starter run a command.
func (s *Sandbox) confineLandlock(cmd *exec.Cmd, roots []string) (func(error) <-chan struct{}, error) {
	p, err := s.makePlan(roots, false)
	if err != nil {
		return nil, err
	}
	var hide []string
	for path, access := range p.entries {
		if access == hidden {
			hide = append(hide, path)
		}
	}
	var grants []grant
	for _, name := range devices {
		grants = append(grants, grant{name, toWrite})
	}
	if s.set.Filesystem.Disabled {
		grants = append(grants, grant{"/", toWrite})
	} else {
		grants = append(grants, around("/", toRead, hide)...)
	}
	for path, access := range p.entries {
		if access == writable {
			grants = append(grants, grant{path, toWrite})
		}
	}
	ruleset, err := newRuleset(s.version, grants)
	if err != nil {
		return nil, err
	}
	spec := &filterSpec{write: true, namespaces: s.set.NestedNamespaces, scoped: s.version >= 6}
	if s.set.Network.AllUnixSockets {
		spec.sockets = []uint32{unix.AF_UNIX}
	}
	c, err := confineBy(cmd, ruleset, spec)
	if err != nil {
		return nil, err
	}
	return c.Started, nil
}
