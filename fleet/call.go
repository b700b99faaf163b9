package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/parley-go/parley/hub"
)

// The headers of calls: the session of a request, and the reason why a response has no data.
const (
	headerSession = "Parley-Session"
	headerFailed  = "Parley-Failed"
)

// locked is the value of headerFailed of a process that cannot run the session.
const locked = "locked"

func (b *Backend) callSubject(process string) string { return b.cfg.Name + ".call." + process }

// Answer implements [hub.Caller].
func (b *Backend) Answer(ctx context.Context, answer func(context.Context, string, []byte) ([]byte, error)) error {
	requests := make(chan *nats.Msg, 256)
	sub, err := b.nc.ChanSubscribe(b.callSubject(b.id), requests)
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if !b.work.Go(func() {
		defer sub.Unsubscribe()
		var work sync.WaitGroup
		defer work.Wait()
		for {
			select {
			case m := <-requests:
				work.Go(func() {
					data, err := b.unwrapCall(ctx, m.Data)
					if err == nil {
						data, err = answer(ctx, m.Header.Get(headerSession), data)
					}
					m.RespondMsg(b.response(ctx, data, err))
				})
			case <-ctx.Done():
				return
			case <-b.ctx.Done():
				return
			}
		}
	}) {
		sub.Unsubscribe()
		return errClosed
	}
	return nil
}

// response returns the message that answers a call.
func (b *Backend) response(ctx context.Context, data []byte, err error) *nats.Msg {
	if err == nil {
		data, err = b.wrapCall(ctx, data)
	}
	switch {
	case errors.Is(err, hub.ErrLocked):
		return newMsg("", nil, headerFailed, locked)
	case err != nil:
		return newMsg("", nil, headerFailed, err.Error())
	}
	return newMsg("", data)
}

// wrapCall returns data in a form that fits into a message: large data goes to the object store.
func (b *Backend) wrapCall(ctx context.Context, data []byte) ([]byte, error) {
	if len(data) <= maxMessage {
		return data, nil
	}
	return b.putBlob(ctx, "call-"+nuid.Next(), data)
}

// unwrapCall returns the data that was passed to wrapCall, and removes the object. Each message is unwrapped once.
func (b *Backend) unwrapCall(ctx context.Context, line []byte) ([]byte, error) {
	data, err := b.resolve(ctx, line)
	if err == nil && len(line) > 0 && line[0] == blobMark {
		b.blobs.Delete(ctx, string(line[1:]))
	}
	return data, err
}

// callTries is how long Call looks for a process that runs the session or can run it: the
// session may be changing owners.
const callTries = 10 * time.Second

// Call implements [hub.Caller]. If no process runs the session, it asks those that
// may have a free slot.
func (b *Backend) Call(ctx context.Context, id string, request []byte) ([]byte, error) {
	for began := time.Now(); ; {
		processes, err := b.canRun(ctx, id)
		if err != nil {
			return nil, err
		}
		for _, p := range processes {
			data, err := b.wrapCall(ctx, request) // once for each process: one that cannot run the session may remove the object
			if err != nil {
				return nil, err
			}
			m := newMsg(b.callSubject(p), data, headerSession, id)
			resp, err := b.nc.RequestMsgWithContext(ctx, m)
			switch {
			case errors.Is(err, nats.ErrNoResponders): // the process has just died
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case err != nil:
				return nil, fmt.Errorf("fleet: %w", err)
			case resp.Header.Get(headerFailed) == locked:
			case resp.Header.Get(headerFailed) != "":
				return nil, fmt.Errorf("fleet: %s", resp.Header.Get(headerFailed))
			default:
				return b.unwrapCall(ctx, resp.Data)
			}
		}
		if time.Since(began) > callTries {
			return nil, hub.ErrLocked
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// canRun returns the process that runs a session, or else all processes that have slots, the least busy first. It
// includes full ones, because their announcements may be outdated.
func (b *Backend) canRun(ctx context.Context, id string) (processes []string, err error) {
	e, err := b.leases.Get(ctx, id)
	if err == nil {
		var by holder
		if json.Unmarshal(e.Value(), &by) == nil {
			if _, err := b.workers.Get(ctx, by.ID); err == nil {
				return []string{by.ID}, nil
			}
		}
	} else if !errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	all, err := b.Workers(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b WorkerInfo) int { return cmp.Compare(b.Slots-b.Sessions, a.Slots-a.Sessions) })
	for _, w := range all {
		if w.Slots > 0 {
			processes = append(processes, w.ID)
		}
	}
	return processes, nil
}
