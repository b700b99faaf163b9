package hub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// A Kind is the kind of an entry of a journal.
type Kind string

// The kinds of entries. All but records have a number.
const (
	KindFrame  Kind = "frame"  // a message of the agent, as every viewer receives it
	KindRecord Kind = "record" // a record of the agent's session log, if the journal also stores that

	KindCreated  Kind = "created"  // the first entry of a session: see [Created]
	KindForked   Kind = "forked"   // the first entry of a fork: see [Created]
	KindOwner    Kind = "owner"    // another hub became the owner: see [Owner]
	KindPrompt   Kind = "prompt"   // a prompt was accepted: see [Prompt]
	KindDropped  Kind = "dropped"  // a queued prompt was dropped: see [Dropped]
	KindAsk      Kind = "ask"      // the agent needs an answer: see [Ask]
	KindAnswer   Kind = "answer"   // the answer to a question: see [Answer]
	KindChanged  Kind = "changed"  // the agent's options were changed: see [Changed]
	KindControl  Kind = "control"  // somebody changed a setting or interrupted a turn: see [Control]
	KindHost     Kind = "host"     // a host attached, took over or left: see [HostChange]
	KindEnded    Kind = "ended"    // the agent ended unexpectedly, or a turn has no result: see [Ended]
	KindSchedule Kind = "schedule" // a schedule was added, removed, fired or missed: see [Scheduled]
	KindRewound  Kind = "rewound"  // the conversation was rewound: see [Rewound]
	KindCleared  Kind = "cleared"  // the conversation was cleared: see [Cleared]
	KindArchived Kind = "archived" // the session was archived or restored: see [Archived]
	KindTrimmed  Kind = "trimmed"  // old entries were removed: see [Trimmed]
)

// The kinds of events that viewers receive and that are not in a journal.
const (
	KindState Kind = "state" // the state of the session: see [State]
	KindLive  Kind = "live"  // a message that is not recorded: a piece of an answer, progress
)

// An Entry is one entry of a journal, and one event that a viewer receives.
type Entry struct {
	// N is 1, 2, 3 … without a gap, and never changes. It is 0 for records and for
	// events that are not in a journal.
	N    uint64
	Kind Kind
	Time time.Time // in milliseconds; zero for events that are not in a journal
	// Epoch is the number of the [KindOwner] entry under which the entry was written.
	Epoch uint64
	// Item is the number of the inbox item that the entry consumes, 0 for none.
	Item uint64
	// Record is the uuid of the record that a frame shows, if any.
	Record string
	// Recovered reports that the frame was made from its record afterwards: the session
	// was continued outside of a hub, or its hub died.
	Recovered bool
	// Log names the log of a record: see [session.Key].
	Log string
	// Data is one JSON value on one line.
	Data json.RawMessage
}

// timeFormat has the millisecond precision of a journal.
const timeFormat = "2006-01-02T15:04:05.000Z"

// AppendTo appends the entry as one line of JSON, without the line feed. The same entry
// always produces the same bytes.
func (e *Entry) AppendTo(dst []byte) []byte {
	dst = append(dst, '{')
	if e.N > 0 {
		dst = append(dst, `"n":`...)
		dst = strconv.AppendUint(dst, e.N, 10)
		dst = append(dst, ',')
	}
	dst = append(dst, `"kind":"`...)
	dst = append(dst, e.Kind...)
	if !e.Time.IsZero() {
		dst = append(dst, `","time":"`...)
		dst = e.Time.UTC().AppendFormat(dst, timeFormat)
	}
	dst = append(dst, '"')
	if e.Epoch > 0 {
		dst = append(dst, `,"epoch":`...)
		dst = strconv.AppendUint(dst, e.Epoch, 10)
	}
	if e.Item > 0 {
		dst = append(dst, `,"item":`...)
		dst = strconv.AppendUint(dst, e.Item, 10)
	}
	if e.Record != "" {
		dst = append(dst, `,"record":`...)
		dst = appendString(dst, e.Record)
	}
	if e.Recovered {
		dst = append(dst, `,"recovered":true`...)
	}
	if e.Log != "" {
		dst = append(dst, `,"log":`...)
		dst = appendString(dst, e.Log)
	}
	dst = append(dst, `,"data":`...)
	if len(e.Data) == 0 {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, e.Data...)
	}
	return append(dst, '}')
}

// MarshalJSON implements [json.Marshaler].
func (e Entry) MarshalJSON() ([]byte, error) { return e.AppendTo(nil), nil }

