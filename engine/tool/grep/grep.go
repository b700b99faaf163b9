// Package grep implements the tool Grep, which searches the contents of files.
package grep

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/glob"
	"github.com/parley-go/parley/engine/tool/search"
)

//go:embed grep.md
var description string

const schema = `{
	"type": "object",
	"additionalProperties": false,
	"properties": {
		"pattern": {"type": "string", "description": "The regular expression to search for"},
		"path": {"type": "string", "description": "The directory or file to search in; leave it out for the working directory"},
		"glob": {"type": "string", "description": "Search only files that match, such as *.js or *.{ts,tsx}; with ! before it, only others"},
		"type": {"type": "string", "description": "Search only files of a type, such as go, js, py, rust or java"},
		"output_mode": {"type": "string", "enum": ["content", "files_with_matches", "count"], "description": "What to return: lines, paths or numbers; default paths"},
		"-A": {"type": "integer", "minimum": 0, "description": "Lines to show after each match, with content"},
		"-B": {"type": "integer", "minimum": 0, "description": "Lines to show before each match, with content"},
		"-C": {"type": "integer", "minimum": 0, "description": "Lines to show before and after each match, with content"},
		"context": {"type": "integer", "minimum": 0, "description": "The same as -C"},
		"-n": {"type": "boolean", "description": "Show line numbers, with content; default true"},
		"-i": {"type": "boolean", "description": "Ignore case"},
		"-o": {"type": "boolean", "description": "Show only the parts that match, each on a line, with content"},
		"multiline": {"type": "boolean", "description": "Let the pattern match across lines"},
		"head_limit": {"type": "integer", "minimum": 0, "description": "How many lines or entries to return; default 250, 0 for all"},
		"offset": {"type": "integer", "minimum": 0, "description": "How many lines or entries to skip first"}
	},
	"required": ["pattern"]
}`

// Limits of a search.
const (
	defaultLimit = 250
	maxText      = 100_000 // bytes sent to the model
	maxKept      = 32 << 20
	maxLine      = 1000 // bytes of a line that are shown
	maxTime      = 60 * time.Second
)

// Tool is the tool Grep.
type Tool struct{ spec tool.Spec }

// New returns the tool.
func New() *Tool {
	return &Tool{spec: tool.Spec{Name: "Grep", Description: description, Schema: json.RawMessage(schema), ReadOnly: true}}
}

// Input is the input of the tool.
type Input struct {
	Pattern    string     `json:"pattern"`
	Path       string     `json:"path"`
	Glob       string     `json:"glob"`
	Type       string     `json:"type"`
	OutputMode string     `json:"output_mode"`
	After      tool.Int   `json:"-A"`
	Before     tool.Int   `json:"-B"`
	Around     tool.Int   `json:"-C"`
	Context    tool.Int   `json:"context"`
	Numbers    *tool.Bool `json:"-n"`
	IgnoreCase tool.Bool  `json:"-i"`
	OnlyMatch  tool.Bool  `json:"-o"`
	Multiline  tool.Bool  `json:"multiline"`
	HeadLimit  *tool.Int  `json:"head_limit"`
	Offset     tool.Int   `json:"offset"`
}

// Output is the structured result.
type Output struct {
	Mode          string   `json:"mode"`
	NumFiles      int      `json:"numFiles"`
	Filenames     []string `json:"filenames"`
	Content       *string  `json:"content,omitempty"`
	NumLines      *int     `json:"numLines,omitempty"`
	TotalLines    *int     `json:"totalLines,omitempty"`
	NumMatches    *int     `json:"numMatches,omitempty"`
	TotalFiles    *int     `json:"totalFiles,omitempty"`
	AppliedLimit  int      `json:"appliedLimit,omitempty"`
	AppliedOffset int      `json:"appliedOffset,omitempty"`
	TimedOut      bool     `json:"timedOut,omitempty"`
}

// Spec implements [tool.Tool].
func (t *Tool) Spec() *tool.Spec { return &t.spec }

// Absolute implements [tool.PathTool].
func (t *Tool) Absolute(env *tool.Env, input json.RawMessage) (json.RawMessage, error) {
	return files.Absolute(env, input, "path", glob.Where)
}

