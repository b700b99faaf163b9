package files_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAbs(t *testing.T) {
	env := &tool.Env{Roots: []string{"/w"}, Home: "/home/u"}
	for in, want := range map[string]string{"a": "/w/a", "./a/../b": "/w/b", "../x": "/x", "/a//b/": "/a/b", "~": "/home/u", "~/a": "/home/u/a", "~x": "/w/~x"} {
		if got := files.Abs(env, in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		dir, path string
		want      bool
	}{{"/w/app", "/w/app", true}, {"/w/app", "/w/app/x", true}, {"/w/app", "/w/app_secret", false}, {"/w/app", "/w", false}, {"/", "/x", true}} {
		if got := files.Within(c.dir, c.path); got != c.want {
			t.Errorf("%s within %s: %v", c.path, c.dir, got)
		}
	}
}

// A path that resolves elsewhere than when the policy decided is rejected; one that the
// policy decided about may lead out of the roots.
func TestResolved(t *testing.T) {
	env := tooltest.Env(t)
	root := env.Roots[0]
	outside, _ := filepath.EvalSymlinks(t.TempDir())
	secret := filepath.Join(outside, "secret")
	os.WriteFile(secret, []byte("s"), 0o666)
	inside := tooltest.Write(t, env, "inside", "i")
	link := filepath.Join(root, "link")
	os.Symlink(secret, link)
	for _, c := range []struct {
		path     string
		resolved map[string]tool.Target
		ok       bool
	}{
		{link, nil, false},
		{link, map[string]tool.Target{link: {Path: secret}}, true},
		{link, map[string]tool.Target{link: {Path: inside}}, false},
		{link, map[string]tool.Target{link: {}}, false},
		{secret, nil, true},
		{secret, map[string]tool.Target{inside: {Path: inside}}, false}, // the policy has not decided about it
		{inside, map[string]tool.Target{inside: {Path: inside}}, true},
	} {
		p, err := files.Open(&tool.Call{Env: env, Resolved: c.resolved}, c.path)
		if (err == nil) != c.ok {
			t.Errorf("%s with %v: %v", c.path, c.resolved, err)
		}
		if err == nil {
			p.Close()
		}
	}
}

// A file with several hard links may be opened only if it is the very file that the
// policy decided about: a rule may be about its other name.
func TestJudgedIdentity(t *testing.T) {
	env := tooltest.Env(t)
	path, hidden := tooltest.Write(t, env, "a", "harmless"), tooltest.Write(t, env, "hidden", "secret")
	access := []tool.Access{{Kind: tool.Read, Path: path}}
	read := func(resolved map[string]tool.Target) (string, error) {
		p, err := files.Open(&tool.Call{Env: env, Resolved: resolved}, path)
		if err != nil {
			return "", err
		}
		defer p.Close()
		data, _, err := p.ReadAll(100)
		return string(data), err
	}
	judged := files.Targets(env, access)
	os.Remove(path)
	missing := files.Targets(env, access)
	if err := os.Link(hidden, path); err != nil {
		t.Skip(err)
	}
	for _, resolved := range []map[string]tool.Target{judged, missing} {
		if data, err := read(resolved); err == nil {
			t.Errorf("read %q", data)
		}
	}
	if data, err := read(files.Targets(env, access)); err != nil || data != "secret" {
		t.Errorf("%q, %v", data, err)
	}
	// An editor that replaces the file creates one with a single name.
	os.Remove(path)
	os.WriteFile(path, []byte("saved"), 0o666)
	if data, err := read(judged); err != nil || data != "saved" {
		t.Errorf("%q, %v", data, err)
	}
}

// A root that is replaced by a symbolic link does not move the conversation, nor its
// subagents.
func TestRootStaysWhereItWas(t *testing.T) {
	base, _ := filepath.EvalSymlinks(t.TempDir())
	root, outside := filepath.Join(base, "root"), filepath.Join(base, "outside")
	for _, dir := range []string{root, outside} {
		os.Mkdir(dir, 0o777)
		os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o666)
	}
	env := &tool.Env{Roots: []string{root}}
	if got := files.RealRoots(env); len(got) != 1 || got[0] != root {
		t.Fatalf("%q", got)
	}
	os.Rename(root, filepath.Join(base, "moved"))
	os.Symlink(outside, root)
	for name, env := range map[string]*tool.Env{"conversation": env, "subagent": env.Child("a")} {
		if got := files.RealRoots(env); len(got) != 1 || got[0] != root {
			t.Errorf("%s: %q", name, got)
		}
		path := filepath.Join(root, "f")
		for _, resolved := range []map[string]tool.Target{nil, files.Targets(env, []tool.Access{{Kind: tool.Read, Path: root}})} {
			if p, err := files.Open(&tool.Call{Env: env, Resolved: resolved}, path); err == nil {
				p.Close()
				t.Errorf("%s: the file behind the link was opened", name)
			}
			if dir, _, err := files.OpenDirectory(&tool.Call{Env: env, Resolved: resolved}, root); err == nil {
				dir.Close()
				t.Errorf("%s: the directory behind the link was opened", name)
			}
		}
	}
}

