package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/model/catalog"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/internal/deepstack"
	"github.com/parley-go/parley/internal/telemetry"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// Run is the command without its subcommands: it parses a command line and runs the
// conversation. It returns the exit status.
func Run(ctx context.Context, cfg Config, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags, err := cli.Parse(args)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return run(ctx, &cfg, flags, stdin, stdout, stderr)
}

// run changes cfg. Its frame stays on the stack of a conversation that waits, so it holds no copy of it.
func run(ctx context.Context, cfg *Config, flags *cli.Flags, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx = traceOf(ctx, cfg.Environ)
	stderr = &lockedWriter{w: stderr}
	debug := io.Discard
	switch {
	case flags.DebugFile != "":
		file := flags.DebugFile
		if !filepath.IsAbs(file) {
			file = filepath.Join(cfg.Cwd, file)
		}
		err := os.MkdirAll(filepath.Dir(file), 0o700)
		var f *os.File
		if err == nil {
			f, err = os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		}
		if err != nil {
			fmt.Fprintf(stderr, "Error: the debug file cannot be written: %v\n", err)
			return 1
		}
		defer f.Close()
		debug = f
	case flags.Debug || flags.DebugToStderr:
		debug = stderr
	}
	if debug != io.Discard && cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(debug, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	set, err := newSetup(cfg, flags)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	defer set.close()
	if len(flags.Ignored) > 0 {
		slices.Sort(flags.Ignored)
		set.notices = append(set.notices, "flags without effect in this version: "+strings.Join(slices.Compact(flags.Ignored), ", "))
	}
	set.notices = append(set.notices, flags.Problems...)
	if text := ignoredSettings(set.prefs(), nil); text != "" {
		set.notices = append(set.notices, text)
	}
	set.warn(stderr)
	if flags.InitOnly {
		return set.setUp(ctx, stderr)
	}
	names, at := set.prefs().Unknown()
	for i, name := range names {
		fmt.Fprintf(debug, "[debug] %v: the setting %s is not known to this version\n", at[i], name)
	}
	if flags.AwaitClaim {
		return serveSpare(ctx, set, stdin, stdout, stderr)
	}
	if flags.InputFormat == "stream-json" {
		return serve(ctx, set, stdin, stdout, stderr)
	}
	prompt := flags.Prompt
	if !flags.HasPrompt {
		text, err := io.ReadAll(io.LimitReader(stdin, 64<<20))
		if err != nil {
			fmt.Fprintf(stderr, "Error: the prompt cannot be read from standard input: %v\n", err)
			return 1
		}
		prompt = string(text)
	}
	if strings.TrimSpace(prompt) == "" {
		fmt.Fprint(stderr, "Error: Input must be provided either through stdin or as a prompt argument when using --print")
		if flags.Greedy != "" {
			fmt.Fprintf(stderr, ". %s took the words after it: put -- before the prompt", flags.Greedy)
		}
		fmt.Fprintln(stderr)
		return 1
	}
	line, err := wire.Encode(wire.Prompt(wire.Text(prompt)))
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	in := strings.NewReader(string(line) + "\n")
	switch flags.OutputFormat {
	case "stream-json":
		return serve(ctx, set, in, stdout, stderr)
	case "json":
		return serve(ctx, set, in, &jsonPrinter{w: stdout, stderr: stderr, all: flags.Verbose}, stderr)
	}
	return serve(ctx, set, in, &textPrinter{w: stdout, stderr: stderr}, stderr)
}

// A lockedWriter can be used from many goroutines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements [io.Writer].
func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// A lineWriter splits what is written to it into messages.
type lineWriter struct{ rest []byte }

func (l *lineWriter) eachMessage(p []byte, f func(wire.Message, []byte) error) error {
	l.rest = append(l.rest, p...)
	for {
		i := strings.IndexByte(string(l.rest), '\n')
		if i < 0 {
			return nil
		}
		line := l.rest[:i]
		m, err := wire.Decode(line)
		if err != nil {
			return err
		}
		if err := f(m, line); err != nil {
			return err
		}
		l.rest = append(l.rest[:0], l.rest[i+1:]...)
	}
}

// reportRetry prints why there is no answer yet: a request to a model that cannot be
// reached is retried for minutes.
func reportRetry(stderr io.Writer, m wire.Message) {
	if r, ok := m.(*wire.APIRetry); ok {
		what := "the API could not be reached"
		if r.ErrorStatus != 0 {
			what = fmt.Sprintf("the API answered with status %d", r.ErrorStatus)
		}
		wait := time.Duration(r.RetryDelayMS) * time.Millisecond
		fmt.Fprintf(stderr, "parley: %s; retrying in %v (%d of %d)\n", what, wait.Round(100*time.Millisecond), r.Attempt, r.MaxRetries)
	}
}

// A jsonPrinter prints the result as one JSON object, or all messages as an array.
type jsonPrinter struct {
	lineWriter
	w, stderr io.Writer
	all       bool
	seen      []json.RawMessage
}

func (j *jsonPrinter) Write(p []byte) (int, error) {
	err := j.eachMessage(p, func(m wire.Message, line []byte) error {
		r, ended := m.(*wire.Result)
		if _, ok := m.(*wire.KeepAlive); ok {
			return nil
		}
		reportRetry(j.stderr, m)
		if j.all {
			j.seen = append(j.seen, append(json.RawMessage(nil), line...))
			if ended {
				out, err := json.Marshal(j.seen)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(j.w, "%s\n", out)
				return err
			}
			return nil
		}
		if ended {
			out, err := wire.Encode(r)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(j.w, "%s\n", out)
			return err
		}
		return nil
	})
	return len(p), err
}

// A textPrinter prints only the answer.
type textPrinter struct {
	lineWriter
	w, stderr io.Writer
}

func (t *textPrinter) Write(p []byte) (int, error) {
	err := t.eachMessage(p, func(m wire.Message, _ []byte) error {
		reportRetry(t.stderr, m)
		r, ok := m.(*wire.Result)
		if !ok {
			return nil
		}
		text := r.Result
		switch r.Outcome() {
		case wire.OutcomeMaxTurns:
			text = "Error: Reached max turns"
			if i := strings.LastIndexByte(r.Reason(), '('); i >= 0 {
				text += " " + r.Reason()[i:]
			}
		case wire.OutcomeBudget:
			text = "Error: Exceeded USD budget"
			if i := strings.LastIndexByte(r.Reason(), '('); i >= 0 {
				text += " " + strings.ReplaceAll(r.Reason()[i:], "$", "")
			}
		default:
			if text == "" {
				text = strings.Join(r.Errors, "\n")
			}
		}
		_, err := fmt.Fprintln(t.w, text)
		return err
	})
	return len(p), err
}

// FromProcess returns the config of the current process.
func FromProcess() (Config, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return Config{}, fmt.Errorf("cannot find the working directory: %w", err)
	}
	if real, err := filepath.EvalSymlinks(cwd); err == nil {
		cwd = real
	}
	home, _ := os.UserHomeDir()
	return Config{Environ: os.Environ(), Home: home, Cwd: cwd, Root: os.Geteuid() == 0,
		SettingSources: []string{"user", "project", "local"}, ManagedSettings: managedSettings()}, nil
}

