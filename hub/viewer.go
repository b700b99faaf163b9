package hub

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/parley-go/parley/wire"
)

// A LaggedError ends the events of a viewer that does not keep up. The agent never
// waits for a viewer. A viewer that attaches again with the number After misses nothing.
type LaggedError struct {
	After uint64 // the number of the last entry that the viewer received
}

// Error names the entry after which to attach again.
func (e *LaggedError) Error() string {
	return fmt.Sprintf("hub: the viewer does not keep up; attach again behind entry %d", e.After)
}

// A viewer is a queue of events. The room adds events and never waits; one goroutine
// removes them.
type viewer struct {
	from  uint64 // it reads entries up to this number from the journal
	limit int    // in bytes; pieces of answers are left out when the queue is half full

	mu     sync.Mutex
	events []Entry
	bytes  int
	lagged bool            // the queue was full and ends here
	over   error           // why there are no more events; nil if there may be more
	skips  map[string]bool // streams with pieces that were left out, by their parent_tool_use_id
	bell   chan struct{}   // holds a token if there are new events
}

func newViewer(limit int) *viewer {
	return &viewer{limit: limit, skips: map[string]bool{}, bell: make(chan struct{}, 1)}
}

// put adds an event. A state replaces a state at the end of the queue.
func (v *viewer) put(e Entry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lagged || v.over != nil {
		return
	}
	if e.Kind == KindLive && v.skip(e.Data) {
		return
	}
	if last := len(v.events) - 1; e.Kind == KindState && last >= 0 && v.events[last].Kind == KindState {
		v.bytes -= size(&v.events[last])
		v.events = v.events[:last]
	}
	if v.bytes += size(&e); v.bytes > v.limit && len(v.events) > 0 {
		v.lagged = true
	} else {
		v.events = append(v.events, e)
	}
	v.ring()
}

func size(e *Entry) int { return len(e.Data) + 64 }

// skip reports whether to leave a piece out. Once it leaves one out, it leaves out the
// rest of that block as well, and the viewer gets the whole block instead.
func (v *viewer) skip(data json.RawMessage) bool {
	full := v.bytes+len(data) > v.limit/2
	if !full && len(v.skips) == 0 {
		return false
	}
	if wire.PeekType(data) != "stream_event" {
		return full // progress
	}
	var e struct {
		Event           struct{ Type string }
		ParentToolUseID string `json:"parent_tool_use_id"`
	}
	json.Unmarshal(data, &e)
	if !full && (e.Event.Type == "content_block_start" || e.Event.Type == "message_start") {
		delete(v.skips, e.ParentToolUseID)
	}
	if full {
		v.skips[e.ParentToolUseID] = true
	}
	return v.skips[e.ParentToolUseID]
}

// end ends the queue for a reason, after the events that are queued.
func (v *viewer) end(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over == nil {
		v.over = err
	}
	v.ring()
}

func (v *viewer) ring() {
	select {
	case v.bell <- struct{}{}:
	default:
	}
}

// drain returns the events that are queued. If there are none, over is the reason why
// there will be none, and lagged reports that the queue was full.
func (v *viewer) drain() (events []Entry, lagged bool, over error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	events, v.events, v.bytes = v.events, nil, 0
	if len(events) > 0 {
		return events, false, nil
	}
	return nil, v.lagged, v.over
}
