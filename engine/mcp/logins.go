package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/parley-go/parley/internal/filelock"
	"golang.org/x/oauth2"
)

// Logins stores the logins of a user to MCP servers for many conversations. It is a file that
// only the user can read. A login belongs to a server's name and its exact address: for another
// address there is none.
//
// Several processes may use one file.
type Logins struct {
	File string
}

// A KeptLogin is a stored login.
type KeptLogin struct {
	Server  string    `json:"server"`           // its name
	URL     string    `json:"url"`              // the only address that its token is sent to
	Expires time.Time `json:"expires,omitzero"` // of the token; zero means unknown

	Token   string `json:"token"`
	Refresh string `json:"refresh,omitempty"` // refresh token

	ClientID     string   `json:"clientId"`
	ClientSecret string   `json:"clientSecret,omitempty"`
	Scopes       []string `json:"scopes,omitempty"`
	TokenURL     string   `json:"tokenUrl"`            // for requesting tokens
	RevokeURL    string   `json:"revokeUrl,omitempty"` // for revoking tokens
}

// storedLogin returns a login in the form in which it is stored.
func storedLogin(server, url string, conf *oauth2.Config, t *oauth2.Token, revoke string) *KeptLogin {
	return &KeptLogin{Server: server, URL: url, Expires: t.Expiry, Token: t.AccessToken, Refresh: t.RefreshToken,
		ClientID: conf.ClientID, ClientSecret: conf.ClientSecret, Scopes: conf.Scopes, TokenURL: conf.Endpoint.TokenURL, RevokeURL: revoke}
}

func (k *KeptLogin) token() *oauth2.Token {
	return &oauth2.Token{AccessToken: k.Token, TokenType: "Bearer", RefreshToken: k.Refresh, Expiry: k.Expires}
}

func (k *KeptLogin) config() *oauth2.Config {
	return &oauth2.Config{ClientID: k.ClientID, ClientSecret: k.ClientSecret, Scopes: k.Scopes,
		Endpoint: oauth2.Endpoint{TokenURL: k.TokenURL, AuthStyle: oauth2.AuthStyleInParams}}
}

type loginFile struct {
	Version int          `json:"version"`
	Logins  []*KeptLogin `json:"logins"`
}

// List returns the stored logins.
func (l *Logins) List() ([]*KeptLogin, error) {
	fail := func(why error) ([]*KeptLogin, error) {
		return nil, fmt.Errorf("%s: the logins to MCP servers cannot be read: %w. Fix the file, or remove it and log in again", l.File, why)
	}
	f, err := os.Open(l.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return fail(err)
	case !info.Mode().IsRegular():
		return fail(errors.New("it is not a file"))
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return fail(fmt.Errorf("others may read or write it (its mode is %v)", info.Mode().Perm()))
	case info.Size() > 8<<20:
		return fail(errors.New("it is too long"))
	}
	var doc loginFile
	if err := json.NewDecoder(f).Decode(&doc); err != nil {
		return fail(err)
	}
	if doc.Version != 1 {
		return fail(fmt.Errorf("it has version %d; this program supports version 1", doc.Version))
	}
	return slices.DeleteFunc(doc.Logins, func(k *KeptLogin) bool { return k == nil }), nil
}

// of reports whether the login belongs to a server.
func (k *KeptLogin) of(server, url string) bool { return k.Server == server && k.URL == url }

// find returns the login to a server, or nil.
func (l *Logins) find(server, url string) (*KeptLogin, error) {
	list, err := l.List()
	if i := slices.IndexFunc(list, func(k *KeptLogin) bool { return k.of(server, url) }); i >= 0 {
		return list[i], nil
	}
	return nil, err
}

// Forget removes the logins for which drop returns true, and returns them.
func (l *Logins) Forget(ctx context.Context, drop func(*KeptLogin) bool) (gone []*KeptLogin, err error) {
	if list, err := l.List(); err != nil || !slices.ContainsFunc(list, drop) {
		return nil, err
	}
	d, err := l.open(ctx)
	if err != nil {
		return nil, err
	}
	defer d.close()
	return d.replace(nil, drop)
}

// GiveBack revokes the tokens of a login, if possible, through the proxies in an environment.
// It is called for a login that was removed.
func (k *KeptLogin) GiveBack(ctx context.Context, env []string) error {
	here, err := url.Parse(k.URL)
	if err != nil {
		return err
	}
	return giveBack(ctx, authClient(env, here), k.RevokeURL, k.ClientID, k.token())
}

// loginDir is the directory of the file, locked by this process.
type loginDir struct {
	*Logins
	root   *os.Root
	unlock func()
}

func (l *Logins) open(ctx context.Context) (*loginDir, error) {
	dir, name := filepath.Split(l.File)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	unlock, err := filelock.Acquire(ctx, root, name+".lock")
	if err != nil {
		root.Close()
		return nil, err
	}
	return &loginDir{l, root, unlock}, nil
}

func (d *loginDir) close() {
	d.unlock()
	d.root.Close()
}

// replace replaces the logins for which drop returns true by another one, and returns them.
func (d *loginDir) replace(next *KeptLogin, drop func(*KeptLogin) bool) (gone []*KeptLogin, err error) {
	list, err := d.List()
	if err != nil {
		return nil, err
	}
	doc := loginFile{Version: 1, Logins: []*KeptLogin{}}
	for _, k := range list {
		if drop(k) {
			gone = append(gone, k)
		} else {
			doc.Logins = append(doc.Logins, k)
		}
	}
	if next != nil {
		doc.Logins = append(doc.Logins, next)
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, err
	}
	name := filepath.Base(d.File)
	tmp := name + "." + rand.Text()[:16]
	f, err := d.root.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close()); err == nil {
		err = d.root.Rename(tmp, name)
	}
	if err != nil {
		d.root.Remove(tmp)
		return nil, err
	}
	return gone, nil
}