// A directory that is missing when the policy decides may be a symbolic link when it is
// created: it is not followed, not even inside of the roots.
func TestMissingDirectoryBecomesLink(t *testing.T) {
	env := tooltest.Env(t)
	root := env.Roots[0]
	tooltest.Write(t, env, ".git/hooks/sample", "x")
	for _, sub := range []string{"new/f", "new/deeper/f"} {
		p, err := files.Open(&tool.Call{Env: env}, filepath.Join(root, sub))
		if err != nil {
			t.Fatal(err)
		}
		os.Symlink(".git/hooks", filepath.Join(root, "new"))
		if err := p.Replace([]byte("x"), nil); err == nil {
			t.Errorf("%s was written", sub)
		}
		p.Close()
		if names, _ := os.ReadDir(filepath.Join(root, ".git/hooks")); len(names) != 1 {
			t.Errorf("%s made %v", sub, names)
		}
		os.Remove(filepath.Join(root, "new"))
	}
}

// While another goroutine swaps a link between a place inside and one outside, nothing
// outside is read or written.
func TestSwappedLinks(t *testing.T) {
	d := time.Second
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		d = 10 * time.Second
	}
	env := tooltest.Env(t)
	root := env.Roots[0]
	outside := t.TempDir()
	for _, dir := range []string{outside, filepath.Join(root, "in")} {
		os.MkdirAll(dir, 0o777)
		content := "inside"
		if dir == outside {
			content = "outside"
		}
		os.WriteFile(filepath.Join(dir, "f"), []byte(content), 0o666)
	}
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		temp := filepath.Join(root, "temp")
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			// A directory of the path, and the file itself.
			os.Symlink([]string{outside, filepath.Join(root, "in")}[i%2], temp)
			os.Rename(temp, filepath.Join(root, "dir"))
			if i%2 == 0 {
				os.Symlink(filepath.Join(outside, "f"), temp)
			} else {
				os.WriteFile(temp, []byte("inside"), 0o666)
			}
			os.Rename(temp, filepath.Join(root, "file"))
		}
	}()
	reads, writes := 0, 0
	rounds := 0
	for end := time.Now().Add(d); time.Now().Before(end); rounds++ {
		for _, name := range []string{"dir/f", "file", "dir/new"} {
			p, err := files.Open(&tool.Call{Env: env}, filepath.Join(root, name))
			if err != nil {
				continue
			}
			data, info, err := p.ReadAll(1000)
			if err == nil {
				reads++
			} else {
				info = nil
			}
			if bytes.Contains(data, []byte("outside")) {
				t.Fatalf("%s was read from outside", name)
			}
			if rounds%20 == 0 && p.Replace([]byte("written"), info) == nil {
				writes++
			}
			p.Close()
		}
	}
	close(done)
	<-stopped
	if got, _ := os.ReadFile(filepath.Join(outside, "f")); string(got) != "outside" {
		t.Errorf("the file outside is %q", got)
	}
	if names, _ := os.ReadDir(outside); len(names) != 1 {
		t.Errorf("there are %v outside", names)
	}
	if reads == 0 || writes == 0 {
		t.Errorf("%d reads, %d writes: nothing was tried", reads, writes)
	}
	t.Logf("%d reads, %d writes", reads, writes)
}

