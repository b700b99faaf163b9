package hub

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"
)

var (
	// ErrConflict is returned by [Backend.Append] when the journal does not end with
	// the expected number: another hub has taken the session over.
	ErrConflict = errors.New("hub: another process has written to the journal")

	// ErrLocked is returned when another process holds the lease of a session.
	ErrLocked = errors.New("hub: another process runs the session")

	// ErrNotFound is returned for an unknown session.
	ErrNotFound = errors.New("hub: session not found")
)

// AnyNumber, as the number that [Backend.Append] expects, accepts any last number. Only
// records can be appended that way: a title, for example, is added without a lease.
const AnyNumber = ^uint64(0)

// A Backend stores the journals of sessions, and the inboxes through which programs that
// do not run a session reach the one that does. [Memory] and [Files] are backends; package
// hubtest tests implementations.
//
// A session is named by a UUID. Nothing needs to be created before it is used. A Backend
// is safe for concurrent use, by many processes at once unless documented otherwise. If ctx
// ends an iterator, the iterator yields the error of ctx as its last pair. The caller owns
// the entries and items that iterators yield.
//
// Safety rests on Append alone: a process that was paused and lost its lease without
// noticing cannot write anything, because the new owner's first entry changed the last
// number. Leases only keep two processes from trying.
type Backend interface {
	// Append adds entries to the end of a journal, in order, and returns when they survive
	// a crash. The numbers of the entries must follow expect, which must be the last
	// number in the journal: if it is not, the error is [ErrConflict], and nothing is
	// written. If the process dies in Append, the journal may contain only the first few
	// entries.
	//
	// After any other error it is unknown how much was written. Calling Append with the
	// same entries again is safe: it fails with ErrConflict if they are there.
	Append(ctx context.Context, id string, expect uint64, entries []Entry) error

	// Read yields the entries after the one with the number after, records included. If
	// the first of them has a number above after+1, the ones in between were trimmed. With
	// follow it continues with new entries until ctx ends.
	Read(ctx context.Context, id string, after uint64, follow bool) iter.Seq2[Entry, error]

	// Trim removes the entries with numbers below before, but neither records nor the last
	// entry. Numbers do not change.
	Trim(ctx context.Context, id string, before uint64) error

	// Lease makes the caller the only process that runs a session. The error is
	// [ErrLocked] if another process does. A lease ends when it is closed, and soon after
	// its holder has died.
	Lease(ctx context.Context, id string) (Lease, error)

	// Put adds an item to the inbox of a session, unless one with the same key is there.
	// When the item survives a crash, Put returns the stored item with its number. Compare
	// Data to find out who put it. A backend knows nothing about items that were trimmed:
	// the journal records their outcome.
	Put(ctx context.Context, id string, item Item) (Item, error)

	// Inbox yields the items with numbers above after, in the order in which they were
	// put. With follow it continues with new items until ctx ends.
	Inbox(ctx context.Context, id string, after uint64, follow bool) iter.Seq2[Item, error]

	// TrimInbox removes the items with numbers below before, but not the last item. It may
	// leave some for later while they are few. Numbers do not change.
	TrimInbox(ctx context.Context, id string, before uint64) error

	// Wake marks a session as having work to do.
	Wake(ctx context.Context, id string) error
	// Rest marks a session as having no work to do.
	Rest(ctx context.Context, id string) error
	// Work yields the sessions that have work to do. With follow it continues with
	// sessions that are woken in this process, and in other processes if the backend can.
	// It may yield a session twice.
	Work(ctx context.Context, follow bool) iter.Seq2[string, error]

	// List returns all sessions that have a journal, in any order.
	List(ctx context.Context) ([]Listed, error)

	// Delete removes a session and everything that belongs to it. The error is [ErrLocked]
	// if a process runs it. Deleting a session that does not exist is not an error.
	Delete(ctx context.Context, id string) error
}

// A Broadcaster is a [Backend] that also sends messages that are not recorded, such as the pieces of an
// answer, to the processes that follow a session: their Read yields them as entries of [KindLive].
type Broadcaster interface {
	// Broadcast sends a message to the current followers of the session. It does not wait, and the message
	// may be lost.
	Broadcast(id string, data json.RawMessage)
}

// A Waker is a [Backend] that combines Wake, Put and Wake in one method, with fewer waits.
type Waker interface {
	// PutAndWake puts an item into the inbox of a session, like Put. When it returns, the session is recorded as
	// having work to do.
	PutAndWake(ctx context.Context, id string, item Item) (Item, error)
}

// A Rester is a [Backend] that checks whether a session can rest. Its servers may answer without the latest entries and
// items, so reading cannot show that nothing was added.
type Rester interface {
	// RestBehind marks a session as having no work to do, like Rest, unless its journal has entries after the number n,
	// which may be AnyNumber, or its inbox has items after the number item. It reports whether the session rests.
	RestBehind(ctx context.Context, id string, n, item uint64) (bool, error)
}

// A Caller is a [Backend] through which the hubs that share it call each other. Without one, methods such as
// [Session.Rewind] return [ErrLocked] unless this process runs the session.
type Caller interface {
	// Call sends a request to the process that runs a session, or to one that can, and returns its response.
	// The error is [ErrLocked] if there is none.
	Call(ctx context.Context, id string, request []byte) ([]byte, error)
	// Answer sets the function that answers the requests of other processes to this one, until ctx ends. The
	// function returns [ErrLocked] if this process cannot run the session.
	Answer(ctx context.Context, answer func(ctx context.Context, id string, request []byte) ([]byte, error)) error
}

// A Lease is the right to run a session.
type Lease interface {
	// Lost is closed when the lease is known to be lost, possibly late or never.
	Lost() <-chan struct{}
	// Close gives up the lease. Closing twice does no harm.
	Close() error
}

// An Item is a message in the inbox of a session, to the process that runs it.
type Item struct {
	Number uint64 // 1, 2, 3 …; [Backend.Put] sets it
	Key    string // unique; at most 200 bytes
	Time   time.Time
	Data   json.RawMessage // one JSON value on one line
}

// A Listed is a session in a backend.
type Listed struct {
	ID       string
	Modified time.Time // time of the last append to its journal
	Size     int64     // changes whenever the journal does
}
