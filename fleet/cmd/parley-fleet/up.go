package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/console"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/fleet"
	"github.com/parley-go/parley/fleet/workspace"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/socket"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/internal/filelock"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
	"github.com/parley-go/parley/transport"
)

// nodeFlags are the flags of up and worker.
type nodeFlags struct {
	natsFlags
	addr, listen, name, agent string
	hosts, origins            string
	behindProxy               bool
	slots                     int
	lease, idle               time.Duration
	cluster, join, tokenFile  string
	metrics, workspaces       string
}

func (f *nodeFlags) addWorker(fs *flag.FlagSet) {
	f.natsFlags.add(fs)
	host, _ := os.Hostname()
	fs.StringVar(&f.name, "name", host, "the `NAME` of this node, for people")
	fs.IntVar(&f.slots, "slots", 16, "the `NUMBER` of sessions that run here at once; 0 means none")
	fs.StringVar(&f.agent, "agent", "", "the `PROGRAM` to run as the agent, such as claude; empty means Parley's agent, in this process")
	fs.DurationVar(&f.lease, "lease", 30*time.Second, "how long a silent worker keeps its sessions; has effect only when it creates the fleet")
	fs.DurationVar(&f.idle, "idle", 10*time.Second, "how long an idle agent keeps its slot")
	fs.StringVar(&f.workspaces, "workspaces", "", "the `DIRECTORY` for mirrors and worktrees on this machine; empty means one in --data, or in the user's cache")
	fs.StringVar(&f.metrics, "metrics", "", "serve metrics for Prometheus at this `HOST:PORT`, without a token")
}

// drainTime is how long turns may take to end after SIGTERM. The node exits within 20 seconds
// in all.
const drainTime = 15 * time.Second

// up runs a node.
func up(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := &nodeFlags{}
	fs := newFlags("up", stdout)
	f.addUp(fs)
	if err := parse(fs, args, nil); err != nil {
		return err
	}
	return f.check(ctx, stdout, stderr)
}

// addUp adds the flags of up.
func (f *nodeFlags) addUp(fs *flag.FlagSet) {
	f.addWorker(fs)
	fs.StringVar(&f.addr, "addr", "127.0.0.1:8080", "serve the API and the page at this `HOST:PORT`; empty serves neither")
	fs.StringVar(&f.hosts, "host", "", "other `NAMES` of the server, besides its address, separated by commas")
	fs.StringVar(&f.origins, "origin", "", "`ORIGINS` of other pages that may use the API, separated by commas")
	fs.BoolVar(&f.behindProxy, "behind-proxy", false, "a proxy in front of the server encrypts, and adds X-Forwarded-For")
	fs.StringVar(&f.listen, "listen", "127.0.0.1:0", "the `HOST:PORT` where the embedded NATS server listens for workers, status and top")
	fs.StringVar(&f.cluster, "cluster", "", "the `HOST:PORT` where the embedded NATS server listens for the other two nodes")
	fs.StringVar(&f.join, "join", "", "the --cluster addresses of all three `NODES`, separated by commas; first the node that has the sessions")
	fs.StringVar(&f.tokenFile, "token-file", "", "a `FILE` with the secret that the nodes and workers share; needed with --join")
}

// check runs the node if its flags are consistent.
func (f *nodeFlags) check(ctx context.Context, stdout, stderr io.Writer) error {
	if f.data == "" {
		return usagef("it needs --data DIRECTORY to keep tokens and, without --nats, the sessions")
	}
	if host, _, err := net.SplitHostPort(f.addr); f.addr != "" {
		if err != nil {
			return usagef("--addr %s is not HOST:PORT", f.addr)
		}
		if ip := net.ParseIP(host); !f.behindProxy && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return usagef("--addr %s can be reached from other machines, and nothing encrypts its connections: put a proxy that does in front and add --behind-proxy", f.addr)
		}
	}
	return f.run(ctx, stdout, stderr)
}

// worker runs a worker without an API.
func worker(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := &nodeFlags{}
	fs := newFlags("worker", stdout)
	f.addWorker(fs)
	if err := parse(fs, args, nil); err != nil {
		return err
	}
	if f.slots < 1 {
		return usagef("a worker needs at least one of --slots")
	}
	nc, err := f.connect(f.name)
	if err != nil {
		return err
	}
	defer nc.Close()
	return f.work(ctx, nc, 0, nil, stdout, stderr)
}

