package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/parley-go/parley/hub"
	"golang.org/x/time/rate"
)

// secure is the path of every request over TCP: no step is skipped for any URL path.
func (s *Server) secure(next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	for _, o := range s.cfg.Origins {
		crossOrigin.AddTrustedOrigin(o) // checked by New
	}
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, r, http.StatusForbidden, "origin", "the request comes from a page of another origin")
	}))
	protected := crossOrigin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		switch {
		case !s.hostAllowed(r):
			s.refuse(w, r, http.StatusMisdirectedRequest, "host", "this server has another name; --host adds one")
		case !s.originAllowed(r):
			s.refuse(w, r, http.StatusForbidden, "origin", "the request comes from a page of another origin")
		case peerError(r) != nil:
			s.refuse(w, r, http.StatusForbidden, "peer", peerError(r).Error())
		default:
			if s.allowCORS(w, r) {
				return
			}
			protected.ServeHTTP(w, r)
		}
	})
}

// setHeaders sets the headers of every response.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// hostAllowed reports whether the Host of a request is a name of this server. A page whose
// name was made to resolve to this server (DNS rebinding) has another one.
func (s *Server) hostAllowed(r *http.Request) bool {
	if u := r.URL; u.Scheme != "" && (u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return false // a proxy would not read such a request as we do
	}
	name, port := r.Host, ""
	if h, p, err := net.SplitHostPort(r.Host); err == nil {
		name, port = h, p
	} else {
		name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	}
	if _, err := strconv.ParseUint(port, 10, 16); name == "" || port != "" && err != nil {
		return false
	}
	name = strings.ToLower(name)
	if slices.Contains(s.cfg.Hosts, name) {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return false
	}
	if name == "localhost" {
		return local.IP.IsLoopback()
	}
	// Nobody else can make an IP address in the Host resolve to this server.
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Zone() == "" && ip.Unmap() == local.AddrPort().Addr().Unmap().WithZone("")
}

// originAllowed reports whether a request comes from a page of this server, from one of
// the configured origins, or from no page at all.
func (s *Server) originAllowed(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		// Requests without Origin that a browser marks as made by another site's page:
		// only a link to the console itself is allowed.
		site := r.Header.Get("Sec-Fetch-Site")
		return site == "" || site == "same-origin" || site == "none" ||
			r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && !isAPI(r.URL.Path)
	}
	origin := origins[0]
	if len(origins) != 1 || origin == "" { // checks behind this one read only the first
		return false
	}
	if slices.Contains(s.cfg.Origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) || u.Path != "" || u.User != nil {
		return false
	}
	if s.cfg.BehindProxy {
		return u.Scheme == "https" || u.Scheme == "http"
	}
	return u.Scheme == map[bool]string{true: "https", false: "http"}[r.TLS != nil]
}

// isAPI reports whether a path belongs to the API, not to the console.
func isAPI(path string) bool {
	return strings.HasPrefix(path, "/v1/") || path == "/v1" || path == "/acp" || path == "/openapi.json" || path == "/metrics"
}

// allowCORS lets pages of configured origins read responses. They use a token, not the
// cookie. It reports whether the request was a preflight request, which it has answered.
func (s *Server) allowCORS(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || !slices.Contains(s.cfg.Origins, origin) {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	h.Add("Vary", "Origin")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, PATCH, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-ID, Acp-Connection-Id, Acp-Session-Id, Cache-Control, Anthropic-Version, Anthropic-Beta, X-Organization-Uuid")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// peerKey is the context key of the check of the process at the other end.
type peerKey struct{}

// peerError returns why the process at the other end may not use the server, or nil.
func peerError(r *http.Request) error {
	check, ok := r.Context().Value(peerKey{}).(func() error)
	if !ok {
		return nil
	}
	return check()
}

// address returns the origin of a request: the address of a machine, or the part of an
// IPv6 network that one usually has.
func (s *Server) address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "socket"
	}
	if s.cfg.BehindProxy { // the last one is what the proxy itself saw
		if list := r.Header.Values("X-Forwarded-For"); len(list) > 0 {
			parts := strings.Split(list[len(list)-1], ",")
			if last := strings.TrimSpace(parts[len(parts)-1]); last != "" {
				host = last
			}
		}
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return "unknown"
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() && !ip.IsLoopback() {
		p, _ := ip.Prefix(64)
		return p.String()
	}
	return ip.String()
}

// failures limits failed attempts per address.
type failures struct {
	mu  sync.Mutex
	all map[string]*rate.Limiter
}

const (
	failureBurst = 10   // failed attempts without delay
	failureRate  = 0.1  // per second after that
	maxAddresses = 4096 // that are tracked
)

func (f *failures) of(from string) *rate.Limiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.all[from]
	if l == nil {
		if len(f.all) >= maxAddresses {
			for name, old := range f.all {
				if old.Tokens() >= failureBurst {
					delete(f.all, name)
				}
			}
			if len(f.all) >= maxAddresses {
				from = "others" // they share one limit
				if l := f.all[from]; l != nil {
					return l
				}
			}
		}
		l = rate.NewLimiter(failureRate, failureBurst)
		f.all[from] = l
	}
	return l
}

