package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/internal/testwait"
)

// long makes tests try everything instead of every fifth.
var long = os.Getenv("PARLEY_TEST_LONG") != ""

func TestMain(m *testing.M) {
	code := m.Run()
	if made != "" {
		os.RemoveAll(made)
	}
	os.Exit(code)
}

// A place is a sandbox and the directories around it.
type place struct {
	*sandbox.Sandbox
	t       *testing.T
	work    string // writable
	outside string // not writable
	home    string
	tmp     string // writable
	env     []string
}

// try returns a place with a sandbox of a kind, or skips the test.
func try(t *testing.T, kind string, settings string, change ...func(*sandbox.Options)) *place {
	t.Helper()
	p := &place{t: t}
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]*string{"work": &p.work, "outside": &p.outside, "home": &p.home, "tmp": &p.tmp} {
		*dir = filepath.Join(base, name)
		if err := os.Mkdir(*dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if settings == "" {
		settings = `{"enabled":true}`
	}
	set, err := sandbox.Parse(json.RawMessage(settings))
	if err != nil {
		t.Fatal(err)
	}
	p.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.home, "TMPDIR=" + p.tmp, "OUT=" + p.outside, "WORK=" + p.work}
	opts := sandbox.Options{Settings: set, Dir: p.work, Home: p.home, Temp: []string{p.tmp}, Path: os.Getenv("PATH"), Only: kind}
	for _, f := range change {
		f(&opts)
	}
	p.Sandbox, err = sandbox.New(opts)
	if errors.Is(err, sandbox.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// clean empties the directories of a place.
func clean(t *testing.T, p *place) {
	t.Helper()
	for _, dir := range []string{p.work, p.outside, p.home, p.tmp} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs a script inside and returns its output.
func (p *place) run(script string) (string, error) {
	p.t.Helper()
	cmd := exec.CommandContext(testwait.Context(p.t), "/bin/bash", "-c", script)
	cmd.Dir, cmd.Env = p.work, p.Environ(p.env)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	started, err := p.Confine(cmd)
	if err != nil {
		p.t.Fatal(err)
	}
	err = cmd.Start()
	over := started(err)
	if err != nil {
		p.t.Fatal(err)
	}
	err = cmd.Wait()
	<-over
	return out.String(), err
}

// both runs a test for each kind of sandbox.
func both(t *testing.T, f func(t *testing.T, kind string)) {
	for _, kind := range []string{sandbox.Bubblewrap, sandbox.Landlock} {
		t.Run(kind, func(t *testing.T) { f(t, kind) })
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func repository(t *testing.T, dir string) {
	t.Helper()
	template, err := template()
	if err != nil {
		t.Skip(err)
	}
	if err := os.CopyFS(filepath.Join(dir, ".git"), os.DirFS(template)); err != nil {
		t.Fatal(err)
	}
}

// template creates a repository once, which is copied for tests.
var template = sync.OnceValues(func() (string, error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return "", errors.New("there is no git")
	}
	dir, err := os.MkdirTemp("", "parley-sandbox-test")
	if err != nil {
		return "", err
	}
	cmd := exec.Command(git, "init", "-q", dir)
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1"}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	made = dir
	return filepath.Join(dir, ".git"), nil
})

var made string // removed at the end

// tree lists the files of a directory with their contents.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		all[rel] = info.Mode().String()
		if d.Type().IsRegular() {
			text, err := os.ReadFile(path)
			all[rel] += " " + string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Commands inside the directories work as usual, and leave nothing else.
func TestWork(t *testing.T) {
	both(t, func(t *testing.T, kind string) {
		p := try(t, kind, "")
		out, err := p.run(`set -e
			echo a > new; mkdir d; mv new d/; ln -s d/new l; ln d/new h; cat l h; rm h
			echo t > "$TMPDIR/t"; cat "$TMPDIR/t"; echo x > /dev/null; head -c 3 /dev/zero | wc -c
			cat /etc/passwd > /dev/null; (exit 3) || echo $?; sleep 0.01 & wait; pwd`)
		if want := "a\na\nt\n3\n3\n" + p.work + "\n"; err != nil || out != want {
			t.Fatalf("%v: %q, want %q", err, out, want)
		}
		if got := tree(t, p.work); len(got) != 4 {
			t.Errorf("left behind: %v", got)
		}
	})
}

// Ways to write where nothing may be written. Each would leave a trace in the directory
// outside, or in the home directory.
var escapes = []string{
	`echo x > "$OUT/marker"`,
	`echo x >> "$OUT/file"`,
	`rm -rf "$OUT/file"`,
	`mv "$OUT/file" stolen`,
	`chmod 777 "$OUT/file"`, // Landlock does not cover modes
	`ln -s "$OUT" link; echo x > link/marker`,
	`ln "$OUT/file" hard && echo x > hard`,
	`mkdir -p a/b; cd a/b; echo x > ../../../outside/marker`,
	`echo x > "/proc/self/root$OUT/marker"`,
	`echo x > "/proc/self/cwd/../outside/marker"`,
	`echo x > "/proc/1/root$OUT/marker"`,
	`cd /; mv "$WORK" "$WORK.old"; mkdir "$WORK"`,
	`echo x > ~/.bashrc; mkdir -p ~/.ssh`,
	`truncate -s 0 "$OUT/file"`,
	`mknod "$OUT/dev" c 1 3`,
	`mount --bind . "$OUT" && echo x > marker`,
	`unshare -Urm sh -c 'mount -t tmpfs t /mnt; mount -o remount,rw /; echo x > "$OUT/marker"'`,
	`dd if=/dev/zero of="$OUT/file" bs=1 count=1`,
	`install -D /etc/hostname "$OUT/sub/marker"`,
	`tar -C / -cf - etc/hostname | tar -C "$OUT" -xf -`,
	`git init -q "$OUT/repo"`,
	`setpriv --reuid 0 --clear-groups sh -c 'echo x > "$OUT/marker"'; sudo -n sh -c 'echo x > "$OUT/marker"'`,
	`ln -s "$OUT/marker" "$TMPDIR/l"; echo x > "$TMPDIR/l"`,
}

func TestEscapes(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, kind string) {
		p := try(t, kind, "")
		for _, script := range escapes {
			if kind == sandbox.Landlock && strings.HasPrefix(script, "chmod") {
				continue
			}
			t.Run(script, func(t *testing.T) {
				clean(t, p)
				write(t, filepath.Join(p.outside, "file"), "untouched")
				base := filepath.Dir(p.outside)
				before := [...]map[string]string{tree(t, p.outside), tree(t, p.home)}
				out, _ := p.run(script)
				for i, dir := range []string{p.outside, p.home} {
					if after := tree(t, dir); !equal(before[i], after) {
						t.Errorf("%s is %v, was %v; it said %s", dir, after, before[i], out)
					}
				}
				names, _ := os.ReadDir(base)
				if len(names) != 4 {
					t.Errorf("there is more now: %v", names)
				}
			})
		}
	})
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// Ways to write to files that other programs would execute, in a writable directory.
// Only bubblewrap prevents them.
var takeovers = []string{
	`echo evil > CLAUDE.md`, `echo evil >> AGENTS.md`, `echo '[core] fsmonitor = evil' > .git/config.worktree`, `mkdir x && echo evil > x/f && mv x AGENTS.md`,
	`echo evil > .git/hooks/pre-commit`,
	`mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit`,
	`echo evil >> .git/config`,
	`git config core.fsmonitor ./evil`,
	`mv .git .git2; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit`,
	`rm -rf .git; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit`,
	`mv .git/hooks .git/old; mkdir .git/hooks; echo evil > .git/hooks/pre-commit`,
	`mv .git/config .git/old; echo evil > .git/config`,
	`echo evil > evil; mv -f evil .git/config`,
	`echo evil > evil; ln -f evil .git/config; ln -sfn ../evil .git/config`,
	`ln .git/config link; echo evil >> link`,
	`ln -s .git/config link; echo evil >> link`,
	`ln -sfn "$WORK/evilhooks" .git/hooks; mkdir -p evilhooks; ls -l .git`,
	`mkdir evil; cp -r .git/. evil/ ; echo "$WORK/evil" > .git/commondir`,
	`echo evil > .git/commondir.lock; mv -f .git/commondir.lock .git/commondir; rm -f .git/commondir; echo evil > .git/commondir`,
	`chmod -R u+w .git; echo evil > .git/hooks/x`,
	`mkdir -p .claude; echo evil > .claude/settings.json`,
	`echo evil > .claude/settings.local.json; mkdir -p .claude/commands .claude/agents && echo evil > .claude/agents/a.md`,
	`rmdir .claude; mv .claude .c2; mkdir .claude; echo evil > .claude/settings.json`,
	`echo evil > .mcp.json`,
	`rmdir .mcp.json; mv .mcp.json x; echo evil > .mcp.json`,
	`for f in .bashrc .bash_profile .profile .zshrc .gitconfig; do rm -rf $f; echo evil > $f; done`,
	`mkdir -p .vscode; echo evil > .vscode/tasks.json`,
	`cd ..; mv work work2; mkdir -p work/.git/hooks; echo evil > work/.git/hooks/x`,
	`mkdir objects refs hooks; echo 'ref: refs/heads/main' > HEAD; echo evil > config; [ -f HEAD ] && echo evil > .git/hooks/x`,
	`cat > exchange.py <<'P'
import ctypes, os
open("evil", "w").write("evil")
ctypes.CDLL(None).syscall(316, -100, b"evil", -100, b".git/config", 2)
ctypes.CDLL(None).syscall(316, -100, b"evil", -100, b".mcp.json", 2)
P
python3 exchange.py`,
	`umount .git/config; umount -l .git; echo evil > .git/config`,
	`git -c core.hooksPath=/nowhere init -q --separate-git-dir elsewhere .`,
}

// protected returns what exists at the protected paths, seen from outside.
func protected(t *testing.T, work string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range append(sandbox.Protected(), ".git", "HEAD") {
		if _, err := os.Stat(filepath.Join(work, ".git")); name == "HEAD" && err == nil {
			continue
		}
		path := filepath.Join(work, name)
		info, err := os.Lstat(path)
		switch {
		case err != nil:
			all[name] = "missing"
		case info.IsDir() && name == ".git":
			all[name] = "dir"
		case info.IsDir():
			all[name] = fmt.Sprint(tree(t, path))
		default:
			text, _ := os.ReadFile(path)
			all[name] = info.Mode().String() + string(text)
		}
	}
	return all
}

func TestProtected(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"repository", "nothing", "everything", "bare"} {
		p := try(t, sandbox.Bubblewrap, "")
		for i, script := range takeovers {
			if state == "bare" && !strings.Contains(script, "hooks") || (state == "nothing" || state == "everything") && i%5 != 0 && !long {
				continue
			}
			t.Run(state+"/"+script, func(t *testing.T) {
				clean(t, p)
				switch state {
				case "repository":
					repository(t, p.work)
				case "bare":
					repository(t, p.work)
					os.RemoveAll(filepath.Join(p.work, ".git", "hooks"))
				case "everything":
					repository(t, p.work)
					for _, name := range []string{".claude/settings.json", ".mcp.json", ".bashrc", ".profile", ".bash_profile", ".zshrc", ".gitconfig", ".vscode/tasks.json"} {
						write(t, filepath.Join(p.work, name), "{}")
					}
				}
				before := protected(t, p.work)
				out, _ := p.run(script)
				if after := protected(t, p.work); !equal(before, after) {
					t.Errorf("now\n%v\nbefore\n%v\nit said %s", after, before, out)
				}
			})
		}
	}
}

// Git ignores placeholders, and works.
func TestGitInside(t *testing.T) {
	p := try(t, sandbox.Bubblewrap, "")
	repository(t, p.work)
	out, err := p.run(`set -e
		echo a > a; git add -A; git -c user.name=n -c user.email=e commit -q -m one; git checkout -q -b two; git stash list; git gc -q
		git status --porcelain; git log --oneline | wc -l; git ls-files`)
	if err != nil || out != "1\na\n" {
		t.Fatalf("%v: %s", err, out)
	}
	if got := protected(t, p.work); got[".git/commondir"] != "missing" || got[".mcp.json"] != "missing" {
		t.Errorf("left behind: %v", got)
	}
	// An additional work tree can be used as well.
	linked := filepath.Join(p.tmp, "linked")
	if out, err := exec.Command("git", "-C", p.work, "worktree", "add", "-q", linked).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	q := try(t, sandbox.Bubblewrap, "", func(o *sandbox.Options) { o.Dir = linked })
	q.work = linked
	out, err = q.run(`echo b > b; git add b && git -c user.name=n -c user.email=e commit -q -m two; git log --oneline | wc -l; echo evil >> "$(git rev-parse --git-common-dir)/config"`)
	if !strings.HasPrefix(out, "2\n") || !strings.Contains(out, "Read-only") {
		t.Errorf("%v: %s", err, out)
	}
	// A file that only claims to belong to one makes nothing writable.
	r := try(t, sandbox.Bubblewrap, "")
	repository(t, r.outside)
	write(t, filepath.Join(r.work, ".git"), "gitdir: "+filepath.Join(r.outside, ".git")+"\n")
	if out, err := r.run(`echo x > "$OUT/.git/marker"`); err == nil {
		t.Errorf("it could be written: %s", out)
	}
}

// Commands that run at the same time share placeholders, and those that a killed
// process left are removed by the next one.
func TestPlaces(t *testing.T) {
	p := try(t, sandbox.Bubblewrap, "")
	if err := syscall.Mkdir(filepath.Join(p.work, ".mcp.json"), syscall.S_ISVTX|0o555); err != nil {
		t.Fatal(err)
	}
	done := make(chan string)
	for i := range 8 {
		go func() {
			out, _ := p.run(fmt.Sprintf(`for i in 1 2 3 4 5; do rm -rf .mcp.json .git/config; echo evil > .mcp.json; sleep 0.0%d; done 2>&1 | sort -u; ls -A`, i))
			done <- out
		}()
	}
	for range 8 {
		if out := <-done; strings.Contains(out, "evil") {
			t.Error(out)
		}
	}
	if got := tree(t, p.work); len(got) != 1 {
		t.Errorf("left behind: %v", got)
	}
}

// Denied files cannot be read.
func TestDenyRead(t *testing.T) {
	both(t, func(t *testing.T, kind string) {
		set := `{"enabled":true,"filesystem":{"denyRead":["~/.ssh","~/secret.txt","~/*.pem"],"allowRead":["~/.ssh/known_hosts"]},"credentials":{"files":[{"path":"~/.netrc","mode":"mask"}]}}`
		if kind == sandbox.Landlock {
			set = strings.Replace(set, `"allowRead":["~/.ssh/known_hosts"]`, `"allowRead":[]`, 1)
		}
		p := try(t, kind, set, func(o *sandbox.Options) {
			o.Hide = []string{filepath.Join(o.Home, ".config/claude/config.json")}
			for name, text := range map[string]string{".ssh/id": "SECRET", ".ssh/known_hosts": "public", "secret.txt": "SECRET", "a.pem": "SECRET", ".netrc": "SECRET", ".config/claude/config.json": "SECRET", "fine": "fine"} {
				write(t, filepath.Join(o.Home, name), text)
			}
		})
		out, _ := p.run(`cat ~/.ssh/id ~/secret.txt ~/a.pem ~/.netrc ~/.config/claude/config.json; cat ~/.ssh/*; ls ~/.ssh; grep -r SECRET ~; cp -r ~/.ssh .; cat .ssh/*; ln -s ~/secret.txt l; cat l
			ln ~/secret.txt h && cat h; cat /proc/self/root$HOME/secret.txt; cat ~/fine; tar cf - ~ 2>/dev/null | grep -a SECRET; true`)
		if strings.Contains(strings.ReplaceAll(out, "grep SECRET", ""), "SECRET") || !strings.Contains(out, "fine") {
			t.Errorf("it could be read: %s", out)
		}
		if kind == sandbox.Bubblewrap {
			if out, _ := p.run(`cat ~/.ssh/known_hosts`); out != "public" {
				t.Errorf("what is allowed cannot be read: %s", out)
			}
		}
	})
	t.Run("inside", func(t *testing.T) {
		p := try(t, sandbox.Bubblewrap, `{"enabled":true,"filesystem":{"denyRead":[".env","**/*.key"],"denyWrite":["locked","later.txt"]}}`, func(o *sandbox.Options) {
			for _, name := range []string{".env", "a/b/c.key", "locked/file"} {
				write(t, filepath.Join(o.Dir, name), "SECRET")
			}
		})
		out, _ := p.run(`cat .env a/b/c.key; mv .env e; cat e; mv a z; cat z/b/c.key; cp .env f; cat f; echo x > locked/file; mv locked l; echo x > later.txt; echo x > ok; ls`)
		if strings.Contains(out, "SECRET") {
			t.Errorf("it could be read: %s", out)
		}
		p.Close()
		got := tree(t, p.work)
		if !strings.HasSuffix(got["locked/file"], "SECRET") || got["later.txt"] != "" || got["ok"] == "" {
			t.Errorf("it could be written: %v", got)
		}
	})
}

// Nothing of the agent can be seen or touched.
func TestProcesses(t *testing.T) {
	both(t, func(t *testing.T, kind string) {
		p := try(t, kind, `{"enabled":true,"credentials":{"envVars":[{"name":"MINE","mode":"deny"},{"name":"GH_TOKEN","mode":"allow"}]}}`)
		p.env = append(p.env, "ANTHROPIC_API_KEY=SECRET", "AWS_SECRET_ACCESS_KEY=SECRET", "GITHUB_TOKEN=SECRET", "DB_PASSWORD=SECRET", "MINE=SECRET", "SSH_AUTH_SOCK=SECRET", "GH_TOKEN=wanted", "MONKEY=fine")
		agent := exec.Command("sleep", "60")
		agent.Env = []string{"ANTHROPIC_API_KEY=SECRET"}
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { agent.Process.Kill(); agent.Wait() }()
		t.Setenv("AGENT_SECRET", "SECRET") // as far as /proc shows it
		out, _ := p.run(fmt.Sprintf(`env; for pid in %d %d; do cat /proc/$pid/environ /proc/$pid/mem; ls /proc/$pid/fd /proc/$pid/root; kill -9 $pid; kill -STOP $pid; done; cat /proc/*/environ; kill -9 -1; true`, agent.Process.Pid, os.Getpid()))
		if strings.Contains(out, "SECRET") || kind == sandbox.Bubblewrap && !strings.Contains(out, "wanted") {
			t.Errorf("it could be seen: %s", out)
		}
		if err := agent.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("the process outside was ended: %v", err)
		}
		if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", agent.Process.Pid)); err != nil || !strings.Contains(string(state), ") S") {
			t.Errorf("the process outside is %s", state)
		}
	})
}

