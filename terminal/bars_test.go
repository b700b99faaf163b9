//go:build unix

package terminal_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/parley-go/parley/internal/testwait"
)

// TestBytesOfABurst streams 10,000 lines of 80 columns and checks every byte that was
// written: at most 1.15 times the text, and nothing that clears or switches the screen or
// captures the mouse.
func TestBytesOfABurst(t *testing.T) {
	t.Parallel()
	const n = 10_000
	p := newPane(t).start(100, 30, numbered(n, 80, ""))
	p.see("\n>")
	file := filepath.Join(p.home, "raw")
	p.tmux("pipe-pane", "-t", "p", "cat > "+file)
	p.enter("go")
	p.see("tokens in")
	p.idle()
	checkNumbered(t, p.all(), n)
	p.tmux("pipe-pane", "-t", "p")
	raw := p.read("raw")
	if ratio := float64(len(raw)) / (n * 81); ratio > 1.15 || ratio < 1 {
		t.Errorf("%d bytes were written, %.3f times the text", len(raw), ratio)
	} else {
		t.Logf("%.3f times the text", ratio)
	}
	if bad := regexp.MustCompile(`\x1b\[[0-3]?J|\x1b\[\?(1049|47|1047|1000|1002|1003|1006)h|\x1bc`).FindString(raw); bad != "" {
		t.Errorf("%q was written", bad)
	}
}

// TestLinksAreLinks checks the bytes of a link: OSC 8, which tmux does not show.
func TestLinksAreLinks(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(100, 30, "turn\n\tsay See [the page](https://example.org/x) and <https://example.org/y>.\n")
	p.see("\n>")
	p.tmux("pipe-pane", "-t", "p", "cat > "+filepath.Join(p.home, "raw"))
	p.enter("go")
	p.see("See the page (https://example.org/x) and https://example.org/y.", "tokens in")
	p.idle()
	p.tmux("pipe-pane", "-t", "p")
	raw := p.read("raw")
	for _, want := range []string{"\x1b]8;;https://example.org/x\x1b\\", "\x1b]8;;https://example.org/y\x1b\\"} {
		if !strings.Contains(raw, want) {
			t.Errorf("%q was not written: %q", want, raw)
		}
	}
}

// TestAttachIsTheSameScreen attaches to a background session.
func TestAttachIsTheSameScreen(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write("model.script", "turn\n\tsay From the background.\nturn\n\tcall Bash {\"command\": \"touch made.txt\"}\nturn\n\tsay Made.\n")
	// The hub ends commands of agents, so tests start it outside of one; the directory of
	// its socket must have a short path.
	home, err := os.MkdirTemp("", "ph")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	cmd := exec.Command(parleyPath, "--bg", "--provider", "script", "--script", filepath.Join(p.home, "model.script"), "hello")
	cmd.Dir = p.home
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	id := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		rm := exec.Command(parleyPath, "rm", id)
		rm.Env = cmd.Env
		rm.Run()
	})
	p.env = []string{"HOME=" + home}
	p.run(80, 24, parleyPath, "attach", id)
	p.see("> hello", "From the background.", "✓ 1 turn")
	p.enter("make it")
	p.see("May it run this command?", "❯ y  Yes, once")
	p.keys("y")
	p.see("Made.")
	p.idle()
	p.keys("C-d")
	p.see("The session continues", "exit status 0")
}

// TestAttachToAnotherTerminal attaches to a session that another terminal runs in its own process: both
// show the same turns, whichever of them sent the prompt.
func TestAttachToAnotherTerminal(t *testing.T) {
	t.Parallel()
	home, err := os.MkdirTemp("", "ph") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	first, second := newPane(t), newPane(t)
	first.env, second.env = []string{"HOME=" + home}, []string{"HOME=" + home}
	first.start(80, 24, "turn\n\tsay First answer.\nturn\n\tsay Second answer.\n")
	first.enter("hello")
	first.see("First answer.")
	first.idle()
	command := func(args ...string) string {
		cmd := exec.Command(parleyPath, args...)
		cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("parley %s: %v", args[0], err)
		}
		return string(out)
	}
	t.Cleanup(func() { command("hub", "--stop") })
	id, _, _ := strings.Cut(command("agents"), " ")
	second.run(80, 24, parleyPath, "attach", id)
	second.see("> hello", "First answer.")
	second.enter("again")
	second.see("Second answer.")
	first.see("> again", "Second answer.")
	second.keys("C-d")
	second.see("The session continues", "exit status 0")
}

