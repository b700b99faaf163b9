package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
)

// roleVar names the role that a program with [Role] plays.
const roleVar = "PARLEY_INTEROP_ROLE"

// Role makes the program play another one if its environment names one, and then does not
// return. A test binary that calls it first in TestMain can be
//
//   - "server", a small MCP server on standard input and output, which scenarios
//     start as ${exe};
//   - "tap", a CLI that runs another one and records what passes through.
func Role() {
	switch os.Getenv(roleVar) {
	case "":
		return
	case "server":
		server := mcp.NewServer(&mcp.Implementation{Name: "text"}, &mcp.ServerOptions{Instructions: "Turn texts around with reverse."})
		for _, t := range []*parley.Tool{reverse, ask} {
			t.AddTo(server)
		}
		if err := parley.ServeMCP(context.Background(), server, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "tap":
		os.Exit(tap(os.Getenv(tapCLI), os.Getenv(tapFile), os.Args[1:]))
	default:
		fmt.Fprintf(os.Stderr, "%s: unknown role\n", roleVar)
		os.Exit(2)
	}
}

// ask is a tool of the small MCP server that asks the user: it responds with a
// question, and is called again with the user's answer.
var ask = parley.NewTool("ask", "Asks the user.", func(ctx context.Context, in struct {
	Question string `json:"question"`
}) (*mcp.CallToolResult, error) {
	said, ok := parley.ToolRequest(ctx).Params.InputResponses["question"].(*mcp.ElicitResult)
	if !ok {
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"question": &mcp.ElicitParams{
			Message: in.Question,
			RequestedSchema: map[string]any{
				"type": "object", "properties": map[string]any{"answer": map[string]any{"type": "string"}}, "required": []string{"answer"},
			},
		}}}, nil
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(said.Content["answer"])}}}, nil
})

// reverse is another tool of the small MCP server.
var reverse = parley.NewTool("reverse", "Turns a text around.", func(_ context.Context, in struct {
	Text string `json:"text"`
}) (string, error) {
	r := []rune(in.Text)
	for i, j := 0, len(r)-1; i < j; i, j = i+1, j-1 {
		r[i], r[j] = r[j], r[i]
	}
	return string(r), nil
})

const (
	tapCLI  = "PARLEY_INTEROP_TAP_CLI"
	tapFile = "PARLEY_INTEROP_TAP_FILE"
)

// tapped is one line that passed through a tap.
type tapped struct {
	PID  int             `json:"pid"`  // of the tap
	From string          `json:"from"` // "host" or "cli"; "start" is the command line
	Line json.RawMessage `json:"line,omitzero"`
	Text string          `json:"text,omitzero"` // of a line that is not JSON
}

// readTap reads what taps wrote to a file. It leaves out processes that only printed
// their version.
func readTap(file string) ([]Process, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []*Process
	byPID := map[int]*Process{}
	var wrong error
	lines(bufio.NewReader(f), func(line string) {
		var t tapped
		if err := json.Unmarshal([]byte(line), &t); err != nil {
			wrong = err
			return
		}
		p := byPID[t.PID]
		switch t.From {
		case "start":
			p = &Process{}
			wrong = json.Unmarshal(t.Line, &p.Args)
			byPID[t.PID] = p
			if !slices.Contains(p.Args, "-v") {
				all = append(all, p)
			}
		case "host":
			p.Host = append(p.Host, t.Line)
		default:
			if t.Line == nil {
				p.Text = append(p.Text, t.Text)
			} else {
				p.CLI = append(p.CLI, t.Line)
			}
		}
	})
	processes := make([]Process, len(all))
	for i, p := range all {
		processes[i] = *p
	}
	return processes, wrong
}

// tap runs a CLI and writes all its input and output lines to a file.
func tap(cli, file string, args []string) int {
	log, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer log.Close()
	var mu sync.Mutex
	note := func(from string, line []byte) {
		t := tapped{PID: os.Getpid(), From: from}
		if json.Valid(line) {
			t.Line = line
		} else {
			t.Text = string(line)
		}
		data, err := json.Marshal(t)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		log.Write(append(data, '\n'))
	}

	start, err := json.Marshal(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	note("start", start)
	cmd := exec.Command(cli, args...)
	for _, kv := range os.Environ() {
		if name, _, _ := bytes.Cut([]byte(kv), []byte("=")); string(name) != roleVar && string(name) != tapCLI && string(name) != tapFile {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err == nil {
		var stdout io.ReadCloser
		if stdout, err = cmd.StdoutPipe(); err == nil {
			if err = cmd.Start(); err == nil {
				signals := make(chan os.Signal, 8)
				signal.Notify(signals, passed...)
				go func() {
					for s := range signals {
						cmd.Process.Signal(s)
					}
				}()
				go func() {
					defer stdin.Close()
					pass(os.Stdin, stdin, func(line []byte) { note("host", line) })
				}()
				pass(stdout, os.Stdout, func(line []byte) { note("cli", line) })
				cmd.Wait()
				return cmd.ProcessState.ExitCode()
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// pass copies lines and shows them to f first.
func pass(from io.Reader, to io.Writer, f func(line []byte)) {
	r := bufio.NewReaderSize(from, 1<<16)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 {
				f(trimmed)
			}
			if _, err := to.Write(line); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
