package main

import (
	"context"
	"encoding/json"
	"io"
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
	s := newScreen(p, cfg.Cwd)
	s.begin()
	defer s.end()
	cfg.OnIndexing = nil // the screen shows it
	first := true
	out := &messageWriter{show: func(m wire.Message) {
		// A conversation that did not even start has printed the reason on standard
		// error.
		if r, ok := m.(*wire.Result); !first || !ok || !r.IsError {
			s.show(m)
		}
		first = false
	}}
	args = withFlags(args, "--output-format=stream-json", "--verbose")
	if !shownByHooks(cfg, args) {
		args = withFlags(args, "--include-partial-messages")
	}
	return agent.Run(ctx, cfg, args, p.stdin, out, &between{s, p.stderr})
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

// between writes to w without disturbing the indicator of a screen.
type between struct {
	s *screen
	w io.Writer
}

// Write implements [io.Writer].
func (b *between) Write(p []byte) (int, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.s.endLine()
	return b.w.Write(p)
}

// shownByHooks reports whether hooks determine how texts of the model are shown: then a
// text is shown when they have decided, and not while it arrives.
func shownByHooks(cfg agent.Config, args []string) bool {
	prefs, err := agent.ReadSettings(cfg, args...)
	return err == nil && slices.ContainsFunc(prefs.Hooks(), func(h settings.Hook) bool { return h.Event == wire.EventMessageDisplay })
}

// request shows what a tool is about to do: edits as a diff, everything else as its
// input.
func (s *screen) request(req *wire.CanUseTool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var in struct {
		FilePath  string  `json:"file_path"`
		OldString *string `json:"old_string"`
		NewString string  `json:"new_string"`
	}
	json.Unmarshal(req.Input, &in)
	title, body := "use "+terminal.Visible(req.ToolName), terminal.VisibleLines(string(req.Input))
	if in.OldString != nil {
		title, body = "edit "+terminal.Visible(s.relative(in.FilePath)), s.diff(*in.OldString, in.NewString)
	}
	s.section("ask")
	s.line(s.paint(yellow, "? ") + s.paint(bold, "May it "+title+"?"))
	for l := range strings.SplitSeq(strings.TrimRight(body, "\n"), "\n") {
		s.line("    " + l)
	}
	s.last = "tool" // the line of the call follows at once
}

// diff shows the lines that an edit removes and adds, with the unchanged lines around
// them.
func (s *screen) diff(before, after string) string {
	if strings.HasSuffix(before, "\n") && strings.HasSuffix(after, "\n") {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	a, b := strings.Split(terminal.VisibleLines(before), "\n"), strings.Split(terminal.VisibleLines(after), "\n")
	if before == "" {
		a = nil
	}
	if after == "" {
		b = nil
	}
	if n := len(b) - 1; len(a) == 0 && n > 0 && b[n] == "" {
		b = b[:n] // the new text ends its last line
	}
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var out []string
	add := func(look, sign string, lines []string) {
		for _, l := range lines {
			out = append(out, s.paint(look, sign+l))
		}
	}
	add(dim, "  ", a[:head])
	add(red, "- ", a[head:len(a)-tail])
	add(green, "+ ", b[head:len(b)-tail])
	add(dim, "  ", a[len(a)-tail:])
	return strings.Join(out, "\n")
}
