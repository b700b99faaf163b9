// Package recorder records a conversation in the log of its session, and emits its
// messages to the host. Only this package sets uuids, session ids and times.
//
// It returns every error of the log: anything that is not in the log did not happen.
package recorder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// ErrUnwritten is wrapped by the error of a record that the log could not write.
var ErrUnwritten = errors.New("the session cannot be written")

// CostType is the type of the record with the total cost of requests.
const CostType = "cost-state"

// A Place is a session that is being recorded. It is immutable.
type Place struct {
	ID  string      // of the session
	Log session.Log // nil if the session is not stored
}

// Path returns the file that stores the session, or "".
func (p *Place) Path() string {
	if p.Log == nil {
		return ""
	}
	return p.Log.Path()
}

// Append appends records that are not part of the conversation's tree.
func (p *Place) Append(entries ...*session.Entry) error {
	if p.Log == nil || len(entries) == 0 {
		return nil
	}
	return Unwritten(p.Log.Append(entries...))
}

// Options configure a recorder.
type Options struct {
	Place Place              // a missing id is generated
	Agent string             // id of the subagent whose conversation it is; empty if it is none
	Emit  func(wire.Message) // sends a message to the host
	Now   func() time.Time
	// Follow is called with each record that is added to the conversation's tree. It may
	// be nil.
	Follow func(*session.Entry)
	// Sum returns the record with the total cost of requests, which is written after the
	// records passed to [Recorder.Owe]. It may be nil.
	Sum func() *session.Entry
}

// A Recorder records one conversation. It is safe for concurrent use.
type Recorder struct {
	opts  Options
	place atomic.Pointer[Place]
	stamp atomic.Pointer[stamp]

	mu     sync.Mutex
	parent string           // uuid of the last record in the tree
	owed   []*session.Entry // records to write together with the next one
	costs  bool             // the owed records change the total cost
}

// A stamp is a time in the format of the protocol.
type stamp struct {
	ms   int64
	text string
}

// New returns a recorder.
func New(opts Options) *Recorder {
	r := &Recorder{opts: opts}
	place := opts.Place
	if place.ID == "" {
		place.ID = session.NewID()
	}
	r.place.Store(&place)
	return r
}

// Place returns the session that is being recorded.
func (r *Recorder) Place() *Place { return r.place.Load() }

// ID returns the id of the session.
func (r *Recorder) ID() string { return r.Place().ID }

// Begin switches to recording another session. Before that, [Recorder.Record] without
// records writes the owed ones to the previous session.
func (r *Recorder) Begin(place Place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.place.Store(&place)
	r.parent, r.owed, r.costs = "", nil, false
}

// Emit sends a message to the host and fills in a missing uuid, session id and time.
func (r *Recorder) Emit(m wire.Message) {
	r.Stamp(m)
	r.opts.Emit(m)
}

// Stamp fills in the same members as Emit.
func (r *Recorder) Stamp(m wire.Message) { wire.Stamp(m, session.NewID, r.ID(), r.timestamp) }

// Stamp sets the uuid and time of a message that is emitted before a conversation exists,
// and its session id unless sessionID is empty.
func Stamp(m wire.Message, sessionID string) {
	wire.Stamp(m, session.NewID, sessionID, func() string { return format(time.Now()) })
}

func (r *Recorder) timestamp() string {
	now := r.opts.Now()
	if s := r.stamp.Load(); s != nil && s.ms == now.UnixMilli() {
		return s.text // cached from a message in the same millisecond
	}
	s := &stamp{now.UnixMilli(), format(now)}
	r.stamp.Store(s)
	return s.text
}

