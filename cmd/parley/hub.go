package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/aymanbagabas/go-udiff"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/acp"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/socket"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/terminal"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// hubDir returns the directory of the journals and the socket of this user's hub.
func hubDir(cfg *agent.Config) (string, error) {
	dir := cfg.ConfigDir()
	if dir == "" {
		return "", errors.New("no home directory to keep sessions in; set HOME or CLAUDE_CONFIG_DIR")
	}
	return filepath.Join(dir, "hub"), nil
}

// writableHubDir is [hubDir] for a process that writes there: it creates the directory and a
// file in it. A hub that cannot write would first log its own problems.
func writableHubDir(cfg *agent.Config) (string, error) {
	dir, err := hubDir(cfg)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, ".writable-")
	if err != nil {
		return "", err
	}
	f.Close()
	return dir, os.Remove(f.Name())
}

// socketPath returns the path of the socket of this user's hub.
func socketPath(cfg *agent.Config) (string, error) {
	dir, err := hubDir(cfg)
	return filepath.Join(dir, "socket"), err
}

// hubIdle is how long an idle hub keeps running.
const hubIdle = 5 * time.Minute

// hubCommand runs the hub of this user until it is idle.
func hubCommand(ctx context.Context, p *process, args []string) error {
	fs := newFlags(p, "hub", "[--stop]", `
Runs the hub of this user: the process that runs the sessions of "parley --bg". It starts by itself,
and exits when nothing runs, nobody is attached and no schedule waits. If it is killed, nothing is
lost: sessions continue when the next hub starts.`)
	end := fs.Bool("stop", false, "stop the running hub; sessions are kept")
	if err := cmp.Or(parse(fs, args), noWords(fs)); err != nil {
		return err
	}
	if *end {
		c, _, err := joinHub(ctx, p, false)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.Shutdown(ctx); err != nil {
			return err
		}
		for err == nil && ctx.Err() == nil { // until it has exited
			time.Sleep(10 * time.Millisecond)
			_, err = c.List(ctx)
		}
		return ctx.Err()
	}
	cfg, err := agentConfig(p)
	if err != nil {
		return err
	}
	dir, err := hubDir(&cfg)
	if err != nil {
		return err
	}
	path, err := socketPath(&cfg)
	if err != nil {
		return err
	}
	l, err := socket.Listen(path)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := socket.Adopt(); err != nil {
		return fmt.Errorf("cannot distinguish commands of agents from commands of people: %w", err)
	}
	h, err := newHub(p, cfg, &hub.Files{Dir: dir, Watch: true})
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go socket.Reap(ctx)
	go func() {
		for quiet := time.Duration(0); quiet < hubIdle; {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
			if quiet += time.Second; h.Busy() {
				quiet = 0
			} else if quiet >= hubIdle {
				if pending, err := h.Pending(ctx); pending || err != nil {
					quiet = 0
				}
			}
		}
		cancel()
	}()
	// Sessions stay as they are: they continue with the next hub.
	return socket.Serve(ctx, h, l)
}

// newHub starts a hub in this process. Its agents have the configuration cfg.
func newHub(p *process, cfg agent.Config, b hub.Backend) (*hub.Hub, error) {
	return hub.New(hubConfig(p, cfg, b))
}

