//go:build unix

package terminal_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/internal/testwait"
)

// parleyPath is the command under test, which TestMain builds.
var parleyPath string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "parley-terminal-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		parleyPath = filepath.Join(dir, "parley")
		cmd := exec.Command("go", "build", "-o", parleyPath, "github.com/parley-go/parley/cmd/parley")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // compiled by make check already
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

const tmuxConf = `
set -g history-limit 100000
set -s escape-time 0
set -s extended-keys always
set -g status off
`

// A pane is a terminal in tmux, with a program in it and a person in front of it.
type pane struct {
	t      *testing.T
	dir    string // of the sockets
	starts int
	socket string
	home   string // also the working directory
	env    []string
}

// needTmux skips the test if there is no tmux. If PARLEY_NEED_TMUX is set, as in
// continuous integration, it fails the test instead.
func needTmux(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("PARLEY_NEED_TMUX") != "" {
			t.Fatal("tmux is not installed; make tmux installs it")
		}
		t.Skip("tmux is not installed; make tmux installs it")
	}
}

// newPane returns a home directory for programs in tmux.
func newPane(t *testing.T) *pane {
	t.Helper()
	needTmux(t)
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// The path of a socket must be short.
	dir, err := os.MkdirTemp("", "pt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &pane{t: t, dir: dir, home: home}
}

// start starts parley with a scripted model.
func (p *pane) start(width, height int, script string, args ...string) *pane {
	p.t.Helper()
	p.write("model.script", script)
	return p.run(width, height, append([]string{parleyPath, "--provider", "script", "--script", filepath.Join(p.home, "model.script")}, args...)...)
}

// run starts a program.
func (p *pane) run(width, height int, args ...string) *pane {
	p.t.Helper()
	words := []string{"env", "-i", "HOME=" + p.home, "PATH=" + os.Getenv("PATH"), "TERM=tmux-256color", "LANG=C.UTF-8", "TMPDIR=" + os.TempDir(), "SHELL=/bin/sh", "GORACE=atexit_sleep_ms=0"}
	words = append(words, p.env...)
	for _, a := range args {
		words = append(words, "'"+strings.ReplaceAll(a, "'", `'\''`)+"'")
	}
	command := strings.Join(words, " ") + "; echo exit status $?; exec sleep 1000000"
	p.starts++
	p.socket = fmt.Sprintf("%s/%d", p.dir, p.starts) // another server each time: one that ends is still there for a moment
	conf := p.socket + ".conf"
	if err := os.WriteFile(conf, []byte(tmuxConf), 0o666); err != nil {
		p.t.Fatal(err)
	}
	p.tmux("-f", conf, "new-session", "-d", "-s", "p", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height), "-c", p.home, command)
	socket := p.socket
	p.t.Cleanup(func() {
		programs := children(socket)
		exec.Command("tmux", "-S", socket, "kill-server").Run()
		// A program that is ending still writes to its home.
		testwait.Until(p.t, "the end of the programs", func() bool {
			return !slices.ContainsFunc(programs, func(pid string) bool {
				state, err := exec.Command("ps", "-o", "stat=", "-p", pid).Output()
				return err == nil && !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
			})
		})
	})
	return p
}

// children returns the processes that the shells of a tmux server have started.
func children(socket string) (pids []string) {
	shells, _ := exec.Command("tmux", "-S", socket, "list-panes", "-a", "-F", "#{pane_pid}").Output()
	all, _ := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	for line := range strings.Lines(string(all)) {
		if ids := strings.Fields(line); len(ids) == 2 && slices.Contains(strings.Fields(string(shells)), ids[1]) {
			pids = append(pids, ids[0])
		}
	}
	return pids
}

// tmux runs a command of tmux and returns its output.
func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", p.socket}, args...)...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// write writes a file in the working directory of the program.
func (p *pane) write(name, text string) {
	p.t.Helper()
	file := filepath.Join(p.home, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		p.t.Fatal(err)
	}
}

// read returns the content of a file there, empty if it does not exist.
func (p *pane) read(name string) string {
	data, _ := os.ReadFile(filepath.Join(p.home, name))
	return string(data)
}

// screen returns the text on the screen.
func (p *pane) screen() string { return p.tmux("capture-pane", "-p", "-t", "p") }

// all returns the scrollback and the screen, with lines that were wrapped joined.
func (p *pane) all() string { return p.tmux("capture-pane", "-p", "-J", "-S", "-", "-t", "p") }

// colors returns the screen with its escape sequences.
func (p *pane) colors() string { return p.tmux("capture-pane", "-p", "-e", "-t", "p") }

// keys presses keys, by their names in tmux.
func (p *pane) keys(names ...string) {
	p.t.Helper()
	p.tmux(append([]string{"send-keys", "-t", "p"}, names...)...)
}

// typeText types text.
func (p *pane) typeText(text string) {
	p.t.Helper()
	p.tmux("send-keys", "-t", "p", "-l", text)
}

// paste pastes text like a terminal, in brackets if the program has enabled that.
func (p *pane) paste(text string) {
	p.t.Helper()
	p.write("pasted", text)
	p.tmux("load-buffer", filepath.Join(p.home, "pasted"), ";", "paste-buffer", "-p", "-r", "-t", "p")
}

// enter sends a prompt.
func (p *pane) enter(text string) {
	p.t.Helper()
	p.see("\n>")
	p.typeText(text)
	p.see(text)
	p.keys("Enter")
}

// until waits until ok accepts the screen.
func (p *pane) until(what string, ok func(screen string) bool) string {
	p.t.Helper()
	var screen string
	defer func() {
		if p.t.Failed() {
			p.t.Logf("the screen is\n%s", screen)
		}
	}()
	testwait.Until(p.t, what, func() bool {
		screen = p.screen()
		return ok(screen)
	})
	return screen
}

// see waits until texts are on the screen.
func (p *pane) see(texts ...string) string {
	p.t.Helper()
	return p.until(fmt.Sprintf("%q is on the screen", texts), func(s string) bool {
		for _, text := range texts {
			if !strings.Contains(s, text) {
				return false
			}
		}
		return true
	})
}

// gone waits until a text is not on the screen.
func (p *pane) gone(text string) string {
	p.t.Helper()
	return p.until(fmt.Sprintf("%q is not on the screen", text), func(s string) bool { return !strings.Contains(s, text) })
}

// idle waits until no turn is running.
func (p *pane) idle() string {
	p.t.Helper()
	return p.gone("Esc interrupts")
}

// wantLines checks that lines start like this, in this order.
func wantLines(t *testing.T, screen string, lines ...string) {
	t.Helper()
	rest := "\n" + screen
	for _, l := range lines {
		_, after, ok := strings.Cut(rest, "\n"+l)
		if !ok {
			t.Errorf("no line begins with %q, or not in this place:\n%s", l, screen)
			return
		}
		rest = "\n" + after
	}
}
