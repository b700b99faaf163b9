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

	"github.com/parley-go/parley/internal/rawjson"
)

// ErrLeaseLost means that another process has become the writer of a session, because
// this one was silent for too long.
var ErrLeaseLost = errors.New("session: another process writes it now")

// A Store stores the records of sessions. It does not interpret them except for their
// uuid, so a database can be one: see package sessiontest for what it must guarantee.
// It is safe for concurrent use, in many processes.
type Store interface {
	// Append adds records at the end of a log, in order, all or none, and returns when
	// they are stored durably. A record with a uuid that the log already contains is
	// left out, so that an append with an unknown outcome can be repeated. Appending no
	// records does not create a log. It needs no lease: callers that add a title to an
	// open session, or mirror one, have none.
	Append(ctx context.Context, key Key, records []json.RawMessage) error
	// Load returns the records of a log in their order, equivalent to those that were
	// appended. The error is [ErrNotFound] if there are none.
	Load(ctx context.Context, key Key) ([]json.RawMessage, error)
	// List returns the sessions with a project, an id, or both; an empty member of
	// match matches all. Sub is ignored. The order is undefined.
	List(ctx context.Context, match Key) ([]Listed, error)
	// Delete removes a log. Removing the log of a session also removes its parts;
	// removing the log of a part removes only that. It is not an error if the log does
	// not exist. Leases are ignored.
	Delete(ctx context.Context, key Key) error
	// Subkeys returns the names of the parts of a session, in any order.
	Subkeys(ctx context.Context, key Key) ([]string, error)
	// Lease makes the caller the only writer of a session, which need not exist yet.
	// The error is [ErrLocked] if there is another writer, whatever project is in its
	// key. A lease ends when it is closed, and soon after its holder has died; the
	// store renews it until then.
	Lease(ctx context.Context, key Key) (Lease, error)
}

// A Lease is the exclusive right to write a session and its parts. Append is safe for
// concurrent use.
type Lease interface {
	// Append is that of the store, to the session or to a part of it. If the lease has
	// ended and another one has started, it fails with [ErrLeaseLost] and writes
	// nothing, however late.
	Append(ctx context.Context, sub string, records []json.RawMessage) error
	// Close releases the lease. Closing twice does no harm.
	Close() error
}

// A Summarizer is a [Store] that stores a summary of each session, so that a list need
// not load all of them.
type Summarizer interface {
	// Summaries returns the result of [Fold] for the records of each session of a
	// project, or of all if it is empty. Records of parts are not included.
	Summaries(ctx context.Context, project string) ([]Summary, error)
}

// A Summary is the part of a session that a list shows. If it is older than the
// session, or missing, the session is loaded instead.
type Summary struct {
	Key      Key
	Modified time.Time       // when it was written, by the same clock as [Listed]
	Data     json.RawMessage // the result of [Fold], verbatim
}

// A Key names one log of a store.
type Key struct {
	Project string // the [ProjectKey] of the directory that the session started in
	Session string // the id of the session
	Sub     string // empty for the session itself; otherwise a part of it, such as "subagents/agent-1"
}

// String returns the path of a log, as in files.
func (k Key) String() string {
	if k.Sub == "" {
		return k.Project + "/" + k.Session
	}
	return k.Project + "/" + k.Session + "/" + k.Sub
}

// ParseKey is the inverse of [Key.String]. It does not check the key.
func ParseKey(text string) (k Key) {
	k.Project, text, _ = strings.Cut(text, "/")
	k.Session, k.Sub, _ = strings.Cut(text, "/")
	return k
}

// Check returns an error unless a store may use the key: a project that is a single
// name, the id of a session, and a part that stays below it. Stores call it, since keys
// may be untrusted.
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

// A Listed is a session in a store.
type Listed struct {
	Key      Key
	Modified time.Time // when it was last appended to, apart from its parts
	Size     int64     // in bytes; 0 if unknown
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

// RecordUUID returns the uuid of a record, with which a store recognizes a record that
// it already contains, or "".
func RecordUUID(record json.RawMessage) string {
	if id := rawjson.String(record, "uuid"); id != "" {
		return id
	}
	var r struct { // its name may be written with escapes
		UUID string `json:"uuid"`
	}
	if bytes.Contains(record, []byte(`uuid"`)) || bytes.Contains(record, []byte(`\u`)) {
		json.Unmarshal(record, &r)
	}
	return r.UUID
}