func hubConfig(p *process, cfg agent.Config, b hub.Backend) hub.Config {
	// The sessions share the tools, the catalog and the connections to the model.
	own := sync.OnceValue(func() transport.Dialer { return agent.InProcess(cfg) })
	return hub.Config{
		Backend: b, Sessions: &session.Files{Dir: cfg.ConfigDir()}, Name: fmt.Sprintf("hub %d", os.Getpid()), Describe: describeCall,
		Logger: slog.New(slog.NewTextHandler(p.stderr, nil)), Environment: digests(p.env),
		Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
			var spec hub.Args
			if len(start.Spec) > 0 {
				if err := json.Unmarshal(start.Spec, &spec); err != nil {
					return nil, err
				}
			}
			if spec.Remote != "" {
				return nil, fmt.Errorf("the agent of the session (%s) runs elsewhere and connects to parley serve; run \"parley serve\"", spec.Remote)
			}
			switch flags, err := cli.Parse(spec.Args); {
			case err != nil:
			case flags.ACP != "":
				other := &acp.Agent{Command: strings.Fields(flags.ACP), Sessions: filepath.Join(cfg.ConfigDir(), "hub", "acp")}
				return agentOptions(start.Cwd, other, cli.Without(spec.Args, "--acp")), nil
			case flags.CLI != "":
				opts := agentOptions(start.Cwd, &transport.Process{}, cli.Without(spec.Args, "--cli"))
				opts.Path = flags.CLI
				return opts, nil
			}
			return agentOptions(start.Cwd, own(), spec.Args), nil
		},
	}
}

// agentOptions returns the options of an agent with additional flags.
func agentOptions(cwd string, dialer transport.Dialer, args []string) *parley.Options {
	return &parley.Options{Cwd: cwd, KeepSystemPrompt: true, Checkpoints: true, Dialer: transport.DialerFunc(func(ctx context.Context, s transport.Spec) (transport.Conn, error) {
		s.Words = append(slices.Clone(args), s.Words...)
		return dialer.Dial(ctx, s)
	})}
}

// ownVariables are variables of a terminal and its shell that do not matter to agents.
var ownVariables = []string{"_", "COLORTERM", "COLUMNS", "GPG_TTY", "HISTFILE", "INVOCATION_ID", "JOURNAL_STREAM", "LINES", "OLDPWD", "PWD", "SHLVL", "SSH_CLIENT", "SSH_CONNECTION",
	"SSH_TTY", "STY", "TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TERM_SESSION_ID", "TMUX", "TMUX_PANE", "VTE_VERSION", "WINDOW", "WINDOWID", "XDG_SESSION_ID"}

// digests returns "NAME=digest" for the variables that matter to agents. Processes with the
// same digests can share a hub.
func digests(env []string) []string {
	all := []string{}
	for _, v := range env {
		if name, value, ok := strings.Cut(v, "="); ok && name != "" && !slices.Contains(ownVariables, name) {
			sum := sha256.Sum256([]byte(value))
			all = append(all, fmt.Sprintf("%s=%x", name, sum[:8]))
		}
	}
	return all
}

// someOf formats the first few of some variables.
func someOf(names []string) string {
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}

// secretFlags are flags whose values no journal may contain.
var secretFlags = []string{"--api-key"}

// splitSecrets returns a command line without secrets, because other processes may learn it,
// and the digests of the environment. With a secret the digests match no other hub, so that a
// hub in this process runs the sessions; keep adds the secrets to the agents that it starts.
func splitSecrets(p *process, args []string) (kept, env []string, keep func(*hub.Config)) {
	var secrets []string
	for i, arg := range args {
		name, _, joined := strings.Cut(arg, "=")
		switch {
		case !slices.Contains(secretFlags, name):
		case joined:
			secrets = append(secrets, arg)
		case i+1 < len(args):
			secrets = append(secrets, arg, args[i+1])
		}
	}
	kept, env = cli.Without(args, secretFlags...), digests(p.env)
	if secrets == nil {
		return kept, env, func(*hub.Config) {}
	}
	return kept, append(env, strings.Join(secretFlags, " ")), func(c *hub.Config) {
		base := c.Agent
		c.Agent = func(ctx context.Context, start hub.Start) (*parley.Options, error) {
			var spec hub.Args
			if len(start.Spec) > 0 {
				if err := json.Unmarshal(start.Spec, &spec); err != nil {
					return nil, err
				}
			}
			start.Spec = hub.Args{Args: slices.Concat(secrets, spec.Args)}.Spec()
			return base(ctx, start)
		}
	}
}

