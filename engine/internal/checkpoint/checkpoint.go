// Package checkpoint records file contents before a conversation changes them, and
// restores them. Its records are in a separate log beside that of the session: each
// content once, by its hash, and which file had which content before and after a call.
//
// It reads and writes the given files and does not depend on tools, models or the
// protocol.
package checkpoint

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/session"
)

// Part is the part of a session that holds the records.
const Part = "checkpoints"

// Types of records.
const (
	typeMessage = "parley-checkpoint" // start of a user message
	typeBlob    = "parley-blob"       // a file's content
	typeBefore  = "parley-before"     // files before a call
	typeAfter   = "parley-after"      // files after a call
)

// Limits for the files of a directory that are compared before and after a command.
// Files beyond them are not covered, and a rewind reports that.
const (
	maxFiles = 5_000
	maxFile  = 1 << 20
	maxTotal = 64 << 20
)

// ErrNoCheckpoint means that there is no checkpoint for a message.
var ErrNoCheckpoint = errors.New("No file checkpoint found for this message.")

// A Keeper records the files of one conversation. It is safe for concurrent use.
type Keeper struct {
	// Append stores records durably. Load returns all of them.
	Append func(entries ...*session.Entry) error
	Load   func() ([]json.RawMessage, error)

	mu    sync.Mutex
	known map[string]bool    // contents that are recorded
	seen  map[string]sighted // files whose content is recorded
}

// A sighted is the state of a file when it was last read.
type sighted struct {
	size  int64
	mtime time.Time
	hash  string
}

// A version is the state of a file at some time. The hash is empty if the file did not
// exist.
type version struct {
	Path string `json:"path"`
	Hash string `json:"hash,omitempty"`
	Mode uint32 `json:"mode,omitempty"`
}

// Begin records that a user message is about to be answered.
func (k *Keeper) Begin(message string) error {
	return k.Append(entry(typeMessage, "messageId", message))
}

func entry(typ string, pairs ...any) *session.Entry {
	e := &session.Entry{Type: typ, Time: time.Now(), Fields: map[string]json.RawMessage{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		e.Fields[pairs[i].(string)], _ = json.Marshal(pairs[i+1])
	}
	return e
}

// Before records files before a call changes them: the named ones, or those below
// directories if the call may change any. Paths and directories must not contain
// symbolic links; a file behind one is not recorded. The caller calls after when the
// call has ended. A file that cannot be read is not recorded. A failed write is an
// error, and the call must not run.
func (k *Keeper) Before(call string, paths, dirs []string) (after func() error, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		k.known, k.seen = map[string]bool{}, map[string]sighted{}
	}
	before := map[string]version{}
	var entries []*session.Entry
	total := int64(0)
	covered := true
	keep := func(p *files.Place, most int64) {
		v, content, err := k.readVersion(p, most)
		if err != nil {
			covered = false
			return
		}
		before[v.Path] = v
		if v.Hash == "" || k.known[v.Hash] {
			return
		}
		if total += int64(len(content)); total > maxTotal {
			covered = false
			delete(before, v.Path)
			return
		}
		e, err := blob(v.Hash, content)
		if err != nil {
			covered = false
			delete(before, v.Path)
			return
		}
		k.known[v.Hash] = true
		entries = append(entries, e)
	}
	for _, path := range paths {
		if at(path, func(p *files.Place) error { keep(p, maxTotal); return nil }) != nil {
			covered = false
		}
	}
	if !visitFiles(dirs, func(p *files.Place) { keep(p, maxFile) }) {
		covered = false
	}
	if len(paths) > 0 || len(dirs) > 0 {
		named := make([]version, 0, len(paths))
		for _, p := range paths {
			if v, ok := before[p]; ok {
				named = append(named, v)
			}
		}
		entries = append(entries, entry(typeBefore, "toolUseId", call, "files", named, "any", len(dirs) > 0))
		if err := k.Append(entries...); err != nil {
			for _, e := range entries {
				var hash string
				json.Unmarshal(e.Fields["sha256"], &hash)
				delete(k.known, hash)
			}
			return nil, err
		}
	}
	return func() error { return k.after(call, before, dirs, covered) }, nil
}

// after records the changes of a call.
func (k *Keeper) after(call string, before map[string]version, dirs []string, covered bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := map[string]version{}
	failed := map[string]bool{}
	note := func(p *files.Place) {
		if v, _, err := k.readVersion(p, maxTotal); err == nil {
			now[p.Path] = v
		} else {
			failed[p.Path] = true
		}
	}
	covered = visitFiles(dirs, note) && covered
	for path := range before {
		if _, ok := now[path]; !ok && !failed[path] {
			at(path, func(p *files.Place) error { note(p); return nil })
		}
	}
	var was, is []version
	for _, path := range slices.Sorted(maps.Keys(now)) {
		old, ok := before[path]
		if !ok {
			if !covered {
				continue // it may have existed before
			}
			old = version{Path: path}
		}
		if v := now[path]; v.Hash != old.Hash || v.Mode != old.Mode {
			was, is = append(was, old), append(is, v)
		}
	}
	if len(was) == 0 && covered && len(dirs) == 0 {
		return nil
	}
	return k.Append(entry(typeAfter, "toolUseId", call, "before", was, "after", is, "covered", covered))
}

