package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// openStore returns the store of sessions, or nil if they are not stored.
func (set *setup) openStore() session.Store {
	if set.flags.AwaitClaim { // the claimed agent opens it
		return nil
	}
	set.store = set.cfg.Store
	if set.store == nil && set.cfg.Home != "" {
		set.store = &session.Files{Dir: set.cfg.ConfigDir(), Durability: durabilities[set.flags.Durability], Progress: set.reportProgress}
	}
	return set.store
}

// durabilities are the values of --session-durability.
var durabilities = map[string]session.Durability{"": session.Fsync, "fsync": session.Fsync, "write": session.Write, "none": session.None}

// reportProgress reports the progress of reading a long session without an index, which
// takes some time.
func (set *setup) reportProgress(done, total int64) {
	switch {
	case set.cfg.OnIndexing != nil:
		set.cfg.OnIndexing(done, total)
	case set.tell != nil:
		set.tell(&wire.Informational{Content: fmt.Sprintf("Reading a long session: %d %%", 100*done/max(1, total)), Level: "info", Tag: "session_index"})
	}
}

// A sealableLog rejects writes once it is sealed, and so do its parts.
type sealableLog struct {
	session.Log
	sealed *atomic.Bool
}

var errSealed = errors.New("the host has left, and continues the turn in another agent")

// Append implements [session.Log].
func (l sealableLog) Append(entries ...*session.Entry) error {
	if l.sealed.Load() {
		return errSealed
	}
	return l.Log.Append(entries...)
}

// Sub implements [session.Log].
func (l sealableLog) Sub(name string) (session.Log, error) {
	part, err := l.Log.Sub(name)
	return sealableLog{part, l.sealed}, err
}

// opened prepares a log for the conversation. If requested, the host receives what is
// written to it. For a session that is in no file it receives the path of the file that
// it would be in.
func (set *setup) opened(log session.Log) session.Log {
	return sealableLog{set.mirrored(log), &set.sealed}
}

func (set *setup) mirrored(log session.Log) session.Log {
	if !set.flags.Mirror {
		return log
	}
	return session.Mirror(log, func(key session.Key, records []json.RawMessage) {
		set.mirror(filepath.Join(set.cfg.ConfigDir(), "projects", filepath.FromSlash(key.String())+".jsonl"), records)
	})
}

// compressOld compresses, beside the conversation, the sessions that were not written for
// the number of days in the setting compressSessionsAfterDays. Another agent continues an
// unfinished pass.
func (set *setup) compressOld() {
	files, ok := set.store.(*session.Files)
	days, _ := set.prefs().Int("compressSessionsAfterDays")
	if !ok || days <= 0 || set.flags.NoPersist {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := files.Pack(ctx, time.Now().AddDate(0, 0, -days)); err != nil && ctx.Err() == nil && set.cfg.Logger != nil {
			set.cfg.Logger.Warn("old sessions could not be compressed", "error", err)
		}
	}()
	set.closers = append(set.closers, func() error {
		cancel()
		<-done
		return nil
	})
}

// checkpoints reports whether the host needs to rewind files.
func (set *setup) checkpoints() bool {
	switch set.vars["CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"] {
	case "", "0", "false":
		return false
	}
	return true
}

// loadPart returns a function that reads a part of the session, or nil if it is not
// stored.
func (set *setup) loadPart(id string) func(part string) ([]json.RawMessage, error) {
	if set.store == nil || set.log == nil {
		return nil
	}
	return func(part string) ([]json.RawMessage, error) {
		return session.Records(context.Background(), set.store, id, part, nil)
	}
}

// partHistory returns a function that reads parts of sessions to resume.
func (set *setup) partHistory() func(id, part string) (*session.History, error) {
	if set.store == nil {
		return nil
	}
	return func(id, part string) (*session.History, error) {
		return session.PartHistory(context.Background(), set.store, id, part, nil)
	}
}

// meta returns the metadata of a session.
func (set *setup) meta(id string) session.Meta {
	m := session.Meta{ID: id, Cwd: set.cfg.Cwd, Version: set.cfg.Version, GitBranch: cmp.Or(session.GitBranch(set.cfg.Cwd), "HEAD"), Entrypoint: set.vars["CLAUDE_CODE_ENTRYPOINT"]}
	if m.Entrypoint == "" {
		m.Entrypoint = "sdk-cli"
	}
	return m
}

