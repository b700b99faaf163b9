package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/terminal"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// sessionFlags are the flags that say which session a conversation is in.
var sessionFlags = []string{"--continue", "--resume", "--fork-session", "--resume-session-at", "--resume-drops-turn", "--session-id", "--plain"}

// picksSession reports whether --resume stands without an id, which asks for the list of
// sessions, and returns the command line without it.
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

// interact holds a conversation on a screen. It returns the exit status.
func interact(ctx context.Context, p *process, cfg agent.Config, flags *agent.Flags, args []string, pick bool) int {
	notes := make(chan string, 256)
	room, err := newLocalHub(cfg, flags, args, notes)
	if err != nil {
		fmt.Fprintln(p.stderr, err)
		return exitFailure
	}
	defer room.hub.Close()
	home, _ := os.UserHomeDir()
	if h := p.getenv("HOME"); h != "" {
		home = h
	}
	c := terminal.Config{
		In: p.stdin.(*os.File), Out: p.stdout.(*os.File), Env: p.env, Cwd: cfg.Cwd, Home: home,
		Title: "parley " + parley.Version, Prompt: flags.Prompt, Notes: notes, NoPartials: shownByHooks(cfg, flags),
		Open: room.open, Pick: pick, Plain: flags.Plain || p.getenv("TERM") == "dumb",
	}
	if !flags.NoPersist {
		if dir := cfg.ConfigDir(); dir != "" {
			c.History = filepath.Join(dir, "history.jsonl")
		}
		c.Sessions, c.Resume = room.list, room.resume
		c.Goodbye = func(id string) string { return "parley --continue goes on; so does parley --resume " + id }
	}
	if prefs, err := agent.ReadSettings(cfg, flags); err == nil {
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

// attachScreen shows a session of another process on a screen until the person leaves it.
func attachScreen(ctx context.Context, p *process, c hub.Client, cwd, id string) error {
	_, err := terminal.Run(ctx, terminal.Config{
		In: p.stdin.(*os.File), Out: p.stdout.(*os.File), Env: p.env, Cwd: cwd, Home: p.getenv("HOME"), Title: "parley attach " + id,
		Open:    func(context.Context) (*terminal.Session, error) { return terminal.NewSession(c, id), nil },
		Goodbye: func(id string) string { return "The session goes on; parley attach " + id + " shows it again." },
	})
	return err
}

// A localHub is a hub in this process, for the sessions of one screen.
type localHub struct {
	hub    *hub.Hub
	client hub.Client
	store  session.Store // nil if sessions are not kept
	cfg    agent.Config
	flags  *agent.Flags
	args   []string
}

var person = hub.Actor{Name: "terminal", From: "terminal", Rights: hub.Everything}

func newLocalHub(cfg agent.Config, flags *agent.Flags, args []string, notes chan<- string) (*localHub, error) {
	l := &localHub{cfg: cfg, flags: flags, args: agent.WithoutFlags(args, sessionFlags...)}
	if dir := cfg.ConfigDir(); dir != "" && !flags.NoPersist {
		l.store = &session.Files{Dir: dir}
	}
	cfg.OnIndexing = nil // the screen shows it
	dialer := agent.InProcess(cfg)
	h, err := hub.New(hub.Config{
		Backend: new(hub.Memory), Sessions: l.store, Name: fmt.Sprintf("terminal %d", os.Getpid()), Describe: describeCall,
		IdleAfter: math.MaxInt64, // rules for this session live in the agent
		Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
			return &parley.Options{
				Cwd: start.Cwd, KeepSystemPrompt: true, Checkpoints: l.store != nil,
				Stderr: func(line string) {
					select {
					case notes <- line:
					default:
					}
				},
				Dialer: transport.DialerFunc(func(ctx context.Context, s transport.Spec) (transport.Conn, error) {
					s.Args = append(slices.Clone(l.args), s.Args...)
					return dialer.Dial(ctx, s)
				}),
			}, nil
		},
	})
	if err != nil {
		return nil, err
	}
	l.hub, l.client = h, h.Client(person)
	return l, nil
}

// open opens the session that the command line names.
func (l *localHub) open(ctx context.Context) (*terminal.Session, error) {
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
	if id != "" {
		s, err := l.resume(ctx, id)
		if err != nil || !l.flags.Fork && l.flags.ResumeAt == "" {
			return s, err
		}
		if l.flags.Fork {
			fork, err := l.hub.Session(id).Fork(ctx, person, 0)
			if err != nil {
				return nil, err
			}
			s = terminal.NewSession(l.client, fork.ID())
		}
		if l.flags.ResumeAt != "" {
			err = l.client.Rewind(ctx, s.ID(), l.flags.ResumeAt)
		}
		return s, err
	}
	id, err := l.client.Create(ctx, hub.Spec{ID: l.flags.SessionID, Cwd: l.cfg.Cwd, Title: l.flags.SessionName})
	if err != nil {
		return nil, err
	}
	return terminal.NewSession(l.client, id), nil
}

// resume opens a session that exists.
func (l *localHub) resume(ctx context.Context, id string) (*terminal.Session, error) {
	if err := l.client.Open(ctx, hub.Spec{ID: id}); err != nil {
		if errors.Is(err, hub.ErrNotFound) || errors.Is(err, session.ErrNotFound) {
			return nil, fmt.Errorf("No conversation found with session ID: %s", id)
		}
		return nil, err
	}
	return terminal.NewSession(l.client, id), nil
}

// list returns the sessions of this directory.
func (l *localHub) list(ctx context.Context) ([]terminal.Saved, error) {
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
		out = append(out, terminal.Saved{ID: s.ID, Title: title, Branch: s.GitBranch, Modified: s.Modified, Preview: func() string { return l.preview(ctx, s.ID) }})
	}
	return out, nil
}

// previewMessages is how many messages of a session a preview shows.
const previewMessages = 6

// preview returns the end of a conversation as Markdown.
func (l *localHub) preview(ctx context.Context, id string) string {
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
