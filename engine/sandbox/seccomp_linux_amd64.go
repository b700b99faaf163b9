package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch    = unix.AUDIT_ARCH_X86_64
	otherNumbers = 0x40000000 // those of the x32 interface
)

// oldCalls are refused calls that only this kind of machine has.
var oldCalls = []uint32{unix.SYS_KEXEC_FILE_LOAD, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_USELIB, unix.SYS_MODIFY_LDT, unix.SYS__SYSCTL}
