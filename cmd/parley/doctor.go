package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/terminal"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

const doctorHelp = `
Checks everything that an agent needs in this directory, and prints what to do about
each problem: the agent that SDKs start, the key for the model, settings and trust, the
sandbox, MCP servers, sessions, and the programs that tools use.

It sends nothing to a model and prints no key. It starts the agent and its MCP servers
to test them, and runs the agent that SDKs start with --version.

Flags of the agent come after --, for example:
  parley doctor -- --mcp-config servers.json --settings strict.json

The exit status is 1 if something that an agent needs is broken.`

// A finding is the doctor's result for one subject.
type finding struct {
	Name  string `json:"name"`
	State state  `json:"state"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"`
}

type state string

const (
	fine   state = "ok"
	noted  state = "note" // it is not needed, or may be intended
	broken state = "broken"
)

// A doctor collects findings.
type doctor struct {
	p        *process
	cfg      agent.Config
	flags    *cli.Flags
	args     []string
	findings []finding
}

func (d *doctor) report(name string, s state, do, format string, args ...any) {
	d.findings = append(d.findings, finding{name, s, terminal.VisibleLines(fmt.Sprintf(format, args...)), terminal.VisibleLines(do)})
}

// doctorCommand implements parley doctor, which looks for problems.
func doctorCommand(ctx context.Context, p *process, args []string) error {
	fs := newFlags(p, "doctor", "[--json] [-- FLAGS OF THE AGENT]", doctorHelp)
	asJSON := fs.Bool("json", false, "print JSON")
	args, rest := cutDashes(args)
	if err := parse(fs, args); err != nil {
		if usage := (*usageError)(nil); errors.As(err, &usage) && strings.HasPrefix(usage.reason, "unknown flag") {
			usage.reason += "; put flags of the agent after --"
		}
		return err
	}
	if fs.NArg() > 0 {
		return usagef("unexpected argument %q; put flags of the agent after --", fs.Arg(0))
	}
	flags, err := agentFlags(rest)
	if err != nil {
		return err
	}
	cfg, err := agentConfig(p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	d := &doctor{p: p, cfg: cfg, flags: flags, args: rest}
	d.report("parley", fine, "", "%s, as Claude Code %s, %s %s/%s", ownVersion(), theirs, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	d.lookForCLI(ctx)
	if s := d.readSettings(); s != nil { // nothing starts without settings
		d.connect(ctx)
		d.tryWall()
		d.trySandbox(s)
	}
	d.countSessions(ctx)
	d.lookForPrograms()
	bad := slices.ContainsFunc(d.findings, func(f finding) bool { return f.State == broken })
	if *asJSON {
		out, err := json.MarshalIndent(map[string]any{"ok": !bad, "findings": d.findings}, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintf(p.stdout, "%s\n", out)
	} else {
		d.print()
	}
	if bad {
		return exitStatus(exitFailure)
	}
	return nil
}

// cutDashes splits arguments at the first "--".
func cutDashes(args []string) (before, after []string) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:]
	}
	return args, nil
}

// print prints the findings for people.
func (d *doctor) print() {
	v := terminal.NewViewer(viewerConfig(d.p, ""))
	look := map[state]string{fine: green, noted: cyan, broken: red}
	for _, f := range d.findings {
		fmt.Fprintf(d.p.stdout, "%s  %-9s %s\n", v.Paint(look[f.State], fmt.Sprintf("%-6s", f.State)), f.Name, indent(f.Found, 18))
		if f.Do != "" {
			fmt.Fprintf(d.p.stdout, "                  → %s\n", indent(f.Do, 20))
		}
	}
}

// indent breaks lines of more than 200 columns at spaces before 110 columns, and indents all but the
// first by n columns. Shorter ones stay whole, so that paths in them can be copied and searched for.
func indent(text string, n int) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		words := strings.SplitAfter(line, " ")
		now := words[0]
		for _, word := range words[1:] {
			if len(line) > 200 && n+utf8.RuneCountInString(now+strings.TrimSpace(word)) > 110 {
				lines = append(lines, strings.TrimRight(now, " "))
				now = "  "
			}
			now += word
		}
		lines = append(lines, now)
	}
	return strings.Join(lines, "\n"+strings.Repeat(" ", n))
}

