//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
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
