//go:build unix

package transport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/parley-go/parley/internal/testwait"
	"go.uber.org/goleak"
)

// peerKey makes this test binary play a peer instead of running tests.
const peerKey = "PARLEY_TRANSPORT_PEER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(peerKey); mode != "" {
		play, ok := peers[mode]
		if !ok {
			fmt.Fprintln(os.Stderr, "no such peer:", mode)
			os.Exit(99)
		}
		play(os.Args[1:])
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// peers are the ways in which a command can behave.
var peers = map[string]func(args []string){
	"echo": func([]string) { io.Copy(os.Stdout, os.Stdin) },
	"sleep": func([]string) {
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
		fmt.Println("ready")
		testwait.Hang()
	},
	// Ends only on SIGTERM.
	"ignores-eof": func([]string) {
		fmt.Println("ready")
		testwait.Hang()
	},
	"cleans-up": func([]string) {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		fmt.Println("ready")
		<-c
		fmt.Println("bye")
		os.Exit(7)
	},
	"closes-stdout": func([]string) {
		os.Stdout.Close()
		io.Copy(io.Discard, os.Stdin)
	},
	"closes-stdin": func([]string) {
		os.Stdin.Close()
		fmt.Println("ready")
		testwait.Hang()
	},
	"floods-stderr": func([]string) {
		os.Stderr.Write(bytes.Repeat([]byte("x"), 1<<20))
		for range 4 << 10 {
			os.Stderr.Write(bytes.Repeat([]byte("y"), 1<<10))
		}
		fmt.Fprint(os.Stderr, "\nlast words\n")
		fmt.Println("done")
		io.Copy(io.Discard, os.Stdin)
	},
	"long-line": func([]string) {
		os.Stdout.Write(append(bytes.Repeat([]byte("z"), 20<<20), '\n'))
	},
	"dies-mid-line": func([]string) {
		fmt.Fprintln(os.Stderr, "out of cheese")
		fmt.Print(`{"type":"assis`)
		os.Exit(3)
	},
	"chatty": func([]string) {
		// More than a pipe holds, so it blocks unless somebody reads.
		line := append(bytes.Repeat([]byte("c"), 1023), '\n')
		for range 1 << 10 {
			os.Stdout.Write(line)
		}
	},
	"fills-pipe-and-exits": func(args []string) {
		for _, arg := range args {
			fmt.Println(startDescendant(arg))
		}
		os.Stdout.Write(append(bytes.Repeat([]byte("f"), 40<<10), '\n'))
	},
	// Starts the descendants that its arguments name, prints their process ids and
	// exits, or with "stay" waits for the end of its input.
	"family": func(args []string) {
		stay := false
		for _, arg := range args {
			if arg == "stay" {
				stay = true
				continue
			}
			fmt.Println(startDescendant(arg))
		}
		if stay {
			io.Copy(io.Discard, os.Stdin)
		}
	},
	"env": func([]string) {
		for _, kv := range os.Environ() {
			fmt.Println(kv)
		}
		wd, _ := os.Getwd()
		fmt.Println("dir", wd)
	},
	// Holds connections and is killed. The goroutine that dials ends together with its
	// thread.
	"host": func(args []string) {
		pids := make(chan string)
		go func() {
			runtime.LockOSThread()
			conn, err := new(Process).Dial(context.Background(), peerSpec("family", args...))
			if err != nil {
				panic(err)
			}
			go func() {
				pids <- strconv.Itoa(conn.(*processConn).tree.pid())
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					pids <- lines.Text()
				}
			}()
			// Ending here, still locked, ends the thread.
		}()
		for range args {
			fmt.Println(<-pids)
		}
		testwait.Pause(50 * time.Millisecond) // let the thread be gone
		fmt.Println("ready")
		testwait.Hang()
	},
}

