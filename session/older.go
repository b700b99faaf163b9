package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// The older layout is a directory for each session, sessions/<id>, with these files.
// Only the first one must exist.
const (
	oldDir      = "sessions"
	oldMessages = "messages" + suffix // lines of the protocol
	oldSession  = "session.json"      // metadata of the session
	oldState    = "state.json"        // its state
)

// oldProject is the project of sessions that do not name their directory.
const oldProject = oldDir

// oldHead is how many bytes of a session of the older layout are searched for its
// directory.
const oldHead = 64 << 10

// An older is a session of the older layout, converted to present records.
type older struct {
	entries []*Entry
	meta    Meta
	torn    bool
}

// oldRoot opens the directory of the older layout.
func (f *Files) oldRoot() (*os.Root, error) {
	if f.Dir == "" {
		return nil, ErrNotFound
	}
	root, err := os.OpenRoot(filepath.Join(f.Dir, oldDir))
	if err != nil {
		return nil, notFound(err)
	}
	return root, nil
}

// oldPlace returns a session of the older layout.
func (f *Files) oldPlace(id string) (place, bool) {
	root, err := f.oldRoot()
	if err != nil {
		return place{}, false
	}
	defer root.Close()
	return oldPlaceIn(root, id)
}

func oldPlaceIn(root *os.Root, id string) (place, bool) {
	if !ValidID(id) {
		return place{}, false
	}
	info, err := root.Lstat(path.Join(id, oldMessages))
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return place{}, false
	}
	p := place{project: oldProject, id: id, size: info.Size(), mtime: info.ModTime(), old: true}
	about := readAbout(root, id)
	if about.meta.Cwd == "" {
		if file, err := openRead(root, path.Join(id, oldMessages)); err == nil {
			head, _ := io.ReadAll(io.LimitReader(file, oldHead))
			file.Close()
			for line := range bytes.Lines(head) {
				if about.init(line) && about.meta.Cwd != "" {
					break
				}
			}
		}
	}
	if about.meta.Cwd != "" {
		p.project = ProjectKey(about.meta.Cwd)
	}
	return p, true
}

// oldPlaces returns the sessions of the older layout in some projects that were not
// converted to the present layout.
func (f *Files) oldPlaces(root *os.Root, in []string, all bool) []place {
	old, err := f.oldRoot()
	if err != nil {
		return nil
	}
	defer old.Close()
	entries, _ := readDir(old, ".")
	var names []string
	var places []place
	for _, e := range entries {
		p, ok := oldPlaceIn(old, e.Name())
		if !ok || !all && !slices.Contains(in, p.project) {
			continue
		}
		if names == nil {
			if names, err = projects(root); err != nil {
				return nil
			}
		}
		if !slices.ContainsFunc(names, func(project string) bool { _, there := stat(root, project, p.id); return there }) {
			places = append(places, p)
		}
	}
	return places
}

// oldAbout is the metadata in the files beside the messages of an older session. Their
// format is not documented, so the names are those of the protocol.
type oldAbout struct {
	meta    Meta
	created time.Time
	loose   []*Entry
	cost    map[string]json.RawMessage
}

// readAbout reads the files beside the messages.
func readAbout(root *os.Root, id string) *oldAbout {
	about := &oldAbout{meta: Meta{ID: id}}
	for _, name := range []string{oldSession, oldState} {
		file, err := openRead(root, path.Join(id, name))
		if err != nil {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(file, 1<<20))
		file.Close()
		var m map[string]json.RawMessage
		if err == nil && json.Unmarshal(text, &m) == nil {
			about.readMembers(m)
		}
	}
	return about
}

