package project

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A GitRunner runs git in a directory and returns its output. The arguments prevent git
// from running anything else; the runner must not pass it any configuration but the
// repository's, and must limit its time and output.
type GitRunner func(ctx context.Context, dir string, args []string) ([]byte, error)

// Git describes the state of the repository for the model. It is empty if there is no
// repository or the project is not a source. Git itself runs only if nothing in the
// repository's own configuration could start a program: an untrusted repository is
// described only by the name of its branch. run may be nil.
func (c *Context) Git(ctx context.Context, run GitRunner) string {
	if !c.opts.Has(Project) {
		return ""
	}
	dir := filepath.Join(c.Root, ".git")
	info, err := os.Lstat(dir)
	if err != nil {
		return ""
	}
	if !info.IsDir() {
		return "The working directory is in a git repository whose data is elsewhere."
	}
	at := place{Project, c.Root}
	var b strings.Builder
	b.WriteString("The working directory is in a git repository. This is its state when the session began.\n")
	if head, err := readFile(at, filepath.Join(dir, "HEAD"), nil); err == nil {
		ref, ok := strings.CutPrefix(strings.TrimSpace(string(head)), "ref: refs/heads/")
		if ok {
			b.WriteString("\nBranch: " + clean(ref, 200))
		} else {
			b.WriteString("\nNo branch; the commit is " + clean(ref, 64))
		}
	}
	if main, err := readFile(at, filepath.Join(dir, "refs", "remotes", "origin", "HEAD"), nil); err == nil {
		if ref, ok := strings.CutPrefix(strings.TrimSpace(string(main)), "ref: refs/remotes/origin/"); ok {
			b.WriteString("\nMain branch: " + clean(ref, 200))
		}
	}
	config, err := readFile(at, filepath.Join(dir, "config"), nil)
	if err != nil || run == nil || !startsNothing(string(config)) {
		return b.String()
	}
	safe := []string{"--git-dir=" + dir, "--work-tree=" + c.Root, "-c", "core.fsmonitor=false", "-c", "core.hooksPath=" + os.DevNull,
		"-c", "core.attributesFile=" + os.DevNull, "-c", "core.pager=cat", "--no-optional-locks"}
	if out, err := run(ctx, c.Root, append(slices.Clone(safe), "status", "--porcelain", "--ignore-submodules=all", "--untracked-files=normal")); err == nil {
		status := firstLines(string(out), 60)
		if status == "" {
			status = "(clean)"
		}
		b.WriteString("\n\nStatus:\n" + status)
	}
	if out, err := run(ctx, c.Root, append(slices.Clone(safe), "log", "--oneline", "--no-color", "--no-decorate", "-n", "5")); err == nil {
		b.WriteString("\n\nLast commits:\n" + firstLines(string(out), 5))
	}
	return b.String()
}

// startsNothing reports whether everything in the configuration of a repository is
// known to start no program and to include no other file.
func startsNothing(config string) bool {
	harmless := map[string][]string{
		"core":   {"repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase", "symlinks", "precomposeunicode", "autocrlf", "eol", "quotepath", "protecthfs", "protectntfs"},
		"remote": {"url", "pushurl", "fetch", "tagopt", "prune"},
		"branch": {"remote", "merge", "rebase", "pushremote", "description"},
		"user":   {"name", "email"},
		"init":   {"defaultbranch"},
		"pull":   {"rebase", "ff"},
		"push":   {"default", "autosetupremote"},
		"color":  {"ui"},
	}
	section := ""
	for line := range strings.Lines(config) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if strings.HasSuffix(line, `\`) {
			return false // the line continues
		}
		if line[0] == '[' {
			if !strings.HasSuffix(line, "]") {
				return false
			}
			section, _, _ = strings.Cut(strings.Trim(line, "[]"), " ")
			section = strings.ToLower(strings.TrimSpace(section))
			if harmless[section] == nil {
				return false
			}
			continue
		}
		key, _, _ := strings.Cut(line, "=")
		if !slices.Contains(harmless[section], strings.ToLower(strings.TrimSpace(key))) {
			return false
		}
	}
	return true
}

// firstLines returns the first lines of an untrusted text, each of limited length.
func firstLines(text string, n int) string {
	var lines []string
	for line := range strings.Lines(text) {
		if len(lines) == n {
			lines = append(lines, "… and more")
			break
		}
		if line = clean(strings.ToValidUTF8(line, "\ufffd"), 200); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
