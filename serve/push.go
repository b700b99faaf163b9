package serve

import (
	"bytes"
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"code.dny.dev/ssrf"
	"github.com/parley-go/parley/hub"
)

// Web Push: a subscribed device receives notices even if no page is open. The text is encrypted for
// the device (RFC 8291), so the push service of its browser cannot read it, and the server signs its
// messages (RFC 8292). A subscription belongs to a token and ends with it.

// A Subscription is a browser that receives notices.
type Subscription struct {
	ID      string    `json:"id"`
	Service string    `json:"service"` // the host of the browser's push service
	Events  []string  `json:"events"`  // the notices it receives: "ask", "done", "problem"
	Created time.Time `json:"created"`
}

// A subscriber is a subscription in the store.
type subscriber struct {
	Subscription
	Token    string `json:"token"` // the id of the token that subscribed
	Endpoint string `json:"endpoint"`
	Key      []byte `json:"key"`  // public key of the browser: a point on P-256
	Auth     []byte `json:"auth"` // a secret shared with the browser
}

// pushes are the key of the server and all subscriptions, stored in a file.
type pushes struct {
	path string         // empty: they are not stored
	work sync.WaitGroup // messages being sent

	mu  sync.Mutex
	key *ecdsa.PrivateKey
	all []*subscriber
}

type pushFile struct {
	Key           []byte        `json:"key"`
	Subscriptions []*subscriber `json:"subscriptions"`
}

const maxSubscriptions = 10 // per token

var pushEvents = []string{"ask", "done", "problem"}

// openPushes reads the file. If there is none, it generates a new key, which the first subscription
// stores.
func openPushes(path string) (*pushes, error) {
	p := &pushes{path: path}
	data, err := os.ReadFile(path)
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		p.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		return p, err
	}
	var f pushFile
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err == nil {
		p.all = f.Subscriptions
		p.key, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), f.Key)
	}
	if err != nil {
		return nil, fmt.Errorf("serve: %s cannot be read: %w", path, err)
	}
	return p, nil
}

// change runs f with the lock held, and stores p.all afterwards.
func (p *pushes) change(f func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.all
	err := f()
	if err == nil && p.path != "" {
		var raw, data []byte
		if raw, err = p.key.Bytes(); err == nil {
			if data, err = json.Marshal(pushFile{raw, p.all}); err == nil {
				err = writeFile(p.path, data)
			}
		}
	}
	if err != nil {
		p.all = before
	}
	return err
}

// PushSettings are the data that a page needs to subscribe, and the subscriptions of its token.
type PushSettings struct {
	Key           string         `json:"key"` // of the server, in the form for pushManager.subscribe
	Subscriptions []Subscription `json:"subscriptions"`
}

func pushSettings(c *call, _ context.Context, _ *none) (PushSettings, error) {
	p := c.s.pushes
	out := PushSettings{Subscriptions: []Subscription{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.all {
		if x.Token == c.token {
			out.Subscriptions = append(out.Subscriptions, x.Subscription)
		}
	}
	public, err := p.key.PublicKey.Bytes()
	out.Key = base64.RawURLEncoding.EncodeToString(public)
	return out, err
}

// NewSubscription is a browser's PushSubscription as JSON, with the notices to send.
type NewSubscription struct {
	Endpoint string `json:"endpoint"`
	Keys     struct {
		P256dh string `json:"p256dh"`
		Auth   string `json:"auth"`
	} `json:"keys"`
	Events []string `json:"events,omitempty"` // all if omitted
}

func subscribe(c *call, _ context.Context, in *NewSubscription) (Subscription, error) {
	if c.token == "" {
		return Subscription{}, badRequest("a subscription belongs to a token, and the socket has none")
	}
	u, err := url.Parse(in.Endpoint)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || len(in.Endpoint) > 2000 {
		return Subscription{}, badRequest("the endpoint is not an https address of a push service")
	}
	x := &subscriber{Subscription: Subscription{Service: u.Hostname(), Events: in.Events, Created: time.Now().UTC().Truncate(time.Second)}, Token: c.token, Endpoint: in.Endpoint}
	if len(x.Events) == 0 {
		x.Events = pushEvents
	}
	for _, e := range x.Events {
		if !slices.Contains(pushEvents, e) {
			return Subscription{}, badRequest("%q is not an event: it is one of %v", e, pushEvents)
		}
	}
	var err1, err2, err3 error
	x.Key, err1 = base64.RawURLEncoding.DecodeString(strings.TrimRight(in.Keys.P256dh, "="))
	x.Auth, err2 = base64.RawURLEncoding.DecodeString(strings.TrimRight(in.Keys.Auth, "="))
	_, err3 = ecdh.P256().NewPublicKey(x.Key)
	if errors.Join(err1, err2, err3) != nil || len(x.Auth) != 16 {
		return Subscription{}, badRequest("the keys are not those of a push subscription")
	}
	sum := sha256.Sum256([]byte(c.token + " " + in.Endpoint))
	x.ID = hex.EncodeToString(sum[:8])
	err = c.s.pushes.change(func() error {
		p := c.s.pushes
		p.all = slices.DeleteFunc(slices.Clone(p.all), func(o *subscriber) bool { return o.ID == x.ID })
		mine := 0
		for _, o := range p.all {
			if o.Token == c.token {
				mine++
			}
		}
		if mine >= maxSubscriptions {
			return badRequest("a token has at most %d subscriptions", maxSubscriptions)
		}
		p.all = append(p.all, x)
		return nil
	})
	if err != nil {
		return Subscription{}, err
	}
	c.s.watchOnce.Do(func() { c.s.work.Go(c.s.notify) })
	return x.Subscription, nil
}

type subscriptionPath struct {
	ID string `json:"-" path:"subscription"`
}

// unsubscribe removes a subscription of the token itself, or any subscription if the caller may
// revoke tokens.
func unsubscribe(c *call, _ context.Context, in *subscriptionPath) (none, error) {
	return none{}, c.s.pushes.remove(func(x *subscriber) bool {
		return x.ID == in.ID && (x.Token == c.token || c.scope.allows(ScopeAdmin))
	})
}

// remove removes subscriptions. It fails if none matches.
func (p *pushes) remove(which func(*subscriber) bool) error {
	return p.change(func() error {
		left := slices.DeleteFunc(slices.Clone(p.all), which)
		if len(left) == len(p.all) {
			return fmt.Errorf("serve: unknown subscription: %w", hub.ErrNotFound)
		}
		p.all = left
		return nil
	})
}

// pushClient returns a client that reaches only public addresses, because an endpoint is whatever a
// page sends.
func pushClient() *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: ssrf.New(ssrf.WithPorts(443)).Safe}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConns: 10, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}}
}

