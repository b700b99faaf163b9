package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/tool/bash"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/internal/otlp"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/remote"
	"github.com/parley-go/parley/session"
)

// runAgent runs the agent: the command without a subcommand. It returns the exit
// status.
func runAgent(ctx context.Context, p *process, args []string) int {
	args, pick := picksSession(args)
	flags, err := cli.Parse(args)
	if err != nil {
		fmt.Fprintln(p.stderr, err)
		return exitFailure
	}
	if flags.Version {
		fmt.Fprintln(p.stdout, versionLine())
		return exitOK
	}
	if flags.Help {
		return status(p, "parley", help(ctx, p, nil))
	}
	cfg, err := agentConfig(p)
	if err != nil {
		fmt.Fprintln(p.stderr, "Error:", err)
		return exitFailure
	}
	defer exportTelemetry(ctx, p, &cfg, flags.Debug || flags.DebugToStderr)()
	if flags.OutputFormat != "stream-json" && isTerminal(p.stderr) {
		cfg.OnIndexing = func(done, total int64) { showIndexing(p.stderr, done, total) }
	}
	person := flags.OutputFormat == "text" && isTerminal(p.stdout) && !flags.InitOnly
	if person = person && flags.SDKURL == ""; person && !flags.Print && isTerminal(p.stdin) {
		if flags.ACP == "" && flags.CLI == "" && agent.MissingCredentials(cfg, args...) {
			fmt.Fprint(p.stderr, waysForward)
			return exitFailure
		}
		return interact(ctx, p, cfg, flags, args, pick)
	}
	if pick {
		fmt.Fprintln(p.stderr, "error: option '--resume <value>' argument missing: only a terminal can show sessions to choose from")
		return exitFailure
	}
	if flags.ACP != "" || flags.CLI != "" {
		fmt.Fprintln(p.stderr, "Error: --acp and --cli are for a conversation in a terminal, for --bg and for sessions of parley serve: leave out -p, or use --bg")
		return exitFailure
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	if flags.SDKURL != "" {
		return runForServer(ctx, p, cfg, flags, args)
	}
	if person {
		return runInTerminal(ctx, p, cfg, flags, args)
	}
	return agent.Run(ctx, cfg, args, p.stdin, p.stdout, p.stderr)
}

// waysForward is the message for a person who starts a conversation without
// credentials.
const waysForward = `Parley has no credentials for a model yet. There are three ways forward:

  1. A key of the Claude API:   parley auth login, or
                                export ANTHROPIC_API_KEY=sk-ant-…
  2. A model of your own, such as Ollama's, without a key:
                                parley --provider openai --base-url http://127.0.0.1:11434/v1 --model qwen3
  3. No model at all:           parley demo

https://github.com/parley-go/parley/tree/main/docs describes Ollama, vLLM and llama.cpp (local-models.md), and Bedrock and
Vertex (providers.md). "parley doctor" shows what Parley found on this machine.
`

// runForServer runs the agent for a server to which it connects, from behind a
// firewall.
func runForServer(ctx context.Context, p *process, cfg agent.Config, flags *cli.Flags, args []string) int {
	fail := func(err error) int {
		fmt.Fprintln(p.stderr, "Error:", err)
		return exitFailure
	}
	u, err := url.Parse(flags.SDKURL)
	switch {
	case err != nil || u.Host == "" || !slices.Contains([]string{"ws", "wss", "http", "https"}, u.Scheme):
		return fail(fmt.Errorf("--sdk-url %q is not an address such as wss://example.com/agent", flags.SDKURL))
	case u.Scheme == "ws" || u.Scheme == "http":
		if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return fail(fmt.Errorf("--sdk-url %q: a connection to another machine (%s) must be encrypted; use wss://", flags.SDKURL, u.Hostname()))
		}
	}
	offer := &remote.Offer{URL: flags.SDKURL, Token: p.getenv("CLAUDE_CODE_SESSION_ACCESS_TOKEN"), Session: cmp.Or(flags.Resume, flags.SessionID)}
	if !session.ValidID(offer.Session) {
		offer.Session = session.NewID()
	}
	if offer.Dir, err = filepath.Abs(cfg.Cwd); err != nil {
		return fail(err)
	}
	// Flags of the protocol come before the caller's arguments, which may be prompts.
	protocol := []string{"--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json", "--permission-prompt-tool", "stdio"}
	status := exitOK
	offer.Plain = func(ctx context.Context, stream io.ReadWriter) error {
		status = agent.Run(ctx, cfg, slices.Concat(protocol, args), stream, stream, p.stderr)
		return nil
	}
	offer.Records = func(ctx context.Context, id string) ([]json.RawMessage, error) {
		all, err := session.Records(ctx, &session.Files{Dir: cfg.ConfigDir()}, id, "", nil)
		if errors.Is(err, session.ErrNotFound) {
			return nil, nil
		}
		return all[max(0, len(all)-lastRecords):], err
	}
	own := cli.Without(args, "--sdk-url", "--session-id", "--resume", "--continue")
	cfg.Environ = append(slices.Clip(cfg.Environ), "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING=true") // the server rewinds files
	offer.Run = func(ctx context.Context, start []string, stream io.ReadWriter) error {
		if flags.HasPrompt || flags.Continue {
			return errors.New("--sdk-url: prompts come from the server; --resume ID continues a session")
		}
		agent.Run(ctx, cfg, slices.Concat(protocol, ofServer(start), own), stream, stream, p.stderr)
		return ctx.Err()
	}
	offer.OnRetry = func(err error) { fmt.Fprintf(p.stderr, "The connection to the server is down: %v\n", err) }
	if flags.Resume == "" && flags.SessionID == "" {
		fmt.Fprintf(p.stderr, "Session %s\n", offer.Session)
	}
	err = offer.Serve(ctx)
	var ended *cli.SignalError
	if errors.As(context.Cause(ctx), &ended) {
		return cmp.Or(ended.Status, exitOK)
	}
	if err != nil {
		return fail(err)
	}
	return status
}

