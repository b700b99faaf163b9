// Package glob implements the tool Glob, which finds files by name.
package glob

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/search"
)

//go:embed glob.md
var description string

const schema = `{
	"type": "object",
	"additionalProperties": false,
	"properties": {
		"pattern": {"type": "string", "minLength": 1, "description": "The glob that the files must match, such as **/*.go"},
		"path": {"type": "string", "description": "The directory to look in; leave it out for the working directory"}
	},
	"required": ["pattern"]
}`

// Limits of a search.
const (
	maxFiles = 100
	maxKept  = 10_000 // matches that are kept at a time
	maxTime  = 30 * time.Second
)

// Tool is the tool Glob.
type Tool struct{ spec tool.Spec }

// New returns the tool.
func New() *Tool {
	return &Tool{spec: tool.Spec{Name: "Glob", Description: description, Schema: json.RawMessage(schema), ReadOnly: true}}
}

// Input is the input of the tool.
type Input struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
}

// Output is the structured result.
type Output struct {
	Filenames       []string `json:"filenames"`
	DurationMS      int64    `json:"durationMs"`
	NumFiles        int      `json:"numFiles"`
	Truncated       bool     `json:"truncated"`
	TotalMatches    int      `json:"totalMatches"`
	CountIsComplete bool     `json:"countIsComplete"`
	TimedOut        bool     `json:"timedOut,omitempty"`
}

// Spec implements [tool.Tool].
func (t *Tool) Spec() *tool.Spec { return &t.spec }

// Absolute implements [tool.PathTool]. A pattern that leads out of the path becomes absolute,
// too, and the path becomes the directory that it leads to.
func (t *Tool) Absolute(env *tool.Env, input json.RawMessage) (json.RawMessage, error) {
	input, err := files.Absolute(env, input, "path", Where)
	if err != nil {
		return nil, err
	}
	var in Input
	if err := tool.Decode(input, &in); err != nil {
		return nil, err
	}
	pattern := filepath.ToSlash(in.Pattern)
	base, _ := doublestar.SplitPattern(pattern)
	if !filepath.IsAbs(filepath.FromSlash(pattern)) && !strings.HasPrefix(pattern, "~/") && !slices.Contains(strings.Split(base, "/"), "..") {
		return input, nil
	}
	dir, rest := in.where(env)
	if input, err = tool.SetMember(input, "pattern", strings.TrimSuffix(escape(filepath.ToSlash(dir)), "/")+"/"+strings.TrimPrefix(rest, "/")); err != nil {
		return nil, err
	}
	return tool.SetMember(input, "path", dir)
}

// escape returns a pattern that matches only the given path.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, "{", `\{`, "}", `\}`).Replace(path)
}

// Access returns a read of the directory.
func (t *Tool) Access(env *tool.Env, input json.RawMessage) ([]tool.Access, error) {
	var in Input
	if err := tool.Decode(input, &in); err != nil {
		return nil, err
	}
	dir, _ := in.where(env)
	return []tool.Access{{Kind: tool.Read, Path: dir}}, nil
}

// where returns the directory to search and the pattern in it.
func (in *Input) where(env *tool.Env) (dir, pattern string) {
	dir, pattern = Where(env, in.Path), filepath.ToSlash(in.Pattern)
	if env.Home != "" && strings.HasPrefix(pattern, "~/") {
		pattern = escape(path.Clean(filepath.ToSlash(env.Home))) + "/" + pattern[2:]
	}
	base, rest := doublestar.SplitPattern(pattern)
	if filepath.IsAbs(filepath.FromSlash(pattern)) {
		return filepath.Clean(filepath.FromSlash(base)), "/" + rest
	}
	if base != "." && !hasMeta(base) {
		// The rest applies to that directory, not to those below it.
		return filepath.Join(dir, filepath.FromSlash(base)), "/" + rest
	}
	return dir, strings.TrimPrefix(pattern, "./")
}

