//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// changes are the commands of attack that change files and are not part of the shell: none, because
// the starter tries that.
const changes = ""

// wallState is the state of a wall.
type wallState struct {
	version  int  // of Landlock
	listener bool // the kernel can supervise system calls
	maxTasks int  // if not the default

	mu      sync.Mutex
	fixed   []grant // grants of every command
	asOf    time.Time
	cache   lookout
	granted []grant // grants of the rulesets below
	marks   []mark
	ruleset *os.File
	closed  bool
}

var errWallClosed = errors.New("sandbox: the wall is closed: its conversation has ended")

// A mark distinguishes a file from another one that replaces it.
type mark struct{ dev, ino uint64 }

// A Confined is a command behind a wall.
type Confined struct {
	cmd     *exec.Cmd
	refused atomic.Uint32
	starter starter
	channel *os.File
	ours    []*os.File    // to be closed here once the command has them
	done    chan struct{} // closed when the starter has ended and no process is supervised any more
	err     error         // why the command was not started; valid when done
	top     int
	limit   int // of processes and threads
	left    int // how many processes may be created before they are counted again

	listener atomic.Pointer[os.File]
	ended    atomic.Bool
}

// Further limits of commands behind a wall. The memory limit is per process.
const (
	maxTasks  = 1024 // processes and threads at a time
	maxMemory = 4 << 30
)

// rules returns a Landlock ruleset for a view, and caches it as long as the view and its
// files do not change.
func (w *Wall) rules(v *View) (*os.File, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, errWallClosed
	}
	if w.fixed == nil || time.Since(w.asOf) > refresh {
		w.fixed, w.asOf = w.base(), time.Now()
		w.granted = nil
	}
	grants := w.grants(v, &w.cache)
	marks := marksOf(grants)
	if w.ruleset == nil || w.granted == nil || !slices.Equal(grants, w.granted) || !slices.Equal(marks, w.marks) {
		ruleset, err := newRuleset(w.version, append(slices.Clone(w.fixed), grants...))
		if err != nil {
			return nil, err
		}
		if w.ruleset != nil {
			w.ruleset.Close()
		}
		w.ruleset, w.granted, w.marks = ruleset, grants, marks
	}
	fd, err := unix.FcntlInt(w.ruleset.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(fd), "ruleset"), nil
}

func marksOf(grants []grant) []mark {
	marks := make([]mark, len(grants))
	for i, g := range grants {
		var st unix.Stat_t
		if unix.Lstat(g.path, &st) == nil {
			marks[i] = mark{st.Dev, st.Ino}
		}
	}
	return marks
}

func (w *Wall) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.ruleset != nil {
		w.ruleset.Close()
		w.ruleset = nil
	}
}

// confine lets a starter run the command.
func (w *Wall) confine(cmd *exec.Cmd, v *View) (*Confined, error) {
	if cmd.Path == "" || len(cmd.Args) == 0 {
		return nil, errors.New("sandbox: the command names no program")
	}
	ruleset, err := w.rules(v)
	if err != nil {
		return nil, err
	}
	c, err := confineBy(cmd, ruleset, &filterSpec{write: v.Write, scoped: w.version >= 6, supervised: w.listener, keepsSize: w.version < 3, attack: v.attack})
	if err == nil && w.maxTasks > 0 {
		c.limit, c.left = w.maxTasks, w.maxTasks/2
	}
	return c, err
}

// confineBy lets a starter run a command with a Landlock ruleset, which it closes, and a
// filter.
func confineBy(cmd *exec.Cmd, ruleset *os.File, spec *filterSpec) (_ *Confined, err error) {
	c := &Confined{cmd: cmd, done: make(chan struct{}), limit: maxTasks, left: maxTasks / 2, ours: []*os.File{ruleset}}
	before := len(cmd.ExtraFiles)
	defer func() {
		if err != nil {
			cmd.ExtraFiles = cmd.ExtraFiles[:before]
			c.release()
		}
	}()
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	c.channel, c.ours = ours, append(c.ours, theirs)
	// The numbers of the files in the command.
	rules, channel, self := 3+before, 4+before, 5+before
	c.starter.confine(cmd, rules, channel, self, spec)
	c.starter.exec(cmd, cmd.Path)
	file, err := c.starter.file(channel)
	if err != nil {
		return nil, err
	}
	c.ours = append(c.ours, file)
	cmd.ExtraFiles = append(cmd.ExtraFiles, ruleset, theirs, file)
	cmd.Path, cmd.Args = fmt.Sprintf("/proc/self/fd/%d", self), []string{"starter"}
	return c, nil
}