// Access returns a read of the file or directory.
func (t *Tool) Access(env *tool.Env, input json.RawMessage) ([]tool.Access, error) {
	return files.Access(env, input, tool.Read, func(in *Input) string { return glob.Where(env, in.Path) })
}

// A hit holds the matches in a file.
type hit struct {
	name  string
	time  int64
	count int      // number of matching lines
	lines []string // lines to show, if requested
	total int      // number of lines to show, kept or not
}

// Run runs the search.
func (t *Tool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	var in Input
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	if in.OutputMode == "" {
		in.OutputMode = "files_with_matches"
	}
	pattern, err := search.Compile(in.Pattern, bool(in.IgnoreCase), bool(in.Multiline))
	if err != nil {
		return nil, fmt.Errorf("%q is not a regular expression: %v. Put a backslash before characters that stand for themselves; there is no look-around.", in.Pattern, err)
	}
	filter := &search.Filter{Hidden: call.Env.Hidden}
	for _, g := range search.SplitGlobs(in.Glob) {
		if search.CheckGlob(g) != nil {
			return nil, tool.Misuse("%q is not a glob: a bracket or brace is not closed.", g)
		}
		filter.Globs = append(filter.Globs, g)
	}
	if in.Type != "" {
		if filter.Types = search.Types()[in.Type]; filter.Types == nil {
			return nil, fmt.Errorf("There is no file type %q. Use glob instead, such as *.%s.", in.Type, in.Type)
		}
	}
	s := &scan{in: &in, pattern: pattern, limit: defaultLimit}
	if in.HeadLimit != nil {
		s.limit = int(*in.HeadLimit)
	}
	path := glob.Where(call.Env, in.Path)
	bounded, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	if info, statErr := os.Stat(path); statErr == nil && !info.IsDir() {
		err = s.file(bounded, call, path)
	} else {
		err = s.tree(bounded, call, path, filter)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if s.timedOut = bounded.Err() != nil; s.timedOut && errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return s.result(), nil
}

// A scan is a search in progress.
type scan struct {
	in       *Input
	pattern  *search.Pattern
	limit    int
	single   bool // the path is a single file
	timedOut bool

	kept   atomic.Int64 // bytes of lines
	tooBig atomic.Int64 // number of files that were not searched
	mu     sync.Mutex
	hits   []*hit
}

// tree searches a directory.
func (s *scan) tree(ctx context.Context, call *tool.Call, dir string, filter *search.Filter) error {
	root, real, err := glob.Directory(call, dir)
	if err != nil {
		return err
	}
	defer root.Close()
	workers := search.Workers()
	searchers := make([]*search.Searcher, workers)
	for i := range searchers {
		searchers[i] = s.pattern.NewSearcher(ctx)
	}
	return search.Walk(ctx, root, real, filter, workers, func(worker int, f *search.File) {
		searcher := searchers[worker]
		data, text, tooBig := searcher.Read(f)
		if tooBig {
			s.tooBig.Add(1)
		}
		if !text {
			return
		}
		h := s.look(searcher, data, func() string { return glob.Shown(call.Env, dir, f.Path) })
		if h == nil {
			return
		}
		if s.in.OutputMode == "files_with_matches" {
			h.time, _ = f.ModTime()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hits = append(s.hits, h)
	})
}

// file searches one file.
func (s *scan) file(ctx context.Context, call *tool.Call, path string) error {
	s.single = true
	place, err := files.Open(call, path)
	if err != nil {
		return err
	}
	defer place.Close()
	data, _, err := place.ReadAll(search.MaxFile)
	if err != nil {
		return err
	}
	if data = search.Text(data); bytes.IndexByte(data, 0) >= 0 {
		return fmt.Errorf("%s is a binary file, which is not searched", path)
	}
	if h := s.look(s.pattern.NewSearcher(ctx), data, func() string { return glob.Shown(call.Env, filepath.Dir(path), filepath.Base(path)) }); h != nil {
		s.hits = append(s.hits, h)
	}
	return nil
}

// look searches the content of a file. It returns nil if there is no match.
func (s *scan) look(searcher *search.Searcher, data []byte, name func() string) *hit {
	start, end, ok := searcher.Next(data, 0)
	if !ok || bytes.IndexByte(data, 0) >= 0 { // or it is binary after all
		return nil
	}
	h := &hit{name: name(), count: 1}
	switch s.in.OutputMode {
	case "count":
		for {
			if _, end, ok = searcher.Next(data, end+1); !ok {
				return h
			}
			h.count++
		}
	case "content":
		h.count = 0
		v := s.view(h, searcher, data)
		for ok {
			v.match(start, end)
			h.count++
			start, end, ok = searcher.Next(data, end+1)
		}
		v.finish()
	}
	return h
}

// A view collects the lines of a file to show.
type view struct {
	s             *scan
	h             *hit
	searcher      *search.Searcher
	data          []byte
	before, after int
	numbers       bool
	prefix        string

	number  int // number of the line at offset counted
	counted int
	shown   int // end of the lines shown so far
	owed    int // context lines still to show after the last match
	any     bool
}

func (s *scan) view(h *hit, searcher *search.Searcher, data []byte) *view {
	around := max(s.in.Around, s.in.Context)
	v := &view{s: s, h: h, searcher: searcher, data: data, number: 1, before: int(s.in.Before), after: int(s.in.After), numbers: s.in.Numbers == nil || bool(*s.in.Numbers)}
	if v.before == 0 {
		v.before = int(around)
	}
	if v.after == 0 {
		v.after = int(around)
	}
	if s.in.OnlyMatch {
		v.before, v.after = 0, 0
	}
	if !s.single {
		v.prefix = h.name
	}
	return v
}

// match shows the lines of a match, with the context before it and the rest of the
// context after the previous one.
func (v *view) match(start, end int) {
	v.showUpTo(start)
	from := start
	for range v.before {
		if from <= v.shown || from == 0 {
			break
		}
		from = bytes.LastIndexByte(v.data[:from-1], '\n') + 1
	}
	from = max(from, v.shown)
	if v.any && from > v.shown && v.before+v.after > 0 {
		v.put("--")
	}
	v.lines(from, start, '-')
	if v.s.in.OnlyMatch {
		v.numberAt(start)
		for part := range v.searcher.Matches(v.data[start:end]) {
			v.line(part, ':')
		}
	} else {
		v.lines(start, end+1, ':')
	}
	v.shown = min(end+1, len(v.data))
	v.owed = v.after
	v.any = true
}

// showUpTo shows the pending context lines after a match, up to an offset.
func (v *view) showUpTo(until int) {
	for ; v.owed > 0 && v.shown < until; v.owed-- {
		end := bytes.IndexByte(v.data[v.shown:until], '\n')
		if end < 0 {
			end = until - v.shown
		}
		next := min(v.shown+end+1, until)
		v.lines(v.shown, next, '-')
		v.shown = next
	}
}

func (v *view) finish() { v.showUpTo(len(v.data)) }

// numberAt counts lines up to an offset.
func (v *view) numberAt(at int) {
	if v.numbers && at > v.counted {
		v.number += bytes.Count(v.data[v.counted:at], []byte("\n"))
		v.counted = at
	}
}

// lines shows whole lines.
func (v *view) lines(from, to int, sign byte) {
	for from < to && from < len(v.data) {
		end := len(v.data)
		if i := bytes.IndexByte(v.data[from:], '\n'); i >= 0 {
			end = from + i
		}
		v.numberAt(from)
		v.line(v.data[from:end], sign)
		from = end + 1
	}
}

// line shows a line.
func (v *view) line(text []byte, sign byte) {
	if v.full() {
		v.h.total++
		return
	}
	var b strings.Builder
	if v.prefix != "" {
		b.WriteString(v.prefix)
		b.WriteByte(sign)
	}
	if v.numbers {
		b.WriteString(strconv.Itoa(v.number))
		b.WriteByte(sign)
	}
	text = bytes.TrimSuffix(text, []byte("\r"))
	if len(text) > maxLine {
		b.WriteString(strings.ToValidUTF8(string(text[:maxLine]), ""))
		fmt.Fprintf(&b, "… [cut; the line has %s]", files.Size(int64(len(text))))
	} else {
		b.WriteString(strings.ToValidUTF8(string(text), "\ufffd"))
	}
	v.put(b.String())
}

// full reports whether no more lines of this file can be shown.
func (v *view) full() bool {
	return v.s.limit > 0 && len(v.h.lines) >= v.s.limit+int(v.s.in.Offset) || v.s.kept.Load() > maxKept
}

func (v *view) put(line string) {
	v.h.total++
	if !v.full() {
		v.h.lines = append(v.h.lines, line)
		v.s.kept.Add(int64(len(line)) + 16)
	}
}

// result formats the matches.
func (s *scan) result() *tool.Result {
	out := &Output{Mode: s.in.OutputMode, Filenames: []string{}, TimedOut: s.timedOut}
	var notes []string
	var said string
	slices.SortFunc(s.hits, func(a, b *hit) int {
		return cmp.Or(-cmp.Compare(a.time, b.time), cmp.Compare(a.name, b.name))
	})
	switch s.in.OutputMode {
	case "content":
		var lines []string
		total := 0
		separate := s.in.After+s.in.Before+s.in.Around+s.in.Context > 0 && !bool(s.in.OnlyMatch)
		for i, h := range s.hits {
			if i > 0 && separate {
				lines = append(lines, "--")
				total++
			}
			lines = append(lines, h.lines...)
			total += h.total
		}
		lines, notes = page(s, out, lines, total, "lines")
		content := strings.Join(lines, "\n")
		n := len(lines)
		out.Content, out.NumLines, out.TotalLines = &content, &n, &total
		said = content
		if total == 0 {
			said = "No matches found"
		}
	case "count":
		matches := 0
		var lines []string
		for _, h := range s.hits {
			matches += h.count
			if s.single {
				lines = append(lines, strconv.Itoa(h.count))
			} else {
				lines = append(lines, h.name+":"+strconv.Itoa(h.count))
			}
		}
		out.NumFiles = len(s.hits)
		lines, notes = page(s, out, lines, len(lines), "files")
		content := strings.Join(lines, "\n")
		out.Content, out.NumMatches = &content, &matches
		said = cmp.Or(content, "No matches found") + fmt.Sprintf("\n\nFound %d total %s across %d %s.", matches, plural(matches, "occurrence"), len(s.hits), plural(len(s.hits), "file"))
	default:
		var names []string
		for _, h := range s.hits {
			names = append(names, h.name)
		}
		total := len(names)
		names, notes = page(s, out, names, total, "files")
		out.Filenames = append(out.Filenames, names...)
		out.NumFiles, out.TotalFiles = len(names), &total
		said = "No files found"
		if total > 0 {
			said = fmt.Sprintf("Found %d %s\n%s", total, plural(total, "file"), strings.Join(names, "\n"))
		}
	}
	if n := s.tooBig.Load(); n > 0 {
		notes = append(notes, fmt.Sprintf("%d %s bigger than %s not searched.", n, plural(int(n), "file"), files.Size(search.MaxFile)))
	}
	if s.timedOut {
		notes = append(notes, fmt.Sprintf("The search was stopped after %v; there may be more. Use a narrower path.", maxTime))
	}
	if len(notes) > 0 {
		said += "\n\n(" + strings.Join(notes, " ") + ")"
	}
	return tool.Text(said, out)
}

// page returns the requested part of a list, with a note if there is more.
func page(s *scan, out *Output, list []string, total int, what string) ([]string, []string) {
	var notes []string
	skip := min(int(s.in.Offset), len(list))
	list = list[skip:]
	out.AppliedOffset = skip
	if s.limit > 0 && len(list) > s.limit {
		list = list[:s.limit]
		out.AppliedLimit = s.limit
	}
	size := 0
	for i, line := range list {
		if size += len(line) + 1; what == "lines" && size > maxText && i > 0 {
			list = list[:i]
			notes = append(notes, "The rest exceeds the size limit.")
			break
		}
	}
	if skip+len(list) < total && len(list) > 0 {
		out.AppliedLimit = s.limit
		notes = append(notes, fmt.Sprintf("These are %s %d to %d of %d. For more use offset %d.", what, skip+1, skip+len(list), total, skip+len(list)))
	}
	return list, notes
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
