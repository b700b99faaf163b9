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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/hub"
)

// A Scope is what a token may be used for. Each includes those before it.
type Scope string

// The scopes, from the weakest.
const (
	ScopeView    Scope = "view"    // see sessions
	ScopeApprove Scope = "approve" // answer questions with yes or no
	ScopeDrive   Scope = "drive"   // send prompts, interrupt, change settings
	ScopeAdmin   Scope = "admin"   // create and remove sessions, tokens and worktrees
)

var scopes = []Scope{ScopeView, ScopeApprove, ScopeDrive, ScopeAdmin}

// rights returns the rights of a scope in the hub, none for one that is not known.
func (s Scope) rights() hub.Rights {
	return 1<<(slices.Index(scopes, s)+1) - 1
}

// allows reports whether a scope includes another.
func (s Scope) allows(need Scope) bool { return s.rights()&need.rights() == need.rights() }

// A Token is what is known of a token. The secret itself is shown once, when it is made.
type Token struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"` // of the device or program
	Scope   Scope     `json:"scope"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
	Used    time.Time `json:"used,omitzero"` // last
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

// arm makes the context of a credential.
func (c *credential) arm() {
	c.ctx, c.revoke = context.WithCancelCause(context.Background())
	c.free = func() {}
	if !c.Expires.IsZero() {
		c.ctx, c.free = context.WithDeadlineCause(c.ctx, c.Expires, errRevoked)
	}
}

// tokens are all tokens, in a file that is read once: a process that changes the file
// while the server runs gains nothing.
type tokens struct {
	path string // empty: they are not kept

	mu  sync.Mutex
	all map[string]*credential // by id
}

func openTokens(path string) (*tokens, error) {
	t := &tokens{path: path, all: map[string]*credential{}}
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
	var list []*credential
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("serve: %s cannot be read: %w", path, err)
	}
	for _, c := range list {
		c.arm()
		t.all[c.ID] = c
	}
	return t, nil
}

// close frees what tokens hold.
func (t *tokens) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.all {
		c.free()
	}
}

// save writes the file. The caller holds the lock.
func (t *tokens) save() error {
	if t.path == "" {
		return nil
	}
	list := make([]*credential, 0, len(t.all))
	for _, c := range t.all {
		list = append(list, c)
	}
	slices.SortFunc(list, byAge)
	data, err := json.MarshalIndent(list, "", "\t")
	if err != nil {
		return err
	}
	return writeFile(t.path, data)
}

func byAge(a, b *credential) int {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
}

// writeFile replaces a file that only this user can read, in one step.
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

// tokenPrefix lets scanners find tokens that leak.
const tokenPrefix = "parley_"

func hashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// add makes a token and returns it in full.
func (t *tokens) add(name string, scope Scope, expires time.Time) (Token, string, error) {
	name = strings.TrimSpace(name)
	switch {
	case name == "" || len(name) > 100:
		return Token{}, "", errors.New("serve: the name of a token must have 1 to 100 bytes")
	case !slices.Contains(scopes, scope):
		return Token{}, "", fmt.Errorf("serve: %q is not a scope: it is one of %v", scope, scopes)
	case !expires.IsZero() && !expires.After(time.Now()):
		return Token{}, "", errors.New("serve: the token would have expired already")
	}
	id, secret := make([]byte, 6), make([]byte, 32)
	rand.Read(id)
	rand.Read(secret)
	c := &credential{Token: Token{ID: hex.EncodeToString(id), Name: name, Scope: scope, Created: time.Now().UTC().Truncate(time.Millisecond), Expires: expires}}
	text := tokenPrefix + c.ID + "_" + base64.RawURLEncoding.EncodeToString(secret)
	c.Hash = hashSecret(text)
	c.arm()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all[c.ID] = c
	if err := t.save(); err != nil {
		delete(t.all, c.ID)
		return Token{}, "", err
	}
	return c.Token, text, nil
}

// find returns the credential of a secret, nil if there is none.
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

// valid reports whether a token is there and has not expired.
func (t *tokens) valid(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.all[id]
	return c != nil && c.ctx.Err() == nil
}

// used notes the use of a token. It is stored with the next change of the file.
func (t *tokens) used(c *credential, from string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Used, c.From = time.Now().UTC().Truncate(time.Second), from
}

// knownAt reports whether a token was used from an address before.
func (t *tokens) knownAt(c *credential, from string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.From == from
}

// list returns all tokens, the oldest first.
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

// remove revokes a token and ends its streams.
func (t *tokens) remove(id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.all[id]
	if c == nil {
		return fmt.Errorf("serve: unknown token %q: %w", id, hub.ErrNotFound)
	}
	delete(t.all, id)
	if err := t.save(); err != nil {
		t.all[id] = c
		return err
	}
	c.revoke(errRevoked)
	c.free()
	return nil
}
