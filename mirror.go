package parley

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	sessions "github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// A mirror copies the records of the agent's session files to a store. The reader passes it
// the agent's messages about them, and never waits. One goroutine at a time writes to the
// store. The consumer waits for that goroutine before it gets a result.
type mirror struct {
	store sessions.Store
	dirs  []string // directories of the files, as the agent may name them
	warn  func(error)
	ctx   context.Context // context for calls of the store
	stop  context.CancelFunc
	over  chan struct{} // closed when nothing waits for the store any more

	mu      sync.Mutex
	pending []mirrored
	records int
	bytes   int
	failed  []wire.Message // for the consumer
	busy    chan struct{}  // closed when the writing goroutine has finished; nil if there is none

	held []wire.Message // used only by the consumer: messages that follow an error
}

// mirrored holds records to be appended to one log.
type mirrored struct {
	key     sessions.Key
	records []json.RawMessage
}

// How much may be pending until the next result, and how much in total while the store does
// not accept it.
const (
	mirrorRecords = 500
	mirrorBytes   = 1 << 20
	mirrorMost    = 64 << 20
)

// The pauses between attempts to append. An append that takes too long is not repeated,
// because the store may still be working on it.
var mirrorPauses = []time.Duration{200 * time.Millisecond, 800 * time.Millisecond}

const mirrorTimeout = 60 * time.Second

func newMirror(store sessions.Store, configDir string, warn func(error)) *mirror {
	m := &mirror{store: store, warn: warn, dirs: []string{filepath.Join(configDir, "projects")}, over: make(chan struct{})}
	m.ctx, m.stop = context.WithCancel(context.Background())
	if real, err := filepath.EvalSymlinks(configDir); err == nil && real != configDir {
		m.dirs = append(m.dirs, filepath.Join(real, "projects"))
	}
	return m
}

// enqueue queues the records that the agent wrote.
func (m *mirror) enqueue(t *wire.TranscriptMirror) {
	if len(t.Entries) == 0 {
		return
	}
	key, err := m.key(t.FilePath)
	if err != nil {
		m.warn(err)
		return
	}
	size := 0
	for _, r := range t.Entries {
		size += len(r)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bytes+size > mirrorMost {
		m.fail(key, fmt.Errorf("the store does not keep up: %d MiB wait for it", m.bytes>>20))
		return
	}
	m.records += len(t.Entries)
	m.bytes += size
	if i := slices.IndexFunc(m.pending, func(p mirrored) bool { return p.key == key }); i >= 0 {
		m.pending[i].records = append(m.pending[i].records, t.Entries...)
	} else {
		m.pending = append(m.pending, mirrored{key, slices.Clone(t.Entries)})
	}
	if m.records > mirrorRecords || m.bytes > mirrorBytes {
		m.start()
	}
}

// key returns the key of a session file.
func (m *mirror) key(file string) (sessions.Key, error) {
	dirs := m.dirs
	if !filepath.IsAbs(file) { // the form used by an agent without a home directory
		dirs = []string{"projects"}
	}
	for _, dir := range dirs {
		rel, err := filepath.Rel(dir, filepath.Clean(file))
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		parts := strings.Split(strings.TrimSuffix(filepath.ToSlash(rel), ".jsonl"), "/")
		if len(parts) != 2 && len(parts) < 4 {
			break
		}
		key := sessions.Key{Project: parts[0], Session: parts[1], Sub: strings.Join(parts[2:], "/")}
		if err := key.Check(); err != nil {
			return key, fmt.Errorf("parley: the agent mirrors %q: %w", file, err)
		}
		return key, nil
	}
	return sessions.Key{}, fmt.Errorf("parley: the agent mirrors %q, which is not a session file below %s; it is left out of the store", file, m.dirs[0])
}

// start starts the writing goroutine, unless it is running. The caller holds m.mu.
func (m *mirror) start() {
	if m.busy != nil {
		return
	}
	m.busy = make(chan struct{})
	go m.write()
}

// write appends pending records until there are none.
func (m *mirror) write() {
	for {
		m.mu.Lock()
		batch := m.pending
		if len(batch) == 0 {
			close(m.busy)
			m.busy = nil
			m.mu.Unlock()
			return
		}
		size := m.bytes // records that arrive in the meantime are added to m.bytes
		m.pending, m.records = nil, 0
		m.mu.Unlock()
		for _, b := range batch {
			if err := m.append(b); err != nil {
				m.mu.Lock()
				m.fail(b.key, err)
				m.mu.Unlock()
			}
		}
		m.mu.Lock()
		m.bytes -= size
		m.mu.Unlock()
	}
}

func (m *mirror) append(b mirrored) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the store panicked: %v", p)
		}
	}()
	for try := 0; ; try++ {
		ctx, cancel := context.WithTimeout(m.ctx, mirrorTimeout)
		err = ctx.Err()
		if err == nil {
			err = m.store.Append(ctx, b.key, b.records)
		}
		late := ctx.Err() != nil
		cancel()
		if err == nil || late || try == len(mirrorPauses) {
			return err
		}
		select {
		case <-time.After(mirrorPauses[try]):
		case <-m.ctx.Done():
			return err
		}
	}
}

