package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// A Message is one message of a session, for display.
type Message struct {
	Type            string // user, assistant or system
	UUID            string
	SessionID       string
	Message         json.RawMessage // as in the API; for a system message the whole record
	Time            time.Time
	ParentToolUseID string // of a subagent: the call that started it
	ParentAgentID   string // for a subagent of a subagent
}

// MessagesOptions select the messages to return. The zero value, and nil, mean those of
// the user and the assistant.
type MessagesOptions struct {
	In
	System bool // include system messages, such as the boundaries of compactions
	Offset int  // number of messages to skip
	Limit  int  // maximum number to return; zero or less means all
}

// Messages returns the conversation of a session since its last compaction, as a person
// sees it: without internal messages of the agent. Nothing is changed, and another
// process may be writing.
func Messages(ctx context.Context, s Store, id string, opts *MessagesOptions) ([]Message, error) {
	if opts == nil {
		opts = &MessagesOptions{}
	}
	key, err := locate(ctx, s, id, &opts.In)
	if err != nil {
		return nil, err
	}
	return messages(ctx, s, key, opts)
}

// messages reads the messages of a log.
func messages(ctx context.Context, store Store, key Key, opts *MessagesOptions) ([]Message, error) {
	file, err := openKey(ctx, store, key)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	s, _, err := scanLog(file, file.size)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	if key.Sub != "" { // everything in the log of a subagent is a side chain
		for _, n := range s.nodes {
			n.sidechain = false
		}
		s.link()
	}
	id := key.Session
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

// Subagents returns the ids of the subagents of a session, sorted.
func Subagents(ctx context.Context, s Store, id string, in *In) ([]string, error) {
	_, subs, err := subagents(ctx, s, id, in)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(subs)), nil
}

// subagents returns the parts of a session that are logs of its subagents.
func subagents(ctx context.Context, s Store, id string, in *In) (Key, map[string]string, error) {
	key, err := locate(ctx, s, id, in)
	if err != nil {
		return key, nil, err
	}
	all, err := s.Subkeys(ctx, key)
	if err != nil {
		return key, nil, err
	}
	slices.Sort(all)
	subs := map[string]string{} // by agent
	for _, sub := range all {
		agent, ok := strings.CutPrefix(path.Base(sub), "agent-")
		if ok && strings.HasPrefix(sub, "subagents/") && subs[agent] == "" {
			subs[agent] = sub
		}
	}
	return key, subs, nil
}

// SubagentMessages returns the messages of a subagent of a session.
func SubagentMessages(ctx context.Context, s Store, id, agent string, opts *MessagesOptions) ([]Message, error) {
	if opts == nil {
		opts = &MessagesOptions{}
	}
	key, subs, err := subagents(ctx, s, id, &opts.In)
	if err != nil {
		return nil, err
	}
	if key.Sub = subs[agent]; key.Sub == "" {
		return nil, fmt.Errorf("session: no subagent %q: %w", agent, ErrNotFound)
	}
	all, err := messages(ctx, s, key, opts)
	if err != nil {
		return nil, err
	}
	records, err := s.Load(ctx, key)
	if err != nil {
		return nil, err
	}
	var meta struct {
		Type          string `json:"type"`
		ToolUseID     string `json:"toolUseId"`
		ParentAgentID string `json:"parentAgentId"`
	}
	for _, r := range records {
		if bytes.Contains(r, []byte(metaType)) && json.Unmarshal(r, &meta) == nil && meta.Type == metaType {
			for i := range all {
				all[i].ParentToolUseID, all[i].ParentAgentID = meta.ToolUseID, meta.ParentAgentID
			}
			break
		}
	}
	return all, nil
}

// openRead opens a regular file for reading.
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
