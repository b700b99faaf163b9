package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-go/parley/internal/durable"
)

// metaType is the type of the record with the metadata of a subagent. In files it is a
// separate file beside the log, as in other programs.
const metaType = "agent_metadata"

// metaSuffix is the suffix of that file.
const metaSuffix = ".meta.json"

// fileName returns the file of a log, relative to the projects directory.
func (k Key) fileName() string { return k.String() + suffix }

// isObject reports whether a record is one JSON object.
func isObject(record json.RawMessage) bool {
	v := jsontext.Value(record)
	return v.IsValid(lenient...) && v.Kind() == '{'
}

// appendLine appends a record as a line.
func appendLine(dst []byte, record json.RawMessage) ([]byte, error) {
	v := jsontext.Value(record)
	if !isObject(record) {
		return nil, errNoObject
	}
	if bytes.ContainsAny(v, "\n\r") {
		v = v.Clone()
		if err := v.Compact(lenient...); err != nil {
			return nil, err
		}
	}
	return append(append(dst, bytes.TrimSpace(v)...), '\n'), nil
}

// Append implements [Store]. It reads the log to find the records that it contains.
func (f *Files) Append(ctx context.Context, key Key, records []json.RawMessage) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := key.Check(); err != nil {
		return err
	}
	if err := CheckRecords(records); err != nil || len(records) == 0 {
		return err
	}
	root, err := f.root(true)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := f.plain(root, key.Project, key.Session); err != nil {
		return err
	}
	if err := root.MkdirAll(path.Dir(key.fileName()), dirMode); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	if key.Sub != "" {
		if records, err = f.splitMeta(root, key, records); err != nil || len(records) == 0 {
			return err
		}
	}
	file, err := root.OpenFile(key.fileName(), os.O_RDWR|os.O_APPEND|os.O_CREATE|nonblock, fileMode)
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("session: %s is not a file", key.fileName())
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	log := f.newLog(place{project: key.Project, id: key.Session}, file, Meta{ID: key.Session})
	log.path = f.keyPath(key)
	return errors.Join(log.addRecords(records), file.Close())
}

// addRecords writes the records that the file does not contain. If there is no other
// writer, it first removes what the last one did not finish; a writer that is alive
// appends whole lines, as this does.
func (l *fileLog) addRecords(records []json.RawMessage) error {
	if err := lockFile(l.file); err == nil {
		if err := load(l.file, l.path); err != nil {
			return err
		}
	} else if !errors.Is(err, ErrLocked) {
		return err
	} else {
		unlock, err := appendLock(l.path)
		if err != nil {
			return err
		}
		defer unlock()
	}
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	known := map[string]bool{}
	if info.Size() > 0 {
		if _, _, err := readLines(io.NewSectionReader(l.file, 0, info.Size()), func(line []byte, _ int64) error {
			if id := RecordUUID(line); id != "" {
				known[id] = true
			}
			return nil
		}); err != nil {
			return fmt.Errorf("session: %w", err)
		}
	}
	var lines []byte
	for _, r := range records {
		if id := RecordUUID(r); id != "" {
			if known[id] {
				continue
			}
			known[id] = true
		}
		if lines, err = appendLine(lines, r); err != nil {
			return err
		}
	}
	if len(lines) == 0 {
		return nil
	}
	_, err = l.write(lines, true)
	return err
}

