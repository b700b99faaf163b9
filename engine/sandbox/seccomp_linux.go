package sandbox

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// The parts of a filter program that are used here.
const (
	loadWord   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	jumpEqual  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	jumpAtMost = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	jumpSet    = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	giveBack   = unix.BPF_RET | unix.BPF_K

	atNumber, atArch, atArgs = 0, 4, 16 // in struct seccomp_data
	retAllow                 = 0x7fff0000
	retErrno                 = 0x00050000
	retKill                  = 0x80000000

	newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME
)

// refused are system calls that no command needs and that lead out, or to parts of
// the kernel where ways out were found.
var refused = []uint32{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_SYSLOG, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_VHANGUP,
	unix.SYS_NFSSERVCTL, unix.SYS_LOOKUP_DCOOKIE,
}

// mounting are the system calls about mounts and namespaces.
var mounting = []uint32{
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS,
}

// sharing are the system calls by which processes reach memory and queues of others
// that have no name in the file system. They are refused where the command has no
// such things of its own.
var sharing = []uint32{
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
	unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
}

// A filter collects instructions.
type filter []unix.SockFilter

func (f *filter) add(code uint16, k uint32, jt, jf uint8) {
	*f = append(*f, unix.SockFilter{Code: code, K: k, Jt: jt, Jf: jf})
}

// fail gives an error back if the word that was loaded is k.
func (f *filter) fail(k uint32, errno uint32) {
	f.add(jumpEqual, k, 0, 1)
	f.add(giveBack, retErrno|errno, 0, 0)
}

// call adds what is asked of one system call, and goes on with its number loaded.
func (f *filter) call(nr uint32, body filter) {
	body.add(loadWord, atNumber, 0, 0)
	f.add(jumpEqual, nr, 0, uint8(len(body)))
	*f = append(*f, body...)
}

// argument loads the lower half of an argument.
func argument(n uint32) filter {
	var f filter
	f.add(loadWord, atArgs+8*n, 0, 0)
	return f
}

// makeFilter writes the seccomp program. It refuses kinds of sockets that are not
// listed. Beside says that the command is in the process namespace of others: then it
// may set no limits and priorities but its own, by which it could end them.
func makeFilter(sockets []uint32, namespaces, beside bool) []byte {
	var f filter
	f.add(loadWord, atArch, 0, 0)
	f.add(jumpEqual, auditArch, 1, 0)
	f.add(giveBack, retKill, 0, 0)
	f.add(loadWord, atNumber, 0, 0)
	if otherNumbers != 0 {
		f.add(jumpAtMost, otherNumbers, 0, 1)
		f.add(giveBack, retErrno|uint32(unix.EPERM), 0, 0)
	}
	for _, nr := range append(refused, oldCalls...) {
		f.fail(nr, uint32(unix.EPERM))
	}
	if beside {
		for _, nr := range sharing {
			f.fail(nr, uint32(unix.EPERM))
		}
		for nr, at := range map[uint32]uint32{unix.SYS_PRLIMIT64: 0, unix.SYS_SETPRIORITY: 1, unix.SYS_IOPRIO_SET: 1} {
			body := argument(at)
			body.add(jumpEqual, 0, 1, 0)
			body.add(giveBack, retErrno|uint32(unix.EPERM), 0, 0)
			f.call(nr, body)
		}
	}
	if !namespaces {
		for _, nr := range mounting {
			f.fail(nr, uint32(unix.EPERM))
		}
		// Its flags are behind a pointer. Those who get this take clone.
		f.fail(unix.SYS_CLONE3, uint32(unix.ENOSYS))
		for _, nr := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
			body := argument(0)
			body.add(jumpSet, newNamespaces&^lowFlags(nr), 0, 1)
			body.add(giveBack, retErrno|uint32(unix.EPERM), 0, 0)
			f.call(nr, body)
		}
	}
	body := argument(1)
	for _, request := range []uint32{unix.TIOCSTI, 0x541c /* TIOCLINUX */} {
		body.fail(request, uint32(unix.EPERM))
	}
	f.call(unix.SYS_IOCTL, body)
	body = argument(0)
	for _, domain := range sockets {
		body.add(jumpEqual, domain, 0, 1)
		body.add(giveBack, retAllow, 0, 0)
	}
	body.add(giveBack, retErrno|uint32(unix.EPERM), 0, 0)
	f.call(unix.SYS_SOCKET, body)
	f.add(giveBack, retAllow, 0, 0)

	var out []byte
	for _, i := range f {
		out = binary.NativeEndian.AppendUint16(out, i.Code)
		out = append(out, i.Jt, i.Jf)
		out = binary.NativeEndian.AppendUint32(out, i.K)
	}
	return out
}

// lowFlags are bits that mean something else to a system call: the lowest byte of
// clone's flags is a signal.
func lowFlags(nr uint32) uint32 {
	if nr == unix.SYS_CLONE {
		return 0xff
	}
	return 0
}
