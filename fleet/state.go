package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/parley-go/parley/fleet/workspace"
	"github.com/parley-go/parley/hub"
)

// stateKV is the bucket for the fleet's state besides journals: the locations of sessions' files,
// tenants, and their costs.
const stateKV = "state"

// headerChanges is the header of an entry with the ids of its last changes, of which there are at most keptChanges.
const (
	headerChanges = "Parley-Changes"
	keptChanges   = 64
)

// getState reads an entry of the bucket. The revision is 0 if there is none.
func (b *Backend) getState(ctx context.Context, key string, v any) (revision uint64, err error) {
	err = b.retry(ctx, func(ctx context.Context) error {
		e, err := b.state.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		revision = e.Revision()
		return json.Unmarshal(e.Value(), v)
	})
	if err != nil {
		return 0, fmt.Errorf("fleet: %s cannot be read: %w", key, err)
	}
	return revision, nil
}

// changeState changes an entry of the bucket. It calls change with the stored value in v, and retries if another process
// changed the entry meanwhile. A change whose acknowledgement is lost counts once: it has an id, and each entry names its
// last changes. (The server's own detection of duplicates is not enough: without a cluster, the server first checks the
// expected sequence.)
func (b *Backend) changeState(ctx context.Context, key string, v any, change func() error) error {
	bucket := b.cfg.Name + "-" + stateKV
	subject := "$KV." + bucket + "." + key
	var id string // of the last try
	for {
		var revision uint64
		var ids []string
		reflect.ValueOf(v).Elem().SetZero()
		old, err := b.getFrom(ctx, "KV_"+bucket, getRequest{LastFor: subject})
		if err != nil {
			return fmt.Errorf("fleet: %s cannot be read: %w", key, err)
		}
		if old != nil {
			revision, ids = old.seq, strings.Fields(old.header.Get(headerChanges))
			if slices.Contains(ids, id) {
				return nil
			}
			if old.header.Get("KV-Operation") == "" {
				if err := json.Unmarshal(old.data, v); err != nil {
					return fmt.Errorf("fleet: %s cannot be read: %w", key, err)
				}
			}
		}
		if err := change(); err != nil {
			return err
		}
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		id = rand.Text()[:12]
		ids = append(ids[max(0, len(ids)-keptChanges+1):], id)
		var faster *sequenceError
		if _, _, err = b.publish(ctx, newMsg(subject, data, headerID, id, headerExpect, number(revision), headerChanges, strings.Join(ids, " "))); err == nil {
			return nil
		}
		if !errors.As(err, &faster) {
			return fmt.Errorf("fleet: %s cannot be stored: %w", key, err)
		}
		if sleep(ctx, 5*time.Millisecond) != nil {
			return context.Cause(ctx)
		}
	}
}

// A workspaceEntry is the stored form of a session's workspace.
type workspaceEntry struct {
	Epoch uint64          `json:"epoch"`
	State workspace.State `json:"state"`
}

func workspaceKey(id string) string { return "workspace." + id }

// WorkspaceState returns the location of a session's files.
func (b *Backend) WorkspaceState(ctx context.Context, id string) (workspace.State, error) {
	var e workspaceEntry
	_, err := b.getState(ctx, workspaceKey(id), &e)
	return e.State, err
}

// SetWorkspaceState stores the location of a session's files. It returns [hub.ErrConflict] if
// a later owner has stored one.
func (b *Backend) SetWorkspaceState(ctx context.Context, id string, epoch uint64, s workspace.State) error {
	var e workspaceEntry
	return b.changeState(ctx, workspaceKey(id), &e, func() error {
		if e.Epoch > epoch {
			return hub.ErrConflict
		}
		e = workspaceEntry{epoch, s}
		return nil
	})
}

// PutObject implements [workspace.Objects].
func (b *Backend) PutObject(ctx context.Context, name string, r io.Reader) error {
	_, err := b.blobs.Put(ctx, jetstream.ObjectMeta{Name: name}, r)
	return err
}

// GetObject implements [workspace.Objects].
func (b *Backend) GetObject(ctx context.Context, name string, w io.Writer) error {
	o, err := b.blobs.Get(ctx, name)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, o)
	return errors.Join(err, o.Close())
}

// DeleteObject implements [workspace.Objects].
func (b *Backend) DeleteObject(ctx context.Context, name string) error {
	return b.blobs.Delete(ctx, name)
}

// deleteState removes the state of a deleted session.
func (b *Backend) deleteState(ctx context.Context, id string) error {
	s, err := b.WorkspaceState(ctx, id)
	if err != nil || s == (workspace.State{}) {
		return err
	}
	if s.Last != nil && s.Last.Object != "" {
		b.DeleteObject(ctx, s.Last.Object)
	}
	return b.state.Purge(ctx, workspaceKey(id))
}

// created returns the first entry of a session, or nil if it does not exist. It does not
// change, so it is cached.
func (b *Backend) created(ctx context.Context, id string) (*hub.Created, error) {
	b.mu.Lock()
	c := b.began[id]
	b.mu.Unlock()
	if c != nil {
		return c, nil
	}
	for e, err := range b.Read(ctx, id, 0, false) {
		if err != nil {
			return nil, err
		}
		if e.Kind != hub.KindCreated && e.Kind != hub.KindForked && e.Kind != hub.KindTrimmed {
			continue
		}
		c = new(hub.Created)
		if e.Kind == hub.KindTrimmed {
			var t hub.Trimmed
			if json.Unmarshal(e.Data, &t) != nil || t.Created == nil {
				continue
			}
			c = t.Created
		} else if json.Unmarshal(e.Data, c) != nil {
			return nil, nil
		}
		b.mu.Lock()
		if len(b.began) >= maxTails {
			clear(b.began)
		}
		b.began[id] = c
		b.mu.Unlock()
		return c, nil
	}
	return nil, nil
}