// splitMeta writes the metadata of a subagent to a separate file, and returns the other
// records.
func (f *Files) splitMeta(root *os.Root, key Key, records []json.RawMessage) ([]json.RawMessage, error) {
	var rest []json.RawMessage
	for _, r := range records {
		var m map[string]json.RawMessage
		if json.Unmarshal(r, &m) != nil || textOf(m["type"]) != metaType {
			rest = append(rest, r)
			continue
		}
		for _, name := range []string{"type", "sessionId", "timestamp"} {
			delete(m, name)
		}
		text, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		if err := f.replace(root, strings.TrimSuffix(key.fileName(), suffix)+metaSuffix, text); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// replace writes a file atomically.
func (f *Files) replace(root *os.Root, name string, text []byte) error {
	temp := name + "." + NewID()[:8] + ".tmp"
	file, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	_, err = file.Write(text)
	if err == nil && f.Durability == Fsync {
		err = durable.File(file)
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		root.Remove(temp)
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// readMeta returns the metadata of a subagent, or nil.
func readMeta(root *os.Root, key Key) map[string]json.RawMessage {
	file, err := openRead(root, strings.TrimSuffix(key.fileName(), suffix)+metaSuffix)
	if err != nil {
		return nil
	}
	defer file.Close()
	text, _ := io.ReadAll(io.LimitReader(file, 1<<20))
	var m map[string]json.RawMessage
	json.Unmarshal(text, &m)
	return m
}

// openKey opens the file of a log for reading.
func (f *Files) openKey(key Key) (*openLog, error) {
	if key.Check() != nil {
		return nil, ErrNotFound
	}
	root, err := f.root(false)
	if err != nil {
		return nil, notFound(err)
	}
	defer root.Close()
	if err := f.unpack(root, key.Project, key.Session); err != nil {
		return nil, err
	}
	file, err := openRead(root, key.fileName())
	if errors.Is(err, fs.ErrNotExist) {
		return f.openOldKey(key)
	}
	if err != nil {
		return nil, notFound(err)
	}
	info, err := file.Stat()
	if err == nil && info.Size() == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &openLog{ReaderAt: file, size: info.Size(), close: file.Close}, nil
}

// Load implements [Store].
func (f *Files) Load(ctx context.Context, key Key) ([]json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var records []json.RawMessage
	if key.Sub != "" && key.Check() == nil {
		if root, err := f.root(false); err == nil {
			if meta := readMeta(root, key); meta != nil {
				meta["type"] = quote(metaType)
				if r, err := json.Marshal(meta); err == nil {
					records = append(records, r)
				}
			}
			root.Close()
		}
	}
	r, err := f.openKey(key)
	if errors.Is(err, ErrNotFound) && len(records) > 0 {
		return records, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	take := func(line []byte, _ int64) error {
		if v := jsontext.Value(bytes.TrimSpace(line)); len(v) > 0 && v.Kind() == '{' && v.IsValid(lenient...) {
			records = append(records, json.RawMessage(bytes.Clone(v)))
		}
		return nil
	}
	_, rest, err := readLines(r.all(), take)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	take(rest, 0)
	if len(records) == 0 {
		return nil, ErrNotFound
	}
	return records, nil
}

// List implements [Store].
func (f *Files) List(ctx context.Context, match Key) (all []Listed, err error) {
	if match.Project != "" && (Key{Project: match.Project, Session: NewID()}).Check() != nil {
		return nil, ctx.Err()
	}
	err = f.inRoot(ctx, func(root *os.Root) error {
		in := []string{match.Project}
		if match.Project == "" {
			var err error
			if in, err = projects(root); err != nil {
				return fmt.Errorf("session: %w", err)
			}
		}
		var found []place
		for _, project := range in {
			if match.Session == "" {
				found = append(found, placesIn(root, project)...)
			} else if p, ok := stat(root, project, match.Session); ok && ValidID(match.Session) {
				found = append(found, p)
			}
		}
		found = append(found, f.oldPlaces(root, in, match.Project == "")...)
		for _, p := range found {
			if match.Session == "" || match.Session == p.id {
				all = append(all, Listed{Key: Key{Project: p.project, Session: p.id}, Modified: p.mtime, Size: p.size})
			}
		}
		return nil
	})
	return all, err
}

// Delete implements [Store].
func (f *Files) Delete(ctx context.Context, key Key) error {
	if err := key.Check(); err != nil {
		return err
	}
	names := []string{key.fileName()}
	if key.Sub != "" {
		names = append(names, strings.TrimSuffix(key.fileName(), suffix)+metaSuffix)
	} else {
		names = append(names, key.fileName()+packedSuffix)
	}
	return f.inRoot(ctx, func(root *os.Root) error {
		for _, name := range names {
			if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("session: %w", err)
			}
		}
		if key.Sub != "" {
			return nil
		}
		if err := root.RemoveAll(key.String()); err != nil {
			return fmt.Errorf("session: the log was removed, but not its other files: %w", err)
		}
		if p, ok := f.oldPlace(key.Session); ok && p.project == key.Project {
			return f.removeOld(key.Session)
		}
		return nil
	})
}

// Subkeys implements [Store].
func (f *Files) Subkeys(ctx context.Context, key Key) (all []string, err error) {
	key.Sub = ""
	if key.Check() != nil {
		return nil, ctx.Err()
	}
	err = f.inRoot(ctx, func(root *os.Root) error {
		var walk func(dir string, depth int)
		walk = func(dir string, depth int) {
			entries, err := readDir(root, path.Join(key.String(), dir))
			if err != nil || depth > 16 {
				return
			}
			for _, e := range entries {
				name := path.Join(dir, e.Name())
				if e.IsDir() {
					walk(name, depth+1)
				} else if sub, ok := strings.CutSuffix(name, suffix); ok && e.Type().IsRegular() && sub != "" && checkSub(sub) == nil {
					all = append(all, sub)
				}
			}
		}
		walk("", 0)
		return nil
	})
	return all, err
}

// keyPath returns the path of a log.
func (f *Files) keyPath(key Key) string {
	return f.pathOf(place{project: key.Project, id: strings.TrimPrefix(key.String(), key.Project+"/")})
}

// Lease implements [Store]. The lease ends with the process.
func (f *Files) Lease(ctx context.Context, key Key) (Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key.Sub = ""
	if err := key.Check(); err != nil {
		return nil, err
	}
	root, err := f.root(true)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := f.plain(root, key.Project, key.Session); err != nil {
		return nil, err
	}
	if err := root.MkdirAll(key.Project, dirMode); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	p := place{project: key.Project, id: key.Session}
	for range 100 {
		file, err := root.OpenFile(p.name(), os.O_RDWR|os.O_APPEND|os.O_CREATE|nonblock, fileMode)
		if err != nil {
			return nil, fmt.Errorf("session: %w", err)
		}
		err = claim(root, p, file)
		if errors.Is(err, errGone) {
			file.Close()
			continue
		}
		if err == nil {
			err = lockedElsewhere(root, p)
		}
		if err == nil {
			err = load(file, f.pathOf(p))
		}
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		return &fileLease{f.newLog(p, file, Meta{ID: key.Session})}, nil
	}
	return nil, ErrLocked
}

// lockedElsewhere reports whether the session is open in another project.
func lockedElsewhere(root *os.Root, p place) error {
	all, err := projects(root)
	if err != nil {
		return err
	}
	for _, project := range all {
		if project == p.project {
			continue
		}
		file, err := openRead(root, place{project: project, id: p.id}.name())
		if err != nil {
			continue
		}
		err = lockFile(file)
		file.Close()
		if errors.Is(err, ErrLocked) {
			return ErrLocked
		}
	}
	return nil
}

// A fileLease is the lease of a session in a file.
type fileLease struct{ log *fileLog }

// Append implements [Lease].
func (l *fileLease) Append(ctx context.Context, sub string, records []json.RawMessage) error {
	if err := errors.Join(ctx.Err(), checkSub(sub)); err != nil {
		return err
	}
	log := l.log
	if sub != "" {
		part, err := log.part(sub)
		if err != nil {
			return err
		}
		defer part.Close()
		log = part
	}
	lines, err := joinRecords(nil, records)
	if err != nil || len(lines) == 0 {
		return err
	}
	log.mu.Lock()
	err = log.usable()
	log.mu.Unlock()
	if err != nil {
		return err
	}
	log.turn <- struct{}{}
	defer func() { <-log.turn }()
	return log.addRecords(records)
}

// Close implements [Lease].
func (l *fileLease) Close() error { return l.log.Close() }