// openHub returns a client of the hub of this user: the running one, if its environment has
// the digests env, or else one in this process, whose agents have the configuration cfg. A hub
// of this process shares its journals, so that its sessions can be listed and attached to like
// all others. own changes its configuration. The caller closes the client.
func openHub(ctx context.Context, p *process, cfg agent.Config, env []string, own func(*hub.Config, socket.Own)) (hub.Client, error) {
	dir, err := hubDir(&cfg)
	if err != nil {
		return nil, err
	}
	path, err := socketPath(&cfg)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	me := hub.Actor{Name: "user", From: "terminal", Rights: hub.Everything}
	return socket.Join(ctx, path, me, env, func(why socket.Own) (*hub.Hub, error) {
		var b hub.Backend = new(hub.Memory)
		if !why.Private {
			b = &hub.Files{Dir: dir, Watch: true}
			// A command of an agent must stay recognizable after it loses its parent.
			if err := socket.Adopt(); err != nil {
				return nil, fmt.Errorf("cannot distinguish commands of agents from commands of people: %w", err)
			}
			go socket.Reap(ctx)
		}
		config := hubConfig(p, cfg, b)
		config.OwnOnly = !why.Private
		if config.OwnOnly {
			config.OnSchedule = func(ctx context.Context) error { // a hub that fires it, also after this process has ended
				c, _, err := joinHub(ctx, p, true)
				if err != nil {
					return fmt.Errorf("the schedule is saved, but no hub runs to send its prompts: %w", err)
				}
				return c.Close()
			}
		}
		own(&config, why)
		return hub.New(config)
	})
}

