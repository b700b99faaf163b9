package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch    = unix.AUDIT_ARCH_X86_64
	otherNumbers = 0x40000000 // those of the x32 interface
	elfMachine   = 62
)

// machineCalls are system calls that only this architecture has.
var machineCalls = map[answer][]uint32{
	allowed: {
		unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_NEWFSTATAT, unix.SYS_ACCESS, unix.SYS_READLINK, unix.SYS_GETDENTS, unix.SYS_DUP2, unix.SYS_PIPE,
		unix.SYS_POLL, unix.SYS_SELECT, unix.SYS_EPOLL_CREATE, unix.SYS_EPOLL_WAIT, unix.SYS_EVENTFD, unix.SYS_SIGNALFD,
		unix.SYS_GETPGRP, unix.SYS_ALARM, unix.SYS_PAUSE, unix.SYS_TIME, unix.SYS_ARCH_PRCTL, unix.SYS_GET_THREAD_AREA, unix.SYS_SET_THREAD_AREA,
	},
	changing: {
		unix.SYS_CREAT, unix.SYS_MKNOD, unix.SYS_MKDIR, unix.SYS_RMDIR, unix.SYS_UNLINK, unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_LINK, unix.SYS_SYMLINK,
		unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
	},
	opening: {unix.SYS_OPEN},
	forking: {unix.SYS_FORK, unix.SYS_VFORK},
	working: {unix.SYS_INOTIFY_INIT},
	refused: {unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT},
}

var machineModes = map[uint32]uint32{unix.SYS_CHMOD: 1, unix.SYS_CREAT: 1, unix.SYS_MKNOD: 1}
