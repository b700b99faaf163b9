package mcp

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"github.com/parley-go/parley/wire"
	"golang.org/x/oauth2"
)

// A login is a login to a server on the network, with OAuth 2.1 and PKCE: the server names
// the authorization server, the user approves on a page there, and the page redirects back
// with a code that is exchanged for a token. Tokens are stored by [Options].Logins, or in
// memory for the duration of the conversation. They are sent only to the server that they are
// for.
type login struct {
	mu      sync.Mutex
	looked  bool // the stored logins were searched
	kept    bool
	conf    *oauth2.Config
	token   *oauth2.Token // nil if not logged in
	revoke  string        // URL for revoking tokens, if any
	client  *http.Client
	attempt *attempt // waits for the user
}

// An attempt is a login that the user has not completed yet.
type attempt struct {
	conf     *oauth2.Config
	client   *http.Client
	register string // URL for registering clients, if any
	revoke   string
	resource string
	issuer   string // issuer that the response must have, if it names one
	named    bool   // the response must name the issuer
	state    string
	verifier string
	stop     context.CancelFunc
}

// attemptTime is how long a user has to log in.
const attemptTime = 10 * time.Minute

// online returns a server on the network.
func (m *Manager) online(name string) (*server, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.find(name)
	switch {
	case err != nil:
		return nil, err
	case m.closed:
		return nil, errClosed
	case s.kind() != "http" && s.kind() != "sse" && s.kind() != "ws":
		return nil, fmt.Errorf("A server of the type %s has no login: only servers of the types http and sse do", s.kind())
	}
	return s, nil
}

