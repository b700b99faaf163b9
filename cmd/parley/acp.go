package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/acp"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
)

const acpText = `
Serves the Agent Client Protocol over standard input and output, for editors: Zed, JetBrains,
Neovim, Emacs, VS Code and many others start it as their agent. All flags of the agent work:
they hold for every session. Sessions are those of "parley sessions" and "parley attach".

docs/acp.md says how to set each editor up.`

// acpCommand is parley acp.
func acpCommand(ctx context.Context, p *process, args []string) error {
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		newFlags(p, "acp", "[AGENT FLAGS]", acpText).help()
		return nil
	}
	if _, err := agent.ParseFlags(args); err != nil {
		return err
	}
	cfg, err := agentConfig(p)
	if err != nil {
		return err
	}
	dir, err := hubDir(&cfg)
	if err != nil {
		return err
	}
	defer exportTelemetry(ctx, p, &cfg, false)()
	clients := new(acp.Clients)
	sessions := &session.Files{Dir: cfg.ConfigDir()}
	h, err := hub.New(hub.Config{
		Backend: &hub.Files{Dir: dir}, Sessions: sessions, Name: fmt.Sprintf("acp %d", os.Getpid()), Describe: describeCall,
		Logger: slog.New(slog.NewTextHandler(p.stderr, nil)),
		Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
			dialer := agent.InProcess(cfg)
			opts := &parley.Options{Cwd: start.Cwd, KeepSystemPrompt: true, AllowBypass: true, Dialer: transport.DialerFunc(func(ctx context.Context, s transport.Spec) (transport.Conn, error) {
				s.Args = append(slices.Clone(args), s.Args...)
				return dialer.Dial(ctx, s)
			})}
			clients.Apply(start.ID, opts)
			return opts, nil
		},
	})
	if err != nil {
		return err
	}
	defer h.Close()
	ctx, stop := untilSignal(ctx)
	defer stop()
	err = acp.Serve(ctx, acp.Config{Hub: h, Sessions: sessions, Clients: clients, Name: "parley", Version: parley.Version}, p.stdin, p.stdout)
	if ctx.Err() != nil || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
