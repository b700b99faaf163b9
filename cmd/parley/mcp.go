package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/terminal"
)

const mcpSynopsis = "add | add-json | list | get | remove | login | logins | logout | serve"

const mcpText = `
  parley mcp add [FLAGS] NAME COMMAND-OR-URL [ARGS]    save a server
  parley mcp add-json NAME JSON                        save a server with this configuration
  parley mcp list                                      list the servers
  parley mcp get NAME                                  show one
  parley mcp remove NAME                               remove one
  parley mcp login NAME [AGENT FLAGS]                  log in to one, in your browser
  parley mcp logins                                    list saved logins
  parley mcp logout NAME                               revoke and remove a login
  parley mcp serve [AGENT FLAGS]                       be a server, with the built-in tools

parley mcp serve offers the agent's built-in tools (Read, Grep, Edit, Bash and the rest)
to any client of the Model Context Protocol, over standard input and output. It takes
the flags and settings of the agent, and the same rules and modes apply. Calls that need
an approval are denied, because nobody can answer.

  parley mcp serve                                   read files below this directory
  parley mcp serve --permission-mode acceptEdits     and change them
  parley mcp serve --tools Read Grep --allowedTools "Bash(git log:*)"

Configuration of a client:
  {"mcpServers":{"files":{"command":"parley","args":["mcp","serve"]}}}

parley mcp add saves a server where the agent and the official command find it. --scope
local (the default) is for you in this directory, user is for you everywhere, and project
writes .mcp.json, for everybody who works here. Other flags are --transport stdio, http,
sse or ws, --env NAME=VALUE and --header "NAME: VALUE". Without --transport, a URL means http
(or ws) and anything else is a command. Everything after -- belongs to the command of the server.

  parley mcp add files -- npx my-server --root .
  parley mcp add --header "X-Key: abc" web https://example.com/mcp
  parley mcp add-json files '{"command":"npx","args":["my-server"]}'

parley mcp login logs in to a server on the network. The login is saved in your config
directory, in a file that only you can read, and is sent only to that server at that
address.

"parley help flags" lists the flags of the agent. Those for models and sessions have no
effect here.`

// mcpCommand implements parley mcp.
func mcpCommand(ctx context.Context, p *process, args []string) error {
	isHelp := func(s string) bool { return s == "--help" || s == "-h" }
	if len(args) == 0 || isHelp(args[0]) || len(args) == 2 && isHelp(args[1]) {
		newFlags(p, "mcp", mcpSynopsis, mcpText).help()
		return nil
	}
	switch verb, rest := args[0], args[1:]; verb {
	case "serve":
		return mcpServe(ctx, p, rest)
	case "add", "add-json":
		return mcpAdd(p, verb, rest)
	case "list", "get", "remove":
		return mcpServers(p, verb, rest)
	case "login":
		if len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
			return usagef("usage: parley mcp login NAME [AGENT FLAGS]")
		}
		return mcpLogin(ctx, p, rest[0], rest[1:])
	case "logins":
		if len(rest) > 0 {
			return usagef("unexpected argument %q", rest[0])
		}
		return mcpLogins(p)
	case "logout":
		if len(rest) != 1 {
			return usagef("usage: parley mcp logout NAME; \"parley mcp logins\" lists the names")
		}
		return mcpLogout(ctx, p, rest[0])
	default:
		return unknownVerb(verb, "serve", "add", "add-json", "list", "get", "remove", "login", "logins", "logout")
	}
}

// openLogins returns the store of logins.
func openLogins(p *process) (*agent.Config, *mcp.Logins, error) {
	cfg, err := agentConfig(p)
	if err != nil {
		return nil, nil, err
	}
	logins := cfg.Logins()
	if logins == nil {
		return nil, nil, errors.New("no home directory to save logins in; set HOME or CLAUDE_CONFIG_DIR")
	}
	return &cfg, logins, nil
}