// Login starts a login to a server: it discovers the authorization server, and returns the
// page that the user has to open. That page redirects the user to a listener on this machine;
// a host whose user is elsewhere passes the address to [Manager.FinishLogin].
func (m *Manager) Login(ctx context.Context, name string) (*wire.MCPAuthenticateResponse, error) {
	s, err := m.online(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	a, err := s.authority(ctx)
	if err != nil {
		return nil, fmt.Errorf("The login to the MCP server %s cannot start: %w", name, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("The login to the MCP server %s cannot start: no local port can be opened: %w", name, err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	a.conf.RedirectURL = fmt.Sprintf("http://localhost:%d/callback", port)
	if err := s.identify(ctx, a); err != nil {
		listener.Close()
		return nil, fmt.Errorf("The login to the MCP server %s cannot start: %w", name, err)
	}
	a.state, a.verifier = rand.Text(), oauth2.GenerateVerifier()
	m.mu.Lock()
	closed := m.closed
	if !closed {
		a.stop = s.listen(listener)
	}
	m.mu.Unlock()
	if closed {
		listener.Close()
		return nil, errClosed
	}
	s.login.mu.Lock()
	if old := s.login.attempt; old != nil {
		old.stop()
	}
	s.login.attempt = a
	s.login.mu.Unlock()
	return &wire.MCPAuthenticateResponse{
		AuthURL: a.conf.AuthCodeURL(a.state, oauth2.S256ChallengeOption(a.verifier), oauth2.SetAuthURLParam("resource", a.resource)),
		State:   a.state, CallbackPort: port, RequiresUserAction: true, CallbackExpected: true, RedirectScheme: "localhost",
	}, nil
}

// FinishLogin completes a login with the address that the user was redirected to, and
// reconnects the server with the new token.
func (m *Manager) FinishLogin(ctx context.Context, name, callback string) error {
	s, err := m.online(name)
	if err != nil {
		return err
	}
	u, err := url.Parse(callback)
	if err != nil {
		return errors.New("This is not the address of a login.")
	}
	if err := s.finish(ctx, u.Query()); err != nil {
		return err
	}
	return m.Reconnect(name)(ctx)
}

// Logout removes a login, and revokes its tokens if possible.
func (m *Manager) Logout(ctx context.Context, name string) error {
	s, err := m.online(name)
	if err != nil {
		return err
	}
	l := &s.login
	l.mu.Lock()
	s.lookLogin()
	conf, token, revoke, client := l.conf, l.token, l.revoke, l.client
	s.forgetLogin(ctx)
	if l.attempt != nil {
		l.attempt.stop()
		l.attempt = nil
	}
	l.mu.Unlock()
	if token == nil {
		return nil
	}
	if err := giveBack(ctx, client, revoke, conf.ClientID, token); err != nil {
		s.m.log.Warn("a token of an MCP server could not be given back", "server", s.name, "error", err)
	}
	m.Reconnect(name)(ctx) // which reports that a login is needed
	return nil
}

// giveBack revokes tokens.
func giveBack(ctx context.Context, client *http.Client, to, id string, t *oauth2.Token) (err error) {
	for hint, value := range map[string]string{"refresh_token": t.RefreshToken, "access_token": t.AccessToken} {
		if to != "" && value != "" {
			err = errors.Join(err, post(ctx, client, to, url.Values{"token": {value}, "token_type_hint": {hint}, "client_id": {id}}))
		}
	}
	return err
}

func post(ctx context.Context, client *http.Client, to string, form url.Values) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
	if resp.StatusCode >= 300 {
		return errors.New(resp.Status)
	}
	return nil
}

// authority discovers the authorization server of the server.
func (s *server) authority(ctx context.Context) (*attempt, error) {
	here, err := url.Parse(s.cfg.URL)
	if err != nil {
		return nil, err
	}
	origin := here.Scheme + "://" + here.Host
	a := &attempt{resource: s.cfg.URL, issuer: origin, conf: &oauth2.Config{}, client: authClient(s.m.opts.Env, here)}
	s.m.mu.Lock()
	challenge := s.challenge
	s.m.mu.Unlock()

	// The server's own metadata. A server without any is its own authorization server.
	const known = "/.well-known/oauth-protected-resource"
	places := []struct{ metadata, resource string }{{origin + known + here.EscapedPath(), s.cfg.URL}, {origin + known, origin}, {origin + known, s.cfg.URL}}
	if list, err := oauthex.ParseWWWAuthenticate(challenge); err == nil {
		for _, c := range list {
			if at := c.Params["resource_metadata"]; at != "" {
				places = append([]struct{ metadata, resource string }{{at, s.cfg.URL}, {at, origin}}, places...)
			}
			if scope := c.Params["scope"]; scope != "" {
				a.conf.Scopes = strings.Fields(scope)
			}
		}
	}
	for _, p := range places {
		about, err := oauthex.GetProtectedResourceMetadata(ctx, p.metadata, p.resource, a.client)
		if err != nil {
			s.m.log.Debug("an MCP server does not say there who lets users in", "server", s.name, "error", err)
			continue
		}
		if len(about.AuthorizationServers) == 0 {
			continue
		}
		a.issuer, a.resource = about.AuthorizationServers[0], about.Resource
		if a.conf.Scopes == nil {
			a.conf.Scopes = about.ScopesSupported
		}
		break
	}

	issuer, err := url.Parse(a.issuer)
	if err != nil {
		return nil, err
	}
	base, path := issuer.Scheme+"://"+issuer.Host, strings.TrimSuffix(issuer.EscapedPath(), "/")
	ways := []string{base + "/.well-known/oauth-authorization-server" + path, base + "/.well-known/openid-configuration" + path}
	if path != "" {
		ways = append(ways, base+path+"/.well-known/openid-configuration")
	}
	var why error
	for _, at := range ways {
		about, err := oauthex.GetAuthServerMeta(ctx, at, a.issuer, a.client)
		if err != nil {
			why = err
		}
		if about == nil {
			continue
		}
		if about.AuthorizationEndpoint == "" || about.TokenEndpoint == "" {
			return nil, fmt.Errorf("%s does not name the page where users log in", a.issuer)
		}
		a.conf.Endpoint = oauth2.Endpoint{AuthURL: about.AuthorizationEndpoint, TokenURL: about.TokenEndpoint, AuthStyle: oauth2.AuthStyleInParams}
		a.register, a.revoke, a.named = about.RegistrationEndpoint, about.RevocationEndpoint, about.AuthorizationResponseIssParameterSupported
		return a, nil
	}
	if why != nil {
		return nil, why
	}
	return nil, fmt.Errorf("%s does not describe its login. If you have a token, set it as a header in the server's configuration", a.issuer)
}

// A client is our client at the authorization server.
type client struct {
	ClientID     string `json:"clientId"`
	ClientSecret string `json:"clientSecret"`
}

// clientGiven returns the client in the configuration.
func (s *server) clientGiven() (c client) {
	json.Unmarshal(s.cfg.Extra["oauth"], &c)
	return c
}

// identify sets the id of the client: that of the configuration, or a newly registered one.
func (s *server) identify(ctx context.Context, a *attempt) error {
	given := s.clientGiven()
	if a.conf.ClientID, a.conf.ClientSecret = given.ClientID, given.ClientSecret; given.ClientID != "" {
		return nil
	}
	if a.register == "" {
		return fmt.Errorf("%s registers no clients. Put the id of yours into the server's configuration, as oauth.clientId", a.issuer)
	}
	r, err := oauthex.RegisterClient(ctx, a.register, &oauthex.ClientRegistrationMetadata{
		ClientName: "Parley (" + clip(s.name, 100) + ")", RedirectURIs: []string{a.conf.RedirectURL}, ApplicationType: "native",
		GrantTypes: []string{"authorization_code", "refresh_token"}, ResponseTypes: []string{"code"}, TokenEndpointAuthMethod: "none", Scope: strings.Join(a.conf.Scopes, " "),
	}, a.client)
	if err != nil {
		return err
	}
	a.conf.ClientID, a.conf.ClientSecret = r.ClientID, r.ClientSecret
	return nil
}

// listen waits for the redirect of the login page, until stop is called. The caller holds the
// manager's mu.
func (s *server) listen(listener net.Listener) (stop context.CancelFunc) {
	ctx, stop := context.WithTimeout(s.m.ctx, attemptTime)
	web := &http.Server{ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if r.URL.Path != "/callback" || r.Method != http.MethodGet {
			http.NotFound(w, r)
			return
		}
		if err := s.finish(r.Context(), r.URL.Query()); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintln(w, "The login failed:", err)
			return
		}
		fmt.Fprintln(w, "You are logged in. This page can be closed.")
		s.m.mu.Lock()
		if found, err := s.m.find(s.name); err == nil && found == s && !s.m.closed {
			s.m.stop(s, wire.MCPPending, "")
			s.m.start(s)
		}
		s.m.mu.Unlock()
		s.m.notify()
	})}
	s.m.wg.Go(func() { web.Serve(listener) })
	s.m.wg.Go(func() {
		<-ctx.Done()
		rest, cancel := context.WithTimeout(context.Background(), time.Second) // for a response in progress
		defer cancel()
		if web.Shutdown(rest) != nil {
			web.Close()
		}
	})
	return stop
}

