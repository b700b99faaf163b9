package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/parley-go/parley"
)

// theirs is the version of the official CLI that this program behaves as.
const theirs = "2.1.325"

// versionLine answers --version: SDKs take the number at its beginning for the
// version of the CLI.
func versionLine() string { return fmt.Sprintf("%s (Claude Code; parley %s)", theirs, parley.Version) }

// version says what this program is, for people and bug reports.
func version(_ context.Context, p *process, args []string) error {
	fs := newFlags(p, "version", "", "Says which version this is, which version of the official CLI it behaves as,\nand what it was built with. \"parley --version\" is the line that SDKs read.")
	if err := parse(fs, args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return usagef("it takes no arguments, and %q is one", fs.Arg(0))
	}
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				revision = ", revision " + s.Value[:12]
			}
		}
	}
	_, err := fmt.Fprintf(p.stdout, "parley %s (as Claude Code %s), %s %s/%s%s\n", parley.Version, theirs, runtime.Version(), runtime.GOOS, runtime.GOARCH, revision)
	return err
}
