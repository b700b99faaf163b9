package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/terminal"
)

const trustHelp = `
The folder .claude and the file .mcp.json of a project can contain hooks, MCP servers,
environment variables, allow rules, modes, and commands and skills that run something.
They have no effect until you trust them. Deny rules of a project always apply.

"parley trust" shows them, asks you, and records their hashes in your config directory.
A hook or server is trusted together with the project files that its command line
names. When one of these changes, it needs trust again. Files that they run in turn
are not checked. A directory below a trusted one is a project of its own.

The last line is the digest of the content. A program that starts agents can trust
this content with --trust-project DIGEST or PARLEY_TRUST_PROJECT, and any content
with "all".`

// trust shows and records which parts of a project are trusted.
func trust(_ context.Context, p *process, args []string) error {
	fs := newFlags(p, "trust", "[DIR]", trustHelp)
	list := fs.Bool("list", false, "list the projects that are trusted")
	revoke := fs.Bool("revoke", false, "stop trusting the project")
	show := fs.Bool("show", false, "show the content, and record nothing")
	yes := fs.Bool("yes", false, "do not ask")
	if err := parse(fs, args); err != nil {
		return err
	}
	if fs.NArg() > 1 {
		return usagef("only one directory can be given; remove %q", fs.Arg(1))
	}
	cfg, err := agentConfig(p)
	if err != nil {
		return err
	}
	dir := cfg.ConfigDir()
	if dir == "" {
		return errors.New("no home directory to record it in; set HOME or CLAUDE_CONFIG_DIR")
	}
	store := &settings.Store{Dir: dir}
	if *list {
		return listTrust(p, store)
	}
	if fs.NArg() == 1 {
		if cfg.Cwd, err = filepath.Abs(fs.Arg(0)); err != nil {
			return err
		}
	}
	if *revoke {
		was, err := store.Revoke(cfg.Cwd)
		if err == nil && !was {
			err = fmt.Errorf("%s was not trusted; \"parley trust --list\" lists the projects that are", terminal.Visible(cfg.Cwd))
		}
		return err
	}
	if info, err := os.Stat(cfg.Cwd); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is not a directory; correct the path", terminal.Visible(cfg.Cwd))
	}
	if cfg.Cwd, err = filepath.EvalSymlinks(cfg.Cwd); err != nil {
		return err
	}
	cfg.SettingSources = []string{"project", "local"}
	cfg.Environ = slices.DeleteFunc(slices.Clone(cfg.Environ), func(kv string) bool { return strings.HasPrefix(kv, "PARLEY_TRUST_PROJECT=") })
	s, err := agent.ReadSettings(cfg)
	if err != nil {
		return err
	}
	files, err := s.ProjectFiles()
	if err != nil {
		return err
	}
	items := append(s.Brought(), files...)
	open := showTrust(p, cfg.Cwd, items)
	if digest, err := s.Digest(); err != nil {
		return err
	} else if len(items) > 0 {
		fmt.Fprintf(p.stdout, "\ndigest %s\n", digest)
	}
	if *show || open == 0 {
		return nil
	}
	if !*yes {
		if !isTerminal(p.stdin) {
			return usagef("the input is not a terminal, so nobody can confirm; use --yes to trust it, or --show to see it")
		}
		fmt.Fprintf(p.stdout, "\nTrust all of this? y = yes, anything else = no > ")
		line, _ := bufio.NewReader(p.stdin).ReadString('\n')
		if word := strings.ToLower(strings.TrimSpace(line)); word != "y" && word != "yes" {
			fmt.Fprintln(p.stdout, "Nothing was recorded.")
			return exitStatus(exitFailure)
		}
	}
	if err := store.Trust(cfg.Cwd, items, false); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "\n%s is trusted as it is now. \"parley trust --revoke\" revokes this.\n", terminal.Visible(cfg.Cwd))
	return nil
}

// showTrust shows everything in a project that needs trust, and returns how much of it
// is not trusted.
func showTrust(p *process, dir string, items []settings.Item) (open int) {
	if len(items) == 0 {
		fmt.Fprintf(p.stdout, "%s contains nothing that needs trust.\n", terminal.Visible(dir))
		return 0
	}
	for _, it := range items {
		state := "needs trust"
		switch {
		case it.Never:
			state = "never taken from a project"
		case it.Trusted:
			state = "trusted"
		default:
			open++
		}
		where := it.File
		if rel, err := filepath.Rel(dir, it.File); err == nil {
			where = rel
		}
		if it.Line > 0 {
			where = fmt.Sprintf("%s:%d", where, it.Line)
		}
		fmt.Fprintf(p.stdout, "%s %s (%s; %s)\n", it.Kind, terminal.Visible(it.Name), terminal.Visible(where), state)
		if it.Kind != "file" && it.Text != it.Name {
			fmt.Fprintf(p.stdout, "    %s\n", terminal.Visible(it.Text))
		}
	}
	return open
}

// listTrust lists the trusted projects.
func listTrust(p *process, store *settings.Store) error {
	all, err := store.Projects()
	if err != nil {
		return err
	}
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(p.stdout, "%s (%d items)\n", terminal.Visible(dir), len(all[dir].Items))
	}
	if len(all) == 0 {
		fmt.Fprintln(p.stdout, "No project is trusted.")
	}
	return nil
}
