package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/session"
)

// Export writes the conversation of a session to a file that [Import], [session.Import] and "parley sessions import" read.
func Export(ctx context.Context, b *Backend, id string, w io.Writer) error {
	var copied session.Memory
	current := "" // the conversation; /clear begins another one
	for e, err := range b.Read(ctx, id, 0, false) {
		if err != nil {
			return fmt.Errorf("fleet: the session %s cannot be read: %w", id, err)
		}
		if e.Kind != hub.KindRecord {
			continue
		}
		key := session.ParseKey(e.Log)
		if string(e.Data) == "null" {
			err = copied.Delete(ctx, key)
		} else {
			err = copied.Append(ctx, key, []json.RawMessage{e.Data})
		}
		if err != nil {
			return err
		}
		if key.Sub == "" {
			current = key.Session
		}
	}
	if current == "" {
		return fmt.Errorf("fleet: the session %s does not exist or has no conversation yet", id)
	}
	return session.Export(ctx, &copied, current, w, nil)
}

// Import adds a session that [Export], [session.Export] or "parley sessions export" wrote, and returns its id. The session works in
// cwd, or in its original directory if cwd is empty. The error is [session.ErrExists] if the fleet has a session with that id,
// or another process is adding it. An import that is killed leaves no session, and can be repeated.
func Import(ctx context.Context, b *Backend, by hub.Actor, r io.ReadSeeker, cwd string) (string, error) {
	var copied session.Memory
	id, err := session.Import(ctx, &copied, r, &session.ImportOptions{Cwd: cwd})
	if err != nil {
		return "", err
	}
	info, err := session.Stat(ctx, &copied, id, nil)
	if err != nil {
		return "", err
	}
	if cwd == "" {
		cwd = info.Cwd
	}
	data, err := json.Marshal(&hub.Created{By: by, Cwd: cwd, Title: info.CustomTitle, Session: id})
	if err != nil {
		return "", err
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	var entries []hub.Entry
	list, err := copied.List(ctx, session.Key{Session: id})
	if err != nil {
		return "", err
	}
	for _, main := range list {
		subs, err := copied.Subkeys(ctx, main.Key)
		if err != nil {
			return "", err
		}
		for _, sub := range append([]string{""}, subs...) {
			key := main.Key
			key.Sub = sub
			records, err := copied.Load(ctx, key)
			if err != nil {
				return "", err
			}
			for _, record := range records {
				entries = append(entries, hub.Entry{Kind: hub.KindRecord, Time: now, Log: key.String(), Data: record})
			}
		}
	}
	entries = append(entries, hub.Entry{N: 1, Kind: hub.KindCreated, Time: now, Data: data}) // until then there is no session
	if err = b.addWhole(ctx, id, entries); errors.Is(err, hub.ErrConflict) {
		return "", session.ErrExists
	}
	if err != nil {
		return "", errors.Join(err, b.Delete(context.WithoutCancel(ctx), id))
	}
	return id, nil
}
