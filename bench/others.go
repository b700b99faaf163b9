package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// An otherAgent is a command-line agent that answers one prompt and exits. In its arguments,
// variables and files, $DIR is its home and $API the address of the API.
type otherAgent struct {
	name       string
	command    []string // the program is below the directory of the installed agents, unless its path is absolute
	env        []string
	file, text string // a file in its home
	tool, args string // its shell
}

// otherAgents are the agents beside parley and claude, as their own documentation starts them.
var otherAgents = []otherAgent{
	{
		name: "codex", command: []string{"@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "go"},
		env: []string{"CODEX_HOME=$DIR/.codex", "FAKE_KEY=fake"}, file: ".codex/config.toml",
		text: "model = \"gpt-5\"\nmodel_provider = \"fake\"\n[model_providers.fake]\nname = \"fake\"\nbase_url = \"$API/v1\"\nwire_api = \"responses\"\nenv_key = \"FAKE_KEY\"\n",
		tool: "exec_command", args: `{"cmd":"echo ROUND"}`,
	},
	{
		name: "gemini-cli", command: []string{"node", "@google/gemini-cli/bundle/gemini.js", "--yolo", "--skip-trust", "-m", "gemini-2.5-flash", "-p", "go"},
		env: []string{"GEMINI_API_KEY=fake", "GOOGLE_GEMINI_BASE_URL=$API", "GEMINI_TELEMETRY_ENABLED=false"}, file: ".gemini/settings.json",
		text: `{"security":{"auth":{"selectedType":"gemini-api-key"}},"privacy":{"usageStatisticsEnabled":false},"general":{"disableAutoUpdate":true}}`,
		tool: "run_shell_command", args: `{"command":"echo ROUND"}`,
	},
	{
		name: "qwen-code", command: []string{"node", "@qwen-code/qwen-code/cli-entry.js", "--yolo", "-p", "go"},
		env: []string{"OPENAI_API_KEY=fake", "OPENAI_BASE_URL=$API/v1", "OPENAI_MODEL=m"}, file: ".qwen/settings.json",
		text: `{"security":{"auth":{"selectedType":"openai"}},"privacy":{"usageStatisticsEnabled":false},"general":{"disableAutoUpdate":true}}`,
		tool: "run_shell_command", args: `{"command":"echo ROUND","is_background":false}`,
	},
	{
		name: "opencode", command: []string{"opencode-linux-x64/bin/opencode", "run", "-m", "anthropic/claude-sonnet-4-5", "go"},
		env:  []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1", "ANTHROPIC_API_KEY=fake"},
		file: ".config/opencode/opencode.json", text: `{"provider":{"anthropic":{"options":{"baseURL":"$API/v1","apiKey":"fake"}}},"permission":"allow"}`,
		tool: "bash", args: `{"command":"echo ROUND","description":"prints"}`,
	},
	{
		name: "goose", command: []string{"@aaif/goose-binary-linux-x64/bin/goose", "run", "--no-session", "--with-builtin", "developer", "-t", "go"},
		env:  []string{"GOOSE_DISABLE_KEYRING=1", "GOOSE_PROVIDER=anthropic", "GOOSE_MODEL=claude-sonnet-4", "GOOSE_MODE=auto", "ANTHROPIC_HOST=$API", "ANTHROPIC_API_KEY=fake", "GOOSE_TELEMETRY_ENABLED=false"},
		tool: "shell", args: `{"command":"echo ROUND"}`,
	},
}

// claudeAgent is parley or claude at such a path.
func claudeAgent(name, path string) otherAgent {
	return otherAgent{
		name: name, command: []string{path, "-p", "--allowedTools", "Bash(echo:*)", "--model", "claude-sonnet-4-5", "go"},
		env: []string{"ANTHROPIC_BASE_URL=$API", "ANTHROPIC_API_KEY=fake", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1",
			"DISABLE_ERROR_REPORTING=1", "DISABLE_AUTOUPDATER=1", "IS_SANDBOX=1"},
		tool: "Bash", args: `{"command":"echo ROUND","description":"prints"}`,
	}
}

// run has the agent answer one prompt, after so many commands. The result is there when it prints the
// answer.
func (a *otherAgent) run(installed string, rounds int) (r cliRun, err error) {
	dir, err := os.MkdirTemp("", "parley-bench-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	home, work := filepath.Join(dir, "home"), filepath.Join(dir, "work")
	api := &fakeAPI{tool: a.tool, args: a.args, rounds: rounds}
	if os.Getenv("PARLEY_BENCH_LOG") != "" {
		api.log = os.Stderr
	}
	var pid, peak atomic.Int64 // the peak in KB
	measure := func() { peak.Store(max(peak.Load(), int64(1000*treeSum(int(pid.Load()), "VmHWM:")))) }
	api.last = measure // an agent may exit before its output has been read
	server := httptest.NewServer(api)
	defer server.Close()
	fill := strings.NewReplacer("$DIR", home, "$API", server.URL)
	if err := errors.Join(os.MkdirAll(work, 0o700), os.MkdirAll(filepath.Dir(filepath.Join(home, a.file)), 0o700)); err != nil {
		return r, err
	}
	if a.file != "" {
		if err := os.WriteFile(filepath.Join(home, a.file), []byte(fill.Replace(a.text)), 0o600); err != nil {
			return r, err
		}
	}
	args := slices.Clone(a.command)
	for i, arg := range args[:min(2, len(args))] {
		if strings.Contains(arg, "/") && !filepath.IsAbs(arg) {
			args[i] = filepath.Join(installed, "node_modules", arg)
		}
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = work
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "TERM=dumb", "NO_COLOR=1"}
	for _, v := range a.env {
		cmd.Env = append(cmd.Env, fill.Replace(v))
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return r, err
	}
	pid.Store(int64(cmd.Process.Pid))
	limit := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer limit.Stop()
	var text []byte
	buf := make([]byte, 4096)
	for {
		n, err := out.Read(buf)
		text = append(text, buf[:n]...)
		if r.result == 0 && bytes.Contains(text, []byte("Done.")) {
			r.result = time.Since(start)
			measure()
		}
		if err != nil {
			break
		}
	}
	io.Copy(io.Discard, out)
	err = cmd.Wait()
	if r.result == 0 || err != nil {
		return r, fmt.Errorf("%s: %v, it printed %.500q and %.2000q", strings.Join(args, " "), err, text, errs.Bytes())
	}
	if done := api.done.Load(); done != int64(rounds) {
		return r, fmt.Errorf("%s: %d of %d commands have results", a.name, done, rounds)
	}
	r.peak = float64(peak.Load()) / 1000
	return r, nil
}

// compareOthers measures parley against the agents that are installed. All use an API on loopback that
// speaks their dialect and answers at once.
func compareOthers(b *board, official, ours, installed string, n int) error {
	const rounds = 20
	agents := []otherAgent{claudeAgent("parley", ours), claudeAgent("claude", official)}
	if installed != "" {
		agents = append(agents, otherAgents...)
	}
	titles := []row{{title: "start to result", unit: "ms"}, {title: "one shell round", unit: "ms"}, {title: "peak memory, one turn", unit: "MB"}}
	values := map[string]*[3][]float64{}
	for i := range n {
		for _, a := range agents {
			if i >= 3 && a.name != "parley" {
				continue // they need seconds
			}
			one, err := a.run(installed, 0)
			if err != nil {
				return err
			}
			many, err := a.run(installed, rounds)
			if err != nil {
				return err
			}
			if values[a.name] == nil {
				values[a.name] = &[3][]float64{}
			}
			for i, v := range []float64{ms(one.result), ms(many.result-one.result) / rounds, one.peak} {
				values[a.name][i] = append(values[a.name][i], v)
			}
		}
	}
	b.begin("All agents", "the other agent", "Each agent answers one prompt without a terminal and exits, against an API on loopback that speaks its dialect and answers at once. "+
		"The clock stops when the agent prints the result. A round runs `echo` in the shell of the agent. The memory is the sum of its processes.")
	for _, a := range agents[1:] {
		for i, r := range titles {
			r.title, r.theirs, r.ours = a.name+": "+r.title, values[a.name][i], values["parley"][i]
			b.add(r)
		}
	}
	return nil
}