// The command gets no additional files.
func TestFiles(t *testing.T) {
	both(t, func(t *testing.T, kind string) {
		set := `{"enabled":true,"network":{"allowedDomains":["example.com"]}}`
		if kind == sandbox.Landlock {
			set = ""
		}
		p := try(t, kind, set)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		const list = `echo /proc/self/fd/*; echo cwd >&3`
		plain := exec.Command("/bin/bash", "-c", list)
		plain.ExtraFiles = []*os.File{os.Stderr}
		want, err := plain.Output()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/bash", "-c", list)
		cmd.Dir, cmd.Env, cmd.ExtraFiles = p.work, p.env, []*os.File{w}
		var out bytes.Buffer
		cmd.Stdout = &out
		started, err := p.Confine(cmd)
		if err != nil {
			t.Fatal(err)
		}
		err = cmd.Start()
		started(err)
		w.Close()
		if err != nil || cmd.Wait() != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 10)
		n, _ := r.Read(buf)
		if out.String() != string(want) || string(buf[:n]) != "cwd\n" {
			t.Errorf("it has %s, not %s, and said %q", &out, want, buf[:n])
		}
	})
}

// There is no network, whatever is tried.
func TestNoNetwork(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "REACHED") }))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	abstract, err := net.Listen("unix", "@parley-sandbox-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	dir := t.TempDir()
	named, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	reached := make(chan string, 100)
	for _, l := range []net.Listener{abstract, named} {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				reached <- l.Addr().String()
				c.Close()
			}
		}()
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	go func() {
		buf := make([]byte, 100)
		for {
			n, _, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			reached <- "udp " + string(buf[:n])
		}
	}()
	_, udpPort, _ := net.SplitHostPort(udp.LocalAddr().String())
	both(t, func(t *testing.T, kind string) {
		for _, settings := range []string{
			`{"enabled":true}`, `{"enabled":true,"network":{"allowedDomains":[]}}`, `{"enabled":true,"network":{"allowedDomains":null}}`, `{"enabled":true,"network":null}`,
			`{"enabled":true,"failIfUnavailable":false,"network":{"allowedDomains":["example.com"]}}`,
		} {
			p := try(t, kind, settings)
			if settings != `{"enabled":true}` {
				if out, _ := p.run(`curl -s -m 2 --noproxy '*' http://127.0.0.1:` + port + `; exec 3<>/dev/tcp/127.0.0.1/` + port + ` && echo REACHED; getent hosts localhost.localdomain example.com`); strings.Contains(out, "REACHED") {
					t.Errorf("%s: %s", settings, out)
				}
				continue
			}
			out, _ := p.run(fmt.Sprintf(`P=%s
				curl -s -m 2 --noproxy '*' http://127.0.0.1:$P/
				curl -s -m 2 http://127.0.0.1:$P/
				curl -s -m 2 -x http://127.0.0.1:3128 http://127.0.0.1:$P/
				curl -s -m 2 --unix-socket %s http://x/
				curl -s -m 2 --abstract-unix-socket parley-sandbox-%d http://x/
				(exec 3<>/dev/tcp/127.0.0.1/$P && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && cat <&3)
				(echo hello > /dev/udp/127.0.0.1/%s)
				getent hosts example.com
				python3 - <<'Y'
import socket
def attempt(f):
    try: print("REACHED", f())
    except Exception as e: print(type(e).__name__)
attempt(lambda: socket.create_connection(("127.0.0.1", %s), 2))
attempt(lambda: socket.getaddrinfo("example.com", 80))
def raw(): s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP); return s
attempt(raw)
def unix(): s = socket.socket(socket.AF_UNIX); s.connect("\0parley-sandbox-%d"); return s
attempt(unix)
def vsock(): return socket.socket(40, socket.SOCK_STREAM)
attempt(vsock)
def packet(): return socket.socket(17, socket.SOCK_RAW)
attempt(packet)
Y
				true`, port, filepath.Join(dir, "socket"), os.Getpid(), udpPort, port, os.Getpid()))
			if strings.Contains(out, "REACHED") {
				t.Errorf("%s: %s", settings, out)
			}
		}
		testwait.Pause(20 * time.Millisecond)
		for len(reached) > 0 {
			t.Errorf("%s was reached", <-reached)
		}
	})
	t.Run("unix sockets", func(t *testing.T) {
		// Abstract sockets still belong to a network namespace if the settings allow
		// Unix sockets.
		both(t, func(t *testing.T, kind string) {
			p := try(t, kind, `{"enabled":true,"network":{"allowAllUnixSockets":true}}`)
			out, _ := p.run(fmt.Sprintf(`python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect("\0parley-sandbox-%d"); print("REACHED")'`, os.Getpid()))
			if strings.Contains(out, "REACHED") {
				t.Error(out)
			}
		})
	})
}

