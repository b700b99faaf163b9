//go:build unix

package agent_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// TestForeignTemp checks that a directory for temporary files that others can access is
// not used. The output of commands goes elsewhere, and nothing is written to the
// directory.
func TestForeignTemp(t *testing.T) {
	saved := regexp.MustCompile(`Full output saved to: (\S+)`)
	for name, plant := range map[string]func(path, other string) error{
		"nothing": func(path, other string) error { return nil },
		"readable for all": func(path, other string) error {
			if err := os.Mkdir(path, 0o755); err != nil {
				return err
			}
			return os.Chmod(path, 0o777)
		},
		"link": func(path, other string) error { return os.Symlink(other, path) },
		"file": func(path, other string) error { return os.WriteFile(path, nil, 0o600) },
		"of another user": func(path, other string) error {
			if err := os.Mkdir(path, 0o777); err != nil {
				return err
			}
			return os.Chown(path, 12345, 12345)
		},
		"in a directory that others can change": func(path, other string) error { return os.Chmod(filepath.Dir(path), 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			temp, other, home := t.TempDir(), t.TempDir(), t.TempDir()
			planted := filepath.Join(temp, "parley-"+strconv.Itoa(os.Getuid()))
			if err := plant(planted, other); err != nil {
				t.Skip(err)
			}
			t.Setenv("TMPDIR", temp)
			t.Setenv("XDG_RUNTIME_DIR", "")
			m := parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "head -c 300000 /dev/zero | tr '\\0' x"}), parleytest.Say("done")).Model()
			if err := os.Mkdir(filepath.Join(home, ".claude"), 0o700); err != nil {
				t.Fatal(err)
			}
			var lines []string
			all, _, err := collect(t, &parley.Options{Cwd: t.TempDir(), AllowedTools: []string{"Bash"}, Stderr: func(line string) { lines = append(lines, line) },
				Dialer: agent.InProcess(agent.Config{Model: m, Home: home, Environ: []string{"PATH=" + os.Getenv("PATH")}})}, "go")
			if err != nil {
				t.Fatal(err)
			}
			path := ""
			for _, msg := range all {
				if u, ok := msg.(*wire.User); ok {
					if text, _ := wire.Encode(u); saved.Match(text) {
						path = strings.Trim(string(saved.FindSubmatch(text)[1]), `"\n`)
					}
				}
			}
			own := name == "nothing" || name == "readable for all"
			if path == "" || strings.HasPrefix(path, planted) != own {
				t.Errorf("the output is in %q", path)
			}
			for _, dir := range []string{planted, other} {
				if entries, _ := os.ReadDir(dir); len(entries) > 0 && (!own || dir == other) {
					t.Errorf("%s has %v", dir, entries)
				}
			}
			if info, err := os.Lstat(planted); own && (err != nil || info.Mode().Perm() != 0o700) {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			if said := strings.Contains(strings.Join(lines, " "), "is not used for temporary files"); said == own {
				t.Errorf("standard error: %q", lines)
			}
		})
	}
}