// startDescendant starts a process that ignores everything it can. In kind, "session"
// moves it to its own session, "quiet" closes our pipes and "nameless" removes the
// connection's mark.
func startDescendant(kind string) int {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), peerKey+"=sleep")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: strings.Contains(kind, "session")}
	if strings.Contains(kind, "nameless") {
		cmd.Env = []string{peerKey + "=sleep"}
	}
	if !strings.Contains(kind, "quiet") {
		cmd.Stderr = os.Stderr
		cmd.ExtraFiles = []*os.File{os.Stdout}
	}
	// It prints a line when it ignores signals.
	out, err := cmd.StdoutPipe()
	if err != nil {
		panic(err)
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	bufio.NewReader(out).ReadString('\n')
	return cmd.Process.Pid
}

func peerSpec(mode string, args ...string) Spec {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	// A program with the race detector sleeps for a second at its end unless configured
	// otherwise.
	return Spec{Path: exe, Words: args, Env: append(os.Environ(), peerKey+"="+mode, "GORACE=atexit_sleep_ms=0")}
}

// A step that a test reaches takes a moment, and one that it must not reach an hour: a
// busy machine must not make a difference.
var (
	patient   = &Process{EOFGrace: time.Hour, TermGrace: time.Hour, KillGrace: time.Hour}
	untilTerm = &Process{EOFGrace: time.Millisecond, TermGrace: time.Hour, KillGrace: time.Hour, Linger: 100 * time.Millisecond}
	untilKill = &Process{EOFGrace: time.Millisecond, TermGrace: time.Millisecond, KillGrace: time.Hour, Linger: 100 * time.Millisecond}
)

func dial(t *testing.T, p *Process, spec Spec) Conn {
	t.Helper()
	noLeaks(t)
	conn, err := p.Dial(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeConn(t, conn) })
	return conn
}

// closeConn closes the connection while somebody reads the rest, as a host does. That
// saves the wait of Close for a reader that may come back.
func closeConn(t *testing.T, conn Conn) Exit {
	t.Helper()
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(io.Discard, conn)
	}()
	defer func() { <-read }()
	return closeOnly(t, conn)
}

// closeOnly closes the connection without reading its output.
func closeOnly(t *testing.T, conn Conn) Exit {
	t.Helper()
	if err := conn.Close(context.Background()); err != nil {
		t.Errorf("Close: %v", err)
	}
	return wait(t, conn)
}

func wait(t *testing.T, conn Conn) Exit {
	t.Helper()
	exit, err := conn.Wait(context.Background())
	if err != nil {
		t.Fatalf("Wait: %v", err)
	}
	return exit
}

func readLine(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("reading a line: %v after %q", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

func readPids(t *testing.T, r *bufio.Reader, n int) []int {
	t.Helper()
	var pids []int
	for range n {
		pid, err := strconv.Atoi(readLine(t, r))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// alive reports whether a process is running; a zombie is not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		_, noProc := os.Stat("/proc/self/stat")
		return noProc != nil
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(rest, []byte("Z")) && !bytes.HasPrefix(rest, []byte("X"))
}

func mustVanish(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		testwait.Until(t, fmt.Sprintf("the end of process %d", pid), func() bool { return !alive(pid) })
	}
}

// noLeaks checks at the end of the test that it left no file descriptor and no
// child, not even a zombie.
func noLeaks(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		return
	}
	warmUp.Do(func() {
		r, w, err := os.Pipe()
		if err == nil {
			r.Close()
			w.Close()
		}
	})
	before := countFDs()
	t.Cleanup(func() {
		testwait.Until(t, "file descriptors and children are left behind", func() bool { return countFDs() <= before && len(children()) == 0 })
	})
}

// warmUp makes the runtime open the files that it keeps open.
var warmUp sync.Once

func countFDs() int {
	names, _ := os.ReadDir("/proc/self/fd")
	return len(names)
}

func children() (list []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		stat, _ := os.ReadFile(name)
		_, rest, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(os.Getpid()) {
			list = append(list, strings.TrimSpace(string(stat[:bytes.IndexByte(stat, ')')+3])))
		}
	}
	return list
}

