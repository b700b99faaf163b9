package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A service is an HTTP server on loopback that runs until a signal, until it has served
// everything, or as long as a program that it runs.
type service struct {
	name    string // the command, for messages
	what    string // what it does, such as "playing greet.script"
	addr    string
	once    bool
	command []string // the program to run; may be empty

	handler http.Handler
	env     func(url string) []string // variables that direct a client here, "KEY=value"
	hide    []string                  // variables that would direct it elsewhere
	done    func() bool               // for once: nothing is left to serve, or something failed

	ln net.Listener
}

// flags adds the flags that all services have.
func (s *service) flags(fs *flagSet) {
	fs.StringVar(&s.addr, "addr", "127.0.0.1:0", "the `ADDRESS` to serve at; port 0 picks a free one")
}

// onceFlag adds the flag of services that have an end.
func (s *service) onceFlag(fs *flagSet) {
	fs.BoolVar(&s.once, "once", false, "exit when everything was played, or after the first mismatch")
}

// listenTCP listens at the address in --addr.
func listenTCP(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--addr %s: another program uses this port. Stop it, or choose another port; port 0 picks a free one", addr)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("--addr %s: you have no permission to use this port. Choose one above 1023", addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("--addr %s: this machine does not have this address. Use one that it has, such as 127.0.0.1", addr)
	}
	if bad := (*net.AddrError)(nil); errors.As(err, &bad) {
		return nil, usagef("--addr %s: %s; use HOST:PORT, such as 127.0.0.1:8080", addr, bad.Err)
	}
	if bad := (*net.DNSError)(nil); errors.As(err, &bad) { // the name of a port, or of a host
		return nil, usagef("--addr %s: %s; use HOST:PORT, such as 127.0.0.1:8080", addr, bad.Err)
	}
	return l, err
}

// listen finds the program and listens at the address early, so that nothing else happens if
// one of them is wrong.
func (s *service) listen(p *process) error {
	if len(s.command) > 0 {
		if _, err := exec.LookPath(s.command[0]); err != nil {
			return fmt.Errorf("cannot run %s: %w", s.command[0], err)
		}
	}
	host, _, err := net.SplitHostPort(s.addr)
	if err != nil {
		return usagef("--addr %s is not HOST:PORT, such as 127.0.0.1:8080", s.addr)
	}
	s.ln, err = listenTCP(s.addr)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		fmt.Fprintf(p.stderr, "parley %s: careful: %s can be reached from other machines\n", s.name, s.ln.Addr())
	}
	return nil
}

// url returns the URL for clients.
func (s *service) url() string {
	a := s.ln.Addr().(*net.TCPAddr)
	if a.IP.IsUnspecified() {
		return fmt.Sprintf("http://127.0.0.1:%d", a.Port)
	}
	return "http://" + a.String()
}

// run serves until the end. If the program failed, the error is its exitStatus.
func (s *service) run(ctx context.Context, p *process) error {
	ctx, stopSignals := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stopSignals()

	requests, cancelRequests := context.WithCancel(context.Background())
	defer cancelRequests()
	idle := newIdle(s.handler)
	server := &http.Server{Handler: idle, BaseContext: func(net.Listener) context.Context { return requests }}
	served := make(chan error, 1)
	go func() { served <- server.Serve(s.ln) }()

	env := s.env(s.url())
	fmt.Fprintf(p.stderr, "parley %s: %s at %s\n", s.name, s.what, s.url())
	var err error
	if len(s.command) > 0 {
		err = s.runCommand(ctx, p, env)
	} else {
		for _, kv := range env {
			fmt.Fprintln(p.stdout, "export "+kv)
		}
		if !s.once {
			fmt.Fprintf(p.stderr, "parley %s: Ctrl-C ends it\n", s.name)
		}
		err = s.await(ctx, idle, served)
	}
	stopSignals() // a second Ctrl-C ends the process at once

	// A client may be gone before its last response is sent: let responses that are
	// nearly done finish, but not stalled ones.
	idle.waitIdle(500 * time.Millisecond)
	cancelRequests()
	grace, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if server.Shutdown(grace) != nil {
		_ = server.Close() // a response that does not end
	}
	return err
}

// await returns when the service should end.
func (s *service) await(ctx context.Context, idle *idleHandler, served <-chan error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return err
		case <-idle.now:
			if s.once && s.done() {
				return nil
			}
		}
	}
}

