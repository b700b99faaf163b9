package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/acp"
	"github.com/parley-go/parley/console"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/socket"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/serve"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/terminal"
	"github.com/parley-go/parley/wire"
	"rsc.io/qr"
)

const serveHelp = `
Serves your sessions to people, programs and pages: the console, a JSON API (GET /openapi.json
describes it), event streams, and connections for SDKs. Without --addr only your own programs can
connect, over the unix socket hub/serve in the configuration directory. With --addr it listens on
TCP as well, where every request needs a token. The first token is printed as a link and a QR code.

  parley serve --addr 127.0.0.1:8080
  parley serve --addr :8443 --tls-cert cert.pem --tls-key key.pem --host parley.example.com
  parley serve --addr 127.0.0.1:8080 --behind-proxy --host parley.example.com
  parley serve token add phone --scope approve     make a token, and show it as a link
  parley serve token list                          list them
  parley serve token revoke ID                     revoke one; its streams end at once

Scopes: view, approve (answer questions), drive (send prompts), admin (create sessions, tokens);
agent is for "parley --sdk-url", which runs a session on another machine.
SIGTERM ends it within 20 seconds; unfinished turns continue when it starts again.`

// serveFlags are the flags of parley serve.
type serveFlags struct {
	addr            string
	hosts, origins  list
	behindProxy     bool
	cert, key       string
	demo            bool
	webhook, notify string
}

// serveCommand serves the user's hub on the network.
func serveCommand(ctx context.Context, p *process, args []string) error {
	if len(args) > 0 && args[0] == "token" {
		return tokenCommand(ctx, p, args[1:])
	}
	fs := newFlags(p, "serve", "[--addr HOST:PORT]", serveHelp)
	f := &serveFlags{}
	fs.StringVar(&f.addr, "addr", "", "also listen at this `HOST:PORT`")
	fs.Var(&f.hosts, "host", "a `NAME` by which the server is reached, besides its address; may be repeated")
	fs.Var(&f.origins, "origin", "the `ORIGIN` of a page elsewhere that may use the API with a token of its own; may be repeated")
	fs.BoolVar(&f.behindProxy, "behind-proxy", false, "a proxy in front encrypts and adds X-Forwarded-For")
	fs.StringVar(&f.cert, "tls-cert", "", "encrypt connections with the certificate in this `FILE`; it is read again when it changes")
	fs.StringVar(&f.key, "tls-key", "", "the `FILE` with the key of the certificate")
	fs.StringVar(&f.webhook, "webhook", "", "post to this `URL`, in the format of ntfy, when a session needs attention")
	fs.StringVar(&f.notify, "notify", "", "run this shell `COMMAND` with a JSON notice on its input when a session needs attention")
	fs.BoolVar(&f.demo, "demo", false, "serve sessions with a scripted model and small projects: no key, no network")
	if err := parse(fs, args); err != nil {
		return err
	}
	if err := noWords(fs); err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	return f.run(ctx, p)
}