// joinHub returns a client of this user's hub. With start it starts the hub if necessary.
func joinHub(ctx context.Context, p *process, start bool) (*socket.Client, *agent.Config, error) {
	cfg, err := agentConfig(p)
	if err != nil {
		return nil, nil, err
	}
	path, err := socketPath(&cfg)
	if err != nil {
		return nil, nil, err
	}
	c := socket.NewClient(path)
	_, err = c.List(ctx)
	var refused *socket.Error
	if err == nil || errors.As(err, &refused) {
		return c, &cfg, err
	}
	if !start {
		return nil, nil, errors.New("no hub is running; \"parley --bg PROMPT\" starts a session, and a hub for it")
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, err
	}
	log, err := os.OpenFile(filepath.Join(filepath.Dir(path), "hub.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	cmd := exec.Command(exe, "hub")
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = string(filepath.Separator), p.env, log, log, detached()
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("cannot start the hub: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		if _, err = c.List(ctx); err == nil || errors.As(err, &refused) {
			return c, &cfg, err
		}
		select {
		case <-ended: // another process may have been faster
			if _, err = c.List(ctx); err == nil {
				return c, &cfg, nil
			}
			text, _ := os.ReadFile(log.Name())
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			return nil, nil, fmt.Errorf("the hub ended at once: %s; see %s", terminal.Visible(strings.TrimPrefix(lines[len(lines)-1], "parley hub: ")), log.Name())
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// isBackground reports whether a command line has the flag for a background session, and
// returns it without that flag.
func isBackground(args []string) ([]string, bool) {
	i := slices.IndexFunc(args, func(a string) bool { return a == "--bg" || a == "--background" || a == "--" })
	if i < 0 || args[i] == "--" {
		return args, false
	}
	return slices.Delete(slices.Clone(args), i, i+1), true
}

// runBackground starts a session in the hub and prints its id.
func runBackground(ctx context.Context, p *process, args []string) error {
	args, tree, err := cutWorktreeFlag(args)
	if err != nil {
		return err
	}
	flags, err := cli.Parse(args)
	if err != nil {
		return usagef("%s", plain(err))
	}
	if strings.TrimSpace(flags.Prompt) == "" {
		return usagef("the prompt is missing: parley --bg \"Which tests are flaky?\"")
	}
	if flags.Continue || flags.Fork {
		return usagef("--bg needs the id of the session to continue: parley --bg --resume ID PROMPT")
	}
	args = cli.Without(args, append([]string{"--print"}, sessionFlags...)...)
	if kept, _, _ := splitSecrets(p, args); len(kept) < len(args) {
		return usagef("--bg does not accept --api-key, because the key would be written to disk; set ANTHROPIC_API_KEY where the hub is started")
	}
	c, cfg, err := joinHub(ctx, p, true)
	if err != nil {
		return err
	}
	defer c.Close()
	if names, err := c.Differs(ctx, digests(p.env)); err == nil && len(names) > 0 {
		fmt.Fprintf(p.stderr, "Warning: the session runs with the environment of the hub, which has other values of %s; parley hub --stop ends that hub.\n", someOf(names))
	}
	spec := hub.Spec{ID: flags.SessionID, Cwd: cfg.Cwd, Title: flags.SessionName, AddWorktree: tree, Agent: hub.Args{Args: args}.Spec()}
	id := flags.Resume
	if id != "" {
		spec.ID = id
		err = c.Open(ctx, spec)
	} else {
		id, err = c.Create(ctx, spec)
	}
	if err != nil {
		return err
	}
	uuid, err := c.Prompt(ctx, id, wire.Prompt(wire.Text(flags.Prompt)))
	if err != nil {
		return err
	}
	// The prompt is durable. Wait until the journal has it, so that an attach that follows shows it. A
	// resumed session has older prompts.
	for e, err := range c.Attach(ctx, id, 0) {
		var accepted hub.Prompt
		if err != nil || e.Kind == hub.KindPrompt && json.Unmarshal(e.Data, &accepted) == nil && accepted.UUID == uuid {
			break
		}
	}
	fmt.Fprintln(p.stdout, id)
	return nil
}

// cutWorktreeFlag returns the command line without --worktree, and its value.
func cutWorktreeFlag(args []string) (rest []string, name string, err error) {
	for i, arg := range args {
		switch value, long := strings.CutPrefix(arg, "--worktree="); {
		case arg == "--":
			return args, "", nil
		case long:
			name, rest = value, slices.Delete(slices.Clone(args), i, i+1)
		case (arg == "--worktree" || arg == "-w") && i+1 < len(args):
			name, rest = args[i+1], slices.Delete(slices.Clone(args), i, i+2)
		case arg == "--worktree" || arg == "-w":
		default:
			continue
		}
		if name == "" {
			return nil, "", usagef("name the worktree: parley --bg --worktree NAME PROMPT")
		}
		return rest, name, nil
	}
	return args, "", nil
}

// agentsCommand lists the sessions of the hub.
func agentsCommand(ctx context.Context, p *process, args []string) error {
	fs := newFlags(p, "agents", "[--json]", `
Lists the sessions of the hub, with their state and open questions.`)
	asJSON := fs.Bool("json", false, "print JSON")
	if err := cmp.Or(parse(fs, args), noWords(fs)); err != nil {
		return err
	}
	c, _, err := joinHub(ctx, p, true)
	if err != nil {
		return err
	}
	defer c.Close()
	all, err := c.List(ctx)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(p.stdout).Encode(all)
	}
	if len(all) == 0 {
		fmt.Fprintln(p.stderr, "No sessions. \"parley --bg PROMPT\" starts one.")
	}
	w := tabwriter.NewWriter(p.stdout, 0, 4, 2, ' ', 0)
	for _, s := range all {
		what := s.State.Title
		for _, wait := range s.State.Waiting {
			what += " " + wait.String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.ID, s.State.Phase, terminal.Visible(s.State.Cwd), terminal.Visible(strings.TrimSpace(what)))
	}
	return w.Flush()
}

// sessionArg returns the session that a command line names: by its id, or by a prefix of it.
func sessionArg(ctx context.Context, c *socket.Client, word string) (string, error) {
	if session.ValidID(word) {
		return word, nil
	}
	all, err := c.List(ctx)
	if err != nil {
		return "", err
	}
	return oneOf("session", "agents", word, all, func(s hub.Info) string { return s.ID })
}

// withSession parses the flags of a command about one session and calls f.
func withSession(ctx context.Context, p *process, fs *flagSet, args []string, f func(c *socket.Client, id string) error) error {
	words, err := parseWords(fs, args)
	if err != nil {
		return err
	}
	if len(words) != 1 {
		return usagef("name one session: parley %s ID; \"parley agents\" lists them", fs.Name())
	}
	c, _, err := joinHub(ctx, p, true)
	if err != nil {
		return err
	}
	defer c.Close()
	id, err := sessionArg(ctx, c, words[0])
	if err != nil {
		return err
	}
	return f(c, id)
}

func stopCommand(ctx context.Context, p *process, args []string) error {
	fs := newFlags(p, "stop", "ID", `
Interrupts a session of the hub and ends its agent. The next prompt starts it again.`)
	return withSession(ctx, p, fs, args, func(c *socket.Client, id string) error { return c.Stop(ctx, id) })
}

func rmCommand(ctx context.Context, p *process, args []string) error {
	fs := newFlags(p, "rm", "ID", `
Stops a session and removes it from the hub. The conversation itself stays: "parley sessions" lists it.`)
	return withSession(ctx, p, fs, args, func(c *socket.Client, id string) error { return c.Remove(ctx, id) })
}

func logsCommand(ctx context.Context, p *process, args []string) error {
	fs := newFlags(p, "logs", "[--json] [--follow] [--after N] ID", `
Prints the messages, questions and answers of a session of the hub. With --json it prints the
numbered entries of its journal, one per line.`)
	asJSON := fs.Bool("json", false, "print the entries as JSON")
	follow := fs.Bool("follow", false, "keep printing new entries")
	after := fs.Uint64("after", 0, "start after the entry with this number, `N`")
	return withSession(ctx, p, fs, args, func(c *socket.Client, id string) error {
		for e, err := range c.Attach(ctx, id, *after) {
			switch {
			case err != nil:
				return err
			case e.Kind == hub.KindState && !*follow:
				return nil
			case *asJSON && e.N > 0:
				fmt.Fprintf(p.stdout, "%s\n", e.AppendTo(nil))
			case !*asJSON:
				printEntry(p.stdout, e)
			}
		}
		return nil
	})
}

// attachCommand shows a session, sends lines as prompts, and answers questions.
func attachCommand(ctx context.Context, p *process, args []string) error {
	fs := newFlags(p, "attach", "ID", `
Shows the end of a session of the hub, on the same screen as parley itself. Ctrl-D leaves the
session as it is.

Without a terminal, with --after or with TERM=dumb, it prints lines, from the beginning. Each line of
input is a prompt. While a question is open, "y" allows the call, and "n" or "n REASON" denies it.
If the input is not a terminal, attach exits after its end, as soon as the session is idle or waits
for an answer.`)
	after := fs.Uint64("after", 0, "start after the entry with this number, `N`")
	return withSession(ctx, p, fs, args, func(c *socket.Client, id string) error {
		if *after == 0 && isTerminal(p.stdin) && isTerminal(p.stdout) && p.getenv("TERM") != "dumb" {
			state, err := c.State(ctx, id)
			if err != nil {
				return err
			}
			return attachScreen(ctx, p, c, state.Cwd, id)
		}
		ctx, stop := untilSignal(ctx)
		defer stop()
		asks := &openAsks{bell: make(chan struct{}, 1)}
		// At the end of the input, attach again to receive the state again.
		view, attachAgain := context.WithCancel(ctx)
		defer attachAgain()
		last := false
		go func() {
			typed(ctx, p, c, id, asks)
			if isTerminal(p.stdin) {
				stop()
			}
			attachAgain()
		}()
		away := ""
		for n := *after; ; {
			for e, err := range c.Attach(view, id, n) {
				if ctx.Err() != nil {
					return nil
				}
				if !last && view.Err() != nil {
					break
				}
				var refused *socket.Error
				if errors.As(err, &refused) {
					return err
				}
				if err != nil {
					break // the hub was restarted, or this viewer was too slow: continue after n
				}
				n = max(n, e.N)
				asks.see(e)
				printEntry(p.stdout, e)
				var state hub.State
				if e.Kind != hub.KindState || json.Unmarshal(e.Data, &state) != nil {
					continue
				}
				if now := state.AgentAway(); now != away {
					if away = now; away != "" {
						fmt.Fprintf(p.stdout, "! it %s\n", terminal.Visible(away))
					}
				}
				if last && state.Phase != hub.Running && asks.allSeen() {
					return nil
				}
			}
			if !last && view.Err() != nil && ctx.Err() == nil {
				view, last = ctx, true
				continue
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(200 * time.Millisecond):
			}
			if next, _, err := joinHub(ctx, p, true); err == nil {
				next.Close()
			}
		}
	})
}

// openAsks are the unanswered questions, in order.
type openAsks struct {
	mu   sync.Mutex
	list []*hub.Ask
	sent []string // prompts and answers from here that the journal has not shown yet
	rest bool     // the session is idle, as far as it was shown
	bell chan struct{}
}

// waitShown waits until the session is idle and has shown everything that was sent, so that a
// line of a script is what its writer expects: an answer or a prompt.
func (o *openAsks) waitShown(ctx context.Context) {
	for {
		o.mu.Lock()
		settled := o.rest && len(o.sent) == 0
		o.mu.Unlock()
		if settled {
			return
		}
		select {
		case <-o.bell:
		case <-ctx.Done():
			return
		}
	}
}

// send calls f, which sends the prompt or the answer to the question with an id.
func (o *openAsks) send(id string, f func() error) error {
	o.mu.Lock()
	o.sent = append(o.sent, id)
	o.mu.Unlock()
	err := f()
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.forget(id)
	}
	return err
}

func (o *openAsks) forget(id string) {
	o.sent = slices.DeleteFunc(o.sent, func(s string) bool { return s == id })
}

// allSeen reports whether the journal has shown everything that was sent.
func (o *openAsks) allSeen() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.sent) == 0
}

