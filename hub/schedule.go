package hub

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/adhocore/gronx"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// SchedulesID is the id of the journal of all schedules. Like every journal it has one owner,
// so that one hub fires them.
const SchedulesID = "00000000-0000-4000-8000-000000000001"

// A Schedule sends a prompt to a session repeatedly or once, whether somebody is attached or
// not. It survives the hub, and fires at most once for each time.
type Schedule struct {
	ID      string    `json:"id"`
	Session string    `json:"session"`
	By      Actor     `json:"by"`
	Prompt  string    `json:"prompt"`
	Cron    string    `json:"cron,omitempty"`   // five fields, in the hub's time zone
	Once    bool      `json:"once,omitempty"`   // Cron fires only once, at its next time
	At      time.Time `json:"at,omitzero"`      // in place of Cron: once at this time
	Until   time.Time `json:"until,omitzero"`   // it does not fire after this time; zero means no end
	Wakeup  bool      `json:"wakeup,omitempty"` // the session asked to be continued then
	Created time.Time `json:"created"`
	// Fired is when the schedule was last due and fired. Missed is how many times it was due
	// since then while no hub ran, or while its last prompt was still queued. A one-time
	// schedule that was missed fires late instead.
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

// recurs reports whether a schedule fires more than once.
func (s *Schedule) recurs() bool { return s.Cron != "" && !s.Once }

// next returns the first time after a time at which a schedule is due, or zero if never.
func (s *Schedule) next(after time.Time) time.Time {
	switch {
	case !s.recurs() && !s.Fired.IsZero():
		return time.Time{}
	case s.Cron == "":
		return s.At
	}
	// A parsed time has the offset of the day it was written on, and no other.
	t, err := gronx.NextTickAfter(s.Cron, after.In(time.Local), false)
	if err != nil || !s.Until.IsZero() && t.After(s.Until) {
		return time.Time{}
	}
	return t
}

// Next returns when the schedule is due next, or zero if never.
func (s *Schedule) Next() time.Time { return s.next(s.last()) }

// last returns the time after which a schedule is due next.
func (s *Schedule) last() time.Time {
	if s.Fired.After(s.Created) {
		return s.Fired
	}
	return s.Created
}

// uuid returns the uuid of the prompt for the last time that a schedule fired. It is the same
// each time that prompt is sent.
func (s *Schedule) uuid() string {
	sum := sha256.Sum256([]byte(s.ID + s.Fired.UTC().Format(time.RFC3339Nano)))
	sum[6], sum[8] = sum[6]&0x0f|0x40, sum[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// schedules are the schedules, computed from their journal and its inbox.
type schedules struct {
	n    uint64 // the last number
	item uint64 // the last inbox item that was consumed
	all  map[string]*Schedule
}

// add applies an entry.
func (s *schedules) add(x *Scheduled) {
	switch y := s.all[x.ID]; {
	case x.Action == "add" && x.Schedule != nil && y == nil:
		s.all[x.ID] = x.Schedule
	case y == nil:
	case x.Action == "remove":
		delete(s.all, x.ID)
	case x.Action == "fire":
		y.Fired, y.Missed = x.Due, 0
	case x.Action == "miss":
		y.Missed += x.Missed
		y.Created = x.Due // due next after it
	}
}

func (s *schedules) sorted() []*Schedule {
	return slices.SortedFunc(maps.Values(s.all), func(a, b *Schedule) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
}

// readSchedules reads the journal of schedules.
func (h *Hub) readSchedules(ctx context.Context) (*schedules, error) {
	s := &schedules{all: map[string]*Schedule{}}
	for e, err := range h.cfg.Backend.Read(ctx, SchedulesID, 0, false) {
		if err != nil {
			return nil, err
		}
		s.n, s.item = max(s.n, e.N), max(s.item, e.Item)
		if x := decode[Scheduled](&e); e.Kind == KindSchedule && x != nil {
			s.add(x)
		}
	}
	return s, nil
}

// A scheduler fires schedules as long as it owns their journal. It runs in one goroutine.
// Additions and removals of schedules go through the journal's inbox, so that they reach the
// scheduler in any process.
type scheduler struct {
	hub    *Hub
	firing atomic.Bool // it owns the journal

	*schedules
	lease  Lease
	owned  bool
	unsent map[string]bool // schedules that fired but whose prompt could not be sent yet
	items  chan Item
	end    context.CancelFunc // ends the goroutine that reads the inbox
	ended  chan struct{}
}

// checkTime is the longest time that the scheduler waits before it looks at the clock again,
// which may have been changed. A timer does not count the time that the machine sleeps.
const checkTime = time.Minute

// run fires schedules until the hub ends.
func (s *scheduler) run() {
	defer s.release()
	for s.hub.ctx.Err() == nil {
		wait := sweepTime
		if s.lease == nil {
			if err := s.open(); err != nil && !errors.Is(err, ErrLocked) {
				s.hub.warn("schedules cannot be read", err)
			}
		}
		if s.lease != nil {
			next, err := s.fire(time.Now())
			if err != nil {
				s.hub.warn("a schedule cannot be fired", err)
				s.release()
			} else if wait = checkTime; !next.IsZero() {
				wait = min(wait, max(0, time.Until(next)))
			}
		}
		timer := time.NewTimer(wait)
		select {
		case item := <-s.items:
			if err := s.handleItem(item); err != nil {
				s.hub.warn("schedules cannot be changed", err)
				s.release()
			}
		case <-timer.C:
		case <-s.hub.ctx.Done():
		}
		timer.Stop()
	}
}

func (s *scheduler) release() {
	if s.lease == nil {
		return
	}
	s.firing.Store(false)
	s.end()
	<-s.ended
	s.lease.Close()
	s.lease, s.items = nil, nil
}

// open takes over the schedules. It sends the last prompts again, in case the hub died before
// it sent them, and counts the missed times.
func (s *scheduler) open() error {
	ctx, b := s.hub.ctx, s.hub.cfg.Backend
	lease, err := b.Lease(ctx, SchedulesID)
	if err != nil {
		return err
	}
	if s.schedules, err = s.hub.readSchedules(ctx); err != nil {
		return errors.Join(err, lease.Close())
	}
	s.lease, s.owned, s.unsent, s.items, s.ended = lease, false, map[string]bool{}, make(chan Item), make(chan struct{})
	inbox, end := context.WithCancel(ctx)
	s.end = end
	go func(items chan<- Item, from uint64, ended chan<- struct{}) {
		defer close(ended)
		for item, err := range b.Inbox(inbox, SchedulesID, from, true) {
			if err != nil {
				if inbox.Err() == nil {
					s.hub.warn("the inbox of schedules cannot be read", err)
				}
				return
			}
			select {
			case items <- item:
			case <-inbox.Done():
				return
			}
		}
	}(s.items, s.item, s.ended)
	s.firing.Store(true)
	now := time.Now()
	for _, x := range s.sorted() {
		if s.unsent[x.ID] = !x.Fired.IsZero(); !x.recurs() {
			continue
		}
		if due, missed := x.missed(now); missed > 0 {
			if err := s.append(&Scheduled{Action: "miss", ID: x.ID, Due: due, Missed: missed}, 0); err != nil {
				s.release()
				return err
			}
		}
	}
	return nil
}

// missed returns how often a schedule was due before a time, and the last such time.
func (s *Schedule) missed(now time.Time) (last time.Time, n int) {
	for t := s.Next(); !t.IsZero() && t.Before(now) && n < 10_000; t = s.next(t) {
		last, n = t, n+1
	}
	return last, n
}

// handleItem consumes an item of the inbox.
func (s *scheduler) handleItem(item Item) error {
	if item.Number <= s.item {
		return nil
	}
	x := new(Scheduled)
	if json.Unmarshal(item.Data, x) != nil || x.Action != "add" && x.Action != "remove" {
		x = &Scheduled{Action: "ignore"} // from a later version
	}
	return s.append(x, item.Number)
}

// append adds an entry to the journal of schedules. The entry consumes item unless that is 0.
func (s *scheduler) append(x *Scheduled, item uint64) error {
	var entries []Entry
	now := time.Now().UTC().Truncate(time.Millisecond)
	n := s.n
	if !s.owned {
		n++
		entries = append(entries, Entry{N: n, Kind: KindOwner, Time: now, Epoch: n, Data: mustJSON(Owner{Hub: s.hub.cfg.Name})})
	}
	entries = append(entries, Entry{N: n + 1, Kind: KindSchedule, Time: now, Item: item, Data: mustJSON(x)})
	if err := s.hub.cfg.Backend.Append(s.hub.ctx, SchedulesID, s.n, entries); err != nil {
		return err
	}
	s.n, s.item, s.owned = n+1, max(s.item, item), true
	s.add(x)
	if item > 0 && item%inboxBatch == 0 {
		return s.hub.cfg.Backend.TrimInbox(s.hub.ctx, SchedulesID, item+1)
	}
	return nil
}

// fire fires the schedules that are due, and returns when the next one is due.
func (s *scheduler) fire(now time.Time) (next time.Time, err error) {
	for _, x := range s.sorted() {
		over, err := s.fireOne(x, now)
		if over && err == nil {
			err = s.append(&Scheduled{Action: "remove", ID: x.ID}, 0)
		}
		if err != nil {
			return next, err
		}
		if due := x.Next(); !over && !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return next, nil
}

// fireOne fires a schedule if it is due. It reports whether the schedule is finished.
func (s *scheduler) fireOne(x *Schedule, now time.Time) (over bool, err error) {
	if s.unsent[x.ID] {
		if over = s.send(x, 0); over {
			return true, nil
		}
	}
	due := x.Next()
	switch {
	case due.IsZero():
		return !s.unsent[x.ID], nil // it has fired, or its end has passed
	case due.After(now):
		return false, nil
	}
	missed := x.Missed
	if x.recurs() {
		// Of several times that are due, for example after the machine slept, only the last
		// one fires.
		last, n := x.missed(now.Add(time.Nanosecond))
		if s.unsent[x.ID] || s.waits(x) { // so that prompts do not pile up
			return false, s.append(&Scheduled{Action: "miss", ID: x.ID, Due: last, Missed: n}, 0)
		}
		due, missed = last, missed+n-1
	}
	// Record first that it fires, and then send the prompt: it fires once even if the hub
	// dies in between.
	if err := s.append(&Scheduled{Action: "fire", ID: x.ID, Due: due, Missed: missed}, 0); err != nil {
		return false, err
	}
	return s.send(x, missed) || !x.recurs() && !s.unsent[x.ID], nil
}

// waits reports whether the last prompt that a schedule sent is still queued.
func (s *scheduler) waits(x *Schedule) (waits bool) {
	if x.Fired.IsZero() {
		return false
	}
	s.hub.in(s.hub.ctx, x.Session, func(r *room) error {
		return r.do(s.hub.ctx, func(*tx) error {
			p := r.fold.prompts[x.uuid()]
			waits = p != nil && !p.consumed && !p.over
			return nil
		})
	})
	return waits
}

// send sends the prompt for the last time that a schedule fired. Sending it again changes
// nothing. send reports whether the session is gone; after any other failure it is tried
// again later.
func (s *scheduler) send(x *Schedule, missed int) (gone bool) {
	due, uuid := x.Fired.UTC(), x.uuid()
	said := []wire.Block{&wire.TextBlock{Text: x.Prompt}}
	if missed > 0 {
		said = append(said, &wire.TextBlock{Text: fmt.Sprintf("(This is scheduled. %d earlier times were missed.)", missed)})
	}
	m := wire.Prompt(wire.Blocks(said...))
	m.UUID = uuid
	line, err := wire.Encode(m)
	if err == nil {
		p := Prompt{UUID: uuid, By: Actor{Name: x.By.Name, From: "schedule"}, Message: line, Schedule: x.ID, Due: &due}
		err = s.hub.Session(x.Session).put(s.hub.ctx, &p)
	}
	if errors.Is(err, ErrOtherPrompt) {
		err = nil // it was sent before, with another number of missed times
	}
	if gone = errors.Is(err, ErrNotFound); err != nil && !gone {
		s.hub.warn("the prompt of a schedule cannot be sent yet", err)
		s.unsent[x.ID] = true
		return false
	}
	delete(s.unsent, x.ID)
	return gone
}

// change puts a change of the schedules into their inbox.
func (h *Hub) change(ctx context.Context, x *Scheduled) error {
	if _, err := h.cfg.Backend.Put(ctx, SchedulesID, Item{Key: x.Action + "/" + x.ID, Time: time.Now(), Data: mustJSON(x)}); err != nil {
		return err
	}
	if h.cfg.OnSchedule != nil && x.Action == "add" {
		return h.cfg.OnSchedule(ctx)
	}
	return nil
}

// maxSchedules is the maximum number of schedules of a session.
const maxSchedules = 50

// Schedule adds a schedule for its Session, with its Prompt and either Cron or At, and
// returns its id. Any hub can add one; it need not be the hub that fires schedules.
func (h *Hub) Schedule(ctx context.Context, by Actor, x Schedule) (string, error) {
	made, err := h.schedule(ctx, by, x)
	return made.ID, err
}

func (h *Hub) schedule(ctx context.Context, by Actor, x Schedule) (Schedule, error) {
	none := Schedule{}
	if err := by.need(MayDrive, "add schedules"); err != nil {
		return none, err
	}
	if (x.Cron == "") == x.At.IsZero() {
		return none, errors.New("hub: a schedule has either Cron or At")
	}
	if x.Cron != "" && (len(strings.Fields(x.Cron)) != 5 || !gronx.IsValid(x.Cron)) {
		return none, fmt.Errorf("hub: %q is not a cron expression of five fields", x.Cron)
	}
	if _, err := h.Session(x.Session).State(ctx, by); err != nil {
		return none, err
	}
	if all, err := h.Schedules(ctx, by, x.Session); err != nil || len(all) >= maxSchedules {
		return none, cmp.Or(err, fmt.Errorf("hub: the session has %d schedules, and cannot have more", maxSchedules))
	}
	now := time.Now().Truncate(time.Millisecond)
	x.ID, x.By, x.Created, x.Fired, x.Missed = session.NewID(), by, now, time.Time{}, 0
	if x.Next().IsZero() {
		return none, fmt.Errorf("hub: no time matches the cron expression %q", x.Cron)
	}
	return x, h.change(ctx, &Scheduled{Action: "add", ID: x.ID, Schedule: &x})
}

// Pending reports whether there are schedules for which this hub must keep running.
func (h *Hub) Pending(ctx context.Context) (bool, error) {
	if !h.schedules.firing.Load() {
		return false, nil // another hub fires them
	}
	all, err := h.Schedules(ctx, Actor{Rights: MayView}, "")
	return len(all) > 0, err
}

// Unschedule removes a schedule.
func (h *Hub) Unschedule(ctx context.Context, by Actor, id string) error {
	if err := by.need(MayDrive, "remove schedules"); err != nil {
		return err
	}
	all, err := h.Schedules(ctx, Actor{Name: by.Name, Rights: MayView}, "")
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(x Schedule) bool { return x.ID == id }) {
		return fmt.Errorf("hub: unknown schedule %s: %w", id, ErrNotFound)
	}
	return h.change(ctx, &Scheduled{Action: "remove", ID: id})
}

// Schedules returns the schedules of a session, or all if id is empty, oldest first.
func (h *Hub) Schedules(ctx context.Context, by Actor, id string) (all []Schedule, err error) {
	if err := by.need(MayView, "see schedules"); err != nil {
		return nil, err
	}
	s, err := h.readSchedules(ctx)
	if err != nil {
		return nil, err
	}
	for item, err := range h.cfg.Backend.Inbox(ctx, SchedulesID, s.item, false) {
		if err != nil {
			return nil, err
		}
		if x := new(Scheduled); json.Unmarshal(item.Data, x) == nil {
			s.add(x)
		}
	}
	for _, x := range s.sorted() {
		if id != "" && x.Session != id {
			continue
		}
		if err := h.check(ctx, by, x.Session, MayView, "see schedules"); err == nil {
			all = append(all, *x)
		} else if !errors.Is(err, ErrNotFound) {
			return nil, err
		}
	}
	return all, nil
}

// unscheduleAll removes the schedules of a session that is being removed.
func (h *Hub) unscheduleAll(ctx context.Context, id string) error {
	all, err := h.Schedules(ctx, Actor{Rights: MayView}, id)
	for _, x := range all {
		err = errors.Join(err, h.change(ctx, &Scheduled{Action: "remove", ID: x.ID}))
	}
	return err
}
