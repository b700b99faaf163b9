package policytest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/parley-go/parley/engine/sandbox"
)

// Stages of a worker: the first process of its namespaces prepares them and starts the
// one that plays.
const (
	stageKey    = "PARLEY_ATTACKS_STAGE"
	stageInit   = "init"
	stageWorker = "worker"
)

// anotherUser is the user other than root: nobody.
const anotherUser = 65534

func TestMain(m *testing.M) {
	switch os.Getenv(stageKey) {
	case stageInit:
		os.Exit(initNamespace())
	case stageWorker:
		os.Unsetenv(stageKey)
		if err := work(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A job is the task of a worker.
type job struct {
	Kind   string // "control", "parley", "wall", "sandbox" or "everyday"
	Wall   string // the only kind of workspace sandbox to use
	Refuse string // what the kernel denies: "", "namespaces" or "landlock"
	User   int    // 0 or anotherUser
	Layout string // of everyday
	Rows   []int
	Table  string // rows to play instead of the table, to try them out
	Name   string // name of the file for these rows
	Binary string // the command parley, which the worker has as file descriptor 3

	Sandbox sandbox.Settings
}

// table returns the rows that the indexes in the job refer to.
func (j *job) table() ([]Row, error) {
	if j.Table == "" {
		return Rows()
	}
	return parseRows(j.Name, j.Table)
}

// A result is the outcome of a row.
type result struct {
	Row   int
	Fired bool   // the witness is present
	Ran   string // where the command ran, if it did: "wall" or "free"
	Note  string `json:",omitempty"`
}

// throwaway runs a worker in its own namespaces. It sees the files of this machine
// read-only, and no other processes and no network. It can write only to a file system
// in memory, which is discarded. It skips the test if that is not possible here.
func throwaway(t *testing.T, j job) []result {
	t.Helper()
	input, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), stageKey+"="+stageInit)
	cmd.Stdin = bytes.NewReader(input)
	if j.Binary != "" {
		f, err := os.Open(j.Binary)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.ExtraFiles = []*os.File{f}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		if j.User != 0 {
			t.Skip("only root can become another user")
		}
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err = cmd.Run()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || strings.Contains(stderr.String(), noNamespace) {
		t.Skipf("no throwaway namespace can be made here: %v %s", err, stderr.String())
	}
	if err != nil {
		t.Fatalf("the worker failed: %v\n%s", err, tail(stderr.Bytes(), 4000))
	}
	var results []result
	in := bufio.NewScanner(&stdout)
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		var r result
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			t.Fatalf("%v: %q", err, in.Bytes())
		}
		results = append(results, r)
	}
	if stderr.Len() > 0 {
		t.Logf("%s", tail(stderr.Bytes(), 4000))
	}
	return results
}

const noNamespace = "the namespace cannot be prepared"

func tail(b []byte, n int) string {
	return strings.ToValidUTF8(string(b[max(0, len(b)-n):]), "?")
}

// initNamespace is the first process of a namespace.
func initNamespace() int {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, noNamespace+":", err)
		return 1
	}
	var input bytes.Buffer
	input.ReadFrom(os.Stdin)
	var j job
	if err := json.Unmarshal(input.Bytes(), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r, w, err := os.Pipe()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() { w.Write(input.Bytes()); w.Close() }()
	runtime.LockOSThread()
	// What no namespace separates must stay out of reach: a row that sets the clock would set
	// that of the machine. The worker has the capabilities of its bounding set.
	for _, c := range []uintptr{unix.CAP_SYS_TIME, unix.CAP_SYS_MODULE, unix.CAP_SYS_BOOT, unix.CAP_SYS_RAWIO, unix.CAP_SYSLOG, unix.CAP_WAKE_ALARM, unix.CAP_SYS_TTY_CONFIG, unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_MAC_ADMIN, unix.CAP_MAC_OVERRIDE, unix.CAP_LINUX_IMMUTABLE} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if err := refuse(j.Refuse); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	attr := &syscall.ProcAttr{Env: workerEnv(), Files: []uintptr{r.Fd(), 1, 2}, Sys: &syscall.SysProcAttr{}}
	if j.Binary != "" {
		attr.Files = append(attr.Files, 3)
	}
	if j.User != 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(j.User), Gid: uint32(j.User)}
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"worker"}, attr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for {
		var status syscall.WaitStatus
		p, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if p == pid {
			if !status.Exited() {
				fmt.Fprintln(os.Stderr, "the worker was ended by", status.Signal())
				return 1
			}
			return status.ExitStatus()
		}
	}
}