// at opens the place of a path and calls f with it.
func at(path string, f func(*files.Place) error) error {
	p, err := files.OpenReal(path)
	if err != nil {
		return err
	}
	defer p.Close()
	return f(p)
}

// readVersion returns the version of a file, and its content unless that is recorded.
func (k *Keeper) readVersion(p *files.Place, most int64) (version, []byte, error) {
	v := version{Path: p.Path}
	info, err := p.Stat()
	if errors.Is(err, fs.ErrNotExist) {
		return v, nil, nil
	}
	if err != nil {
		return v, nil, err
	}
	// A recently written file may change again without a new timestamp.
	if s, ok := k.seen[p.Path]; ok && s.size == info.Size() && s.mtime.Equal(info.ModTime()) && k.known[s.hash] && time.Since(s.mtime) > 2*time.Second {
		v.Mode, v.Hash = uint32(info.Mode().Perm()), s.hash
		return v, nil, nil
	}
	content, info, err := p.ReadAll(most)
	if err != nil {
		return v, nil, err
	}
	v.Mode, v.Hash = uint32(info.Mode().Perm()), hashOf(content)
	if k.seen == nil {
		k.seen = map[string]sighted{}
	}
	k.seen[p.Path] = sighted{info.Size(), info.ModTime(), v.Hash}
	return v, content, nil
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// skipped names directories that belong to git and package managers.
var skipped = []string{".git", "node_modules", ".hg", ".svn"}

// visitFiles calls f with the files below directories. It reports whether it visited all of
// them.
func visitFiles(dirs []string, f func(*files.Place)) bool {
	n, whole := 0, true
	for _, dir := range dirs {
		whole = files.Visit(dir, skipped, func(p *files.Place) bool {
			if n++; n > maxFiles {
				return false
			}
			f(p)
			return true
		}) && whole
	}
	return whole
}

func blob(hash string, content []byte) (*session.Entry, error) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return entry(typeBlob, "sha256", hash, "data", z.Bytes()), nil
}

// A Report describes the effect of a rewind.
type Report struct {
	Changed               []string // restored files
	Conflicts             []string // files that somebody else has changed since; they are left alone
	Skipped               []string // files outside of the working directories, or whose content was not recorded
	Links                 int      // number of files that have become symbolic links; they are left alone
	Insertions, Deletions int      // lines
	Uncovered             bool     // commands may have changed files that were not recorded
}

// Rewind restores files below the roots to their contents before a user message. The
// roots must not contain symbolic links. A file that somebody else has changed since is
// left alone, and so is one that is now behind a symbolic link. With dry nothing is
// written.
func (k *Keeper) Rewind(message string, roots []string, dry bool) (*Report, error) {
	records, err := k.Load()
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	target, last, edited, r, err := plan(records, message)
	if err != nil {
		return nil, err
	}
	var undone, done []version
	var entries []*session.Entry
	type write struct {
		from, to version
		content  []byte
	}
	var writes []write
	for _, path := range slices.Sorted(maps.Keys(target)) {
		want, expected := target[path], last[path]
		if filepath.Clean(path) != path || !slices.ContainsFunc(roots, func(root string) bool { return files.Within(root, path) }) {
			r.Skipped = append(r.Skipped, path)
			continue
		}
		var now version
		var content []byte
		err := at(path, func(p *files.Place) (err error) {
			if now, content, err = k.readVersion(p, maxTotal); err == nil && content == nil && now.Hash != "" {
				content, _, err = p.ReadAll(maxTotal)
			}
			return err
		})
		switch {
		case errors.Is(err, files.ErrMoved):
			r.Links++
			continue
		case err != nil:
			r.Conflicts = append(r.Conflicts, path)
			continue
		}
		if now.Hash == want.Hash && (now.Mode == want.Mode || now.Hash == "") {
			continue
		}
		if expected == nil || now.Hash != expected.Hash || edited[path] {
			r.Conflicts = append(r.Conflicts, path)
			continue
		}
		var old []byte
		if want.Hash != "" {
			if old, err = contentOf(records, want.Hash); err != nil {
				r.Skipped = append(r.Skipped, path)
				continue
			}
		}
		added, removed := countLines(string(content), string(old))
		r.Insertions += added
		r.Deletions += removed
		r.Changed = append(r.Changed, path)
		if dry {
			continue
		}
		if now.Hash != "" && !k.known[now.Hash] {
			if e, err := blob(now.Hash, content); err == nil {
				entries = append(entries, e)
			}
		}
		undone, done = append(undone, now), append(done, want)
		writes = append(writes, write{now, want, old})
	}
	if dry || len(writes) == 0 {
		return r, nil
	}
	// A rewind is recorded like any other change, so that it can be rewound, too.
	if err := k.Append(append(entries, entry(typeAfter, "before", undone, "after", done, "covered", true))...); err != nil {
		return nil, err
	}
	for _, w := range writes {
		if err := at(w.to.Path, func(p *files.Place) error { return writeVersion(p, w.from, w.to, w.content) }); err != nil {
			return r, fmt.Errorf("%s could not be put back: %w", w.to.Path, err)
		}
	}
	return r, nil
}