// lookForCLI finds the CLI that an SDK would start.
func (d *doctor) lookForCLI(ctx context.Context) {
	path, err := transport.Find("", d.p.getenv)
	if err != nil {
		self, _ := os.Executable()
		do := fmt.Sprintf("put this program on the PATH, or set CLAUDE_BIN=%s", self)
		if d.p.getenv("CLAUDE_BIN") != "" {
			d.report("cli", broken, "correct CLAUDE_BIN, or unset it", "CLAUDE_BIN names %s, which cannot be started", d.p.getenv("CLAUDE_BIN"))
			return
		}
		d.report("cli", noted, do, "SDKs find neither claude nor parley")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env, cmd.WaitDelay = d.p.env, time.Second
	out, err := cmd.Output()
	version, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil || version == "" {
		d.report("cli", broken, "run it yourself to see why, or name another one in CLAUDE_BIN", "SDKs start %s, which does not print its version (%v)", path, cmp.Or(err, errors.New("no output")))
		return
	}
	d.report("cli", fine, "", "SDKs start %s, version %s", path, version)
}

// readSettings reports the settings that apply, and their parts without effect. It
// returns nil if they cannot be read.
func (d *doctor) readSettings() *settings.Settings {
	s, err := agent.ReadSettings(d.cfg, d.args...)
	if err != nil {
		d.report("settings", broken, "", "%v", err) // it says what to do
		return nil
	}
	var files []string
	for _, o := range s.Files() {
		files = append(files, o.File)
	}
	if len(files) == 0 {
		d.report("settings", fine, "", "no files; \"parley init\" creates one")
	} else {
		d.report("settings", fine, "", "%s", strings.Join(files, "\n"))
	}
	if names, at := s.Unknown(); len(names) > 0 {
		var lines []string
		for i, n := range names {
			like := settings.Suggest(n)
			if like != "" {
				like = "; did you mean " + like + "?"
			}
			lines = append(lines, fmt.Sprintf("%s (%v%s)", n, at[i], like))
		}
		d.report("settings", noted, "correct the spelling; settings of other programs have no effect here", "unknown settings: %s", strings.Join(lines, ", "))
	}
	inert := 0
	for _, item := range s.Untrusted() {
		if !item.Never {
			inert++
		}
	}
	switch n := len(s.Brought()); {
	case inert > 0:
		d.report("trust", noted, "\"parley trust\" lists them and asks you", "%d of the %d hooks, servers and rules of this project have no effect until you trust them", inert, n)
	case n > 0:
		d.report("trust", fine, "", "you trust the hooks, servers and rules of this project")
	}
	return s
}

// connect starts the agent in this process, like an SDK, and asks it about its
// credentials and MCP servers.
func (d *doctor) connect(ctx context.Context) {
	inner := agent.InProcess(d.cfg)
	c, err := parley.Connect(ctx, &parley.Options{
		KeepSystemPrompt: true, NoPersistence: true,
		Dialer: transport.DialerFunc(func(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
			spec.Words = append(spec.Words, d.args...)
			return inner.Dial(ctx, spec)
		}),
	})
	if err != nil {
		d.report("agent", broken, "", "it does not start: %s", firstLines(err.Error(), 6))
		return
	}
	defer c.Close()
	r, err := c.InitializeResponse()
	if err != nil {
		d.report("agent", broken, "", "it does not answer: %v", err)
		return
	}
	d.report("agent", fine, "", "it starts and lists %d models and %d commands", len(r.Models), len(r.Commands))
	d.credentials(r.Account)
	d.servers(ctx, c)
}

// credentials reports the source of the key, and nothing of the key itself.
func (d *doctor) credentials(a *wire.AccountInfo) {
	at := ""
	if base := cmp.Or(d.flags.BaseURL, d.p.getenv("ANTHROPIC_BASE_URL")); base != "" {
		at = ", for " + redacted(base)
	}
	switch {
	case a == nil:
		d.report("model", noted, "", "the agent does not report its provider")
	case d.flags.Provider == "script":
		d.report("model", fine, "", "the script %s", d.flags.Script)
	case a.APIProvider != "firstParty":
		d.report("model", noted, "parley -p hello tests it", "the provider %s; not tested", cmp.Or(a.APIProvider, d.flags.Provider))
	case a.APIKeySource != "none" && a.APIKeySource != "":
		d.report("model", fine, "", "a key from %s%s; not tested", a.APIKeySource, at)
	case a.TokenSource != "none" && a.TokenSource != "":
		d.report("model", fine, "", "a token from %s%s; not tested", a.TokenSource, at)
	default:
		d.report("model", broken, "set ANTHROPIC_API_KEY, run parley auth login, or set apiKeyHelper in your settings to a command that prints a key;\n"+
			"or use another model: --provider openai --base-url URL, bedrock or vertex;\nor no model: parley demo", "no key%s", at)
	}
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		if v := d.p.getenv(name); v != "" {
			d.report("proxy", noted, "", "requests go through %s (%s)", redacted(v), name)
			break
		}
	}
}

