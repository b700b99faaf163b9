package files_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

// Pipes, sockets and devices are rejected at once, by their type.
func TestSpecialFiles(t *testing.T) {
	env := tooltest.Env(t)
	root := env.Roots[0]
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	os.Symlink("pipe", filepath.Join(root, "linked"))
	os.Symlink("/dev/zero", filepath.Join(root, "zero"))
	for name, want := range map[string]string{"pipe": "a named pipe", "linked": "a named pipe", "zero": "leads out of the allowed directories", "/dev/zero": "not a file on disk", "/dev/stdin": "not a file on disk", "/proc/kmsg": "not a file on disk", "/sys/kernel/uevent_seqnum": "not a file on disk"} {
		var err error
		p, openErr := files.Open(&tool.Call{Env: env}, files.Abs(env, name))
		if err = openErr; err == nil {
			_, _, err = p.Read()
			if err2 := p.Replace([]byte("x"), nil); err2 == nil {
				t.Errorf("%s was written", name)
			}
			p.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if syscall.Mknod(filepath.Join(root, "dev"), syscall.S_IFCHR|0o666, 1<<8|5) == nil {
		p, err := files.Open(&tool.Call{Env: env}, filepath.Join(root, "dev"))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if _, _, err := p.Read(); err == nil || !strings.Contains(err.Error(), "is a device") {
			t.Errorf("%v", err)
		}
	}
}

// On a full disk the old content stays.
func TestFullDisk(t *testing.T) {
	env := tooltest.Env(t)
	root := env.Roots[0]
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("no right to mount: ", err)
	}
	t.Cleanup(func() { syscall.Unmount(root, syscall.MNT_DETACH) })
	path := tooltest.Write(t, env, "a", "old")
	p, err := files.Open(&tool.Call{Env: env}, path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, info, err := p.ReadAll(100)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Replace(make([]byte, 1<<20), info); err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("%v", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "old" {
		t.Errorf("%q", got)
	}
	if names, _ := os.ReadDir(root); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
}

// A file without permission is reported as such.
func TestPermission(t *testing.T) {
	env := tooltest.Env(t)
	root := env.Roots[0]
	path := tooltest.Write(t, env, "d/a", "x")
	os.Chmod(path, 0)
	os.Chmod(filepath.Dir(path), 0o555)
	if os.Getuid() == 0 {
		// Root may do everything, unless this thread drops its capabilities for a
		// while.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err := unix.Capget(&header, &caps[0]); err != nil {
			t.Skip(err)
		}
		fewer := caps
		fewer[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
		if err := unix.Capset(&header, &fewer[0]); err != nil {
			t.Skip(err)
		}
		defer unix.Capset(&header, &caps[0])
	}
	defer os.Chmod(filepath.Join(root, "d"), 0o777)
	p, err := files.Open(&tool.Call{Env: env}, path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, _, err := p.Read(); err == nil || !strings.Contains(err.Error(), "no permission") {
		t.Errorf("%v", err)
	}
	q, err := files.Open(&tool.Call{Env: env}, filepath.Join(root, "d", "new"))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if err := q.Replace([]byte("x"), nil); err == nil || !strings.Contains(err.Error(), "no permission") {
		t.Errorf("%v", err)
	}
}

// TestSwappedSessionFiles creates, appends to and reads files of the session while another
// goroutine exchanges a directory of theirs for a link. Nothing appears behind the link, and
// nothing is read from there.
func TestSwappedSessionFiles(t *testing.T) {
	for _, part := range []string{"session", "session/tasks"} {
		t.Run(part, func(t *testing.T) {
			top, outside := t.TempDir(), t.TempDir()
			env := &tool.Env{Dir: filepath.Join(top, "session")}
			swapped, link := filepath.Join(top, part), filepath.Join(top, "link")
			names := make([]string, 100)
			for i := range names {
				names[i] = "f" + strconv.Itoa(i)
			}
			for _, dir := range []string{filepath.Join(env.Dir, "tasks"), filepath.Join(outside, "tasks")} {
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if part == "session/tasks" {
				outside = filepath.Join(outside, "tasks")
			}
			if err := os.Symlink(outside, link); err != nil {
				t.Fatal(err)
			}
			files.Pin(env, env.Dir)
			done, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					select {
					case <-done:
						return
					default:
						unix.Renameat2(unix.AT_FDCWD, swapped, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
					}
				}
			}()
			written, failed := 0, 0
			for i := 0; i < 200 || i < 20000 && (written == 0 || failed == 0); i++ {
				f := files.InSession(env, "tasks/"+names[i%len(names)])
				for _, open := range []func() (*os.File, error){f.Create, f.Append, f.Open} {
					if file, err := open(); err == nil {
						file.WriteString("text")
						file.Close()
						written++
					} else {
						failed++
					}
				}
			}
			close(done)
			<-stopped
			if written == 0 || failed == 0 {
				t.Errorf("%d were opened, %d were not: nothing was tried", written, failed)
			}
			if part == "session" {
				outside = filepath.Join(outside, "tasks")
			}
			if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
				t.Errorf("behind the link there are %v (%v)", entries, err)
			}
		})
	}
}
