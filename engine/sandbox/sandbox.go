// Package sandbox confines commands: they write only below the working directories, except
// to files there that other programs would execute, reach the network only by name through
// a proxy, and see no other process.
//
// There are two kinds, and the first that works is used. Bubblewrap runs a command in its
// own namespaces and enforces every restriction. Landlock with a seccomp filter needs
// nothing installed, but enforces less: it cannot protect a path inside a writable
// directory, and allows either all of the network or none. The [Report] lists which
// restrictions are enforced.
//
// The kernel enforces the restrictions; this package only configures them. A command cannot
// switch them off, and its children are confined as well.
//
// The package handles files, processes and the network. It does not depend on tools,
// permissions or callers. It reads no environment and no home directory: both are options.
// It works on Linux; elsewhere there is no sandbox, which it reports.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/parley-go/parley/internal/gate"
)

// Kinds of confinement.
const (
	Bubblewrap = "bubblewrap"
	Landlock   = "landlock"
	Seatbelt   = "seatbelt" // only for walls on macOS
	None       = "none"
)

// ErrUnavailable means that no sandbox is available and that nothing may run without one.
var ErrUnavailable = errors.New("the sandbox is not available")

// Options configure a [Sandbox].
type Options struct {
	Settings *Settings
	// Dir is the directory that relative paths in the settings refer to, and the first
	// writable directory.
	Dir string
	// Roots are the directories that may be written to if a command has none of its own.
	// Nil means Dir.
	Roots []string
	Home  string // for "~/" and the startup files; may be empty
	// Temp are directories for temporary files, which may be written to.
	Temp []string
	// Protect are paths that must never be written to, in addition to [Protected].
	Protect []string
	// Hide are files and directories that must never be read, such as our own credentials.
	Hide []string
	// Path is a list of directories, as in PATH, that are searched for bwrap.
	Path string
	// Only is the only kind to use; empty means the best one.
	Only string
	// Lookup resolves names for the proxy. Nil means the resolver of this machine.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// A Report lists which restrictions are enforced, for people and programs.
type Report struct {
	Enabled  bool     `json:"enabled"`
	Kind     string   `json:"kind"` // [Bubblewrap], [Landlock] or [None]
	Enforced []string `json:"enforced"`
	Missing  []string `json:"missing"`           // restrictions that are not enforced
	Ignored  []string `json:"ignored,omitempty"` // settings without effect
}

// A Sandbox confines commands. It is safe for concurrent use.
type Sandbox struct {
	opts    Options
	set     *Settings
	kind    string
	report  Report
	unheld  []string // settings that cannot be enforced
	bwrap   string
	root    bool   // keep the file capabilities of root
	version int    // of Landlock
	proxy   *proxy // nil if there is no network
	filter  []byte // the seccomp program

	running gate.Gate // commands
}

// New prepares a sandbox: it checks what this machine supports and tries it once. It
// returns nil without an error if the settings disable the sandbox. The error is
// [ErrUnavailable], with the reason, if there is no sandbox and the settings do not allow
// commands to run without one; otherwise the report lists what is missing.
func New(opts Options) (*Sandbox, error) {
	set := opts.Settings
	if set == nil || !set.Enabled {
		return nil, nil
	}
	s := &Sandbox{opts: opts, set: set, kind: None}
	if s.opts.Roots == nil {
		s.opts.Roots = []string{opts.Dir}
	}
	s.report = Report{Enabled: true, Enforced: []string{}, Missing: []string{}, Ignored: set.ignored}
	why := s.find()
	s.report.Kind = s.kind
	if s.kind == None {
		s.report.Missing = append(s.report.Missing, "everything: "+why.Error())
		if set.mustHave() {
			return nil, fmt.Errorf("%w: %v. Install bubblewrap, or set sandbox.failIfUnavailable to false to run without", ErrUnavailable, why)
		}
		return s, nil
	}
	asked := s.describe()
	if len(asked) > 0 && set.mustHave() {
		s.Close()
		return nil, fmt.Errorf("%w: %s cannot enforce these settings: %s. Install bubblewrap, remove them, or set sandbox.failIfUnavailable to false to run without them", ErrUnavailable, s.kind, strings.Join(asked, "; "))
	}
	s.report.Missing = append(s.report.Missing, asked...)
	return s, nil
}

// Report returns which restrictions are enforced. A nil sandbox is disabled.
func (s *Sandbox) Report() Report {
	if s == nil {
		return Report{Kind: None, Enforced: []string{}, Missing: []string{}}
	}
	return s.report
}

// Active reports whether commands are confined.
func (s *Sandbox) Active() bool { return s != nil && s.kind != None }

// Complete reports whether commands are confined and cannot write the files in their
// working directories that other programs execute or obey. Landlock alone cannot guarantee
// that.
func (s *Sandbox) Complete() bool {
	return s != nil && s.kind == Bubblewrap && !s.set.Filesystem.Disabled
}

// Settings returns the settings of the sandbox.
func (s *Sandbox) Settings() *Settings {
	if s == nil {
		return &Settings{}
	}
	return s.set
}

// Environ returns an environment without variables that look like credentials.
func (s *Sandbox) Environ(env []string) []string {
	if s == nil {
		return env
	}
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return s.set.secret(name)
	})
}

// Confine changes a command that was not started so that it runs inside the sandbox, where
// it may write to the given directories, or to those of the options if there are none. The
// caller must call started with the result of Start. The channel that it returns is closed
// when none of the command's processes runs any more, soon after the command has ended. The
// command gets no additional files: those that are added are closed before it runs. If no
// sandbox is active, the command does not change.
func (s *Sandbox) Confine(cmd *exec.Cmd, roots ...string) (started func(error) (over <-chan struct{}), err error) {
	if !s.Active() {
		return atOnce, nil
	}
	if cmd.Path == "" || len(cmd.Args) == 0 {
		return nil, errors.New("sandbox: the command names no program")
	}
	if len(roots) == 0 {
		roots = s.opts.Roots
	}
	return s.confine(cmd, roots)
}

// atOnce returns a closed channel.
func atOnce(error) <-chan struct{} {
	over := make(chan struct{})
	close(over)
	return over
}

// Close stops the proxy and waits a moment for commands to end. Their callers stop them.
func (s *Sandbox) Close() {
	if s == nil {
		return
	}
	select {
	case <-s.running.Close():
	case <-time.After(2 * time.Second):
	}
	if s.proxy != nil {
		s.proxy.close()
	}
}

// findBwrap returns the path of bubblewrap.
func (s *Sandbox) findBwrap() (string, error) {
	if p := s.set.BwrapPath; p != "" {
		return p, runnable(p)
	}
	for _, dir := range append(filepath.SplitList(s.opts.Path), "/usr/bin", "/bin", "/usr/local/bin") {
		// A project must not choose which bwrap is used.
		if !filepath.IsAbs(dir) || slices.ContainsFunc(s.opts.Roots, func(root string) bool { return within(root, filepath.Clean(dir)) }) {
			continue
		}
		if p := filepath.Join(dir, "bwrap"); runnable(p) == nil {
			return p, nil
		}
	}
	return "", errors.New("bwrap is not installed")
}

func runnable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !filepath.IsAbs(path) || !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not a program with an absolute path", path)
	}
	return nil
}

// members returns the JSON names of the fields of a struct.
func members(v any) []string {
	var names []string
	t := reflect.TypeOf(v)
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// within reports whether a clean path is a directory or something below it.
func within(dir, path string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+string(filepath.Separator))
}