func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c > '~' {
			quoted, _ := json.Marshal(s)
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// ParseEntry parses a line that [Entry.AppendTo] wrote. The entry refers to line.
func ParseEntry(line []byte) (Entry, error) {
	if e, ok := parseQuick(line); ok {
		return e, nil
	}
	var raw struct {
		N         uint64          `json:"n"`
		Kind      Kind            `json:"kind"`
		Time      time.Time       `json:"time"`
		Epoch     uint64          `json:"epoch"`
		Item      uint64          `json:"item"`
		Record    string          `json:"record"`
		Recovered bool            `json:"recovered"`
		Log       string          `json:"log"`
		Data      json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		return Entry{}, fmt.Errorf("hub: an entry cannot be read: %w", err)
	}
	if raw.Kind == "" {
		return Entry{}, fmt.Errorf("hub: an entry cannot be read: it has no kind")
	}
	return Entry{raw.N, raw.Kind, raw.Time, raw.Epoch, raw.Item, raw.Record, raw.Recovered, raw.Log, raw.Data}, nil
}

// parseQuick parses a line in the form that AppendTo writes, without looking at the
// data, because replaying a journal of thousands of entries waits for this.
func parseQuick(line []byte) (e Entry, ok bool) {
	s := scanner{rest: line}
	if !s.skip("{") {
		return e, false
	}
	if s.skip(`"n":`) {
		if e.N, ok = s.number(); !ok || !s.skip(",") {
			return e, false
		}
	}
	if !s.skip(`"kind":`) {
		return e, false
	}
	kind, ok := s.quoted()
	if !ok || kind == "" {
		return e, false
	}
	e.Kind = Kind(kind)
	if s.skip(`,"time":"`) {
		if e.Time, ok = s.time(); !ok || !s.skip(`"`) {
			return e, false
		}
	}
	if s.skip(`,"epoch":`) {
		if e.Epoch, ok = s.number(); !ok {
			return e, false
		}
	}
	if s.skip(`,"item":`) {
		if e.Item, ok = s.number(); !ok {
			return e, false
		}
	}
	if s.skip(`,"record":`) {
		if e.Record, ok = s.quoted(); !ok {
			return e, false
		}
	}
	e.Recovered = s.skip(`,"recovered":true`)
	if s.skip(`,"log":`) {
		if e.Log, ok = s.quoted(); !ok {
			return e, false
		}
	}
	n := len(s.rest)
	if !s.skip(`,"data":`) || n < len(`,"data":x}`) || s.rest[len(s.rest)-1] != '}' {
		return e, false
	}
	e.Data = s.rest[: len(s.rest)-1 : len(s.rest)-1]
	return e, true
}

// A scanner reads the start of a line.
type scanner struct{ rest []byte }

func (s *scanner) skip(text string) bool {
	if len(s.rest) < len(text) || string(s.rest[:len(text)]) != text {
		return false
	}
	s.rest = s.rest[len(text):]
	return true
}

func (s *scanner) number() (n uint64, ok bool) {
	i := 0
	for ; i < len(s.rest) && i < 19 && '0' <= s.rest[i] && s.rest[i] <= '9'; i++ {
		n = n*10 + uint64(s.rest[i]-'0')
	}
	s.rest = s.rest[i:]
	return n, i > 0
}

// time parses a time as timeFormat has it.
func (s *scanner) time() (time.Time, bool) {
	if len(s.rest) < len(timeFormat) {
		return time.Time{}, false
	}
	var at [7]int // year, month, day, hour, minute, second, millisecond
	part := 0
	for i, want := range []byte(timeFormat) {
		c := s.rest[i]
		switch {
		case '0' <= want && want <= '9':
			if c < '0' || c > '9' {
				return time.Time{}, false
			}
			at[part] = at[part]*10 + int(c-'0')
		case c != want:
			return time.Time{}, false
		default:
			part++
		}
	}
	t := time.Date(at[0], time.Month(at[1]), at[2], at[3], at[4], at[5], at[6]*1e6, time.UTC)
	// A time that does not exist, as the 31st of June, was changed to one that does.
	_, month, day := t.Date()
	hour, minute, second := t.Clock()
	ok := int(month) == at[1] && day == at[2] && hour == at[3] && minute == at[4] && second == at[5]
	s.rest = s.rest[len(timeFormat):]
	return t, ok
}

// quoted parses a string of plain characters.
func (s *scanner) quoted() (string, bool) {
	if len(s.rest) == 0 || s.rest[0] != '"' {
		return "", false
	}
	n := bytes.IndexByte(s.rest[1:], '"')
	if n < 0 {
		return "", false
	}
	for _, c := range s.rest[1 : 1+n] {
		if c < ' ' || c == '\\' || c > '~' {
			return "", false
		}
	}
	text := string(s.rest[1 : 1+n])
	s.rest = s.rest[n+2:]
	return text, true
}

// checkEntries returns an error unless the entries can follow the number last.
func checkEntries(last uint64, entries []Entry) error {
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Kind == "" || !plainWord(string(e.Kind)):
			return fmt.Errorf("hub: an entry has the kind %q", e.Kind)
		case e.Kind == KindRecord && e.N != 0:
			return fmt.Errorf("hub: a record has the number %d", e.N)
		case e.Kind != KindRecord && e.N != last+1:
			return fmt.Errorf("hub: an entry has the number %d and comes after %d", e.N, last)
		case len(e.Data) == 0 || bytes.IndexByte(e.Data, '\n') >= 0 || !json.Valid(e.Data):
			return fmt.Errorf("hub: the data of entry %d is not JSON on one line", e.N)
		}
		if e.N > 0 {
			last = e.N
		}
	}
	return nil
}

func plainWord(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && c != '_' {
			return false
		}
	}
	return true
}
