package process_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/process"
)

// A command that nobody stops prints 128 MB, or 5 GB with PARLEY_TEST_LONG. Memory use
// stays constant, disk use stays within the limit, and both ends of the output are
// kept.
func TestFlood(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	size := int64(128 << 20)
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		size = 5 << 30
	}
	const limit = 8 << 20
	dir := t.TempDir()
	file := filepath.Join(dir, "output")
	spool := process.NewSpool(files.InSession(&tool.Env{Dir: dir}, "output"), limit, nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	tree, err := process.Start(&process.Command{Args: []string{shell, "-c", "echo first; head -c " + strconv.FormatInt(size, 10) + " /dev/zero"}, Dir: "/", Env: []string{"PATH=" + os.Getenv("PATH")}, Output: spool})
	if err != nil {
		t.Fatal(err)
	}
	var most uint64
	for done := false; !done; {
		select {
		case <-tree.Drained():
			done = true
		case <-time.After(20 * time.Millisecond):
		}
		runtime.ReadMemStats(&after)
		most = max(most, after.HeapInuse+after.StackInuse)
	}
	if code := tree.Code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MB: memory %d KB at the beginning and %d KB at most, %d MB on disk", size>>20, (before.HeapInuse+before.StackInuse)>>10, most>>10, info.Size()>>20)
	if grown := int64(most) - int64(before.HeapInuse+before.StackInuse); grown > 2<<20 {
		t.Errorf("memory grew by %d bytes", grown)
	}
	if info.Size() != limit || spool.Total() != limit || string(spool.Head(6)) != "first\n" {
		t.Errorf("%d bytes on disk, %d in all, beginning %q", info.Size(), spool.Total(), spool.Head(6))
	}
}
