package session

import (
	"bufio"
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
	"time"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/unicode/norm"

	"github.com/parley-go/parley/internal/durable"
)

// Title returns the entry that sets the title of a session, for its log.
func Title(title string) *Entry {
	return &Entry{Type: "custom-title", Fields: map[string]json.RawMessage{"customTitle": quote(title)}}
}

// Rename sets the title of a session. The last one applies. The session may be open.
func Rename(ctx context.Context, s Store, id, title string, in *In) error {
	title = strings.TrimSpace(title)
	if title == "" {
		return errors.New("session: the title is empty")
	}
	return note(ctx, s, id, in, Title(title))
}

// Tag sets the tag of a session, or removes it if the tag is empty. Invisible characters
// are removed from it. The session may be open.
func Tag(ctx context.Context, s Store, id, tag string, in *In) error {
	clean := tag
	for range 10 { // removing characters may bring others together
		was := clean
		clean = strings.TrimSpace(strings.Map(func(r rune) rune {
			if unicode.In(r, unicode.Cf, unicode.Co, unicode.Cn) || r == unicode.ReplacementChar {
				return -1
			}
			return r
		}, norm.NFKC.String(clean)))
		if clean == was {
			break
		}
	}
	if clean == "" && tag != "" {
		return errors.New("session: nothing of the tag can be seen")
	}
	return note(ctx, s, id, in, &Entry{Type: "tag", Fields: map[string]json.RawMessage{"tag": quote(clean)}})
}

// note adds a record outside of the tree to a session, whether it is open or not.
func note(ctx context.Context, s Store, id string, in *In, e *Entry) error {
	if f, ok := s.(*Files); ok {
		return f.note(ctx, id, in, e)
	}
	key, err := locate(ctx, s, id, in)
	if err != nil {
		return err
	}
	line, err := newEncoder(Meta{ID: id}).lines(nil, []*Entry{e})
	if err != nil {
		return err
	}
	return s.Append(ctx, key, []json.RawMessage{line[:len(line)-1]})
}

func (f *Files) note(ctx context.Context, id string, in *In, e *Entry) error {
	root, p, err := f.at(ctx, id, in)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := f.plain(root, p.project, p.id); err != nil {
		return err
	}
	p.old = false
	file, err := openLocked(root, p)
	switch {
	case err == nil:
		// There is no other writer. An unfinished line of the last writer must not swallow
		// this one.
		if err := load(file, f.pathOf(p)); err != nil {
			file.Close()
			return err
		}
	case errors.Is(err, ErrLocked):
		// There is an active writer, which appends whole lines, as this does.
		if file, err = root.OpenFile(p.name(), os.O_WRONLY|os.O_APPEND|nonblock, 0); err != nil {
			return notFound(err)
		}
		unlock, err := appendLock(f.pathOf(p))
		if err != nil {
			return errors.Join(err, file.Close())
		}
		defer unlock()
	default:
		return err
	}
	log := f.newLog(p, file, Meta{ID: id})
	line, err := log.encoder.lines(nil, []*Entry{e})
	if err == nil {
		_, err = log.write(line, true)
	}
	return errors.Join(err, file.Close())
}

// Delete removes a session with everything that is stored beside it. The error is
// [ErrLocked] if it is open.
func Delete(ctx context.Context, s Store, id string, in *In) error {
	if f, ok := s.(*Files); ok {
		return f.remove(ctx, id, in)
	}
	key, err := locate(ctx, s, id, in)
	if err != nil {
		return err
	}
	lease, err := s.Lease(ctx, key)
	if err != nil {
		return err
	}
	return errors.Join(s.Delete(ctx, key), lease.Close())
}

func (f *Files) remove(ctx context.Context, id string, in *In) error {
	found := false
	for { // it may be in more than one project
		root, p, err := f.at(ctx, id, in)
		if errors.Is(err, ErrNotFound) {
			break
		}
		if err != nil {
			return err
		}
		found = true
		if p.old {
			err = f.removeOld(p.id)
		} else if err = f.unpack(root, p.project, p.id); err == nil {
			err = remove(root, p)
		}
		root.Close()
		if err != nil {
			return err
		}
	}
	if !found {
		return ErrNotFound
	}
	return nil
}

