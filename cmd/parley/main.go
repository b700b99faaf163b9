// Command parley is the Claude Agent SDK protocol on the command line, both ends of the
// wire: without a subcommand it is the agent, and with one it is a tool to run, inspect
// and test agents.
//
//	parley fake-api --script greet.script -- python3 agent.py
//	parley help
//
// The command contains what a command line needs: arguments, the environment, progress
// for people and exit codes (0 for success, 1 for failure, 2 for wrong usage).
// Everything else is in the packages that it calls.
package main

import (
	"context"
	"io"
	"os"

	_ "github.com/parley-go/parley/internal/hugeheap" // for its effect
	"github.com/parley-go/parley/parleytest/peer"
)

func main() {
	// A fake CLI with grandchildren starts this program again.
	peer.RunIfChild()
	// Hide the environment, which holds the key, from other processes of the user, such
	// as commands that the agent runs.
	hideMemory()
	go releaseCode() // what only the start needed
	p := &process{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, env: os.Environ()}
	os.Exit(run(context.Background(), p, os.Args[1:]))
}

// A process is a command's access to the system. It does not catch signals: a command
// that handles them does so itself (see service.run).
type process struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	env    []string // "KEY=value"
}

// getenv returns a variable of the environment, or "" if it is not set.
func (p *process) getenv(name string) string {
	for i := len(p.env) - 1; i >= 0; i-- { // the last one counts
		if kv := p.env[i]; len(kv) > len(name) && kv[len(name)] == '=' && kv[:len(name)] == name {
			return kv[len(name)+1:]
		}
	}
	return ""
}