// TestPackageInit limits what all packages of the command do before main, at every start.
func TestPackageInit(t *testing.T) {
	most := 5 * time.Millisecond
	if os.Getenv("PARLEY_TEST_LONG") == "" {
		most = 18 * time.Millisecond // on a busy machine; one bad package alone cost 22 ms
	}
	best := time.Hour
	for i := 0; i < 40 && best > most; i++ { // a busy machine makes some runs slow
		cmd := exec.Command(parleyPath, "--version")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, m := range regexp.MustCompile(`(?m)^init .* ([0-9.]+) ms clock`).FindAllSubmatch(out, -1) {
			ms, _ := strconv.ParseFloat(string(m[1]), 64)
			sum += ms
		}
		if sum == 0 {
			t.Fatalf("no trace in %q", out)
		}
		best = min(best, time.Duration(sum*float64(time.Millisecond)))
	}
	if t.Logf("%v", best); best > most {
		t.Errorf("package init takes %v, at most %v are allowed", best, most)
	}
}

// A desk is the program at a pseudo-terminal whose bytes are read as fast as they arrive.
type desk struct {
	t   *testing.T
	tty *os.File
	cmd *exec.Cmd

	mu   sync.Mutex
	out  []byte
	news chan struct{}
}

func newDesk(t *testing.T, home string, args ...string) *desk {
	t.Helper()
	d := &desk{t: t, cmd: exec.Command(parleyPath, args...), news: make(chan struct{}, 1)}
	d.cmd.Dir = home
	d.cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TERM=xterm-256color", "LANG=C.UTF-8"}
	tty, err := pty.StartWithSize(d.cmd, &pty.Winsize{Rows: 30, Cols: 100})
	if err != nil {
		t.Skip("there is no pseudo-terminal: ", err)
	}
	// Package pty makes the file blocking: closing it would not end a read.
	fd, err := unix.FcntlInt(tty.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	tty.Close()
	d.tty = os.NewFile(uintptr(fd), "pty")
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := d.tty.Read(buf)
			d.mu.Lock()
			d.out = append(d.out, buf[:n]...)
			d.mu.Unlock()
			select {
			case d.news <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		d.cmd.Process.Kill()
		d.cmd.Wait()
		d.tty.Close()
	})
	return d
}

// wait waits until a text was written.
func (d *desk) wait(text string) {
	d.t.Helper()
	for {
		d.mu.Lock()
		ok := bytes.Contains(d.out, []byte(text))
		if ok {
			d.out = nil
		} else if len(d.out) > 1<<20 {
			d.out = d.out[len(d.out)-1<<16:]
		}
		d.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-d.news:
		case <-testwait.Late(d.t):
			d.t.Fatalf("still waiting: %q was not written", text)
		}
	}
}

