package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/internal/spelling"
	"github.com/parley-go/parley/terminal"
)

// The exit statuses. A command may exit with another status, such as that of a program
// it ran; its help describes that.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// A command is a subcommand.
type command struct {
	name  string
	short string // one line for the list
	group string // the heading of its list
	// run runs the command. An error is printed and determines the exit status: see
	// status.
	run func(ctx context.Context, p *process, args []string) error
}

// commands returns all subcommands, in the order of the list. Add a line here to add
// one.
func commands() []command {
	const (
		first = "See it work"
		start = "Set it up"
		ways  = "Connect it to other programs"
		rules = "Permissions"
		kept  = "Saved conversations"
		runs  = "Sessions in the background (parley --bg PROMPT starts one)"
		tests = "Test agents without a key or a network"
		rest  = "About"
	)
	return []command{
		{"demo", "watch a whole conversation, with no key and no network", first, demo},
		{"doctor", "check the setup, and print how to fix each problem", start, doctorCommand},
		{"init", "create a settings file, with an explanation", start, initCommand},
		{"config", "read and change your settings", start, configCommand},
		{"auth", "show where the credentials for the model come from, or store a key", start, authCommand},
		{"completion", "print a completion script for bash, zsh or fish", start, completion},
		{"mcp", "add, list and remove MCP servers; log in to them; act as one", ways, mcpCommand},
		{"plugin", "install, list and remove plugins; check one", ways, pluginCommand},
		{"acp", "act as the agent of an editor (Agent Client Protocol)", ways, acpCommand},
		{"rpc", "act as an agent that speaks JSON-RPC 2.0", ways, rpcCommand},
		{"policy", "explain permission decisions; find rules that never match", rules, policyCommand},
		{"trust", "show and trust the hooks, servers and rules of a project", rules, trust},
		{"sessions", "list, read, rename, fork, export, import and delete conversations", kept, sessions},
		{"cost", "show the cost of a session or a day, by model and agent", kept, costCommand},
		{"agents", "list the sessions that run in the background", runs, agentsCommand},
		{"attach", "watch a session, send prompts, answer its questions", runs, attachCommand},
		{"logs", "print the messages of a session", runs, logsCommand},
		{"stop", "interrupt a session and end its agent", runs, stopCommand},
		{"rm", "remove a session from the hub", runs, rmCommand},
		{"serve", "serve sessions to pages, phones and programs", runs, serveCommand},
		{"schedules", "send prompts to a session at set times", runs, schedulesCommand},
		{"worktrees", "list, merge and remove the git worktrees of sessions", runs, worktreesCommand},
		{"hub", "run the sessions of this user; it starts by itself", runs, hubCommand},
		{"fake-api", "a Messages API that plays a script", tests, fakeAPI},
		{"fake-cli", "a CLI that plays a script, for an SDK to spawn", tests, fakeCLI},
		{"fake-host", "an SDK that plays a script, against a CLI", tests, fakeHost},
		{"record", "pass requests on to an API and record the traffic", tests, record},
		{"replay", "answer requests from a recording", tests, replay},
		{"conform", "check a CLI or an SDK against the rules of the protocol", tests, conform},
		{"version", "print the version", rest, version},
		{"help", "explain a command or a file format", rest, help},
	}
}

// lookup finds a command by its name.
func lookup(name string) (command, bool) {
	all := commands()
	i := slices.IndexFunc(all, func(c command) bool { return c.name == name })
	if i < 0 {
		return command{}, false
	}
	return all[i], true
}

