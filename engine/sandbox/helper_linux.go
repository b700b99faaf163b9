package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
)

// HelperArg is the first argument of a program that is started to be the helper.
const HelperArg = "__sandbox"

// RunIfHelper is called first thing by the main of a program that [Options.Helper]
// names. It does nothing unless the program was started to run a command inside a
// sandbox; then it confines itself, becomes that command, and never returns.
func RunIfHelper() {
	if len(os.Args) < 3 || os.Args[1] != HelperArg {
		return
	}
	err := runHelper(os.Args[2], os.Args[3:])
	fmt.Fprintln(os.Stderr, "sandbox: the command was not run:", err)
	os.Exit(126)
}

func runHelper(what string, args []string) error {
	runtime.LockOSThread()
	switch {
	case what == "net" && len(args) >= 3:
		if err := sendListener(args[0], args[1]); err != nil {
			return err
		}
		args = args[2:]
	case what == "landlock" && len(args) >= 2:
		var l lock
		if err := json.Unmarshal([]byte(args[0]), &l); err != nil {
			return err
		}
		if err := l.apply(); err != nil {
			return err
		}
		args = args[1:]
	default:
		return errors.New("this is for the agent itself, not for people")
	}
	if err := syscall.Exec(args[0], args, os.Environ()); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return nil
}

// closeOnExec keeps a file from the command.
func closeOnExec(number string) (int, error) {
	fd, err := strconv.Atoi(number)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC)
	}
	return fd, err
}

// sendListener makes a listener in the network of the command and gives it to the
// agent, who is outside.
func sendListener(helper, channel string) error {
	if _, err := closeOnExec(helper); err != nil {
		return err
	}
	to, err := closeOnExec(channel)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("there is no way to the proxy: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: proxyPort, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fmt.Errorf("there is no way to the proxy: %w", err)
	}
	if err := unix.Listen(fd, 128); err != nil {
		return fmt.Errorf("there is no way to the proxy: %w", err)
	}
	return unix.Sendmsg(to, []byte{0}, unix.UnixRights(fd), nil, 0)
}

// apply confines this process, for good.
func (l *lock) apply() error {
	if _, err := closeOnExec(l.Helper); err != nil {
		return err
	}
	config := landlock.V6.BestEffort()
	rules := []landlock.Rule{landlock.RWFiles("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty").IgnoreIfMissing()}
	if l.AllFiles {
		rules = append(rules, landlock.RWDirs("/").WithRefer().WithIoctlDev())
	} else {
		rules = append(rules, readable("/", l.Hide)...)
		for _, path := range l.Write {
			info, err := os.Stat(path)
			switch {
			case err != nil:
			case info.IsDir():
				rules = append(rules, landlock.RWDirs(path).WithRefer())
			default:
				rules = append(rules, landlock.RWFiles(path))
			}
		}
	}
	if err := config.Restrict(rules...); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	dropCapabilities()
	var kinds []uint32
	if l.Unix {
		kinds = append(kinds, unix.AF_UNIX)
	}
	return loadFilter(makeFilter(kinds, l.Namespaces, true))
}

// readable returns rules to read everything in a directory but what is hidden.
// Landlock only allows, so a directory above something hidden is allowed piece by
// piece; what is put there later cannot be read.
func readable(dir string, hide []string) []landlock.Rule {
	if slices.Contains(hide, dir) {
		return nil
	}
	if !slices.ContainsFunc(hide, func(h string) bool { return within(dir, h) }) {
		return []landlock.Rule{landlock.RODirs(dir).IgnoreIfMissing()}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var rules []landlock.Rule
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			rules = append(rules, readable(path, hide)...)
		case e.Type()&os.ModeSymlink == 0 && !slices.Contains(hide, path):
			rules = append(rules, landlock.ROFiles(path).IgnoreIfMissing())
		}
	}
	return rules
}

// dropCapabilities takes the rights of root away that are not about files of
// others. Who has none keeps none.
func dropCapabilities() {
	keep := []uintptr{unix.CAP_DAC_OVERRIDE}
	for c := uintptr(0); c < 64; c++ {
		if !slices.Contains(keep, c) && c != unix.CAP_SETPCAP {
			unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		}
	}
	unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SETPCAP, 0, 0, 0)
	unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	// What is inheritable would be kept across the exec.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) == nil {
		data[0].Inheritable, data[1].Inheritable = 0, 0
		unix.Capset(&header, &data[0])
	}
}

// loadFilter applies a seccomp program to this process.
func loadFilter(program []byte) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	const size = int(unsafe.Sizeof(unix.SockFilter{}))
	prog := unix.SockFprog{Len: uint16(len(program) / size), Filter: (*unix.SockFilter)(unsafe.Pointer(&program[0]))}
	const setModeFilter, tsync = 1, 1
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, tsync, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 || r != 0 {
		return fmt.Errorf("seccomp: %w (%d)", errno, r)
	}
	return nil
}