// readMembers parses the members of such a file.
func (a *oldAbout) readMembers(m map[string]json.RawMessage) {
	first := func(names ...string) string {
		for _, name := range names {
			if s := textOf(m[name]); s != "" {
				return s
			}
		}
		return ""
	}
	setOnce(&a.meta.Cwd, first("cwd", "working_directory", "workingDirectory", "project_path", "projectPath"))
	setOnce(&a.meta.GitBranch, first("git_branch", "gitBranch", "branch"))
	setOnce(&a.meta.Version, first("version", "claude_code_version"))
	setOnce(&a.meta.Entrypoint, first("entrypoint"))
	if t, err := time.Parse(time.RFC3339, first("created_at", "createdAt", "created", "timestamp")); err == nil && a.created.IsZero() {
		a.created = t
	}
	for _, l := range []struct{ typ, name, text string }{
		{"summary", "summary", first("summary")},
		{"custom-title", "customTitle", first("title", "name", "custom_title", "customTitle")},
		{"tag", "tag", first("tag")},
	} {
		if l.text != "" {
			a.loose = append(a.loose, &Entry{Type: l.typ, Fields: map[string]json.RawMessage{l.name: quote(l.text)}})
		}
	}
	a.spent(m)
}

// spent parses the cost of the session so far.
func (a *oldAbout) spent(m map[string]json.RawMessage) {
	for _, name := range []string{"total_cost_usd", "totalCostUSD", "cost_usd"} {
		var usd float64
		if m[name] != nil && json.Unmarshal(m[name], &usd) == nil && usd >= 0 {
			a.cost = map[string]json.RawMessage{"totalCostUSD": m[name]}
			break
		}
	}
	var usage map[string]map[string]json.RawMessage
	if a.cost != nil && json.Unmarshal(m["modelUsage"], &usage) == nil && len(usage) > 0 {
		a.cost["modelUsage"] = m["modelUsage"]
	}
}

// init parses the directory of the session, if a line contains it.
func (a *oldAbout) init(line []byte) bool {
	var m map[string]json.RawMessage
	if !bytes.Contains(line, []byte(`"cwd"`)) || json.Unmarshal(line, &m) != nil || textOf(m["type"]) != typeSystem {
		return false
	}
	setOnce(&a.meta.Cwd, textOf(m["cwd"]))
	setOnce(&a.meta.Version, textOf(m["claude_code_version"]))
	return true
}

