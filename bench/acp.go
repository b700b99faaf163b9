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
	"strings"
	"time"

	"github.com/parley-go/parley/parleytest"
)

// rest is the time after which the memory of an agent is measured: a session mostly waits for a person.
const rest = 200 * time.Millisecond

// An editorRun holds the measurements of one run of an agent for editors, since its start.
type editorRun struct {
	initialize, session, prompt time.Duration // the prompt by itself
	memory, memory100           float64       // of all its processes, in MiB
}

// compareEditors measures parley acp against the reference adapter with the official CLI, and
// against goose if PARLEY_GOOSE names it.
func compareEditors(b *board, official, ours, peers string, n int) error {
	adapter := []string{"env", "CLAUDE_CODE_EXECUTABLE=" + official, "node", filepath.Join(peers, "node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js")}
	sides := []struct {
		name    string
		command []string
		rounds  bool
	}{{"claude-agent-acp", adapter, true}}
	if goose := os.Getenv("PARLEY_GOOSE"); goose != "" {
		sides = append(sides, struct {
			name    string
			command []string
			rounds  bool
		}{"goose", []string{goose, "acp"}, false})
	}
	for _, s := range sides {
		var theirs, mine [5][]float64
		for range n {
			for _, x := range []struct {
				to      *[5][]float64
				command []string
				rounds  bool
				many    int
			}{{&theirs, s.command, s.rounds, 0}, {&mine, []string{ours, "acp"}, true, 99}} {
				r, err := runEditor(x.command, x.rounds, x.many)
				if err != nil {
					return fmt.Errorf("%s: %w", strings.Join(x.command, " "), err)
				}
				for i, v := range []float64{ms(r.initialize), ms(r.session), ms(r.prompt), r.memory, r.memory100} {
					if v > 0 {
						x.to[i] = append(x.to[i], v)
					}
				}
			}
		}
		b.begin("In an editor", s.name, "The same lines drive both agents, against an API on loopback that answers at once. The prompt has four rounds: it reads, writes, runs a command and answers. The host allows every call at once. Memory is that of all processes, 0.2 s after the last response.")
		for i, r := range []row{{title: "start to initialize", unit: "ms", limit: 15}, {title: "start to the first session", unit: "ms", limit: 30}, {title: "a prompt of four rounds", unit: "ms", limit: 40},
			{title: "memory, one session", unit: "MiB", limit: 25}, {title: "memory, 100 sessions", unit: "MiB", limit: 45}} {
			r.theirs, r.ours = theirs[i], mine[i]
			b.add(r)
		}
	}
	return nil
}

// runEditor starts an agent, opens a session, sends a prompt if rounds is set, and opens more
// sessions.
func runEditor(command []string, rounds bool, many int) (r editorRun, err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	work := filepath.Join(dir, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		return r, err
	}
	file := filepath.Join(work, "a.txt")
	if err := os.WriteFile(file, []byte("text\n"), 0o600); err != nil {
		return r, err
	}
	api := parleytest.NewHandler(parleytest.Script(
		parleytest.Say("I read.").Call("Read", map[string]string{"file_path": file}),
		parleytest.Say("I write.").Call("Write", map[string]string{"file_path": filepath.Join(work, "b.txt"), "content": "text\n"}),
		parleytest.Say("I run.").Call("Bash", map[string]string{"command": "echo done", "description": "Prints a word"}),
		parleytest.Say("Done.").Always(),
	), &parleytest.APIOptions{Lenient: true, Partial: true})
	if err := api.Listen("127.0.0.1:0"); err != nil {
		return r, err
	}
	defer api.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "HOME="+filepath.Join(dir, "home"), "ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_HOST="+api.URL, "ANTHROPIC_API_KEY=sk-ant-fake-test-key",
		"GOOSE_PROVIDER=anthropic", "GOOSE_MODEL=claude-sonnet-4", "GOOSE_DISABLE_KEYRING=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		return r, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return r, err
	}
	defer func() {
		in.Close()
		time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
		io.Copy(io.Discard, out)
		cmd.Wait()
	}()
	e := &editorConn{in: in, out: bufio.NewReaderSize(out, 1<<20)}
	if _, err := e.call("initialize", `{"protocolVersion":1,"clientCapabilities":{}}`); err != nil {
		return r, err
	}
	r.initialize = time.Since(began)
	open := func() (id string, err error) {
		var s struct{ SessionID string }
		result, err := e.call("session/new", fmt.Sprintf(`{"cwd":%q,"mcpServers":[]}`, work))
		json.Unmarshal(result, &s)
		return s.SessionID, err
	}
	id, err := open()
	if err != nil {
		return r, err
	}
	r.session = time.Since(began)
	if rounds {
		at := time.Now()
		if _, err := e.call("session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":"Go."}]}`, id)); err != nil {
			return r, err
		}
		r.prompt = time.Since(at)
		if _, err := os.Stat(filepath.Join(work, "b.txt")); err != nil {
			return r, errors.New("the prompt did not do its work")
		}
	}
	time.Sleep(rest)
	r.memory = treeMemory(cmd.Process.Pid)
	for range many {
		if _, err := open(); err != nil {
			return r, err
		}
	}
	if many > 0 {
		time.Sleep(rest)
		r.memory100 = treeMemory(cmd.Process.Pid)
	}
	return r, nil
}

// An editorConn is the connection of an editor.
type editorConn struct {
	in  io.Writer
	out *bufio.Reader
	id  int
}

// call sends a request and waits for its response. It allows all permission requests of the
// agent.
func (e *editorConn) call(method, params string) (json.RawMessage, error) {
	e.id++
	if _, err := fmt.Fprintf(e.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", e.id, method, params); err != nil {
		return nil, err
	}
	for {
		line, err := e.out.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		var f struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Options []struct{ OptionID, Kind string }
			}
			Result, Error json.RawMessage
		}
		if json.Unmarshal(line, &f) != nil {
			continue
		}
		switch {
		case f.Method == "session/request_permission":
			for _, o := range f.Params.Options {
				if o.Kind == "allow_once" {
					fmt.Fprintf(e.in, `{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":%q}}}`+"\n", f.ID, o.OptionID)
					break
				}
			}
		case f.Method == "" && string(f.ID) == fmt.Sprint(e.id):
			if len(f.Error) > 0 {
				return nil, fmt.Errorf("%s: %s", method, f.Error)
			}
			return f.Result, nil
		}
	}
}

// treeMemory returns the resident memory of a process and all its descendants, in MiB.
func treeMemory(pid int) float64 { return treeSum(pid, "VmRSS:") * 1e6 / (1 << 20) }

// treeSum adds up a line of the status of a process and all its descendants, in MB.
func treeSum(pid int, name string) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	total, _ := memoryLine(string(status), name)
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		list, _ := os.ReadFile(t)
		for _, f := range strings.Fields(string(list)) {
			var child int
			fmt.Sscan(f, &child)
			total += treeSum(child, name)
		}
	}
	return total
}
