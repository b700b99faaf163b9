package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/parley-go/parley/hub"
)

func (b *Backend) inSubject(id, token string) string {
	return b.cfg.Name + "." + inStream + "." + id + "." + token
}

// keyToken returns the part of a subject for the key of an item.
func keyToken(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}

// An inboxItem is the stored form of an item.
type inboxItem struct {
	Key  string          `json:"key"`
	Time time.Time       `json:"time"`
	Data json.RawMessage `json:"data"`
}

// item decodes the item in a message.
func (b *Backend) item(ctx context.Context, m *stored) (hub.Item, error) {
	data, err := b.resolve(ctx, m.data)
	if err != nil {
		return hub.Item{}, err
	}
	var in inboxItem
	if err := json.Unmarshal(data, &in); err != nil {
		return hub.Item{}, fmt.Errorf("fleet: an item of an inbox cannot be read: %w", err)
	}
	return hub.Item{Number: m.number(headerN), Key: in.Key, Time: in.Time, Data: in.Data}, nil
}

// Put implements [hub.Backend]. Each item has its own subject, so it is created once; the
// items of an inbox are numbered in order, because each names the one before it.
func (b *Backend) Put(ctx context.Context, id string, item hub.Item) (hub.Item, error) {
	stored, err := b.put(ctx, id, item)
	if err == nil {
		b.wakeLater(id)
	}
	return stored, err
}

// PutAndWake implements [hub.Waker]. It first records without waiting that the session has work to do, in case this process
// dies. After the item is stored it records that again and waits, because a worker may have let the session rest meanwhile.
func (b *Backend) PutAndWake(ctx context.Context, id string, item hub.Item) (hub.Item, error) {
	if err := hub.CheckID(id); err != nil {
		return hub.Item{}, err
	}
	b.wakeLater(id)
	stored, err := b.put(ctx, id, item)
	if err != nil {
		return hub.Item{}, err
	}
	return stored, b.Wake(ctx, id)
}

func (b *Backend) put(ctx context.Context, id string, item hub.Item) (hub.Item, error) {
	if err := errors.Join(ctx.Err(), hub.CheckID(id), hub.CheckItem(item)); err != nil {
		return hub.Item{}, err
	}
	data, err := json.Marshal(inboxItem{item.Key, item.Time.UTC().Truncate(time.Millisecond), item.Data})
	if err != nil {
		return hub.Item{}, err
	}
	if len(data) > maxMessage {
		if data, err = b.putBlob(ctx, id, data); err != nil {
			return hub.Item{}, err
		}
	}
	subject, all := b.inSubject(id, keyToken(item.Key)), b.inSubject(id, "*")
	name := subject
	for try := 0; ; try++ {
		var there, last *stored
		var thereErr, err error
		var reading sync.WaitGroup
		reading.Go(func() { there, thereErr = b.leaderGet(ctx, inStream, getRequest{LastFor: subject}) })
		last, err = b.leaderGet(ctx, inStream, getRequest{LastFor: all})
		reading.Wait()
		if err = errors.Join(err, thereErr); err != nil {
			return hub.Item{}, err
		}
		if there != nil {
			return b.item(ctx, there)
		}
		// If the item arrived between the two reads, the server knows its name and reports a duplicate.
		t := tailOf(last)
		_, duplicate, err := b.publish(ctx, newMsg(subject, data, headerID, name, headerExpect, number(t.seq), headerSubject, all, headerPrev, number(t.seq), headerN, number(t.n+1)))
		var wrong *sequenceError
		switch {
		case errors.As(err, &wrong):
		case err != nil:
			return hub.Item{}, err
		case duplicate && try > 10: // the item was just removed with its session
			name = subject + "." + number(t.seq)
		case duplicate:
		default:
			item.Number, item.Time = t.n+1, item.Time.UTC().Truncate(time.Millisecond)
			item.Data = append(json.RawMessage(nil), item.Data...)
			return item, nil
		}
		if try > 0 && sleep(ctx, min(time.Duration(try)*time.Millisecond, 20*time.Millisecond)) != nil {
			return hub.Item{}, context.Cause(ctx)
		}
	}
}