// runCommand runs the program in an environment that directs it here.
func (s *service) runCommand(ctx context.Context, p *process, env []string) error {
	cmd := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	cmd.Env = append(clientEnv(p, s.hide), env...)
	if len(s.hide) > 0 { // the official CLI contacts more services than the model
		cmd.Env = append(cmd.Env, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1")
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.stdin, p.stdout, p.stderr
	cmd.Cancel = func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return cmd.Process.Kill() // no signals on this system
		}
		return nil
	}
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case cmd.Process == nil:
		return fmt.Errorf("cannot run %s: %w", s.command[0], err)
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		fmt.Fprintf(p.stderr, "parley %s: %s ended with status %d\n", s.name, s.command[0], exit.ExitCode())
		return exitStatus(exit.ExitCode())
	case ctx.Err() != nil:
		return fmt.Errorf("%s was stopped by a signal", s.command[0])
	default:
		return fmt.Errorf("%s: %w", s.command[0], err)
	}
}

// clientEnv returns the environment for a client: without the variables that would
// direct it elsewhere, and without a proxy for loopback.
func clientEnv(p *process, hide []string) []string {
	var env []string
	for _, kv := range p.env {
		if name, _, _ := strings.Cut(kv, "="); !slices.Contains(hide, name) && !strings.EqualFold(name, "NO_PROXY") {
			env = append(env, kv)
		}
	}
	direct := "127.0.0.1,localhost,::1"
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		if v := p.getenv(name); v != "" {
			direct += "," + v
			break
		}
	}
	return append(env, "NO_PROXY="+direct, "no_proxy="+direct)
}

// elsewhere are the variables by which the official CLI and SDKs find another API or
// other credentials.
var elsewhere = []string{
	"ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BEDROCK_BASE_URL", "ANTHROPIC_VERTEX_BASE_URL", "ANTHROPIC_UNIX_SOCKET",
	"CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_FOUNDRY", "CLAUDE_CODE_USE_VERTEX",
}

// fakeKey is the key for an API that requires one but does not check it.
const fakeKey = "sk-ant-fake-test-key"

// clientVars returns the variables that direct a client to a server, with a key if one
// is given.
func clientVars(url, key string, openai bool) []string {
	vars := []string{"ANTHROPIC_BASE_URL=" + url}
	if key != "" {
		vars = append(vars, "ANTHROPIC_API_KEY="+key)
	}
	if openai {
		vars = []string{"OPENAI_BASE_URL=" + url + "/v1"}
		if key != "" {
			vars = append(vars, "OPENAI_API_KEY="+key)
		}
	}
	return vars
}

// An idleHandler signals when a request was served and no other is being served.
type idleHandler struct {
	handler http.Handler
	now     chan struct{}

	mu     sync.Mutex
	active int
}

func newIdle(h http.Handler) *idleHandler {
	return &idleHandler{handler: h, now: make(chan struct{}, 1)}
}

// waitIdle waits until nothing is being served, up to limit.
func (h *idleHandler) waitIdle(limit time.Duration) {
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		h.mu.Lock()
		active := h.active
		h.mu.Unlock()
		if active == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// ServeHTTP implements [http.Handler].
func (h *idleHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.active++
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.active--; h.active == 0 {
			select {
			case h.now <- struct{}{}:
			default:
			}
		}
	}()
	h.handler.ServeHTTP(w, r)
}

// A progress writes whole lines, from any goroutine.
type progress struct {
	mu sync.Mutex
	w  io.Writer
	n  int
}

// line writes a numbered line.
func (g *progress) line(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n++
	fmt.Fprintf(g.w, "%3d  %s\n", g.n, fmt.Sprintf(format, args...))
}

// count returns how many lines were written.
func (g *progress) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

// each returns the errors that were joined into err.
func each(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, each(e)...)
	}
	return all
}

// verdict reports at the end what failed, and what is left over unless that is fine,
// and joins it with the error of the service itself.
func (s *service) verdict(p *process, ended, failed, all error, partial bool, wrong, left string) error {
	bad := each(failed)
	rest := each(all)[len(bad):]
	list := func(heading string, errs []error) {
		if len(errs) == 0 {
			return
		}
		fmt.Fprintf(p.stderr, "parley %s: %s\n", s.name, heading)
		for _, e := range errs {
			fmt.Fprintln(p.stderr, "  "+strings.ReplaceAll(plain(e), "\n", "\n  "))
		}
	}
	list(wrong, bad)
	list(left, rest)
	if ended == nil && (len(bad) > 0 || len(rest) > 0 && !partial) {
		return exitStatus(exitFailure)
	}
	return ended
}

// requests formats a number of requests.
func requests(n int) string {
	if n == 1 {
		return "1 request"
	}
	return fmt.Sprintf("%d requests", n)
}
