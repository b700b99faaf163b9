package main

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"slices"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/acp"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/socket"
	"github.com/parley-go/parley/session"
)

const acpText = `
Serves the Agent Client Protocol over standard input and output, for editors: Zed, JetBrains,
Neovim, Emacs, VS Code and many others start it as their agent. All flags of the agent
work and apply to every session. Sessions are those of "parley sessions" and "parley attach".

docs/acp.md has the setup for each editor.`

// acpCommand implements parley acp.
func acpCommand(ctx context.Context, p *process, args []string) error {
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		newFlags(p, "acp", "[AGENT FLAGS]", acpText).help()
		return nil
	}
	if _, err := agentFlags(args); err != nil {
		return err
	}
	if p.getenv("GOGC") == "" {
		debug.SetGCPercent(50) // editors keep many sessions open that wait: a tenth less memory for 100
	}
	cfg, err := agentConfig(p)
	if err != nil {
		return err
	}
	defer exportTelemetry(ctx, p, &cfg, false)()
	args, env, keepSecrets := splitSecrets(p, append(slices.Clone(args), "--allow-dangerously-skip-permissions")) // let the user select this mode
	h, err := openHub(ctx, p, cfg, env, func(c *hub.Config, _ socket.Own) { keepSecrets(c) })
	if err != nil {
		return err
	}
	defer h.Close()
	ctx, stop := untilSignal(ctx)
	defer stop()
	err = acp.Serve(ctx, acp.Config{
		Hub: h, Args: args,
		Sessions: &session.Files{Dir: cfg.ConfigDir()}, Name: "parley", Version: parley.Version,
	}, p.stdin, p.stdout)
	if ctx.Err() != nil || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