// mcpLogin logs in to a server.
func mcpLogin(ctx context.Context, p *process, name string, args []string) error {
	if _, err := agentFlags(args); err != nil {
		return err
	}
	cfg, _, err := openLogins(p)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	err = agent.AuthorizeServer(ctx, *cfg, args, name, func(address string) {
		fmt.Fprintf(p.stdout, "Open this address in your browser, on this machine, and log in there within ten minutes:\n\n%s\n\n", terminal.Visible(address))
	})
	var signal *cli.SignalError
	switch {
	case errors.As(err, &signal):
		return exitStatus(max(signal.Status, exitFailure))
	case err != nil:
		return err
	}
	fmt.Fprintf(p.stdout, "You are logged in to %s. \"parley mcp logout %s\" ends that.\n", terminal.Visible(name), terminal.Visible(name))
	return nil
}

// mcpLogins lists the stored logins.
func mcpLogins(p *process) error {
	_, logins, err := openLogins(p)
	if err != nil {
		return err
	}
	list, err := logins.List()
	if err != nil {
		return err
	}
	for _, k := range list {
		until := ""
		switch {
		case k.Refresh != "" || k.Expires.IsZero():
		case time.Now().After(k.Expires):
			until = " (expired)"
		default:
			until = " (until " + k.Expires.Local().Format(time.DateTime) + ")"
		}
		fmt.Fprintf(p.stdout, "%s at %s%s\n", terminal.Visible(k.Server), terminal.Visible(k.URL), until)
	}
	if len(list) == 0 {
		fmt.Fprintln(p.stdout, "No login is saved.")
	}
	return nil
}

// mcpLogout removes the logins to the servers with a name, and revokes their tokens.
func mcpLogout(ctx context.Context, p *process, name string) error {
	cfg, logins, err := openLogins(p)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	gone, err := logins.Forget(ctx, func(k *mcp.KeptLogin) bool { return k.Server == name })
	if err != nil {
		return err
	}
	if len(gone) == 0 {
		return fmt.Errorf("no saved login for a server named %s; \"parley mcp logins\" lists them", terminal.Visible(name))
	}
	for _, k := range gone {
		fmt.Fprintf(p.stdout, "Logged out of %s at %s.\n", terminal.Visible(k.Server), terminal.Visible(k.URL))
		if err := k.GiveBack(ctx, cfg.Environ); err != nil {
			fmt.Fprintf(p.stderr, "parley mcp: the tokens could not be revoked and may stay valid until they expire: %s\n", terminal.Visible(err.Error()))
		}
	}
	return nil
}

// mcpServe serves the built-in tools.
func mcpServe(ctx context.Context, p *process, args []string) error {
	if _, err := agentFlags(args); err != nil {
		return err
	}
	cfg, err := agentConfig(p)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	explainWait(p, "mcp serve", "an MCP client")
	server, end, err := agent.ToolServer(ctx, cfg, args, p.stderr)
	if err != nil {
		return err
	}
	defer end()
	err = parley.ServeMCP(ctx, server, p.stdin, p.stdout)
	var signal *cli.SignalError
	if errors.As(err, &signal) {
		return exitStatus(signal.Status)
	}
	return err
}

const rpcText = `
Runs the agent with JSON-RPC 2.0 over standard input and output, one message per line.
docs/rpc.md describes the methods.

  {"jsonrpc":"2.0","id":1,"method":"run","params":{"prompt":"Why is CI red?"}}
  {"jsonrpc":"2.0","id":2,"method":"interrupt"}

The response to "run" is the result of the turn. Messages before it arrive as "message"
notifications, whose params are the messages of the protocol. With
--permission-prompt-tool stdio, permission requests arrive as "can_use_tool" requests.

It accepts the flags of the agent: see "parley help flags".`

// rpcCommand implements parley rpc.
func rpcCommand(ctx context.Context, p *process, args []string) error {
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		newFlags(p, "rpc", "[AGENT FLAGS]", rpcText).help()
		return nil
	}
	if _, err := agentFlags(args); err != nil {
		return err
	}
	cfg, err := agentConfig(p)
	if err != nil {
		return err
	}
	defer exportTelemetry(ctx, p, &cfg, false)()
	ctx, stop := untilSignal(ctx)
	defer stop()
	explainWait(p, "rpc", "a program that speaks JSON-RPC")
	if code := agent.ServeRPC(ctx, cfg, args, p.stdin, p.stdout, p.stderr); code != 0 {
		return exitStatus(code)
	}
	return nil
}