// A concurrent write between the check and the write is not overwritten.
func TestChangedMeanwhile(t *testing.T) {
	env := tooltest.Env(t)
	path := tooltest.Write(t, env, "a", "one")
	p, err := files.Open(&tool.Call{Env: env}, path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, info, err := p.ReadAll(100)
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(path, []byte("changed"), 0o666)
	if err := p.Replace([]byte("two"), info); err == nil || !strings.Contains(err.Error(), "changed by somebody else") {
		t.Errorf("%v", err)
	}
	if err := p.Replace([]byte("two"), nil); err == nil || !strings.Contains(err.Error(), "created by somebody else") {
		t.Errorf("%v", err)
	}
	os.Remove(path)
	if err := p.Replace([]byte("two"), info); err == nil || !strings.Contains(err.Error(), "removed by somebody else") {
		t.Errorf("%v", err)
	}
	if names, _ := os.ReadDir(env.Roots[0]); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		data, content string
		crlf          bool
	}{
		{"a\nb", "a\nb", false}, {"a\r\nb\r\n", "a\nb\n", true}, {"a\r\nb\n", "a\r\nb\n", false}, {"\ufeffa", "a", false}, {"a\rb\r\n", "a\rb\r\n", false},
		{"\xff\xfea\x00\r\x00\n\x00", "a\n", true}, {"\xfe\xff\x00a\xd8\x3d\xde\x00", "a😀", false}, {"\xff\xfea", "\xff\xfea", false}, {"\xff\xfe\x00\xd8", "\xff\xfe\x00\xd8", false}, {"caf\xe9", "caf\xe9", false}, {"", "", false},
	} {
		text := files.Decode([]byte(c.data))
		if text.Content != c.content || text.CRLF != c.crlf {
			t.Errorf("%q: %+v", c.data, text)
		}
		if back, err := text.Encode(); err != nil || string(back) != c.data {
			t.Errorf("%q comes back as %q, %v", c.data, back, err)
		}
	}
}

// Every kind of file survives decoding and encoding unchanged.
func FuzzText(f *testing.F) {
	for _, s := range []string{"a\r\nb", "\xff\xfea\x00", "\ufeff\r\n", "\xfe\xff\xd8\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if back, err := files.Decode(data).Encode(); err != nil || !bytes.Equal(back, data) {
			t.Fatalf("%q comes back as %q, %v", data, back, err)
		}
	})
}

func TestPatch(t *testing.T) {
	long := strings.Repeat("line\n", 1000)
	hunks := files.Patch(long+"old\n"+long, long+"new\nmore\n"+long)
	if len(hunks) != 1 || hunks[0].OldStart != 998 || hunks[0].NewStart != 998 || hunks[0].OldLines != 7 || hunks[0].NewLines != 8 ||
		strings.Join(hunks[0].Lines, "|") != " line| line| line|-old|+new|+more| line| line| line" {
		t.Errorf("%+v", hunks)
	}
	if hunks := files.Patch("", "a\n"); len(hunks) != 1 || hunks[0].OldLines != 0 || hunks[0].NewLines != 1 || hunks[0].NewStart != 1 {
		t.Errorf("%+v", hunks)
	}
	if hunks := files.Patch("a", "a"); hunks == nil || len(hunks) != 0 {
		t.Errorf("%+v", hunks)
	}
}

// A patch turns one text into the other.
func FuzzPatch(f *testing.F) {
	f.Add("a\nb\nc\n", "a\nc\nd")
	f.Add("x", "")
	f.Fuzz(func(t *testing.T, before, after string) {
		if !utf8.ValidString(before) || !utf8.ValidString(after) || strings.Contains(before+after, "\r") {
			return
		}
		var lines []string
		for l := range strings.Lines(before) {
			lines = append(lines, l)
		}
		var b strings.Builder
		at := 0
		for _, h := range files.Patch(before, after) {
			start := h.OldStart - 1
			if h.OldLines == 0 {
				start = max(0, h.OldStart-1)
			}
			for at < start {
				b.WriteString(lines[at])
				at++
			}
			olds, news := 0, 0
			for i, l := range h.Lines {
				end := "\n"
				if i+1 < len(h.Lines) && h.Lines[i+1] == `\ No newline at end of file` {
					end = ""
				}
				switch l[0] {
				case ' ':
					if lines[at] != l[1:]+end {
						t.Fatalf("%q is not %q", lines[at], l)
					}
					fallthrough
				case '+':
					b.WriteString(l[1:] + end)
					news++
				}
				if l[0] == ' ' || l[0] == '-' {
					at++
					olds++
				}
			}
			if olds != h.OldLines || news != h.NewLines {
				t.Fatalf("%+v", h)
			}
		}
		for ; at < len(lines); at++ {
			b.WriteString(lines[at])
		}
		if b.String() != after {
			t.Fatalf("%q, want %q", b.String(), after)
		}
	})
}
