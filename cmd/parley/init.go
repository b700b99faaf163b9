package main

import (
	"bytes"
	"context"
	_ "embed" // for the settings
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/parley-go/parley/terminal"
)

// settingsExplained is a settings file with comments. The written file leaves out
// the comments and the disabled lines.
//
//go:embed help/settings.jsonc
var settingsExplained []byte

const initHelp = `
Creates .claude/settings.json in this directory, or in DIR, with rules to start from.
Both parley and the claude command read it.

Settings are plain JSON, without comments. A second file, settings.jsonc, explains the
common settings. No program reads it; "parley help settings" prints it.

Existing files are kept unless you pass --force. Allow rules of a project apply after
you run "parley trust".`

// initCommand creates a settings file.
func initCommand(_ context.Context, p *process, args []string) error {
	fs := newFlags(p, "init", "[--user | --local] [--force] [DIR]", initHelp)
	user := fs.Bool("user", false, "create your own settings for all projects, in the config directory")
	local := fs.Bool("local", false, "create .claude/settings.local.json: your own, for this project")
	force := fs.Bool("force", false, "overwrite existing files")
	if err := parse(fs, args); err != nil {
		return err
	}
	switch {
	case fs.NArg() > 1:
		return usagef("only one directory can be given; remove %q", fs.Arg(1))
	case *user && *local:
		return usagef("--user and --local name different files; use one of them")
	case *user && fs.NArg() > 0:
		return usagef("--user applies to all directories; remove %q", fs.Arg(0))
	}
	dir, name := ".claude", "settings"
	if fs.NArg() == 1 {
		if info, err := os.Stat(fs.Arg(0)); err != nil || !info.IsDir() {
			return fmt.Errorf("%s is not a directory; create it, or correct the path", terminal.Visible(fs.Arg(0)))
		}
		dir = filepath.Join(fs.Arg(0), dir)
	}
	if *local {
		name = "settings.local"
	}
	if *user {
		cfg, err := agentConfig(p)
		if err != nil {
			return err
		}
		if dir = cfg.ConfigDir(); dir == "" {
			return errors.New("no home directory to create it in; set HOME or CLAUDE_CONFIG_DIR")
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	plain := filepath.Join(dir, name+".json")
	explained := filepath.Join(dir, name+".jsonc")
	if !*force {
		for _, file := range []string{plain, explained} {
			if _, err := os.Lstat(file); err == nil {
				return fmt.Errorf("%s exists already; --force overwrites it, and \"parley help settings\" lists all settings", terminal.Visible(file))
			}
		}
	}
	for file, data := range map[string][]byte{plain: withoutComments(settingsExplained), explained: settingsExplained} {
		if err := os.WriteFile(file, data, 0o666); err != nil {
			return err
		}
	}
	fmt.Fprintf(p.stdout, "%s has the settings that agents read.\n%s explains them to you.\n", terminal.Visible(plain), terminal.Visible(explained))
	if !*user {
		fmt.Fprintln(p.stdout, "Its deny rules apply at once. Its allow rules apply after you run: parley trust")
	}
	fmt.Fprintln(p.stdout, "Try a rule: parley policy explain Read '{\"file_path\":\".env\"}'")
	return nil
}

// withoutComments removes the lines that are comments.
func withoutComments(text []byte) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 && !bytes.HasPrefix(trimmed, []byte("//")) {
			out = append(out, line...)
		}
	}
	return out
}