// redacted returns an address without parts that may be secret.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "an address that is not a URL"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// servers waits for the MCP servers and reports their states.
func (d *doctor) servers(ctx context.Context, c *parley.Client) {
	ctx, cancel := context.WithTimeout(ctx, 35*time.Second)
	defer cancel()
	var all []*wire.MCPServerStatus
	for {
		var err error
		if all, err = c.MCPStatus(ctx); err != nil {
			d.report("mcp", broken, "", "%v", err)
			return
		}
		if !slices.ContainsFunc(all, func(s *wire.MCPServerStatus) bool { return s.Status == "pending" }) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if len(all) == 0 {
		d.report("mcp", fine, "", "no servers; \"parley mcp add\" adds one")
	}
	for _, s := range all {
		switch s.Status {
		case "connected":
			d.report("mcp", fine, "", "%s is connected, with %d tools", s.Name, len(s.Tools))
		case "needs-auth":
			d.report("mcp", noted, "run \"parley mcp login\", or add a header with a token to its configuration", "%s needs a login", s.Name)
		case "disabled":
			d.report("mcp", noted, "", "%s is disabled", s.Name)
		default:
			d.report("mcp", broken, "run its command yourself to see the error, or remove it: parley mcp remove", "%s: %s", s.Name, cmp.Or(s.Error, string(s.Status)))
		}
	}
}

// tryWall reports the wall behind which unapproved commands run, and its guarantees.
func (d *doctor) tryWall() {
	w := sandbox.NewWall(sandbox.WallOptions{Home: d.cfg.Home, Path: d.p.getenv("PATH")})
	defer w.Close()
	switch r := w.Report(); {
	case r.Kind == sandbox.None:
		d.report("wall", noted, "on Linux use a kernel with Landlock (5.13 or newer)", "%s; most commands need your approval", strings.Join(r.Missing, "; "))
	case len(r.Missing) > 0:
		d.report("wall", noted, "", "commands without approval run behind %s:\n%s\nnot guaranteed: %s", r.Kind, strings.Join(r.Guarantees, "\n"), strings.Join(r.Missing, "; "))
	default:
		d.report("wall", fine, "", "commands without approval run behind %s:\n%s", r.Kind, strings.Join(r.Guarantees, "\n"))
	}
}

// trySandbox creates a sandbox with the settings, or as they could be.
func (d *doctor) trySandbox(s *settings.Settings) {
	raw, _ := s.Get("sandbox")
	wanted, err := sandbox.Parse(raw)
	if err != nil {
		d.report("sandbox", broken, "", "%v", err)
		return
	}
	asked := wanted.Enabled
	required := asked && (wanted.FailIfUnavailable == nil || *wanted.FailIfUnavailable)
	try, no := *wanted, false
	try.Enabled, try.FailIfUnavailable = true, &no
	box, err := sandbox.New(sandbox.Options{Settings: &try, Dir: d.cfg.Cwd, Home: d.cfg.Home, Path: d.p.getenv("PATH")})
	if err != nil {
		d.report("sandbox", broken, "", "%v", err)
		return
	}
	defer box.Close()
	r := box.Report()
	switch {
	case !box.Active() && required:
		d.report("sandbox", broken, "install bubblewrap, or set \"failIfUnavailable\": false in the settings", "the settings require a sandbox, and none works here: %s", strings.Join(r.Missing, "; "))
	case !box.Active():
		d.report("sandbox", noted, "on Linux install bubblewrap; elsewhere run agents in a container", "none; only permission rules restrict the commands that you approve")
	case len(r.Missing) > 0:
		d.report("sandbox", noted, "install bubblewrap", "%s works%s\nnot guaranteed:\n%s", r.Kind, offBy(asked), strings.Join(r.Missing, "\n"))
	default:
		d.report("sandbox", fine, "", "%s works%s", r.Kind, offBy(asked))
	}
}

// offBy describes whether the sandbox is on.
func offBy(asked bool) string {
	if asked {
		return ", and is enabled"
	}
	return "; \"sandbox\": {\"enabled\": true} in the settings enables it"
}

// countSessions checks the store of sessions.
func (d *doctor) countSessions(ctx context.Context) {
	dir := d.cfg.ConfigDir()
	if dir == "" {
		d.report("sessions", noted, "set HOME or CLAUDE_CONFIG_DIR", "no home directory to save them in")
		return
	}
	all, err := session.List(ctx, &session.Files{Dir: dir}, nil)
	if err == nil {
		err = writable(filepath.Join(dir, "projects"))
	}
	if err != nil {
		d.report("sessions", broken, "make the directory writable, or name another one in CLAUDE_CONFIG_DIR", "%v", err)
		return
	}
	d.report("sessions", fine, "", "%d in %s", len(all), dir)
}

// writable checks whether files can be created in a directory, or in its nearest
// existing parent.
func writable(dir string) error {
	wanted := dir
	for {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, os.ErrNotExist) && filepath.Dir(dir) != dir:
			dir = filepath.Dir(dir)
			continue
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is not a directory", dir)
		}
		f, err := os.CreateTemp(dir, ".parley-doctor-*")
		if err != nil {
			return fmt.Errorf("%s cannot be written: %w", wanted, err)
		}
		return errors.Join(f.Close(), os.Remove(f.Name()))
	}
}