// plan returns the versions of files before a message, the versions after the last
// call, and which files somebody else changed in between.
func plan(records []json.RawMessage, message string) (target map[string]version, last map[string]*version, edited map[string]bool, r *Report, err error) {
	target, last, edited, r = map[string]version{}, map[string]*version{}, map[string]bool{}, &Report{}
	found := false
	running := map[string]bool{} // commands whose changes are unknown
	for _, raw := range records {
		var rec struct {
			Type          string    `json:"type"`
			MessageID     string    `json:"messageId"`
			ToolUseID     string    `json:"toolUseId"`
			Any           bool      `json:"any"`
			Files         []version `json:"files"`
			Before, After []version
			Covered       *bool
		}
		if bytes.Contains(raw[:min(len(raw), 64)], []byte(typeBlob)) || json.Unmarshal(raw, &rec) != nil {
			continue
		}
		if rec.Type == typeMessage && rec.MessageID == message {
			found = true
			continue
		}
		if !found {
			continue
		}
		switch rec.Type {
		case typeBefore: // the version after the call is known if there is an after record
			if rec.Any {
				running[rec.ToolUseID] = true
			}
			for _, v := range rec.Files {
				if l := last[v.Path]; l != nil && l.Hash != v.Hash {
					edited[v.Path] = true
				}
				if _, ok := target[v.Path]; !ok {
					target[v.Path] = v
				}
				last[v.Path] = &v
			}
		case typeAfter:
			delete(running, rec.ToolUseID)
			r.Uncovered = r.Uncovered || rec.Covered != nil && !*rec.Covered
			for i, v := range rec.Before {
				if l := last[v.Path]; l != nil && l.Hash != v.Hash {
					edited[v.Path] = true
				}
				if _, ok := target[v.Path]; !ok {
					target[v.Path] = v
				}
				if i < len(rec.After) {
					last[v.Path] = &rec.After[i]
				}
			}
		}
	}
	r.Uncovered = r.Uncovered || len(running) > 0
	if !found || message == "" {
		return nil, nil, nil, nil, ErrNoCheckpoint
	}
	for path := range target {
		if !filepath.IsAbs(path) {
			delete(target, path)
		}
	}
	return target, last, edited, r, nil
}

// contentOf finds a content by its hash.
func contentOf(records []json.RawMessage, hash string) ([]byte, error) {
	for _, raw := range records {
		if !bytes.Contains(raw, []byte(hash)) {
			continue
		}
		var rec struct {
			Type, Sha256 string
			Data         []byte
		}
		if json.Unmarshal(raw, &rec) != nil || rec.Type != typeBlob || rec.Sha256 != hash {
			continue
		}
		z, err := gzip.NewReader(bytes.NewReader(rec.Data))
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(io.LimitReader(z, maxTotal+1))
		if err != nil {
			return nil, err
		}
		if hashOf(content) != hash {
			return nil, errors.New("the content is not what it was")
		}
		return content, nil
	}
	return nil, errors.New("the content was not kept")
}

// writeVersion writes a version of a file atomically, if the file is still in the expected
// version.
func writeVersion(p *files.Place, from, to version, content []byte) error {
	data, before, err := p.ReadAll(maxTotal)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		before = nil
	case err != nil:
		return err
	}
	if before == nil && from.Hash != "" || before != nil && hashOf(data) != from.Hash {
		return errors.New("somebody else changed it meanwhile")
	}
	switch {
	case to.Hash != "":
		return p.ReplaceMode(content, before, fs.FileMode(to.Mode).Perm())
	case before != nil:
		return p.Remove(before)
	}
	return nil
}

// countLines counts the lines that a change adds and removes.
func countLines(from, to string) (added, removed int) {
	for _, h := range files.Patch(from, to) {
		for _, line := range h.Lines {
			switch {
			case strings.HasPrefix(line, "+"):
				added++
			case strings.HasPrefix(line, "-"):
				removed++
			}
		}
	}
	return added, removed
}
