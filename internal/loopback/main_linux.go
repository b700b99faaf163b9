// Command loopback brings up the loopback interface of the network namespace it
// runs in.
//
// It serves scripts/offline on machines without ip(8). It changes only the
// interface's flags.
package main

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// ifreq is struct ifreq of <net/if.h> with its union read as flags.
type ifreq struct {
	name  [syscall.IFNAMSIZ]byte
	flags uint16
	_     [22]byte
}

func main() {
	if err := up("lo"); err != nil {
		fmt.Fprintln(os.Stderr, "loopback:", err)
		os.Exit(1)
	}
}

// up sets IFF_UP on the named interface.
func up(name string) error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer syscall.Close(fd)

	var req ifreq
	copy(req.name[:], name)
	if err := ioctl(fd, syscall.SIOCGIFFLAGS, &req); err != nil {
		return fmt.Errorf("read flags of %s: %w", name, err)
	}
	req.flags |= syscall.IFF_UP
	if err := ioctl(fd, syscall.SIOCSIFFLAGS, &req); err != nil {
		return fmt.Errorf("bring up %s: %w", name, err)
	}
	return nil
}

func ioctl(fd int, request uintptr, req *ifreq) error {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(req)))
	if errno != 0 {
		return errno
	}
	return nil
}