// workerEnv returns the environment of a worker: that of an agent, with its secrets.
func workerEnv() []string {
	return []string{stageKey + "=" + stageWorker, "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:" + os.Getenv("PATH"), "LANG=C.UTF-8", "ANTHROPIC_API_KEY=" + OutsideSecret, "AWS_SECRET_ACCESS_KEY=" + OutsideSecret}
}

// prepare sets up the namespaces so that nothing of this machine can be changed and
// every host name resolves to the machine itself.
func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run"} {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			continue
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=1777"); err != nil {
			return err
		}
	}
	if err := os.Mkdir("/tmp/etc", 0o755); err != nil {
		return err
	}
	for path, text := range map[string]string{
		"/etc/hosts":       "127.0.0.1 localhost evil.test a.evil.test good.test\n::1 localhost\n",
		"/etc/resolv.conf": "nameserver 127.0.0.1\n",
		"/etc/shadow":      "root:" + OutsideSecret + ":1:0:99999:7:::\n",
	} {
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		mine := "/tmp/etc/" + filepath.Base(path)
		mode := os.FileMode(0o644)
		if path == "/etc/shadow" {
			mode = 0o640
		}
		if err := os.WriteFile(mine, []byte(text), mode); err != nil {
			return err
		}
		if err := unix.Mount(mine, path, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	for path, text := range map[string]string{"/proc/sys/net/ipv4/ip_unprivileged_port_start": "0", "/proc/sys/net/ipv4/ping_group_range": "0 65534"} {
		os.WriteFile(path, []byte(text), 0) // attacks that need it fail otherwise, and report that
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// refuse makes the kernel deny something to this thread and all its children.
func refuse(what string) error {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		anySet = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		ret    = unix.BPF_RET | unix.BPF_K
		allow  = 0x7fff0000
		fail   = 0x00050000
	)
	f := []unix.SockFilter{{Code: load, K: 0}}
	switch what {
	case "":
		return nil
	case "landlock":
		for _, nr := range []uint32{unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_RESTRICT_SELF} {
			f = append(f, unix.SockFilter{Code: equal, K: nr, Jf: 1}, unix.SockFilter{Code: ret, K: fail | uint32(unix.ENOSYS)})
		}
	case "namespaces":
		const flags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
		f = append(f, unix.SockFilter{Code: equal, K: unix.SYS_CLONE3, Jf: 1}, unix.SockFilter{Code: ret, K: fail | uint32(unix.ENOSYS)})
		for _, nr := range []uint32{unix.SYS_MOUNT, unix.SYS_PIVOT_ROOT, unix.SYS_SETNS, unix.SYS_CHROOT} {
			f = append(f, unix.SockFilter{Code: equal, K: nr, Jf: 1}, unix.SockFilter{Code: ret, K: fail | uint32(unix.EPERM)})
		}
		for _, nr := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
			f = append(f, unix.SockFilter{Code: equal, K: nr, Jf: 4}, unix.SockFilter{Code: load, K: 16},
				unix.SockFilter{Code: anySet, K: flags, Jf: 1}, unix.SockFilter{Code: ret, K: fail | uint32(unix.EPERM)}, unix.SockFilter{Code: load, K: 0})
		}
	default:
		return fmt.Errorf("nothing is known of refusing %q", what)
	}
	f = append(f, unix.SockFilter{Code: ret, K: allow})
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return fmt.Errorf("a filter for system calls: %w", err)
	}
	return nil
}
