package bash_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/bash"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

// hostKey makes this test binary a host that runs a command in its directory, until it
// is killed.
const hostKey = "PARLEY_TEST_BASH_HOST"

func TestMain(m *testing.M) {
	if dir := os.Getenv(hostKey); dir != "" {
		env := &tool.Env{Roots: []string{dir}, Environ: []string{"PATH=" + os.Getenv("PATH")}, Dir: filepath.Join(dir, "session")}
		input := []byte(`{"command":"setsid sh -c 'echo $$ >daemon; sleep 100; true' & sh -c 'echo $$ >child; sleep 100; true'"}`)
		bash.New(nil).Run(context.Background(), &tool.Call{Input: input, Env: env})
		return
	}
	goleak.VerifyTestMain(m)
}

// When this process is killed, all processes of its commands die, too.
func TestKilled(t *testing.T) {
	env := tooltest.Env(t)
	host := exec.Command(os.Args[0])
	host.Env = append(os.Environ(), hostKey+"="+env.Roots[0])
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	child, daemon := pid(t, filepath.Join(env.Roots[0], "child")), pid(t, filepath.Join(env.Roots[0], "daemon"))
	if !alive(child) || !alive(daemon) {
		t.Error("they do not run")
	}
	host.Process.Kill()
	host.Wait()
	mustVanish(t, child, daemon)
}