// confine adds the calls that put a command behind a wall. The numbers are those of its
// ruleset, of the channel to the supervisor and of the starter itself.
func (s *starter) confine(cmd *exec.Cmd, rules, channel, self int, spec *filterSpec) {
	s.closeOnExec(rules, channel, self)
	s.call("prctl(PR_SET_NO_NEW_PRIVS)", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	// Orphaned processes stay below the first one, so that they are counted.
	s.try("prctl(PR_SET_CHILD_SUBREAPER)", unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1)
	if !spec.write {
		// The OOM killer should choose this process.
		open := s.try("open", unix.SYS_OPENAT, ^uint64(99), s.text("/proc/self/oom_score_adj"), unix.O_WRONLY|unix.O_CLOEXEC)
		write := s.try("write", unix.SYS_WRITE, ^uint64(0), s.text("1000"), 4)
		s.keep(open, argumentOf(write, 0))
	}
	s.limit(unix.RLIMIT_DATA, maxMemory)
	s.limit(unix.RLIMIT_CORE, 0)
	if !spec.write {
		s.limit(unix.RLIMIT_CPU, maxTime)
	}
	s.dropCapabilities(spec.write)
	s.call("landlock_restrict_self", unix.SYS_LANDLOCK_RESTRICT_SELF, uint64(rules), 0)
	s.load(spec, channel)
	if spec.attack {
		s.change()
	}
}

// change adds calls that change files, as touch, chmod and mkdir do. The wall must deny all of them.
func (s *starter) change() {
	file := s.text("root/file")
	at := ^uint64(99) // AT_FDCWD
	s.try("utimensat", unix.SYS_UTIMENSAT, at, file, 0, 0)
	s.try("fchmodat", unix.SYS_FCHMODAT, at, file, 0o777)
	s.try("mkdirat", unix.SYS_MKDIRAT, at, s.text("root/dir"), 0o700)
	s.try("truncate", unix.SYS_TRUNCATE, file, 0)
	s.try("unlinkat", unix.SYS_UNLINKAT, at, file, 0)
}

// closeOnExec closes files before the command runs.
func (s *starter) closeOnExec(fds ...int) {
	for _, fd := range fds {
		s.call("fcntl", unix.SYS_FCNTL, uint64(fd), unix.F_SETFD, unix.FD_CLOEXEC)
	}
}

// exec adds the last call of the starter, which executes the command.
func (s *starter) exec(cmd *exec.Cmd, path string) {
	s.call(path, unix.SYS_EXECVE, s.text(path), s.texts(cmd.Args), s.texts(cmd.Environ()))
}

// send adds the call that sends a file over a channel. It returns the address of the
// file's number, for a number that is not known yet.
func (s *starter) send(channel int, file uint64) (number uint64) {
	var control []byte
	control = binary.NativeEndian.AppendUint64(control, 20)
	control = binary.NativeEndian.AppendUint32(control, unix.SOL_SOCKET)
	control = binary.NativeEndian.AppendUint32(control, unix.SCM_RIGHTS)
	control = binary.NativeEndian.AppendUint64(control, file)
	rights := s.bytes(control)
	message := s.words(0, 0, s.words(s.text("f"), 1), 1, rights, 24, 0)
	s.call("sendmsg", unix.SYS_SENDMSG, uint64(channel), message, 0)
	return rights + 16
}

// listen adds the calls that create a listener on a port of the loopback interface and
// send it over a channel.
func (s *starter) listen(channel, self int, port uint16) {
	const fixed = 100 // a number that is known before the socket is created
	s.closeOnExec(channel, self)
	address := make([]byte, 16)
	binary.NativeEndian.PutUint16(address, unix.AF_INET)
	binary.BigEndian.PutUint16(address[2:], port)
	copy(address[4:], []byte{127, 0, 0, 1})
	socket := s.call("socket", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	dup := s.call("dup3", unix.SYS_DUP3, 0, fixed, unix.O_CLOEXEC)
	s.keep(socket, argumentOf(dup, 0))
	s.call("bind", unix.SYS_BIND, fixed, s.bytes(address), 16)
	s.call("listen", unix.SYS_LISTEN, fixed, 128)
	s.send(channel, fixed)
}

// limit lowers a limit, if it is higher.
func (s *starter) limit(which int, value uint64) {
	var have unix.Rlimit
	if unix.Getrlimit(which, &have) == nil {
		value = min(value, have.Max)
		s.try("prlimit", unix.SYS_PRLIMIT64, 0, uint64(which), s.words(min(value, have.Cur), value), 0)
	}
}

// dropCapabilities drops the capabilities of root except those to read files of other
// users, or to change them if files may be changed. It may fail: a process without
// capabilities gains none.
func (s *starter) dropCapabilities(write bool) {
	keep := uint64(1 << unix.CAP_DAC_READ_SEARCH)
	if write {
		keep |= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_CHOWN
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if unix.Capget(&header, &have[0]) != nil || have[0].Permitted|have[1].Permitted|have[0].Inheritable|have[1].Inheritable == 0 {
		return
	}
	s.try("prctl", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL)
	for c := range uint64(unix.CAP_LAST_CAP + 1) {
		if keep&(1<<c) == 0 {
			s.try("prctl", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c)
		}
	}
	keep &= uint64(have[0].Permitted) | uint64(have[1].Permitted)<<32
	var data []byte
	for _, v := range []uint32{unix.LINUX_CAPABILITY_VERSION_3, 0, uint32(keep), uint32(keep), 0, uint32(keep >> 32), uint32(keep >> 32), 0} {
		data = binary.NativeEndian.AppendUint32(data, v)
	}
	at := s.bytes(data)
	s.try("capset", unix.SYS_CAPSET, at, at+8)
}

// load applies a filter, and sends its listener, if any, over the channel.
func (s *starter) load(spec *filterSpec, channel int) {
	program := spec.program()
	var prog []byte
	prog = binary.NativeEndian.AppendUint64(prog, uint64(len(program)/8))
	prog = binary.NativeEndian.AppendUint64(prog, s.bytes(program))
	var flags uint64
	if spec.supervised {
		// Signals do not interrupt a call that is being supervised: a shell whose child
		// ends meanwhile would take that for a failed fork.
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	}
	load := s.call("seccomp", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, s.bytes(prog))
	if !spec.supervised {
		return
	}
	s.keep(load, s.send(channel, 0))
}

// Started must be called with the result of Start. The channel that it returns is
// closed: there is nothing to wait for once the command has ended.
func (c *Confined) Started(err error) (over <-chan struct{}) {
	if err != nil {
		c.release()
		close(c.done)
		return atOnce(err)
	}
	for _, f := range c.ours {
		f.Close()
	}
	c.top = c.cmd.Process.Pid
	go c.supervise()
	return atOnce(nil)
}

func (c *Confined) release() {
	for _, f := range append(c.ours, c.channel) {
		if f != nil {
			f.Close()
		}
	}
}

// Err returns why the wall could not start the command, or nil. The command must have
// ended.
func (c *Confined) Err() error {
	if c == nil {
		return nil
	}
	<-c.done
	return c.err
}

// Ended must be called when the command has ended. Its other processes cannot start more
// from then on. It reports whether some may be left.
func (c *Confined) Ended() (left bool) {
	c.ended.Store(true)
	l := c.listener.Load()
	if l == nil {
		return true
	}
	raw, err := l.SyscallConn()
	if err != nil {
		return false // closed, because no process was left
	}
	left = true
	err = raw.Control(func(fd uintptr) {
		ready := []unix.PollFd{{Fd: int32(fd)}}
		if n, err := unix.Poll(ready, 0); n == 1 && err == nil {
			left = ready[0].Revents&unix.POLLHUP == 0
		}
	})
	return left && err == nil
}

// supervise receives what the starter sends: the listener of the filter, and its failure
// if it fails.
func (c *Confined) supervise() {
	defer close(c.done)
	conn, err := net.FileConn(c.channel)
	c.channel.Close()
	if err != nil {
		c.err = err
		return
	}
	defer conn.Close()
	data, oob := make([]byte, headSize), make([]byte, 64)
	for {
		n, o, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(data, oob)
		switch {
		case err != nil || n == 0:
			return
		case o > 0:
			if l := receivedFile(oob[:o]); l != nil {
				c.listener.Store(l)
				go c.listen(l)
			}
		case n == headSize:
			c.err = fmt.Errorf("the command was not run: %w", c.starter.failure(data))
			return
		}
	}
}

// receivedFile returns the file that was received with a message.
func receivedFile(oob []byte) *os.File {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil
	}
	unix.CloseOnExec(fds[0])
	unix.SetNonblock(fds[0], true)
	return os.NewFile(uintptr(fds[0]), "listener")
}

// try probes whether the wall works.
func (w *Wall) try() error {
	m := machine()
	w.version, w.listener = m.version, m.listener
	return m.err
}

// machine probes walls on this machine, once for all of them.
var machine = sync.OnceValue(func() (m struct {
	version  int
	listener bool
	err      error
}) {
	if m.version = landlockVersion(); m.version < 1 {
		m.err = fmt.Errorf("%w: the kernel has no Landlock, or it is switched off", ErrNoWall)
		return m
	}
	for _, m.listener = range []bool{true, false} {
		w := &Wall{wallState: wallState{version: m.version, listener: m.listener}}
		m.err = w.attack()
		w.close()
		if m.err == nil {
			return m
		}
	}
	m.err = fmt.Errorf("%w: %w", ErrNoWall, m.err)
	return m
})

// reports reports whether the kernel notifies about what it denies.
func (w *Wall) reports() bool { return w.listener }

// describe returns the guarantees of the wall.
func (w *Wall) describe() WallReport {
	r := WallReport{Kind: Landlock, Guarantees: append(slices.Clone(wallGuarantees),
		fmt.Sprintf("each process has at most %d GiB of memory and %d seconds of a processor", maxMemory>>30, maxTime))}
	if w.listener {
		r.Guarantees = append(r.Guarantees, fmt.Sprintf("at most %d processes and threads", maxTasks))
	} else {
		r.Missing = append(r.Missing, "processes are not counted, and results do not report what was refused: the kernel does not let calls be supervised here")
	}
	return r
}
