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
	fs := newFlags(p, "schedules", "list [--json] | add (--cron EXPRESSION | --in DURATION) ID PROMPT | rm SCHEDULE", `
Lists, adds and removes schedules: prompts that the hub sends to a session by a cron expression of
five fields, or once. They run while nobody is attached, and survive a restart of the hub. Times missed
while no hub was running are reported with the next prompt; a one-time prompt is sent late.`)
	asJSON := fs.Bool("json", false, "print JSON")
	cron := fs.String("cron", "", "send the prompt by this `EXPRESSION`, such as \"0 9 * * 1-5\"")
	in := fs.Duration("in", 0, "send the prompt once, after this `DURATION`, such as 90m")
	words, err := parseWords(fs, args)
	if err != nil {
		return err
	}
	verb, words := listOr(words)
	switch {
	case verb == "list" && len(words) == 0, verb == "rm" && len(words) == 1, verb == "add" && len(words) >= 2 && (*cron == "") != (*in <= 0):
	case verb == "list" || verb == "rm" || verb == "add":
		return usagef("usage: parley schedules add --cron \"0 9 * * 1-5\" ID PROMPT, parley schedules add --in 90m ID PROMPT, or parley schedules rm SCHEDULE")
	default:
		return unknownVerb(verb, "list", "add", "rm")
	}
	c, _, err := joinHub(ctx, p, true)
	if err != nil {
		return err
	}
	defer c.Close()
	switch verb {
	case "rm":
		all, err := c.Schedules(ctx, "")
		if err != nil {
			return err
		}
		id, err := oneOf("schedule", "schedules", words[0], all, func(x hub.Schedule) string { return x.ID })
		if err != nil {
			return err
		}
		return c.Unschedule(ctx, id)
	case "add":
		id, err := sessionArg(ctx, c, words[0])
		if err != nil {
			return err
		}
		x := hub.Schedule{Session: id, Prompt: strings.Join(words[1:], " "), Cron: *cron}
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
	return listSchedules(ctx, p, c, *asJSON)
}

// listOr returns the subcommand, which is list if there are no words, and its arguments.
func listOr(words []string) (verb string, rest []string) {
	if len(words) == 0 {
		return "list", nil
	}
	return words[0], words[1:]
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
	fs := newFlags(p, "worktrees", "list [--json] | merge ID | rm [--force] ID", `
Lists, merges and removes the git worktrees of sessions, which "parley --bg --worktree NAME PROMPT"
makes. ID is the session. "merge" needs all changes committed, and changes nothing if the branches
conflict. "rm" refuses to lose changes without --force.`)
	asJSON := fs.Bool("json", false, "print JSON")
	force := fs.Bool("force", false, "remove it with its changes")
	words, err := parseWords(fs, args)
	if err != nil {
		return err
	}
	verb, words := listOr(words)
	switch {
	case verb == "list" && len(words) == 0, (verb == "merge" || verb == "rm") && len(words) == 1:
	case verb == "list" || verb == "merge" || verb == "rm":
		return usagef("usage: parley worktrees merge ID, or parley worktrees rm [--force] ID")
	default:
		return unknownVerb(verb, "list", "merge", "rm")
	}
	c, _, err := joinHub(ctx, p, true)
	if err != nil {
		return err
	}
	defer c.Close()
	if verb != "list" {
		id, err := sessionArg(ctx, c, words[0])
		if err != nil {
			return err
		}
		if verb == "merge" {
			return c.MergeWorktree(ctx, id)
		}
		return c.RemoveWorktree(ctx, id, *force)
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
		fmt.Fprintf(w, "%.8s\t%s\t%s\t%s\n", t.Session, terminal.Visible(t.Branch), terminal.Visible(t.Dir), terminal.Visible(state))
	}
	return w.Flush()
}
