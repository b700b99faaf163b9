package hub

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/adhocore/gronx"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// schedulesID is the journal of all schedules. It has one owner as every other one, so
// that one hub fires them.
const schedulesID = "00000000-0000-4000-8000-000000000001"

// A Schedule sends a prompt to a session again and again, or once, whether somebody is
// attached or not. It survives the hub, and fires at most once for each time.
type Schedule struct {
	ID      string    `json:"id"`
	Session string    `json:"session"`
	By      Actor     `json:"by"`
	Prompt  string    `json:"prompt"`
	Cron    string    `json:"cron,omitempty"` // five fields, in the hub's time zone
	At      time.Time `json:"at,omitzero"`    // in place of Cron: once
	Created time.Time `json:"created"`
	// Fired is when it was last due and fired, Missed how often it was due since then
	// while no hub ran. A wake-up that was missed fires late instead.
	Fired  time.Time `json:"fired,omitzero"`
	Missed int       `json:"missed,omitempty"`
}

// Scheduled is the data of a [KindSchedule] entry.
type Scheduled struct {
	Action   string    `json:"action"` // "add", "remove", "fire" or "miss"
	Schedule *Schedule `json:"schedule,omitempty"`
	ID       string    `json:"id"`
	Due      time.Time `json:"due,omitzero"`
	Missed   int       `json:"missed,omitempty"`
}

// next returns when a schedule is due behind a time, zero if never.
func (s *Schedule) next(after time.Time) time.Time {
	if s.Cron == "" {
		if s.Fired.IsZero() {
			return s.At
		}
		return time.Time{}
	}
	t, err := gronx.NextTickAfter(s.Cron, after, false)
	if err != nil {
		return time.Time{}
	}
	return t
}

// last returns the time behind which a schedule is due next.
func (s *Schedule) last() time.Time {
	if s.Fired.After(s.Created) {
		return s.Fired
	}
	return s.Created
}

// A scheduler fires schedules as long as it owns their journal. One goroutine runs it.
type scheduler struct {
	hub   *Hub
	calls chan func(*scheduler) error
	lease Lease
	n     uint64 // the last number
	owned bool
	all   map[string]*Schedule
}

// run fires schedules until the hub ends.
func (s *scheduler) run() {
	defer s.release()
	for s.hub.ctx.Err() == nil {
		wait := sweepTime
		if s.hub.cfg.OwnOnly {
			s.release()
		} else if s.lease == nil {
			if err := s.open(); err != nil && !errors.Is(err, ErrLocked) {
				s.hub.warn("schedules cannot be read", err)
			}
		}
		if s.lease != nil {
			next, err := s.fire(time.Now())
			if err != nil {
				s.hub.warn("a schedule cannot be fired", err)
				s.release()
			} else if wait = time.Hour; !next.IsZero() {
				wait = min(wait, max(0, time.Until(next)))
			}
		}
		timer := time.NewTimer(wait)
		select {
		case f := <-s.calls:
			f(s)
		case <-timer.C:
		case <-s.hub.ctx.Done():
		}
		timer.Stop()
	}
}

func (s *scheduler) release() {
	if s.lease != nil {
		s.lease.Close()
		s.lease = nil
	}
}

// open takes the schedules over: what fired last is sent again, should the hub have died
// in between, and what was missed is counted.
func (s *scheduler) open() error {
	ctx, b := s.hub.ctx, s.hub.cfg.Backend
	lease, err := b.Lease(ctx, schedulesID)
	if err != nil {
		return err
	}
	s.lease, s.n, s.owned, s.all = lease, 0, false, map[string]*Schedule{}
	for e, err := range b.Read(ctx, schedulesID, 0, false) {
		if err != nil {
			s.release()
			return err
		}
		s.n = max(s.n, e.N)
		if x := decode[Scheduled](&e); e.Kind == KindSchedule && x != nil {
			s.add(x)
		}
	}
	for _, x := range s.sorted() {
		if err = s.catchUp(x, time.Now()); err != nil {
			s.release()
			return err
		}
	}
	return nil
}

func (s *scheduler) sorted() []*Schedule {
	var all []*Schedule
	for _, x := range s.all {
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b *Schedule) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return all
}

// catchUp sends what fired last again, which changes nothing if it was sent, and notes
// what was missed.
func (s *scheduler) catchUp(x *Schedule, now time.Time) error {
	if !x.Fired.IsZero() {
		if err := s.send(x); err != nil {
			return err
		}
	}
	if x.Cron == "" {
		return nil
	}
	missed, last := 0, time.Time{}
	for t := x.next(x.last()); !t.IsZero() && t.Before(now) && missed < 10_000; t = x.next(t) {
		missed, last = missed+1, t
	}
	if missed == 0 {
		return nil
	}
	return s.append(&Scheduled{Action: "miss", ID: x.ID, Due: last, Missed: missed})
}

// add takes an entry in.
func (s *scheduler) add(x *Scheduled) {
	switch y := s.all[x.ID]; {
	case x.Action == "add" && x.Schedule != nil:
		s.all[x.ID] = x.Schedule
	case y == nil:
	case x.Action == "remove":
		delete(s.all, x.ID)
	case x.Action == "fire":
		y.Fired, y.Missed = x.Due, 0
	case x.Action == "miss":
		y.Missed += x.Missed
		y.Created = x.Due // due next behind it
	}
}

