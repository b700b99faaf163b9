//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
)

// The instructions of a filter program that are used here.
const (
	loadWord    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	jump        = unix.BPF_JMP | unix.BPF_JA
	jumpEqual   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	jumpAtLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	jumpSet     = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	mask        = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	giveBack    = unix.BPF_RET | unix.BPF_K

	atNumber, atArch, atArgs = 0, 4, 16 // offsets in struct seccomp_data

	newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

	// forWriting are the flags of open with which a file may be changed.
	forWriting = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC | unix.O_TMPFILE&^unix.O_DIRECTORY
)

// A filterSpec configures which system calls a command can make.
type filterSpec struct {
	write      bool     // files can be changed, as far as other restrictions allow
	sockets    []uint32 // the kinds of sockets
	namespaces bool     // it can create namespaces
	alone      bool     // it has its own namespaces: it sees no processes and no memory of others
	scoped     bool     // its signals to processes outside are blocked otherwise
	supervised bool     // a supervisor receives reported and counted calls
	attack     bool     // the starter tries to change files: see [starter.change]
	keepsSize  bool     // Landlock before version 3 does not deny that a file is truncated, so the filter does
}

// A filter is a list of instructions.
type filter []unix.SockFilter

func (f *filter) add(code uint16, k uint32, jt, jf uint8) {
	*f = append(*f, unix.SockFilter{Code: code, K: k, Jt: jt, Jf: jf})
}

func (f *filter) fail(errno uint32) { f.add(giveBack, unix.SECCOMP_RET_ERRNO|errno, 0, 0) }
func (f *filter) allow()            { f.add(giveBack, unix.SECCOMP_RET_ALLOW, 0, 0) }

// argument loads the lower half of an argument, which is all that the kernel uses of the
// checked ones.
func (f *filter) argument(n uint32) { f.add(loadWord, atArgs+8*n, 0, 0) }

// when appends a part for each of some values of the loaded word.
func (f *filter) when(values []uint32, part filter) {
	for _, v := range values {
		f.add(jumpEqual, v, 0, uint8(len(part)))
		*f = append(*f, part...)
	}
}

// part returns the instructions for a system call.
func (s *filterSpec) part(nr uint32, a answer) (f filter) {
	switch a {
	case allowed:
		f.allow()
	case absent:
		f.fail(uint32(unix.ENOSYS))
	case viewing:
		if s.write || s.keepsSize {
			f.fail(uint32(unix.ENOSYS)) // its mode and flags cannot be inspected
		} else {
			f.allow()
		}
	case working, sharing, nesting:
		switch {
		case nr == unix.SYS_CLONE3 && !s.namespaces:
			f.fail(uint32(unix.ENOSYS)) // programs fall back to clone, whose flags can be inspected
		case nr == unix.SYS_CLONE3:
			return s.part(nr, forking)
		case a == working && s.write, a == sharing && s.alone && s.write, a == nesting && s.namespaces:
			f.allow()
		case a == nesting:
			f.fail(uint32(unix.EPERM))
		default:
			f.fail(uint32(unix.ENOSYS))
		}
	case changing:
		if s.write {
			if s.keepsSize && nr == unix.SYS_TRUNCATE {
				f.fail(uint32(unix.EROFS))
				return f
			}
			if at, ok := modeOf[nr]; ok {
				f.denyRaising(at)
			}
			f.allow()
		} else {
			s.report(&f, unix.EROFS)
		}
	case opening:
		return s.open(nr)
	case linking:
		if len(s.sockets) > 0 {
			f.allow()
		} else {
			s.report(&f, unix.EACCES)
		}
	case forking:
		if s.supervised {
			f.add(giveBack, unix.SECCOMP_RET_USER_NOTIF, 0, 0)
		} else {
			f.allow()
		}
	case checked:
		return s.check(nr)
	default:
		f.fail(uint32(unix.EPERM))
	}
	return f
}

