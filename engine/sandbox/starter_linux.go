//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// A starter is the program that runs between this one and a confined command. Go cannot
// run code of its own between fork and exec, so the kernel executes a starter, which
// confines itself and then executes the command.
//
// It is a list of system calls and the 100 bytes of machine code that make them, in
// order, without a runtime or a stack: the function starterCode, written in assembly.
// The list is data that this package writes for each command, so everything that a
// starter does can be read here. Both are assembled in memory as an ELF file.
//
// A failed call ends the list, unless it may fail: the starter sends the position and
// the error over its channel, and exits with [notStarted].
type starter struct {
	rows  []byte
	data  []byte
	names []string // of the calls, for errors
	n     int
}

// notStarted is the exit status of a starter that could not start its command.
const notStarted = 126

// The layout of a starter in memory. The assembly depends on the first address, and on
// the sizes of the head and of a row.
const (
	rowsAt   = 0x20000000 // head, rows, data
	codeAt   = 0x10000000
	headSize = 32 // where to continue after a failure, the row that failed, its result, and a word for unused results
	rowSize  = 64 // number and whether it may fail, six arguments, where to store the result
	maxRows  = 192
	dataAt   = rowsAt + headSize + maxRows*rowSize
	codeSize = 256     // at least the size of starterCode
	pageSize = 1 << 16 // the largest of all architectures
)

// starterCode is never called: its code is copied.
func starterCode()

var _ = starterCode // its address is taken in assembly

// starterAddress returns the address of starterCode.
func starterAddress() *[codeSize]byte

// bytes adds data and returns its address.
func (s *starter) bytes(b []byte) uint64 {
	for len(s.data)%8 != 0 {
		s.data = append(s.data, 0)
	}
	at := dataAt + uint64(len(s.data))
	s.data = append(s.data, b...)
	return at
}

// text adds a string that ends in a zero byte.
func (s *starter) text(t string) uint64 { return s.bytes(append([]byte(t), 0)) }

// texts adds a list of strings that ends in a null pointer.
func (s *starter) texts(list []string) uint64 {
	pointers := make([]byte, 0, 8*(len(list)+1))
	for _, t := range list {
		pointers = binary.NativeEndian.AppendUint64(pointers, s.text(t))
	}
	return s.bytes(binary.NativeEndian.AppendUint64(pointers, 0))
}

// words adds numbers of 64 bits.
func (s *starter) words(list ...uint64) uint64 {
	var b []byte
	for _, w := range list {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	return s.bytes(b)
}

// call adds a system call. It returns its index.
func (s *starter) call(name string, nr uintptr, args ...uint64) int {
	row := make([]byte, 0, rowSize)
	row = binary.NativeEndian.AppendUint64(row, uint64(nr))
	for i := range 6 {
		var a uint64
		if i < len(args) {
			a = args[i]
		}
		row = binary.NativeEndian.AppendUint64(row, a)
	}
	row = binary.NativeEndian.AppendUint64(row, rowsAt+24)
	s.rows = append(s.rows, row...)
	s.names = append(s.names, name)
	s.n++
	return s.n - 1
}

// try adds a system call that may fail.
func (s *starter) try(name string, nr uintptr, args ...uint64) int {
	i := s.call(name, nr, args...)
	s.rows[i*rowSize+4] = 1
	return i
}

// argumentOf returns the address of an argument of a call, to store the result of an
// earlier one.
func argumentOf(row, n int) uint64 { return uint64(rowsAt + headSize + row*rowSize + 8 + 8*n) }

// keep stores the lower 32 bits of a call's result at an address.
func (s *starter) keep(row int, address uint64) {
	binary.NativeEndian.PutUint64(s.rows[row*rowSize+56:], address)
}

// file returns the program as a file in memory. If one of the added calls fails, the
// failure is sent to channel.
func (s *starter) file(channel int) (*os.File, error) {
	if s.n > maxRows-2 {
		return nil, fmt.Errorf("a starter of %d calls", s.n)
	}
	fail := uint64(rowsAt + headSize + s.n*rowSize)
	s.call("", unix.SYS_WRITE, uint64(channel), rowsAt, headSize)
	s.try("", unix.SYS_EXIT_GROUP, notStarted)

	data := make([]byte, dataAt-rowsAt, dataAt-rowsAt+len(s.data))
	binary.NativeEndian.PutUint64(data, fail)
	copy(data[headSize:], s.rows)
	data = append(data, s.data...)

	head := elfHead(len(data))
	code := starterAddress()[:]
	fd, err := unix.MemfdCreate("starter", unix.MFD_CLOEXEC|mfdExec)
	if err == unix.EINVAL { // before Linux 6.3
		fd, err = unix.MemfdCreate("starter", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "starter")
	_, err = f.Write(append(head, code...))
	if err == nil {
		_, err = f.WriteAt(data, pageSize)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

const mfdExec = 0x10

// elfHead returns the header of the file: its type, and its layout in memory.
func elfHead(dataSize int) []byte {
	const (
		size              = 64 + 3*56
		load, stack       = 1, 0x6474e551
		exec, write, read = 1, 2, 4
	)
	h := append([]byte("\x7fELF"), 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	h16 := func(v ...uint16) {
		for _, v := range v {
			h = binary.NativeEndian.AppendUint16(h, v)
		}
	}
	h32 := func(v ...uint32) {
		for _, v := range v {
			h = binary.NativeEndian.AppendUint32(h, v)
		}
	}
	h64 := func(v ...uint64) {
		for _, v := range v {
			h = binary.NativeEndian.AppendUint64(h, v)
		}
	}
	h16(2, elfMachine) // an executable
	h32(1)
	h64(codeAt+size, 64, 0)
	h32(0)
	h16(64, 56, 3, 0, 0, 0)
	segment := func(kind, flags uint32, offset, address, length uint64) {
		h32(kind, flags)
		h64(offset, address, address, length, length, pageSize)
	}
	segment(load, read|exec, 0, codeAt, size+codeSize)
	segment(load, read|write, pageSize, rowsAt, uint64(dataSize))
	segment(stack, read|write, 0, 0, 0)
	return h
}

// AtEndOfInput changes a command that was not started so that it is executed when its standard
// input ends. Until then its process needs almost no memory. Call started after Start.
func AtEndOfInput(cmd *exec.Cmd) (started func(), err error) {
	var s starter
	self := 3 + len(cmd.ExtraFiles)
	s.closeOnExec(self)
	s.try("read", unix.SYS_READ, 0, s.words(0), 8)
	s.exec(cmd, cmd.Path)
	file, err := s.file(2)
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	cmd.Path, cmd.Args = fmt.Sprintf("/proc/self/fd/%d", self), []string{"waits"}
	return func() { file.Close() }, nil
}

// failure decodes the failure that a starter has sent.
func (s *starter) failure(head []byte) error {
	if len(head) < headSize {
		return errors.New("the starter ended early")
	}
	row := int(binary.NativeEndian.Uint64(head[8:])-rowsAt-headSize) / rowSize
	errno := syscall.Errno(-int64(binary.NativeEndian.Uint64(head[16:])))
	if row < 0 || row >= len(s.names) {
		return errno
	}
	return fmt.Errorf("%s: %w", s.names[row], errno)
}
