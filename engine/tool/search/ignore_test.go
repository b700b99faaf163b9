package search

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// git asks git which of the paths a .gitignore ignores; those that end in / are
// directories, which must exist for git to recognize them.
func git(t testing.TB, repo, ignore string, paths []string) map[string]bool {
	t.Helper()
	if err := os.WriteFile(filepath.Join(repo, ".gitignore"), []byte(ignore), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "-z", "--stdin")
	cmd.Dir = repo
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+repo)
	var stdin strings.Builder
	for _, p := range paths {
		stdin.WriteString(strings.TrimSuffix(p, "/") + "\x00")
	}
	cmd.Stdin = strings.NewReader(stdin.String())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != 1 {
		t.Skipf("git: %v %s", err, &errs)
	}
	ignored := map[string]bool{}
	for p := range strings.SplitSeq(out.String(), "\x00") {
		ignored[p] = p != ""
	}
	return ignored
}

func repository(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("git", "init", "-q", dir)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+dir)
	if err := cmd.Run(); err != nil {
		t.Skip(err)
	}
	for _, p := range somePaths {
		if strings.HasSuffix(p, "/") {
			if err := os.MkdirAll(filepath.Join(dir, p), 0o777); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// ignoredByRules implements git's rule: a path is ignored if it or a directory above it
// is.
func ignoredByRules(rs rules, name string) bool {
	dir := strings.HasSuffix(name, "/")
	name = strings.TrimSuffix(name, "/")
	parts := strings.Split(name, "/")
	for i := range parts {
		last := i == len(parts)-1
		ignored, _ := rs.match(strings.Join(parts[:i+1], "/"), !last || dir)
		if ignored {
			return true
		}
	}
	return false
}

var somePaths = []string{
	"a", "b", "a.o", "b.c", "dir/", "dir/a", "dir/a.o", "dir/sub/", "dir/sub/a", "dir/sub/deep/a.o", "sub/a", "x/dir/a", "x/dir/sub/a",
	"a b", "a ", "#a", "!a", "[a]", "a*b", "a-b", "a\\b", "A", "build/", "build/out.txt", "src/build/x", "foo/bar/baz", "foo/baz", "foobar", "foo/xbar", "é", ".hidden", "a]b", "ab", "q/b", "q/x/b", "q/x/y/b",
}

func TestIgnore(t *testing.T) {
	repo := repository(t)
	for _, ignore := range []string{
		"a", "*.o", "/a", "dir/", "dir/*", "dir/**", "**/a", "q/**/b", "**/sub/a", "!a\n*.o\n!a.o", "*\n!*/\n!a", "\\#a", "\\!a", "a\\ ", "a ", "a  ", "#a",
		"[ab]", "[!a]", "[a-c].o", "[[:alpha:]]", "a[]]b", "\\[a\\]", "a\\*b", "a?b", "?", "foo/**/baz", "foo/*/baz", "foo**bar", "foo**", "**foo", "**", "*", "/*", "/**", "**/", "build/", "/build",
		"dir/sub", "/dir/sub/", "a/", "dir//a", "./a", "sub/", "*/a", "**/dir/**", "a\r\nb\r", "[a", "a\\", "[[:foo:]]", "!", "/", "//", "\\a", "[^a]", "a[/]b", "q[/]b", "q/***/b", "***", "a/***/b", "[a-]", "[-a]", "[\\]]", "x/**/a", "é", "?*", "dir*/", "f*/*z",
	} {
		want := git(t, repo, ignore, somePaths)
		rs := parseRules(ignore)
		for _, p := range somePaths {
			if got := ignoredByRules(rs, p); got != want[strings.TrimSuffix(p, "/")] {
				t.Errorf(".gitignore %q, path %q: ignored %v, git says %v", ignore, p, got, !got)
			}
		}
	}
}

// Ignore files are interpreted as git does.
func FuzzIgnore(f *testing.F) {
	for _, seed := range []string{"*.o\n!a.o", "a/**/b", "/dir/", "[a-c]\\*"} {
		f.Add(seed)
	}
	repo := repository(f)
	f.Fuzz(func(t *testing.T, ignore string) {
		if strings.ContainsRune(ignore, 0) || len(ignore) > 200 {
			return
		}
		want := git(t, repo, ignore, somePaths)
		rs := parseRules(ignore)
		for _, p := range somePaths {
			if got := ignoredByRules(rs, p); got != want[strings.TrimSuffix(p, "/")] {
				t.Fatalf(".gitignore %q, path %q: ignored %v, git says %v", ignore, p, got, !got)
			}
		}
	})
}

func ExampleTypes() {
	fmt.Println(Types()["go"])
	// Output: [*.go]
}

// A walk visits the files that git would add, with ignore files at every level, from
// the top of the repository and from a directory in it.
func TestLayers(t *testing.T) {
	repo := repository(t)
	files := map[string]string{
		".gitignore": "*.log\n/build\ntmp/\n!keep.log\nvendor/*\n!vendor/mine\n", ".git/info/exclude": "secret*\n",
		"a.log": "", "keep.log": "", "build/x": "", "sub/build/x": "", "sub/.gitignore": "!*.log\n/only\nnested/**/z\n", "sub/b.log": "", "sub/only": "", "sub/deep/only": "", "sub/tmp/x": "",
		"sub/nested/a/b/z": "", "sub/nested/y": "", "sub/deep/.gitignore": "*\n!*.go\n!.gitignore\n", "sub/deep/m.go": "", "sub/deep/m.c": "", "sub/deep/er/n.go": "",
		"vendor/mine/a": "", "vendor/theirs/a": "", "secret.txt": "", "sub/secret/x": "", "tmp": "", "plain": "", "ü b/c d": "",
	}
	for name, content := range files {
		path := filepath.Join(repo, name)
		os.MkdirAll(filepath.Dir(path), 0o777)
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{".", "sub", "sub/deep"} {
		cmd := exec.Command("git", "-c", "core.excludesFile=/dev/null", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
		cmd.Dir = filepath.Join(repo, dir)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+repo)
		data, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
		var mu sync.Mutex
		var got []string
		top, err := os.OpenRoot(cmd.Dir)
		if err != nil {
			t.Fatal(err)
		}
		defer top.Close()
		err = Walk(t.Context(), top, cmd.Dir, &Filter{}, 2, func(_ int, f *File) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, f.Path)
		})
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v %q\ngit has %q", dir, err, got, want)
		}
	}
}