func hasMeta(s string) bool { return strings.ContainsAny(s, `*?[{\`) }

// Run finds the files.
func (t *Tool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	var in Input
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	start := time.Now()
	dir, pattern := in.where(call.Env)
	if search.CheckGlob(pattern) != nil {
		return nil, tool.Misuse("%q is not a glob: a bracket or brace is not closed. Put a backslash before one that stands for itself.", in.Pattern)
	}
	root, real, err := Directory(call, dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	bounded, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	type found struct {
		name string
		time int64
	}
	var mu sync.Mutex
	var all []found // at most as many as are shown, and some more
	total := 0
	byTime := func(a, b found) int { return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.name, b.name)) }
	filter := &search.Filter{Globs: []string{pattern}, Hidden: call.Env.Hidden}
	err = search.Walk(bounded, root, real, filter, search.Workers(), func(_ int, f *search.File) {
		at, _ := f.ModTime()
		mu.Lock()
		defer mu.Unlock()
		total++
		if all = append(all, found{f.Path, at}); len(all) >= maxKept {
			slices.SortFunc(all, byTime)
			all = slices.Delete(all, 0, len(all)-maxFiles)
		}
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	timedOut := errors.Is(err, context.DeadlineExceeded)
	if err != nil && !timedOut {
		return nil, err
	}
	slices.SortFunc(all, byTime)
	out := &Output{Filenames: []string{}, TotalMatches: total, CountIsComplete: !timedOut, TimedOut: timedOut, Truncated: total > maxFiles}
	for _, f := range all[max(0, len(all)-maxFiles):] {
		out.Filenames = append(out.Filenames, Shown(call.Env, dir, f.name))
	}
	out.NumFiles = len(out.Filenames)
	out.DurationMS = time.Since(start).Milliseconds()
	if len(all) == 0 {
		said := "No files found"
		if timedOut {
			said += fmt.Sprintf(" (The search was stopped after %v.)", maxTime)
		}
		return tool.Text(said, out), nil
	}
	said := strings.Join(out.Filenames, "\n")
	if out.Truncated {
		said += fmt.Sprintf("\n(These are the %d of %d that were changed last. Use a narrower pattern or path to see others.)", out.NumFiles, total)
	}
	if timedOut {
		said += fmt.Sprintf("\n(The search was stopped after %v; there may be more. Use a narrower path.)", maxTime)
	}
	return tool.Text(said, out), nil
}

// Where returns the directory or file to search: the working directory if the input names
// none.
func Where(env *tool.Env, path string) string {
	// Some models write these values instead of omitting the path.
	if path == "" || path == "undefined" || path == "null" {
		return env.Cwd()
	}
	return files.Named(env, path)
}

// Directory opens the directory to search, and returns its resolved path. The caller closes
// it.
func Directory(call *tool.Call, dir string) (*os.Root, string, error) {
	root, real, err := files.OpenDirectory(call, dir)
	switch {
	case err == nil:
		return root, real, nil
	case errors.Is(err, syscall.ENOTDIR):
		return nil, "", fmt.Errorf("%s is a file, not a directory.", dir)
	case errors.Is(err, fs.ErrNotExist):
		said := "Directory does not exist: " + dir + ". Note: your current working directory is " + call.Env.Cwd() + "."
		if place, err := files.Open(call, dir); err == nil {
			defer place.Close()
			if similar := place.Similar(); similar != "" {
				said += " Did you mean " + similar + "?"
			}
		}
		return nil, "", errors.New(said)
	}
	return nil, "", err
}

// Shown returns the path of a found file: relative to the working directory if it is below
// it, else absolute.
func Shown(env *tool.Env, dir, name string) string {
	full := filepath.Join(dir, filepath.FromSlash(name))
	if cwd := env.Cwd(); files.Within(cwd, full) {
		if rel, err := filepath.Rel(cwd, full); err == nil {
			return rel
		}
	}
	return full
}