// see processes an entry.
func (o *openAsks) see(e hub.Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() {
		select {
		case o.bell <- struct{}{}:
		default:
		}
	}()
	switch e.Kind {
	case hub.KindState:
		var state hub.State
		json.Unmarshal(e.Data, &state)
		o.rest = state.Phase != hub.Running
	case hub.KindAsk:
		ask := new(hub.Ask)
		if json.Unmarshal(e.Data, ask) == nil {
			o.list = append(o.list, ask)
		}
	case hub.KindAnswer:
		var ans hub.Answer
		json.Unmarshal(e.Data, &ans)
		o.list = slices.DeleteFunc(o.list, func(a *hub.Ask) bool { return a.ID == ans.Ask })
		o.forget(ans.Ask)
		o.rest = false // until the state is shown
	case hub.KindPrompt:
		var pr hub.Prompt
		json.Unmarshal(e.Data, &pr)
		o.forget(pr.UUID)
		o.rest = false
	}
}

func (o *openAsks) first() *hub.Ask {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.list) == 0 {
		return nil
	}
	return o.list[0]
}

// describeCall returns the file that a call affects, with links resolved, and the change that
// it would make.
func describeCall(req *wire.CanUseTool) (paths []string, diff string) {
	var in struct {
		FilePath     string `json:"file_path"`
		NotebookPath string `json:"notebook_path"`
		Path         string `json:"path"`
		Content      string `json:"content"`
		Old          string `json:"old_string"`
		New          string `json:"new_string"`
		All          bool   `json:"replace_all"`
	}
	json.Unmarshal(req.Input, &in)
	for _, path := range []string{in.FilePath, in.NotebookPath, in.Path, req.BlockedPath} {
		if !filepath.IsAbs(path) {
			continue
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		} else if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			path = filepath.Join(dir, filepath.Base(path))
		}
		if !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 || req.ToolName != "Write" && req.ToolName != "Edit" {
		return paths, ""
	}
	info, err := os.Stat(paths[0])
	if err == nil && (!info.Mode().IsRegular() || info.Size() > 1<<20) {
		return paths, ""
	}
	before, _ := os.ReadFile(paths[0])
	after := in.Content
	if req.ToolName == "Edit" {
		n := 1
		if in.All {
			n = -1
		}
		after = strings.Replace(string(before), in.Old, in.New, n)
	}
	return paths, udiff.Unified(paths[0], paths[0], string(before), after)
}

