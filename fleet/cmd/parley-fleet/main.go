// Command parley-fleet runs the sessions of Parley on one machine or three, with NATS JetStream
// embedded, or on any number of machines with an existing NATS cluster.
//
//	parley-fleet up --data /var/lib/parley --addr 127.0.0.1:8080
//	parley-fleet status --data /var/lib/parley
//
// It exits with 0 for success, 1 for failure and 2 for wrong usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `parley-fleet runs the sessions of Parley on many machines.

  parley-fleet up       run a node: the NATS server, the API and the page of parley serve, a worker
  parley-fleet worker   run only a worker, for an existing fleet
  parley-fleet status   show the workers and sessions, as a table or as JSON
  parley-fleet top      show the table of "status" and refresh it every two seconds
  parley-fleet token    create a token for the API of a node
  parley-fleet tenant   show, set or remove the limits of a tenant
  parley-fleet backup   write all sessions to a directory while the fleet runs
  parley-fleet restore  read a backup into a fleet that has no sessions
  parley-fleet export   write one session to a file, for "parley sessions import" or another fleet
  parley-fleet import   add a session from such a file

Run "parley-fleet help COMMAND" for the flags. docs/fleet.md is the manual.
`

// errUsage marks errors of the command line.
var errUsage = errors.New("usage")

func usagef(format string, args ...any) error {
	return fmt.Errorf("%w%s", errUsage, fmt.Sprintf(": "+format, args...))
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs a command and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	commands := map[string]func(context.Context, []string, io.Writer, io.Writer) error{
		"up": up, "worker": worker, "status": status, "top": top, "token": token, "tenant": tenant, "backup": backup, "restore": restore,
		"export": exportSession, "import": importSession,
	}
	if len(args) > 1 && args[0] == "help" {
		args = []string{args[1], "--help"}
	}
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		fmt.Fprint(stdout, usage)
		return 0
	}
	f := commands[args[0]]
	if f == nil {
		fmt.Fprintf(stderr, "parley-fleet: %q is not a command.\n\n%s", args[0], usage)
		return 2
	}
	err := f(ctx, args[1:], stdout, stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintf(stderr, "parley-fleet %s: %s\n", args[0], strings.TrimPrefix(err.Error(), "usage: "))
		return 2
	}
	fmt.Fprintf(stderr, "parley-fleet %s: %v\n", args[0], err)
	return 1
}

// about returns the description of a command from the usage.
func about(name string) string {
	command, _, _ := strings.Cut(name, " ")
	_, line, _ := strings.Cut(usage, "\n  parley-fleet "+command+" ")
	line, _, _ = strings.Cut(strings.TrimSpace(line), "\n")
	return strings.ToUpper(line[:1]) + line[1:] + "."
}

// newFlags returns the flags of a command.
func newFlags(name string, stdout io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(stdout)
	fs.Usage = func() {
		fmt.Fprintf(fs.Output(), "parley-fleet %s\n%s\n", name, about(name))
		fs.PrintDefaults()
	}
	return fs
}

// parse parses flags. There are no other arguments, unless words is not nil.
func parse(fs *flag.FlagSet, args []string, words *[]string) error {
	out := fs.Output()
	fs.SetOutput(io.Discard)
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fs.SetOutput(out)
		fs.Usage()
		return err
	case err != nil:
		return usagef("%v", err)
	case words != nil:
		*words = fs.Args()
	case fs.NArg() > 0:
		return usagef("%q is not a flag; there are no other arguments", fs.Arg(0))
	}
	return nil
}
