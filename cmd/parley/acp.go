package main

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/acp"
	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/socket"
	"github.com/parley-go/parley/internal/spelling"
	"github.com/parley-go/parley/session"
)

const acpText = `
Serves the Agent Client Protocol over standard input and output, for editors: Zed, JetBrains,
Neovim, Emacs, VS Code and many others start it as their agent. All flags of the agent
work and apply to every session. Sessions are those of "parley sessions" and "parley attach".

With --unsaved, Read, Edit and Write see files as they are in the editor, which may not have saved them.
With --login it stores an API key, like "parley auth login": editors run it in a terminal.

docs/acp.md has the setup for each editor.`

// acpCommand implements parley acp.
func acpCommand(ctx context.Context, p *process, args []string) error {
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		newFlags(p, "acp", "[AGENT FLAGS]", acpText).help()
		return nil
	}
	if slices.Contains(args, "--login") { // editors append it to their arguments
		return login(p)
	}
	unsaved := slices.Contains(args, "--unsaved")
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--unsaved" })
	if _, err := agentFlags(args); err != nil {
		for _, a := range args {
			if like := spelling.Closest(a, []string{"--login", "--unsaved"}); like != "" {
				return usagef("unknown option '%s' (did you mean %s?)", a, like)
			}
		}
		return err
	}
	cfg, err := agentConfig(p)
	if err != nil {
		return err
	}
	defer exportTelemetry(ctx, p, &cfg, false)()
	args, env, keepSecrets := splitSecrets(p, append(slices.Clone(args), "--allow-dangerously-skip-permissions")) // let the user select this mode
	wall := sandbox.NewWall(sandbox.WallOptions{Expected: true})
	defer wall.Close()
	var own atomic.Bool // whether agents run in this process
	h, err := openHub(ctx, p, cfg, env, func(c *hub.Config, _ socket.Own) { keepSecrets(c); own.Store(true) })
	if err != nil {
		return err
	}
	defer h.Close()
	ctx, stop := untilSignal(ctx)
	defer stop()
	// Editors keep agents open that wait, some with many sessions. Until the first prompt has ended,
	// or there are more sessions, little garbage is collected: it would take a fifth of the processor
	// time of that prompt. Then it is collected more often, and the kernel gets its memory.
	lessGarbage := func() {}
	if p.getenv("GOGC") == "" {
		debug.SetGCPercent(400)
		lessGarbage = sync.OnceFunc(func() {
			debug.SetGCPercent(50)
			debug.FreeOSMemory()
		})
	}
	var sessions atomic.Int32
	opened := func() {
		if sessions.Add(1) > 4 { // not a start any more
			go lessGarbage()
		}
		if own.Load() {
			wall.Prepare() // for the first command, while people write their first prompt
		}
	}
	explainWait(p, "acp", "an editor")
	// A read of standard input cannot be woken, but one of a pipe can: so a signal ends the command
	// while the editor keeps its input open.
	in, feed := io.Pipe()
	go func() {
		_, err := io.Copy(feed, p.stdin)
		feed.CloseWithError(err)
	}()
	err = acp.Serve(ctx, acp.Config{
		Hub: h, Args: args, Unsaved: unsaved, Opened: opened, Idle: func() { lessGarbage(); releaseCode() },
		Sessions: &session.Files{Dir: cfg.ConfigDir()}, Name: "parley", Version: parley.Version, Login: []string{"--login"},
	}, in, p.stdout)
	if ctx.Err() != nil || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