func (f *serveFlags) run(ctx context.Context, p *process) (err error) {
	demo := &serveDemo{}
	if f.demo {
		dir, err := os.MkdirTemp("", "parley-serve-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if p, err = demo.prepare(p, dir); err != nil {
			return err
		}
		if f.addr == "" {
			f.addr = "127.0.0.1:0"
		}
	} else if socket.CheckSelf() != nil {
		return errors.New("a command that an agent runs may not serve your sessions: it could approve its own calls")
	}
	cfg, err := agentConfig(p)
	if err != nil {
		return err
	}
	flush := sync.OnceFunc(exportTelemetry(ctx, p, &cfg, false))
	defer flush()
	dir, err := writableHubDir(&cfg)
	if err != nil {
		return err
	}
	listeners, err := f.listen()
	if err != nil {
		return err
	}
	if f.cert != "" || f.key != "" {
		config, err := encryption(f.cert, f.key)
		if err != nil {
			return err
		}
		for i, l := range listeners {
			listeners[i] = tls.NewListener(l, config)
		}
	}
	if err := socket.Adopt(); err != nil {
		return fmt.Errorf("cannot distinguish commands of agents from commands of people: %w", err)
	}
	config, agents := hubConfig(p, cfg, &hub.Files{Dir: dir, Watch: true}), new(serve.Agents)
	config.Agent = agents.Wrap(config.Agent)
	h, err := hub.New(config)
	if err != nil {
		return err
	}
	notify, err := f.notices()
	if err != nil {
		return err
	}
	s, err := serve.New(serve.Config{
		Notify: notify, Hub: h, Dir: filepath.Join(dir, "serve.d"), Hosts: f.hosts, Origins: f.origins, BehindProxy: f.behindProxy, TLS: f.cert != "",
		Sessions: &session.Files{Dir: cfg.ConfigDir()}, Console: console.Handler(), Logger: slog.New(slog.NewTextHandler(p.stderr, nil)),
		ACP: func(ctx context.Context, h hub.Client, r io.Reader, w io.Writer) error {
			return acp.Serve(ctx, acp.Config{Hub: h, Args: demo.args, Sessions: &session.Files{Dir: cfg.ConfigDir()}, Version: parley.Version}, r, w)
		},
		Agent: demo.agent, Agents: agents, Metrics: cfg.Metrics,
		Rules: func(cwd string, q *serve.RulesQuery) (serve.Rules, error) { return rulesOf(p, cwd, q) },
	})
	if err != nil {
		return err
	}
	for _, l := range listeners {
		if err := s.CheckAddress(l.Addr()); err != nil {
			return err
		}
	}
	own, err := socket.Listen(filepath.Join(dir, "serve"))
	if errors.Is(err, socket.ErrRunning) {
		return errors.New("another \"parley serve\" of this user is running; stop it first")
	}
	if err != nil {
		return err
	}
	go socket.Reap(ctx)
	if err := f.announce(p, s, listeners, filepath.Join(dir, "serve")); err != nil {
		return err
	}
	if f.demo {
		if err := demo.start(ctx, h); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	for _, l := range append(listeners, own) {
		work.Go(func() {
			if err := s.Serve(ctx, l); err != nil {
				cancel(err)
			}
		})
	}
	// Commands such as parley attach find the hub here, unless another process serves
	// the socket.
	if path, err := socketPath(&cfg); err == nil {
		if l, err := socket.Listen(path); err == nil {
			work.Go(func() {
				defer l.Close()
				socket.Serve(ctx, h, l)
			})
		}
	}
	<-ctx.Done()
	cause := context.Cause(ctx)
	f.waitForTurns(ctx, p, h)
	work.Wait()
	flush() // with the last numbers of the server
	s.Close()
	if f.demo { // nothing of it is stored
		h.Close()
	}
	// Sessions stay as they are: running ones continue with the next hub.
	var ended *cli.SignalError
	if errors.As(cause, &ended) {
		return nil
	}
	return cause
}

// A serveDemo are the sessions of parley serve --demo. Without --demo it is empty.
type serveDemo struct {
	dir  string
	args []string // of the agents of new sessions
}

// demoSessions are the sessions of parley serve --demo: one of each kind that the overview of the console has.
var demoSessions = []struct {
	title, project, script, prompt string
	args                           []string
}{
	{"Release notes", "release", "release.script", "Write release notes for changes.txt.", []string{"--model", "opus", "--permission-mode", "acceptEdits"}},
	{"Load test", "load", "load.script", "Run the load test.", []string{"--model", "haiku", "--allowedTools", "Bash(sh load.sh)"}},
	{"Demo", "project", "demo.script", demoPrompt, demoRules},
}

// demoRules are the arguments for the agent of parley demo.
var demoRules = []string{"--model", "sonnet", "--allowedTools", "Bash(sh test.sh)", "Bash(grep:*)"}

// prepare writes the projects and the scripts, and returns a process whose sessions are
// in the directory.
func (d *serveDemo) prepare(p *process, dir string) (*process, error) {
	d.dir, d.args = dir, append(d.script("demo.script"), demoRules...)
	for _, x := range demoSessions {
		script, err := demoFiles.ReadFile("demo/" + x.script)
		if err := errors.Join(err, copyDemo(filepath.Join(dir, x.project), x.project), os.WriteFile(filepath.Join(dir, x.script), script, 0o666)); err != nil {
			return nil, err
		}
	}
	return &process{stdin: p.stdin, stdout: p.stdout, stderr: p.stderr, env: append(p.env, "CLAUDE_CONFIG_DIR="+filepath.Join(dir, "config"))}, nil
}

// script returns the arguments for an agent whose model plays a script.
func (d *serveDemo) script(name string) []string {
	return []string{"--provider", "script", "--script", filepath.Join(d.dir, name), "--setting-sources", ""}
}

// agent returns the agent spec of a new session.
func (d *serveDemo) agent(a serve.AgentSettings) (json.RawMessage, error) {
	args := slices.Clone(d.args)
	if a.Model != "" {
		args = append(args, "--model", a.Model)
	}
	if a.PermissionMode != "" {
		args = append(args, "--permission-mode", a.PermissionMode)
	}
	args = append(args, a.Args...)
	if _, err := cli.Parse(args); err != nil {
		return nil, err
	}
	return hub.Args{Args: args}.Spec(), nil
}

// start creates the sessions and sends their prompts.
func (d *serveDemo) start(ctx context.Context, h *hub.Hub) error {
	me := hub.Actor{Name: "demo", Rights: hub.Everything}
	for i, x := range demoSessions {
		s, err := h.Create(ctx, me, hub.Spec{Cwd: filepath.Join(d.dir, x.project), Title: x.title, Agent: hub.Args{Args: append(d.script(x.script), x.args...)}.Spec()})
		if err != nil {
			return err
		}
		if _, err := s.Prompt(ctx, me, wire.Prompt(wire.Text(x.prompt))); err != nil {
			return err
		}
		if i == 0 {
			if _, err := h.Schedule(ctx, me, hub.Schedule{Session: s.ID(), Prompt: "Is anything missing in RELEASE.md?", Cron: "0 9 * * 1-5"}); err != nil {
				return err
			}
		}
	}
	return nil
}

// notices returns the function to call when a session needs attention, or nil.
func (f *serveFlags) notices() (func(context.Context, serve.Notice) error, error) {
	var all []func(context.Context, serve.Notice) error
	if f.webhook != "" {
		send, err := serve.Webhook(f.webhook)
		if err != nil {
			return nil, usagef("%s", plain(err))
		}
		all = append(all, send)
	}
	if f.notify != "" {
		all = append(all, func(ctx context.Context, n serve.Notice) error {
			data, err := json.Marshal(n)
			if err != nil {
				return err
			}
			cmd := exec.CommandContext(ctx, "sh", "-c", f.notify)
			cmd.Stdin = bytes.NewReader(data)
			return cmd.Run()
		})
	}
	if len(all) == 0 {
		return nil, nil
	}
	return func(ctx context.Context, n serve.Notice) (err error) {
		for _, send := range all {
			err = errors.Join(err, send(ctx, n))
		}
		return err
	}, nil
}

// settleTime is how long running turns may take to end when the server ends.
const settleTime = 10 * time.Second

// waitForTurns waits until no turn is running, up to settleTime, and prints why it waits. It
// does not wait for the turns of the demo.
func (f *serveFlags) waitForTurns(ctx context.Context, p *process, h *hub.Hub) {
	if f.demo {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	running := map[string]bool{}
	all, err := h.List(ctx, hub.Actor{Rights: hub.MayView})
	if err != nil {
		return
	}
	for _, i := range all {
		if i.State.Phase == hub.Running && i.State.Owner != "" && i.State.AgentAway() == "" {
			running[i.ID] = true
		}
	}
	if len(running) == 0 {
		return
	}
	fmt.Fprintf(p.stderr, "parley serve: waiting up to %v for running turns (%d). Unfinished turns continue at the next start; Ctrl-C again exits at once\n", settleTime, len(running))
	for i, err := range h.Watch(ctx, hub.Actor{Rights: hub.MayView}) {
		if err != nil {
			return
		}
		if i.Removed || i.State.Phase != hub.Running || i.State.AgentAway() != "" {
			if delete(running, i.ID); len(running) == 0 {
				return
			}
		}
	}
}

// listen returns the listeners for TCP: those of socket activation, and --addr.
func (f *serveFlags) listen() (all []net.Listener, err error) {
	if n, _ := strconv.Atoi(os.Getenv("LISTEN_FDS")); os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()) {
		for fd := range n {
			file := os.NewFile(uintptr(3+fd), "socket "+strconv.Itoa(fd))
			l, err := net.FileListener(file)
			file.Close()
			if err != nil {
				return nil, fmt.Errorf("cannot use the socket of the service manager: %w", err)
			}
			all = append(all, l)
		}
		os.Unsetenv("LISTEN_FDS")
		os.Unsetenv("LISTEN_PID")
	}
	if f.addr == "" {
		return all, nil
	}
	host, _, err := net.SplitHostPort(f.addr)
	if err != nil {
		return nil, usagef("--addr %s is not HOST:PORT, such as 127.0.0.1:8080", f.addr)
	}
	if ip := net.ParseIP(host); !f.behindProxy && f.cert == "" && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, usagef("--addr %s is reachable from other machines without encryption: add --tls-cert and --tls-key, or put an encrypting proxy in front and add --behind-proxy", f.addr)
	}
	l, err := listenTCP(f.addr)
	if err != nil {
		return nil, err
	}
	return append(all, l), nil
}