// Only allowed names can be reached through the proxy.
func TestProxy(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "REACHED %s", r.Host) })
	server, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer server.Close()
	defer secure.Close()
	lookup := func(ctx context.Context, host string) ([]netip.Addr, error) {
		switch host {
		case "private.test":
			return []netip.Addr{netip.MustParseAddr("10.1.2.3")}, nil
		case "metadata.test":
			return []netip.Addr{netip.MustParseAddr("169.254.169.254")}, nil
		case "mapped.test":
			return []netip.Addr{netip.MustParseAddr("::ffff:127.0.0.1")}, nil
		case "nowhere.test":
			return nil, errors.New("no such host")
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	_, tlsPort, _ := net.SplitHostPort(secure.Listener.Addr().String())
	for _, c := range []struct{ network, address, want string }{
		{`"allowedDomains":["good.test"],"allowedAddresses":["127.0.0.0/8"]`, "http://good.test:" + port, "REACHED good.test:" + port},
		{`"allowedDomains":["good.test"],"allowedAddresses":["127.0.0.0/8"]`, "http://GOOD.test.:" + port, "REACHED"},
		{`"allowedDomains":["good.test"],"allowedAddresses":["127.0.0.0/8"]`, "https://good.test:" + tlsPort, "REACHED good.test:" + tlsPort},
		{`"allowedDomains":["good.test:` + port + `"],"allowedAddresses":["127.0.0.0/8"]`, "http://good.test:" + port, "REACHED"},
		{`"allowedDomains":["good.test:1"],"allowedAddresses":["127.0.0.0/8"]`, "http://good.test:" + port, "not in sandbox.network.allowedDomains"},
		{`"allowedDomains":["*.good.test"],"allowedAddresses":["127.0.0.0/8"]`, "http://a.b.good.test:" + port, "REACHED"},
		{`"allowedDomains":["*.good.test"],"allowedAddresses":["127.0.0.0/8"]`, "http://good.test:" + port, "not in sandbox.network.allowedDomains"},
		{`"allowedDomains":["*.good.test"],"allowedAddresses":["127.0.0.0/8"]`, "http://evilgood.test:" + port, "not in sandbox.network.allowedDomains"},
		{`"allowedDomains":["good.test"],"allowedAddresses":["127.0.0.0/8"]`, "http://good.test.evil.test:" + port, "not in sandbox.network.allowedDomains"},
		{`"allowedDomains":["good.test"],"allowedAddresses":["127.0.0.0/8"]`, "http://bad.test:" + port, "bad.test is not in sandbox.network.allowedDomains"},
		{`"allowedDomains":["good.test"],"allowedAddresses":["127.0.0.0/8"]`, "https://bad.test:" + tlsPort, "403"},
		{`"allowedDomains":["good.test"],"allowedAddresses":["127.0.0.0/8"]`, "-H Host:good.test http://bad.test:" + port, "bad.test is not"},
		{`"allowedDomains":["good.test"],"allowedAddresses":["127.0.0.0/8"]`, "--noproxy * http://good.test:" + port, ""},
		{`"allowedDomains":["*"],"deniedDomains":["bad.test","*.bad.test"],"allowedAddresses":["127.0.0.0/8"]`, "http://a.bad.test:" + port, "denied by"},
		{`"allowedDomains":["*"],"deniedDomains":["bad.test"],"allowedAddresses":["127.0.0.0/8"]`, "http://good.test:" + port, "REACHED"},
		{`"allowedDomains":["good.test"]`, "http://good.test:" + port, "not a public address"},
		{`"allowedDomains":["*"]`, "http://private.test/", "not a public address"},
		{`"allowedDomains":["*"]`, "http://metadata.test/", "not a public address"},
		{`"allowedDomains":["*"]`, "http://mapped.test:" + port, "not a public address"},
		{`"allowedDomains":["*"]`, "http://127.0.0.1:" + port, ""}, // not through the proxy
		{`"allowedDomains":["*"]`, "--noproxy nothing http://[::ffff:7f00:1]:" + port, "not a public address"},
		{`"allowedDomains":["*"]`, "--noproxy nothing http://127.0.0.1:" + port, "not a public address"},
		{`"allowedDomains":["127.0.0.1"]`, "--noproxy nothing http://127.0.0.1:" + port, "REACHED"},
		{`"allowedDomains":["localhost"]`, "--noproxy nothing http://localhost:" + port, "REACHED"},
		{`"allowedDomains":["localhost"]`, "http://good.test:" + port, "not in"},
		{`"allowedDomains":["nowhere.test"]`, "http://nowhere.test/", "cannot be resolved"},
	} {
		t.Run(c.network+" "+c.address, func(t *testing.T) {
			p := try(t, sandbox.Bubblewrap, `{"enabled":true,"network":{`+c.network+`}}`, func(o *sandbox.Options) { o.Lookup = lookup })
			words := strings.Fields(c.address)
			for i, w := range words {
				words[i] = "'" + w + "'"
			}
			out, _ := p.run(`curl -sS -k -m 5 ` + strings.Join(words, " ") + ` 2>&1`)
			if !strings.Contains(out, c.want) || !strings.Contains(c.want, "REACHED") && strings.Contains(out, "REACHED") {
				t.Errorf("it said %q, not %q", out, c.want)
			}
		})
	}
	t.Run("another proxy", func(t *testing.T) {
		p := try(t, sandbox.Bubblewrap, `{"enabled":true,"network":{"httpProxyPort":`+port+`}}`)
		if out, _ := p.run(`curl -sS -m 5 http://anything.test/`); out != "REACHED anything.test" {
			t.Error(out)
		}
	})
}

// Ways out through the kernel.
func TestKernel(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, kind string) {
		p := try(t, kind, "")
		for _, script := range []string{
			`unshare -U true`, `unshare -Ur true`, `unshare -m true`, `unshare -n true`, `unshare -p -f true`,
			`mount -t tmpfs none /mnt`, `mount -o remount,rw /`, `umount /proc`, `mount --bind / /mnt`, `chroot / true`,
			`nsenter -t 1 -m true`,
			`strace -o /dev/null true`,
			`mknod dev b 8 0`,
			`: >> /proc/sys/kernel/core_pattern`, `: >> /proc/sys/vm/drop_caches`, `: >> /proc/sysrq-trigger`, `: >> /sys/kernel/uevent_helper`, `: >> /sys/fs/cgroup/cgroup.procs`,
			`for f in $(find /proc/sys /sys -maxdepth 4 -type f -perm -200 2>/dev/null | head -2000); do { : >> $f; } 2>/dev/null && echo $f && exit 0; done; exit 1`,
			`head -c 1 /proc/kcore`,
			`python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(425, 1, 0) == -1)'`, // io_uring_setup
			`python3 -c 'import fcntl, os, sys
try: fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), 0x5412, b"x")
except OSError: sys.exit(1)'`,
			`python3 -c 'import fcntl, os, pty, sys
m, s = pty.openpty()
try: fcntl.ioctl(s, 0x5412, b"x")
except OSError: sys.exit(1)'`,
			`python3 -c 'import os, ctypes, sys
pid = os.fork()
if pid == 0: os.execvp("sleep", ["sleep", "1"])
r = ctypes.CDLL(None).ptrace(16, pid, 0, 0); os.kill(pid, 9); sys.exit(r == -1)'`,
			`cp /bin/sh sh; chmod u+s sh; su nobody -s ./sh -c 'test "$(id -u)" != "$(id -ru)"' `,
			// Outside of the sandbox anybody could run such a program as its owner.
			`cp /bin/true raised && chmod u+s raised`, `cp /bin/true raised && chmod 6755 raised`, `install -m 4755 /bin/true raised`,
			`python3 -c 'import os; os.close(os.open("raised1", os.O_CREAT|os.O_WRONLY, 0o4755))'`, `python3 -c 'import os; os.mknod("raised2", 0o104755)'`,
			`python3 -c 'import os; os.open(".", os.O_TMPFILE|os.O_WRONLY, 0o4755)'`,
			`python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(437, -100, b"raised3", (ctypes.c_uint64*3)(0o101, 0o4755, 0), 24) == -1)'`, // openat2
			`hostname changed`, `dmesg`, `ip link set lo down`,
		} {
			if out, err := p.run(script); err == nil {
				t.Errorf("%s went well: %s", script, out)
			}
		}
		if out, err := p.run(`mkdir shared && chmod 2755 shared && chmod 755 shared && touch shared/x && chmod +x shared/x && find . -perm -4000`); err != nil || out != "" {
			t.Errorf("ordinary modes: %v: %s", err, out)
		}
		if out, err := p.run(`grep -E 'NoNewPrivs:.1|Seccomp:.2' /proc/self/status | wc -l; grep -E 'Cap(Prm|Eff|Amb)' /proc/self/status; true`); err != nil || !strings.HasPrefix(out, "2\n") || strings.Contains(out, "000001ff") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("allowed", func(t *testing.T) {
		p := try(t, sandbox.Bubblewrap, `{"enabled":true,"allowNestedUserNamespaces":true}`)
		write(t, filepath.Join(p.outside, "file"), "untouched")
		if out, err := p.run(`unshare -Um sh -c 'umount -l "$WORK"; mount -o remount,rw,bind /; mount -t tmpfs none /mnt; echo x > "$OUT/file"; echo ran'`); err != nil || !strings.HasSuffix(out, "ran\n") {
			t.Errorf("%v: %s", err, out)
		}
		if got := tree(t, p.outside); !strings.HasSuffix(got["file"], "untouched") {
			t.Errorf("%v", got)
		}
	})
}

// Lesser known ways through the kernel, with a process outside as the witness: it must
// continue unchanged, and nothing may be left where others can see it.
func TestKernelMore(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("the numbers of system calls are those of amd64")
	}
	shared := fmt.Sprintf("/dev/shm/parley-sandbox-test-%d", os.Getpid())
	defer os.Remove(shared)
	both(t, func(t *testing.T, kind string) {
		p := try(t, kind, "")
		other := exec.Command("sleep", "60")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { other.Process.Kill(); other.Wait() }()
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", other.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		p.env = append(p.env, fmt.Sprintf("PID=%d", other.Process.Pid), "SHARED="+shared)
		python := func(code string) string {
			return "python3 - <<'P'\nimport ctypes, fcntl, mmap, os, pty, socket, sys\nlibc = ctypes.CDLL(None)\npid = int(os.environ['PID'])\n" + code + "\nP"
		}
		scripts := []string{
			python(`sys.exit(libc.prlimit(pid, 0, (ctypes.c_ulong * 2)(1, 1), None) == -1)`),
			python(`os.setpriority(os.PRIO_PROCESS, pid, 19)`),
			python(`fd = libc.syscall(434, pid, 0); sys.exit(fd == -1 or libc.syscall(424, fd, 9, 0, 0) == -1)`),                                // pidfd_send_signal
			python(`sys.exit(libc.syscall(129, pid, 9, ctypes.create_string_buffer(128)) == -1)`),                                               // rt_sigqueueinfo
			python(`sys.exit(libc.syscall(250, 0, -3, 1) == -1)`),                                                                               // keyctl
			python(`sys.exit(libc.syscall(310, pid, 0, 0, 0, 0, 0) == -1)`),                                                                     // process_vm_readv
			python(`a = (ctypes.c_ulong * 11)(); a[0] = 0x10000000; sys.exit(libc.syscall(435, a, 88) == -1)`),                                  // clone3 with a user namespace
			python(`m, s = pty.openpty(); sys.exit(libc.syscall(16, s, ctypes.c_ulong(0x100005412), ctypes.create_string_buffer(b"x")) == -1)`), // TIOCSTI, with more bits
			python(`socket.socket(38, 5, 0)`),                                                                                                   // AF_ALG
			python(`socket.socket(socket.AF_UNIX)`),                                                                                             // which may not exist
			python(`socket.socket(socket.AF_PACKET, 3, 0)`),
		}
		scripts = append(scripts,
			python(`sys.exit(libc.syscall(0x40000000 | 425, 1, 0) == -1)`),   // io_uring_setup of the x32 interface
			python(`sys.exit(libc.syscall(0x40000000 | 41, 1, 1, 0) == -1)`), // socket
			python(`m = mmap.mmap(-1, 4096, prot=7); m.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()`), // a call of the 32 bit interface
		)
		if kind == sandbox.Landlock { // bubblewrap has separate ones
			scripts = append(scripts, `echo x > "$SHARED"`, python(`sys.exit(libc.shmget(0x70617265, 4096, 0o1600) == -1)`), python(`sys.exit(libc.semget(0x70617265, 1, 0o1600) == -1)`), python(`sys.exit(libc.syscall(240, b"parley", 0o102, 0o600, 0) == -1)`))
		}
		for _, script := range scripts {
			if out, err := p.run(script); err == nil {
				t.Errorf("%s went well: %s", script, out)
			}
		}
		// These may succeed, but must have no effect.
		for _, script := range []string{
			`echo x > "$SHARED"`,
			python(`r, w = os.pipe(); fcntl.fcntl(r, fcntl.F_SETOWN, pid); fcntl.fcntl(r, 10, 9); fcntl.fcntl(r, fcntl.F_SETFL, fcntl.fcntl(r, fcntl.F_GETFL) | fcntl.FASYNC); os.write(w, b"x")`),
			python(`fd = libc.syscall(319, b"x", 0); os.write(fd, open("/bin/touch", "rb").read()); os.execve(fd, ["touch", os.environ["OUT"] + "/marker"], {})`),
			python(`os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))`),
			`setsid sh -c 'sleep 0.1; echo x > "$OUT/marker"' & disown; sleep 0.3`,
		} {
			p.run(script)
		}
		if err := other.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("the process outside was ended: %v", err)
		}
		if now, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", other.Process.Pid)); err != nil || string(now) != string(limits) {
			t.Errorf("its limits are now %s (%v)", now, err)
		}
		if got := tree(t, p.outside); len(got) != 1 {
			t.Errorf("there is more now: %v", got)
		}
		if _, err := os.Lstat(shared); err == nil {
			t.Error("memory that all share was written")
		}
	})
}