// run starts the server, or connects to the existing cluster, and works.
func (f *nodeFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	unlock, err := lockData(ctx, f.data)
	if err != nil {
		return fmt.Errorf("--data %s cannot be used: %w", f.data, err)
	}
	defer unlock()
	listener, err := f.listenHTTP()
	if err != nil {
		return err
	}
	if f.url != "" {
		if f.cluster != "" || f.join != "" {
			return usagef("--nats uses a cluster that exists; --cluster and --join make one: use either")
		}
		nc, err := f.connect(f.name)
		if err != nil {
			return err
		}
		defer nc.Close()
		return f.work(ctx, nc, 0, listener, stdout, stderr)
	}
	s, replicas, err := f.startServer(ctx, stdout, stderr)
	if err != nil {
		return err
	}
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	token, err := clusterToken(f.data, f.tokenFile)
	if err != nil {
		return err
	}
	nc, err := fleet.Connect(s, nats.Name(f.name), nats.Token(token))
	if err != nil {
		return err
	}
	defer nc.Close()
	node := nodeFile{NATS: s.ClientURL(), Token: token}
	if listener != nil {
		node.URL = "http://" + listener.Addr().String()
	}
	file := filepath.Join(f.data, "node.json")
	if err := writeJSON(file, node); err != nil {
		return err
	}
	defer os.Remove(file)
	return f.work(ctx, nc, replicas, listener, stdout, stderr)
}

// lockTime is how long the lock of a killed process may last, in a child process that it was just starting.
const lockTime = 2 * time.Second

// lockData creates the directory of a node, and locks it: two servers would write to the same files.
func lockData(ctx context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	try, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	release, err := filelock.Acquire(try, root, "lock")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return func() { release(); root.Close() }, nil
}

func (f *nodeFlags) listenHTTP() (net.Listener, error) {
	if f.addr == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", f.addr)
	if err != nil {
		return nil, fmt.Errorf("--addr %s: %w", f.addr, err)
	}
	return l, nil
}

// startServer starts the embedded server: alone, or as one of three nodes.
func (f *nodeFlags) startServer(ctx context.Context, stdout, stderr io.Writer) (*server.Server, int, error) {
	cfg := fleet.NodeConfig{Name: f.name, Dir: f.data, Fleet: f.fleet, Listen: f.listen, Cluster: f.cluster, Logger: slog.New(slog.NewTextHandler(stderr, nil))}
	if f.join != "" {
		cfg.Join = strings.Split(f.join, ",")
		if f.tokenFile == "" {
			return nil, 0, usagef("--join needs --token-file: the nodes must share a secret. Copy %s of the first node to the others", filepath.Join(f.data, "token"))
		}
	}
	var err error
	if cfg.Token, err = clusterToken(f.data, f.tokenFile); err != nil {
		return nil, 0, err
	}
	return fleet.StartNode(ctx, cfg, func(step string) { fmt.Fprintln(stdout, step) })
}

// work runs sessions and serves the API, until ctx ends. Then it drains.
func (f *nodeFlags) work(ctx context.Context, nc *nats.Conn, replicas int, listener net.Listener, stdout, stderr io.Writer) error {
	var level slog.LevelVar
	logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: &level}))
	b, err := fleet.Open(ctx, fleet.Config{Conn: nc, Name: f.fleet, Replicas: replicas, Lease: f.lease, Worker: f.name})
	if err != nil {
		return err
	}
	defer b.Close()
	w := fleet.NewWorker(b, f.slots, logger)
	files, err := f.openWorkspaces(ctx, b, logger)
	if err != nil {
		return err
	}
	if err := b.Announce(ctx, parley.Version, f.slots); err != nil {
		return err
	}
	config, err := f.hubConfig(w, files, logger)
	if err != nil {
		return err
	}
	h, err := hub.New(config)
	if err != nil {
		return err
	}
	faces, cancelFaces := context.WithCancelCause(context.Background())
	defer cancelFaces(nil)
	var work sync.WaitGroup
	failed := make(chan error, 4)
	if listener != nil {
		s, err := f.faces(h, b.Tokens(), logger)
		if err != nil {
			return err
		}
		defer s.Close()
		own, err := socket.Listen(filepath.Join(f.data, "serve"))
		if err != nil {
			return fmt.Errorf("another node uses %s: %w", f.data, err)
		}
		if err := announce(stdout, s, listener.Addr()); err != nil {
			return err
		}
		for _, l := range []net.Listener{listener, own} {
			work.Go(func() {
				if err := s.Serve(faces, l); err != nil {
					failed <- err
				}
			})
		}
	}
	if f.metrics != "" {
		l, err := net.Listen("tcp", f.metrics)
		if err != nil {
			return fmt.Errorf("--metrics %s: %w", f.metrics, err)
		}
		srv := &http.Server{Handler: metricsHandler(b), ReadHeaderTimeout: 10 * time.Second}
		work.Go(func() { srv.Serve(l) })
		defer srv.Close()
	}
	claiming, stopClaiming := context.WithCancel(context.Background())
	defer stopClaiming()
	if f.slots > 0 {
		work.Go(func() {
			if err := w.Run(claiming, h); err != nil {
				failed <- err
			}
		})
	}
	fmt.Fprintf(stdout, "%s is ready: %d slots, fleet %s\n", f.name, f.slots, f.fleet)
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	fmt.Fprintf(stdout, "%s drains\n", f.name)
	stopClaiming()
	cancelFaces(serve.ErrDraining)
	limit, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	w.Drain(limit, h)
	level.Set(slog.LevelError + 1) // from here on, the hub can only report that its backend is closed
	// Sessions stay unchanged: other workers continue them.
	return err
}