func TestProcessEcho(t *testing.T) {
	conn := dial(t, patient, peerSpec("echo"))
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	if got := readLine(t, r); got != "hello" {
		t.Errorf("got %q", got)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Errorf("second CloseWrite: %v", err)
	}
	if _, err := conn.Write([]byte("x")); !errors.Is(err, ErrInputClosed) {
		t.Errorf("Write after CloseWrite: %v", err)
	}
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	if exit := wait(t, conn); exit.Code != 0 || exit.Signal != "" || exit.Step != StepEOF {
		t.Errorf("exit %+v", exit)
	}
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

func TestProcessLadder(t *testing.T) {
	for _, tt := range []struct {
		mode   string
		dialer *Process
		want   Exit
	}{
		{"echo", patient, Exit{Step: StepEOF}},
		{"ignores-eof", untilTerm, Exit{Code: -1, Signal: "terminated", Step: StepTerminate}},
		{"cleans-up", untilTerm, Exit{Code: 7, Step: StepTerminate}},
		{"sleep", untilKill, Exit{Code: -1, Signal: "killed", Step: StepKill}},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			conn := dial(t, tt.dialer, peerSpec(tt.mode))
			r := bufio.NewReader(conn)
			if tt.mode != "echo" {
				readLine(t, r)
			}
			if got := closeConn(t, conn); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestProcessStopped(t *testing.T) {
	conn := dial(t, untilTerm, peerSpec("ignores-eof"))
	readLine(t, bufio.NewReader(conn))
	syscall.Kill(conn.(*processConn).tree.pid(), syscall.SIGSTOP)
	if got := closeConn(t, conn); got.Step != StepTerminate {
		t.Errorf("a stopped process needed %+v", got)
	}
}

func TestProcessExitedByItself(t *testing.T) {
	spec := Spec{Path: "/bin/false"}
	if _, err := os.Stat(spec.Path); err != nil {
		spec.Path = "/usr/bin/false"
	}
	conn := dial(t, patient, spec)
	if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
		t.Errorf("read %q, %v", rest, err)
	}
	if exit := wait(t, conn); exit != (Exit{Code: 1}) {
		t.Errorf("exit %+v", exit)
	}
	if _, err := conn.Write([]byte("x")); !errors.Is(err, ErrInputClosed) {
		t.Errorf("Write: %v", err)
	}
}

func TestProcessDiesMidLine(t *testing.T) {
	conn := dial(t, patient, peerSpec("dies-mid-line"))
	if rest, err := io.ReadAll(conn); err != nil || string(rest) != `{"type":"assis` {
		t.Errorf("read %q, %v", rest, err)
	}
	if exit := wait(t, conn); exit != (Exit{Code: 3, Stderr: "out of cheese\n"}) {
		t.Errorf("exit %+v", exit)
	}
}

func TestProcessClosesOnlyStdout(t *testing.T) {
	conn := dial(t, patient, peerSpec("closes-stdout"))
	if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
		t.Errorf("read %q, %v", rest, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if exit, err := conn.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %+v, %v", exit, err)
	}
	if exit := closeConn(t, conn); exit.Step != StepEOF || exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
}

func TestProcessClosesOnlyStdin(t *testing.T) {
	conn := dial(t, untilTerm, peerSpec("closes-stdin"))
	readLine(t, bufio.NewReader(conn))
	_, err := conn.Write([]byte("anyone?\n"))
	if !errors.Is(err, ErrInputClosed) || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("Write: %v", err)
	}
	if exit := closeConn(t, conn); exit.Step != StepTerminate {
		t.Errorf("exit %+v", exit)
	}
}

func TestProcessStopsReading(t *testing.T) {
	conn := dial(t, untilTerm, peerSpec("ignores-eof"))
	wrote := make(chan error, 1)
	go func() {
		_, err := conn.Write(make([]byte, 4<<20))
		wrote <- err
	}()
	readLine(t, bufio.NewReader(conn))
	closeConn(t, conn)
	if err := <-wrote; !errors.Is(err, ErrInputClosed) { // or it did not block
		t.Errorf("Write: %v", err)
	}
}

func TestProcessLongLine(t *testing.T) {
	conn := dial(t, patient, peerSpec("long-line"))
	n, err := io.Copy(io.Discard, conn)
	if err != nil || n != 20<<20+1 {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if exit := wait(t, conn); exit != (Exit{}) {
		t.Errorf("exit %+v", exit)
	}
}

// TestProcessSlowConsumer checks that a slow consumer gets everything, long after the
// command and the time for its descendants have ended, even if a descendant that cannot
// be found still holds the pipe.
func TestProcessSlowConsumer(t *testing.T) {
	for _, spec := range []Spec{
		peerSpec("fills-pipe-and-exits"),
		peerSpec("fills-pipe-and-exits", "nameless session"),
	} {
		conn := dial(t, &Process{Linger: 20 * time.Millisecond}, spec)
		<-conn.(*processConn).exited
		testwait.Pause(100 * time.Millisecond)
		r := bufio.NewReaderSize(slowReader{conn}, 8<<10)
		if spec.Words != nil {
			defer syscall.Kill(readPids(t, r, 1)[0], syscall.SIGKILL)
		}
		rest, err := io.ReadAll(r)
		if len(rest) != 40<<10+1 || err != nil {
			t.Errorf("%v: read %d bytes, %v", spec.Words, len(rest), err)
		}
		wait(t, conn)
	}
}

type slowReader struct{ io.Reader }

func (r slowReader) Read(p []byte) (int, error) {
	testwait.Pause(10 * time.Millisecond)
	return r.Reader.Read(p)
}

func TestProcessStderr(t *testing.T) {
	for _, tail := range []int{0, 100} {
		var mu sync.Mutex
		var total, longest int
		var last string
		spec := peerSpec("floods-stderr")
		spec.Stderr = func(line string) {
			mu.Lock()
			defer mu.Unlock()
			total += len(line)
			longest = max(longest, len(line))
			last = line
		}
		conn := dial(t, &Process{StderrTail: tail}, spec)
		if got := readLine(t, bufio.NewReader(conn)); got != "done" {
			t.Errorf("got %q", got)
		}
		exit := closeConn(t, conn)
		want := tail
		if tail == 0 {
			want = 64 << 10
		}
		if len(exit.Stderr) != want || !strings.HasSuffix(exit.Stderr, "yyy\nlast words\n") {
			t.Errorf("tail of %d bytes, ends in %q", len(exit.Stderr), exit.Stderr[max(0, len(exit.Stderr)-40):])
		}
		mu.Lock()
		if total != 5<<20+len("last words") || last != "last words" || longest > 64<<10 {
			t.Errorf("the callback saw %d bytes, longest %d, last %q", total, longest, last)
		}
		mu.Unlock()
	}
}

func TestProcessStderrCallbackPanics(t *testing.T) {
	spec := Spec{Path: "/bin/sh", Words: []string{"-c", "echo one >&2; echo two >&2; printf three >&2"}}
	var lines []string
	spec.Stderr = func(line string) {
		lines = append(lines, line)
		panic("oh " + line)
	}
	noLeaks(t)
	conn, err := patient.Dial(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if exit := waitAll(t, conn); exit.Stderr != "one\ntwo\nthree" {
		t.Errorf("exit %+v", exit)
	}
	if err := conn.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "oh one") {
		t.Errorf("Close: %v", err)
	}
	if got := strings.Join(lines, "|"); got != "one|two|three" {
		t.Errorf("lines %s", got)
	}
}

// waitAll reads to the end, then waits.
func waitAll(t *testing.T, conn Conn) Exit {
	t.Helper()
	io.Copy(io.Discard, conn)
	return wait(t, conn)
}

// TestProcessStderrCallbackBlocks checks that a callback that does not return blocks
// neither the peer nor Close.
func TestProcessStderrCallbackBlocks(t *testing.T) {
	for name, act := range map[string]func(chan struct{}){
		"blocks":  func(release chan struct{}) { <-release },
		"goexits": func(chan struct{}) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			defer func(d time.Duration) { stderrGrace = d }(stderrGrace)
			stderrGrace = 50 * time.Millisecond
			release := make(chan struct{})
			defer close(release)
			spec := peerSpec("floods-stderr")
			spec.Stderr = func(string) { act(release) }
			conn := dial(t, patient, spec)
			if got := readLine(t, bufio.NewReader(conn)); got != "done" {
				t.Errorf("got %q", got)
			}
			closeConn(t, conn)
		})
	}
}