// close is flush with a time limit. After it returns, it does not call the store any more,
// unless the store ignores its context.
func (m *mirror) close() error {
	defer close(m.over)
	ctx, cancel := context.WithTimeout(context.Background(), mirrorTimeout)
	defer cancel()
	err := m.flush(ctx)
	m.stop()
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), handlerGrace)
		defer cancel()
		m.flush(ctx)
	}
	return err
}

// fail queues a message for the consumer that records are not in the store. The caller holds
// m.mu.
func (m *mirror) fail(key sessions.Key, err error) {
	named := map[string]string{"projectKey": key.Project, "sessionId": key.Session}
	if key.Sub != "" {
		named["subpath"] = key.Sub
	}
	raw, _ := json.Marshal(named)
	m.failed = append(m.failed, &wire.MirrorError{Error: err.Error(), Key: raw, SessionID: key.Session, UUID: sessions.NewID()})
}

// flush waits until everything that is pending is written or given up.
func (m *mirror) flush(ctx context.Context) error {
	m.mu.Lock()
	if len(m.pending) > 0 {
		m.start()
	}
	busy := m.busy
	m.mu.Unlock()
	if busy == nil {
		return nil
	}
	select {
	case <-busy:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.over: // the session has ended, and the store did not accept its records in time
		return nil
	}
}

// unreportedFailures returns the failures that the consumer has not received yet, and removes them.
func (m *mirror) unreportedFailures() []wire.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	told := m.failed
	m.failed = nil
	return told
}

// pop returns the next message for the consumer. Before it returns a result, the records
// that the agent wrote before that result are in the store, or a message reports the failure.
func (s *session) pop(ctx context.Context) (wire.Message, error) {
	m := s.cfg.mirror
	if m == nil {
		return s.in.pop(ctx)
	}
	if len(m.held) == 0 {
		next, err := s.in.pop(ctx)
		if err != nil {
			if m.held = m.unreportedFailures(); len(m.held) == 0 || ctx.Err() != nil {
				return nil, err
			}
		} else {
			m.held = append(m.held, next)
		}
	}
	if _, ok := m.held[len(m.held)-1].(*wire.Result); ok {
		if err := m.flush(ctx); err != nil {
			return nil, err
		}
	}
	m.held = append(m.unreportedFailures(), m.held...)
	next := m.held[0]
	m.held = m.held[1:]
	return next, nil
}

// configDir returns the configuration directory and the home of an agent with the given
// environment.
func configDir(env []string) (dir, home string) {
	home, _ = os.UserHomeDir()
	homeVar := "HOME="
	if runtime.GOOS == "windows" {
		homeVar = "USERPROFILE="
	}
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "CLAUDE_CONFIG_DIR="); ok {
			dir = v
		} else if v, ok := strings.CutPrefix(kv, homeVar); ok && v != "" {
			home = v
		}
	}
	if dir == "" {
		dir = filepath.Join(home, ".claude")
	}
	return dir, home
}

