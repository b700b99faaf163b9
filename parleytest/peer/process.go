package peer

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/parley-go/parley/parleytest/parrot"
)

// Version is the answer of a fake CLI to --version.
const Version = parrot.Version

// ExitMismatch is the exit status of a fake CLI whose script was not followed; the
// reason is on standard error and in the record.
const ExitMismatch = 97

// DefaultLimit is the maximum lifetime of a fake CLI, whatever its script: one that
// ignores everything must not outlive a failed test for long.
const DefaultLimit = 2 * time.Minute

const (
	envSpec       = "PARLEY_PEER"            // what to play; continued in PARLEY_PEER_1 …
	envGrandchild = "PARLEY_PEER_GRANDCHILD" // seconds to live
)

// CommandOptions configure a fake CLI. A nil pointer is the zero value.
type CommandOptions struct {
	// Record is a file to which the fake CLI appends its arguments, environment,
	// process ids, and, when it plays a script, frames and signals, for
	// [ReadRecord]. If empty, nothing is recorded.
	Record string
	// Limit is the maximum lifetime. Zero means [DefaultLimit].
	Limit time.Duration
	// Version is its answer to --version. If empty, it is [Version].
	Version string
}

// A Cmd is a fake CLI to spawn: this program itself, with an environment that
// selects what to play. Its main function or TestMain must call [RunIfChild] or
// [TestMain].
type Cmd struct {
	Path string   // the executable
	Env  []string // variables to add to the environment, "KEY=value"
}

// spec is the content of the environment variable.
type spec struct {
	Name    string            `json:"name,omitempty"`
	Script  string            `json:"script,omitempty"`
	Params  map[string]string `json:"params,omitempty"`
	Agent   bool              `json:"agent,omitempty"`
	Record  string            `json:"record,omitempty"`
	Limit   time.Duration     `json:"limit,omitempty"`
	Version string            `json:"version,omitempty"`
}

// Command returns a fake CLI that plays the script. It accepts and ignores any
// arguments; to --version or -v alone it answers with a version.
func Command(s *Script, opts *CommandOptions) (*Cmd, error) {
	return command(spec{Name: s.Name, Script: string(s.src), Params: s.overrides}, opts)
}

// AgentCommand returns a fake CLI that is a [parrot.Agent].
func AgentCommand(opts *CommandOptions) (*Cmd, error) {
	return command(spec{Agent: true}, opts)
}

const envChunk = 96 << 10 // Linux accepts 128 KiB in one variable

func command(sp spec, opts *CommandOptions) (*Cmd, error) {
	if opts != nil {
		sp.Record, sp.Limit, sp.Version = opts.Record, opts.Limit, opts.Version
	}
	if sp.Record != "" {
		abs, err := filepath.Abs(sp.Record)
		if err != nil {
			return nil, fmt.Errorf("peer: %w", err)
		}
		sp.Record = abs
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("peer: cannot find this program: %w", err)
	}
	data, err := json.Marshal(sp)
	if err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(data) // to memory
	_ = z.Close()
	text := base64.StdEncoding.EncodeToString(b.Bytes())
	if len(text) > 8*envChunk {
		return nil, fmt.Errorf("peer: %s is too large for the environment: %d KiB compressed", sp.Name, len(text)>>10)
	}
	c := &Cmd{Path: exe}
	for i := 0; len(text) > 0; i++ {
		n := min(len(text), envChunk)
		name := envSpec
		if i > 0 {
			name += "_" + strconv.Itoa(i)
		}
		c.Env = append(c.Env, name+"="+text[:n])
		text = text[n:]
	}
	return c, nil
}

// Command returns an *exec.Cmd that starts the fake CLI with the arguments, in this
// process's environment.
func (c *Cmd) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Path, args...)
	cmd.Env = append(os.Environ(), c.Env...)
	return cmd
}

