package parleytest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// officialCLI returns the official CLI below the directory in PARLEY_PEERS. It
// skips the test when there is none, and when this process can reach more than
// loopback: the CLI is not to reach anything else.
func officialCLI(t *testing.T) string {
	t.Helper()
	peers := os.Getenv("PARLEY_PEERS")
	if peers == "" {
		t.Skip("PARLEY_PEERS names no directory with the official peers")
	}
	ifaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range ifaces {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			t.Skipf("the official CLI is run with loopback only, and %s is up: use unshare -n", i.Name)
		}
	}
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	cli := filepath.Join(peers, "node_modules", "@anthropic-ai", "claude-agent-sdk-"+runtime.GOOS+"-"+arch, "claude")
	if _, err := os.Stat(cli); err != nil {
		t.Skipf("the official CLI is not there: %v", err)
	}
	return cli
}

// runOffline runs a command with a home of its own, a key that is none and
// telemetry off.
func runOffline(t *testing.T, api, dir string, cmd ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), cmd[0], cmd[1:]...)
	c.Dir = dir
	c.Env = []string{
		"HOME=" + t.TempDir(), "PATH=/usr/bin:/bin",
		"ANTHROPIC_BASE_URL=" + api, "ANTHROPIC_API_KEY=sk-ant-fake-test-key",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "DISABLE_AUTOUPDATER=1", "IS_SANDBOX=1",
	}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.String())
	}
	return string(out), err
}

// TestOfficialCLI runs a conversation of ten turns with tools with the official
// CLI; the strict API rejects nothing.
func TestOfficialCLI(t *testing.T) {
	cli := officialCLI(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("the first file\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	read := map[string]string{"file_path": filepath.Join(dir, "a.txt")}
	bash := func(cmd string) map[string]string {
		return map[string]string{"command": cmd, "description": "Test step"}
	}
	api := NewAPI(t, Script(
		Expect(LastUser("Look around"), Tools("Read", "Bash")).Think("I read the file first.").Say("I look.").Call("Read", read),
		Expect(ToolResult("the first file")).Call("Bash", bash("echo two")),
		Expect(ToolResult("two")).Call("Bash", bash("echo three; exit 3")),
		Expect(ToolError("three")).Think("Two at once.").Call("Read", read).Call("Bash", bash("echo four")),
		Expect(ToolResult("four")).Call("Read", map[string]string{"file_path": filepath.Join(dir, "none.txt")}),
		Expect(ToolError("")).Say("Not there.").Ping().Call("Bash", bash("echo six")),
		Expect(ToolResult("six")).Drip(1).Call("Bash", bash("echo seven")),
		Expect(ToolResult("seven")).Call("Bash", bash("printf '%s' eight > b.txt")),
		Expect(ToolResult("")).Call("Read", map[string]string{"file_path": filepath.Join(dir, "b.txt")}),
		Expect(ToolResult("eight")).Say("All seen.").Usage(Usage{Input: 7, Output: 3}),
	), &APIOptions{Cache: true})
	out, err := runOffline(t, api.URL, dir, cli, "-p", "Look around", "--output-format", "stream-json", "--verbose", "--allowedTools", "Read,Bash")
	if err != nil {
		t.Errorf("the CLI failed: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var result struct {
		Type, Subtype, Result string
		IsError               bool `json:"is_error"`
		NumTurns              int  `json:"num_turns"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &result); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if result.Type != "result" || result.IsError || result.Result != "All seen." {
		t.Errorf("result %+v", result)
	}
	for i, r := range api.Requests() {
		t.Logf("%d: %s %s -> %d, cache %+v", i+1, r.Method, r.Path, r.Status, r.Cache)
		if strings.Contains(fmt.Sprint(r.Header), "sk-ant") {
			t.Errorf("a key was kept: %v", r.Header)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

// TestOfficialCLIFaults checks that the official CLI recovers from the faults.
func TestOfficialCLIFaults(t *testing.T) {
	cli := officialCLI(t)
	api := NewAPI(t, Script(
		Fail(529),
		Say("This will not arrive.").Cut().After(3),
		Fail(429).RetryAfter(time.Second),
		Say("Nor will this.").StreamError("overloaded_error", "Overloaded").After(2),
		Say("All well.").Ping().After(1),
	), nil)
	out, err := runOffline(t, api.URL, t.TempDir(), cli, "-p", "Say something")
	if err != nil || strings.TrimSpace(out) != "All well." {
		t.Errorf("%v: %s", err, out)
	}
	for i, want := range []int{529, 200, 429, 200, 200} {
		if r := api.Requests(); i >= len(r) || r[i].Status != want {
			t.Errorf("request %d: want status %d", i+1, want)
		}
	}
}

// TestOfficialCLICassette records the official CLI and replays it to another run
// of it: another home, another session, other ids, another directory.
func TestOfficialCLICassette(t *testing.T) {
	cli := officialCLI(t)
	workdir := func() string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("the first file\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	talk := func(url, dir string) {
		t.Helper()
		out, err := runOffline(t, url, dir, cli, "-p", "Look around", "--allowedTools", "Read,Bash")
		if err != nil || strings.TrimSpace(out) != "All seen." {
			t.Errorf("%v: %s", err, out)
		}
	}
	dir := workdir()
	api := NewAPI(t, Script(
		Call("Read", map[string]string{"file_path": filepath.Join(dir, "a.txt")}).Chunks(1000),
		Expect(ToolResult("the first file")).Call("Bash", map[string]string{"command": "echo two"}),
		Expect(ToolResult("two")).Say("All seen."),
	), nil)
	file := filepath.Join(t.TempDir(), "cassette.jsonl")
	rec, err := NewRecorder(file, api.URL, &CassetteOptions{Vars: map[string]string{"DIR": dir}})
	if err != nil {
		t.Fatal(err)
	}
	if err := rec.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	talk(rec.URL, dir)
	if err := rec.Close(); err != nil {
		t.Error(err)
	}
	if data, _ := os.ReadFile(file); bytes.Contains(data, []byte("sk-ant-fake")) {
		t.Error("the cassette has the key")
	}
	dir = workdir()
	c := Replay(t, file, &CassetteOptions{Vars: map[string]string{"DIR": dir}})
	talk(c.URL, dir)
	if err := c.Done(); err != nil {
		t.Error(err)
	}
}