// lookForPrograms looks for the programs that tools run.
func (d *doctor) lookForPrograms() {
	for _, want := range []struct {
		name, do string
		without  state
	}{
		{"bash", "install bash: the tool Bash runs commands with it", broken},
		{"git", "install git; without it the model sees no branch and no changes", noted},
	} {
		path, err := lookPath(want.name, d.p.getenv("PATH"))
		if runtime.GOOS == "windows" && want.name == "bash" {
			d.report("bash", noted, "run Parley in WSL, where it can", "Parley runs no commands on Windows")
			continue
		}
		if err != nil {
			d.report(want.name, want.without, want.do, "it is not on the PATH")
			continue
		}
		d.report(want.name, fine, "", "%s", path)
	}
	if err := writable(os.TempDir()); err != nil {
		d.report("temp", broken, "name a writable directory in TMPDIR", "%v", err)
	}
}

// lookPath finds a program in the absolute directories of a PATH.
func lookPath(name, path string) (string, error) {
	if runtime.GOOS == "windows" {
		return exec.LookPath(name)
	}
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); filepath.IsAbs(dir) && err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", exec.ErrNotFound
}

// firstLines returns the first lines of a text.
func firstLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > n {
		lines = append(lines[:n], "…")
	}
	return strings.Join(lines, "\n")
}
