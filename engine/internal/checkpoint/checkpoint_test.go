package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/session"
)

// tempDir returns a directory whose path contains no symbolic link.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// memory returns a keeper that stores its records in memory.
func memory() *Keeper {
	var records []json.RawMessage
	return &Keeper{
		Append: func(entries ...*session.Entry) error {
			for _, e := range entries {
				m := maps.Clone(e.Fields)
				m["type"], _ = json.Marshal(e.Type)
				raw, _ := json.Marshal(m)
				records = append(records, raw)
			}
			return nil
		},
		Load: func() ([]json.RawMessage, error) { return records, nil },
	}
}

// tree returns the contents of the files below a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	var paths []string
	if !visitFiles([]string{dir}, func(p *files.Place) { paths = append(paths, p.Path) }) {
		t.Fatal("the tree is too big")
	}
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		info, _ := os.Lstat(p)
		all[p] = fmt.Sprint(info.Mode(), " ", string(text))
	}
	return all
}

// TestRandom changes a tree at random, by calls that name a file and by ones that
// change any, and rewinds to a random message. The tree must be what it was then.
func TestRandom(t *testing.T) {
	for seed := range 30 {
		rng := rand.New(rand.NewPCG(uint64(seed), 3))
		dir := tempDir(t)
		k := memory()
		name := func() string { return filepath.Join(dir, "d"+fmt.Sprint(rng.IntN(2)), fmt.Sprint("f", rng.IntN(5))) }
		change := func(path string) {
			if rng.IntN(4) == 0 {
				os.Remove(path)
				return
			}
			os.MkdirAll(filepath.Dir(path), 0o755)
			os.WriteFile(path, fmt.Append(nil, "content ", rng.IntN(1000), "\n"), 0o644)
			if rng.IntN(5) == 0 {
				os.Chmod(path, 0o755)
			}
		}
		for range 4 {
			change(name())
		}
		var states []map[string]string
		for m := range 6 {
			states = append(states, tree(t, dir))
			if err := k.Begin(fmt.Sprint("m", m)); err != nil {
				t.Fatal(err)
			}
			for range rng.IntN(4) {
				var paths, dirs []string
				if rng.IntN(2) == 0 {
					paths = []string{name()}
				} else {
					dirs = []string{dir}
				}
				after, err := k.Before("c", paths, dirs)
				if err != nil {
					t.Fatal(err)
				}
				if paths != nil {
					change(paths[0])
				} else {
					for range rng.IntN(5) {
						change(name())
					}
				}
				if err := after(); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 3 { // a rewind can be rewound, and undone
			m := rng.IntN(6)
			before := tree(t, dir)
			dry, err := k.Rewind(fmt.Sprint("m", m), []string{dir}, true)
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(tree(t, dir), before) {
				t.Fatal("a dry run changed something")
			}
			r, err := k.Rewind(fmt.Sprint("m", m), []string{dir}, false)
			if err != nil || len(r.Conflicts)+len(r.Skipped) != 0 || !slices.Equal(r.Changed, dry.Changed) || r.Insertions != dry.Insertions {
				t.Fatalf("seed %d: %+v, %v; dry %+v", seed, r, err, dry)
			}
			if got := tree(t, dir); !maps.Equal(got, states[m]) {
				t.Fatalf("seed %d, message %d:\n got %v\nwant %v", seed, m, got, states[m])
			}
		}
	}
}

// TestOthers checks that later changes by others are not lost.
func TestOthers(t *testing.T) {
	dir, elsewhere := tempDir(t), tempDir(t)
	k := memory()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(p, text string) {
		t.Helper()
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	edit := func(p, text string) {
		t.Helper()
		after, err := k.Before("c", []string{p}, nil)
		if err != nil {
			t.Fatal(err)
		}
		write(p, text)
		if err := after(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"mine", "between", "later", "gone", "link"} {
		write(path(name), "old\n")
	}
	write(filepath.Join(elsewhere, "x"), "old\n")
	if err := k.Begin("m"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mine", "between", "later", "gone", "link"} {
		edit(path(name), "new\n")
	}
	edit(path("made"), "new\n")
	edit(filepath.Join(elsewhere, "x"), "new\n")
	write(path("between"), "by the user\n")
	edit(path("between"), "by the user, and new\n")
	write(path("later"), "by the user\n")
	os.Remove(path("gone"))
	os.Remove(path("link"))
	if err := os.Symlink(filepath.Join(dir, "mine"), path("link")); err != nil {
		t.Skip(err)
	}
	if after, err := k.Before("died", []string{path("died")}, nil); err != nil || after == nil {
		t.Fatal(err)
	}
	write(path("died"), "half") // then the process dies

	r, err := k.Rewind("m", []string{dir}, false)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{path("made"), path("mine")}; !slices.Equal(r.Changed, want) {
		t.Errorf("changed %v, want %v", r.Changed, want)
	}
	if want := []string{path("between"), path("died"), path("gone"), path("later")}; !slices.Equal(r.Conflicts, want) {
		t.Errorf("conflicts %v, want %v", r.Conflicts, want)
	}
	if len(r.Skipped) != 1 || r.Links != 1 || r.Insertions != 1 || r.Deletions != 2 {
		t.Errorf("%+v", r)
	}
	for name, want := range map[string]string{"mine": "old\n", "between": "by the user, and new\n", "later": "by the user\n", "died": "half"} {
		if got, _ := os.ReadFile(path(name)); string(got) != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got, _ := os.ReadFile(filepath.Join(elsewhere, "x")); string(got) != "new\n" {
		t.Errorf("a file outside of the roots was changed: %q", got)
	}
	for _, id := range []string{"none", ""} {
		if _, err := k.Rewind(id, []string{dir}, false); !errors.Is(err, ErrNoCheckpoint) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestRewindFollowsNoLink checks that a rewind skips the files of a directory that has
// become a symbolic link, whether the link leads out of the roots or stays inside.
func TestRewindFollowsNoLink(t *testing.T) {
	dir, elsewhere := tempDir(t), tempDir(t)
	inside := filepath.Join(dir, ".git", "hooks")
	if err := os.MkdirAll(inside, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{elsewhere, inside} {
		k := memory()
		sub := filepath.Join(dir, "sub")
		changed, removed := filepath.Join(sub, "changed"), filepath.Join(sub, "removed")
		os.Mkdir(sub, 0o777)
		for _, path := range []string{changed, removed} {
			os.WriteFile(path, []byte("old\n"), 0o666)
		}
		if err := k.Begin("m"); err != nil {
			t.Fatal(err)
		}
		after, err := k.Before("c", []string{changed, removed}, nil)
		if err != nil {
			t.Fatal(err)
		}
		os.WriteFile(changed, []byte("new\n"), 0o666)
		os.Remove(removed)
		if err := after(); err != nil {
			t.Fatal(err)
		}
		os.RemoveAll(sub)
		if err := os.Symlink(target, sub); err != nil {
			t.Skip(err)
		}
		os.WriteFile(filepath.Join(target, "changed"), []byte("new\n"), 0o666)
		r, err := k.Rewind("m", []string{dir}, false)
		if err != nil || len(r.Changed) != 0 || r.Links != 2 {
			t.Errorf("%+v, %v", r, err)
		}
		if got, _ := os.ReadFile(filepath.Join(target, "changed")); string(got) != "new\n" {
			t.Errorf("the file behind the link is %q", got)
		}
		if _, err := os.Lstat(filepath.Join(target, "removed")); err == nil {
			t.Error("a file was made behind the link")
		}
		os.Remove(sub)
	}
}
