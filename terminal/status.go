package terminal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/parley-go/parley/wire"
)

// statusLine returns the last line of the live region.
func (s *screen) statusLine(w int) string {
	if s.spare != "" {
		return s.t.paint(dim, clip(s.spare, w))
	}
	t := s.t
	var parts []string
	add := func(text string) {
		if text != "" {
			parts = append(parts, text)
		}
	}
	switch t.mode {
	case wire.ModeAcceptEdits:
		add("accepts edits")
	case wire.ModePlan:
		add("plan mode")
	case wire.ModeBypassPermissions:
		add("asks nothing")
	case "", wire.ModeDefault:
	default:
		add(Visible(string(t.mode)))
	}
	add(Visible(t.model))
	if t.tokens > 0 && t.window > 0 {
		add(fmt.Sprintf("context %d %%", min(100, t.tokens*100/t.window)))
	} else if t.tokens > 0 {
		add(fmt.Sprintf("context %s tokens", Grouped(t.tokens)))
	}
	switch {
	case !t.costOK:
		add("cost unknown")
	case t.cost > 0:
		add(fmt.Sprintf("$%.4f", t.cost))
	}
	if n := len(t.tasks); n > 0 {
		add(count(n, "task", "tasks") + " (/tasks)")
	}
	if s.opening {
		add("starting")
	}
	add(Visible(s.branch))
	if len(parts) == 0 {
		return ""
	}
	// On a narrow terminal, drop the last parts first.
	for len(parts) > 1 && columns(strings.Join(parts, " · ")) > w {
		parts = parts[:len(parts)-1]
	}
	return t.paint(dim, clip(strings.Join(parts, " · "), w))
}

// statusTime is the time limit of the status command.
const statusTime = 5 * time.Second

// runStatus runs the user's command for the status line. The command gets its data as
// JSON on its standard input, in the format of the official setting.
func (s *screen) runStatus() {
	if s.cfg.Status == "" {
		return
	}
	t := s.t
	id := ""
	if s.session != nil {
		id = s.session.ID()
	}
	in, _ := json.Marshal(map[string]any{
		"hook_event_name": "Status", "session_id": id, "cwd": s.cfg.Cwd, "version": s.cfg.Title,
		"model":          map[string]string{"id": t.model, "display_name": t.model},
		"workspace":      map[string]string{"current_dir": s.cfg.Cwd, "project_dir": s.cfg.Cwd},
		"cost":           map[string]float64{"total_cost_usd": t.cost},
		"context_window": map[string]int64{"total_input_tokens": t.tokens, "context_window_size": t.window},
	})
	command, cwd, env := s.cfg.Status, s.cfg.Cwd, s.cfg.Env
	s.async(func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, statusTime)
		defer cancel()
		cmd := shellCommand(ctx, command)
		cmd.Dir, cmd.Env, cmd.Stdin, cmd.WaitDelay = cwd, env, bytes.NewReader(in), time.Second
		out, err := cmd.Output()
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return func() {
			if err != nil {
				first = "statusLine: " + err.Error()
			}
			s.spare = Visible(stripEscapes(first))
		}
	})
}

// stripEscapes removes the styling escape sequences that status commands print.
func stripEscapes(text string) string {
	for {
		before, rest, ok := strings.Cut(text, "\x1b[")
		if !ok {
			return text
		}
		n := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' })
		if n < 0 {
			return before
		}
		text = before + rest[n+1:]
	}
}