// append adds an entry to the journal of schedules.
func (s *scheduler) append(x *Scheduled) error {
	var entries []Entry
	now := time.Now().UTC().Truncate(time.Millisecond)
	n := s.n
	if !s.owned {
		n++
		entries = append(entries, Entry{N: n, Kind: KindOwner, Time: now, Epoch: n, Data: mustJSON(Owner{Hub: s.hub.cfg.Name})})
	}
	entries = append(entries, Entry{N: n + 1, Kind: KindSchedule, Time: now, Data: mustJSON(x)})
	if err := s.hub.cfg.Backend.Append(s.hub.ctx, schedulesID, s.n, entries); err != nil {
		return err
	}
	s.n, s.owned = n+1, true
	s.add(x)
	return nil
}

// fire fires what is due, and returns when the next one is.
func (s *scheduler) fire(now time.Time) (next time.Time, err error) {
	for _, x := range s.sorted() {
		due := x.next(x.last())
		if due.IsZero() {
			continue
		}
		if !due.After(now) {
			// First it is on record that it fires, then it does: once, also if the hub
			// dies in between.
			missed := x.Missed
			if err := s.append(&Scheduled{Action: "fire", ID: x.ID, Due: due, Missed: missed}); err != nil {
				return next, err
			}
			x.Missed = missed
			err := s.send(x)
			x.Missed = 0
			if err != nil && !errors.Is(err, ErrNotFound) {
				return next, err
			}
			if errors.Is(err, ErrNotFound) || x.Cron == "" { // it has nothing left to do
				if err := s.append(&Scheduled{Action: "remove", ID: x.ID}); err != nil {
					return next, err
				}
				continue
			}
			due = x.next(x.last())
		}
		if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next, nil
}

// send sends the prompt of the time that a schedule fired last.
func (s *scheduler) send(x *Schedule) error {
	due := x.Fired.UTC()
	sum := sha256.Sum256([]byte(x.ID + due.Format(time.RFC3339Nano)))
	sum[6], sum[8] = sum[6]&0x0f|0x40, sum[8]&0x3f|0x80
	uuid := fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
	text := x.Prompt
	if x.Missed > 0 {
		text += fmt.Sprintf("\n\n(This is scheduled. %d earlier times were missed because no hub ran.)", x.Missed)
	}
	m := wire.Prompt(wire.Text(text))
	m.UUID = uuid
	line, err := wire.Encode(m)
	if err != nil {
		return err
	}
	p := Prompt{UUID: uuid, By: Actor{Name: x.By.Name, From: "schedule"}, Message: line, Schedule: x.ID, Due: &due}
	return s.hub.Session(x.Session).put(s.hub.ctx, Item{Key: promptKey + uuid, Data: mustJSON(p)})
}

// onSchedules calls f in the goroutine that fires schedules.
func (h *Hub) onSchedules(ctx context.Context, f func(*scheduler) error) error {
	done := make(chan error, 1)
	call := func(s *scheduler) error {
		if s.lease == nil {
			if err := s.open(); err != nil {
				done <- err
				return nil
			}
		}
		done <- f(s)
		return nil
	}
	select {
	case h.schedules.calls <- call:
		return <-done
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-h.ctx.Done():
		return ErrClosed
	}
}

// Schedule adds a schedule for its Session, with its Prompt and either Cron or At, and
// returns its id.
func (h *Hub) Schedule(ctx context.Context, by Actor, x Schedule) (string, error) {
	if err := by.need(MayDrive, "add schedules"); err != nil {
		return "", err
	}
	if (x.Cron == "") == x.At.IsZero() {
		return "", errors.New("hub: a schedule has either Cron or At")
	}
	if x.Cron != "" && !gronx.IsValid(x.Cron) {
		return "", fmt.Errorf("hub: %q is no cron expression", x.Cron)
	}
	if _, err := h.Session(x.Session).State(ctx, by); err != nil {
		return "", err
	}
	now := time.Now().Truncate(time.Millisecond)
	x.ID, x.By, x.Created, x.Fired, x.Missed = session.NewID(), by, now, time.Time{}, 0
	return x.ID, h.onSchedules(ctx, func(s *scheduler) error {
		return s.append(&Scheduled{Action: "add", ID: x.ID, Schedule: &x})
	})
}

// Pending reports whether schedules wait for their time, for which a hub must run.
func (h *Hub) Pending(ctx context.Context) (bool, error) {
	all, err := h.Schedules(ctx, Actor{Rights: MayView}, "")
	if errors.Is(err, ErrLocked) {
		return false, nil // another hub fires them
	}
	return len(all) > 0, err
}

// Unschedule removes a schedule.
func (h *Hub) Unschedule(ctx context.Context, by Actor, id string) error {
	if err := by.need(MayDrive, "remove schedules"); err != nil {
		return err
	}
	return h.onSchedules(ctx, func(s *scheduler) error {
		if s.all[id] == nil {
			return fmt.Errorf("hub: there is no schedule %s: %w", id, ErrNotFound)
		}
		return s.append(&Scheduled{Action: "remove", ID: id})
	})
}

// Schedules returns the schedules of a session, or all if it is empty, oldest first.
func (h *Hub) Schedules(ctx context.Context, by Actor, id string) (all []Schedule, err error) {
	if err := by.need(MayView, "see schedules"); err != nil {
		return nil, err
	}
	err = h.onSchedules(ctx, func(s *scheduler) error {
		for _, x := range s.sorted() {
			if id == "" || x.Session == id {
				all = append(all, *x)
			}
		}
		return nil
	})
	return all, err
}
