package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/socket"
	"github.com/parley-go/parley/internal/gate"
	"github.com/parley-go/parley/session"
	"go.opentelemetry.io/otel/metric"
	"golang.org/x/time/rate"
)

// A Config configures a server.
type Config struct {
	// Hub has the sessions. It is required.
	Hub *hub.Hub
	// Dir is the directory for tokens and the audit log, accessible only to this user. Empty means
	// that they are kept in memory only.
	Dir string
	// Tokens stores the tokens instead of a file in Dir, so that several servers share them. It may be
	// nil.
	Tokens TokenStore
	// Hosts are names of the server, in addition to its addresses and localhost.
	Hosts []string
	// Origins are the origins of other pages that may use the API with their own token, such as
	// "https://example.com". By default there are none.
	Origins []string
	// TLS means that connections are encrypted. BehindProxy means that a proxy in front of the server
	// does that, and adds X-Forwarded-For.
	TLS, BehindProxy bool
	// Console is mounted at "/". Nil means a plain text page.
	Console http.Handler
	// Agent returns the value of [hub.Spec.Agent] for a new session. Nil means that sessions cannot
	// have their own settings.
	Agent func(AgentSettings) (json.RawMessage, error)
	// NoDirectory allows sessions without a directory, whose settings determine where they work, and directories that do not exist
	// here, because another machine runs the session.
	NoDirectory bool
	// Rules returns the permission rules of a directory and explains a call. It may be nil.
	Rules func(cwd string, q *RulesQuery) (Rules, error)
	// Sessions is where agents keep their records, for costs. Nil means that costs are unknown.
	Sessions session.Store
	// ACP serves the Agent Client Protocol to an editor that connects at /acp, like acp.Serve. Nil
	// means that there is no such path.
	ACP func(ctx context.Context, h hub.Client, r io.Reader, w io.Writer) error
	// Agents are the agents on other machines, which connect at /v1/agent. Nil means that there is no
	// such path.
	Agents *Agents
	// Notify is called when a session needs attention, one call at a time. It may be nil.
	Notify func(context.Context, Notice) error
	// PushClient sends messages to the push services of browsers. Nil means a client that reaches only
	// public addresses.
	PushClient *http.Client
	// CheckPeer returns an error if the process at the other end of a connection may not use the
	// server. Nil means [socket.CheckPeer]: it must not be a command that an agent runs.
	CheckPeer func(net.Conn) error
	// Metrics also receives what GET /metrics returns. It may be nil.
	Metrics metric.MeterProvider
	// Logger logs failures. It may be nil.
	Logger *slog.Logger
}

// AgentSettings are the settings that a new session may have for its agent.
type AgentSettings struct {
	Model          string   `json:"model,omitempty"`
	PermissionMode string   `json:"permission_mode,omitempty"`
	Args           []string `json:"args,omitempty"` // additional flags of the parley command
}

// A Server serves a hub. It is safe for concurrent use.
type Server struct {
	cfg       Config
	tokens    *tokens
	audit     *auditLog
	failures  *failures
	strangers strangers
	mux       *http.ServeMux
	routes    []route
	callers   callers
	editors   editors
	counters  counters
	exported  metric.Registration // nil without [Config.Metrics]

	pushes     *pushes
	pushClient *http.Client
	watchOnce  sync.Once // starts notify

	spent struct {
		sync.Mutex
		all map[string]*spending // by session
	}

	ctx  context.Context // for all streams; ends when the server drains
	stop context.CancelCauseFunc
	// requests are those in progress. Only they, and New, add to work.
	requests gate.Gate
	work     sync.WaitGroup

	mu        sync.Mutex
	publicURL string // URL of the console, for links in responses on the socket
}

// ErrDraining ends streams when the server ends. Their readers reconnect.
var ErrDraining = errors.New("serve: the server is going away")

// New returns a server. It does not listen yet: see [Server.Serve].
func New(cfg Config) (*Server, error) {
	if cfg.Hub == nil {
		return nil, errors.New("serve: Config.Hub is required")
	}
	if cfg.CheckPeer == nil {
		cfg.CheckPeer = socket.CheckPeer
	}
	cfg.Hosts = slices.Clone(cfg.Hosts)
	for i, name := range cfg.Hosts {
		cfg.Hosts[i] = strings.ToLower(strings.TrimSpace(name))
		if cfg.Hosts[i] == "" || strings.ContainsAny(cfg.Hosts[i], "*/@ ") {
			return nil, fmt.Errorf("serve: %q is not the name of a host", name)
		}
	}
	for _, o := range cfg.Origins {
		u, err := url.Parse(o)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || o != u.Scheme+"://"+u.Host {
			return nil, fmt.Errorf("serve: %q is not an origin such as https://example.com", o)
		}
	}
	s := &Server{cfg: cfg, callers: callers{all: map[callerKey]*caller{}}, editors: editors{all: map[string]*editor{}}, failures: &failures{all: map[string]*rate.Limiter{}}}
	tokenFile, auditFile, pushFile := "", "", ""
	if cfg.Dir != "" {
		if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("serve: %w", err)
		}
		tokenFile, auditFile, pushFile = filepath.Join(cfg.Dir, "tokens.json"), filepath.Join(cfg.Dir, "audit.jsonl"), filepath.Join(cfg.Dir, "push.json")
	}
	var err error
	if s.tokens, err = openTokens(tokenFile, cfg.Tokens, s.logger()); err != nil {
		return nil, err
	}
	if s.audit, err = openAudit(auditFile); err != nil {
		return nil, err
	}
	if s.pushes, err = openPushes(pushFile); err != nil {
		return nil, err
	}
	s.pushClient = pushClient()
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	s.mount()
	if cfg.Metrics != nil {
		if err := s.export(cfg.Metrics); err != nil {
			return nil, fmt.Errorf("serve: metrics: %w", err)
		}
	}
	if cfg.Notify != nil || len(s.pushes.all) > 0 {
		s.watchOnce.Do(func() { s.work.Go(s.notify) })
	}
	return s, nil
}

