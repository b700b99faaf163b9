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
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/model/internal/call"
)

// scope is the scope of tokens.
const scope = "https://www.googleapis.com/auth/cloud-platform"

// tokenURL is the default address for requesting tokens.
const tokenURL = "https://oauth2.googleapis.com/token"

// early is how long before its expiry a token is no longer used.
const early = time.Minute

type source = func(context.Context) (token string, till time.Time, err error)

// exchange returns the source of tokens for the content of a credentials file.
func exchange(c *http.Client, credentials []byte) (source, error) {
	var f struct {
		Type         string `json:"type"`
		ClientEmail  string `json:"client_email"`
		PrivateKey   string `json:"private_key"`
		PrivateKeyID string `json:"private_key_id"`
		TokenURI     string `json:"token_uri"`
		ClientID     string `json:"client_id"`
		ClientSecret string `json:"client_secret"`
		RefreshToken string `json:"refresh_token"`
	}
	if err := json.Unmarshal(credentials, &f); err != nil {
		return nil, errors.New("the credentials are not JSON") // the error must not contain any part of them
	}
	if f.TokenURI == "" {
		f.TokenURI = tokenURL
	}
	if u, err := url.Parse(f.TokenURI); err != nil || u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())) {
		return nil, errors.New("the token_uri of the credentials is not an https address")
	}
	switch f.Type {
	case "service_account":
		key, err := privateKey(f.PrivateKey)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (string, time.Time, error) {
			assertion, err := sign(key, f.PrivateKeyID, f.ClientEmail, f.TokenURI, time.Now())
			if err != nil {
				return "", time.Time{}, err
			}
			return post(ctx, c, f.TokenURI, url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion}})
		}, nil
	case "authorized_user":
		if f.RefreshToken == "" || f.ClientID == "" {
			return nil, errors.New("the credentials have no refresh_token or client_id")
		}
		return func(ctx context.Context) (string, time.Time, error) {
			return post(ctx, c, f.TokenURI, url.Values{
				"grant_type": {"refresh_token"}, "client_id": {f.ClientID}, "client_secret": {f.ClientSecret}, "refresh_token": {f.RefreshToken},
			})
		}, nil
	}
	return nil, fmt.Errorf("credentials of type %q are not known, only service_account and authorized_user", f.Type)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// privateKey parses the key of a service account.
func privateKey(text string) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("the private_key of the credentials is not PEM")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if key, ok := any.(*rsa.PrivateKey); ok && err == nil {
		return key, nil
	}
	return nil, errors.New("the private_key of the credentials is not an RSA key")
}

// sign returns a signed assertion of the identity, as a JSON web token.
func sign(key *rsa.PrivateKey, id, email, audience string, now time.Time) (string, error) {
	head, err := json.Marshal(map[string]string{"alg": "RS256", "typ": "JWT", "kid": id})
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(map[string]any{
		"iss": email, "scope": scope, "aud": audience, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	})
	if err != nil {
		return "", err
	}
	enc := base64.RawURLEncoding
	text := enc.EncodeToString(head) + "." + enc.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", err
	}
	return text + "." + enc.EncodeToString(sig), nil
}

// post requests a token with a form.
func post(ctx context.Context, c *http.Client, to string, form url.Values) (string, time.Time, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return "", time.Time{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return token(ctx, c, req)
}

// metadata returns a source of the machine's tokens.
func metadata(c *http.Client, base string) source {
	return func(ctx context.Context) (string, time.Time, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/computeMetadata/v1/instance/service-accounts/default/token?scopes="+url.QueryEscape(scope), nil)
		if err != nil {
			return "", time.Time{}, err
		}
		req.Header.Set("Metadata-Flavor", "Google")
		return token(ctx, c, req)
	}
}

// token sends a request for a token.
func token(ctx context.Context, c *http.Client, req *http.Request) (string, time.Time, error) {
	now := time.Now()
	resp, err := call.Do(ctx, c, req, 30*time.Second)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("no token: %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", time.Time{}, fmt.Errorf("no token: %w", err)
	}
	var answer struct {
		AccessToken string  `json:"access_token"`
		ExpiresIn   float64 `json:"expires_in"`
		Error       string  `json:"error"`
		Description string  `json:"error_description"`
	}
	if json.Unmarshal(data, &answer) != nil || resp.StatusCode != http.StatusOK || answer.AccessToken == "" {
		return "", time.Time{}, fmt.Errorf("no token: %s answered %d %s", req.URL.Host, resp.StatusCode, strings.TrimSpace(answer.Error+" "+answer.Description))
	}
	if strings.ContainsAny(answer.AccessToken, "\r\n\x00") {
		return "", time.Time{}, errors.New("no token: what was given as one is none")
	}
	good := time.Duration(min(max(answer.ExpiresIn, 0), 24*3600)) * time.Second
	// The metadata server returns the same token until shortly before its expiry.
	return answer.AccessToken, now.Add(max(good-early, 10*time.Second)), nil
}