// TestBars measures what people notice. It is one of the long tests, because it would
// fail on a busy machine.
func TestBars(t *testing.T) {
	if os.Getenv("PARLEY_TEST_LONG") == "" {
		t.Skip("PARLEY_TEST_LONG=1 measures latencies")
	}
	home := t.TempDir()
	script := filepath.Join(home, "model.script")
	stream := numbered(4000, 80, "\tdrip 1ms\n")
	stream = strings.Replace(stream, "chunks 4000", "chunks 200", 1)
	if err := os.WriteFile(script, []byte(stream), 0o666); err != nil {
		t.Fatal(err)
	}
	args := []string{"--provider", "script", "--script", script}

	first := func(args ...string) time.Duration {
		begin := time.Now()
		d := newDesk(t, home, args...)
		d.wait("\x1b[?25h")
		took := time.Since(begin)
		d.cmd.Process.Kill()
		return took
	}
	fresh := time.Hour
	for range 10 {
		fresh = min(fresh, first(args...))
	}
	if t.Logf("first prompt: %v", fresh); fresh > 50*time.Millisecond {
		t.Errorf("the first prompt appears after %v", fresh)
	}
	echo := func(name string, args ...string) {
		d := newDesk(t, home, args...)
		d.wait("\x1b[?25h")
		d.tty.WriteString("go\r")
		d.wait("line 00010")
		var times []time.Duration
		for i := range 60 {
			begin := time.Now()
			d.tty.WriteString("Q")
			d.wait("> \x1b[0m" + strings.Repeat("Q", i+1))
			times = append(times, time.Since(begin))
		}
		slices.Sort(times)
		median, late := times[len(times)/2], times[len(times)*95/100]
		if t.Logf("%s: a key echoes after %v (median), %v (95 of 100)", name, median, late); median > 5*time.Millisecond {
			t.Errorf("%s: a key echoes after %v", name, median)
		}
	}
	echo("new session", args...)

	// A session of 5,000 turns.
	const turns = 5000
	long := filepath.Join(home, "long.script")
	if err := os.WriteFile(long, []byte("turn\n\talways\n\tsay An answer of a few words.\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	var in strings.Builder
	for i := range turns {
		fmt.Fprintf(&in, `{"type":"user","message":{"role":"user","content":"prompt %d"}}`+"\n", i)
	}
	id := "22222222-2222-4222-8222-222222222222"
	cmd := exec.Command(parleyPath, "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--session-id", id,
		"--session-durability", "none", "--provider", "script", "--script", long)
	cmd.Dir, cmd.Env, cmd.Stdin = home, []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}, strings.NewReader(in.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d results", bytes.Count(out, []byte(`"type":"result"`)))
	continued := append([]string{"--continue"}, args...)
	again := time.Hour
	fresh = time.Hour
	for range 20 { // in turn, because the machine is not equally fast all the time
		fresh, again = min(fresh, first(args...)), min(again, first(continued...))
	}
	if t.Logf("first prompt after --continue: %v, of a new session: %v", again, fresh); float64(again) > 1.2*float64(fresh) {
		t.Errorf("the first prompt after --continue appears after %v, that of a new session after %v", again, fresh)
	}
	echo("after 5,000 turns", continued...)

	// Idle.
	d := newDesk(t, home, args...)
	d.wait("\x1b[?25h")
	used, woken := 1<<30, 1<<30
	for range 4 { // the agent starts, too
		before, slept := cpuTime(t, d.cmd.Process.Pid), sleeps(t, d.cmd.Process.Pid)
		testwait.Pause(5 * time.Second)
		used, woken = min(used, cpuTime(t, d.cmd.Process.Pid)-before), min(woken, sleeps(t, d.cmd.Process.Pid)-slept)
	}
	if t.Logf("idle for 5 s: %d ticks, %d wake-ups", used, woken); used > 0 || woken > 0 {
		t.Errorf("idle for 5 s it used %d ticks and woke up %d times", used, woken)
	}
}

// sleeps returns how often the threads of a process have gone to sleep.
func sleeps(t *testing.T, pid int) (n int) {
	t.Helper()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, f := range files {
		status, _ := os.ReadFile(f)
		_, after, ok := bytes.Cut(status, []byte("\nvoluntary_ctxt_switches:"))
		if !ok {
			t.Skip("the system does not count wake-ups")
		}
		count, _, _ := bytes.Cut(after, []byte("\n"))
		k, _ := strconv.Atoi(string(bytes.TrimSpace(count)))
		n += k
	}
	return n
}

// cpuTime returns how many ticks of 10 ms a process has used.
func cpuTime(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Skip(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return user + system
}