// strangers counts the WebSockets that have not sent a token yet, per address.
type strangers struct {
	mu  sync.Mutex
	all map[string]int
}

const maxStrangers = 20 // per address

// enter counts a WebSocket until leave is called. leave may be called more than once.
func (x *strangers) enter(from string) (leave func(), err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.all[from] >= maxStrangers {
		return func() {}, errTooMany
	}
	if x.all == nil {
		x.all = map[string]int{}
	}
	x.all[from]++
	return sync.OnceFunc(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.all[from]--; x.all[from] == 0 {
			delete(x.all, from)
		}
	}), nil
}

// The errors of authentication.
var (
	errNoToken     = errors.New("a token is required: Authorization: Bearer TOKEN")
	errWrongToken  = errors.New("the token is not valid")
	errTooMany     = errors.New("too many failed attempts; try again in a minute")
	errScope       = errors.New("the token does not have the scope")
	errUnknownPath = errors.New("unknown path")
)

// authenticate returns the credential of a secret. Failed attempts are limited by address.
// A token that was used from that address before is not locked out by the failures of
// others.
func (s *Server) authenticate(secret, from string) (*credential, error) {
	limit := s.failures.of(from)
	c := s.tokens.find(secret)
	if limit.Tokens() < 1 && (c == nil || !s.tokens.usedFrom(c, from)) {
		return nil, errTooMany
	}
	if c == nil {
		limit.Allow()
		return nil, errWrongToken
	}
	s.tokens.used(c, from)
	return c, nil
}

// secretOf returns the token of a request, from the header or the cookie. Tokens are never
// in the query, where logs and histories would keep them.
func (s *Server) secretOf(r *http.Request) string {
	if h := r.Header.Values("Authorization"); len(h) > 0 {
		kind, secret, _ := strings.Cut(h[0], " ")
		if strings.EqualFold(kind, "Bearer") && len(h) == 1 {
			return strings.TrimSpace(secret)
		}
		return "-" // another kind of credential, or several: invalid
	}
	// Pages of other, allowed origins use their own token.
	if origin := r.Header.Get("Origin"); origin != "" && slices.Contains(s.cfg.Origins, origin) {
		return ""
	}
	switch c := r.CookiesNamed(s.cookieName()); len(c) {
	case 0:
		return ""
	case 1:
		return c[0].Value
	}
	return "-" // one of them was set by another page
}

// cookieName returns the name of the cookie. The prefix __Host- makes browsers restrict it
// to https and to this host.
func (s *Server) cookieName() string {
	if s.cfg.TLS || s.cfg.BehindProxy {
		return "__Host-parley"
	}
	return "parley"
}

// cookie returns the cookie for a secret; an empty secret removes the cookie.
func (s *Server) cookie(secret string) *http.Cookie {
	c := &http.Cookie{Name: s.cookieName(), Value: secret, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: s.cfg.TLS || s.cfg.BehindProxy}
	if c.MaxAge = 180 * 24 * 60 * 60; secret == "" {
		c.MaxAge = -1
	}
	return c
}

// An identity is the sender of a request.
type identity struct {
	hub.Actor
	scope Scope
	token string          // the id of the token, empty on the socket
	ctx   context.Context // ends when the token is revoked
}

// localKey marks requests over the unix socket, whose peer was checked.
type localKey struct{}

// identify returns the sender of a request.
func (s *Server) identify(r *http.Request) (*identity, error) {
	if r.Context().Value(localKey{}) != nil {
		name := r.Header.Get("Parley-Name")
		if name == "" {
			name = "user"
		}
		return &identity{hub.Actor{Name: name, From: "socket", Rights: hub.Everything}, ScopeAdmin, "", context.Background()}, nil
	}
	secret := s.secretOf(r)
	if secret == "" {
		return nil, errNoToken
	}
	from := s.address(r)
	c, err := s.authenticate(secret, from)
	if err != nil {
		return nil, err
	}
	return c.identity(from), nil
}

// identity returns the user of a credential.
func (c *credential) identity(from string) *identity {
	return &identity{hub.Actor{Name: c.Name, From: from, Rights: c.Scope.rights()}, c.Scope, c.ID, c.ctx}
}

// require returns an error unless the identity has a scope.
func (id *identity) require(need Scope) error {
	if id.scope.allows(need) {
		return nil
	}
	return fmt.Errorf("%w %s: it has %s", errScope, need, id.scope)
}
