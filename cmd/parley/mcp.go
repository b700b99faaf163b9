package main

import (
	"context"
	"errors"
	"strings"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
)

const mcpSynopsis = "serve [AGENT FLAGS]"

const mcpText = `
Offers the agent's built-in tools (Read, Grep, Edit, Bash and the rest) to any client of
the Model Context Protocol, over standard input and output. The rules, modes and
settings that hold for the agent hold here, given with the same flags; nobody can be
asked, so what would be asked is denied.

  parley mcp serve                                   look at files below this directory
  parley mcp serve --permission-mode acceptEdits     and change them
  parley mcp serve --tools Read Grep --allowedTools "Bash(git log:*)"

A client starts it by a configuration such as
  {"mcpServers":{"files":{"command":"parley","args":["mcp","serve"]}}}

"parley help flags" has the flags. Those about models and sessions have no effect.`

// mcpCommand is parley mcp.
func mcpCommand(ctx context.Context, p *process, args []string) error {
	if len(args) == 0 || args[0] != "serve" {
		if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
			newFlags(p, "mcp", mcpSynopsis, mcpText).help()
			return nil
		}
		return usagef("there is no parley mcp %s, only parley mcp serve", args[0])
	}
	if len(args) == 2 && (args[1] == "--help" || args[1] == "-h") {
		newFlags(p, "mcp", mcpSynopsis, mcpText).help()
		return nil
	}
	flags, err := agent.ParseFlags(args[1:])
	if err != nil {
		return usagef("%s", withoutPrefix(err))
	}
	cfg, err := agentConfig(p)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	server, end, err := agent.ToolServer(ctx, cfg, flags, p.stderr)
	if err != nil {
		return errors.New(withoutPrefix(err))
	}
	defer end()
	err = parley.ServeMCP(ctx, server, p.stdin, p.stdout)
	var signal *agent.SignalError
	if errors.As(err, &signal) {
		return exitStatus(signal.Status)
	}
	return err
}

// withoutPrefix is the text of an error of the agent without the word that it begins
// with.
func withoutPrefix(err error) string {
	text := err.Error()
	for _, word := range []string{"Error: ", "error: "} {
		text = strings.TrimPrefix(text, word)
	}
	return text
}

const rpcText = `
The agent in another envelope: JSON-RPC 2.0 over standard input and output, a message a
line. docs/rpc.md has all of it.

  {"jsonrpc":"2.0","id":1,"method":"run","params":{"prompt":"Why is CI red?"}}
  {"jsonrpc":"2.0","id":2,"method":"interrupt"}

The response to run is the result of the turn. What happens before it are notifications
"message", whose params are the messages of the protocol. With
--permission-prompt-tool stdio questions about tools are requests "can_use_tool".

"parley help flags" has the flags of the agent, which are those of this command, too.`

// rpcCommand is parley rpc.
func rpcCommand(ctx context.Context, p *process, args []string) error {
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		newFlags(p, "rpc", "[AGENT FLAGS]", rpcText).help()
		return nil
	}
	cfg, err := agentConfig(p)
	if err != nil {
		return err
	}
	defer exportTelemetry(ctx, p, &cfg, false)()
	ctx, stop := untilSignal(ctx)
	defer stop()
	if code := agent.ServeRPC(ctx, cfg, args, p.stdin, p.stdout, p.stderr); code != 0 {
		return exitStatus(code)
	}
	return nil
}
