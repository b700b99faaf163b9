package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parley-go/parley/internal/spelling"
	"github.com/parley-go/parley/parleytest/peer"
)

const fakeCLIHelp = `
Acts as a CLI that plays a script of the protocol on its standard input and output. An
SDK starts it in place of the real one. It accepts any further arguments of the SDK, so
its own flags come first.

SDKs accept the path of a CLI, but no flags for it. There are two ways: --install writes
an executable that only plays the script. Or use the path of parley, and set
PARLEY_FAKE_SCRIPT, PARLEY_FAKE_TRANSCRIPT, PARLEY_FAKE_FAULT or PARLEY_FAKE_RECORD in
the environment in place of the flags.

The exit status is that of the script, or 97 with the reason on standard error if the SDK
did not follow the script.

"parley help steps" describes the format of the file, "parley help faults" lists the
faults.`

// A fake describes what a fake CLI plays: a script, a transcript or a fault.
type fake struct {
	script, transcript, fault string // files, and a name
	params                    list
	exact, timing             bool
	record                    string
	limit                     time.Duration
	side                      peer.Side
}

// flags adds the flags that choose what to play.
func (f *fake) flags(fs *flagSet) {
	fs.StringVar(&f.script, "script", f.script, "the `FILE` with the script to play")
	fs.StringVar(&f.transcript, "transcript", f.transcript, "play the recording in this `FILE`")
	fs.Var(&f.params, "param", "`NAME=VALUE` of a parameter of the script; may be given several times")
	fs.BoolVar(&f.exact, "exact", false, "with --transcript: require exactly the same frames")
	fs.BoolVar(&f.timing, "timing", false, "with --transcript: keep the recorded pace")
	fs.StringVar(&f.record, "record", f.record, "append the traffic to this `FILE`, as a transcript")
}

func fakeInEnv(p *process) bool {
	f := fakeFromEnv(p)
	return f.script != "" || f.transcript != "" || f.fault != ""
}

func fakeFromEnv(p *process) *fake {
	return &fake{
		script:     p.getenv("PARLEY_FAKE_SCRIPT"),
		transcript: p.getenv("PARLEY_FAKE_TRANSCRIPT"),
		fault:      p.getenv("PARLEY_FAKE_FAULT"),
		record:     p.getenv("PARLEY_FAKE_RECORD"),
	}
}

// fakeCLI implements parley fake-cli.
func fakeCLI(_ context.Context, p *process, args []string) error {
	f := &fake{}
	fs := newFlags(p, "fake-cli", "--script FILE | --transcript FILE | --fault NAME [FLAGS] [ARGS OF THE SDK…]", fakeCLIHelp)
	f.flags(fs)
	fs.StringVar(&f.fault, "fault", "", "play the fault of this `NAME`")
	faults := fs.Bool("list-faults", false, "list the faults and exit")
	fs.DurationVar(&f.limit, "limit", peer.DefaultLimit, "exit after this `TIME` at the latest")
	show := fs.Bool("print", false, "print the script instead of playing it")
	install := fs.String("install", "", "write an executable that plays it to this `PATH`, and exit")
	own, rest := ownFlags(fs, args)
	if err := parse(fs, own); err != nil {
		return err
	}
	if *faults {
		_, err := fmt.Fprint(p.stdout, faultList())
		return err
	}
	if f.script == "" && f.transcript == "" && f.fault == "" {
		env := fakeFromEnv(p)
		f.script, f.transcript, f.fault = env.script, env.transcript, env.fault
		if f.record == "" {
			f.record = env.record
		}
	}
	switch {
	case *show:
		s, err := f.load()
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(p.stdout, s)
		return err
	case *install != "":
		return f.install(p, *install)
	}
	return playFake(p, f, rest)
}

// ownFlags splits arguments into flags of the set and the rest, which starts with the
// first other argument. It removes a -- between them.
func ownFlags(fs *flagSet, args []string) (own, rest []string) {
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return args[:i], args[i+1:]
		}
		name, isFlag := strings.CutPrefix(args[i], "-")
		name, _, hasValue := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		if i == 0 && (name == "help" || name == "h") && isFlag {
			return args[:1], nil
		}
		f := fs.Lookup(name)
		if !isFlag || f == nil {
			return args[:i], args[i:]
		}
		if b, ok := f.Value.(interface{ IsBoolFlag() bool }); !hasValue && !(ok && b.IsBoolFlag()) {
			i++ // skip its value
		}
	}
	return args, nil
}

