package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/socket"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/terminal"
	"github.com/parley-go/parley/wire"
)

// sessionFlags are the flags that choose the session of a conversation.
var sessionFlags = []string{"--continue", "--resume", "--fork-session", "--resume-session-at", "--resume-drops-turn", "--session-id", "--plain"}

// picksSession reports whether --resume has no id, which asks for the list of sessions, and
// returns the command line without it.
func picksSession(args []string) ([]string, bool) {
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if (arg == "-r" || arg == "--resume") && (i+1 == len(args) || strings.HasPrefix(args[i+1], "-")) {
			return slices.Delete(slices.Clone(args), i, i+1), true
		}
	}
	return args, false
}

// interact runs a conversation on a screen. It returns the exit status.
func interact(ctx context.Context, p *process, cfg agent.Config, flags *cli.Flags, args []string, pick bool) int {
	notes := make(chan string, 256)
	room, err := newScreenHub(ctx, p, cfg, flags, args, notes)
	if err != nil {
		return status(p, "parley", err)
	}
	defer room.close()
	home, _ := os.UserHomeDir()
	if h := p.getenv("HOME"); h != "" {
		home = h
	}
	c := terminal.Config{
		In: p.stdin.(*os.File), Out: p.stdout.(*os.File), Env: agent.WithoutCredentials(p.env), Cwd: cfg.Cwd, Home: home,
		Title: "parley " + parley.Version, Prompt: flags.Prompt, Notes: notes, NoPartials: shownByHooks(cfg, args),
		Open: room.open, Pick: pick, Plain: flags.Plain || p.getenv("TERM") == "dumb",
	}
	if !flags.NoPersist {
		if dir := cfg.ConfigDir(); dir != "" {
			c.History = filepath.Join(dir, "history.jsonl")
		}
		c.Sessions, c.Resume = room.list, room.resume
		c.Goodbye = func(id string) string { return room.goodbye(id) }
	}
	if prefs, err := agent.ReadSettings(cfg, args...); err == nil {
		var line struct{ Command string }
		if prefs.Decode(&line, "statusLine") {
			c.Status = line.Command
		}
	}
	status, err := terminal.Run(ctx, c)
	if err != nil {
		fmt.Fprintln(p.stderr, err)
	}
	return status
}

// attachScreen shows a session of another process on a screen until the person exits.
func attachScreen(ctx context.Context, p *process, c hub.Client, cwd, id string) error {
	status, err := terminal.Run(ctx, terminal.Config{
		In: p.stdin.(*os.File), Out: p.stdout.(*os.File), Env: agent.WithoutCredentials(p.env), Cwd: cwd, Home: p.getenv("HOME"), Title: "parley attach " + id,
		Open:    func(context.Context) (*terminal.Session, error) { return terminal.NewSession(c, id), nil },
		Goodbye: func(id string) string { return "The session continues; parley attach " + id + " shows it again." },
	})
	if err == nil && status != 0 {
		return exitStatus(status)
	}
	return err
}

// A screenHub is the access to the hub for the sessions of one screen: the user's hub, or
// one in this process.
type screenHub struct {
	client hub.Client
	own    bool          // the hub is in this process
	store  session.Store // nil if sessions are not stored
	cfg    agent.Config
	flags  *cli.Flags
	spec   json.RawMessage

	mu     sync.Mutex
	opened map[string]bool // sessions of this screen, and whether it created them
}

func newScreenHub(ctx context.Context, p *process, cfg agent.Config, flags *cli.Flags, args []string, notes chan<- string) (*screenHub, error) {
	kept, env, keepSecrets := splitSecrets(p, cli.Without(args, sessionFlags...))
	l := &screenHub{cfg: cfg, flags: flags, opened: map[string]bool{}, spec: hub.Args{Args: kept}.Spec()}
	note := func(line string) {
		select {
		case notes <- line:
		default:
		}
	}
	cfg.OnIndexing = nil // the screen shows the progress
	tune := func(c *hub.Config) {
		l.own = true
		c.Sessions, c.Name, c.Logger = l.store, fmt.Sprintf("terminal %d", os.Getpid()), nil
		c.IdleAfter = math.MaxInt64
		keepSecrets(c)
		base := c.Agent
		c.Agent = func(ctx context.Context, start hub.Start) (*parley.Options, error) {
			opts, err := base(ctx, start)
			if err == nil {
				opts.Stderr, opts.Checkpoints = note, l.store != nil
			}
			return opts, err
		}
	}
	dir := cfg.ConfigDir()
	if dir == "" || flags.NoPersist {
		config := hubConfig(p, cfg, new(hub.Memory))
		tune(&config)
		h, err := hub.New(config)
		if err != nil {
			return nil, err
		}
		l.client = ownedHub{h.Client(person), h}
		return l, nil
	}
	l.store = &session.Files{Dir: dir}
	c, err := openHub(ctx, p, cfg, env, func(c *hub.Config, why socket.Own) {
		tune(c)
		if len(why.Differs) > 0 {
			note("The session runs in this process: the hub has other values of " + someOf(why.Differs) + ".")
		}
	})
	l.client = c
	return l, err
}

var person = hub.Actor{Name: "terminal", From: "terminal", Rights: hub.Everything}

// An ownedHub is a client that closes its hub.
type ownedHub struct {
	hub.Client
	hub *hub.Hub
}