// RestBehind implements [hub.Rester]. To prove that nothing was added, it stores something at both ends, which only the
// current leader can do: an empty message in the journal, and an item without a key in the inbox. It does so after it
// removed the mark for work, so a process that adds something later sets the mark again.
func (b *Backend) RestBehind(ctx context.Context, id string, n, item uint64) (bool, error) {
	if err := b.Rest(ctx, id); err != nil {
		return false, err
	}
	rests, err := b.endsAt(ctx, id, n, item)
	if !rests {
		err = errors.Join(err, b.Wake(context.WithoutCancel(ctx), id))
	}
	return rests, err
}

// endsAt reports whether a journal ends with the entry n, which may be [hub.AnyNumber], and an inbox with an item.
func (b *Backend) endsAt(ctx context.Context, id string, n, item uint64) (yes bool, err error) {
	if n != hub.AnyNumber {
		err := b.appendChunk(ctx, id, n, chunk{}, 0, nuid.Next())
		if errors.Is(err, hub.ErrConflict) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	subject, all, name := b.inSubject(id, endToken), b.inSubject(id, "*"), nuid.Next()
	err = b.untilCurrent(ctx, func(ctx context.Context) (bool, error) {
		last, err := b.leaderGet(ctx, inStream, getRequest{LastFor: all})
		t := tailOf(last)
		if err != nil || t.n > item {
			return true, err
		}
		_, _, err = b.publish(ctx, newMsg(subject, []byte("{}"), headerID, name, headerExpect, number(t.seq), headerSubject, all, headerPrev, number(t.seq), headerN, number(t.n)))
		if wrong := (*sequenceError)(nil); errors.As(err, &wrong) {
			return false, nil
		}
		yes = err == nil
		return true, err
	})
	return yes, err
}

// endToken is the part of a subject for the end of an inbox. It differs from the hash of every key.
const endToken = "end"

// wakeLater records that a session has work to do, without waiting. The sender of the item has
// already recorded that, but the session may have come to rest since.
func (b *Backend) wakeLater(id string) {
	if id != hub.SchedulesID { // its owner never rests
		b.nc.PublishMsg(b.workMsg(b.ctx, id))
	}
}

// Inbox implements [hub.Backend].
func (b *Backend) Inbox(ctx context.Context, id string, after uint64, follow bool) iter.Seq2[hub.Item, error] {
	return func(yield func(hub.Item, error) bool) {
		err := context.Cause(ctx)
		if err == nil {
			err = hub.CheckID(id)
		}
		if err == nil {
			first := after
			if first > 0 { // otherwise there is nothing to search for
				first++
			}
			err = b.follow(ctx, follow, &reading{
				kind: inStream, subject: b.inSubject(id, "*"), live: b.cfg.Name + ".live." + inStream + "." + id + ".*", from: first, least: func() uint64 { return 0 },
			}, func(m *stored, _ tail) (bool, error) {
				if m.number(headerN) <= after {
					return true, nil
				}
				item, err := b.item(ctx, m)
				if err != nil {
					return false, err
				}
				if item.Key == "" { // see RestBehind
					return true, nil
				}
				return yield(item, nil), nil
			})
		}
		if err != nil {
			yield(hub.Item{}, err)
		}
	}
}

// TrimInbox implements [hub.Backend].
func (b *Backend) TrimInbox(ctx context.Context, id string, before uint64) error {
	if err := errors.Join(ctx.Err(), hub.CheckID(id)); err != nil {
		return err
	}
	all := b.inSubject(id, "*")
	last, err := b.leaderGet(ctx, inStream, getRequest{LastFor: all})
	if err != nil || last == nil {
		return err
	}
	t := tailOf(last)
	seq, err := b.search(ctx, inStream, all, min(before, t.n), t.seq)
	if err != nil {
		return err
	}
	stream, err := b.js.Stream(ctx, b.stream(inStream))
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(all), jetstream.WithPurgeSequence(seq))
	}
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	return nil
}