func TestProcessDescendants(t *testing.T) {
	for _, kind := range []string{"group", "group quiet", "session", "session quiet"} {
		for _, stay := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stay=%v", kind, stay), func(t *testing.T) {
				if strings.Contains(kind, "session") && runtime.GOOS != "linux" {
					t.Skip("sessions are swept on Linux")
				}
				args := []string{kind}
				if stay {
					args = append(args, "stay")
				}
				conn := dial(t, &Process{EOFGrace: time.Hour, Linger: 100 * time.Millisecond}, peerSpec("family", args...))
				r := bufio.NewReader(conn)
				pid := readPids(t, r, 1)[0]
				var exit Exit
				if stay {
					if !alive(pid) {
						t.Error("the descendant did not live as long as its parent")
					}
					exit = closeConn(t, conn)
				} else {
					if _, err := r.ReadByte(); err != io.EOF {
						t.Errorf("at the end: %v", err)
					}
					exit = wait(t, conn)
				}
				if exit.Code != 0 {
					t.Errorf("exit %+v", exit)
				}
				mustVanish(t, pid)
			})
		}
	}
}

// TestProcessDescendantNotFound checks that a descendant that cannot be found does not
// keep the connection open.
func TestProcessDescendantNotFound(t *testing.T) {
	conn := dial(t, &Process{Linger: 50 * time.Millisecond}, peerSpec("family", "nameless session"))
	r := bufio.NewReader(conn)
	pid := readPids(t, r, 1)[0]
	defer syscall.Kill(pid, syscall.SIGKILL)
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	wait(t, conn)
	if !alive(pid) {
		t.Error("it was found after all: this test tests nothing")
	}
}