// encryption returns the TLS configuration. It reads a renewed certificate at the next
// connection; if that fails, it keeps the old one.
func encryption(certFile, keyFile string) (*tls.Config, error) {
	if certFile == "" || keyFile == "" {
		return nil, usagef("--tls-cert and --tls-key must be used together")
	}
	first, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("cannot use the certificate: %w", err)
	}
	changed := func() (t time.Time) {
		if info, err := os.Stat(certFile); err == nil {
			t = info.ModTime()
		}
		return t
	}
	var mu sync.Mutex
	current, read := &first, changed()
	return &tls.Config{NextProtos: []string{"h2", "http/1.1"}, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if now := changed(); !now.Equal(read) {
			if next, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil {
				current, read = &next, now
			}
		}
		return current, nil
	}}, nil
}

// announce prints where the server is. It shows the first token once.
func (f *serveFlags) announce(p *process, s *serve.Server, listeners []net.Listener, path string) error {
	if len(listeners) == 0 {
		fmt.Fprintf(p.stdout, "Serving %s\n", path)
		return nil
	}
	for i, l := range listeners {
		base := s.BaseURL(l.Addr())
		fmt.Fprintf(p.stdout, "Serving %s\n", base)
		if i > 0 || len(s.Tokens()) > 0 {
			continue
		}
		_, secret, err := s.AddToken("first", serve.ScopeAdmin, time.Time{})
		if err != nil {
			return err
		}
		if err := showLink(p.stdout, s.Link(base, secret)); err != nil {
			return err
		}
	}
	return nil
}

