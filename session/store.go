package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// ErrLeaseLost says that another has become the writer of a session, because this
// one was silent for too long.
var ErrLeaseLost = errors.New("session: another process writes it now")

// A Store keeps the records of sessions. It knows nothing of what they say but
// their uuid, so that a database is one: see package sessiontest for what it must
// hold. It is safe for concurrent use, in many processes.
type Store interface {
	// Append adds records at the end of a log, in order, all or none, and returns
	// when they are kept for good. A record with a uuid that the log holds already
	// is left out, so that an append whose outcome is not known can be repeated.
	// No records are no log. It needs no lease: those who add a title to a session
	// that is open, or mirror one, have none.
	Append(ctx context.Context, key Key, records []json.RawMessage) error
	// Load returns the records of a log in their order, equal in meaning to those
	// that were appended. The error is [ErrNotFound] if there are none.
	Load(ctx context.Context, key Key) ([]json.RawMessage, error)
	// List returns the sessions of a project, of an id, or of both; what is empty
	// in match fits all. Sub does not count. The order is any.
	List(ctx context.Context, match Key) ([]Listed, error)
	// Delete removes a log. The log of a session is removed with its parts; the log of
	// a part alone. A log that does not exist is not an error. Leases are ignored.
	Delete(ctx context.Context, key Key) error
	// Subkeys returns the names of the parts of a session, in any order.
	Subkeys(ctx context.Context, key Key) ([]string, error)
	// Lease makes the caller the one writer of a session, which need not be there
	// yet. The error is [ErrLocked] if another one is, whatever project it has in
	// its key. A lease ends when it is closed, and soon after its holder has died;
	// the store renews it until then.
	Lease(ctx context.Context, key Key) (Lease, error)
}

// A Lease is the right to write a session and its parts. Append is safe for
// concurrent use.
type Lease interface {
	// Append is that of the store, to the session or to a part of it. It fails
	// with [ErrLeaseLost], and writes nothing, if the lease has ended and
	// another one has begun, however late it comes.
	Append(ctx context.Context, sub string, records []json.RawMessage) error
	// Close lets others have the lease. Closing twice does no harm.
	Close() error
}

// A Summarizer is a [Store] that keeps beside each session what a list shows of
// it, so that a list need not load all of them.
type Summarizer interface {
	// Summaries returns what [Fold] made of the records of each session of a
	// project, or of all if it is empty. Records of parts do not count.
	Summaries(ctx context.Context, project string) ([]Summary, error)
}

// A Summary is what a list shows of a session. If it is older than the session, or
// missing, the session is loaded instead.
type Summary struct {
	Key      Key
	Modified time.Time       // when it was written, by the same clock as that of [Listed]
	Data     json.RawMessage // what [Fold] returned, kept as it is
}

// A Key names one log of a store.
type Key struct {
	Project string // what [ProjectKey] returns for the directory that the session began in
	Session string // the id of the session
	Sub     string // empty: the session itself; else a part of it, such as "subagents/agent-1"
}

// String returns the path of a log, as files have it.
func (k Key) String() string {
	if k.Sub == "" {
		return k.Project + "/" + k.Session
	}
	return k.Project + "/" + k.Session + "/" + k.Sub
}

// Check returns an error unless the key is one that a store may use: a project
// that is one name, the id of a session, and a part that stays below it. Stores call
// it, since keys may come from elsewhere.
func (k Key) Check() error {
	plain := func(name string) bool {
		return name != "" && !strings.ContainsAny(name, "/\\\x00:") && name != "." && name != ".."
	}
	if !plain(k.Project) {
		return fmt.Errorf("session: %q is not the key of a project", k.Project)
	}
	if !ValidID(k.Session) {
		return fmt.Errorf("session: the id %q is not a UUID", k.Session)
	}
	return checkSub(k.Sub)
}

// checkSub checks the name of a part, which may be empty.
func checkSub(sub string) error {
	if sub == "" {
		return nil
	}
	if !fs.ValidPath(sub) || sub == "." || strings.ContainsAny(sub, "\\\x00:") || len(sub) > 512 || strings.Count(sub, "/") > 15 {
		return fmt.Errorf("session: %q is not the name of a part of a session", sub)
	}
	return nil
}

// A Listed session is one that a store holds.
type Listed struct {
	Key      Key
	Modified time.Time // when it was last appended to, parts aside
	Size     int64     // in bytes, 0 if the store does not know
}

// CheckRecords returns an error unless each record is one JSON object. Stores call it
// before they write anything.
func CheckRecords(records []json.RawMessage) error {
	for i, r := range records {
		if !isObject(r) {
			return fmt.Errorf("session: record %d of %d: %w", i+1, len(records), errNoObject)
		}
	}
	return nil
}

var errNoObject = errors.New("it is no JSON object")

// RecordUUID returns the uuid of a record, by which a store knows one that it holds
// already, or nothing if it has none.
func RecordUUID(record json.RawMessage) string {
	var r struct {
		UUID string `json:"uuid"`
	}
	if bytes.Contains(record, []byte(`uuid"`)) || bytes.Contains(record, []byte(`\u`)) {
		json.Unmarshal(record, &r)
	}
	return r.UUID
}
