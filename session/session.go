// Package session stores conversations. A session is an append-only log of records, one JSON
// object per line, in the layout that the official SDKs read. Everything that an agent
// knows about a session is in its log.
//
// A [Store] stores the records: [Files] below a directory, in the same places and format as
// the official CLI, whose sessions it also reads; [Memory] in memory. A database
// becomes a store if you write six methods for it; package sessiontest tests their guarantees. The
// functions of this package work with any of them: [Create] and [Open] are for an agent,
// [List], [Stat], [Messages], [Rename], [Fork], [Export] and so on are for programs that
// show sessions to people.
//
// # A log
//
// A conversation is a tree: each record names its parent, and the path from the newest leaf
// to the root is the conversation. Some records, such as titles, are not part of the tree.
// Two of these are ours: [Intent] is written before a tool with effects runs, [Outcome]
// after it, so that a process that resumes the session of one that died can report to the model
// what ran and what did not: see [Repair].
//
// The package accesses the given directory and nothing else: no environment, no home
// directory, no network, no child process.
package session

import (
	"encoding/json"
	"errors"
	"time"
)

// ErrNotFound means that there is no such session.
var ErrNotFound = errors.New("session: not found")

// ErrExists means that the id of a new session is in use.
var ErrExists = errors.New("session: the id is already in use")

// ErrLocked means that the session is open elsewhere, in this process or another.
var ErrLocked = errors.New("session: it is open elsewhere")

// ErrClosed means that the log was closed.
var ErrClosed = errors.New("session: the log is closed")

// An Entry is one record of a log. Entries with a UUID form a tree by ParentUUID; the
// conversation is the path from the newest leaf to the root.
type Entry struct {
	Type       string // "user", "assistant", "system", "attachment", or that of a record outside of the tree
	UUID       string
	ParentUUID string
	Time       time.Time       // in milliseconds; zero means now for a new record of the tree
	Message    json.RawMessage // of user and assistant records: the message as in the API
	// Fields are the other members, such as toolUseResult or requestId. They must not repeat
	// type, uuid, parentUuid, sessionId, timestamp and message, nor the members of [Meta];
	// isSidechain is among them only if it is true.
	Fields map[string]json.RawMessage
	// Hasty means that Append need not wait for the disk: the appended entry survives the
	// end of the process, and a power failure as soon as a later entry that is not hasty
	// does.
	Hasty bool
	// Fixed means that the values of Fields are single-line JSON that never changes: a log
	// does not validate them again, and may keep them without copying.
	Fixed bool
}

// A Log is one session that is open for writing. Append is safe for concurrent use; there is
// only one open Log for a session at a time, in all processes.
type Log interface {
	// ID returns the id of the session.
	ID() string
	// Path returns the file of the session, or "" if it is in none.
	Path() string
	// Append writes entries at the end, in order, all or none. After it returns, they
	// survive the end of this process. It does not retain entries that are not fixed. After
	// an error that leaves the end of the log unknown, all later calls fail, too.
	Append(entries ...*Entry) error
	// Sub returns the log of a part of the session, such as that of a subagent,
	// "subagents/agent-1": see [Key]. It is written under the same lock, and is closed with
	// this one; closing it alone only ends it. Each call returns a new log for the part.
	Sub(name string) (Log, error)
	// Close closes the log so that others can open the session. A session without an entry
	// leaves nothing behind. Closing twice does no harm.
	Close() error
}

// Meta is the context that every record of a session contains.
type Meta struct {
	ID         string // for a new session: a UUID
	Cwd        string
	Version    string
	GitBranch  string
	Entrypoint string // such as "sdk-ts"
}

// A History is the content of a session.
type History struct {
	// Entries are the conversation, oldest first, since the last compaction: if there was
	// one, the first is its boundary, the second the summary, and then come the messages
	// that it preserved. Concurrent calls come before their results, whatever branches of
	// the tree they are on.
	Entries []*Entry
	Latest  map[string]*Entry // the last record of each type outside of the tree
	Torn    bool              // the last line was incomplete, and was removed
	Corrupt int               // number of other lines that were not records, and were left out
	Meta    Meta              // the context of the last record of the conversation

	effects map[string]effect // by the id of the call
}

// Title returns the title that a person or the host gave the session, or an empty string.
func (h *History) Title() string {
	if h == nil || h.Latest["custom-title"] == nil {
		return ""
	}
	var title string
	json.Unmarshal(h.Latest["custom-title"].Fields["customTitle"], &title)
	return title
}
