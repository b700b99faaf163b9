package serve

import (
	"bytes"
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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/session"
)

var loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}

func raw(t *testing.T, text string) []byte {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestPushEncryption checks the encryption with the example in RFC 8291, section 5.
func TestPushEncryption(t *testing.T) {
	own, err := ecdh.P256().NewPrivateKey(raw(t, "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := sealPush([]byte("When I grow up, I want to be a watermelon"),
		raw(t, "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"), raw(t, "BTBZMqHH6r4Tts7J_aSIgg"), own, raw(t, "DGv6ra1nlYgDCS1FRnbzlw"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
	if text := base64.RawURLEncoding.EncodeToString(got); text != want {
		t.Errorf("%s, want\n%s", text, want)
	}
}

// A browser is a subscribed browser, with its push service.
type browser struct {
	key  *ecdh.PrivateKey
	auth []byte
}

func newBrowser() *browser {
	b := &browser{auth: make([]byte, 16)}
	b.key, _ = ecdh.P256().GenerateKey(rand.Reader)
	rand.Read(b.auth)
	return b
}

func (b *browser) subscription(endpoint string, events ...string) (s NewSubscription) {
	s.Endpoint, s.Events = endpoint, events
	s.Keys.P256dh, s.Keys.Auth = base64.RawURLEncoding.EncodeToString(b.key.PublicKey().Bytes()), base64.RawURLEncoding.EncodeToString(b.auth)
	return s
}

// open decrypts a message.
func (b *browser) open(body []byte) ([]byte, error) {
	if len(body) < 86 || body[20] != 65 {
		return nil, fmt.Errorf("a body of %d bytes", len(body))
	}
	salt, public, sealed := body[:16], body[21:86], body[86:]
	theirs, err := ecdh.P256().NewPublicKey(public)
	if err != nil {
		return nil, err
	}
	shared, err := b.key.ECDH(theirs)
	if err != nil {
		return nil, err
	}
	input, _ := hkdf.Key(sha256.New, shared, b.auth, "WebPush: info\x00"+string(b.key.PublicKey().Bytes())+string(public), 32)
	key, _ := hkdf.Key(sha256.New, input, salt, "Content-Encoding: aes128gcm\x00", 16)
	nonce, _ := hkdf.Key(sha256.New, input, salt, "Content-Encoding: nonce\x00", 12)
	block, _ := aes.NewCipher(key)
	gcm, _ := cipher.NewGCM(block)
	text, err := gcm.Open(nil, nonce, sealed, nil)
	return bytes.TrimSuffix(text, []byte{2}), err
}

// checkSender checks the signature of a push message, as a push service does.
func checkSender(header, audience, key string) error {
	token, ok := strings.CutPrefix(header, "vapid t=")
	token, k, ok2 := strings.Cut(token, ", k=")
	parts := strings.Split(token, ".")
	if !ok || !ok2 || len(parts) != 3 || k != key {
		return fmt.Errorf("Authorization %q", header)
	}
	public, _ := base64.RawURLEncoding.DecodeString(k)
	verify, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), public)
	if err != nil {
		return err
	}
	sig, _ := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if len(sig) != 64 || !ecdsa.Verify(verify, sum[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:])) {
		return errors.New("the signature is wrong")
	}
	var claims struct {
		Aud, Sub string
		Exp      int64
	}
	data, _ := base64.RawURLEncoding.DecodeString(parts[1])
	json.Unmarshal(data, &claims)
	if left := time.Until(time.Unix(claims.Exp, 0)); claims.Aud != audience || !strings.HasPrefix(claims.Sub, "https://") || left <= 0 || left > 24*time.Hour {
		return fmt.Errorf("claims %s", data)
	}
	return nil
}

// TestPush checks that subscribed browsers receive notices, encrypted and signed. The
// subscription survives a restart and ends with its token, and when the service ends it.
func TestPush(t *testing.T) {
	type post struct {
		path    string
		header  http.Header
		body    []byte
		service string
	}
	posts := make(chan post, 10)
	service := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if posts <- (post{r.URL.Path, r.Header, body, "https://" + r.Host}); r.URL.Path == "/gone" {
			w.WriteHeader(http.StatusGone)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer service.Close()
	dir := t.TempDir()
	start := func(client *http.Client) *Server {
		h, err := hub.New(hub.Config{Backend: new(hub.Memory), Agent: func(context.Context, hub.Start) (*parley.Options, error) { return nil, errors.New("none") }})
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{Hub: h, Dir: dir, PushClient: client})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close(); h.Close() })
		return s
	}
	s := start(service.Client())
	handler := s.Handler()
	do := func(secret, method, path string, in, out any) int {
		t.Helper()
		data, _ := json.Marshal(in)
		r := httptest.NewRequest(method, "http://127.0.0.1"+path, bytes.NewReader(data))
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, loopback))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if out != nil {
			json.Unmarshal(w.Body.Bytes(), out)
		}
		return w.Code
	}
	phone, phoneSecret, _ := s.AddToken("phone", ScopeView, time.Time{})
	_, otherSecret, _ := s.AddToken("other", ScopeView, time.Time{})
	var settings PushSettings
	if code := do(phoneSecret, "GET", "/v1/push", nil, &settings); code != 200 || len(raw(t, settings.Key)) != 65 {
		t.Fatalf("settings: %d %+v", code, settings)
	}
	if _, err := os.Stat(filepath.Join(dir, "push.json")); err == nil {
		t.Error("to read the settings has written a file")
	}
	a, b, gone := newBrowser(), newBrowser(), newBrowser()
	for _, bad := range []NewSubscription{
		a.subscription("http://" + service.Listener.Addr().String() + "/a"),
		a.subscription("https://user@" + service.Listener.Addr().String()),
		a.subscription("file:///etc/passwd"), a.subscription("https:///x"), a.subscription(service.URL, "everything"), {Endpoint: service.URL},
		a.subscription(service.URL + "/" + strings.Repeat("x", 2000)),
	} {
		if code := do(phoneSecret, "POST", "/v1/push", bad, nil); code != 400 {
			t.Errorf("%+v: %d", bad, code)
		}
	}
	var first, second Subscription
	do(phoneSecret, "POST", "/v1/push", a.subscription(service.URL+"/a"), nil)
	do(phoneSecret, "POST", "/v1/push", a.subscription(service.URL+"/a"), &first) // again: it stays one subscription
	do(otherSecret, "POST", "/v1/push", b.subscription(service.URL+"/b", "ask"), &second)
	do(phoneSecret, "POST", "/v1/push", gone.subscription(service.URL+"/gone"), nil)
	if do(phoneSecret, "GET", "/v1/push", nil, &settings); len(settings.Subscriptions) != 2 || settings.Subscriptions[0].ID != first.ID || settings.Subscriptions[0].Service != "127.0.0.1" {
		t.Errorf("subscriptions %+v", settings.Subscriptions)
	}
	if code := do(phoneSecret, "DELETE", "/v1/push/"+second.ID, nil, nil); code != 404 {
		t.Errorf("the subscription of another token was removed: %d", code)
	}

	id := session.NewID()
	s.send(hub.Info{ID: id, State: hub.State{Title: "Work\u202e"}}, Notice{Event: "ask", Text: "Bash rm -rf x"})
	got := map[string]post{}
	for range 3 {
		p := <-posts
		got[p.path] = p
	}
	s.pushes.work.Wait() // the one that is gone was removed
	for path, who := range map[string]*browser{"/a": a, "/b": b} {
		p := got[path]
		text, err := who.open(p.body)
		want := `{"body":"Bash rm -rf x","event":"ask","session":"` + id + `","title":"Work\\u{202e}"}`
		if err != nil || string(text) != want {
			t.Errorf("%s received %s, %v, want %s", path, text, err, want)
		}
		if err := checkSender(p.header.Get("Authorization"), p.service, settings.Key); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if p.header.Get("TTL") == "" || p.header.Get("Urgency") != "high" || p.header.Get("Content-Encoding") != "aes128gcm" || bytes.Contains(p.body, []byte("Bash")) {
			t.Errorf("%s: %v", path, p.header)
		}
		if _, err := newBrowser().open(p.body); err == nil {
			t.Error("another browser can read it")
		}
	}

	// After a restart the key and the subscriptions are there, except those of a revoked token.
	s.Close()
	s = start(service.Client())
	handler = s.Handler()
	var again PushSettings
	if do(phoneSecret, "GET", "/v1/push", nil, &again); again.Key != settings.Key || len(again.Subscriptions) != 1 {
		t.Errorf("after a restart: %+v", again)
	}
	s.send(hub.Info{ID: id}, Notice{Event: "done", Text: "The turn is over."})
	if p := <-posts; p.path != "/a" || p.header.Get("Urgency") != "normal" {
		t.Errorf("%s received a notice that only /a wants", p.path)
	}
	if err := s.tokens.remove(phone.ID, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	s.send(hub.Info{ID: id}, Notice{Event: "ask", Text: "x"})
	if p := <-posts; p.path != "/b" {
		t.Errorf("%s received something after its token was revoked", p.path)
	}
	if code := do(otherSecret, "DELETE", "/v1/push/"+second.ID, nil, nil); code != 200 {
		t.Errorf("unsubscribe: %d", code)
	}
	s.send(hub.Info{ID: id}, Notice{Event: "ask", Text: "x"})

	// Without a client of the caller, addresses of this machine and its network are not dialed.
	s.Close()
	s = start(nil)
	for _, endpoint := range []string{service.URL + "/a", "https://169.254.169.254/latest", "https://10.0.0.1/", "https://[::1]/", "https://localhost/"} {
		key := s.pushes.key
		if _, err := s.pushOne(t.Context(), key, &subscriber{Endpoint: endpoint, Key: a.key.PublicKey().Bytes(), Auth: a.auth}, false, nil); err == nil || !strings.Contains(err.Error(), "prohibited") && !strings.Contains(err.Error(), "not permitted") {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	select {
	case p := <-posts:
		t.Errorf("%s received something", p.path)
	default:
	}
}