// readOld reads a session of the older layout.
func (f *Files) readOld(id string) (*older, error) {
	if !ValidID(id) {
		return nil, ErrNotFound
	}
	root, err := f.oldRoot()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := openRead(root, path.Join(id, oldMessages))
	if err != nil {
		return nil, notFound(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	about := readAbout(root, id)
	stated := about.cost
	if about.created.IsZero() {
		about.created = info.ModTime()
	}
	o := &older{}
	parent := ""
	take := func(line []byte, at int64) error {
		if e := about.entry(bytes.Clone(line), at); e != nil {
			e.ParentUUID = parent
			parent = e.UUID
			o.entries = append(o.entries, e)
		}
		return nil
	}
	end, rest, err := readLines(file, take)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	if len(rest) > 0 { // the last line may be complete without a newline
		take(rest, end)
		o.torn = !json.Valid(rest)
	}
	if len(o.entries) == 0 {
		return nil, ErrNotFound
	}
	if stated != nil {
		about.cost = stated
	}
	if about.cost != nil {
		about.loose = append(about.loose, &Entry{Type: "cost-state", Fields: about.cost})
	}
	o.entries = append(o.entries, about.loose...)
	o.meta = about.meta
	return o, nil
}

// entry converts a line of the protocol to an entry, or returns nil if it is not part of
// a conversation. A line without a uuid always gets the same one.
func (a *oldAbout) entry(line []byte, at int64) *Entry {
	var l struct {
		Type            string          `json:"type"`
		Subtype         string          `json:"subtype"`
		UUID            string          `json:"uuid"`
		Timestamp       string          `json:"timestamp"`
		Message         json.RawMessage `json:"message"`
		Content         json.RawMessage `json:"content"`
		Parent          *string         `json:"parent_tool_use_id"`
		ToolUseResult   json.RawMessage `json:"tool_use_result"`
		CompactMetadata json.RawMessage `json:"compact_metadata"`
		IsReplay        bool            `json:"isReplay"`
	}
	if json.Unmarshal(line, &l) != nil || l.Parent != nil && *l.Parent != "" || l.IsReplay {
		return nil
	}
	e := &Entry{Type: l.Type, UUID: l.UUID, Time: a.created, Message: l.Message}
	if t, err := time.Parse(time.RFC3339, l.Timestamp); err == nil {
		e.Time = t
	}
	if !ValidID(e.UUID) {
		e.UUID = derivedID(fmt.Sprint(a.meta.ID, at))
	}
	if len(l.Message) == 0 && len(l.Content) > 0 { // some programs put it there
		e.Message = slices.Concat([]byte(`{"role":`), quote(l.Type), []byte(`,"content":`), l.Content, []byte(`}`))
	}
	switch {
	case (l.Type == typeUser || l.Type == typeAssistant) && len(e.Message) > 0 && e.Message[0] == '{':
		if len(l.ToolUseResult) > 0 {
			e.Fields = map[string]json.RawMessage{"toolUseResult": l.ToolUseResult}
		}
		return e
	case l.Type == typeSystem && l.Subtype == "compact_boundary":
		e.Message = nil
		e.Fields = map[string]json.RawMessage{"subtype": quote(l.Subtype)}
		if len(l.CompactMetadata) > 0 {
			e.Fields["compactMetadata"] = l.CompactMetadata
		}
		return e
	case l.Type == typeSystem:
		a.init(line)
	case l.Type == "result":
		var m map[string]json.RawMessage
		json.Unmarshal(line, &m)
		a.spent(m)
	}
	return nil
}

// derivedID returns a UUID derived from a text.
func derivedID(text string) string {
	b := sha256.Sum256([]byte(text))
	b[6] = b[6]&0x0f | 0x80
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// lines returns the session as a log.
func (o *older) lines() (lines []byte, err error) {
	encoder := newEncoder(o.meta)
	for _, e := range o.entries {
		if lines, err = encoder.lines(lines, []*Entry{e}); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// takeOver converts a session of the older layout to the present one, atomically, and
// reports whether its last line was incomplete. The old session is kept.
func (f *Files) takeOver(root *os.Root, p place, cwd string) (place, bool, error) {
	o, err := f.readOld(p.id)
	if err != nil {
		return p, false, err
	}
	if o.meta.Cwd == "" && cwd != "" { // it is assigned to the directory that it is opened from
		p.project, o.meta.Cwd = ProjectKey(cwd), cwd
	}
	p.old = false
	lines, err := o.lines()
	if err == nil {
		if err = root.Mkdir(p.project, dirMode); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err != nil {
		return p, false, fmt.Errorf("session: %w", err)
	}
	return p, o.torn, f.place(root, p.name(), func(w io.Writer) error {
		_, err := w.Write(lines)
		return err
	}, p.mtime)
}

// plain converts a session that is to be written to a plain file of the present layout,
// if it is compressed or in the older one. It does nothing if there is none.
func (f *Files) plain(root *os.Root, project, id string) error {
	if err := f.unpack(root, project, id); err != nil {
		return err
	}
	if _, there := stat(root, project, id); there {
		return nil
	}
	p, ok := f.oldPlace(id)
	if !ok || p.project != project {
		return nil
	}
	if _, _, err := f.takeOver(root, p, ""); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	return nil
}

// removeOld removes a session of the older layout.
func (f *Files) removeOld(id string) error {
	root, err := f.oldRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.RemoveAll(id); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// digestOld returns the digest of a session of the older layout.
func (f *Files) digestOld(p place) (*digest, error) {
	o, err := f.readOld(p.id)
	if err != nil {
		return nil, err
	}
	lines, err := o.lines()
	if err != nil {
		return nil, err
	}
	return digestOf(lines, lines), nil
}

// openOldKey opens a session of the older layout for reading.
func (f *Files) openOldKey(key Key) (*openLog, error) {
	p, ok := f.oldPlace(key.Session)
	if !ok || key.Sub != "" || p.project != key.Project {
		return nil, ErrNotFound
	}
	o, err := f.readOld(key.Session)
	if err != nil {
		return nil, err
	}
	lines, err := o.lines()
	if err != nil {
		return nil, err
	}
	return &openLog{ReaderAt: bytes.NewReader(lines), size: int64(len(lines))}, nil
}

// notFound converts the error of a missing file to [ErrNotFound].
func notFound(err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotFound) {
		return ErrNotFound
	}
	return fmt.Errorf("session: %w", err)
}