// Close implements [hub.Client].
func (o ownedHub) Close() error { return o.hub.Close() }

// close closes the access to the hub. It removes a session without a prompt. Sessions of
// this process end with it: no other hub continues a session that a person has left.
func (l *screenHub) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, created := range l.opened {
		state, err := l.client.State(ctx, id)
		switch {
		case err != nil:
		case created && state.N <= 2 && len(state.Queued) == 0: // created, owner
			l.client.Remove(ctx, id)
		case l.own && state.Phase != hub.Idle:
			l.client.Stop(ctx, id)
		}
	}
	l.client.Close()
}

func (l *screenHub) goodbye(id string) string {
	text := "To continue: parley --continue, or parley --resume " + id
	if !l.own {
		if state, err := l.client.State(context.Background(), id); err == nil && state.Phase != hub.Idle {
			text = "The session continues in the hub; parley attach " + id + " shows it again."
		}
	}
	return text
}

// session returns a session of this screen.
func (l *screenHub) session(id string, created bool) *terminal.Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened[id] = created
	return terminal.NewSession(l.client, id)
}

// open opens the session that the command line names.
func (l *screenHub) open(ctx context.Context) (*terminal.Session, error) {
	id := l.flags.Resume
	switch {
	case l.flags.Continue && l.store != nil:
		latest, err := session.Latest(ctx, l.store, l.cfg.Cwd)
		if err != nil && !errors.Is(err, session.ErrNotFound) {
			return nil, err
		}
		id = latest
	case id != "" && !session.ValidID(id) && l.store != nil:
		found, err := session.Find(ctx, l.store, id)
		if err != nil {
			return nil, fmt.Errorf("No conversation found with the title: %s", id)
		}
		id = found
	}
	if id == "" {
		// If the person exits in the meantime, the session is still removed.
		s := l.session(cmp.Or(l.flags.SessionID, session.NewID()), true)
		_, err := l.client.Create(context.WithoutCancel(ctx), hub.Spec{ID: s.ID(), Cwd: l.cfg.Cwd, Title: l.flags.SessionName, Agent: l.spec})
		if errors.Is(err, hub.ErrExists) {
			l.session(s.ID(), false)
		}
		return s, err
	}
	if l.flags.Fork {
		fork, err := l.client.Create(ctx, hub.Spec{From: &hub.Reference{Session: id}, Agent: l.spec})
		if err != nil {
			return nil, l.explain(id, err)
		}
		id = fork
	}
	s, err := l.resume(ctx, id)
	if err == nil && l.flags.ResumeAt != "" {
		err = l.client.Rewind(ctx, id, l.flags.ResumeAt)
	}
	return s, err
}

// resume opens an existing session with the options of the command line.
func (l *screenHub) resume(ctx context.Context, id string) (*terminal.Session, error) {
	if err := l.client.Open(ctx, hub.Spec{ID: id, Agent: l.spec}); err != nil {
		return nil, l.explain(id, err)
	}
	// Choices from the earlier session must not override the command line.
	var err error
	if mode := l.flags.PermissionMode; mode != "" {
		err = hub.Call(ctx, l.client, id, &wire.SetPermissionMode{Mode: wire.PermissionMode(mode)}, nil)
	}
	if model := l.flags.Model; model != "" && err == nil {
		err = hub.Call(ctx, l.client, id, &wire.SetModel{Model: model}, nil)
	}
	return l.session(id, false), err
}

func (l *screenHub) explain(id string, err error) error {
	switch {
	case errors.Is(err, hub.ErrNotFound) || errors.Is(err, session.ErrNotFound):
		return fmt.Errorf("No conversation found with session ID: %s", id)
	case errors.Is(err, hub.ErrLocked):
		return fmt.Errorf("The session runs in another parley process. \"parley attach %s\" shows it", id)
	}
	return err
}

// list returns the sessions of this directory.
func (l *screenHub) list(ctx context.Context) ([]terminal.Saved, error) {
	all, err := session.List(ctx, l.store, &session.ListOptions{Dir: l.cfg.Cwd})
	if err != nil {
		return nil, err
	}
	var out []terminal.Saved
	for _, s := range all {
		title := s.Summary
		if s.CustomTitle != "" {
			title = s.CustomTitle
		}
		out = append(out, terminal.Saved{ID: s.ID, Title: title, Branch: s.Branch(), Modified: s.Modified, Preview: func() string { return l.preview(ctx, s.ID) }})
	}
	return out, nil
}

// previewMessages is how many messages of a session a preview shows.
const previewMessages = 6

// preview returns the end of a conversation as Markdown.
func (l *screenHub) preview(ctx context.Context, id string) string {
	all, err := session.Messages(ctx, l.store, id, nil)
	if err != nil {
		return err.Error()
	}
	var parts []string
	for i := len(all) - 1; i >= 0 && len(parts) < previewMessages; i-- {
		var m wire.UserMessage
		if json.Unmarshal(all[i].Message, &m) != nil {
			continue
		}
		text := ""
		for _, b := range m.Content.All() {
			if t, ok := b.(*wire.TextBlock); ok {
				text += t.Text
			}
		}
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if all[i].Type == "user" {
			text = "> " + strings.ReplaceAll(text, "\n", "\n> ")
		}
		parts = append(parts, text)
	}
	slices.Reverse(parts)
	return strings.Join(parts, "\n\n")
}
