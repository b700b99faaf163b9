package engine

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/read"
	"github.com/parley-go/parley/engine/tool/search"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// This file handles requests of the host that are answered beside the conversation and do not
// become part of it.

//go:embed side_question.md
var sideQuestionNote string

//go:embed session_title.md
var sessionTitlePrompt string

// ErrReadDenied means that a file does not exist, or that reading it needs permission.
var ErrReadDenied = errors.New("read denied")

// ReadFile returns the first limit bytes of a file that the rules let the model read without
// asking for permission. It may be called from any goroutine but the owner's.
func (c *beside) ReadFile(path string, limit int64) (abs string, data []byte, truncated bool, err error) {
	if path == "" {
		return "", nil, false, ErrReadDenied
	}
	abs = files.Abs(c.env, path)
	access := []tool.Access{{Kind: tool.Read, Path: abs}}
	tl := read.New()
	input := mustJSON(map[string]string{"file_path": abs})
	resolved := files.Targets(c.env, access)
	d, _, over := c.runner.Decide(tl, input, access, resolved)
	target := resolved[abs]
	if over != nil || d.Behavior != wire.BehaviorAllow || c.env.Hidden != nil && c.env.Hidden(abs, &target) {
		return abs, nil, false, ErrReadDenied
	}
	place, err := files.Open(&tool.Call{ID: "read_" + session.NewID(), Input: input, Env: c.view.Load().Env, Resolved: resolved}, abs)
	if err != nil {
		return abs, nil, false, ErrReadDenied
	}
	defer place.Close()
	f, _, err := place.Read()
	if err != nil {
		return abs, nil, false, ErrReadDenied
	}
	defer f.Close()
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if int64(len(data)) > limit {
		data, truncated = data[:limit], true
	}
	return abs, data, truncated, err
}

// answerText returns the text of an answer.
func answerText(a *answer) string {
	var texts []string
	for _, b := range a.blocks {
		if b.kind == "text" {
			texts = append(texts, b.text.String())
		}
	}
	return strings.TrimSpace(strings.Join(texts, ""))
}

// maxSuggestWalk limits how long SuggestFiles searches for files.
const maxSuggestWalk = 2 * time.Second

// SuggestFiles returns up to limit files below the working directory whose paths contain the
// letters of a query, best match first. With an empty query it lists the working directory;
// directories end in a slash. Files that rules hide are left out. It may be called from any
// goroutine.
func (c *beside) SuggestFiles(ctx context.Context, query string, limit int) []string {
	real, err := files.Resolve(c.env.Cwd())
	if err != nil {
		return nil
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil
	}
	defer root.Close()
	query = strings.ToLower(strings.TrimPrefix(query, "./"))
	if query == "" {
		entries, _ := fs.ReadDir(root.FS(), ".")
		var names []string
		for _, e := range entries {
			name := e.Name()
			if c.env.Hidden != nil && c.env.Hidden(filepath.Join(real, name), nil) {
				continue
			}
			if e.IsDir() {
				name += "/"
			}
			names = append(names, name)
		}
		return names[:min(limit, len(names))]
	}
	type found struct {
		path  string
		score int
	}
	ctx, cancel := context.WithTimeout(ctx, maxSuggestWalk)
	defer cancel()
	var mu sync.Mutex
	var all []found
	search.Walk(ctx, root, real, &search.Filter{Hidden: c.env.Hidden}, 2, func(_ int, f *search.File) {
		if score := pathScore(strings.ToLower(f.Path), query); score > 0 {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, found{f.Path, score})
		}
	})
	slices.SortStableFunc(all, func(a, b found) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(len(a.path), len(b.path)), cmp.Compare(a.path, b.path))
	})
	var paths []string
	for _, f := range all[:min(limit, len(all))] {
		paths = append(paths, f.path)
	}
	return paths
}

// pathScore rates how well a path matches a query, both in lower case; 0 means no match.
func pathScore(path, query string) int {
	name := path[strings.LastIndexByte(path, '/')+1:]
	switch {
	case strings.HasPrefix(path, query), strings.HasPrefix(name, query):
		return 4
	case strings.Contains(name, query):
		return 3
	case strings.Contains(path, query):
		return 2
	}
	rest := query
	for _, r := range path {
		if first, size := utf8.DecodeRuneInString(rest); size > 0 && r == first {
			rest = rest[size:]
		}
	}
	if rest == "" {
		return 1
	}
	return 0
}