// fromStore writes the session that will be resumed to a file in a separate directory, where
// the agent finds it and the settings of the user. The returned function removes the
// directory. If the store has no such session, the agent looks for it by itself.
func (c *config) fromStore(ctx context.Context) (remove func(), err error) {
	remove = func() {}
	if c.store == nil {
		return remove, nil
	}
	from, home := configDir(c.spec.Env)
	c.mirror = newMirror(c.store, from, c.warn)
	if !c.materialise {
		return remove, nil
	}
	ctx, cancel := context.WithTimeout(ctx, mirrorTimeout)
	defer cancel()
	failed := func(err error) (func(), error) {
		return func() {}, fmt.Errorf("parley: the session cannot be taken from SessionStore: %w", err)
	}
	id := c.resume
	if id == "" {
		cwd := c.spec.Dir
		if cwd, err = filepath.Abs(cwd); err != nil {
			return failed(err)
		}
		if id, err = sessions.Latest(ctx, c.store, cwd); errors.Is(err, sessions.ErrNotFound) {
			return remove, nil
		} else if err != nil {
			return failed(err)
		}
	}
	there, err := c.store.List(ctx, sessions.Key{Session: id})
	if err != nil {
		return failed(err)
	}
	if len(there) == 0 {
		return remove, nil
	}
	key := slices.MaxFunc(there, func(a, b sessions.Listed) int { return a.Modified.Compare(b.Modified) }).Key
	dir, err := os.MkdirTemp("", "parley-resume-")
	if err != nil {
		return failed(err)
	}
	remove = func() {
		for range 4 { // files may stay open for a moment after the agent has ended
			if os.RemoveAll(dir) == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	if err := materialise(ctx, c.store, key, dir); err != nil {
		remove()
		return failed(err)
	}
	if err := copyConfig(from, home, dir); err != nil {
		remove()
		return failed(err)
	}
	c.spec.Flags = slices.DeleteFunc(slices.Clone(c.spec.Flags), func(f transport.Flag) bool { return f.Name == "continue" || f.Name == "resume" })
	c.spec.Flags = append(c.spec.Flags, transport.Flag{Name: "resume", Values: []string{id}})
	c.spec.Env = append(slices.DeleteFunc(slices.Clone(c.spec.Env), func(kv string) bool { return strings.HasPrefix(kv, "CLAUDE_CONFIG_DIR=") }), "CLAUDE_CONFIG_DIR="+dir)
	c.mirror = newMirror(c.store, dir, c.warn)
	return remove, nil
}

// materialise writes a session and its parts to files below dir.
func materialise(ctx context.Context, store sessions.Store, key sessions.Key, dir string) error {
	files := &sessions.Files{Dir: dir, Durability: sessions.Write}
	subs, err := store.Subkeys(ctx, key)
	if err != nil {
		return err
	}
	for _, sub := range append([]string{""}, subs...) {
		part := key
		part.Sub = sub
		records, err := store.Load(ctx, part)
		if errors.Is(err, sessions.ErrNotFound) && sub != "" {
			continue
		}
		if err != nil {
			return err
		}
		if err := files.Append(ctx, part, records); err != nil {
			return err
		}
	}
	return nil
}

// copyConfig copies the parts of the user's configuration that an agent needs. It copies the
// login without the token that would renew it, because renewing the copy would make the
// user's own login invalid. It copies the settings without those that lead elsewhere. It
// leaves out files that cannot be read.
func copyConfig(from, home, to string) error {
	edit := map[string]func(map[string]json.RawMessage){
		".credentials.json": func(all map[string]json.RawMessage) {
			for name, value := range all {
				var login map[string]json.RawMessage
				if json.Unmarshal(value, &login) == nil && login["refreshToken"] != nil {
					delete(login, "refreshToken")
					all[name], _ = json.Marshal(login)
				}
			}
			delete(all, "refreshToken")
		},
		".claude.json":         nil,
		"settings.json":        plainSettings,
		"cowork_settings.json": plainSettings,
	}
	for name, change := range edit {
		source := filepath.Join(from, name)
		if name == ".claude.json" && from == filepath.Join(home, ".claude") {
			source = filepath.Join(home, name)
		}
		info, err := os.Stat(source)
		if err != nil || !info.Mode().IsRegular() || info.Size() > 64<<20 {
			continue
		}
		data, err := os.ReadFile(source)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return err
		}
		if change != nil {
			var all map[string]json.RawMessage
			if json.Unmarshal(data, &all) != nil {
				continue
			}
			change(all)
			if data, err = json.Marshal(all); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(to, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func plainSettings(all map[string]json.RawMessage) {
	delete(all, "enabledPlugins")
	delete(all, "extraKnownMarketplaces")
	var env map[string]json.RawMessage
	if json.Unmarshal(all["env"], &env) == nil && env["CLAUDE_CONFIG_DIR"] != nil {
		delete(env, "CLAUDE_CONFIG_DIR")
		all["env"], _ = json.Marshal(env)
	}
}
