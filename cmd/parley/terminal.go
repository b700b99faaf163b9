package main

import (
	"context"
	"slices"
	"strings"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/terminal"
	"github.com/parley-go/parley/wire"
)

// runInTerminal answers one prompt for a person at a terminal. It returns the exit
// status.
func runInTerminal(ctx context.Context, p *process, cfg agent.Config, flags *cli.Flags, args []string) int {
	v := terminal.NewViewer(viewerConfig(p, cfg.Cwd))
	v.Begin()
	defer v.End()
	cfg.OnIndexing = nil // the screen shows it
	first := true
	out := &messageWriter{show: func(m wire.Message) {
		// A conversation that did not even start has printed the reason on standard
		// error.
		if r, ok := m.(*wire.Result); !first || !ok || !r.IsError {
			v.Show(m)
		}
		first = false
	}}
	args = withFlags(args, "--output-format=stream-json", "--verbose")
	if !shownByHooks(cfg, args) {
		args = withFlags(args, "--include-partial-messages")
	}
	return agent.Run(ctx, cfg, args, p.stdin, out, v.Beside(p.stderr))
}

// withFlags adds flags to a command line, before the first argument that is not a flag.
func withFlags(args []string, flags ...string) []string {
	for i, arg := range args {
		if arg == "--" {
			// It may be the value of a flag.
			if _, err := cli.Parse(args[:i]); err == nil {
				return slices.Concat(args[:i], flags, args[i:])
			}
		}
	}
	return slices.Concat(args, flags)
}

// A messageWriter splits what is written to it into lines and decodes them.
type messageWriter struct {
	rest []byte
	show func(wire.Message)
}

// Write implements [io.Writer].
func (w *messageWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		line, rest, ok := strings.Cut(string(w.rest), "\n")
		if !ok {
			return len(p), nil
		}
		w.rest = []byte(rest)
		m, err := wire.Decode([]byte(line))
		if err != nil {
			return len(p), err
		}
		w.show(m)
	}
}

// shownByHooks reports whether hooks determine how texts of the model are shown: then a
// text is shown when they have decided, and not while it arrives.
func shownByHooks(cfg agent.Config, args []string) bool {
	prefs, err := agent.ReadSettings(cfg, args...)
	return err == nil && slices.ContainsFunc(prefs.Hooks(), func(h settings.Hook) bool { return h.Event == wire.EventMessageDisplay })
}