func TestProcessKilledHost(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	noLeaks(t)
	spec := peerSpec("host", "group", "group quiet", "session quiet", "stay")
	host := exec.Command(spec.Path, spec.Words...)
	host.Env = spec.Env
	host.Stderr = os.Stderr
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	pids := readPids(t, r, 4)
	if got := readLine(t, r); got != "ready" {
		t.Errorf("got %q", got)
	}
	for _, pid := range pids {
		if !alive(pid) {
			t.Errorf("process %d ended before its host", pid)
		}
	}
	host.Process.Kill()
	mustVanish(t, pids...)
	host.Wait()
}

// TestProcessKilled kills the command from outside while it is being read.
func TestProcessKilled(t *testing.T) {
	conn := dial(t, patient, peerSpec("sleep"))
	readLine(t, bufio.NewReader(conn))
	syscall.Kill(conn.(*processConn).tree.pid(), syscall.SIGKILL)
	if exit := waitAll(t, conn); exit != (Exit{Code: -1, Signal: "killed"}) {
		t.Errorf("exit %+v", exit)
	}
}

// TestWatchdogMissing checks that connections work without the watchdog, which is only
// a second safety net.
func TestWatchdogMissing(t *testing.T) {
	t.Run("no shell", func(t *testing.T) {
		noLeaks(t)
		w := watchdog{shell: filepath.Join(t.TempDir(), "sh")}
		w.add(1<<30, "x")
		w.begin()
		w.add(1<<30+1, "y")
		w.remove(1 << 30)
		w.remove(1<<30 + 1)
	})
	t.Run("killed", func(t *testing.T) {
		conn := dial(t, patient, peerSpec("echo"))
		fmt.Fprintln(conn, "hello")
		readLine(t, bufio.NewReader(conn))
		theWatchdog.begin()
		theWatchdog.mu.Lock()
		proc := theWatchdog.proc
		theWatchdog.mu.Unlock()
		if proc == nil {
			t.Skip("no /bin/sh")
		}
		proc.Kill()
		if exit := closeConn(t, conn); exit != (Exit{Step: StepEOF}) {
			t.Errorf("exit %+v", exit)
		}
	})
}

