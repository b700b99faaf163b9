//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAtEndOfInput checks that a command is executed when its input ends, not before, and that its
// process is small until then.
func TestAtEndOfInput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out bytes.Buffer
	cmd := exec.Command("/bin/sh", "-c", `read -r line; echo "$1 $A"`, "sh", "done")
	cmd.Stdin, cmd.Stdout, cmd.Env = r, &out, []string{"A=b"}
	started, err := AtEndOfInput(cmd)
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Start()
	started()
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(status)) {
		var kb int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 && kb > 512 {
			t.Errorf("the process has %d kB while it waits", kb)
		}
	}
	w.Close()
	if err := cmd.Wait(); err != nil || out.String() != "done b\n" {
		t.Errorf("the command printed %q, and ended with %v", &out, err)
	}
}

// TestEachChangeChanges checks that each call by which a starter tests the wall does harm where there
// is none, so that the test of a wall can fail.
func TestEachChangeChanges(t *testing.T) {
	var all starter
	all.change()
	for i, name := range all.names {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			root := filepath.Join(dir, "root")
			file := filepath.Join(root, "file")
			if err := errors.Join(os.Mkdir(root, 0o700), os.WriteFile(file, []byte("text"), 0o600), os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0))); err != nil {
				t.Fatal(err)
			}
			state := func() string {
				names, _ := filepath.Glob(filepath.Join(root, "*"))
				info, err := os.Stat(file)
				if err != nil {
					return err.Error()
				}
				return fmt.Sprint(len(names), info.Size(), info.Mode(), info.ModTime())
			}
			before := state()
			one := starter{rows: bytes.Clone(all.rows[i*rowSize:][:rowSize]), data: bytes.Clone(all.data), names: []string{name}, n: 1}
			cmd := exec.Command("/bin/true")
			one.exec(cmd, cmd.Path)
			program, err := one.file(2)
			if err != nil {
				t.Fatal(err)
			}
			defer program.Close()
			cmd.ExtraFiles = []*os.File{program}
			cmd.Path, cmd.Dir = "/proc/self/fd/3", dir
			if out, err := cmd.CombinedOutput(); err != nil || state() == before {
				t.Errorf("it changed nothing: %v, %q", err, out)
			}
		})
	}
}
