package interop

import (
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/internal/testwait"
)

func TestMain(m *testing.M) {
	Role()
	if cli := os.Getenv(hostVar); cli != "" {
		if err := host(cli); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	hubRole()
	flag.Parse()
	// A scenario mostly waits: for a process to start, for a retry. Twice as many
	// scenarios as processors keep these busy.
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		flag.Set("test.parallel", "4")
	}
	os.Exit(m.Run())
}

// peers returns the official peers. It skips the test if there are none, and if more
// than loopback can be reached.
func peers(t *testing.T) Peers {
	t.Helper()
	dir := os.Getenv("PARLEY_PEERS")
	if dir == "" {
		t.Skip("PARLEY_PEERS names no directory with the official peers; make interop does")
	}
	if os.Getenv("PARLEY_OFFLINE") != "1" {
		t.Skip("the official peers run with loopback only; use scripts/offline")
	}
	ifaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range ifaces {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			t.Skipf("the official peers run with loopback only, and %s is up", i.Name)
		}
	}
	p := Peers{Dir: dir}
	if _, err := os.Stat(p.CLI()); err != nil {
		t.Skipf("the official CLI is not installed: %v", err)
	}
	return p
}

// python returns the driver with the official Python SDK. It skips the test if that is not installed.
func python(t *testing.T) Driver {
	t.Helper()
	d, err := peers(t).Python(".")
	if err != nil {
		t.Skipf("the Python SDK is not installed: %v", err)
	}
	return d
}

// parleyCLI returns our own command.
func parleyCLI(t *testing.T) string {
	t.Helper()
	cli := os.Getenv("PARLEY_CLI")
	if cli == "" {
		t.Skip("PARLEY_CLI names no parley command")
	}
	return cli
}

// skipLacking skips a scenario that needs a feature that our command does not have yet.
func skipLacking(t *testing.T, s *Scenario) {
	t.Helper()
	lacks := strings.Split(os.Getenv("PARLEY_CLI_LACKS"), ",")
	for _, need := range s.Needs {
		if slices.Contains(lacks, need) {
			t.Skipf("PARLEY_CLI_LACKS has %s", need)
		}
	}
}

// playAll plays scenarios with a driver and a CLI: the named ones, or all.
func playAll(t *testing.T, d Driver, cli string, names ...string) {
	t.Helper()
	for _, s := range Scenarios() {
		if len(names) > 0 && !slices.Contains(names, s.Name) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if slices.Contains(s.Not, d.Name()) {
				t.Skipf("%s has no way to do this", d.Name())
			}
			if cli == os.Getenv("PARLEY_CLI") {
				skipLacking(t, s)
			}
			ctx := testwait.Context(t)
			var o *Outcome
			if d == (GoSDK{}) && cli != os.Getenv("PARLEY_CLI") && len(few()) > 0 && !slices.Contains(few(), s.Name) {
				o = recordOnce(ctx, t, s, d, cli, t.TempDir()) // TestParleyLikeClaude has it
			} else {
				o = Play(ctx, s, d, cli, t.TempDir())
			}
			for _, p := range o.Problems {
				t.Error(p)
			}
			if t.Failed() || testing.Verbose() {
				t.Logf("%s\n%s", s.Says, o)
			}
		})
	}
}

// few returns the scenarios that show that a driver works with the official CLI. With
// PARLEY_INTEROP_ALL=1 it returns none, which means all.
func few() []string {
	if os.Getenv("PARLEY_INTEROP_ALL") == "1" {
		return nil
	}
	return []string{
		"one-shot", "multi-turn", "partial-messages", "permission-changed-input", "hook-deny", "tool-in-process", "interrupt", "resume", "api-400",
	}
}

func TestGoSDKDrivesClaude(t *testing.T) { playAll(t, GoSDK{}, peers(t).CLI()) }

func TestTypeScriptSDKDrivesClaude(t *testing.T) {
	p := peers(t)
	playAll(t, p.TypeScript("."), p.CLI(), few()...)
}

func TestPythonSDKDrivesClaude(t *testing.T) {
	playAll(t, python(t), peers(t).CLI(), few()...)
}

func TestGoSDKDrivesParley(t *testing.T) { playAll(t, GoSDK{}, parleyCLI(t)) }

func TestTypeScriptSDKDrivesParley(t *testing.T) {
	cli := parleyCLI(t)
	playAll(t, peers(t).TypeScript("."), cli)
}

func TestPythonSDKDrivesParley(t *testing.T) {
	cli := parleyCLI(t)
	playAll(t, python(t), cli)
}