// Install writes a launcher for the fake CLI to dir under the name and returns its
// path, for clients that accept the path of an executable but no environment. It is
// a shell script, so it does not work on Windows.
func (c *Cmd) Install(dir, name string) (string, error) {
	var b strings.Builder
	b.WriteString("#!/bin/sh\n")
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	for _, kv := range c.Env {
		k, v, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&b, "export %s=%s\n", k, quote(v))
	}
	fmt.Fprintf(&b, "exec %s \"$@\"\n", quote(c.Path))
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(b.String()), 0o755); err != nil {
		return "", fmt.Errorf("peer: %w", err)
	}
	return path, nil
}

// TestMain runs the tests, unless this process was started as a fake CLI:
//
//	func TestMain(m *testing.M) { peer.TestMain(m) }
//
// It does not return.
func TestMain(m interface{ Run() int }) {
	RunIfChild()
	os.Exit(m.Run())
}

// RunIfChild plays the fake CLI and exits, if this process was started by a [Cmd];
// otherwise it returns at once. Call it first in TestMain, or in main.
func RunIfChild() {
	if life := os.Getenv(envGrandchild); life != "" {
		grandchild(life)
	}
	if os.Getenv(envSpec) == "" {
		return
	}
	sp, err := specFromEnv()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(ExitMismatch)
	}
	// Not os.Exit: with the race detector that takes a second.
	syscall.Exit(sp.main())
}

func specFromEnv() (*spec, error) {
	text := os.Getenv(envSpec)
	for i := 1; ; i++ {
		more := os.Getenv(envSpec + "_" + strconv.Itoa(i))
		if more == "" {
			break
		}
		text += more
	}
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
	if err != nil {
		return nil, fmt.Errorf("peer: bad %s: %w", envSpec, err)
	}
	sp := new(spec)
	if err := json.NewDecoder(z).Decode(sp); err != nil {
		return nil, fmt.Errorf("peer: bad %s: %w", envSpec, err)
	}
	return sp, nil
}

// main is the main function of a child.
func (sp *spec) main() int {
	opts := &CommandOptions{Record: sp.Record, Limit: sp.Limit, Version: sp.Version}
	if sp.Agent {
		p, code := begin(os.Args[1:], opts)
		if p == nil {
			return code
		}
		return parrot.ServeMain(os.Args[1:], os.Stdin, os.Stdout)
	}
	s, err := parse(sp.Name, []byte(sp.Script), sp.Params)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return ExitMismatch
	}
	return Main(s, os.Args[1:], opts)
}

// Main is the main function of a program that is a fake CLI: it plays the script on
// the standard input and output of this process, with all its faults, and returns
// the exit status. The arguments are those of the command line, without the
// executable; they are ignored except for --version or -v alone. The program must
// have called [RunIfChild] before, for scripts that leave grandchildren behind.
func Main(s *Script, args []string, opts *CommandOptions) int {
	p, code := begin(args, opts)
	if p == nil {
		return code
	}
	st := &stage{
		kill: killSelf,
		ignoreSignals: func() {
			c := make(chan os.Signal, 16)
			signal.Notify(c, os.Interrupt, syscall.SIGTERM)
			go func() {
				for sig := range c {
					p.rec.write("note", "signal "+sig.String())
				}
			}()
		},
		grandchild: func(setsid bool) (int, error) { return startGrandchild(setsid, p.limit) },
	}
	rep, err := play(context.Background(), s, os.Stdin, os.Stdout, &Options{Stderr: os.Stderr, Record: p.record}, st)
	if err != nil {
		p.rec.write("note", err.Error())
		fmt.Fprintln(os.Stderr, err)
		return ExitMismatch
	}
	return rep.Code
}

// process is the state of a fake CLI that runs as a process.
type process struct {
	record io.Writer // may be nil
	rec    *recorder
	limit  time.Duration
}

