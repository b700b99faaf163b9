package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// openOld opens a session in the layout sessions/<id>/messages.jsonl, whose lines
// are those of the protocol. It is taken over into the layout of today, and the
// old one stays as it is.
func (f *Files) openOld(ctx context.Context, id string, meta Meta) (*fileLog, *History, error) {
	entries, torn, err := f.readOld(id)
	if err != nil {
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	log, err := f.create(meta)
	if errors.Is(err, ErrExists) {
		err = ErrLocked
	}
	if err != nil {
		return nil, nil, err
	}
	if err := log.Append(entries...); err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	if err := log.Append(); err != nil { // written, whatever the durability
		return nil, nil, errors.Join(err, log.Close())
	}
	s, _, err := load(log.file, log.path)
	if err == nil {
		var h *History
		if h, err = s.history(log.file); err == nil {
			h.Torn = torn
			return log, h, nil
		}
	}
	return nil, nil, errors.Join(err, log.Close())
}

// readOld reads a session of the older layout.
func (f *Files) readOld(id string) (entries []*Entry, torn bool, err error) {
	if !ValidID(id) {
		return nil, false, ErrNotFound
	}
	root, err := os.OpenRoot(filepath.Join(f.Dir, "sessions"))
	if err != nil {
		return nil, false, notFound(err)
	}
	defer root.Close()
	name := path.Join(id, "messages"+suffix)
	if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil, false, notFound(err)
	}
	file, err := root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, false, notFound(err)
	}
	defer file.Close()
	parent := ""
	_, rest, err := readLines(file, func(line []byte, _ int64) error {
		if e := oldEntry(line); e != nil {
			e.ParentUUID = parent
			parent = e.UUID
			entries = append(entries, e)
		}
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("session: %w", err)
	}
	if len(rest) > 0 { // it may lack its end and be whole nevertheless
		if e := oldEntry(rest); e != nil {
			e.ParentUUID = parent
			entries = append(entries, e)
		}
		torn = !json.Valid(rest)
	}
	if len(entries) == 0 {
		return nil, false, ErrNotFound
	}
	if title := oldTitle(root, id); title != "" {
		entries = append(entries, &Entry{Type: "custom-title", Fields: map[string]json.RawMessage{"customTitle": quote(title)}})
	}
	return entries, torn, nil
}

// notFound turns an error of a file that is not there into [ErrNotFound].
func notFound(err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return ErrNotFound
	}
	return fmt.Errorf("session: %w", err)
}

// oldEntry turns a line of the protocol into an entry, or nil if it is nothing
// that a conversation keeps.
func oldEntry(line []byte) *Entry {
	var l struct {
		Type            string          `json:"type"`
		Subtype         string          `json:"subtype"`
		UUID            string          `json:"uuid"`
		Timestamp       time.Time       `json:"timestamp"`
		Message         json.RawMessage `json:"message"`
		Parent          *string         `json:"parent_tool_use_id"`
		ToolUseResult   json.RawMessage `json:"tool_use_result"`
		CompactMetadata json.RawMessage `json:"compact_metadata"`
		IsReplay        bool            `json:"isReplay"`
	}
	if json.Unmarshal(line, &l) != nil || l.Parent != nil && *l.Parent != "" || l.IsReplay {
		return nil
	}
	e := &Entry{Type: l.Type, UUID: l.UUID, Time: l.Timestamp, Message: l.Message}
	if e.UUID == "" {
		e.UUID = NewID()
	}
	switch {
	case (l.Type == typeUser || l.Type == typeAssistant) && len(l.Message) > 0 && l.Message[0] == '{':
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
	}
	return nil
}

// oldTitle returns the title in session.json, if there is one.
func oldTitle(root *os.Root, id string) string {
	info, err := root.Lstat(path.Join(id, "session.json"))
	if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 {
		return ""
	}
	text, err := root.ReadFile(path.Join(id, "session.json"))
	if err != nil {
		return ""
	}
	var s struct {
		Title string `json:"title"`
	}
	json.Unmarshal(text, &s)
	return s.Title
}