// load reads the script to play.
func (f *fake) load() (*peer.Script, error) {
	params, err := pairs("param", f.params)
	if err != nil {
		return nil, err
	}
	given := 0
	for _, s := range []string{f.script, f.transcript, f.fault} {
		if s != "" {
			given++
		}
	}
	switch {
	case given == 0 && f.side == peer.Host:
		return nil, usagef("name what to play: --script FILE or --transcript FILE")
	case given == 0:
		return nil, usagef("name what to play, before the arguments of the SDK: --script FILE, --transcript FILE or --fault NAME")
	case given > 1:
		return nil, usagef("use only one of --script, --transcript and --fault")
	case f.transcript == "" && (f.exact || f.timing):
		return nil, usagef("--exact and --timing need --transcript")
	}
	var s *peer.Script
	switch {
	case f.script != "":
		s, err = peer.Load(f.script)
	case f.transcript != "":
		s, err = f.fromTranscript()
	default:
		var ok bool
		if s, ok = peer.LookupFault(f.fault); !ok {
			err = unknownFault(f.fault)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if err == nil {
			s, err = with(s, name, params[name])
		}
	}
	return s, err
}

func (f *fake) fromTranscript() (*peer.Script, error) {
	data, err := os.ReadFile(f.transcript)
	if err != nil {
		return nil, err
	}
	return peer.FromTranscript(bytes.NewReader(data), &peer.TranscriptOptions{
		Name: f.transcript, Side: f.side, Exact: f.exact, Timing: f.timing,
	})
}

// with sets a parameter.
func with(s *peer.Script, name, value string) (_ *peer.Script, err error) {
	if known := s.Params(); known[name] == "" {
		if _, ok := known[name]; !ok {
			return nil, usagef("%s has no parameter %s; it has %s", s.Name, name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	defer func() { // an invalid value for the script
		if r := recover(); r != nil {
			err = usagef("--param %s=%s: %v", name, value, r)
		}
	}()
	return s.With(name, value), nil
}

func unknownFault(name string) error {
	var names []string
	for _, s := range peer.Faults() {
		names = append(names, s.Name)
	}
	if like := spelling.Closest(name, names); like != "" {
		return usagef("unknown fault %q. Did you mean %s?", name, like)
	}
	return usagef("unknown fault %q; --list-faults lists them", name)
}

// playFake plays on the pipes of this process. The arguments are those of the SDK.
func playFake(p *process, f *fake, args []string) error {
	s, err := f.load()
	if err != nil {
		return err
	}
	if f.record != "" {
		hideSecrets(p)
	}
	if code := peer.Main(s, args, &peer.CommandOptions{Record: f.record, Limit: f.limit}); code != 0 {
		return exitStatus(code)
	}
	return nil
}

// hideSecrets removes keys from the environment of this process, because a record
// contains it.
func hideSecrets(p *process) {
	for _, kv := range p.env {
		name, _, _ := strings.Cut(kv, "=")
		for _, part := range []string{"KEY", "TOKEN", "SECRET", "PASSWORD"} {
			if strings.Contains(strings.ToUpper(name), part) {
				_ = os.Setenv(name, "REDACTED") // the name came from the environment
			}
		}
	}
}

// install writes an executable that plays the script.
func (f *fake) install(p *process, path string) error {
	s, err := f.load()
	if err != nil {
		return err
	}
	cmd, err := peer.Command(s, &peer.CommandOptions{Record: f.record, Limit: f.limit})
	if err != nil {
		return err
	}
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	if path, err = cmd.Install(dir, name); err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.stderr, "parley fake-cli: %s plays %s\n", path, s.Name)
	return err
}

// faultList lists the faults, one per line.
func faultList() string {
	var b strings.Builder
	for _, s := range peer.Faults() {
		doc := strings.Join(strings.Fields(s.Doc), " ")
		if i := strings.Index(doc, ". "); i >= 0 {
			doc = doc[:i+1]
		}
		fmt.Fprintf(&b, "%-24s %s\n", s.Name, doc)
		params := s.Params()
		delete(params, "timeout") // nearly all have it
		for _, name := range slices.Sorted(maps.Keys(params)) {
			fmt.Fprintf(&b, "%-24s --param %s=%s\n", "", name, params[name])
		}
	}
	return b.String()
}

const fakeHostHelp = `
Runs a CLI and plays the SDK's side of a script against it, to test the CLI. It sends
the lines that start with >, and expects the lines that start with <. With --transcript
it plays the host of a recorded session.

The exit status is 1 if the CLI did not follow the script.

"parley help steps" describes the format of the file.`

// fakeHost implements parley fake-host, which plays the host.
func fakeHost(ctx context.Context, p *process, args []string) error {
	f := &fake{side: peer.Host}
	fs := newFlags(p, "fake-host", "--script FILE | --transcript FILE [FLAGS] -- CLI ARGS…", fakeHostHelp)
	f.flags(fs)
	timeout := fs.Duration("timeout", peer.DefaultTimeout, "the `TIME` that each step may take, until the script sets another one")
	if err := parse(fs, args); err != nil {
		return err
	}
	if fs.NArg() == 0 {
		return usagef("name the CLI to run after --")
	}
	s, err := f.load()
	if err != nil {
		return err
	}
	opts := &peer.Options{Stderr: p.stderr, Timeout: *timeout}
	if f.record != "" {
		out, err := os.OpenFile(f.record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer out.Close()
		opts.Record = hostRecord{out}
	}
	cmd := exec.CommandContext(ctx, fs.Arg(0), fs.Args()[1:]...)
	cmd.Env = p.env
	report, err := peer.Drive(ctx, s, cmd, opts)
	if err != nil {
		var mismatch *peer.MismatchError
		if errors.As(err, &mismatch) {
			return fmt.Errorf("the script was not followed:\n%w", err)
		}
		return err
	}
	fmt.Fprintf(p.stderr, "parley fake-host: %s: all %d frames by the script\n", s.Name, len(report.Received)+report.Sent)
	return nil
}

// A hostRecord reverses the directions in the record of a host, line by line: in a
// transcript, "in" always means to the CLI, whichever side was played.
type hostRecord struct{ w io.Writer }

// Write implements [io.Writer].
func (h hostRecord) Write(line []byte) (int, error) {
	const in, out = `{"dir":"in",`, `{"dir":"out",`
	turned := line
	if rest, ok := bytes.CutPrefix(line, []byte(in)); ok {
		turned = slices.Concat([]byte(out), rest)
	} else if rest, ok := bytes.CutPrefix(line, []byte(out)); ok {
		turned = slices.Concat([]byte(in), rest)
	}
	if _, err := h.w.Write(turned); err != nil {
		return 0, err
	}
	return len(line), nil
}
