package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/parley-go/parley"
)

// theirs is the version of the official CLI whose behavior this program has.
const theirs = "2.1.325"

// versionLine returns the output of --version: SDKs read the number at its start as the
// version of the CLI.
func versionLine() string { return fmt.Sprintf("%s (Claude Code; parley %s)", theirs, parley.Version) }

// version prints the version for people and bug reports.
func version(_ context.Context, p *process, args []string) error {
	fs := newFlags(p, "version", "", "Prints the version, the version of the official CLI that it behaves as, and the\nversion of Go. \"parley --version\" prints the line that SDKs read.")
	if err := parse(fs, args); err != nil {
		return err
	}
	if err := noWords(fs); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.stdout, "parley %s (as Claude Code %s), %s %s/%s\n", ownVersion(), theirs, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// ownVersion returns the version of this program as recorded by the build: the version
// of the module if it was installed as one, and otherwise that of the source with its
// commit.
func ownVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return parley.Version
	}
	return describeBuild(info)
}

func describeBuild(info *debug.BuildInfo) string {
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	version := parley.Version
	switch commit := set["vcs.revision"]; {
	case len(commit) >= 12 && set["vcs.modified"] == "true":
		version += ", commit " + commit[:12] + " with changes"
	case len(commit) >= 12:
		version += ", commit " + commit[:12]
	case info.Main.Version != "" && info.Main.Version != "(devel)":
		version = strings.TrimPrefix(info.Main.Version, "v")
	case release != "":
		version += ", commit " + release
	}
	return version
}

// release is the commit of a release, which is built without the repository's own stamp
// so that it can be reproduced from its source alone. make release sets it.
var release string