// open returns the instructions for a system call that opens a file.
func (s *filterSpec) open(nr uint32) (f filter) {
	at := uint32(1)
	if nr != unix.SYS_OPENAT { // open
		at = 0
	}
	if s.keepsSize {
		f.argument(at + 1)
		f.add(jumpSet, unix.O_WRONLY|unix.O_RDWR, 2, 0) // Landlock denies these
		f.add(jumpSet, unix.O_TRUNC, 0, 1)
		f.fail(uint32(unix.EROFS))
	}
	switch {
	case s.write:
		f.argument(at + 1)
		var mode filter
		mode.denyRaising(at + 2)
		f.add(jumpSet, makesFile, 0, uint8(len(mode))) // otherwise the mode is unused
		f = append(f, mode...)
	case s.supervised:
		f.argument(at + 1)
		f.add(jumpSet, forWriting, 0, 1)
		f.add(giveBack, unix.SECCOMP_RET_USER_NOTIF, 0, 0)
	}
	f.allow() // Landlock denies files outside of the view
	return f
}

// makesFile are the flags of open that make it use its mode.
const makesFile = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY

// denyRaising denies the setuid bit: outside of the sandbox anybody could run such a
// program as the owner of its file. The setgid bit is allowed, because directories use it,
// too.
func (f *filter) denyRaising(at uint32) {
	f.argument(at)
	f.add(jumpSet, unix.S_ISUID, 0, 1)
	f.fail(uint32(unix.EPERM))
}

// report denies a call, and notifies the supervisor if there is one.
func (s *filterSpec) report(f *filter, errno unix.Errno) {
	if s.supervised {
		f.add(giveBack, unix.SECCOMP_RET_USER_NOTIF, 0, 0)
	} else {
		f.fail(uint32(errno))
	}
}

// check returns the instructions for a system call that is decided by its arguments.
func (s *filterSpec) check(nr uint32) (f filter) {
	var yes, no filter
	yes.allow()
	no.fail(uint32(unix.EPERM))
	// only allows a call if an argument has one of the given values.
	only := func(n uint32, values ...uint32) {
		f.argument(n)
		f.when(values, yes)
		f = append(f, no...)
	}
	// except denies a call if an argument has one of the given values.
	except := func(n uint32, values ...uint32) {
		f.argument(n)
		f.when(values, no)
		f = append(f, yes...)
	}
	switch nr {
	case unix.SYS_CLONE:
		if !s.namespaces {
			f.argument(0)
			f.add(jumpSet, newNamespaces&^0xff, 0, 1) // the lowest byte is a signal
			f = append(f, no...)
		}
		f = append(f, s.part(nr, forking)...)
	case unix.SYS_SOCKET:
		f.argument(0)
		f.when(s.sockets, yes)
		if s.supervised && !slices.Contains(s.sockets, unix.AF_UNIX) {
			// Every lookup of users and groups opens such a socket. It is useless:
			// connecting it is denied, and reported if it has another purpose.
			var local filter
			local.argument(1)
			local.add(mask, 0xf, 0, 0)
			local.when([]uint32{unix.SOCK_STREAM, unix.SOCK_SEQPACKET}, yes)
			local = append(local, no...)
			f.when([]uint32{unix.AF_UNIX}, local)
		}
		s.report(&f, unix.EACCES)
	case unix.SYS_SOCKETPAIR:
		// A datagram can be sent to others than the peer.
		if slices.Contains(s.sockets, unix.AF_UNIX) {
			return yes
		}
		f.argument(1)
		f.add(mask, 0xf, 0, 0)
		f.when([]uint32{unix.SOCK_STREAM, unix.SOCK_SEQPACKET}, yes)
		f = append(f, no...)
	case unix.SYS_IOCTL:
		if s.write {
			denied := []uint32{unix.TIOCSTI, unix.TIOCLINUX}
			if !s.alone {
				denied = append(denied, fsSetFlags, fsSetFlags32, fsSetXattr)
			}
			except(1, denied...)
			break
		}
		f.argument(1)
		f.when([]uint32{unix.TCGETS, unix.TCGETS2, unix.TIOCGWINSZ, unix.TIOCGPGRP, unix.TIOCGSID, fionread, fionbio, fioclex, fionclex,
			unix.FS_IOC_GETFLAGS, figetbsz, fsGetXattr, fiemap}, yes)
		f.when([]uint32{fsSetFlags, fsSetFlags32, fsSetXattr}, s.part(0, changing))
		f.fail(uint32(unix.ENOTTY))
	case unix.SYS_FCNTL:
		if s.alone {
			return yes
		}
		except(1, unix.F_SETOWN, unix.F_SETOWN_EX, unix.F_SETSIG, unix.F_SETLEASE, unix.F_NOTIFY)
	case unix.SYS_PRCTL:
		// PR_SET_DUMPABLE must stay denied: a process that hides itself could outlive its
		// command.
		hide := []uint32{unix.PR_SET_DUMPABLE, unix.PR_SET_MM, unix.PR_SCHED_CORE, unix.PR_MCE_KILL}
		if s.alone && s.write {
			hide = hide[1:]
		}
		except(0, hide...)
	case unix.SYS_RT_SIGACTION:
		if s.supervised {
			var report filter
			s.report(&report, 0)
			f.argument(0)
			f.when([]uint32{uint32(unix.SIGCHLD)}, report) // see restartCalls
		}
		f = append(f, yes...)
	case unix.SYS_SECCOMP:
		f.argument(1)
		f.add(jumpSet, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, 0, 1)
		f = append(f, no...)
		f = append(f, yes...)
	case unix.SYS_PRLIMIT64, unix.SYS_SCHED_SETAFFINITY:
		if s.alone {
			return yes
		}
		only(0, 0)
	case unix.SYS_SETPRIORITY:
		if s.alone {
			return yes
		}
		f.argument(0)
		f.add(jumpEqual, unix.PRIO_PROCESS, 1, 0)
		f = append(f, no...)
		only(1, 0)
	case unix.SYS_PERSONALITY:
		if s.write {
			return yes
		}
		only(0, 0xffffffff)
	case unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_TGKILL:
		if s.alone || s.scoped {
			return yes
		}
		if nr == unix.SYS_KILL {
			only(0, 0) // its own group
			break
		}
		return no
	}
	return f
}