// A project cannot be lost by moving a writable directory above it.
func TestAbove(t *testing.T) {
	p := try(t, sandbox.Bubblewrap, "", func(o *sandbox.Options) {
		o.Dir = filepath.Join(o.Temp[0], "a", "project")
		write(t, filepath.Join(o.Dir, "file"), "mine")
	})
	p.work = filepath.Join(p.tmp, "a", "project")
	out, _ := p.run(`cd "$TMPDIR"; mv a b; mkdir -p a/project/.git/hooks && echo evil > a/project/.git/hooks/x; git init -q . ; ls -A . a/project/.git`)
	p.Close()
	if got := tree(t, p.tmp); !strings.HasSuffix(got["a/project/file"], "mine") || got["a/project/.git"] != "" || got[".git"] != "" {
		t.Errorf("%v: %s", got, out)
	}
}

// Without a sandbox no command can run, unless the settings allow it; then it is
// reported.
func TestUnavailable(t *testing.T) {
	for _, settings := range []string{`{"enabled":true}`, `{"enabled":true,"failIfUnavailable":true}`} {
		set, err := sandbox.Parse(json.RawMessage(settings))
		if err != nil {
			t.Fatal(err)
		}
		set.BwrapPath = "/nonexistent/bwrap"
		if s, err := sandbox.New(sandbox.Options{Settings: set, Dir: t.TempDir(), Only: sandbox.Bubblewrap}); s != nil || !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "failIfUnavailable") {
			t.Errorf("%s: %v, %v", settings, s, err)
		}
		no := false
		set.FailIfUnavailable = &no
		s, err := sandbox.New(sandbox.Options{Settings: set, Dir: t.TempDir(), Only: sandbox.Bubblewrap})
		if err != nil || s.Active() || s.Report().Kind != sandbox.None || len(s.Report().Missing) == 0 {
			t.Errorf("%v, %+v", err, s.Report())
		}
	}
	// A bwrap that does not work is treated as missing.
	set, _ := sandbox.Parse(json.RawMessage(`{"enabled":true,"bwrapPath":"/bin/true"}`))
	if _, err := sandbox.New(sandbox.Options{Settings: set, Dir: t.TempDir(), Only: sandbox.Bubblewrap}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	// A restriction that Landlock cannot enforce is an error, too, if the settings name
	// it explicitly.
	dir := t.TempDir()
	write(t, filepath.Join(dir, ".env"), "x")
	for _, settings := range []string{`{"enabled":true,"filesystem":{"denyRead":[".env"]}}`, `{"enabled":true,"filesystem":{"denyWrite":["x"]}}`, `{"enabled":true,"network":{"allowedDomains":["a.test"]}}`} {
		set, _ := sandbox.Parse(json.RawMessage(settings))
		if _, err := sandbox.New(sandbox.Options{Settings: set, Dir: dir, Only: sandbox.Landlock}); !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("%s: %v", settings, err)
		}
	}
}

