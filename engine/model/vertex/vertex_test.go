package vertex

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ask = `{"model":"claude-x@20250101","max_tokens":9,"messages":[ ]}`

func all(s func(func(model.Event, error) bool)) (events []string, err error) {
	s(func(ev model.Event, e error) bool {
		if e != nil {
			err = e
		} else {
			events = append(events, string(ev.Data))
		}
		return true
	})
	return events, err
}

// google is a server for tokens and models.
type google struct {
	*httptest.Server
	t      *testing.T
	key    *rsa.PrivateKey
	tokens int
	good   string // the accepted token; if empty, the last one
	sent   []string
}

func newGoogle(t *testing.T) *google {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	g := &google{t: t, key: key}
	g.Server = httptest.NewServer(g)
	t.Cleanup(g.Close)
	return g
}

func (g *google) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	give := func() {
		g.tokens++
		fmt.Fprintf(w, `{"access_token":"tok-%d","expires_in":3599,"token_type":"Bearer"}`, g.tokens)
	}
	switch {
	case r.URL.Path == "/token":
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if err := r.ParseForm(); err != nil {
			g.t.Error(err)
		}
		switch r.Form.Get("grant_type") {
		case "refresh_token":
			if r.Form.Get("refresh_token") != "r" || r.Form.Get("client_id") != "id" || r.Form.Get("client_secret") != "s" {
				w.WriteHeader(400)
				io.WriteString(w, `{"error":"invalid_grant","error_description":"Token has been revoked."}`)
				return
			}
		default:
			g.check(r.Form.Get("assertion"))
		}
		give()
	case strings.HasPrefix(r.URL.Path, "/computeMetadata/v1/instance/service-accounts/default/token"):
		if r.Header.Get("Metadata-Flavor") != "Google" {
			w.WriteHeader(403)
			return
		}
		give()
	default:
		want := g.good
		if want == "" {
			want = fmt.Sprintf("tok-%d", g.tokens)
		}
		if r.Header.Get("Authorization") != "Bearer "+want {
			w.WriteHeader(401)
			io.WriteString(w, `[{"error":{"code":401,"message":"expired","status":"UNAUTHENTICATED"}}]`)
			return
		}
		g.sent = append(g.sent, r.URL.EscapedPath()+" "+string(body))
		switch {
		case strings.Contains(r.URL.Path, "count-tokens"):
			io.WriteString(w, `{"input_tokens":7}`)
		case strings.HasSuffix(r.URL.Path, ":rawPredict"):
			io.WriteString(w, `{"id":"m","type":"message","role":"assistant","content":[],"stop_reason":"end_turn","usage":{}}`)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
		}
	}
}

// check checks an assertion of the identity.
func (g *google) check(assertion string) {
	parts := strings.Split(assertion, ".")
	if len(parts) != 3 {
		g.t.Errorf("assertion %q", assertion)
		return
	}
	sig, _ := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(&g.key.PublicKey, crypto.SHA256, sum[:], sig); err != nil {
		g.t.Error(err)
	}
	raw, _ := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Iss, Scope, Aud string
		Iat, Exp        int64
	}
	if err := json.Unmarshal(raw, &claims); err != nil || claims.Iss != "me@p" || claims.Aud != g.URL+"/token" || claims.Scope != scope || claims.Exp-claims.Iat != 3600 {
		g.t.Errorf("claims %s %v", raw, err)
	}
	if raw, _ = base64.RawURLEncoding.DecodeString(parts[0]); string(raw) != `{"alg":"RS256","kid":"k1","typ":"JWT"}` {
		g.t.Errorf("head %s", raw)
	}
}

// account returns the key of a service account, in one of the two formats.
func (g *google) account(pkcs8 bool) []byte {
	b := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(g.key)}
	if pkcs8 {
		der, err := x509.MarshalPKCS8PrivateKey(g.key)
		if err != nil {
			g.t.Fatal(err)
		}
		b = &pem.Block{Type: "PRIVATE KEY", Bytes: der}
	}
	data, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "me@p", "private_key_id": "k1", "private_key": string(pem.EncodeToMemory(b)), "token_uri": g.URL + "/token",
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return data
}