// typed sends the lines that the user types.
func typed(ctx context.Context, p *process, c *socket.Client, id string, asks *openAsks) {
	in := bufio.NewScanner(p.stdin)
	for in.Scan() {
		line := strings.TrimSpace(in.Text())
		if !isTerminal(p.stdin) {
			asks.waitShown(ctx)
		}
		var err error
		if ask := asks.first(); ask != nil && (line == "y" || line == "n" || strings.HasPrefix(line, "n ")) {
			answer := hub.Answer{Ask: ask.ID, Shown: ask.Hash, Response: json.RawMessage(`{"behavior":"allow"}`)}
			if line != "y" {
				reason, _ := json.Marshal(strings.TrimSpace(strings.TrimPrefix(line, "n")))
				answer.Response = json.RawMessage(`{"behavior":"deny","message":` + string(reason) + `}`)
			}
			err = asks.send(ask.ID, func() error { return c.Answer(ctx, id, answer) })
		} else if line != "" {
			m := wire.Prompt(wire.Text(line))
			m.UUID = session.NewID()
			err = asks.send(m.UUID, func() error {
				_, err := c.Prompt(ctx, id, m)
				return err
			})
		}
		if err != nil && ctx.Err() == nil {
			fmt.Fprintln(p.stderr, "parley attach:", plain(err))
		}
	}
}