// showLink prints a link and its QR code.
func showLink(w io.Writer, link string) error {
	code, err := qr.Encode(link, qr.L)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", link)
	const quiet = 2
	for y := -quiet; y < code.Size+quiet; y += 2 {
		for x := -quiet; x < code.Size+quiet; x++ {
			// Light on dark: a terminal is usually dark.
			b.WriteString([]string{"█", "▀", "▄", " "}[btoi(code.Black(x, y+1))+2*btoi(code.Black(x, y))][:])
		}
		b.WriteByte('\n')
	}
	_, err = io.WriteString(w, b.String()+"\n")
	return err
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tokenCommand creates, lists and revokes tokens of the running server.
func tokenCommand(ctx context.Context, p *process, args []string) error {
	fs := newFlags(p, "serve token", "add NAME | list | revoke ID", `
Makes, lists and revokes tokens of the "parley serve" that runs. A token is shown once, as a link
that opens the console and as a QR code of it.`)
	scope := fs.String("scope", "view", "what the token is for: view, approve, drive or admin; or agent")
	expires := fs.Duration("expires", 0, "how long it is valid, such as 24h; for ever if it is left out")
	words, err := parseWords(fs, args)
	if err != nil {
		return err
	}
	cfg, err := agentConfig(p)
	if err != nil {
		return err
	}
	dir, err := hubDir(&cfg)
	if err != nil {
		return err
	}
	do := func(method, path string, in, out any) error {
		err := serve.Local{Path: filepath.Join(dir, "serve")}.Do(ctx, method, path, in, out)
		if down := (*serve.NotRunningError)(nil); errors.As(err, &down) {
			err = errors.New("no server is running; start one with \"parley serve\"")
			if errors.Is(down.Err, os.ErrPermission) {
				err = down.Err
			}
		}
		return err
	}
	switch {
	case len(words) == 2 && words[0] == "add":
		in := serve.NewToken{Name: words[1], Scope: serve.Scope(*scope)}
		if *expires > 0 {
			in.Expires = time.Now().Add(*expires)
		}
		var made serve.MadeToken
		if err := do("POST", "/v1/tokens", in, &made); err != nil {
			return err
		}
		if made.Link == "" {
			fmt.Fprintln(p.stdout, made.Secret)
			return nil
		}
		return showLink(p.stdout, made.Link)
	case len(words) == 1 && words[0] == "list":
		var all serve.TokenList
		if err := do("GET", "/v1/tokens", nil, &all); err != nil {
			return err
		}
		w := tabwriter.NewWriter(p.stdout, 0, 4, 2, ' ', 0)
		for _, t := range all.Tokens {
			used := "never used"
			if !t.Used.IsZero() {
				used = "used " + ago(time.Since(t.Used)) + " ago from " + t.From
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", t.ID, t.Scope, terminal.Visible(t.Name), terminal.Visible(used))
		}
		return w.Flush()
	case len(words) == 2 && words[0] == "revoke":
		return do("DELETE", "/v1/tokens/"+words[1], nil, nil)
	}
	return usagef("usage: parley serve token add NAME [--scope SCOPE], list, or revoke ID")
}
