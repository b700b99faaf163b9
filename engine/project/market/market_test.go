package market_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/parley-go/parley/engine/project/market"
)

// write creates the files of a marketplace.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func ok(string) error { return nil }

// A manifest is rejected that names places outside of its marketplace, or things that git
// could take for options or other programs.
func TestManifestLeadsNowhereElse(t *testing.T) {
	for name, source := range map[string]string{
		"above":             `"../x"`,
		"absolute":          `"/etc"`,
		"empty":             `""`,
		"above by root":     `"./plugins/../../x"`,
		"ext":               `{"source": "url", "url": "ext::sh -c touch% x"}`,
		"other helper":      `{"source": "git", "url": "fd::17"}`,
		"option":            `{"source": "git", "url": "--upload-pack=touch x"}`,
		"option as host":    `{"source": "git", "url": "ssh://-oProxyCommand=touch/x"}`,
		"option as user":    `{"source": "git", "url": "-oProxyCommand=x@host:x"}`,
		"option as path":    `{"source": "git", "url": "git@host:-x"}`,
		"plain http":        `{"source": "git", "url": "http://example.test/x"}`,
		"local path":        `{"source": "git", "url": "/etc"}`,
		"ref is an option":  `{"source": "git", "url": "https://example.test/x", "ref": "--upload-pack=x"}`,
		"ref is a refspec":  `{"source": "git", "url": "https://example.test/x", "ref": "main:refs/heads/x"}`,
		"sha is an option":  `{"source": "github", "repo": "a/b", "sha": "-x"}`,
		"repo is a path":    `{"source": "github", "repo": "../x"}`,
		"repo is an option": `{"source": "github", "repo": "-a/b"}`,
		"subdir above":      `{"source": "git-subdir", "url": "https://example.test/x", "path": "../x"}`,
		"package":           `{"source": "npm", "package": "x"}`,
		"number":            `5`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, map[string]string{".claude-plugin/marketplace.json": `{"name": "m", "plugins": [{"name": "x", "source": ` + source + `}]}`})
			if m, err := market.ReadManifest(dir); err == nil {
				t.Errorf("got %+v, want an error", m)
			}
		})
	}
	for _, name := range []string{"", "..", "../x", "a/b", "-x", ".hidden", "a b", `a\b`} {
		dir := t.TempDir()
		raw, _ := json.Marshal(name)
		write(t, dir, map[string]string{".claude-plugin/marketplace.json": `{"name": ` + string(raw) + `, "plugins": []}`})
		if _, err := market.ReadManifest(dir); err == nil {
			t.Errorf("the marketplace %q: got no error", name)
		}
		write(t, dir, map[string]string{".claude-plugin/marketplace.json": `{"name": "m", "plugins": [{"name": ` + string(raw) + `, "source": "./x"}]}`})
		if _, err := market.ReadManifest(dir); err == nil {
			t.Errorf("the plugin %q: got no error", name)
		}
	}
}

// A plugin with a link is rejected, and nothing of it stays.
func TestLinksAreNotInstalled(t *testing.T) {
	dir, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	write(t, filepath.Dir(secret), map[string]string{"secret": "hush"})
	write(t, dir, map[string]string{".claude-plugin/marketplace.json": `{"name": "m", "plugins": [{"name": "file", "source": "./file"}, {"name": "dir", "source": "./dir"}]}`,
		"file/skills/a/SKILL.md": "a"})
	if err := os.Symlink(secret, filepath.Join(dir, "file", "stolen")); err != nil {
		t.Skip(err)
	}
	if err := os.Symlink(filepath.Dir(secret), filepath.Join(dir, "dir")); err != nil {
		t.Fatal(err)
	}
	s := &market.Store{Dir: filepath.Join(t.TempDir(), "plugins")}
	if _, err := s.Add(t.Context(), market.Source{Source: "directory", Path: dir}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "dir"} {
		if in, err := s.Install(t.Context(), name, "m", ok); err == nil {
			t.Errorf("%s: installed %+v, want an error", name, in)
		}
	}
	left, err := os.ReadDir(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if e.Name() != "known_marketplaces.json" {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

// A failed check keeps the previously installed version. Unknown versions and members of
// the files survive.
func TestInstallReplacesOnlyWhatIsValid(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{".claude-plugin/marketplace.json": `{"name": "m", "plugins": [{"name": "x", "source": "./x", "version": "../../up"}]}`, "x/skills/a/SKILL.md": "one"})
	s := &market.Store{Dir: filepath.Join(t.TempDir(), "plugins")}
	write(t, s.Dir, map[string]string{"installed_plugins.json": `{"version": 2, "later": {"a": 1}, "plugins": {"other@m": [{"scope": "user", "installPath": "/elsewhere", "of": "another"}]}}`})
	if _, err := s.Add(t.Context(), market.Source{Source: "directory", Path: dir}); err != nil {
		t.Fatal(err)
	}
	in, err := s.Install(t.Context(), "x", "m", ok)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(s.Dir, "cache", "m", "x", "unknown"); in.InstallPath != want {
		t.Errorf("it is in %s, want %s", in.InstallPath, want)
	}
	write(t, dir, map[string]string{"x/skills/a/SKILL.md": "two"})
	if _, err := s.Install(t.Context(), "x", "m", func(string) error { return errors.New("no") }); err == nil {
		t.Error("a plugin was installed that the check refuses")
	}
	if text, err := os.ReadFile(filepath.Join(in.InstallPath, "skills", "a", "SKILL.md")); err != nil || string(text) != "one" {
		t.Errorf("the skill is %q, %v", text, err)
	}
	text, err := os.ReadFile(filepath.Join(s.Dir, "installed_plugins.json"))
	if err != nil || !strings.Contains(string(text), `"later"`) || !strings.Contains(string(text), `"of": "another"`) {
		t.Errorf("installed_plugins.json: %s, %v", text, err)
	}
	if err := s.Remove("x@m"); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Installed(); err != nil || len(all) != 1 {
		t.Errorf("installed: %v, %v", all, err)
	}
}

// Marketplaces that are added at the same time are all kept.
func TestAddAtTheSameTime(t *testing.T) {
	s := &market.Store{Dir: filepath.Join(t.TempDir(), "plugins")}
	var wait sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		dir := t.TempDir()
		write(t, dir, map[string]string{".claude-plugin/marketplace.json": `{"name": "` + name + `", "plugins": []}`})
		wait.Go(func() {
			if _, err := s.Add(t.Context(), market.Source{Source: "directory", Path: dir}); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if all, err := s.Markets(); err != nil || len(all) != 5 {
		t.Errorf("there are %v, %v; want five", all, err)
	}
}