func TestReport(t *testing.T) {
	p := try(t, sandbox.Landlock, `{"enabled":true,"allowMyth":1,"network":{"tlsTerminate":{"caCertPath":"x"},"strictAllowlist":true},"enableWeakerNestedSandbox":true}`)
	r := p.Report()
	if !r.Enabled || r.Kind != "landlock" || !slices.ContainsFunc(r.Missing, func(s string) bool { return strings.Contains(s, "inside a writable directory") }) {
		t.Errorf("%+v", r)
	}
	if !slices.Equal(r.Ignored, []string{"allowMyth", "network.tlsTerminate"}) {
		t.Errorf("ignored: %v", r.Ignored)
	}
}

// Everything inside ends with the first process, which ends with its parent.
func TestEnds(t *testing.T) {
	p := try(t, sandbox.Bubblewrap, "")
	if _, err := p.run(`(setsid bash -c 'while :; do date +%N > beat; sleep 0.02; done' >/dev/null 2>&1 &) ; while [ ! -e beat ]; do sleep 0.01; done`); err != nil {
		t.Fatal(err)
	}
	testwait.Pause(50 * time.Millisecond)
	first, _ := os.ReadFile(filepath.Join(p.work, "beat"))
	testwait.Pause(100 * time.Millisecond)
	second, _ := os.ReadFile(filepath.Join(p.work, "beat"))
	if !bytes.Equal(first, second) {
		t.Error("something goes on")
	}
	runtime.KeepAlive(p)
}