func TestProcessMany(t *testing.T) {
	noLeaks(t)
	var wg sync.WaitGroup
	var failed atomic.Int32
	for i := range 50 {
		wg.Go(func() {
			conn, err := patient.Dial(context.Background(), Spec{Path: "/bin/cat"})
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprintf(conn, "%d\n", i)
			// If another command had inherited the writing end, this would not end.
			conn.CloseWrite()
			got, err := io.ReadAll(conn)
			if string(got) != fmt.Sprintf("%d\n", i) || err != nil {
				failed.Add(1)
			}
			if err := conn.Close(context.Background()); err != nil {
				t.Error(err)
			}
			if exit, err := conn.Wait(context.Background()); exit != (Exit{Step: StepEOF}) || err != nil {
				t.Errorf("exit %+v, %v", exit, err)
			}
		})
	}
	wg.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of 50 failed", n)
	}
}

func TestProcessCloseAtOnce(t *testing.T) {
	conn := dial(t, untilKill, peerSpec("sleep"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { closeConn(t, conn) })
	}
	wg.Wait()
}

func TestProcessCloseWithoutTime(t *testing.T) {
	for _, mode := range []string{"sleep", "family"} {
		t.Run(mode, func(t *testing.T) {
			conn := dial(t, patient, peerSpec(mode, "group", "session", "stay"))
			r := bufio.NewReader(conn)
			var pids []int
			if mode == "family" {
				pids = readPids(t, r, 2)
			} else {
				readLine(t, r)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := conn.Close(ctx); err != nil { // otherwise it waits for an hour
				t.Error(err)
			}
			mustVanish(t, append(pids, conn.(*processConn).tree.pid())...)
		})
	}
}

// TestProcessCloseDiscards checks that Close reads what the consumer does not, so that
// a command that is blocked on its output can end gently.
func TestProcessCloseDiscards(t *testing.T) {
	conn := dial(t, patient, peerSpec("chatty"))
	buf := make([]byte, 16)
	if _, err := io.ReadFull(conn, buf); err != nil {
		t.Fatal(err)
	}
	if exit := closeOnly(t, conn); exit != (Exit{Step: StepEOF}) {
		t.Errorf("exit %+v", exit)
	}
	if _, err := conn.Read(buf); !errors.Is(err, ErrClosed) {
		t.Errorf("Read: %v", err)
	}
}

// TestProcessCloseWhileReading checks that a consumer that does read loses nothing to
// Close.
func TestProcessCloseWhileReading(t *testing.T) {
	conn := dial(t, patient, peerSpec("chatty"))
	read := make(chan int)
	go func() {
		var n int
		buf := make([]byte, 16<<10)
		for {
			k, err := conn.Read(buf)
			n += k
			if err != nil {
				break
			}
			testwait.Pause(time.Millisecond)
		}
		read <- n
	}()
	testwait.Pause(20 * time.Millisecond)
	go closeOnly(t, conn)
	if n := <-read; n != 1<<20 {
		t.Errorf("read %d bytes of %d", n, 1<<20)
	}
	closeOnly(t, conn)
}

func TestProcessStartErrors(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	write := func(name, text string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	missing := filepath.Join(dir, "missing")
	for _, tt := range []struct {
		name  string
		spec  Spec
		want  []string // in the text
		is    error
		found bool // the executable was found but not started
	}{
		{"missing", Spec{Path: missing}, []string{missing, "CLAUDE_BIN"}, fs.ErrNotExist, false},
		{"missing by name", Spec{Path: "no-such-agent", Env: []string{"PATH=" + dir}}, []string{filepath.Join(dir, "no-such-agent")}, exec.ErrNotFound, false},
		{"missing directory", Spec{Path: "/bin/sh", Dir: missing}, []string{missing, "working directory does not exist"}, fs.ErrNotExist, true},
		{"directory is a file", Spec{Path: "/bin/sh", Dir: write("file", "", 0o600)}, []string{"not a directory"}, errDirNotADir, true},
		{"a directory", Spec{Path: dir}, []string{"it is a directory"}, errIsDirectory, true},
		{"not executable", Spec{Path: write("plain", "#!/bin/sh\n", 0o600)}, []string{"chmod"}, fs.ErrPermission, true},
		{"wrong format", Spec{Path: write("noformat", "hello\n", 0o700)}, []string{"interpreter"}, syscall.ENOEXEC, true},
		{"no interpreter", Spec{Path: write("badscript", "#!"+missing+"\n", 0o700)}, []string{"interpreter"}, fs.ErrNotExist, true},
		{"NUL", Spec{Path: "/bin/sh", Words: []string{"a\x00b"}}, []string{"NUL"}, syscall.EINVAL, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn, err := patient.Dial(t.Context(), tt.spec)
			if err == nil {
				conn.Close(t.Context())
				t.Fatal("started")
			}
			var nf *NotFoundError
			var se *StartError
			if tt.found && !errors.As(err, &se) || !tt.found && !errors.As(err, &nf) {
				t.Errorf("a %T", err)
			}
			if !errors.Is(err, tt.is) {
				t.Errorf("%v is not %v", err, tt.is)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := patient.Dial(ctx, peerSpec("echo")); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
	}
}

func TestProcessTextBusy(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("how Linux does it")
	}
	noLeaks(t)
	path := filepath.Join(t.TempDir(), "agent")
	script, err := os.ReadFile("/bin/cat")
	if err != nil {
		t.Skip(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	f.Write(script)
	defer func(real func(time.Duration)) { sleep = real }(sleep)
	var slept time.Duration
	sleep = func(d time.Duration) { slept += d }
	if _, err := patient.Dial(t.Context(), Spec{Path: path}); !errors.Is(err, syscall.ETXTBSY) || !strings.Contains(err.Error(), "installer") {
		t.Errorf("got %v", err)
	}
	if slept < 300*time.Millisecond || slept > time.Second {
		t.Errorf("waited %v for an executable that is being written", slept)
	}
	sleep = func(time.Duration) { f.Close() }
	conn := dial(t, patient, Spec{Path: path})
	if exit := closeConn(t, conn); exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
}

func TestProcessEnvironment(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	spec := peerSpec("env")
	spec.Env = []string{peerKey + "=env", "GORACE=atexit_sleep_ms=0", "A=1", "A=2", connIDKey + "=outer"}
	spec.Dir = dir
	conn := dial(t, patient, spec)
	text, _ := io.ReadAll(conn)
	for _, want := range []string{"\nA=2\n", "\n" + connIDKey + "=outer,", "\ndir " + dir + "\n"} {
		if !strings.Contains("\n"+string(text), want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

// TestProcessRelativePath checks that a relative path is relative to this process,
// wherever the command is started.
func TestProcessRelativePath(t *testing.T) {
	noLeaks(t)
	exe := peerSpec("echo")
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	rel, err := filepath.Rel(wd, exe.Path)
	if err != nil {
		t.Skip(err)
	}
	exe.Path, exe.Dir = rel, t.TempDir()
	conn := dial(t, patient, exe)
	closeConn(t, conn)
}
