package agent

import (
	"encoding/json"

	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// replayHistory sends the messages of a resumed session to the host, after the first
// init: its prompts and results as replayed user messages, its answers unchanged. Only
// --replay-history enables it, because hosts that do not expect it take old messages
// for new ones.
func (s *server) replayHistory(h *session.History) {
	if h == nil {
		return
	}
	for _, e := range h.Entries {
		if isMarked(e, "isMeta") || isMarked(e, "isSidechain") || isMarked(e, "isCompactSummary") {
			continue
		}
		stamp := e.Time.UTC().Format("2006-01-02T15:04:05.000Z")
		switch e.Type {
		case "user":
			m := &wire.User{IsReplay: true, SessionID: s.set.sessionID, UUID: e.UUID, Timestamp: stamp, ToolUseResult: e.Fields["toolUseResult"]}
			if json.Unmarshal(e.Message, &m.Message) == nil {
				s.out.send(m)
			}
		case "assistant":
			m := &wire.Assistant{SessionID: s.set.sessionID, UUID: e.UUID, Timestamp: stamp}
			if json.Unmarshal(e.Message, &m.Message) == nil {
				m.Extra = map[string]json.RawMessage{"isReplay": json.RawMessage("true")}
				s.out.send(m)
			}
		}
	}
}

// isMarked reports whether a member of an entry is true.
func isMarked(e *session.Entry, name string) bool { return string(e.Fields[name]) == "true" }
