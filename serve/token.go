package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/hub"
)

// A Scope is the set of things that a token allows. Each scope includes the ones before it.
type Scope string

// The scopes, weakest first.
const (
	ScopeView    Scope = "view"    // see sessions
	ScopeApprove Scope = "approve" // allow or deny what agents ask for
	ScopeDrive   Scope = "drive"   // send prompts, interrupt, change settings
	ScopeAdmin   Scope = "admin"   // create and remove sessions, tokens and worktrees
)

// ScopeAgent is separate from the others: an agent on another machine may offer itself, and do
// nothing else. Of the others only [ScopeAdmin] includes it.
const ScopeAgent Scope = "agent"

var scopes = []Scope{ScopeView, ScopeApprove, ScopeDrive, ScopeAdmin}

// rights returns the rights of a scope in the hub, none for an unknown scope.
func (s Scope) rights() hub.Rights {
	return 1<<(slices.Index(scopes, s)+1) - 1
}

// allows reports whether a scope includes another.
func (s Scope) allows(need Scope) bool {
	if need == ScopeAgent {
		return s == ScopeAgent || s == ScopeAdmin
	}
	return s.rights()&need.rights() == need.rights()
}

// A Token describes a token. The secret itself is shown only once, when the token is created.
type Token struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"` // of the device or program
	Scope   Scope     `json:"scope"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
	Used    time.Time `json:"used,omitzero"` // the last time
	From    string    `json:"from,omitempty"`
}

// A credential is a token in the store.
type credential struct {
	Token
	Hash string `json:"hash"` // SHA-256 of the secret, in hex

	ctx    context.Context // ends when it is revoked or expires
	revoke context.CancelCauseFunc
	free   context.CancelFunc
}

// errRevoked ends the streams of a token that was revoked or has expired.
var errRevoked = errors.New("serve: the token was revoked or has expired")

// arm creates the context of a credential.
func (c *credential) arm() {
	c.ctx, c.revoke = context.WithCancelCause(context.Background())
	c.free = func() {}
	if !c.Expires.IsZero() {
		c.ctx, c.free = context.WithDeadlineCause(c.ctx, c.Expires, errRevoked)
	}
}

// A TokenStore keeps the tokens of several servers, as one shared value.
type TokenStore interface {
	// Change calls f with the value, nil if there is none, and stores the result of f. If another
	// server stored something in the meantime, it calls f again.
	Change(ctx context.Context, f func(old []byte) ([]byte, error)) error
	// Watch calls f with the value, nil if there is none, and again whenever it changes, until ctx
	// ends.
	Watch(ctx context.Context, f func(value []byte)) error
}

// tokens are all tokens. A token file is read only once: a process that changes the file while the
// server runs gains nothing.
type tokens struct {
	path  string // empty: they are not stored in a file
	store TokenStore
	stop  context.CancelFunc // ends watching the store
	work  sync.WaitGroup

	changing sync.Mutex // held while a token is added or removed

	mu    sync.Mutex
	all   map[string]*credential // by id
	taken chan struct{}          // closed when all changes
}

func openTokens(path string, store TokenStore, logger *slog.Logger) (*tokens, error) {
	t := &tokens{path: path, store: store, all: map[string]*credential{}, taken: make(chan struct{}), stop: func() {}}
	if store != nil {
		return t, t.watch(logger)
	}
	if path == "" {
		return t, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, fmt.Errorf("serve: tokens cannot be read: %w", err)
	}
	if err := t.replaceAll(data); err != nil {
		return nil, fmt.Errorf("serve: %s cannot be read: %w", path, err)
	}
	return t, nil
}

// watch applies the value of the store, now and whenever it changes.
func (t *tokens) watch(logger *slog.Logger) error {
	first := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	t.stop = cancel
	t.work.Go(func() {
		for ctx.Err() == nil {
			err := t.store.Watch(ctx, func(data []byte) {
				err := t.replaceAll(data)
				if err != nil {
					logger.Error("the tokens cannot be read", "error", err)
				}
				select {
				case first <- err:
				default:
				}
			})
			if err != nil && ctx.Err() == nil {
				logger.Warn("changes of the tokens cannot be seen", "error", err)
			}
			select {
			case first <- err:
			default:
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	})
	if err := <-first; err != nil {
		t.close()
		return fmt.Errorf("serve: tokens cannot be read: %w", err)
	}
	return nil
}

// replaceAll replaces all tokens with those of a list. It ends the streams of tokens that are gone.
func (t *tokens) replaceAll(data []byte) error {
	var list []*credential
	if len(data) > 0 {
		if err := json.Unmarshal(data, &list); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.taken)
	t.taken = make(chan struct{})
	old := t.all
	t.all = map[string]*credential{}
	for _, c := range list {
		if known := old[c.ID]; known != nil && known.Hash == c.Hash {
			c = known
			delete(old, c.ID)
		} else {
			c.arm()
		}
		t.all[c.ID] = c
	}
	for _, c := range old {
		c.revoke(errRevoked)
		c.free()
	}
	return nil
}

// close frees the resources of the tokens.
func (t *tokens) close() {
	t.stop()
	t.work.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.all {
		c.free()
	}
}

// change adds a token, or removes the one with an id, and returns when the change is stored.
func (t *tokens) change(add *credential, remove string) error {
	apply := func(list []*credential) ([]byte, error) {
		list = slices.DeleteFunc(list, func(c *credential) bool { return c.ID == remove })
		if add != nil {
			list = append(list, add)
		}
		slices.SortFunc(list, byAge)
		return json.MarshalIndent(list, "", "\t")
	}
	t.changing.Lock()
	defer t.changing.Unlock()
	if t.store != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err := t.store.Change(ctx, func(old []byte) ([]byte, error) {
			var list []*credential
			if len(old) > 0 {
				if err := json.Unmarshal(old, &list); err != nil {
					return nil, err
				}
			}
			return apply(list)
		})
		if err != nil {
			return fmt.Errorf("serve: tokens cannot be stored: %w", err)
		}
		t.await(ctx, func() bool { return (add == nil || t.all[add.ID] != nil) && t.all[remove] == nil })
		return nil
	}
	t.mu.Lock()
	data, err := apply(slices.Collect(maps.Values(t.all)))
	t.mu.Unlock()
	if err == nil && t.path != "" {
		err = writeFile(t.path, data)
	}
	if err != nil {
		return err
	}
	return t.replaceAll(data)
}

// await waits until done returns true.
func (t *tokens) await(ctx context.Context, done func() bool) {
	for {
		t.mu.Lock()
		ok, taken := done(), t.taken
		t.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-taken:
		case <-ctx.Done():
			return
		}
	}
}

func byAge(a, b *credential) int {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
}

// writeFile atomically replaces a file that only this user can read.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// tokenPrefix lets scanners find leaked tokens.
const tokenPrefix = "parley_"

func hashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// scopeNames lists the scopes of tokens for people.
func scopeNames() string {
	var b strings.Builder
	for _, s := range scopes {
		b.WriteString(string(s) + ", ")
	}
	return strings.TrimSuffix(b.String(), ", ") + " or " + string(ScopeAgent)
}

// add creates a token and returns it with its secret.
func (t *tokens) add(name string, scope Scope, expires time.Time) (Token, string, error) {
	name = strings.TrimSpace(name)
	switch {
	case name == "" || len(name) > 100:
		return Token{}, "", errors.New("serve: the name of a token must have 1 to 100 bytes")
	case !slices.Contains(scopes, scope) && scope != ScopeAgent:
		return Token{}, "", fmt.Errorf("serve: %q is not a scope: use %s", scope, scopeNames())
	case !expires.IsZero() && !expires.After(time.Now()):
		return Token{}, "", errors.New("serve: the expiry is in the past")
	}
	id, secret := make([]byte, 6), make([]byte, 32)
	rand.Read(id)
	rand.Read(secret)
	c := &credential{Token: Token{ID: hex.EncodeToString(id), Name: name, Scope: scope, Created: time.Now().UTC().Truncate(time.Millisecond), Expires: expires}}
	text := tokenPrefix + c.ID + "_" + base64.RawURLEncoding.EncodeToString(secret)
	c.Hash = hashSecret(text)
	if err := t.change(c, ""); err != nil {
		return Token{}, "", err
	}
	return c.Token, text, nil
}

// find returns the credential for a secret, or nil if there is none.
func (t *tokens) find(text string) *credential {
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	id, _, split := strings.Cut(rest, "_")
	if !ok || !split {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.all[id]
	if c == nil || subtle.ConstantTimeCompare([]byte(c.Hash), []byte(hashSecret(text))) != 1 || c.ctx.Err() != nil {
		return nil
	}
	return c
}

// actor returns the actor of a token, if the token exists and has not expired.
func (t *tokens) actor(id string) (hub.Actor, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.all[id]
	if c == nil || c.ctx.Err() != nil {
		return hub.Actor{}, false
	}
	return hub.Actor{Name: c.Name, Rights: hub.MayView}, true
}

// used records the use of a token. It is stored with the next change of the file.
func (t *tokens) used(c *credential, from string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Used, c.From = time.Now().UTC().Truncate(time.Second), from
}

// usedFrom reports whether a token was last used from an address.
func (t *tokens) usedFrom(c *credential, from string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.From == from
}

// list returns all tokens, oldest first.
func (t *tokens) list() []Token {
	t.mu.Lock()
	defer t.mu.Unlock()
	creds := make([]*credential, 0, len(t.all))
	for _, c := range t.all {
		creds = append(creds, c)
	}
	slices.SortFunc(creds, byAge)
	all := make([]Token, len(creds))
	for i, c := range creds {
		all[i] = c.Token
	}
	return all
}

// remove revokes a token if the caller may see it, and ends its streams.
func (t *tokens) remove(id string, sees func(name string) bool) error {
	t.mu.Lock()
	c := t.all[id]
	t.mu.Unlock()
	if c == nil || !sees(c.Name) {
		return fmt.Errorf("serve: unknown token %q: %w", id, hub.ErrNotFound)
	}
	return t.change(nil, id)
}