func remove(root *os.Root, p place) error {
	file, err := openLocked(root, p)
	if err != nil {
		if errors.Is(err, ErrNotFound) {
			return nil // removed by another process just now
		}
		return err
	}
	defer file.Close()
	if err := root.Remove(p.name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("session: %w", err)
	}
	if err := root.RemoveAll(path.Join(p.project, p.id)); err != nil {
		return fmt.Errorf("session: the log was removed, but not its other files: %w", err)
	}
	return nil
}

// ForkOptions select what a fork contains. The zero value, and nil, mean everything.
type ForkOptions struct {
	In
	UpTo  string // uuid of the last record to copy
	Title string // if empty, that of the session, and "(fork)"
}

// Fork copies a session to a new one beside it, and returns its id. Every record gets a new
// uuid and names the original. Conversations of subagents are not copied.
func Fork(ctx context.Context, s Store, id string, opts *ForkOptions) (string, error) {
	if opts == nil {
		opts = &ForkOptions{}
	}
	key, err := locate(ctx, s, id, &opts.In)
	if err != nil {
		return "", err
	}
	file, err := openKey(ctx, s, key)
	if err != nil {
		return "", err
	}
	defer file.Close()
	scan, _, err := scanLog(file, file.size)
	if err != nil {
		return "", fmt.Errorf("session: %w", err)
	}
	fork, err := scan.fork(id, opts.UpTo)
	if err != nil {
		return "", err
	}
	if fork.title = strings.TrimSpace(opts.Title); fork.title == "" {
		fork.title = "Session (fork)"
		if info, err := Stat(ctx, s, id, &In{}); err == nil {
			for _, t := range []string{info.CustomTitle, info.aiTitle, info.FirstPrompt} {
				if t != "" {
					fork.title = t + " (fork)"
					break
				}
			}
		}
	}
	to := Key{Project: key.Project, Session: fork.id}
	if f, ok := s.(*Files); ok {
		return fork.id, f.writeFork(ctx, fork, to, file)
	}
	var lines bytes.Buffer
	if err := fork.write(ctx, &lines, &lineReader{r: file}); err != nil {
		return "", err
	}
	var records []json.RawMessage
	for line := range bytes.Lines(lines.Bytes()) {
		records = append(records, bytes.TrimSuffix(line, []byte("\n")))
	}
	return fork.id, s.Append(ctx, to, records)
}