func (g *google) client(cfg Config) *Client {
	g.t.Helper()
	cfg.Project, cfg.Region, cfg.BaseURL, cfg.MetadataURL = "p", "us-east5", g.URL+"/v1", g.URL
	c, err := New(cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	return c
}

func TestCredentials(t *testing.T) {
	g := newGoogle(t)
	for name, cfg := range map[string]Config{
		"service account": {CredentialsJSON: g.account(true)},
		"older key":       {CredentialsJSON: g.account(false)},
		"user":            {CredentialsJSON: []byte(`{"type":"authorized_user","client_id":"id","client_secret":"s","refresh_token":"r","token_uri":"` + g.URL + `/token"}`)},
		"metadata":        {Metadata: true},
	} {
		t.Run(name, func(t *testing.T) {
			g.t, g.good = t, ""
			before := g.tokens
			c := g.client(cfg)
			for range 3 {
				if events, err := all(c.Stream(t.Context(), model.Request{Body: []byte(ask)})); err != nil || len(events) != 1 {
					t.Errorf("%q %v", events, err)
				}
			}
			if n := g.tokens - before; n != 1 {
				t.Errorf("%d tokens for three requests", n)
			}
			// A rejected token is renewed, once.
			g.good = fmt.Sprintf("tok-%d", g.tokens+1)
			if _, err := all(c.Stream(t.Context(), model.Request{Body: []byte(ask)})); err != nil {
				t.Error(err)
			}
			g.good = "none"
			before = g.tokens
			_, err := all(c.Stream(t.Context(), model.Request{Body: []byte(ask)}))
			if e, ok := errors.AsType[*model.Error](err); !ok || e.Status != 401 || e.Message != "expired" || g.tokens != before+1 {
				t.Errorf("error %v after %d tokens", err, g.tokens-before)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	g := newGoogle(t)
	c := g.client(Config{Token: func(context.Context) (string, time.Time, error) { return "tok-0", time.Now().Add(time.Hour), nil }})
	if _, err := all(c.Stream(t.Context(), model.Request{Body: []byte(ask)})); err != nil {
		t.Error(err)
	}
	if events, err := all(c.Complete(t.Context(), model.Request{Body: []byte(ask)})); err != nil || len(events) != 3 {
		t.Error(events, err)
	}
	if n, err := c.CountTokens(t.Context(), model.Request{Body: []byte(ask)}); n != 7 || err != nil {
		t.Error(n, err)
	}
	const models = "/v1/projects/p/locations/us-east5/publishers/anthropic/models/"
	want := []string{
		models + `claude-x@20250101:streamRawPredict {"max_tokens":9,"messages":[ ],"stream":true,"anthropic_version":"vertex-2023-10-16"}`,
		models + `claude-x@20250101:rawPredict {"max_tokens":9,"messages":[ ],"anthropic_version":"vertex-2023-10-16"}`,
		models + `count-tokens:rawPredict {"model":"claude-x@20250101","messages":[ ],"anthropic_version":"vertex-2023-10-16"}`,
	}
	if fmt.Sprint(g.sent) != fmt.Sprint(want) {
		t.Errorf("sent\n%s\nwant\n%s", strings.Join(g.sent, "\n"), strings.Join(want, "\n"))
	}
}

func TestNoToken(t *testing.T) {
	g := newGoogle(t)
	c := g.client(Config{CredentialsJSON: []byte(`{"type":"authorized_user","client_id":"id","refresh_token":"gone","token_uri":"` + g.URL + `/token"}`)})
	_, err := all(c.Stream(t.Context(), model.Request{Body: []byte(ask)}))
	if err == nil || !strings.HasPrefix(err.Error(), "vertex: no token: 127.0.0.1:") || !strings.HasSuffix(err.Error(), " answered 400 invalid_grant Token has been revoked.") {
		t.Errorf("error %v", err)
	}
}

func TestConfig(t *testing.T) {
	const user = `{"type":"authorized_user","client_id":"id","client_secret":"s","refresh_token":"r"`
	for _, cfg := range []Config{
		{}, {Project: "p"}, {Project: "p", Region: "evil.example/"}, {Project: "p/x", Region: "global", Metadata: true}, {Project: "p", Region: "global"},
		{Project: "p", Region: "global", CredentialsJSON: []byte(`{`)},
		{Project: "p", Region: "global", CredentialsJSON: []byte(`{"type":"external_account"}`)},
		{Project: "p", Region: "global", CredentialsJSON: []byte(`{"type":"service_account","private_key":"x"}`)},
		{Project: "p", Region: "global", CredentialsJSON: []byte(user + `,"token_uri":"http://evil.example/"}`)},
	} {
		if _, err := New(cfg); err == nil || !strings.HasPrefix(err.Error(), "vertex: ") {
			t.Errorf("%+v: error %v", cfg, err)
		}
	}
	for region, want := range map[string]string{
		"us-east5": "https://us-east5-aiplatform.googleapis.com", "global": "https://aiplatform.googleapis.com", "eu": "https://aiplatform.eu.rep.googleapis.com",
	} {
		if c, err := New(Config{Project: "p", Region: region, CredentialsJSON: []byte(user + "}")}); err != nil || c.base != want+"/v1" {
			t.Errorf("%s: %v", region, err)
		}
	}
}
