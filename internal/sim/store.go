package sim

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/parley-go/parley/session"
)

// A disk holds the sessions of all lives. Its records survive an agent that is killed.
type disk struct {
	w     *world
	inner *session.Memory
	mu    sync.Mutex
	lease session.Lease // of the running life
	key   session.Key   // of the session
	full  int           // number of further appends that fail because the disk is full
	rand  *rand.Rand
}

func newDisk(w *world) *disk {
	return &disk{w: w, inner: &session.Memory{}, rand: source(w.plan.Seed, "store")}
}

// release ends the lease of a killed agent.
func (d *disk) release() {
	if d.lease != nil {
		d.lease.Close()
		d.lease = nil
	}
}

// A store is the view of the disk for the agent of one life.
type store struct {
	*disk
	life *life
}

var _ session.Store = (*store)(nil)

// write performs every append.
func (s *store) write(ctx context.Context, records []json.RawMessage, commit func() error) error {
	if !s.w.gate(s.life) {
		return errKilled
	}
	f := s.w.fault("store.after", "store.before", "store.slow", "store.full", "store.lease")
	s.mu.Lock()
	delay := max(0, time.Duration(s.rand.Int64N(int64(2*time.Millisecond)))-500*time.Microsecond)
	full := s.full > 0
	if full {
		s.full--
	}
	s.mu.Unlock()
	if f != nil {
		s.w.mu.Lock()
		if f.Kind != "store.slow" {
			s.life.healthy, s.life.unwritten = false, true
		} else {
			for _, c := range s.w.calls { // an agent that ends does not wait so long for their outcomes
				c.deaf = c.deaf || c.life == s.life && c.intents > c.outcomes
			}
		}
		s.w.mu.Unlock()
		switch f.Kind {
		case "store.slow":
			delay = f.D
		case "store.full":
			s.mu.Lock()
			s.full = 10
			s.mu.Unlock()
			full = true
		case "store.before":
			return errors.New("sim: input/output error")
		case "store.lease":
			s.steal()
		}
	}
	if delay > 0 {
		time.Sleep(delay)
	}
	if full {
		s.w.log("store", "disk full")
		return syscall.ENOSPC
	}
	if !s.w.gate(s.life) {
		return errKilled
	}
	// Nothing happens between the last check that the agent is alive and the commit.
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.life.dead {
		return errKilled
	}
	err := commit()
	s.w.observe(records, err)
	if err == nil && s.life.stolen {
		s.w.violateLocked("only the owner writes: an append went through after the lease was lost")
	}
	if err == nil && f != nil && f.Kind == "store.after" {
		return errors.New("sim: the connection to the store broke")
	}
	return err
}

// steal gives the lease to another process, which writes nothing.
func (s *store) steal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil {
		s.lease.Close()
		s.lease, _ = s.inner.Lease(context.Background(), s.key)
		s.w.mu.Lock()
		s.life.stolen = s.lease != nil
		s.w.mu.Unlock()
	}
}

// Append implements [session.Store].
func (s *store) Append(ctx context.Context, key session.Key, records []json.RawMessage) error {
	return s.write(ctx, records, func() error { return s.inner.Append(context.WithoutCancel(ctx), key, records) })
}

// Load implements [session.Store].
func (s *store) Load(ctx context.Context, key session.Key) ([]json.RawMessage, error) {
	return s.inner.Load(ctx, key)
}

// List implements [session.Store].
func (s *store) List(ctx context.Context, match session.Key) ([]session.Listed, error) {
	return s.inner.List(ctx, match)
}

// Delete implements [session.Store].
func (s *store) Delete(ctx context.Context, key session.Key) error {
	if !s.w.gate(s.life) {
		return errKilled
	}
	return s.inner.Delete(ctx, key)
}

// Subkeys implements [session.Store].
func (s *store) Subkeys(ctx context.Context, key session.Key) ([]string, error) {
	return s.inner.Subkeys(ctx, key)
}

// Lease implements [session.Store].
func (s *store) Lease(ctx context.Context, key session.Key) (session.Lease, error) {
	if !s.w.gate(s.life) {
		return nil, errKilled
	}
	l, err := s.inner.Lease(ctx, key)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease, s.key = l, key
	return &lease{s, l}, nil
}

type lease struct {
	*store
	inner session.Lease
}

// Append implements [session.Lease].
func (l *lease) Append(ctx context.Context, sub string, records []json.RawMessage) error {
	return l.write(ctx, records, func() error { return l.inner.Append(context.WithoutCancel(ctx), sub, records) })
}

// Close implements [session.Lease].
func (l *lease) Close() error { return l.inner.Close() }

// observe records the state of the calls in the log. The lock of the world is held.
func (w *world) observe(records []json.RawMessage, err error) {
	for _, r := range records {
		var line struct {
			Type      string `json:"type"`
			UUID      string `json:"uuid"`
			ToolUseID string `json:"toolUseId"`
			Receipt   struct {
				ToolUseID string `json:"tool_use_id"`
				Answer    string `json:"answer"`
			} `json:"receipt"`
		}
		jsonv2.Unmarshal(r, &line)
		w.logLocked("store", "%s %s%s %s %v", line.Type, line.ToolUseID, line.Receipt.ToolUseID, line.Receipt.Answer, err)
		if err != nil {
			continue
		}
		if line.UUID != "" {
			w.written[line.UUID] = true
		}
		switch line.Type {
		case "parley-receipt":
			w.call(line.Receipt.ToolUseID).receipt = line.Receipt.Answer
		case "parley-intent":
			c := w.call(line.ToolUseID)
			c.intents++
			w.written["intent "+line.ToolUseID] = true
			if c.receipt != "allow" && c.name != "" {
				w.violateLocked("receipts: the intent of %s is on record before the decision, which is %q", line.ToolUseID, c.receipt)
			}
		case "parley-outcome":
			w.call(line.ToolUseID).outcomes++
		}
	}
}
