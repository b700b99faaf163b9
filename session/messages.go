package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// A Message is one message of a session, as it is shown.
type Message struct {
	Type            string // user, assistant or system
	UUID            string
	SessionID       string
	Message         json.RawMessage // as the API has it; of a system message the whole record
	Time            time.Time
	ParentToolUseID string // of a subagent: the call that began it
	ParentAgentID   string // of a subagent of a subagent
}

// MessagesOptions say which messages are returned. The zero value, and nil, is
// those of the user and the assistant.
type MessagesOptions struct {
	In
	System bool // those of the system too, such as the boundaries of compactions
	Offset int  // how many to leave out at the begin
	Limit  int  // how many to return at most; zero or less: all
}

// Messages returns the conversation of a session from its last compaction on, as
// a person sees it: without what the agent told itself. Nothing is changed, and
// another process may be writing.
func (f *Files) Messages(ctx context.Context, id string, opts *MessagesOptions) ([]Message, error) {
	if opts == nil {
		opts = &MessagesOptions{}
	}
	root, p, err := f.at(ctx, id, &opts.In)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return messages(root, p.name(), id, opts, false)
}

// messages reads the messages of a file.
func messages(root *os.Root, name, id string, opts *MessagesOptions, sidechain bool) ([]Message, error) {
	file, err := openRead(root, name)
	if err != nil {
		return nil, notFound(err)
	}
	defer file.Close()
	s, _, err := scanLog(file)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	if sidechain { // in the file of a subagent all of it is
		for _, n := range s.nodes {
			n.sidechain = false
		}
		s.link()
	}
	r := &lineReader{r: file}
	path, err := s.chain(r, false)
	if err != nil {
		return nil, err
	}
	var all []Message
	for _, n := range path {
		if n.sidechain || n.team || n.meta {
			continue
		}
		line, err := r.read(n.span)
		if err != nil {
			return nil, err
		}
		e, _, err := decodeEntry(line)
		if err != nil {
			continue
		}
		m := Message{Type: e.Type, UUID: e.UUID, SessionID: id, Message: e.Message, Time: e.Time}
		switch e.Type {
		case typeUser, typeAssistant:
		case typeSystem:
			if !opts.System {
				continue
			}
			m.Message = json.RawMessage(bytes.Clone(line))
		case typeAttachment:
			var a struct {
				Type   string          `json:"type"`
				Prompt json.RawMessage `json:"prompt"`
			}
			if json.Unmarshal(e.Fields["attachment"], &a) != nil || a.Type != "queued_command" || len(a.Prompt) == 0 {
				continue
			}
			m.Type = typeUser
			m.Message = slices.Concat([]byte(`{"role":"user","content":`), a.Prompt, []byte("}"))
		default:
			continue
		}
		all = append(all, m)
	}
	all = all[min(max(0, opts.Offset), len(all)):]
	if opts.Limit > 0 {
		all = all[:min(opts.Limit, len(all))]
	}
	return all, nil
}

// openRead opens a file, and nothing else, for reading.
func openRead(root *os.Root, name string) (*os.File, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fs.ErrNotExist
	}
	return root.OpenFile(name, os.O_RDONLY|nonblock, 0)
}

// Subagents returns the ids of the subagents of a session, sorted.
func (f *Files) Subagents(ctx context.Context, id string, in *In) ([]string, error) {
	root, p, err := f.at(ctx, id, in)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var ids []string
	err = subagentFiles(root, p, func(agent, _ string) bool {
		ids = append(ids, agent)
		return ctx.Err() == nil
	})
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// subagentFiles calls f for the log of each subagent until it returns false.
func subagentFiles(root *os.Root, p place, f func(agent, name string) bool) error {
	top := path.Join(p.project, p.id, "subagents")
	var walk func(dir string, depth int) bool
	walk = func(dir string, depth int) bool {
		entries, err := readDir(root, dir)
		if err != nil || depth > 16 {
			return true
		}
		slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			if e.IsDir() {
				if !walk(name, depth+1) {
					return false
				}
				continue
			}
			agent, ok := strings.CutPrefix(e.Name(), "agent-")
			agent, is := strings.CutSuffix(agent, suffix)
			if ok && is && e.Type().IsRegular() && !f(agent, name) {
				return false
			}
		}
		return true
	}
	walk(top, 0)
	return nil
}

// SubagentMessages returns the messages of a subagent of a session.
func (f *Files) SubagentMessages(ctx context.Context, id, agent string, opts *MessagesOptions) ([]Message, error) {
	if opts == nil {
		opts = &MessagesOptions{}
	}
	root, p, err := f.at(ctx, id, &opts.In)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name := ""
	if err := subagentFiles(root, p, func(a, n string) bool {
		if a == agent {
			name = n
		}
		return name == ""
	}); err != nil {
		return nil, err
	}
	if name == "" {
		return nil, fmt.Errorf("session: no subagent %q: %w", agent, ErrNotFound)
	}
	all, err := messages(root, name, id, opts, true)
	if err != nil {
		return nil, err
	}
	var meta struct {
		ToolUseID     string `json:"toolUseId"`
		ParentAgentID string `json:"parentAgentId"`
	}
	if file, err := openRead(root, strings.TrimSuffix(name, suffix)+".meta.json"); err == nil {
		text, _ := io.ReadAll(io.LimitReader(file, 1<<20))
		file.Close()
		json.Unmarshal(text, &meta)
	}
	for i := range all {
		all[i].ParentToolUseID, all[i].ParentAgentID = meta.ToolUseID, meta.ParentAgentID
	}
	return all, nil
}
