package main

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/wire"
)

func init() { onlyHere["probe"] = testProbe }

// testProbe checks that the read wall is tried with the first call of a tool that is not read-only,
// and not at the start or in an earlier turn. The trial creates a directory for temporary files.
func testProbe(t *testing.T) {
	if err := sandbox.NewWall(sandbox.WallOptions{}).Ready(); err != nil {
		t.Skip(err)
	}
	dir, temp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, temp, unix.IN_CREATE); err != nil {
		t.Fatal(err)
	}
	tried := func() bool {
		names := make([]byte, 64<<10)
		n, _ := unix.Read(watch, names)
		return strings.Contains(string(names[:max(n, 0)]), "parley-wall-")
	}
	a := startAgent(t, dir, "turn\n\tsay hello\nturn\n\tcall Glob {\"pattern\":\"*\"}\nturn\n\tsay done\nturn\n\tcall Bash {\"command\":\"ls\"}\nturn\n\tsay done\n")
	a.say("hi")
	if a.until(isResult); tried() {
		t.Error("the wall was tried although there was no call")
	}
	a.say("find the files")
	if a.until(isResult); tried() {
		t.Error("the wall was tried although the call only reads")
	}
	a.say("list the files")
	if r := a.until(isResult).(*wire.Result); r.Result != "done" || len(r.PermissionDenials) > 0 {
		t.Errorf("the command did not run: %+v", r)
	}
	testwait.Until(t, "the wall is tried", tried)
}