// writeFork writes a fork. It appears under its name atomically.
func (f *Files) writeFork(ctx context.Context, fork *forked, key Key, file io.ReaderAt) error {
	root, err := f.root(false)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(key.Project, dirMode); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	temp := key.fileName() + ".tmp"
	out, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	w := bufio.NewWriterSize(out, 64<<10)
	err = fork.write(ctx, w, &lineReader{r: file})
	if err == nil {
		err = w.Flush()
	}
	if err == nil && f.Durability == Fsync {
		err = durable.File(out)
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = root.Rename(temp, key.fileName())
	}
	if err == nil && f.Durability == Fsync {
		err = durable.Names(f.keyPath(key), f.Dir)
	}
	if err != nil {
		root.Remove(temp)
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// A forked is a fork that is about to be written.
type forked struct {
	id, from string
	title    string
	nodes    []*node
	ids      map[string]string // new uuids by old ones
	parents  map[string]string // of records that are left out: the old parent
	replaced *span
}

// fork selects the records of a log for a fork.
func (s *scan) fork(from, upTo string) (*forked, error) {
	k := &forked{id: NewID(), from: from, ids: map[string]string{}, parents: map[string]string{}}
	for _, n := range s.nodes {
		if n.sidechain {
			continue
		}
		if n.typ == typeProgress {
			k.parents[n.uuid] = n.parent
		} else {
			if k.ids[n.uuid] == "" {
				k.ids[n.uuid] = NewID()
			}
			k.nodes = append(k.nodes, n)
		}
		if upTo != "" && n.uuid == upTo {
			upTo = ""
			break
		}
	}
	if upTo != "" {
		return nil, fmt.Errorf("session: no message %s in session %s: %w", upTo, from, ErrNotFound)
	}
	if len(k.nodes) == 0 {
		return nil, fmt.Errorf("session: nothing to fork in session %s", from)
	}
	if at, ok := s.loose["content-replacement"]; ok {
		k.replaced = &at
	}
	return k, nil
}

// write writes the fork.
func (k *forked) write(ctx context.Context, w io.Writer, r *lineReader) error {
	now := time.Now()
	for i, n := range k.nodes {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, err := r.read(n.span)
		if err != nil {
			return err
		}
		at := time.Time{}
		if i == len(k.nodes)-1 {
			at = now
		}
		out, err := k.line(line, n, at)
		if err != nil {
			return err
		}
		if _, err := w.Write(out); err != nil {
			return err
		}
	}
	loose := []*Entry{{Type: "custom-title", Time: now, Fields: map[string]json.RawMessage{
		"customTitle": quote(k.title), "uuid": quote(NewID()),
	}}}
	if k.replaced != nil {
		line, err := r.read(*k.replaced)
		if err != nil {
			return err
		}
		if e, _, err := decodeEntry(line); err == nil && len(e.Fields["replacements"]) > 0 {
			loose = append([]*Entry{{Type: e.Type, Time: now, Fields: map[string]json.RawMessage{
				"replacements": e.Fields["replacements"], "uuid": quote(NewID()),
			}}}, loose...)
		}
	}
	for _, e := range loose {
		line, err := newEncoder(Meta{ID: k.id}).lines(nil, []*Entry{e})
		if err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// line converts a record of the session to one of the fork. Unknown members stay as they
// are, byte for byte.
func (k *forked) line(line []byte, n *node, at time.Time) ([]byte, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(line), lenient...)
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	out := []byte{'{'}
	for d.PeekKind() == '"' {
		key, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		name := key.String()
		v, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		value := []byte(v)
		switch name {
		case "teamName", "agentName", "slug", "sourceToolAssistantUUID", "forkedFrom", moreKey:
			continue
		case "sessionId":
			value = quote(k.id)
		case "uuid":
			value = quote(k.ids[n.uuid])
		case "parentUuid":
			value = k.remap(n.parent)
		case "logicalParentUuid":
			var old string
			json.Unmarshal(v, &old)
			value = k.remap(old)
		case "compactMetadata":
			value = k.remapAll(v)
		case "isSidechain":
			value = []byte("false")
		case "timestamp":
			if !at.IsZero() {
				value = quote(at.UTC().Format(timeFormat))
			}
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(appendString(out, name), ':'), value...)
	}
	out = append(out, `,"forkedFrom":{"sessionId":`...)
	out = append(out, quote(k.from)...)
	out = append(out, `,"messageUuid":`...)
	out = append(out, quote(n.uuid)...)
	return append(out, "}}\n"...), nil
}

// remap returns the new uuid of a record, or of the nearest ancestor that is in the fork.
func (k *forked) remap(old string) []byte {
	for range len(k.parents) + 1 {
		if id, ok := k.ids[old]; ok {
			return quote(id)
		}
		up, ok := k.parents[old]
		if !ok {
			break
		}
		old = up
	}
	return []byte("null")
}

// remapAll replaces the uuids of kept records in the metadata of a compaction.
func (k *forked) remapAll(v []byte) []byte {
	var tree any
	if json.Unmarshal(v, &tree) != nil {
		return v
	}
	var walk func(any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for name := range v {
				v[name] = walk(v[name])
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case string:
			if id, ok := k.ids[v]; ok {
				return id
			}
		}
		return v
	}
	out, err := json.Marshal(walk(tree))
	if err != nil {
		return v
	}
	return out
}
