package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch    = unix.AUDIT_ARCH_AARCH64
	otherNumbers = 0
	elfMachine   = 183
)

// machineCalls are system calls that only this architecture has.
var machineCalls = map[answer][]uint32{
	allowed:  {unix.SYS_NEWFSTATAT},
	changing: {unix.SYS_RENAMEAT},
}

var machineModes map[uint32]uint32