// session opens the log.
func (set *setup) session() (id string, log session.Log, history *session.History, err error) {
	f, ctx := set.flags, context.Background()
	meta := set.meta("")
	store := set.openStore()
	resume := f.Resume
	if store == nil {
		if resume != "" {
			return "", nil, nil, &resumeError{resume, "No conversation found with session ID: " + resume}
		}
		return newSessionID(f), nil, nil, nil
	}
	if f.Continue {
		switch latest, err := session.Latest(ctx, store, set.cfg.Cwd); {
		case err == nil:
			resume = latest
		case !errors.Is(err, session.ErrNotFound):
			return "", nil, nil, err
		}
	} else if resume != "" && !cli.UUID().MatchString(resume) {
		found, err := session.Find(ctx, store, resume)
		if err != nil {
			return "", nil, nil, &resumeError{resume, "No conversation found with the title: " + resume}
		}
		resume = found
	}
	if resume == "" {
		meta.ID = newSessionID(f)
		if f.NoPersist {
			return meta.ID, nil, nil, nil
		}
		log, err = session.Create(ctx, store, meta)
		if errors.Is(err, session.ErrExists) {
			err = fmt.Errorf("Error: Session ID %s is already in use.", meta.ID)
		}
		if file := new(fs.PathError); errors.As(err, &file) {
			err = fmt.Errorf("Error: the session cannot be saved: %w. Make the directory writable, set CLAUDE_CONFIG_DIR to another one, or save nothing with --no-session-persistence", file)
		}
		if err != nil {
			return "", nil, nil, err
		}
		return meta.ID, set.opened(log), nil, nil
	}
	meta.ID = resume
	log, history, err = session.Open(ctx, store, resume, meta)
	if errors.Is(err, session.ErrNotFound) {
		return "", nil, nil, &resumeError{resume, "No conversation found with session ID: " + resume}
	}
	if errors.Is(err, session.ErrLocked) {
		return "", nil, nil, fmt.Errorf("Error: The session %s is open in another process. Close it there, or continue in a copy: parley sessions fork %s", resume, resume)
	}
	if err != nil {
		return "", nil, nil, err
	}
	if f.ResumeAt != "" {
		n := slices.IndexFunc(history.Entries, func(e *session.Entry) bool { return e.UUID == f.ResumeAt })
		if n < 0 {
			log.Close()
			return "", nil, nil, &resumeError{resume, "No message found with message.uuid of: " + f.ResumeAt}
		}
		if f.DropsTurn != nil && !isTurn(history.Entries[n+1:], *f.DropsTurn) {
			log.Close()
			return "", nil, nil, &resumeError{resume, fmt.Sprintf("Resume rejected by --resume-drops-turn: the messages after %s are not the turn %q", f.ResumeAt, *f.DropsTurn)}
		}
		history.Entries = history.Entries[:n+1]
	}
	if !f.Fork && !f.NoPersist {
		return resume, set.opened(log), history, nil
	}
	log.Close()
	if f.NoPersist && !f.Fork {
		return resume, nil, history, nil
	}
	meta.ID = newSessionID(f)
	if f.NoPersist {
		return meta.ID, nil, history, nil
	}
	if log, err = session.Create(ctx, store, meta); err != nil {
		return "", nil, nil, err
	}
	log = set.opened(log)
	if err := log.Append(copied(history, resume)...); err != nil {
		log.Close()
		return "", nil, nil, err
	}
	return meta.ID, log, history, nil
}

// isTurn reports whether entries are the turn with the given prompt, or nothing.
func isTurn(entries []*session.Entry, prompt string) bool {
	if !cli.UUID().MatchString(prompt) {
		return false
	}
	begun := false
	for _, e := range entries {
		meta := string(e.Fields["isMeta"]) == "true"
		switch {
		case e.UUID == prompt:
			begun = true
		case e.Type == "user" && e.Fields["promptId"] != nil && e.Fields["sourceToolAssistantUUID"] == nil:
			return false // the prompt of another turn
		case !begun && !meta && (e.Type == "user" || e.Type == "assistant"):
			return false // of an earlier turn
		}
	}
	return true
}

// copied returns the entries of a session for a fork of it.
func copied(h *session.History, from string) []*session.Entry {
	var entries []*session.Entry
	ids := map[string]string{}
	for _, e := range h.Entries {
		c := *e
		c.UUID = session.NewID()
		ids[e.UUID] = c.UUID
		c.ParentUUID = ids[e.ParentUUID]
		c.Fields = maps.Clone(e.Fields)
		if c.Fields == nil {
			c.Fields = map[string]json.RawMessage{}
		}
		c.Fields["forkedFrom"], _ = json.Marshal(map[string]string{"sessionId": from, "messageUuid": e.UUID})
		entries = append(entries, &c)
		*e = c // the conversation continues from the copy
	}
	for _, typ := range []string{"parley-prefix", "parley-quarantine", "cost-state", "custom-title"} {
		if e := h.Latest[typ]; e != nil {
			entries = append(entries, e)
		}
	}
	return entries
}

func newSessionID(f *cli.Flags) string {
	if f.SessionID != "" {
		return f.SessionID
	}
	return session.NewID()
}
