package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/terminal"
)

// schedulesCommand lists, adds and removes schedules.
func schedulesCommand(ctx context.Context, p *process, args []string) error {
	fs := newFlags(p, "schedules", "[--json] | add (--cron EXPRESSION | --in DURATION) ID PROMPT | rm SCHEDULE", `
Lists, adds and removes schedules: prompts that the hub sends to a session by a cron expression of
five fields, or once. They run while nobody is attached, and survive a restart of the hub. Times missed
while no hub was running are reported with the next prompt; a one-time prompt is sent late.`)
	asJSON := fs.Bool("json", false, "print JSON")
	cron := fs.String("cron", "", "send the prompt by this `expression`, such as \"0 9 * * 1-5\"")
	in := fs.Duration("in", 0, "send the prompt once, after this `duration`, such as 90m")
	words, err := parseWords(fs, args)
	if err != nil {
		return err
	}
	c, _, err := joinHub(ctx, p, true)
	if err != nil {
		return err
	}
	defer c.Close()
	switch {
	case len(words) == 0:
		return listSchedules(ctx, p, c, *asJSON)
	case words[0] == "rm" && len(words) == 2:
		all, err := c.Schedules(ctx, "")
		if err != nil {
			return err
		}
		id, err := oneOf("schedule", "schedules", words[1], all, func(x hub.Schedule) string { return x.ID })
		if err != nil {
			return err
		}
		return c.Unschedule(ctx, id)
	case words[0] == "add" && len(words) >= 3 && (*cron == "") != (*in <= 0):
		id, err := sessionArg(ctx, c, words[1])
		if err != nil {
			return err
		}
		x := hub.Schedule{Session: id, Prompt: strings.Join(words[2:], " "), Cron: *cron}
		if *in > 0 {
			x.At = time.Now().Add(*in)
		}
		made, err := c.Schedule(ctx, x)
		if err != nil {
			return err
		}
		fmt.Fprintln(p.stdout, made)
		return nil
	}
	return usagef("usage: parley schedules add --cron \"0 9 * * 1-5\" ID PROMPT, or parley schedules rm SCHEDULE")
}

func listSchedules(ctx context.Context, p *process, c hub.Client, asJSON bool) error {
	all, err := c.Schedules(ctx, "")
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(p.stdout).Encode(all)
	}
	if len(all) == 0 {
		fmt.Fprintln(p.stderr, "No schedules. \"parley help schedules\" shows how to add one.")
	}
	w := tabwriter.NewWriter(p.stdout, 0, 4, 2, ' ', 0)
	for _, x := range all {
		when := cmp.Or(x.Cron, x.At.Local().Format("2006-01-02 15:04"))
		if x.Missed > 0 {
			when += fmt.Sprintf(" (%d missed)", x.Missed)
		}
		fmt.Fprintf(w, "%.8s\t%.8s\t%s\t%s\n", x.ID, x.Session, when, terminal.Visible(x.Prompt))
	}
	return w.Flush()
}

// oneOf returns the only id that starts with a word. The command list shows the ids.
func oneOf[T any](what, list, word string, all []T, id func(T) string) (string, error) {
	var found []string
	for _, x := range all {
		if strings.HasPrefix(id(x), word) {
			found = append(found, id(x))
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("no %s has an id that starts with %q; \"parley %s\" lists them", what, word, list)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d %ss have an id that starts with %q; add more of it", len(found), what, word)
}

// worktreesCommand lists, merges and removes the worktrees of sessions.
func worktreesCommand(ctx context.Context, p *process, args []string) error {
	fs := newFlags(p, "worktrees", "[--json] | merge ID | rm [--force] ID", `
Lists, merges and removes the git worktrees of sessions, which "parley --bg --worktree NAME PROMPT"
makes. ID is the session. "merge" needs all changes committed, and changes nothing if the branches
conflict. "rm" refuses to lose changes without --force.`)
	asJSON := fs.Bool("json", false, "print JSON")
	force := fs.Bool("force", false, "remove it with its changes")
	words, err := parseWords(fs, args)
	if err != nil {
		return err
	}
	c, _, err := joinHub(ctx, p, true)
	if err != nil {
		return err
	}
	defer c.Close()
	if len(words) == 2 && (words[0] == "merge" || words[0] == "rm") {
		id, err := sessionArg(ctx, c, words[1])
		if err != nil {
			return err
		}
		if words[0] == "merge" {
			return c.MergeWorktree(ctx, id)
		}
		return c.RemoveWorktree(ctx, id, *force)
	}
	if len(words) > 0 {
		return usagef("usage: parley worktrees merge ID, or parley worktrees rm [--force] ID")
	}
	all, err := c.Worktrees(ctx)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(p.stdout).Encode(all)
	}
	if len(all) == 0 {
		fmt.Fprintln(p.stderr, "No worktrees. \"parley --bg --worktree NAME PROMPT\" makes one.")
	}
	w := tabwriter.NewWriter(p.stdout, 0, 4, 2, ' ', 0)
	for _, t := range all {
		state := cmp.Or(t.Problem, fmt.Sprintf("%d files not committed, %d commits not merged", t.Files, t.Commits))
		fmt.Fprintf(w, "%.8s\t%s\t%s\t%s\n", t.Session, t.Branch, t.Dir, terminal.Visible(state))
	}
	return w.Flush()
}