// run runs the command line and returns the exit status.
func run(ctx context.Context, p *process, args []string) int {
	first := ""
	if len(args) > 0 {
		first = args[0]
	}
	if c, ok := lookup(first); ok {
		return status(p, "parley "+c.name, c.run(ctx, p, args[1:]))
	}
	// An SDK accepts only the path of a CLI, so the environment can turn the command
	// itself into a fake CLI.
	if fakeInEnv(p) {
		return status(p, "parley fake-cli", playFake(p, fakeFromEnv(p), args))
	}
	switch first {
	case "--version", "-v":
		fmt.Fprintln(p.stdout, versionLine())
		return exitOK
	case "--help", "-h":
		return runHelp(ctx, p, nil)
	}
	if rest, ok := isBackground(args); ok {
		return status(p, "parley --bg", runBackground(ctx, p, rest))
	}
	if like := nearest(first); like != "" {
		return status(p, "parley", usagef("unknown command %q. Did you mean %s? Run \"parley help\" for the list", first, like))
	}
	return runAgent(ctx, p, args)
}

// A usageError means that a command line is wrong.
type usageError struct{ reason string }

func (e *usageError) Error() string { return e.reason }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// An exitStatus is an error that was already reported, or the exit status of another
// program.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// status prints an error with a name and returns its exit status.
func status(p *process, name string, err error) int {
	var usage *usageError
	var exit exitStatus
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &usage):
		hint := ""
		if !strings.Contains(usage.reason, "parley ") && !strings.HasSuffix(usage.reason, "?") {
			usage.reason = strings.TrimSuffix(usage.reason, ".")
			hint = fmt.Sprintf(". Run \"parley help %s\" for details", firstWord(strings.TrimPrefix(name, "parley ")))
		}
		fmt.Fprintf(p.stderr, "%s: %s%s\n", name, strings.TrimPrefix(usage.reason, name+": "), hint)
		return exitUsage
	default:
		fmt.Fprintf(p.stderr, "%s: %s%s\n", name, strings.TrimPrefix(plain(err), strings.TrimPrefix(name, "parley ")+": "), remedy(p, err))
		return exitFailure
	}
}

// remedy returns advice about an error of the system.
func remedy(p *process, err error) string {
	var file *fs.PathError
	switch dir := cmp.Or(p.getenv("CLAUDE_CONFIG_DIR"), filepath.Join(p.getenv("HOME"), ".claude")); {
	case errors.Is(err, exec.ErrNotFound):
		return ". Install the program, or correct its name"
	case !errors.As(err, &file) || errors.Is(err, fs.ErrExist):
		return ""
	case strings.HasPrefix(file.Path, dir) || strings.HasPrefix(dir, file.Path):
		return ". Make the directory writable, or name another one in CLAUDE_CONFIG_DIR"
	case errors.Is(err, fs.ErrNotExist):
		return ". Correct the path, or create the file"
	case errors.Is(err, fs.ErrPermission):
		return ". Check the permissions of the file and its directory"
	}
	return ""
}

// plain returns the text of an error without package names and without "Error:".
func plain(err error) string {
	text := err.Error()
	for _, name := range []string{"Error: ", "error: ", "parleytest: ", "conformance: ", "peer: ", "session: ", "hub: ", "socket: ", "serve: "} {
		text = strings.TrimPrefix(text, name)
	}
	return strings.ReplaceAll(text, ": peer: cannot start: ", ": ")
}

// firstWord returns the command of a name such as "conform cli".
func firstWord(name string) string {
	word, _, _ := strings.Cut(name, " ")
	return word
}

// agentFlags parses the flags of the agent for a command that accepts them, and no prompt.
func agentFlags(args []string) (*cli.Flags, error) {
	f, err := cli.Parse(args)
	switch {
	case err != nil:
		return nil, usagef("%s", plain(err))
	case f.HasPrompt:
		return nil, usagef("unexpected argument %q", f.Prompt)
	}
	return f, nil
}

// noWords returns an error if there are arguments besides flags.
func noWords(fs *flagSet) error {
	if fs.NArg() > 0 {
		return usagef("unexpected argument %q", fs.Arg(0))
	}
	return nil
}

// didYouMean ends a sentence about a misspelled word, with the name that it may mean.
func didYouMean(word string, names []string) string {
	if like := spelling.Closest(word, names); like != "" {
		return terminal.Visible(" (did you mean " + like + "?).")
	}
	return "."
}