// Requests of ioctl that x/sys does not name.
const (
	fionread     = 0x541b
	fionbio      = 0x5421
	fioclex      = 0x5451
	fionclex     = 0x5450
	figetbsz     = 0x2
	fsSetFlags   = 0x40086602
	fsSetFlags32 = 0x40046602
	fsGetXattr   = 0x801c581f
	fsSetXattr   = 0x401c5820
	fiemap       = 0xc020660b
)

// program encodes the filter for the kernel.
func (s *filterSpec) program() []byte {
	var f filter
	f.add(loadWord, atArch, 0, 0)
	f.add(jumpEqual, auditArch, 1, 0)
	f.add(giveBack, unix.SECCOMP_RET_KILL_PROCESS, 0, 0)
	f.add(loadWord, atNumber, 0, 0)

	answers := map[uint32]answer{}
	highest := uint32(0)
	for _, table := range []map[answer][]uint32{calls, machineCalls} {
		for a, list := range table {
			for _, nr := range list {
				answers[nr] = a
				highest = max(highest, nr)
			}
		}
	}
	// Consecutive numbers with the same part are one span. The numbers of other interfaces
	// of the kernel are above all of them.
	type span struct {
		from uint32
		part filter
	}
	var spans []span
	for nr := range highest + 2 {
		part := s.part(nr, answers[nr])
		if len(spans) == 0 || !slices.Equal(spans[len(spans)-1].part, part) {
			spans = append(spans, span{nr, part})
		}
	}
	// A binary search: the kernel checks every number when a filter is loaded.
	var search func(list []span) filter
	search = func(list []span) filter {
		if len(list) == 1 {
			return list[0].part
		}
		half := len(list) / 2
		low, high := search(list[:half]), search(list[half:])
		var f filter
		f.add(jumpAtLeast, list[half].from, 0, 1)
		f.add(jump, uint32(len(low)), 0, 0)
		return append(append(f, low...), high...)
	}
	f = append(f, search(spans)...)

	var out []byte
	for _, i := range f {
		out = binary.NativeEndian.AppendUint16(out, i.Code)
		out = append(out, i.Jt, i.Jf)
		out = binary.NativeEndian.AppendUint32(out, i.K)
	}
	return out
}