// finish completes the attempt with the parameters of the redirect.
func (s *server) finish(ctx context.Context, q url.Values) error {
	l := &s.login
	l.mu.Lock()
	a := l.attempt
	l.mu.Unlock()
	if a == nil {
		return fmt.Errorf("No login to the MCP server %s is in progress. Start one with mcp_authenticate.", s.name)
	}
	iss := q.Get("iss")
	switch {
	case subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(a.state)) != 1:
		return errors.New("The address belongs to another login, because its state differs. The login still waits for its own address.")
	case iss != "" && iss != a.issuer, iss == "" && a.named:
		return errors.New("The address does not come from the login server.")
	case q.Get("error") != "":
		return fmt.Errorf("The login was refused: %s %s", clip(line(q.Get("error")), 100), clip(line(q.Get("error_description")), 300))
	case q.Get("code") == "":
		return errors.New("The address contains no code.")
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, a.client), 30*time.Second)
	defer cancel()
	token, err := a.conf.Exchange(ctx, q.Get("code"), oauth2.VerifierOption(a.verifier), oauth2.SetAuthURLParam("resource", a.resource))
	if err != nil {
		return fmt.Errorf("The login server gave no token for the code: %w", refusal(err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.attempt != a {
		return errors.New("Another login was started meanwhile.")
	}
	a.stop()
	l.attempt, l.conf, l.token, l.revoke, l.client, l.looked = nil, a.conf, token, a.revoke, a.client, true
	s.keepLogin(ctx, nil)
	return nil
}

// refusal returns the error of a failed token request. It contains nothing that was sent.
func refusal(err error) error {
	var r *oauth2.RetrieveError
	if errors.As(err, &r) {
		return fmt.Errorf("%s %s %s", r.Response.Status, clip(line(r.ErrorCode), 100), clip(line(r.ErrorDescription), 300))
	}
	return err
}

// lookLogin searches the stored logins once. A configuration with its own token needs none.
// The caller holds the login's mu.
func (s *server) lookLogin() {
	l := &s.login
	if l.looked || s.m.opts.Logins == nil {
		return
	}
	l.looked = true
	for name := range s.cfg.Headers {
		if strings.EqualFold(name, "Authorization") {
			return
		}
	}
	k, err := s.m.opts.Logins.find(s.name, s.cfg.URL)
	if err != nil {
		s.m.log.Warn("a login to an MCP server cannot be read", "server", s.name, "error", err)
	}
	s.useLogin(k)
}

// useLogin uses a stored login. The caller holds the login's mu.
func (s *server) useLogin(k *KeptLogin) {
	l := &s.login
	here, err := url.Parse(s.cfg.URL)
	if k == nil || err != nil {
		return
	}
	if id := s.clientGiven().ClientID; id != "" && id != k.ClientID {
		return // it belongs to another client
	}
	l.conf, l.token, l.revoke, l.client, l.kept = k.config(), k.token(), k.RevokeURL, authClient(s.m.opts.Env, here), true
}

// keepLogin stores the login, in a file that is already open or is opened for it. A failure
// to store it is only logged. The caller holds the login's mu.
func (s *server) keepLogin(ctx context.Context, d *loginDir) {
	l := &s.login
	if s.m.opts.Logins == nil {
		return
	}
	var err error
	if d == nil {
		if d, err = s.m.opts.Logins.open(ctx); err == nil {
			defer d.close()
		}
	}
	if err == nil {
		_, err = d.replace(storedLogin(s.name, s.cfg.URL, l.conf, l.token, l.revoke), func(k *KeptLogin) bool { return k.of(s.name, s.cfg.URL) })
	}
	if l.kept = err == nil; err != nil {
		s.m.log.Warn("a login to an MCP server cannot be kept", "server", s.name, "error", err)
	}
}

// forgetLogin removes the login, also from the stored ones. The caller holds the login's mu.
func (s *server) forgetLogin(ctx context.Context) {
	l := &s.login
	l.token = nil
	if s.m.opts.Logins == nil {
		return
	}
	l.looked, l.kept = true, false
	if _, err := s.m.opts.Logins.Forget(ctx, func(k *KeptLogin) bool { return k.of(s.name, s.cfg.URL) }); err != nil {
		s.m.log.Warn("a login to an MCP server cannot be forgotten", "server", s.name, "error", err)
	}
}

// bearer returns the token to send, or "" if not logged in. It refreshes a token that has
// expired or was rejected.
func (s *server) bearer(ctx context.Context, refused string) string {
	l := &s.login
	l.mu.Lock()
	defer l.mu.Unlock()
	s.lookLogin()
	bad := func() bool {
		return l.token != nil && (l.token.AccessToken == refused || !l.token.Valid())
	}
	show := func() string {
		if l.token == nil {
			return ""
		}
		return l.token.AccessToken
	}
	if !bad() {
		return show()
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, l.client), 30*time.Second)
	defer cancel()
	// Another process may have refreshed it meanwhile, or have logged out. A refresh token
	// can be used only once, so one process at a time refreshes.
	var d *loginDir
	if l.kept {
		var err error
		if d, err = s.m.opts.Logins.open(ctx); err != nil {
			s.m.log.Warn("a login to an MCP server cannot be replaced for others", "server", s.name, "error", err)
		} else {
			defer d.close()
			k, err := d.find(s.name, s.cfg.URL)
			if k == nil && err == nil {
				l.token, l.kept = nil, false
			}
			s.useLogin(k)
		}
	}
	if !bad() || l.token.RefreshToken == "" {
		return show()
	}
	old := *l.token
	old.Expiry = time.Unix(1, 0)
	token, err := l.conf.TokenSource(ctx, &old).Token()
	if err != nil {
		s.m.log.Warn("the token of an MCP server cannot be replaced", "server", s.name, "error", refusal(err))
		return show()
	}
	l.token = token
	if d != nil {
		s.keepLogin(ctx, d)
	}
	return show()
}

// authClient returns the client for the authorization server that a server names. A server on
// the network cannot direct it to this machine, nor to an address without TLS; no secret
// follows a redirect.
func authClient(env []string, here *url.URL) *http.Client {
	base := &http.Transport{
		Proxy:               func(r *http.Request) (*url.URL, error) { return proxyFor(r.URL, env) },
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 1 << 20, DisableKeepAlives: true,
	}
	return &http.Client{
		Timeout: 30 * time.Second,
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if !loopback(here.Hostname()) && (r.URL.Scheme != "https" || loopback(r.URL.Hostname())) {
				return nil, fmt.Errorf("the server sends logins to %s, which is not an https address on the network", r.URL.Host)
			}
			resp, err := base.RoundTrip(r)
			if err == nil {
				resp.Body = &boundedBody{ReadCloser: resp.Body, left: 1 << 20, cancel: func() {}}
			}
			return resp, err
		}),
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > 5 || via[0].Method != http.MethodGet {
				return errors.New("redirections are not followed here")
			}
			return nil
		},
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// loopback reports whether a host name is that of this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip.IsLoopback() || ip.IsUnspecified()
}
