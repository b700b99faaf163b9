package settings_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/settings"
)

// put writes a file with its directories.
func put(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func everywhere(dir string) settings.Options {
	return settings.Options{Dir: filepath.Join(dir, "project"), UserDir: filepath.Join(dir, "user"), ManagedFile: filepath.Join(dir, "managed", "managed-settings.json"),
		Sources: settings.Sources{User: true, Project: true, Local: true}, Trust: &settings.Store{Dir: filepath.Join(dir, "user")}}
}

func rulesOf(s *settings.Settings) string {
	var all []string
	for _, r := range s.Rules() {
		all = append(all, string(r.Behavior)+" "+r.Text)
	}
	return strings.Join(all, ", ")
}

// TestChanged checks that the creation, change and removal of every file of settings is
// noticed, and that reloading has the same result as loading.
func TestChanged(t *testing.T) {
	dir := t.TempDir()
	flag := put(t, filepath.Join(dir, "flag.json"), `{}`)
	opts := everywhere(dir)
	opts.Flag = flag
	for _, d := range []string{opts.Dir, filepath.Dir(opts.ManagedFile)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s, err := settings.Load(opts)
	if err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct{ path, source string }{
		{filepath.Join(opts.UserDir, "settings.json"), "user"},
		{filepath.Join(opts.Dir, ".claude", "settings.json"), "project"},
		{filepath.Join(opts.Dir, ".claude", "settings.local.json"), "local"},
		{flag, "flag"},
		{opts.ManagedFile, "managed"},
		{filepath.Join(dir, "managed", "managed-settings.d", "10.json"), "managed"},
	} {
		for _, change := range []string{"add", "change", "broken", "kept", "unlink"} {
			if tt.path == flag && (change == "add" || change == "unlink") {
				continue // the file must exist
			}
			if got := s.Changed(); len(got) != 0 {
				t.Fatalf("%s: %v has changed", tt.source, got)
			}
			rule := tt.source + strings.Repeat("x", i) + change
			before := rulesOf(s)
			var keep []settings.File
			switch change {
			case "unlink":
				if err := os.Remove(tt.path); err != nil {
					t.Fatal(err)
				}
			case "broken":
				put(t, tt.path, `{"permissions": {"deny": [`)
			default:
				put(t, tt.path, `{"permissions": {"deny": ["`+rule+`"]}}`)
			}
			changed := s.Changed()
			if len(changed) != 1 || changed[0].File != tt.path || string(changed[0].Layer) != tt.source {
				t.Fatalf("%s %s: %v has changed", tt.source, change, changed)
			}
			if change == "kept" {
				keep = changed
			}
			next, errs := s.Reload(keep)
			if (len(errs) > 0) != (change == "broken") {
				t.Fatalf("%s %s: %v", tt.source, change, errs)
			}
			switch got := rulesOf(next); change {
			case "unlink":
				if got != "" {
					t.Errorf("%s: %s is left", tt.source, got)
				}
			case "broken", "kept":
				if got != before {
					t.Errorf("%s %s: %s, and it was %s", tt.source, change, got, before)
				}
			default:
				if got != "deny "+rule {
					t.Errorf("%s %s: %s", tt.source, change, got)
				}
			}
			s = next
		}
		if tt.path == flag {
			put(t, flag, `{}`)
			if s, _ = s.Reload(nil); rulesOf(s) != "" {
				t.Fatal(rulesOf(s))
			}
		}
	}
}

// TestReloadTrust checks that trust given at the start of the conversation covers the
// content at that time, and not later content.
func TestReloadTrust(t *testing.T) {
	dir := t.TempDir()
	opts := everywhere(dir)
	path := put(t, filepath.Join(opts.Dir, ".claude", "settings.json"), `{"permissions":{"allow":["Bash(a)"]}}`)
	skill := put(t, filepath.Join(opts.Dir, ".claude", "skills", "s", "SKILL.md"), "x")
	s, err := settings.Load(opts)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := s.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, trust := range []string{"all", digest} {
		put(t, path, `{"permissions":{"allow":["Bash(a)"]}}`)
		opts.TrustProject = trust
		if s, err = settings.Load(opts); err != nil || rulesOf(s) != "allow Bash(a)" {
			t.Fatal(err, rulesOf(s))
		}
		put(t, path, `{"permissions":{"allow":["Bash(a)","Bash(b)"],"deny":["Bash(c)"]},"env":{"A":"b"}}`)
		for range 2 { // repeated calls have the same result
			next, errs := s.Reload(nil)
			if errs != nil || rulesOf(next) != "deny Bash(c), allow Bash(a)" || len(next.CommandEnv()) != 0 || len(next.Untrusted()) != 2 {
				t.Errorf("%s: %v, %s, %v", trust, errs, rulesOf(next), next.Untrusted())
			}
			if !next.TrustsFile(skill, []byte("x")) {
				t.Error("a skill is not trusted any more")
			}
			s = next
		}
		// The value of --settings changes without reading the files again.
		put(t, path, `{"permissions":{"deny":["Bash(d)"]}}`)
		next, err := s.WithFlag(`{"permissions":{"deny":["Bash(f)"]}}`)
		if err != nil || rulesOf(next) != "deny Bash(f), deny Bash(c), allow Bash(a)" || len(next.Changed()) != 1 {
			t.Errorf("%v, %s, %v", err, rulesOf(next), next.Changed())
		}
	}
}

// BenchmarkChanged measures checking whether settings have changed.
func BenchmarkChanged(b *testing.B) {
	opts := everywhere(b.TempDir())
	put(b, filepath.Join(opts.UserDir, "settings.json"), `{}`)
	put(b, filepath.Join(opts.Dir, ".claude", "settings.json"), `{}`)
	s, err := settings.Load(opts)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if len(s.Changed()) != 0 {
			b.Fatal("they have")
		}
	}
}