// InProcess returns a dialer for [parley.Options]: each connection is an agent in this
// process, configured by cfg and the flags of the SDK, which never become a command line. Sessions share nothing
// but what cfg itself shares.
//
// Options.Cwd replaces cfg.Cwd, and if both are empty it is the directory of this
// process, as for any other dialer; it must exist. Options.Env is added to cfg.Environ.
// Options.Path and CleanEnv are errors: there is no executable, and cfg.Environ is the
// whole environment.
func InProcess(cfg Config) transport.Dialer {
	// Immutable values are created once for all of them.
	if cfg.Catalog == nil {
		cfg.Catalog = catalog.New()
	}
	if cfg.Tools == nil {
		cfg.Tools = cfg.builtin(false)
	}
	if cfg.Transport == nil && cfg.Model == nil {
		cfg.Transport = newTransport(cfg.Environ)
	}
	return transport.DialerFunc(func(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		switch {
		case spec.Path != "":
			return nil, &transport.SpecError{Option: "Path", Reason: "an agent in this process has no executable; leave Path or the Dialer out"}
		case spec.Clean:
			return nil, &transport.SpecError{Option: "CleanEnv", Reason: "an agent in this process has the environment of its Config.Environ, and inherits nothing"}
		}
		flags, err := cli.ParseSpec(spec.Words, spec.Flags)
		if err != nil {
			return nil, err
		}
		if flags.SDKURL != "" {
			return nil, &transport.SpecError{Option: "Dialer", Reason: "an agent in this process connects to no server: --sdk-url is for the command"}
		}
		if flags.ACP != "" || flags.CLI != "" {
			return nil, &transport.SpecError{Option: "Dialer", Reason: "an agent in this process is Parley itself: use acp.Agent in place of --acp, Options.Path in place of --cli"}
		}
		cfg := cfg
		if spec.Dir != "" || cfg.Cwd == "" {
			if cfg.Cwd, err = filepath.Abs(spec.Dir); err != nil {
				return nil, err
			}
		}
		if err := transport.CheckDir(cfg.Cwd); err != nil {
			return nil, &transport.StartError{Path: "the agent in this process", Dir: cfg.Cwd, Err: err}
		}
		cfg.Environ = slices.Concat(cfg.Environ, spec.Added)
		host, peer := transport.Pipe()
		peer.SetCloseTimeout(spec.CloseTimeout)
		stderr := peer.Stderr(spec.Stderr)
		go func() {
			deepstack.Grow()
			code := 1
			defer func() { peer.Exit(code, "") }()
			code = run(traceOf(peer.Context(), spec.Env), &cfg, flags, peer, peer, stderr)
		}()
		return host, nil
	})
}

// traceOf returns ctx with the parent span that an environment names.
func traceOf(ctx context.Context, environ []string) context.Context {
	return telemetry.Extract(ctx, func(name string) (value string) {
		for _, v := range environ {
			if n := len(name); len(v) > n && v[n] == '=' && v[:n] == name {
				value = v[n+1:]
			}
		}
		return value
	})
}