// A sessionSpec holds a session's settings for its agent.
type sessionSpec struct {
	hub.Args
	Workspace *workspace.Spec `json:"workspace,omitempty"`
}

// openWorkspaces returns the workspaces of this worker's sessions, or nil if it runs none.
func (f *nodeFlags) openWorkspaces(ctx context.Context, b *fleet.Backend, logger *slog.Logger) (*fleet.Workspaces, error) {
	if f.slots == 0 {
		return nil, nil
	}
	dir := f.workspaces
	if dir == "" && f.data != "" {
		dir = filepath.Join(f.data, "workspaces")
	} else if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("--workspaces is needed: %w", err)
		}
		dir = filepath.Join(cache, "parley-fleet", f.name)
	}
	return b.OpenWorkspaces(ctx, dir, logger)
}

// cutWorkspaceFlag removes --workspace from the flags of a session; the others are those of
// the agent.
func cutWorkspaceFlag(args []string) (rest []string, spec *workspace.Spec, err error) {
	for i := 0; i < len(args); i++ {
		value, ok := strings.CutPrefix(args[i], "--workspace=")
		if args[i] == "--workspace" && i+1 < len(args) {
			i++
			value, ok = args[i], true
		}
		if !ok {
			rest = append(rest, args[i])
			continue
		}
		s, err := workspace.Parse(value)
		if err != nil {
			return nil, nil, err
		}
		spec = &s
	}
	return rest, spec, nil
}

// takeSecrets removes the secrets of all tenants from the environment of this process, which agents and
// their tools inherit. It returns the function that looks them up.
func takeSecrets() func(name string) (string, bool) {
	all := map[string]string{}
	for _, kv := range os.Environ() {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, fleet.SecretPrefix) {
			all[name] = value
			os.Unsetenv(name)
		}
	}
	return func(name string) (string, bool) {
		value, ok := all[name]
		return value, ok
	}
}