// printEntry prints the part of an entry that is for people.
func printEntry(w io.Writer, e hub.Entry) {
	switch e.Kind {
	case hub.KindPrompt:
		var pr hub.Prompt
		if json.Unmarshal(e.Data, &pr) == nil {
			if m, err := wire.Decode(pr.Message); err == nil {
				if u, ok := m.(*wire.User); ok {
					fmt.Fprintf(w, "> %s\n", terminal.Readable(u.Message.Content.String()))
				}
			}
		}
	case hub.KindAsk:
		var ask hub.Ask
		if json.Unmarshal(e.Data, &ask) == nil {
			var call struct{ Input json.RawMessage }
			if json.Unmarshal(ask.Request, &call) != nil || call.Input == nil {
				call.Input = ask.Request // a question that is not about a call
			}
			fmt.Fprintf(w, "? %s: %s\n", terminal.Visible(ask.Tool), terminal.Visible(string(call.Input)))
			for _, path := range ask.Paths {
				fmt.Fprintf(w, "  file: %s\n", terminal.Visible(path))
			}
			if ask.Diff != "" {
				fmt.Fprint(w, terminal.VisibleLines(ask.Diff))
			}
			fmt.Fprintln(w, "  y: allow it, n: deny it")
		}
	case hub.KindAnswer:
		var ans hub.Answer
		if json.Unmarshal(e.Data, &ans) == nil {
			fmt.Fprintf(w, "  %s by %s\n", terminal.Visible(string(ans.Outcome)), terminal.Visible(ans.By.Name))
		}
	case hub.KindEnded:
		var x hub.Ended
		if json.Unmarshal(e.Data, &x) == nil {
			fmt.Fprintf(w, "! %s\n", terminal.Visible(x.Reason))
		}
	case hub.KindFrame:
		m, err := wire.Decode(e.Data)
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *wire.Assistant:
			for _, b := range m.Message.Content.All() {
				switch b := b.(type) {
				case *wire.TextBlock:
					fmt.Fprintln(w, terminal.Readable(b.Text))
				case *wire.ToolUseBlock:
					fmt.Fprintf(w, "* %s %s\n", terminal.Visible(b.Name), terminal.Visible(string(b.Input)))
				}
			}
		case *wire.Result:
			if m.IsError {
				fmt.Fprintf(w, "! %s\n", terminal.Visible(m.Reason()))
			}
		}
	}
}
