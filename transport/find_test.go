package transport

import (
	"errors"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// A world is what a finder sees: files with modes, and an environment.
type world struct {
	files fstest.MapFS
	env   map[string]string
}

func (w world) finder(goos string) *finder {
	return &finder{
		goos:   goos,
		getenv: func(key string) string { return w.env[key] },
		stat: func(path string) (fs.FileInfo, error) {
			return w.files.Stat(strings.TrimPrefix(filepath.ToSlash(path), "/"))
		},
	}
}

func TestFind(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths are written for unix")
	}
	program := &fstest.MapFile{Mode: 0o755}
	plain := &fstest.MapFile{Mode: 0o644}
	dir := &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	env := func(kv ...string) map[string]string {
		m := map[string]string{"HOME": "/home/ann", "PATH": "/usr/bin:/bin"}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	all := fstest.MapFS{
		"opt/agent":                         program,
		"opt/other":                         program,
		"home/ann/.claude/local/claude":     program,
		"usr/local/bin/claude":              program,
		"home/ann/.local/bin/claude":        program,
		"home/ann/node_modules/.bin/claude": program,
		"usr/bin/claude":                    program,
		"bin/parley":                        program,
	}
	only := func(names ...string) fstest.MapFS {
		m := fstest.MapFS{}
		for _, n := range names {
			m[n] = program
		}
		return m
	}
	for _, tt := range []struct {
		name  string
		goos  string
		path  string
		world world
		want  string
		err   error // matched by errors.Is; a NotFoundError if tried is set
		tried []string
	}{
		{name: "option", path: "/opt/agent", world: world{all, env("CLAUDE_BIN", "/opt/other")}, want: "/opt/agent"},
		{name: "option by name", path: "claude", world: world{all, env()}, want: "/usr/bin/claude"},
		{name: "option missing", path: "/opt/none", world: world{all, env()}, tried: []string{"/opt/none"}},
		{name: "option is a directory", path: "/opt/d", world: world{fstest.MapFS{"opt/d": dir}, env()}, err: errIsDirectory},
		{name: "option not executable", path: "/opt/f", world: world{fstest.MapFS{"opt/f": plain}, env()}, err: fs.ErrPermission},
		{name: "variable", world: world{all, env("CLAUDE_BIN", "/opt/other")}, want: "/opt/other"},
		{name: "variable missing decides", world: world{all, env("CLAUDE_BIN", "/opt/none")}, tried: []string{"CLAUDE_BIN=/opt/none"}},
		{name: "home first", world: world{all, env()}, want: "/home/ann/.claude/local/claude"},
		{name: "usr local", world: world{only("usr/local/bin/claude", "usr/bin/claude"), env()}, want: "/usr/local/bin/claude"},
		{name: "places before PATH", world: world{only("home/ann/.yarn/bin/claude", "usr/bin/claude"), env()}, want: "/home/ann/.yarn/bin/claude"},
		{name: "claude before parley", world: world{only("bin/claude", "usr/bin/parley"), env()}, want: "/bin/claude"},
		{name: "parley", world: world{only("bin/parley"), env()}, want: "/bin/parley"},
		{name: "relative PATH entries do not count", world: world{only("bin/claude"), env("PATH", "bin:.:")}, tried: []string{"/home/ann/.yarn/bin/claude"}},
		{name: "no home", world: world{only("bin/claude"), env("HOME", "")}, want: "/bin/claude"},
		{name: "a directory twice on PATH", world: world{nil, env("PATH", "/opt:/opt")}, tried: []string{"/opt/claude (on PATH)"}},
		{name: "no PATH", world: world{nil, env("PATH", "")}, tried: []string{"claude on PATH (PATH is empty)"}},
		{name: "unusable ones say why", world: world{fstest.MapFS{
			"usr/local/bin/claude": plain, "usr/bin/claude": dir,
		}, env()}, tried: []string{"/usr/local/bin/claude (not executable)", "/usr/bin/claude (on PATH) (a directory)"}},
		{name: "nothing", world: world{nil, env()}, tried: []string{
			"/home/ann/.claude/local/claude", "/usr/local/bin/claude", "/home/ann/.local/bin/claude",
			"/home/ann/.npm-global/bin/claude", "/home/ann/node_modules/.bin/claude", "/home/ann/.yarn/bin/claude",
			"/usr/bin/claude (on PATH)", "/bin/claude (on PATH)", "/usr/bin/parley (on PATH)", "/bin/parley (on PATH)",
		}},
		{name: "windows", goos: "windows", world: world{only("Users/ann/.local/bin/claude.exe"), env("USERPROFILE", "/Users/ann")}, want: "/Users/ann/.local/bin/claude.exe"},
		{name: "windows PATH", goos: "windows", world: world{only("a/claude.cmd", "b/claude.exe"), env("PATH", "/a;/b")}, want: "/b/claude.exe"},
		{name: "windows extension", goos: "windows", path: "/opt/agent", world: world{only("opt/agent.exe"), env()}, want: "/opt/agent.exe"},
		{name: "windows batch", goos: "windows", path: "/opt/claude.CMD", world: world{only("opt/claude.CMD"), env()}, err: errBatchFile},
		{name: "windows batch in disguise", goos: "windows", path: "/opt/claude.bat. ", world: world{nil, env()}, err: errBatchFile},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.goos == "" {
				tt.goos = "linux"
			}
			got, err := tt.world.finder(tt.goos).find(tt.path)
			if got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
			switch {
			case tt.tried != nil:
				var nf *NotFoundError
				if !errors.As(err, &nf) || !errors.Is(err, fs.ErrNotExist) {
					t.Fatalf("a %T: %v", err, err)
				}
				if once := slices.Compact(slices.Sorted(slices.Values(nf.Tried))); len(once) != len(nf.Tried) {
					t.Errorf("a place is listed twice: %q", nf.Tried)
				}
				for _, place := range tt.tried {
					if !slices.Contains(nf.Tried, place) || !strings.Contains(err.Error(), place) {
						t.Errorf("%q is not in %v", place, err)
					}
				}
			case !errors.Is(err, tt.err):
				t.Errorf("error %v, want %v", err, tt.err)
			}
		})
	}
}
