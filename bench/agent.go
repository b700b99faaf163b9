package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// A cliRun holds the measurements of one run of a command-line agent.
type cliRun struct {
	init, result time.Duration // since the start
	peak         float64       // resident memory in MB
}

// compareAgents measures the parley command against the official one: both receive
// the same lines and use the same API on loopback, which answers at once.
func compareAgents(b *board, official, ours, bare string, n int) error {
	const rounds = 50
	type side struct {
		cli                                                string
		start, answer, round, shell, walled, peak, peak200 []float64
	}
	sides := []*side{{cli: official}, {cli: ours}, {cli: bare}}
	allow := func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--allowedTools", "Bash(echo:*)") }
	for i := range n {
		for _, s := range sides {
			if s.cli == official && i >= 5 {
				continue // it needs seconds
			}
			one, err := runCLI(s.cli, 0)
			if err != nil {
				return err
			}
			s.start = append(s.start, ms(one.init))
			s.answer = append(s.answer, ms(one.result))
			s.peak = append(s.peak, one.peak)
			for _, k := range []struct {
				turns func(string) []*parleytest.Turn
				to    *[]float64
			}{{readCalls(rounds), &s.round}, {bashCalls("echo one", rounds), &s.shell}, {bashCalls("cat a.txt", rounds), &s.walled}} {
				many, err := runTurns(s.cli, k.turns, allow)
				if err != nil {
					return err
				}
				*k.to = append(*k.to, ms(many.result-one.result)/rounds)
			}
			if s.cli == official && i >= 1 {
				continue
			}
			long, err := runCLI(s.cli, 200)
			if err != nil {
				return err
			}
			s.peak200 = append(s.peak200, long.peak)
		}
	}
	b.begin("The agent", "claude", "The same lines drive both commands, against an API on loopback that answers at once. "+
		"The floor is a bare Go program that does the same work and nothing else: it asks the API, runs the tool, and syncs each message to a log. It has no wall.")
	for _, r := range []struct {
		title, unit string
		values      func(*side) []float64
		want, limit float64
	}{
		{"start to init", "ms", func(s *side) []float64 { return s.start }, 20, 0},
		{"start to result", "ms", func(s *side) []float64 { return s.answer }, 20, 7},
		{"one tool round (Read)", "ms", func(s *side) []float64 { return s.round }, 10, 1.2},
		{"one shell round, allowed by a rule", "ms", func(s *side) []float64 { return s.shell }, 0, 4},
		{"one shell round, behind the read wall", "ms", func(s *side) []float64 { return s.walled }, 0, 8.5},
		{"peak memory, one turn", "MB", func(s *side) []float64 { return s.peak }, 8, 14},
		{"peak memory, 200 tool rounds", "MB", func(s *side) []float64 { return s.peak200 }, 8, 16},
	} {
		b.add(row{title: r.title, unit: r.unit, theirs: r.values(sides[0]), ours: r.values(sides[1]), floor: r.values(sides[2]), want: r.want, limit: r.limit})
	}
	size := func(path string) []float64 {
		info, err := os.Stat(path)
		if err != nil {
			return []float64{0}
		}
		return []float64{float64(info.Size()) / 1e6}
	}
	addSize(b, size(official), size(ours))
	return nil
}

func addSize(b *board, theirs, ours []float64) {
	b.add(row{title: "size of the command", unit: "MB", theirs: theirs, ours: ours, limit: 24}) // as TestRelease of internal/sbom
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func nodeArch() string {
	if runtime.GOARCH == "amd64" {
		return "x64"
	}
	return runtime.GOARCH
}

// agentCommand returns an agent as SDKs start it, with its home in a directory.
func agentCommand(cli, dir, api string) *exec.Cmd {
	cmd := exec.Command(cli, "--output-format", "stream-json", "--verbose", "--input-format", "stream-json", "--model", "claude-sonnet-4-5")
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "ANTHROPIC_BASE_URL=" + api, "ANTHROPIC_API_KEY=sk-ant-fake-test-key",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "DISABLE_AUTOUPDATER=1", "IS_SANDBOX=1"}
	return cmd
}

// runCLI has a command answer one prompt, after the given number of Read calls.
// change may modify its command line before it starts.
func runCLI(cli string, rounds int, change ...func(*exec.Cmd)) (r cliRun, err error) {
	return runTurns(cli, readCalls(rounds), change...)
}

// readCalls returns so many calls of Read.
func readCalls(rounds int) func(string) []*parleytest.Turn {
	return func(file string) (turns []*parleytest.Turn) {
		if rounds > 0 {
			turns = append(turns, parleytest.Call("Read", map[string]string{"file_path": file}).Times(rounds))
		}
		return turns
	}
}

// bashCalls returns so many calls of Bash.
func bashCalls(command string, rounds int) func(string) []*parleytest.Turn {
	return func(string) []*parleytest.Turn {
		return []*parleytest.Turn{parleytest.Call("Bash", map[string]string{"command": command, "description": "prints"}).Times(rounds)}
	}
}

// runTurns has a command answer one prompt, after turns of the model that may use a file in its
// directory, a.txt.
func runTurns(cli string, before func(file string) []*parleytest.Turn, change ...func(*exec.Cmd)) (r cliRun, err error) {
	dir, err := os.MkdirTemp("", "parley-bench-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "a.txt")
	if err := os.WriteFile(file, []byte("one\ntwo\nthree\n"), 0o600); err != nil {
		return r, err
	}
	turns := append(before(file), parleytest.Say("Done."))
	api := parleytest.NewHandler(parleytest.Script(turns...), &parleytest.APIOptions{Lenient: true})
	if err := api.Listen("127.0.0.1:0"); err != nil {
		return r, err
	}
	defer api.Close()

	cmd := agentCommand(cli, dir, api.URL)
	for _, f := range change {
		f(cmd)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return r, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return r, err
	}
	defer func() {
		in.Close()
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			cmd.Process.Kill()
			<-done
		}
	}()
	line, err := wire.Encode(wire.Prompt(wire.Text("go")))
	if err != nil {
		return r, err
	}
	if _, err := in.Write(append(line, '\n')); err != nil {
		return r, err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var m struct{ Type, Subtype, Result string }
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return r, err
		}
		switch {
		case m.Type == "system" && m.Subtype == "init":
			r.init = time.Since(start)
		case m.Type == "result":
			r.result = time.Since(start)
			if m.Result != "Done." {
				return r, fmt.Errorf("%s: the result is %s", cli, lines.Bytes())
			}
			r.peak, err = peakMemory(cmd.Process.Pid)
			return r, err
		}
	}
	return r, errors.Join(io.ErrUnexpectedEOF, lines.Err())
}

// peakMemory returns the peak resident memory of a process, in MB.
func peakMemory(pid int) (float64, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, err
	}
	return memoryLine(string(status), "VmHWM:")
}

func memoryLine(status, name string) (float64, error) {
	for line := range strings.Lines(status) {
		if kb, ok := strings.CutPrefix(line, name); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 64)
			return v * 1024 / 1e6, err
		}
	}
	return 0, errors.New("the status of the process has no " + name)
}