// push sends a notice about a session to every matching subscription whose token is valid and may see
// the creator's sessions. It removes subscriptions that have ended.
func (s *Server) push(creator hub.Actor, n Notice) {
	p := s.pushes
	p.mu.Lock()
	list := slices.DeleteFunc(slices.Clone(p.all), func(x *subscriber) bool { return !slices.Contains(x.Events, n.Event) })
	key := p.key
	p.mu.Unlock()
	body, err := json.Marshal(map[string]string{"title": clip(visible(cmp.Or(n.Title, "Session "+n.Session[:min(8, len(n.Session))])), 200), "body": clip(n.Text, 500), "event": n.Event, "session": n.Session})
	if err != nil {
		return
	}
	for _, x := range list {
		by, valid := s.tokens.actor(x.Token)
		if !valid {
			p.remove(func(o *subscriber) bool { return o.ID == x.ID })
			continue
		}
		if !s.cfg.Hub.Sees(by, creator) {
			continue
		}
		p.work.Go(func() {
			ctx, cancel := context.WithTimeout(s.ctx, 30*time.Second)
			defer cancel()
			gone, err := s.pushOne(ctx, key, x, n.Event == "ask", body)
			if gone {
				p.remove(func(o *subscriber) bool { return o.ID == x.ID })
			} else if err != nil {
				s.logger().Warn("a push message could not be sent", "service", x.Service, "error", err)
			}
		})
	}
}

// pushOne sends a message to a push service. It reports whether the subscription has ended.
func (s *Server) pushOne(ctx context.Context, key *ecdsa.PrivateKey, x *subscriber, urgent bool, text []byte) (gone bool, err error) {
	own, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return false, err
	}
	salt := make([]byte, 16)
	rand.Read(salt)
	body, err := sealPush(text, x.Key, x.Auth, own, salt)
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.Endpoint, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	auth, err := signPush(key, req.URL.Scheme+"://"+req.URL.Host, time.Now().Add(12*time.Hour))
	if err != nil {
		return false, err
	}
	req.Header.Set("Authorization", auth)
	req.Header.Set("Content-Encoding", "aes128gcm")
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set("TTL", "86400")
	if req.Header.Set("Urgency", "normal"); urgent {
		req.Header.Set("Urgency", "high")
	}
	client := *cmp.Or(s.cfg.PushClient, s.pushClient)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		return false, err
	}
	io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10))
	resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound, resp.StatusCode == http.StatusGone:
		return true, nil
	case resp.StatusCode >= 300:
		return false, fmt.Errorf("serve: the push service answered %s", resp.Status)
	}
	return false, nil
}

// sealPush encrypts a text for a browser (RFC 8291): one record of aes128gcm (RFC 8188).
func sealPush(text, browser, auth []byte, own *ecdh.PrivateKey, salt []byte) ([]byte, error) {
	theirs, err := ecdh.P256().NewPublicKey(browser)
	if err != nil {
		return nil, err
	}
	shared, err := own.ECDH(theirs)
	if err != nil {
		return nil, err
	}
	public := own.PublicKey().Bytes()
	input, err1 := hkdf.Key(sha256.New, shared, auth, "WebPush: info\x00"+string(browser)+string(public), 32)
	key, err2 := hkdf.Key(sha256.New, input, salt, "Content-Encoding: aes128gcm\x00", 16)
	nonce, err3 := hkdf.Key(sha256.New, input, salt, "Content-Encoding: nonce\x00", 12)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	head := append(slices.Clip(salt), 0, 0, 16, 0, byte(len(public))) // records of 4096 bytes
	return gcm.Seal(append(head, public...), nonce, append(slices.Clip(text), 2), nil), nil
}

// signPush returns the header that identifies the sender of a push message (RFC 8292).
func signPush(key *ecdsa.PrivateKey, audience string, expires time.Time) (string, error) {
	claims, err := json.Marshal(map[string]any{"aud": audience, "exp": expires.Unix(), "sub": "https://github.com/parley-go/parley"})
	if err != nil {
		return "", err
	}
	enc := base64.RawURLEncoding.EncodeToString
	token := enc([]byte(`{"typ":"JWT","alg":"ES256"}`)) + "." + enc(claims)
	sum := sha256.Sum256([]byte(token))
	r, v, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		return "", err
	}
	public, err := key.PublicKey.Bytes()
	if err != nil {
		return "", err
	}
	sig := make([]byte, 64)
	r.FillBytes(sig[:32])
	v.FillBytes(sig[32:])
	return "vapid t=" + token + "." + enc(sig) + ", k=" + enc(public), nil
}