// hubConfig returns the configuration of this node's hub.
func (f *nodeFlags) hubConfig(w *fleet.Worker, files *fleet.Workspaces, logger *slog.Logger) (hub.Config, error) {
	lookup := takeSecrets()
	cfg, err := agent.FromProcess()
	if err != nil {
		return hub.Config{}, err
	}
	cfg.OwnVersion = parley.Version
	cfg.Script = func(file string) (model.Model, error) {
		s, err := parleytest.ReadScript(file)
		if err != nil {
			return nil, err
		}
		return s.Model(), nil
	}
	return hub.Config{
		Backend: w.Backend(), Sees: fleet.Sees, Name: f.name, IdleAfter: f.idle, Gateway: f.slots == 0, Logger: logger,
		Agent: func(ctx context.Context, start hub.Start) (*parley.Options, error) {
			var spec sessionSpec
			if len(start.Spec) > 0 {
				if err := json.Unmarshal(start.Spec, &spec); err != nil {
					return nil, err
				}
			}
			if spec.Workspace == nil {
				if start.Cwd == "" {
					return nil, errors.New("the session has neither a directory nor a workspace: create it with cwd, or with --workspace in args")
				}
				if info, err := os.Stat(start.Cwd); err != nil || !info.IsDir() {
					return nil, fmt.Errorf("the directory %s of the session does not exist on %s", start.Cwd, f.name)
				}
			}
			opts := &parley.Options{Cwd: start.Cwd, KeepSystemPrompt: true, Env: map[string]string{"PARLEY_EPOCH": strconv.FormatUint(start.Epoch, 10), "PARLEY_SESSION": start.ID}}
			var dialer transport.Dialer = &transport.Process{}
			elsewhere := spec.Workspace != nil && (spec.Workspace.Provider == workspace.Container || spec.Workspace.Provider == workspace.Command)
			if f.agent != "" || elsewhere {
				opts.Path, opts.SessionStore = cmp.Or(f.agent, "parley"), start.Store
			} else {
				cfg := cfg
				cfg.Store, cfg.AllowModel = start.Store, func(id string) error { return w.AllowModel(start.ID, id) }
				dialer = agent.InProcess(cfg)
			}
			opts.Dialer = transport.DialerFunc(func(ctx context.Context, s transport.Spec) (transport.Conn, error) {
				s.Words = append(slices.Clone(spec.Args.Args), s.Words...)
				return dialer.Dial(ctx, s)
			})
			secrets, err := w.Secrets(ctx, start.ID, lookup)
			if err != nil {
				return nil, err
			}
			maps.Copy(opts.Env, secrets)
			if spec.Workspace != nil {
				return opts, files.Prepare(ctx, start, *spec.Workspace, opts)
			}
			return opts, nil
		},
	}, nil
}

// faces returns the server of the API and the page.
func (f *nodeFlags) faces(h *hub.Hub, tokens serve.TokenStore, logger *slog.Logger) (*serve.Server, error) {
	list := func(s string) []string {
		if s == "" {
			return nil
		}
		return strings.Split(s, ",")
	}
	return serve.New(serve.Config{
		Hub: h, Tokens: tokens, NoDirectory: true, Dir: filepath.Join(f.data, "serve.d"), Hosts: list(f.hosts), Origins: list(f.origins), BehindProxy: f.behindProxy, Console: console.Handler(), Logger: logger,
		Agent: func(a serve.AgentSettings) (json.RawMessage, error) {
			var args []string
			if a.Model != "" {
				args = append(args, "--model", a.Model)
			}
			if a.PermissionMode != "" {
				args = append(args, "--permission-mode", a.PermissionMode)
			}
			rest, files, err := cutWorkspaceFlag(a.Args)
			if err != nil {
				return nil, err
			}
			args = append(args, rest...)
			if f.agent == "" {
				if _, err := cli.Parse(args); err != nil {
					return nil, err
				}
			}
			return json.Marshal(sessionSpec{hub.Args{Args: args}, files})
		},
	})
}

// announce prints the address of the API. The first token is shown once.
func announce(stdout io.Writer, s *serve.Server, addr net.Addr) error {
	base := s.BaseURL(addr)
	fmt.Fprintf(stdout, "Serving %s\n", base)
	if len(s.Tokens()) > 0 {
		return nil
	}
	_, secret, err := s.AddToken("first", serve.ScopeAdmin, time.Time{})
	if err == nil {
		fmt.Fprintln(stdout, s.Link(base, secret))
	}
	return err
}

// token creates a token for the API of the running node.
func token(ctx context.Context, args []string, stdout, _ io.Writer) error {
	fs := newFlags("token --data DIRECTORY NAME", stdout)
	data := fs.String("data", "", "the `DIRECTORY` of the node")
	scope := fs.String("scope", "view", "the `SCOPE` of the token: view, approve, drive or admin")
	of := fs.String("tenant", "", "the `TENANT` that owns the sessions of the token's holder; empty means none")
	var words []string
	if err := parse(fs, args, &words); err != nil {
		return err
	}
	if len(words) != 1 || *data == "" {
		return usagef("usage: parley-fleet token --data DIRECTORY [--scope SCOPE] [--tenant TENANT] NAME")
	}
	if *of != "" {
		words[0] = *of + "/" + words[0]
	}
	var made serve.MadeToken
	err := serve.Local{Path: filepath.Join(*data, "serve")}.Do(ctx, "POST", "/v1/tokens", serve.NewToken{Name: words[0], Scope: serve.Scope(*scope)}, &made)
	if down := (*serve.NotRunningError)(nil); errors.As(err, &down) {
		return fmt.Errorf("no node with an API runs in %s: start one with parley-fleet up (%w)", *data, down.Err)
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, made.Secret)
	return nil
}
