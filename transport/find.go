package transport

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Find returns the path of the agent's executable.
//
// It checks path, then the environment variable CLAUDE_BIN, then the locations where
// installers put the claude command, and finally the directories of PATH for claude
// and then parley. If path or CLAUDE_BIN is set, it is authoritative: if it is wrong,
// Find fails and does not select another program. Either may be a bare name, which is
// looked up on PATH.
//
// getenv looks up environment variables; nil means [os.Getenv]. Relative entries of
// PATH are skipped, so that a checked-out project cannot supply an agent. If no agent
// is found, the error is a [*NotFoundError].
func Find(path string, getenv func(string) string) (string, error) {
	if getenv == nil {
		getenv = os.Getenv
	}
	f := finder{goos: runtime.GOOS, getenv: getenv, stat: os.Stat}
	return f.find(path)
}

// A finder is one search. Its fields are its access to the system, so that tests can
// replace them.
type finder struct {
	goos   string
	getenv func(string) string
	stat   func(string) (fs.FileInfo, error)
	tried  []string
}

func (f *finder) find(path string) (string, error) {
	if path != "" {
		return f.named(path, "")
	}
	if env := f.getenv("CLAUDE_BIN"); env != "" {
		return f.named(env, "CLAUDE_BIN=")
	}
	for _, p := range f.places() {
		if f.usable(p, "") {
			return p, nil
		}
	}
	for _, name := range []string{"claude", "parley"} {
		if p := f.onPath(name); p != "" {
			return p, nil
		}
	}
	return "", &NotFoundError{Tried: f.tried}
}

// named resolves an executable that the caller named.
func (f *finder) named(path, prefix string) (string, error) {
	if !strings.ContainsAny(path, f.separators()) {
		if p := f.onPath(path); p != "" {
			return p, nil
		}
		if prefix != "" {
			f.tried = append([]string{prefix + path}, f.tried...)
		}
		return "", &NotFoundError{Tried: f.tried}
	}
	if f.goos == "windows" && isBatch(path) {
		return "", &StartError{Path: path, Err: errBatchFile}
	}
	info, err := f.stat(path)
	if err != nil && f.goos == "windows" && filepath.Ext(path) == "" {
		if i, e := f.stat(path + ".exe"); e == nil {
			path, info, err = path+".exe", i, nil
		}
	}
	switch {
	case err != nil:
		f.miss(prefix+path, err)
		return "", &NotFoundError{Tried: f.tried}
	case info.IsDir():
		return "", &StartError{Path: path, Err: errIsDirectory}
	case !f.executable(info):
		return "", &StartError{Path: path, Err: fs.ErrPermission}
	}
	// A relative path is relative to this process. Left as it is, the system would
	// resolve it relative to the directory in which the child is started.
	return filepath.Abs(path)
}

// places returns where installers put the command when they do not change PATH, or
// where the PATH of a desktop session or a service does not reach.
func (f *finder) places() []string {
	var list []string
	home := f.home()
	under := func(parts ...string) {
		if home != "" {
			list = append(list, filepath.Join(append([]string{home}, parts...)...))
		}
	}
	if f.goos == "windows" {
		under(".claude", "local", "claude.exe")
		under(".local", "bin", "claude.exe")
		return list
	}
	under(".claude", "local", "claude")
	list = append(list, "/usr/local/bin/claude")
	under(".local", "bin", "claude")
	under(".npm-global", "bin", "claude")
	under("node_modules", ".bin", "claude")
	under(".yarn", "bin", "claude")
	if f.goos == "darwin" {
		list = append(list, "/opt/homebrew/bin/claude")
	}
	return list
}

func (f *finder) home() string {
	if f.goos == "windows" {
		return f.getenv("USERPROFILE")
	}
	return f.getenv("HOME")
}

// onPath looks for name in the directories of PATH.
func (f *finder) onPath(name string) string {
	names := []string{name}
	if f.goos == "windows" {
		// cmd.exe would interpret the arguments of a batch file, so only native
		// programs count.
		switch ext := strings.ToLower(filepath.Ext(name)); ext {
		case ".exe", ".com":
		default:
			names = []string{name + ".exe", name + ".com"}
		}
	}
	path := f.getenv("PATH")
	if path == "" {
		f.tried = append(f.tried, name+" on PATH (PATH is empty)")
		return ""
	}
	list := ":"
	if f.goos == "windows" {
		list = ";"
	}
	seen := map[string]bool{} // go run adds a directory that is often there already
	for _, dir := range strings.Split(path, list) {
		if !filepath.IsAbs(dir) || seen[dir] {
			continue
		}
		seen[dir] = true
		for _, n := range names {
			p := filepath.Join(dir, n)
			if f.usable(p, " (on PATH)") {
				return p
			}
		}
	}
	return ""
}

// usable reports whether path can be started, and records it when it cannot.
func (f *finder) usable(path, note string) bool {
	info, err := f.stat(path)
	switch {
	case err != nil:
		f.miss(path+note, err)
	case info.IsDir():
		f.tried = append(f.tried, path+note+" (a directory)")
	case !f.executable(info):
		f.tried = append(f.tried, path+note+" (not executable)")
	default:
		return true
	}
	return false
}

func (f *finder) miss(place string, err error) {
	if pe, ok := err.(*fs.PathError); ok && !os.IsNotExist(err) {
		place = fmt.Sprintf("%s (%v)", place, pe.Err)
	}
	f.tried = append(f.tried, place)
}

func (f *finder) executable(info fs.FileInfo) bool {
	return f.goos == "windows" || info.Mode()&0o111 != 0
}

func (f *finder) separators() string {
	if f.goos == "windows" {
		return `/\:`
	}
	return "/"
}

func isBatch(path string) bool {
	ext := strings.ToLower(filepath.Ext(strings.TrimRight(path, " .")))
	return ext == ".bat" || ext == ".cmd"
}
