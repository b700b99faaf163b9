package interop

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
)

// hostVar makes this program a host: it names the CLI.
const hostVar = "PARLEY_INTEROP_HOST_CLI"

// host talks to a CLI until it is killed. It prints the CLI's process id.
func host(cli string) error {
	c, err := parley.Connect(context.Background(), &parley.Options{Path: cli, Model: "claude-sonnet-4-5", AllowedTools: []string{"Bash"}, SettingSources: []string{}})
	if err != nil {
		return err
	}
	init, err := c.InitializeResponse()
	if err != nil {
		return err
	}
	fmt.Println(init.PID)
	for _, err := range c.Turn(context.Background(), "Wait.") {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestKilled checks that a killed host leaves nothing behind: neither the CLI nor what
// its tools started.
func TestKilled(t *testing.T) {
	t.Parallel()
	p := peers(t)
	if runtime.GOOS != "linux" {
		t.Skip("processes are looked for in /proc")
	}
	dir := t.TempDir()
	api := parleytest.NewAPI(t, parleytest.Script(
		parleytest.Call("Bash", bash("echo $$ > pid.new; mv pid.new pid; for i in 1 2 3 4 5 6 7 8 9; do sleep 5; done")),
	), nil)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), hostVar+"="+p.CLI(), "HOME="+filepath.Join(dir, "home"), "ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_API_KEY="+fakeKey)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	cli, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	tool := 0
	testwait.Until(t, "the tool starts", func() bool {
		data, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err == nil {
			tool, err = strconv.Atoi(strings.TrimSpace(string(data)))
		}
		return err == nil
	})
	if !runs(cli) || !runs(tool) {
		t.Fatalf("the CLI (%d) and its tool (%d) do not run", cli, tool)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the CLI is gone", func() bool { return !runs(cli) })
	testwait.Until(t, "the tool is gone", func() bool { return !runs(tool) })
}
