// Package sandbox runs commands where they can do little: they write only below
// the working directories, not to the files there that others would run, reach the
// network only by name through a proxy, and see no other process.
//
// There are two ways, and the first that works is taken. Bubblewrap gives a command
// namespaces of its own: everything here is held. Landlock with a seccomp filter
// needs nothing installed, but holds less: it cannot protect a path inside a
// directory that may be written to, and knows no network but all or none. The
// [Report] lists which restrictions hold.
//
// The kernel holds it, not this package: it only says what is to be held. A command
// cannot switch it off, whatever it does; its children are inside as well.
//
// The package knows files, processes and the network. It does not know tools,
// permissions or who asks. It reads no environment and no home: both are given. It
// works on Linux; elsewhere there is no sandbox and it says so.
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
	"sync"
	"time"
)

// The ways to confine a command.
const (
	Bubblewrap = "bubblewrap"
	Landlock   = "landlock"
	Seatbelt   = "seatbelt" // of walls on macOS only
	None       = "none"
)

// ErrUnavailable reports that no sandbox is available and that nothing may run without one.
var ErrUnavailable = errors.New("the sandbox is not available")

// Options say what a [Sandbox] is made from.
type Options struct {
	Settings *Settings
	// Dir is what relative paths of the settings are seen from, and the first of
	// the directories that may be written to.
	Dir string
	// Roots are the directories that may be written to if a command brings none.
	// Nil means Dir.
	Roots []string
	Home  string // for "~/" and its start-up files; may be empty
	// Temp are directories for temporary files, which may be written to.
	Temp []string
	// Protect are paths that may never be written to, beside those of [Protected].
	Protect []string
	// Hide are files and directories that may never be read, such as our own
	// credentials.
	Hide []string
	// Path is where bwrap is looked for, a list as in PATH.
	Path string
	// Only is the one way to take; empty means the best.
	Only string
	// Lookup resolves names for the proxy. Nil means as this machine does.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// A Report says what is held, for people and programs.
type Report struct {
	Enabled  bool     `json:"enabled"`
	Kind     string   `json:"kind"` // [Bubblewrap], [Landlock] or [None]
	Enforced []string `json:"enforced"`
	Missing  []string `json:"missing"`           // what is not held
	Ignored  []string `json:"ignored,omitempty"` // settings without effect
}

// A Sandbox confines commands. It is safe for concurrent use.
type Sandbox struct {
	opts    Options
	set     *Settings
	kind    string
	report  Report
	unheld  []string // settings that cannot be held
	bwrap   string
	root    bool   // keeps the rights over files that root has
	version int    // of Landlock
	proxy   *proxy // nil if there is no network
	filter  []byte // the seccomp program

	wg sync.WaitGroup // of commands that are not over
}

// New makes a sandbox ready: it looks for what this machine offers and tries it
// once. It returns nil without an error if the settings leave it off. The error is
// [ErrUnavailable], with the reason, if there is no sandbox and the settings do not
// let commands run without; otherwise what is missing is in the report.
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
		return nil, fmt.Errorf("%w: these settings cannot be held by %s: %s. Install bubblewrap, take them out, or set sandbox.failIfUnavailable to false to run without them", ErrUnavailable, s.kind, strings.Join(asked, "; "))
	}
	s.report.Missing = append(s.report.Missing, asked...)
	return s, nil
}

// Report says what is held. A nil sandbox is off.
func (s *Sandbox) Report() Report {
	if s == nil {
		return Report{Kind: None, Enforced: []string{}, Missing: []string{}}
	}
	return s.report
}

// Active reports whether commands are confined.
func (s *Sandbox) Active() bool { return s != nil && s.kind != None }

// Complete reports whether commands are confined and cannot write the files in their
// working directories that others run or obey. Landlock alone cannot promise that.
func (s *Sandbox) Complete() bool {
	return s != nil && s.kind == Bubblewrap && !s.set.Filesystem.Disabled
}

// Settings returns what the sandbox was made from.
func (s *Sandbox) Settings() *Settings {
	if s == nil {
		return &Settings{}
	}
	return s.set
}

// Environ returns an environment without what looks like a credential.
func (s *Sandbox) Environ(env []string) []string {
	if s == nil {
		return env
	}
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return s.set.secret(name)
	})
}

// Confine changes a command that was not started so that it runs inside, where it
// may write to these directories; without any, those of the options. The
// returned function must be called with the result of Start; the channel that it
// returns is closed when nothing of the command runs inside any more, soon after it has
// ended. The command gets no more files than it had: those that are added are
// closed before it runs. Without a sandbox that is active the command stays as it
// is.
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

// atOnce has nothing to wait for.
func atOnce(error) <-chan struct{} {
	over := make(chan struct{})
	close(over)
	return over
}

// Close ends the proxy and waits a moment for commands to be over. They are ended
// by who started them.
func (s *Sandbox) Close() {
	if s == nil {
		return
	}
	over := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(over)
	}()
	select {
	case <-over:
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
		// A project does not get to say what bwrap is.
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
		return fmt.Errorf("%s is no program with an absolute path", path)
	}
	return nil
}

// members returns the names that a struct has in JSON.
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
