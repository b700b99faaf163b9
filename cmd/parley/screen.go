package main

import (
	"fmt"
	"os"

	"github.com/parley-go/parley/terminal"
)

// viewerConfig returns the configuration of a viewer for standard output, which is plain if that is not a terminal.
func viewerConfig(p *process, cwd string) terminal.ViewerConfig {
	cfg := terminal.ViewerConfig{Output: p.stdout, Cwd: cwd}
	if isTerminal(p.stdout) {
		dumb := p.getenv("TERM") == "dumb"
		cfg.Live, cfg.Color = !dumb, !dumb && p.getenv("NO_COLOR") == ""
		cfg.Width = func() int {
			if w, ok := ttyWidth(p.stdout.(*os.File)); ok && w >= 20 {
				return w
			}
			return 80
		}
	}
	return cfg
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, ok = ttyWidth(f)
	return ok
}

// explainWait explains to a person who typed a command for other programs what it waits for.
func explainWait(p *process, name, who string) {
	if isTerminal(p.stdin) {
		fmt.Fprintf(p.stderr, "parley %s: waiting for %s on standard input. \"parley help %s\" explains its use; Ctrl-C ends it\n", name, who, firstWord(name))
	}
}

// The styles of text.
const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
	cyan  = "36"
)
