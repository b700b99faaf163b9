//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/parley-go/parley/internal/testwait"
	"golang.org/x/sys/unix"
)

// configKey names the configuration of the machine that a test runs in; see
// [TestWallInEveryConfiguration].
const configKey = "PARLEY_TEST_WALL"

// A yard holds what a wall protects: files and processes, each of which is a witness.
type yard struct {
	t          *testing.T
	root, home string
	outside    string
	victim     *exec.Cmd
	victimGone chan struct{}
	dials      chan struct{} // has an element if a client connected
	socket     string
	port       string
	write      bool // the wall lets the root be changed
}

func newYard(t *testing.T) *yard {
	t.Helper()
	base, err := os.MkdirTemp("", "yard-")
	if err == nil {
		base, err = filepath.EvalSymlinks(base)
	}
	if err != nil {
		t.Fatal(err)
	}
	y := &yard{t: t, root: base + "/root", home: base + "/home", outside: base + "/outside", dials: make(chan struct{}, 100), victimGone: make(chan struct{})}
	for name, text := range map[string]string{
		"root/file": "open\n", "root/dir/other": "open\n", "root/.env": "SECRET-env\n", "root/keys/a.pem": "SECRET-pem\n", "root/link": "@" + base + "/outside/file",
		"home/.ssh/id": "SECRET-ssh\n", "home/.gitconfig": "[user]\nname = Somebody\n[core]\nexcludesFile = ~/excludes\n", "home/excludes": "*.skip\n", "home/notes": "SECRET-notes\n",
		"home/tool/bin/hello": "#!/bin/sh\ncat \"$(dirname \"$0\")/../share/words\"\n", "home/tool/share/words": "hello\n", "home/.cargo/credentials.toml": "SECRET-cargo\n", "home/.cargo/bin/x": "#!/bin/sh\n",
		"outside/file": "SECRET-outside\n",
	} {
		path := filepath.Join(base, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if target, ok := strings.CutPrefix(text, "@"); ok {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	y.victim = exec.Command("/bin/sleep", "1000")
	y.victim.Env = []string{"KEY=SECRET-environ"}
	if err := y.victim.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { y.victim.Wait(); close(y.victimGone) }()
	y.socket = base + "/socket"
	for network, address := range map[string]string{"unix": y.socket, "tcp": "127.0.0.1:0"} {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		if network == "tcp" {
			_, y.port, _ = net.SplitHostPort(l.Addr().String())
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				y.dials <- struct{}{}
				c.Close()
			}
		}()
	}
	t.Cleanup(func() {
		y.victim.Process.Kill()
		<-y.victimGone
		filepath.WalkDir(base, func(path string, e fs.DirEntry, err error) error { os.Chmod(path, 0o755); return nil })
		os.RemoveAll(base)
	})
	return y
}

// state describes all files of the yard: kind, mode, owner, time, size, attributes.
func (y *yard) state() string {
	var b strings.Builder
	filepath.WalkDir(filepath.Dir(y.root), func(path string, e fs.DirEntry, err error) error {
		var st unix.Stat_t
		unix.Lstat(path, &st)
		list := make([]byte, 256)
		n, _ := unix.Llistxattr(path, list)
		if path == y.socket {
			return nil
		}
		fmt.Fprintln(&b, path, st.Mode, st.Uid, st.Gid, st.Mtim, st.Size, st.Nlink, string(list[:max(n, 0)]))
		return nil
	})
	return b.String()
}

// wall returns a wall for the yard.
func (y *yard) wall() *Wall {
	w := NewWall(WallOptions{Home: y.home, Path: y.home + "/tool/bin:" + y.home + "/.cargo/bin:/usr/local/bin:/usr/bin:/bin"})
	y.t.Cleanup(w.Close)
	return w
}

// run runs a script in the root, behind a wall unless that is nil.
func (y *yard) run(w *Wall, script string) (out string, code int, refused []string) {
	y.t.Helper()
	cmd := exec.Command("/bin/bash", "-c", script)
	cmd.Dir = y.root
	cmd.Env = []string{"HOME=" + y.home, "PATH=" + y.home + "/tool/bin:/usr/local/bin:/usr/bin:/bin", "OUT=" + y.outside, "SOCK=" + y.socket, "PORT=" + y.port, "LC_ALL=C",
		fmt.Sprint("VICTIM=", y.victim.Process.Pid)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	cmd.WaitDelay = time.Second
	var c *Confined
	if w != nil {
		var err error
		if c, err = w.Confine(cmd, View{Roots: []string{y.root}, Write: y.write, Hide: []string{y.root + "/.env", y.root + "/**/*.pem"}}); err != nil {
			y.t.Fatal(err)
		}
	}
	err := cmd.Start()
	if c != nil {
		c.Started(err)
	}
	if err != nil {
		y.t.Fatal(err)
	}
	spare := context.AfterFunc(testwait.Context(y.t), func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	cmd.Wait()
	spare()
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if err := c.Err(); err != nil {
		y.t.Fatalf("%s: %v", script, err)
	}
	return b.String(), cmd.ProcessState.ExitCode(), c.Refused()
}

// harm describes the forbidden effect of a script, or returns "".
func (y *yard) harm(before, out string) string {
	select {
	case <-y.victimGone:
		return "the process outside was ended"
	case <-y.dials:
		return "a connection was made"
	default:
	}
	if after := y.state(); after != before {
		return "files changed: " + after
	}
	if strings.Contains(out, "SECRET") {
		return "a secret was read: " + out
	}
	if strings.Contains(out, "ESCAPED") {
		return "it got out: " + out
	}
	return ""
}

// attacks are scripts that do harm without a wall. Those with ! do it only as root; those
// with ~ are not run without a wall.
var attacks = []string{
	// Changes of files.
	`echo x > new`, `echo x >> file`, `: > file`, `touch file`, `touch -d 2001-01-01 file`, `mkdir d`, `rmdir dir 2>/dev/null || rm -r dir`, `rm file`, `mv file file2`, `ln file hard`, `ln -s file soft`,
	`cp file copy`, `chmod 0 file`, `chmod 777 dir`, `mkfifo pipe`, `truncate -s 1 file`, `dd if=/dev/zero of=file bs=1 count=1 2>/dev/null`, `cat > new < file`, `tee new < file`, `sed -i s/o/x/ file`,
	`echo x > link`, `touch "$OUT/file"`, `chmod 0 "$OUT/file"`, `rm "$OUT/file"`, `echo x >> "$HOME/.gitconfig"`, `chmod 0 "$HOME/.ssh"`, `!chown 1234 file`, `exec 3<>file; echo zz >&3`,
	`exec 3<file; chmod 0 /proc/self/fd/3`, `perl -e 'open F, "<", "file"; chmod 0, *F'`, `perl -e 'utime 1, 1, "file"'`, `perl -e 'open F, "<", "file"; utime 1, 1, *F'`,
	`perl -e 'rename "file", "x"'`, `perl -e '($f, $n, $v) = ("file", "user.x", "y"); syscall(SETXATTR, $f, $n, $v, 1, 0)'`, `perl -e 'open F, "<", "file"; ($n, $v) = ("user.x", "y"); syscall(FSETXATTR, fileno(F), $n, $v, 1, 0)'`,
	`perl -e '$f = syscall(OPENAT, -100, ".", 0x410002 | 0x8000 >> 15 << 16, 0600); exit($f < 0)'; ~`, `git init -q sub`, `git -c user.name=a -c user.email=a@b init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x`,
	`sort -o new file`, `uniq file new`, `awk 'BEGIN { print "x" > "new" }'`, `find . -name file -delete`, `find . -name file -exec rm {} +`, `xargs rm < <(echo file)`,
	`env -i /bin/sh -c 'echo x > new'`, `(echo x > new) &  wait`, `setsid bash -c 'echo x > new'; sleep 0.1`, `perl -e 'fork or exec "touch", "new"; wait'`, `bash -c 'exec bash -c "exec touch new"'`,
	// Reading hidden files.
	`cat .env`, `cat keys/a.pem`, `cat link`, `cat "$OUT/file"`, `cat "$HOME/.ssh/id"`, `cat "$HOME/notes"`, `cat "$HOME/.cargo/credentials.toml"`, `cat < .env`, `head -c 99 /proc/self/cwd/.env`,
	`cat /proc/self/root"$OUT/file"`, `cd /proc/self/cwd/../outside && cat file`, `perl -e 'open F, "<", ".env"; print <F>'`, `exec 3<.env; cat <&3`, `grep -r SECRET .`, `ln -s .env l 2>/dev/null; cat l .env`,
	`!head -c 1000 /etc/shadow | sed 's/^root.*/SECRET/'`, `find . -type f -exec cat {} +`, `cp .env /dev/stdout`, `perl -e '($o, $n) = ($ENV{OUT}, "file"); $d = syscall(OPENAT, -100, $o, 0x210000, 0); $f = syscall(OPENAT, $d, $n, 0, 0); open F, "<&=", $f; print <F>'`,
	// Other processes.
	`kill $VICTIM; sleep 0.1`, `kill -9 $VICTIM; sleep 0.1`, `perl -e 'kill 9, $ENV{VICTIM}'; sleep 0.1`, `perl -e 'syscall(TGKILL, $ENV{VICTIM} + 0, $ENV{VICTIM} + 0, 9)'; sleep 0.1`,
	`perl -e '$f = syscall(PIDFD_OPEN, $ENV{VICTIM} + 0, 0); syscall(PIDFD_SEND, $f, 9, 0, 0)'; sleep 0.1`, `perl -e '$i = pack("iiix116", 9, 0, -1); syscall(SIGQUEUE, $ENV{VICTIM} + 0, 9, $i)'; sleep 0.1`,
	`tr '\0' '\n' < /proc/$VICTIM/environ`, `cat /proc/$VICTIM/cwd/../outside/file /proc/$VICTIM/root"$OUT/file"`, `perl -e 'exit 1 if syscall(PTRACE, 16, $ENV{VICTIM} + 0, 0, 0) < 0; print "ESCAPED"'`,
	`perl -e '$l = pack("QQ", 9, 9); exit 1 if syscall(PRLIMIT, $ENV{VICTIM} + 0, 7, $l, 0) < 0; print "ESCAPED"'`, `renice 19 $VICTIM >/dev/null && echo ESCAPED`,
	// The network.
	`exec 3<>/dev/tcp/127.0.0.1/$PORT; sleep 0.1`, `exec 3<>/dev/udp/127.0.0.1/$PORT && echo ESCAPED`, `perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new($ENV{SOCK}) and print "ESCAPED"'`,
	`perl -MSocket -e 'socket(S, AF_UNIX, SOCK_DGRAM, 0) and print "ESCAPED"'`, `perl -MSocket -e 'socketpair(A, B, AF_UNIX, SOCK_DGRAM, 0) and print "ESCAPED"'`,
	// The kernel.
	`perl -e 'exit 1 if syscall(UNSHARE, 0x10000000) < 0; print "ESCAPED"'`, `perl -e '$n = "x"; exit 1 if syscall(MEMFD, $n, 0) < 0; print "ESCAPED"'`, `perl -e 'exit 1 if syscall(KEYCTL, 0, -3, 1) < 0; print "ESCAPED"'`,
	`perl -e 'exit 1 if syscall(INOTIFY, 0) < 0; print "ESCAPED"'`, `perl -e 'exit 1 if syscall(SHMGET, 0, 4096, 01600) < 0; print "ESCAPED"'`,
	`perl -e '$u = pack "x200"; exit 1 if syscall(URING, 4, $u) < 0; print "ESCAPED"'; ~`, `!perl -e '($a, $b, $c) = ("none", "/nonexistent", "tmpfs"); exit 1 if syscall(MOUNT, $a, $b, $c, 0, 0) < 0 && $! != 2; print "ESCAPED"'`,
	`perl -e 'exit 1 if syscall(PRCTL, 4, 0, 0, 0, 0) < 0; print "ESCAPED"'`, `perl -e 'exit 1 if syscall(SIGNAL32) < 0 && $! == 38; print "ESCAPED"'; ~`,
	// Calls of later kernels, and rarer ones.
	`perl -e '$f = "file"; syscall(FCHMOD_AT2, -100, $f, 0, 0)'; ~`, `perl -e '$f = "file"; syscall(FCHMODAT, -100, $f, 0)'`, `perl -e '($f, $n, $v) = ("file", "user.x", "y"); $a = pack("QLL", unpack("Q", pack("p", $v)), 1, 0); syscall(SET_XATTR_AT, -100, $f, 0, $n, $a, 16)'; ~`,
	`perl -e '$f = "file"; $a = pack("QLLLLL", 0x40, 0, 0, 0, 0, 0); syscall(FILE_SET, -100, $f, $a, 24, 0)'; ~`, `perl -e '$f = "file"; $t = pack("qqqq", 1, 0, 1, 0); syscall(UTIMENS, -100, $f, $t, 0)'`, `perl -e 'open F, "<", "file"; $t = pack("qqqq", 1, 0, 1, 0); syscall(UTIMENS, fileno(F), 0, $t, 0)'`,
	`perl -e '$f = "file"; $d = syscall(OPENAT, -100, $f, 0x200000, 0); chmod 0, "/proc/self/fd/$d"'`, `perl -e '$f = "file"; $d = syscall(OPENAT, -100, $f, 0x200000, 0); open F, ">>", "/proc/self/fd/$d" and print F "x"'`,
	`perl -e '$f = ".env"; $d = syscall(OPENAT, -100, $f, 0x200000, 0); open F, "<", "/proc/self/fd/$d" and print <F>'`, `perl -e '$f = "file"; ($u, $g) = (1234, 1234); syscall(FCHOWNAT, -100, $f, $u, $g, 0)'; ~`,
	`!perl -e '$f = $ENV{OUT}; $t = syscall(OPEN_TREE, -100, $f, 1); exit 1 if $t < 0; print "ESCAPED"'`, `!perl -e '$f = "tmpfs"; exit 1 if syscall(FSOPEN, $f, 0) < 0; print "ESCAPED"'`, `!perl -e 'exit 1 if syscall(FANOTIFY, 0, 0) < 0; print "ESCAPED"'; ~`,
	`perl -e 'exit 1 if syscall(USERFAULT, 1) < 0; print "ESCAPED"'; ~`, `perl -e '$n = "parley-test"; $q = syscall(MQ_OPEN, $n, 0x42, 0600, 0); exit 1 if $q < 0; syscall(MQ_UNLINK, $n); print "ESCAPED"'`, `perl -e '$q = msgget(0, 01600); exit 1 if !defined $q; msgctl($q, 0, 0); print "ESCAPED"'`,
	`perl -e '$q = semget(0, 1, 01600); exit 1 if !defined $q; semctl($q, 0, 0, 0); print "ESCAPED"'`, `perl -e '$c = pack "x8"; exit 1 if syscall(IO_SETUP, 1, $c) < 0; print "ESCAPED"'`, `perl -e '($t, $d) = ("user", "x"); exit 1 if syscall(ADD_KEY, $t, $d, $d, 1, -1) < 0; print "ESCAPED"'; ~`,
	`!perl -e '$b = "x" x 8; $l = pack("QQ", unpack("Q", pack("p", $b)), 8); $m = (split /-/, do { open F, "<", "/proc/$ENV{VICTIM}/maps"; <F> })[0]; $r = pack("QQ", hex $m, 8); exit 1 if syscall(VM_READ, $ENV{VICTIM} + 0, $l, 1, $r, 1, 0) < 0; print "ESCAPED"'`,
	`perl -MSocket -e 'socket(S, 16, SOCK_RAW, 0) and print "ESCAPED"'`, `!perl -MSocket -e 'socket(S, 17, SOCK_RAW, 0) and print "ESCAPED"'`, `perl -MSocket -e 'socket(S, 40, SOCK_STREAM, 0) and print "ESCAPED"'; ~`, `perl -MSocket -e 'socket(S, 38, SOCK_SEQPACKET, 0) and print "ESCAPED"'; ~`,
	`perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack("S", AF_UNIX) . "\0parley-test-$$") and print "ESCAPED"'`, `perl -e 'exit 1 if syscall(FALLOCATE, do { open F, "+<", "file"; fileno F }, 0, 0, 4096) < 0'`,
	`perl -e 'exit 1 if syscall(PERSONALITY, 0x0040000) < 0; print "ESCAPED"'`, `perl -e 'exit 1 if syscall(PIDFD_OPEN, $ENV{VICTIM} + 0, 0) < 0; print "ESCAPED"'`,
	`exec 3</proc/$VICTIM/root && cat /proc/self/fd/3"$OUT/file"`, `cat /proc/$VICTIM/task/$VICTIM/environ | tr '\0' '\n'`, `!dd if=/proc/$VICTIM/mem bs=1 count=1 skip=$((16#$(head -c 12 /proc/$VICTIM/maps | cut -d- -f1))) 2>/dev/null | wc -c | sed 's/^1$/ESCAPED/'`,
	`setsid perl -e 'kill 9, $ENV{VICTIM}'; sleep 0.1`, `echo 500 > /proc/$VICTIM/oom_score_adj && echo ESCAPED`,
}

// numbers replaces the names of system calls in a script by the numbers of this
// architecture.
var numbers = strings.NewReplacer("FCHMOD_AT2", fmt.Sprint(unix.SYS_FCHMODAT2), "FCHMODAT", fmt.Sprint(unix.SYS_FCHMODAT), "SET_XATTR_AT", fmt.Sprint(unix.SYS_SETXATTRAT), "FILE_SET", fmt.Sprint(unix.SYS_FILE_SETATTR), "UTIMENS", fmt.Sprint(unix.SYS_UTIMENSAT), "FCHOWNAT", fmt.Sprint(unix.SYS_FCHOWNAT), "OPEN_TREE", fmt.Sprint(unix.SYS_OPEN_TREE), "FSOPEN", fmt.Sprint(unix.SYS_FSOPEN), "FANOTIFY", fmt.Sprint(unix.SYS_FANOTIFY_INIT), "USERFAULT", fmt.Sprint(unix.SYS_USERFAULTFD), "MQ_OPEN", fmt.Sprint(unix.SYS_MQ_OPEN), "MQ_UNLINK", fmt.Sprint(unix.SYS_MQ_UNLINK), "IO_SETUP", fmt.Sprint(unix.SYS_IO_SETUP), "ADD_KEY", fmt.Sprint(unix.SYS_ADD_KEY), "VM_READ", fmt.Sprint(unix.SYS_PROCESS_VM_READV), "FALLOCATE", fmt.Sprint(unix.SYS_FALLOCATE), "PERSONALITY", fmt.Sprint(unix.SYS_PERSONALITY), "SCHED_ATTR", fmt.Sprint(unix.SYS_SCHED_SETATTR),
	"FSETXATTR", fmt.Sprint(unix.SYS_FSETXATTR), "SETXATTR", fmt.Sprint(unix.SYS_SETXATTR), "OPENAT", fmt.Sprint(unix.SYS_OPENAT), "TGKILL", fmt.Sprint(unix.SYS_TGKILL),
	"PIDFD_OPEN", fmt.Sprint(unix.SYS_PIDFD_OPEN), "PIDFD_SEND", fmt.Sprint(unix.SYS_PIDFD_SEND_SIGNAL), "SIGQUEUE", fmt.Sprint(unix.SYS_RT_SIGQUEUEINFO), "PTRACE", fmt.Sprint(unix.SYS_PTRACE),
	"PRLIMIT", fmt.Sprint(unix.SYS_PRLIMIT64), "UNSHARE", fmt.Sprint(unix.SYS_UNSHARE), "MEMFD", fmt.Sprint(unix.SYS_MEMFD_CREATE), "KEYCTL", fmt.Sprint(unix.SYS_KEYCTL), "INOTIFY", fmt.Sprint(unix.SYS_INOTIFY_INIT1),
	"SHMGET", fmt.Sprint(unix.SYS_SHMGET), "URING", fmt.Sprint(unix.SYS_IO_URING_SETUP), "MOUNT", fmt.Sprint(unix.SYS_MOUNT), "PRCTL", fmt.Sprint(unix.SYS_PRCTL), "SIGNAL32", fmt.Sprint(0x40000000+unix.SYS_GETPID))

// Every attack does harm without the wall, and none behind it.
func TestWallHolds(t *testing.T) {
	if err := newYard(t).wall().Ready(); err != nil {
		t.Skip(err)
	}
	root := os.Geteuid() == 0
	for i, script := range attacks {
		if os.Getenv(configKey) != "" && os.Getenv("PARLEY_TEST_LONG") == "" && i%4 != 0 {
			continue // one configuration runs all of them
		}
		script, never := strings.CutSuffix(script, "; ~")
		script, rootOnly := strings.CutPrefix(script, "!")
		script = numbers.Replace(script)
		t.Run(fmt.Sprintf("%d", i), func(t *testing.T) {
			// The control in one configuration is enough.
			if control := newYard(t); os.Getenv(configKey) == "" && !never && (root || !rootOnly) {
				before := control.state()
				out, _, _ := control.run(nil, script)
				if control.harm(before, out) == "" {
					t.Errorf("%s does no harm without the wall, so it shows nothing: %s", script, out)
				}
			}
			y := newYard(t)
			before := y.state()
			out, _, _ := y.run(y.wall(), script)
			if harm := y.harm(before, out); harm != "" {
				t.Errorf("%s: %s", script, harm)
			}
		})
	}
}

// Everyday commands behave behind the wall as they do without it.
func TestWallLetsRead(t *testing.T) {
	y := newYard(t)
	w := y.wall()
	if err := w.Ready(); err != nil {
		t.Skip(err)
	}
	for _, script := range []string{
		`cat file dir/other`, `ls -la . dir | sed 's/^total.*//'`, `echo a 2>/dev/null >/dev/stderr`, `wc -l < file`, `hello`, `cat <<< here`, `cat <(echo a) <(echo b)`, `echo a | tee /dev/null | cat`, `find . -type d | sort`,
		`git config --get user.name`, `id -u; umask; ulimit -c`, `for i in 1 2 3; do echo $i | cat; done`, `timeout 5 true; echo $?`, `sleep 0.01 & kill %1 2>/dev/null; wait; echo ok`,
		`head -1 /etc/passwd; cat /proc/self/comm`, `test -r file && echo yes`, `awk '{print $1}' file`, `grep -c open file dir/other`, `perl -e 'print "a\n"'`, `date +%Y; uname -s; nproc`, `sort file | uniq -c`, `diff file dir/other && echo same`, `make -s -f <(printf 'all:\n\t@/bin/echo made\n')`,
	} {
		want, code, _ := y.run(nil, script)
		got, code2, _ := y.run(w, script)
		if got != want || code != code2 {
			t.Errorf("%s: %q, status %d; without the wall %q, status %d", script, got, code2, want, code)
		}
	}
}

// The wall reports what it denied, based on the kernel's reports, or that it denied
// nothing.
func TestWallReports(t *testing.T) {
	y := newYard(t)
	w := y.wall()
	if err := w.Ready(); err != nil {
		t.Skip(err)
	}
	if !w.listener {
		t.Skip("calls cannot be supervised here")
	}
	for script, want := range map[string]string{
		`echo x > new`: "change files", `touch file`: "change files", `chmod 0 file`: "change files", `mkdir x`: "change files",
		`exec 3<>/dev/tcp/127.0.0.1/9`: "use the network", `echo "change files: Read-only file system"; exit 1`: "", `cat missing`: "", `echo a 2>/dev/null; exit 1`: "",
	} {
		if _, _, refused := y.run(w, script); strings.Join(refused, ",") != want {
			t.Errorf("%s: refused %q, want %q", script, refused, want)
		}
	}
}

// A command behind the wall cannot exceed the limit of processes, not even as root, and
// has other limits.
func TestWallLimits(t *testing.T) {
	y := newYard(t)
	w := y.wall()
	if err := w.Ready(); err != nil || !w.listener {
		t.Skip(err)
	}
	w.maxTasks = 40
	// Not with bash, which waits 15 seconds for processes to end before it gives up.
	out, _, refused := y.run(w, `perl -e 'for (1..100) { my $p = fork; last if !defined $p; if (!$p) { sleep 100; exit } } kill 9, 0'`)
	if !slices.Contains(refused, "start more processes") {
		t.Errorf("100 processes were made where 40 may be: %s %v", out, refused)
	}
	if out, _, refused := y.run(w, `for i in {1..100}; do /bin/true; done; echo done`); out != "done\n" || refused != nil {
		t.Errorf("one process at a time: %s %v", out, refused)
	}
	w.maxTasks = 0
	out, _, _ = y.run(w, `ulimit -t; ulimit -d; ulimit -c; ulimit -t 9999 2>/dev/null && echo raised; perl -e '$x = "a" x (5 << 30); print "large"' 2>/dev/null; cat /proc/self/oom_score_adj`)
	if want := fmt.Sprintf("%d\n%d\n0\n1000\n", maxTime, maxMemory>>10); out != want {
		t.Errorf("limits %q, want %q", out, want)
	}
}

// A .git file makes no directory readable that does not name it in return.
func TestWallRepositories(t *testing.T) {
	y := newYard(t)
	w := y.wall()
	if err := w.Ready(); err != nil {
		t.Skip(err)
	}
	if out, err := exec.Command("sh", "-c", `cd "$1" && export HOME=$1 GIT_CONFIG_NOSYSTEM=1 && mkdir main && cd main && git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first && git worktree add -q ../tree`, "sh", y.outside).CombinedOutput(); err != nil {
		t.Skip(string(out))
	}
	linked := *y
	linked.root = y.outside + "/tree"
	if out, _, _ := linked.run(w, "git log --format=%s"); out != "first\n" {
		t.Errorf("a linked work tree: %q", out)
	}
	os.WriteFile(y.root+"/.git", []byte("gitdir: "+y.outside+"/main/.git\n"), 0o644)
	if out, _, _ := y.run(w, "git log --format=%s; cat "+y.outside+"/main/.git/HEAD"); strings.Contains(out, "first") || strings.Contains(out, "ref:") {
		t.Errorf("a file .git opened another repository: %q", out)
	}
}

// The wall works as root and as another user, on kernels without filter listeners or user
// namespaces. Without Landlock there is none.
func TestWallInEveryConfiguration(t *testing.T) {
	if os.Getenv(configKey) != "" {
		t.Skip("this is one of them")
	}
	errno := func(nr uint32, at int, bits uint32, errno unix.Errno) (f filter) {
		f.add(loadWord, atNumber, 0, 0)
		f.add(jumpEqual, nr, 0, 3)
		f.argument(uint32(at))
		f.add(jumpSet, bits, 0, 1)
		f.fail(uint32(errno))
		return f
	}
	for _, c := range []struct {
		name   string
		filter filter
	}{
		{"as it is", nil},
		{"no listeners", errno(unix.SYS_SECCOMP, 1, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, unix.EBUSY)},
		{"no user namespaces", append(errno(unix.SYS_UNSHARE, 0, unix.CLONE_NEWUSER, unix.EPERM), errno(unix.SYS_CLONE, 0, unix.CLONE_NEWUSER, unix.EPERM)...)},
		{"no Landlock", errno(unix.SYS_LANDLOCK_CREATE_RULESET, 2, unix.LANDLOCK_CREATE_RULESET_VERSION, unix.ENOSYS)},
	} {
		for _, user := range []uint32{0, 65534} {
			if os.Geteuid() != 0 && user != 0 || user == 0 && c.filter == nil {
				continue
			}
			t.Run(fmt.Sprintf("%s, user %d", c.name, user), func(t *testing.T) {
				dir, err := os.MkdirTemp("/tmp", "walls-")
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
				os.Chmod(dir, 0o777)
				cmd := exec.Command("/proc/self/exe", "-test.run", "^TestWall", "-test.short")
				cmd.Dir, cmd.Env = dir, []string{configKey + "=" + c.name, "PARLEY_TEST_LONG=" + os.Getenv("PARLEY_TEST_LONG"), "TMPDIR=" + dir, "HOME=" + dir, "PATH=/usr/local/bin:/usr/bin:/bin"}
				if user != 0 {
					cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
				}
				if c.filter != nil {
					c.filter.allow()
					refuse(t, cmd, c.filter)
				}
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
	}
}

// refuse runs a command under a filter.
func refuse(t *testing.T, cmd *exec.Cmd, f filter) {
	var program []byte
	for _, i := range f {
		program = binary.NativeEndian.AppendUint16(program, i.Code)
		program = append(program, i.Jt, i.Jf)
		program = binary.NativeEndian.AppendUint32(program, i.K)
	}
	var s starter
	s.call("prctl", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	s.call("seccomp", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, s.words(uint64(len(f)), s.bytes(program)))
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { self.Close() })
	s.exec(cmd, "/proc/self/fd/4")
	file, err := s.file(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	cmd.ExtraFiles = []*os.File{file, self}
	cmd.Path, cmd.Args = "/proc/self/fd/3", []string{"starter"}
}

// In the configuration without Landlock no wall works, which is reported.
func TestWallMissing(t *testing.T) {
	w := newYard(t).wall()
	err := w.Ready()
	if missing := os.Getenv(configKey) == "no Landlock"; missing != errors.Is(err, ErrNoWall) {
		t.Errorf("Ready returned %v, and Landlock is missing: %v", err, missing)
	}
	if os.Getenv(configKey) == "no listeners" && (w.listener || len(w.Report().Missing) == 0) {
		t.Errorf("listeners: %v, %v", w.listener, w.Report())
	}
	if err != nil {
		if _, err := w.Confine(exec.Command("/bin/true"), View{}); !errors.Is(err, ErrNoWall) {
			t.Errorf("Confine returned %v", err)
		}
	}
}

// A command that cannot be executed is reported with the reason.
func TestWallNotStarted(t *testing.T) {
	y := newYard(t)
	w := y.wall()
	if err := w.Ready(); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command("/nonexistent/program")
	cmd.Err = nil
	c, err := w.Confine(cmd, View{Roots: []string{y.root}})
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Start()
	c.Started(err)
	cmd.Wait()
	if err := c.Err(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/nonexistent/program") {
		t.Errorf("Err returned %v", err)
	}
}

// BenchmarkReadWall compares a command behind the read wall with a bare one, alternately,
// so that both run under the same load. It compares the minimum of each: the wall may add
// 4.5 ms.
func BenchmarkReadWall(b *testing.B) {
	dir := b.TempDir()
	wall := NewWall(WallOptions{Home: dir, Path: os.Getenv("PATH")})
	defer wall.Close()
	if err := wall.Ready(); err != nil {
		b.Skip(err)
	}
	run := func(walled bool) time.Duration {
		began := b.Elapsed()
		cmd := exec.Command("/bin/bash", "-c", "true")
		cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/bin:/bin"}
		var confined *Confined
		if walled {
			var err error
			if confined, err = wall.Confine(cmd, View{Roots: []string{dir}}); err != nil {
				b.Fatal(err)
			}
		}
		err := cmd.Start()
		if walled {
			over := confined.Started(err)
			defer func() { <-over }()
		}
		if err == nil {
			err = cmd.Wait()
		}
		if err != nil {
			b.Fatal(err)
		}
		return b.Elapsed() - began
	}
	bare, walled := time.Hour, time.Hour
	for b.Loop() {
		bare, walled = min(bare, run(false)), min(walled, run(true))
	}
	b.ReportMetric(float64(bare)/1e6, "bare-ms")
	b.ReportMetric(float64(walled-bare)/1e6, "added-ms")
}

// TestWallOnOldKernels uses only what earlier versions of Landlock offer: what those do not
// deny, the filter does.
func TestWallOnOldKernels(t *testing.T) {
	if err := newYard(t).wall().Ready(); err != nil || os.Getenv(configKey) != "" {
		t.Skip(err)
	}
	openat2 := fmt.Sprintf(`$f = "%%s"; $how = pack("QQQ", %d, 0, 0); syscall(%d, -100, $f, $how, 24)`, unix.O_TRUNC, unix.SYS_OPENAT2)
	scripts := []string{
		fmt.Sprintf(`perl -e '$f = "file"; syscall(OPENAT, -100, $f, %d, 0)'`, unix.O_TRUNC),
		fmt.Sprintf(`perl -e '$f = "%%s/file"; syscall(OPENAT, -100, $f, %d, 0)'`, unix.O_TRUNC),
		`perl -e '` + strings.ReplaceAll(openat2, "%s", "file") + `'`,
		`perl -e '` + strings.ReplaceAll(openat2, "%s", "%s/file") + `'`,
		`perl -e 'truncate "%s/file", 1'`, `: > file`, `: > "$OUT/file"`, `mv "$OUT/file" moved`, `ln "$OUT/file" hard`, `kill -9 $VICTIM; sleep 0.1`,
	}
	for _, script := range scripts {
		y := newYard(t)
		before := y.state()
		if out, _, _ := y.run(nil, strings.ReplaceAll(numbers.Replace(script), "%s", y.outside)); y.harm(before, out) == "" {
			t.Errorf("%s does no harm without the wall, so it shows nothing: %s", script, out)
		}
	}
	for _, kernel := range []struct {
		version         int
		listener, write bool
	}{{1, true, false}, {2, true, false}, {2, false, false}, {2, true, true}, {2, false, true}, {5, true, false}} {
		var y *yard
		var w *Wall
		for _, script := range scripts {
			if y == nil {
				y = newYard(t)
				w = y.wall()
				if err := w.Ready(); err != nil {
					t.Fatal(err)
				}
				w.version, w.listener, y.write = min(kernel.version, w.version), kernel.listener && w.listener, kernel.write
			}
			inside := func() string { text, _ := os.ReadFile(y.root + "/file"); return string(text) }
			before, content := y.state(), inside()
			out, _, _ := y.run(w, strings.ReplaceAll(numbers.Replace(script), "%s", y.outside))
			if harm := y.harm(before, out); harm != "" {
				if !kernel.write || inside() == content {
					t.Errorf("%+v: %s: %s", kernel, script, harm)
				}
				y = nil
			}
		}
	}
}

// A probe that was killed leaves its directory behind; the next one removes it.
func TestOldProbesAreRemoved(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	old, now, other := filepath.Join(tmp, "parley-wall-1"), filepath.Join(tmp, "parley-wall-2"), filepath.Join(tmp, "other")
	for _, dir := range []string{old, now, other} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "root"), 0o700), os.WriteFile(filepath.Join(dir, "root", "file"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-2 * time.Hour)
	if err := errors.Join(os.Chtimes(old, long, long), os.Chtimes(other, long, long)); err != nil {
		t.Fatal(err)
	}
	w := NewWall(WallOptions{})
	defer w.Close()
	w.attack() // whatever its result is
	names, err := filepath.Glob(filepath.Join(tmp, "*"))
	if err != nil || !slices.Equal(names, []string{other, now}) {
		t.Errorf("%v, %v are left", names, err)
	}
}

// TestPrepareBesideClose checks that a wall can be prepared while it is closed, and later: a
// turn that ends does not wait for the calls that it abandons.
func TestPrepareBesideClose(t *testing.T) {
	for range 50 {
		w := NewWall(WallOptions{Expected: true})
		w.once.Do(func() {}) // nothing to try: the order is what counts
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(w.Prepare)
		}
		w.Close()
		calls.Wait()
		w.Prepare()
		w.Close()
	}
}

// TestClosedWallRefuses checks that a call that outlives its conversation starts no command and leaves no
// descriptor open.
func TestClosedWallRefuses(t *testing.T) {
	w := NewWall(WallOptions{Home: t.TempDir(), Path: os.Getenv("PATH")})
	w.Close()
	if f, err := w.rules(&View{}); f != nil || !errors.Is(err, errWallClosed) || w.ruleset != nil {
		t.Errorf("%v, %v, want %v", f, err, errWallClosed)
	}
}
