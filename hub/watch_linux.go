package hub

import (
	"bytes"
	"encoding/binary"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// localSystems are the types of file systems on which all writers are processes of this machine, so
// that it notices every change. Others, such as NFS, are polled.
var localSystems = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true,
	unix.TMPFS_MAGIC: true, unix.OVERLAYFS_SUPER_MAGIC: true, 0x2FC12FC1: true, // ZFS
}

// Events of a directory that wake those who wait.
const (
	written = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE | gone // a file changes
	closed  = unix.IN_CLOSE_WRITE | gone                                                 // a file that was open for writing is closed
	gone    = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

// changes reports changes of files, with one instance of inotify. It runs only while somebody waits.
type changes struct {
	mu   sync.Mutex
	file *os.File
	dirs map[string]*directory
}

// A directory is watched as long as somebody waits for one of its files.
type directory struct {
	wd      int32
	waiters int
	files   map[string]chan struct{} // each is closed by the next change of the file
}

// watch returns a channel that is closed by the next of the events of a file, or nil if the system
// cannot report them. All calls for files of one directory have the same events. Call stop when nobody
// waits for the channel any more; who waits again calls watch before that, which costs less.
func (c *changes) watch(dir, name string, events uint32) (changed <-chan struct{}, stop func()) {
	var system unix.Statfs_t
	if unix.Statfs(dir, &system) != nil || !localSystems[int64(system.Type)] {
		return nil, func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.dirs[dir]
	if d == nil {
		if d = c.add(dir, events); d == nil {
			return nil, func() {}
		}
	}
	if d.files[name] == nil {
		d.files[name] = make(chan struct{})
	}
	d.waiters++
	return d.files[name], func() { c.leave(dir, d) }
}

// add starts to watch a directory. The caller holds mu.
func (c *changes) add(dir string, events uint32) *directory {
	if c.file == nil {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return nil
		}
		c.file, c.dirs = os.NewFile(uintptr(fd), "inotify"), map[string]*directory{}
		go c.read(c.file)
	}
	wd, err := c.control(func(fd int) (int, error) {
		return unix.InotifyAddWatch(fd, dir, events|unix.IN_ONLYDIR)
	})
	if err != nil {
		c.closeUnused()
		return nil
	}
	d := &directory{wd: int32(wd), files: map[string]chan struct{}{}}
	c.dirs[dir] = d
	return d
}

// control calls f with the file descriptor, without making it block.
func (c *changes) control(f func(fd int) (int, error)) (n int, err error) {
	raw, err := c.file.SyscallConn()
	if err == nil {
		if failed := raw.Control(func(fd uintptr) { n, err = f(int(fd)) }); failed != nil {
			err = failed
		}
	}
	return n, err
}

// leave removes a waiter.
func (c *changes) leave(dir string, d *directory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.waiters--; d.waiters == 0 && c.dirs[dir] == d {
		c.remove(dir, d)
	}
}

// remove stops watching a directory. The caller holds mu.
func (c *changes) remove(dir string, d *directory) {
	delete(c.dirs, dir)
	c.control(func(fd int) (int, error) { return unix.InotifyRmWatch(fd, uint32(d.wd)) })
	c.closeUnused()
}

// closeUnused closes the instance if nothing is watched. The caller holds mu.
func (c *changes) closeUnused() {
	if len(c.dirs) == 0 {
		c.file.Close()
		c.file = nil
	}
}

// read wakes the waiters until the file is closed.
func (c *changes) read(file *os.File) {
	buf := make([]byte, 64<<10)
	for {
		n, err := file.Read(buf)
		c.mu.Lock()
		if c.file != file { // it was closed
			c.mu.Unlock()
			return
		}
		for event := buf[:n]; len(event) >= unix.SizeofInotifyEvent; {
			end := unix.SizeofInotifyEvent + binary.NativeEndian.Uint32(event[12:])
			name, _, _ := bytes.Cut(event[unix.SizeofInotifyEvent:end], []byte{0})
			c.wake(int32(binary.NativeEndian.Uint32(event)), binary.NativeEndian.Uint32(event[4:]), string(name))
			event = event[end:]
		}
		if err != nil {
			c.wake(-1, unix.IN_Q_OVERFLOW, "")
		}
		over := c.file != file
		c.mu.Unlock()
		if over {
			return
		}
	}
}

// wake wakes those who wait for a file, all those of a directory that is gone, and everybody if events
// were lost. The caller holds mu.
func (c *changes) wake(wd int32, mask uint32, name string) {
	for dir, d := range c.dirs {
		if d.wd != wd && mask&unix.IN_Q_OVERFLOW == 0 {
			continue
		}
		over := mask&(gone|unix.IN_IGNORED|unix.IN_Q_OVERFLOW) != 0
		for file, changed := range d.files {
			if over || file == name {
				close(changed)
				delete(d.files, file)
			}
		}
		if over {
			c.remove(dir, d)
		}
	}
}
