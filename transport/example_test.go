package transport_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/parley-go/parley/transport"
)

func ExamplePipe() {
	ctx := context.Background()
	host, agent := transport.Pipe()

	go func() { // the agent
		for lines := bufio.NewScanner(agent); lines.Scan(); {
			fmt.Fprintf(agent, "you said %s\n", lines.Text())
		}
		agent.Exit(0, "")
	}()

	fmt.Fprintln(host, "hello")
	line, err := bufio.NewReader(host).ReadString('\n')
	fmt.Print(line, err, "\n")

	fmt.Println(host.Close(ctx))
	exit, err := host.Wait(ctx)
	fmt.Println("status", exit.Code, "after", exit.Step, err)
	// Output:
	// you said hello
	// <nil>
	// <nil>
	// status 0 after end of input <nil>
}

// An agent in the same process is a dialer, too: it interprets the arguments of each connection as its flags.
func ExampleDialerFunc() {
	inProcess := transport.DialerFunc(func(_ context.Context, spec transport.Spec) (transport.Conn, error) {
		host, agent := transport.Pipe()
		go func() {
			fmt.Fprintln(agent, "flags", spec.Args())
			agent.Exit(0, "")
		}()
		return host, nil
	})

	conn, err := inProcess.Dial(context.Background(), transport.Spec{Words: []string{"--verbose"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(context.Background())
	line, _ := bufio.NewReader(conn).ReadString('\n')
	fmt.Print(line)
	// Output: flags [--verbose]
}

func ExampleFind() {
	_, err := transport.Find("", func(key string) string {
		return map[string]string{"CLAUDE_BIN": "/no/such/agent"}[key]
	})
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	fmt.Println(err)
	// Output:
	// true
	// transport: no agent executable found; looked at:
	//   CLAUDE_BIN=/no/such/agent
	// Install the claude or parley command, or name one: in the path option, or in the environment variable CLAUDE_BIN.
}

func ExampleEnvironment() {
	env := transport.Environment{
		Inherited: []string{"HOME=/home/ann", "NODE_OPTIONS=--inspect"},
		Additions: []string{"MCP_TOOL_TIMEOUT=30000"},
		Version:   "1.0.0",
	}
	for _, kv := range env.Environ() {
		fmt.Println(kv)
	}
	// Output:
	// CLAUDE_AGENT_SDK_VERSION=1.0.0
	// CLAUDE_CODE_ENTRYPOINT=sdk-go
	// HOME=/home/ann
	// MCP_TOOL_TIMEOUT=30000
}
