package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch    = unix.AUDIT_ARCH_AARCH64
	otherNumbers = 0
)

// oldCalls are refused calls that only this kind of machine has.
var oldCalls = []uint32{unix.SYS_KEXEC_FILE_LOAD}