// unknownVerb returns the error about a subcommand that is none of the names.
func unknownVerb(verb string, names ...string) error {
	return usagef("unknown subcommand %q%s Use one of: %s", verb, didYouMean(verb, names), strings.Join(names, ", "))
}

// nearest returns the command that a word may be a misspelling of; "" if there is none,
// or if the word looks like a prompt.
func nearest(word string) string {
	if word == "" || word[0] == '-' || strings.ContainsFunc(word, unicode.IsSpace) {
		return ""
	}
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return spelling.Closest(word, names)
}

// A flagSet holds the flags of a command and its help.
type flagSet struct {
	*flag.FlagSet
	help func()
}

// newFlags returns a set of flags whose help is the synopsis, the text and the flags.
func newFlags(p *process, name, synopsis, text string) *flagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are printed once, by status
	fs.Usage = func() {}     // and without the help
	return &flagSet{fs, func() {
		usage := strings.TrimSpace("parley " + name + " " + synopsis)
		fmt.Fprintf(p.stdout, "%s\n\n%s\n", usage, strings.Trim(text, "\n"))
		printFlags(p.stdout, fs)
	}}
}

// printFlags lists flags with two dashes and their defaults.
func printFlags(w io.Writer, fs *flag.FlagSet) {
	type row struct{ left, right string }
	var rows []row
	wide := 0
	fs.VisitAll(func(f *flag.Flag) {
		value, usage := flag.UnquoteUsage(f)
		left := "--" + f.Name
		if value != "" {
			left += " " + value
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0s" {
			usage += " (" + f.DefValue + ")"
		}
		rows = append(rows, row{left, usage})
		wide = max(wide, len(left))
	})
	if len(rows) == 0 {
		return
	}
	fmt.Fprintln(w, "\nFlags:")
	for _, r := range rows {
		fmt.Fprintf(w, "  %-*s  %s\n", wide, r.left, strings.ReplaceAll(r.right, "\n", "\n"+strings.Repeat(" ", wide+4)))
	}
}

// parse parses flags. An error is a usageError with a hint.
func parse(fs *flagSet, args []string) error {
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fs.help()
	}
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		text = "unknown flag --" + strings.TrimLeft(name, "-")
		var names []string
		fs.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
		if like := spelling.Closest(strings.TrimLeft(name, "-"), names); like != "" {
			text += " (did you mean --" + strings.ReplaceAll(like, " or ", " or --") + "?)"
		}
	}
	text = strings.NewReplacer("flag needs an argument: -", "a value is missing after --", "for flag -", "for --").Replace(text)
	if before, ok := strings.CutSuffix(text, ": parse error"); ok {
		text = before + ": " + expected(fs, before)
	}
	return usagef("%s. Run \"parley help %s\" for its flags", text, firstWord(fs.Name()))
}

// expected returns what to write for the flag at the end of an error such as
// invalid value "x" for --limit.
func expected(fs *flagSet, text string) string {
	if f := fs.Lookup(text[strings.LastIndex(text, "--")+2:]); f != nil {
		if get, ok := f.Value.(flag.Getter); ok {
			switch get.Get().(type) {
			case time.Duration:
				return "write a time, such as 30s or 5m"
			case bool:
				return "write true or false"
			}
		}
	}
	return "write a number"
}

// parseWords parses flags that come before and after words, and returns the words.
func parseWords(fs *flagSet, args []string) (words []string, err error) {
	for rest := args; ; {
		if err := parse(fs, rest); err != nil {
			return nil, err
		}
		if rest = fs.Args(); len(rest) == 0 {
			return words, nil
		}
		words = append(words, rest[0])
		rest = rest[1:]
	}
}

// A list is a flag that may be given several times.
type list []string

// String implements [flag.Value].
func (l *list) String() string { return strings.Join(*l, ", ") }

// Set implements [flag.Value].
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

// pairs parses NAME=VALUE flags.
func pairs(flagName string, l list) (map[string]string, error) {
	out := map[string]string{}
	for _, s := range l {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, usagef("--%s %s is not NAME=VALUE", flagName, s)
		}
		out[name] = value
	}
	return out, nil
}
