// Package session keeps conversations. A session is an append-only log of records,
// one JSON object a line, in the layout that the official SDKs read; what is not
// in it did not happen.
package session

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// ErrNotFound says that there is no such session.
var ErrNotFound = errors.New("session: not found")

// ErrExists says that the id of a new session is taken.
var ErrExists = errors.New("session: the id is already in use")

// An Entry is one record of a log. Those with a UUID form a tree by ParentUUID;
// the conversation is the path from its newest leaf to the root.
type Entry struct {
	Type       string // "user", "assistant", "system", "attachment", or that of a record without a place in the tree
	UUID       string
	ParentUUID string
	Time       time.Time
	Message    json.RawMessage // of user and assistant records: the message as the API has it
	// Fields are the other members, such as toolUseResult or requestId. They
	// must not repeat those that the log writes itself.
	Fields map[string]json.RawMessage
}

// A Log is one session that is open for writing. Append is safe for concurrent
// use; there is one open Log for a session at a time, in all processes.
type Log interface {
	// ID returns the id of the session.
	ID() string
	// Path returns the file that the session is kept in, empty if it is in none.
	Path() string
	// Append writes entries at the end, in order, all or none. When it returns
	// they survive the end of this process.
	Append(entries ...*Entry) error
	Close() error
}

// A Store keeps sessions. It is safe for concurrent use.
type Store interface {
	// Create starts a session. The error is [ErrExists] if the id is taken.
	Create(ctx context.Context, meta Meta) (Log, error)
	// Open opens a session to go on with it, and returns the entries of its
	// conversation, oldest first, and the last record of each type that has no
	// place in the tree. The error is [ErrNotFound] if there is none.
	Open(ctx context.Context, id string, meta Meta) (Log, *History, error)
	// Latest returns the id of the newest session that began in a directory, or
	// [ErrNotFound].
	Latest(ctx context.Context, cwd string) (id string, err error)
	// Find returns the id of the session that a title belongs to, or
	// [ErrNotFound].
	Find(ctx context.Context, title string) (id string, err error)
}

// Meta is what every record of a session tells of its surroundings.
type Meta struct {
	ID         string // of a new session
	Cwd        string
	Version    string
	GitBranch  string
	Entrypoint string // such as "sdk-ts"
}

// A History is what a session holds.
type History struct {
	Entries []*Entry          // the conversation, oldest first, from the last compaction on
	Latest  map[string]*Entry // the last record of each type without a place in the tree
	Torn    bool              // the last line was cut off, and is gone
}