// Close ends all streams and frees the resources of the server. The hub stays open.
func (s *Server) Close() error {
	s.stop(ErrDraining)
	if s.exported != nil {
		s.exported.Unregister()
	}
	<-s.requests.Close()
	s.work.Wait()
	s.pushes.work.Wait()
	s.pushClient.CloseIdleConnections()
	s.tokens.close()
	return s.audit.close()
}

// AddToken creates a token and returns it with its secret, which is not available later.
func (s *Server) AddToken(name string, scope Scope, expires time.Time) (Token, string, error) {
	return s.tokens.add(name, scope, expires)
}

// Tokens returns all tokens, oldest first.
func (s *Server) Tokens() []Token { return s.tokens.list() }

// Handler returns the handler for requests over TCP.
func (s *Server) Handler() http.Handler { return s.secure(s.mux) }

// local returns the handler for the unix socket, which only the user can open.
func (s *Server) local() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		if err := peerError(r); err != nil {
			s.refuse(w, r, http.StatusForbidden, "peer", err.Error())
			return
		}
		if len(r.Header.Values("Origin")) > 0 {
			s.refuse(w, r, http.StatusForbidden, "origin", "a page cannot use the socket")
			return
		}
		s.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), localKey{}, true)))
	})
}

// CheckAddress returns an error if a listener can be reached from other machines and its connections
// are not encrypted.
func (s *Server) CheckAddress(addr net.Addr) error {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() || s.cfg.TLS || s.cfg.BehindProxy {
		return nil
	}
	return fmt.Errorf("serve: %s is reachable from other machines without encryption: add --tls-cert and --tls-key, or put an encrypting proxy in front and add --behind-proxy", addr)
}

// drainTime is how long requests may take to end when the server ends.
const drainTime = 15 * time.Second

// Serve serves a listener until ctx ends, then lets requests finish. A unix socket is for this user,
// who needs no token; its peers are checked. If [Config.TLS] is set, the listener must encrypt.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := s.CheckAddress(l.Addr()); err != nil {
		l.Close()
		return err
	}
	if base := s.BaseURL(l.Addr()); base != "" {
		s.mu.Lock()
		s.publicURL = base
		s.mu.Unlock()
	}
	handler := s.Handler()
	_, unix := l.Addr().(*net.UnixAddr)
	if unix {
		handler = s.local()
	}
	srv := &http.Server{
		Handler: handler,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, sync.OnceValue(func() error { return s.cfg.CheckPeer(c) }))
		},
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		Protocols:         protocols(),
		// "OPTIONS *" also goes through the handler.
		DisableGeneralOptionsHandler: true,

		ErrorLog: slog.NewLogLogger(s.logger().Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	s.stop(ErrDraining)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		srv.Close()
	}
	<-served
	return nil
}

// protocols returns the HTTP versions of connections. Editors stream over HTTP/2, also without
// encryption.
func protocols() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return &p
}

func (s *Server) logger() *slog.Logger {
	if s.cfg.Logger != nil {
		return s.cfg.Logger
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

// Link returns the URL of the console with a token that only the browser sees.
func (s *Server) Link(base, secret string) string {
	return strings.TrimSuffix(base, "/") + "/#t=" + secret
}

// BaseURL returns the URL of a listener on this machine, or with the first configured name.
func (s *Server) BaseURL(addr net.Addr) string {
	scheme := "http"
	if s.cfg.TLS {
		scheme = "https"
	}
	if s.cfg.BehindProxy && len(s.cfg.Hosts) > 0 {
		return "https://" + s.cfg.Hosts[0]
	}
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return ""
	}
	host := tcp.AddrPort()
	if tcp.IP.IsUnspecified() {
		host = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), host.Port())
	}
	if len(s.cfg.Hosts) > 0 {
		return fmt.Sprintf("%s://%s:%d", scheme, s.cfg.Hosts[0], host.Port())
	}
	return scheme + "://" + host.String()
}