// lastRecords is how many records of a session a server gets, to find those that it has
// missed.
const lastRecords = 1000

// ofServer returns the flags that a server may set: those of its own connection. The person
// who started the agent chooses the others.
func ofServer(args []string) (kept []string) {
	for i, arg := range args {
		switch name, value, joined := strings.Cut(arg, "="); name {
		case "--include-partial-messages", "--replay-user-messages":
			kept = append(kept, name)
		case "--session-id", "--resume", "--resume-session-at":
			if !joined && i+1 < len(args) {
				value = args[i+1]
			}
			kept = append(kept, name+"="+value) // so that the value is not parsed as a flag
		}
	}
	return kept
}

// showIndexing shows the progress of reading a long session, on one line that
// disappears.
func showIndexing(w io.Writer, done, total int64) {
	text := fmt.Sprintf("Reading a long session: %d %%", 100*done/max(1, total))
	if done >= total {
		text = ""
	}
	fmt.Fprintf(w, "\r\x1b[K%s", text)
}

// exportTelemetry makes the agent export telemetry, if the environment names a
// collector. Its failures have no other effect. The returned function sends the rest.
func exportTelemetry(ctx context.Context, p *process, cfg *agent.Config, debug bool) (flush func()) {
	e, err := otlp.FromEnv(p.getenv, parley.Version)
	if err != nil {
		fmt.Fprintf(p.stderr, "Warning: no telemetry is sent: %v\n", err)
	}
	if e == nil {
		return func() {}
	}
	e.OnError = func(err error) {
		if debug {
			fmt.Fprintf(p.stderr, "[debug] telemetry: %v\n", err)
		}
	}
	cfg.Traces, cfg.Metrics = e.Traces, e.Metrics
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			e.OnError(err)
		}
	}
}

// agentConfig returns the agent's config in this process, with scripted models.
func agentConfig(p *process) (agent.Config, error) {
	cfg, err := agent.FromProcess()
	if err != nil {
		return cfg, err
	}
	cfg.Environ = p.env
	cfg.OwnVersion = parley.Version
	cfg.Snapshot = new(bash.Snapshot)
	cfg.Script = func(file string) (model.Model, error) {
		s, err := parleytest.ReadScript(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("Error: the script %s does not exist; \"parley help script\" describes the format", file)
		}
		if err != nil {
			return nil, fmt.Errorf("Error: %w", err)
		}
		return scripted{s.Model()}, nil
	}
	return cfg, nil
}

// scripted is a model that plays a script. A request that the script does not expect is
// invalid, so that it is not retried.
type scripted struct{ model.Model }

// Stream implements [model.Model].
func (s scripted) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		for ev, err := range s.Model.Stream(ctx, req) {
			var unexpected *parleytest.ScriptError
			if errors.As(err, &unexpected) {
				err = &model.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Message: err.Error()}
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// untilSignal returns a context that ends with SIGINT or SIGTERM: the running turn is
// cut off and still gets its result. A second signal ends the process at once.
func untilSignal(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals, done := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			ended := &cli.SignalError{Name: "SIGINT"}
			if s == syscall.SIGTERM {
				ended = &cli.SignalError{Name: "SIGTERM", Status: 143}
			}
			cancel(ended)
		case <-done:
			return
		}
		select { // ctx has ended, and the command is ending; a second signal does not wait for that
		case <-signals:
			os.Exit(130)
		case <-done:
		}
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(signals)
		close(done)
		cancel(errors.New("done"))
	})
}
