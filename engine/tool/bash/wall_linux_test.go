package bash_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/bash"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

// A command that only proof allows runs behind the wall: it can read, changes nothing,
// and reports why it failed based on the kernel's reports and not on its output.
func TestReadWall(t *testing.T) {
	env := tooltest.Env(t)
	env.Environ = append(env.Environ, "SOME_TOKEN=hush")
	env.Wall = sandbox.NewWall(sandbox.WallOptions{Home: env.Home, Path: os.Getenv("PATH")})
	t.Cleanup(env.Wall.Close)
	if err := env.Wall.Ready(); err != nil {
		t.Skip(err)
	}
	root := env.Roots[0]
	if err := os.WriteFile(filepath.Join(root, "file"), []byte("text\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, ".env"), []byte("SECRET\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	env.HiddenPatterns = func() []string { return []string{"/**/.env"} }
	do := func(place tool.Place, command string) string {
		t.Helper()
		call := &tool.Call{ID: "toolu_1", Input: tooltest.Input(t, "command", command), Env: env, Place: place}
		r, err := bash.New(nil).Run(t.Context(), call)
		if err != nil {
			return err.Error()
		}
		return r.Content.String()
	}
	const note = "(Nobody approved the command"
	for _, c := range []struct {
		place   tool.Place
		command string
		want    string
		noted   bool
	}{
		{tool.ReadWall, "cat file; echo ${SOME_TOKEN-gone}", "text\ngone", false},
		{tool.ReadWall, "mkdir -p made", "Exit code 1", true},
		{tool.ReadWall, "cat .env", "Exit code 1", false},
		{tool.ReadWall, "echo 'Read-only file system'; exit 3", "Exit code 3", false},
		{tool.ReadWall, ": " + strings.Repeat("x", 200_000) + "; echo long", "long", false},
		{tool.Workspace, "echo more >> file && cat file", "text\nmore", false},
		{tool.Workspace, "echo x > " + filepath.Join(env.Home, "outside"), "Exit code 1", false},
		{tool.Anywhere, "touch made", "(Bash completed with no output)", false},
	} {
		got := do(c.place, c.command)
		if !strings.HasPrefix(got, c.want) || strings.Contains(got, note) != c.noted || strings.Contains(got, "SECRET") {
			t.Errorf("%.40s in %q: %q, want %q and a note: %v", c.command, c.place, got, c.want, c.noted)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "made")); err != nil {
		t.Error("a command that was approved is confined:", err)
	}
}

// The words of a listed command mean programs of the machine, even if the path leads into the
// project or the user has an alias.
func TestListedCommandRunsNothingOfTheProject(t *testing.T) {
	for name, dir := range map[string]string{"relative": ".", "inside": "$root", "empty": "", "link": "$link"} {
		env := tooltest.Env(t)
		root := env.Roots[0]
		link := filepath.Join(t.TempDir(), "bin")
		if err := os.Symlink(root, link); err != nil {
			t.Fatal(err)
		}
		dir = strings.NewReplacer("$root", root, "$link", link).Replace(dir)
		env.Environ = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + env.Home}
		if err := os.WriteFile(filepath.Join(root, "uname"), []byte("#!/bin/sh\necho pwned\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(env.Home, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(env.Home, ".bashrc"), []byte("alias nproc='echo aliased'\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		do := func(place tool.Place) string {
			t.Helper()
			r, err := bash.New(nil).Run(t.Context(), &tool.Call{ID: "toolu_1", Input: tooltest.Input(t, "command", "uname; nproc"), Env: env, Place: place})
			if err != nil {
				t.Fatal(err)
			}
			return r.Content.String()
		}
		if got := do(tool.Anywhere); !strings.HasPrefix(got, "pwned") {
			t.Errorf("%s: the control printed %q", name, got)
		}
		if got := do(tool.Listed); !strings.HasPrefix(got, "Linux\n") || strings.Contains(got, "aliased") {
			t.Errorf("%s: the listed command printed %q", name, got)
		}
	}
}

// A command behind the read wall leaves no process behind, whatever that does to hide.
func TestReadWallLeavesNoProcess(t *testing.T) {
	env := tooltest.Env(t)
	env.Wall = sandbox.NewWall(sandbox.WallOptions{Home: env.Home, Path: os.Getenv("PATH")})
	t.Cleanup(env.Wall.Close)
	if err := env.Wall.Ready(); err != nil {
		t.Skip(err)
	}
	const stays = "env -i bash -c 'echo $$; exec >/dev/null 2>&1 198>&-; sleep 1000; true'"
	for _, command := range []string{
		stays,
		"setsid " + stays + " 2>/dev/null || " + stays,
		"set -m; " + stays + " & :",
		"trap '' HUP TERM; (" + stays + " &)",
		"env -i perl -MPOSIX -e 'exit if fork; setsid; setpgrp; exit if fork; $| = 1; print \"$$\\n\"; POSIX::close($_) for 0 .. 300; sleep 1000'",
	} {
		command = "read -r p < <(" + command + "); echo $p" // it ends once the process runs
		call := &tool.Call{ID: "toolu_1", Input: tooltest.Input(t, "command", command), Env: env, Place: tool.ReadWall}
		r, err := bash.New(nil).Run(t.Context(), call)
		if err != nil {
			t.Fatal(err)
		}
		p, err := strconv.Atoi(strings.TrimSpace(r.Content.String()))
		if err != nil {
			t.Errorf("%s: %q is not the id of a process", command, r.Content.String())
			continue
		}
		if alive(p) {
			t.Errorf("%s: the process lives after the command", command)
			syscall.Kill(p, syscall.SIGKILL)
		}
	}
}