// begin opens the record and limits the lifetime of the process. If it returns nil,
// the process must exit with the status.
func begin(args []string, opts *CommandOptions) (*process, int) {
	var o CommandOptions
	if opts != nil {
		o = *opts
	}
	p := &process{limit: o.Limit}
	if p.limit == 0 {
		p.limit = DefaultLimit
	}
	if o.Record != "" {
		f, err := os.OpenFile(o.Record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			fmt.Fprintln(os.Stderr, "peer:", err)
			return nil, ExitMismatch
		}
		p.record = f
	}
	p.rec = newRecorder(p.record)
	p.rec.begin(args, os.Environ())
	p.rec.write("note", fmt.Sprintf("pid %d", os.Getpid()))
	if isVersionProbe(args) {
		if o.Version == "" {
			o.Version = Version
		}
		fmt.Println(o.Version)
		return nil, 0
	}
	// A script that ignores everything still ends, even while it is blocked in a write.
	time.AfterFunc(p.limit, func() {
		p.rec.write("note", "its time is up")
		os.Exit(ExitMismatch)
	})
	return p, 0
}

func isVersionProbe(args []string) bool {
	return len(args) == 1 && (args[0] == "-v" || args[0] == "--version")
}

// startGrandchild starts a process that holds the pipes of this one and does
// nothing.
func startGrandchild(setsid bool, life time.Duration) (int, error) {
	exe, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(exe, "grandchild")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", envGrandchild, int(life.Seconds())))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if setsid {
		if err := newSession(cmd); err != nil {
			return 0, err
		}
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	return cmd.Process.Pid, nil
}

func grandchild(life string) {
	secs, err := strconv.Atoi(life)
	if err != nil || secs <= 0 {
		secs = int(DefaultLimit.Seconds())
	}
	signal.Ignore(os.Interrupt)
	time.Sleep(time.Duration(secs) * time.Second)
	os.Exit(0)
}

// Drive plays the script as a host against a command: it starts the command, with
// the script's own arguments appended, plays, ends its input and waits for it. A
// command that does not exit within 5 seconds is killed, which is an [ErrNoExit]. The
// command's Stdin, Stdout and Stderr must not be set; its standard error goes to
// the Stderr of the options, and its end is in the report.
func Drive(ctx context.Context, s *Script, cmd *exec.Cmd, opts *Options) (*Report, error) {
	if s.NeedsProcess() {
		return nil, fmt.Errorf("%s: %w: a host has none of its faults", s.Name, ErrNeedsProcess)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	cmd.Args = append(cmd.Args, s.Argv...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	// Not cmd.StdoutPipe: Wait would close it while frames are unread.
	out, outw, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	errs := newTail()
	cmd.Stdout, cmd.Stderr = outw, errs
	if o.Stderr != nil {
		cmd.Stderr = io.MultiWriter(errs, o.Stderr)
	}
	cmd.WaitDelay = driveGrace
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("peer: cannot start: %w", err), out.Close(), outw.Close())
	}
	_ = outw.Close() // the child has its own
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the state contains the result
		close(exited)
	}()
	o.tail = errs
	o.Wait = func(ctx context.Context) (int, error) {
		select {
		case <-exited:
			return cmd.ProcessState.ExitCode(), nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	o.Signal = cmd.Process.Signal
	rep, err := Play(ctx, s, out, stdin, &o)
	t := time.NewTimer(driveGrace)
	defer t.Stop()
	select {
	case <-exited:
	case <-ctx.Done():
		_ = cmd.Process.Kill() // it may have exited by now
		<-exited
	case <-t.C:
		_ = cmd.Process.Kill()
		<-exited
		if err == nil {
			err = fmt.Errorf("%s: %w: it was killed %v later", s.Name, ErrNoExit, driveGrace)
		}
	}
	rep.Stderr = errs.String()
	if err != nil && rep.Stderr != "" {
		err = fmt.Errorf("%w\n\tstandard error of the command: %s", err, strings.TrimSpace(rep.Stderr[max(0, len(rep.Stderr)-1000):]))
	}
	return rep, err
}

// ErrNoExit means that a command did everything in its script, but did not exit when its input ended.
var ErrNoExit = errors.New("peer: the command did not exit at the end of its input")

// driveGrace is how long a driven command may take to exit.
var driveGrace = 5 * time.Second

var signals = map[string]os.Signal{"INT": os.Interrupt, "TERM": syscall.SIGTERM, "KILL": os.Kill}