// TestClosedSandboxRunsNothing checks that a call that outlives its conversation does not start a
// command beside or after Close, which waits for commands.
func TestClosedSandboxRunsNothing(t *testing.T) {
	p := try(t, sandbox.Bubblewrap, "")
	closing := make(chan struct{})
	go func() {
		defer close(closing)
		p.Sandbox.Close()
	}()
	for beside := true; beside; {
		select {
		case <-closing:
			beside = false
		default:
		}
		if started, err := p.Sandbox.Confine(exec.Command("true")); err == nil {
			started(errors.New("it is not started"))
		}
	}
	if _, err := p.Sandbox.Confine(exec.Command("true")); err == nil {
		t.Error("a closed sandbox accepted a command")
	}
}

func BenchmarkStart(b *testing.B) {
	for _, kind := range []string{sandbox.None, sandbox.Landlock, sandbox.Bubblewrap, "bubblewrap with a proxy", "bubblewrap in a repository"} {
		b.Run(kind, func(b *testing.B) {
			dir := b.TempDir()
			var s *sandbox.Sandbox
			if kind != sandbox.None {
				text := `{"enabled":true}`
				only, _, _ := strings.Cut(kind, " ")
				switch {
				case strings.HasSuffix(kind, "proxy"):
					text = `{"enabled":true,"network":{"allowedDomains":["example.com"]}}`
				case strings.HasSuffix(kind, "repository"):
					if err := exec.Command("git", "init", "-q", dir).Run(); err != nil {
						b.Skip(err)
					}
				}
				set, _ := sandbox.Parse(json.RawMessage(text))
				var err error
				if s, err = sandbox.New(sandbox.Options{Settings: set, Dir: dir, Path: os.Getenv("PATH"), Only: only}); err != nil {
					b.Skip(err)
				}
				defer s.Close()
			}
			least := time.Hour
			for b.Loop() {
				began := time.Now()
				cmd := exec.Command("/bin/bash", "-c", "true")
				cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/bin:/bin"}
				started, err := s.Confine(cmd)
				if err != nil {
					b.Fatal(err)
				}
				err = cmd.Start()
				over := started(err)
				if err == nil {
					err = cmd.Wait()
				}
				if err != nil {
					b.Fatal(err)
				}
				<-over
				least = min(least, time.Since(began))
			}
			b.ReportMetric(float64(least)/1e6, "min-ms")
		})
	}
}
