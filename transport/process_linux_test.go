package transport

import (
	"bufio"
	"os"
	"os/exec"
	"testing"
)

// TestMarked checks that only an environment with the mark in its own variable is ours.
func TestMarked(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	for env, want := range map[string]bool{
		"":                                     false,
		"PARLEY_CONN_ID=" + id:                 true,
		"A=1\x00PARLEY_CONN_ID=" + id + "\x00": true,
		"PARLEY_CONN_ID=" + id + ",inner":      true,
		"PARLEY_CONN_ID=outer," + id:           true,
		"OTHER=" + id:                          false,
		"X=PARLEY_CONN_ID=" + id:               false,
		"XPARLEY_CONN_ID=" + id:                false,
		"PARLEY_CONN_ID=other\x00B=" + id:      false,
		"PARLEY_CONN_ID=" + id[:31]:            false,
	} {
		if got := marked([]byte(env), id); got != want {
			t.Errorf("marked(%q) = %v", env, got)
		}
	}
}

// TestSweepOthers checks that a sweep leaves the descendants of other connections
// alone.
func TestSweepOthers(t *testing.T) {
	noLeaks(t)
	mine, other := newConnID(), newConnID()
	start := func(id string) *exec.Cmd {
		cmd := exec.Command("/bin/sleep", "60")
		cmd.Env = append(os.Environ(), connIDKey+"="+id)
		if err := cmd.Start(); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		return cmd
	}
	a, b := start(mine), start(other)
	sweep(mine)
	mustVanish(t, a.Process.Pid)
	if !alive(b.Process.Pid) {
		t.Error("the sweep killed what was not ours")
	}
}

// TestSweepDuringExec checks a descendant that is in the middle of an exec, without a
// visible environment, when the command that started it is gone.
func TestSweepDuringExec(t *testing.T) {
	setsid, err := exec.LookPath("setsid")
	if err != nil {
		t.Skip(err)
	}
	noLeaks(t)
	for range 20 {
		// The descendant first prints its process id to the pipe.
		conn, err := new(Process).Dial(t.Context(), Spec{
			Path:  "/bin/sh",
			Words: []string{"-c", setsid + ` sh -c 'echo $$; exec sleep 60 </dev/null >/dev/null 2>&1' &`},
		})
		if err != nil {
			t.Fatal(err)
		}
		pids := readPids(t, bufio.NewReader(conn), 1)
		waitAll(t, conn)
		mustVanish(t, pids...)
	}
}
