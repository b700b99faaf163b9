// Package session keeps conversations. A session is an append-only log of records,
// one JSON object a line, in the layout that the official SDKs read; what is not
// in it did not happen.
//
// A [Store] keeps the records: [Files] below a directory, where and as the official
// CLI does, and reads those that it wrote; [Memory] as long as the process lives.
// Package sessiontest says what every store must hold, and a database is one with
// six methods. The functions of this package do the rest over any of them: [Create]
// and [Open] are what an agent needs, [List], [Stat], [Messages], [Rename], [Fork],
// [Export] and so on are for programs that show sessions to people.
//
// # A log
//
// A conversation is a tree: each record names its parent, and the path from the
// newest leaf to the root is what was said. Some records have no place in it,
// such as titles. Two of these are ours: [Intent] is written before a tool with
// effects runs, [Outcome] after it, so that whoever goes on with the session of a
// process that died can tell the model what ran and what did not: see [Repair].
//
// The package touches the directory that it is given and nothing else: no
// environment, no home, no network, no child process.
package session

import (
	"encoding/json"
	"errors"
	"time"
)

// ErrNotFound says that there is no such session.
var ErrNotFound = errors.New("session: not found")

// ErrExists says that the id of a new session is taken.
var ErrExists = errors.New("session: the id is already in use")

// ErrLocked says that the session is open elsewhere, here or in another process.
var ErrLocked = errors.New("session: it is open elsewhere")

// ErrClosed says that the log was closed.
var ErrClosed = errors.New("session: the log is closed")

// An Entry is one record of a log. Those with a UUID form a tree by ParentUUID;
// the conversation is the path from its newest leaf to the root.
type Entry struct {
	Type       string // "user", "assistant", "system", "attachment", or that of a record without a place in the tree
	UUID       string
	ParentUUID string
	Time       time.Time       // in milliseconds; of a new record of the tree, zero is now
	Message    json.RawMessage // of user and assistant records: the message as the API has it
	// Fields are the other members, such as toolUseResult or requestId. They
	// must not repeat type, uuid, parentUuid, sessionId, timestamp and message,
	// nor what [Meta] holds; isSidechain is among them only if it is true.
	Fields map[string]json.RawMessage
	// Hasty says that nobody need wait for the disk: appended, the entry survives the end of
	// the process, and a power cut as soon as one behind it that is not hasty does.
	Hasty bool
	// Fixed says that the values of Fields are JSON on one line that never changes: a log
	// does not check them again, and may keep them as they are.
	Fixed bool
}

// A Log is one session that is open for writing. Append is safe for concurrent
// use; there is one open Log for a session at a time, in all processes.
type Log interface {
	// ID returns the id of the session.
	ID() string
	// Path returns the file that the session is kept in, empty if it is in none.
	Path() string
	// Append writes entries at the end, in order, all or none. When it returns
	// they survive the end of this process. It keeps nothing of entries that are not fixed.
	// After an error that leaves the log in doubt, all that follow fail too.
	Append(entries ...*Entry) error
	// Sub returns the log of a part of the session, such as that of a subagent,
	// "subagents/agent-1": see [Key]. It is written under the same lock, and is
	// closed with this one; closing it alone only ends it. Each call returns
	// another one for the same part.
	Sub(name string) (Log, error)
	// Close ends the log and lets others open the session. A session without an
	// entry is none: it leaves nothing behind. Closing twice does no harm.
	Close() error
}

// Meta is what every record of a session tells of its surroundings.
type Meta struct {
	ID         string // of a new session: a UUID
	Cwd        string
	Version    string
	GitBranch  string
	Entrypoint string // such as "sdk-ts"
}

// A History is what a session holds.
type History struct {
	// Entries are the conversation, oldest first, from the last compaction on: if
	// there was one, the first is its boundary, the second the summary, and then
	// come the messages that it preserved. Calls that were made at once come
	// before their results, whatever branches of the tree they are on.
	Entries []*Entry
	Latest  map[string]*Entry // the last record of each type without a place in the tree
	Torn    bool              // the last line was cut off, and is gone
	Corrupt int               // how many other lines were no records, and were left out
	Meta    Meta              // the surroundings of the last record of the conversation

	effects map[string]effect // by the id of the call
}