func format(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Owe queues the record of a request to be written together with the next one, and with the
// total cost. It does nothing without a log.
func (r *Recorder) Owe(e *session.Entry) { r.queue(e, true) }

// Defer queues a record to be written together with the next one, before it. It does nothing
// without a log.
func (r *Recorder) Defer(e *session.Entry) { r.queue(e, false) }

func (r *Recorder) queue(e *session.Entry, costs bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Place().Log != nil {
		r.owed, r.costs = append(r.owed, e), r.costs || costs
	}
}

// Record writes records, all or none. Those of the conversation's tree get a uuid if they
// have none, and each becomes the child of the previous one.
func (r *Recorder) Record(entries ...*session.Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record(entries)
}

// Replace is [Recorder.Record] for records that start a new tree.
func (r *Recorder) Replace(entries ...*session.Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	parent := r.parent
	r.parent = ""
	err := r.record(entries)
	if err != nil {
		r.parent = parent
	}
	return err
}

// Identify sets the uuids that [Recorder.Record] would set.
func (r *Recorder) Identify(entries ...*session.Entry) {
	for _, e := range entries {
		switch e.Type {
		case "user", "assistant", "system":
			if e.UUID == "" {
				e.UUID = session.NewID()
			}
		}
	}
}

// Resume makes the next record the child of one that is already in the log.
func (r *Recorder) Resume(parent string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parent = parent
}

// Parent returns the uuid of the last record in the tree.
func (r *Recorder) Parent() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.parent
}

func (r *Recorder) record(entries []*session.Entry) error {
	r.Identify(entries...)
	for _, e := range entries {
		if e.UUID != "" && r.opts.Follow != nil {
			r.opts.Follow(e)
		}
	}
	log := r.Place().Log
	if log == nil || len(entries)+len(r.owed) == 0 {
		return nil
	}
	owes, costs := r.owed, r.costs
	if owed := slices.Clone(owes); len(owed) > 0 {
		r.owed, r.costs = nil, false
		if costs && r.opts.Sum != nil && !slices.ContainsFunc(entries, func(e *session.Entry) bool { return e.Type == CostType }) {
			owed = append(owed, r.opts.Sum())
		}
		entries = append(owed, entries...)
	}
	now, parent := r.opts.Now(), r.parent
	for _, e := range entries {
		e.Time = now
		if e.UUID != "" {
			e.ParentUUID, r.parent = r.parent, e.UUID
		}
		if r.opts.Agent != "" {
			if e.Fields == nil {
				e.Fields = map[string]json.RawMessage{}
			}
			e.Fields["isSidechain"], e.Fields["agentId"] = json.RawMessage("true"), JSON(r.opts.Agent)
		}
	}
	err := log.Append(entries...)
	if err != nil { // the next record must be the child of one in the log
		r.parent, r.owed, r.costs = parent, owes, costs
	}
	return Unwritten(err)
}

// Unwritten wraps an error of the log with advice about what to do.
func Unwritten(err error) error {
	if err == nil {
		return nil
	}
	if file := new(fs.PathError); errors.As(err, &file) {
		return fmt.Errorf("%w: %w. Make room, or keep no session with --no-session-persistence", ErrUnwritten, file)
	}
	return fmt.Errorf("%w: %w", ErrUnwritten, err)
}

// JSON encodes a value that can always be encoded.
func JSON(v any) json.RawMessage {
	switch v := v.(type) { // most fields of records, encoded as Marshal does
	case bool:
		return strconv.AppendBool(nil, v)
	case int:
		return strconv.AppendInt(nil, int64(v), 10)
	case int64:
		return strconv.AppendInt(nil, v, 10)
	case string:
		if isPlain(v) {
			raw := make([]byte, 0, len(v)+2)
			return append(append(append(raw, '"'), v...), '"')
		}
	}
	raw, err := json.Marshal(v)
	if err != nil {
		panic("engine: " + err.Error())
	}
	return raw
}

// isPlain reports whether encoding/json writes a text as it is.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// Fields returns the fields of a record, from alternating names and values.
func Fields(pairs ...any) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i].(string)] = JSON(pairs[i+1])
	}
	return m
}
