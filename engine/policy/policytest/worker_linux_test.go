package policytest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/parley-go/parley/engine/sandbox"
)

// work does the job of a worker, inside of its namespaces.
func work(in io.Reader, out io.Writer) error {
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return err
	}
	os.Stdin.Close()
	const base = "/tmp/pa"
	if err := os.Mkdir(base, 0o755); err != nil {
		return err
	}
	world, err := NewWorld(base)
	if err != nil {
		return err
	}
	world.Port = listenerPort
	p := &player{job: j, world: world, out: json.NewEncoder(out)}
	if p.listener, err = listen(world.Mark()); err != nil {
		return err
	}
	if p.output, err = os.CreateTemp("/tmp", "output"); err != nil {
		return err
	}
	os.Remove(p.output.Name())
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 64 << 20, Max: 64 << 20})
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	debug.SetGCPercent(400)
	if hook := workerKinds[j.Kind]; hook != nil {
		return hook(p)
	}
	rows, err := j.table()
	if err != nil {
		return err
	}
	list := slices.Clone(j.Rows)
	settings := map[string]*Setting{}
	for _, i := range list {
		if settings[rows[i].Setting], err = ParseSetting(rows[i].Setting); err != nil {
			return err
		}
	}
	slices.SortStableFunc(list, func(a, b int) int {
		return strings.Compare(settings[rows[a].Setting].Place, settings[rows[b].Setting].Place)
	})
	if j.Kind != "control" {
		return p.playAll(rows, list, settings)
	}
	// Make sure that commands receive signals which were ignored when the test started: a
	// shell cannot trap a signal that is ignored at its start.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGQUIT)
	for _, i := range list {
		r := &rows[i]
		s := settings[r.Setting]
		if err := world.Enter(s.Place); err != nil {
			return err
		}
		res := result{Row: i}
		if missing := missingPrograms(r); missing != "" {
			res.Ran, res.Note = "missing", missing
		} else if err := p.control(r, s, &res); err != nil {
			return fmt.Errorf("%s: %w", r.Where(), err)
		}
		if err := p.out.Encode(res); err != nil {
			return err
		}
	}
	return nil
}

// workerKinds are jobs that do not play rows.
var workerKinds = map[string]func(*player) error{}

// missingPrograms returns a program that the row needs and this machine does not have.
func missingPrograms(r *Row) string {
	for _, name := range r.Needs() {
		if _, err := exec.LookPath(name); err != nil {
			return name
		}
	}
	return ""
}

// A player plays rows, one after the other.
type player struct {
	job      job
	world    *World
	listener *listener
	output   *os.File
	buffer   []byte // for the output of one row after the other
	out      *json.Encoder
	wall     *sandbox.Wall
}

// environ returns the environment of commands, which is that of the agent's tool.
func (p *player) environ() []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.world.Home(), "LANG=C.UTF-8", "TERM=dumb", "PAGER=cat", "GIT_PAGER=cat", "GIT_EDITOR=true", "GIT_TERMINAL_PROMPT=0", "TMPDIR=/tmp"},
		"ANTHROPIC_API_KEY="+os.Getenv("ANTHROPIC_API_KEY"), "AWS_SECRET_ACCESS_KEY="+os.Getenv("AWS_SECRET_ACCESS_KEY"))
}

// limit is how long a command may take.
const limit = 20 * time.Second

// control runs a row unconfined and looks for its witness.
func (p *player) control(r *Row, s *Setting, res *result) error {
	p.listener.forget()
	var bystander *exec.Cmd
	if strings.Contains(r.Arg, "{pid}") || r.Witness == "kill" {
		bystander = exec.Command("/bin/sleep", "1000")
		bystander.Env = []string{"SECRET=" + OutsideSecret}
		if err := bystander.Start(); err != nil {
			return err
		}
		p.world.PID = bystander.Process.Pid
	}
	var output []byte
	var timedOut bool
	if r.Tool == "Bash" {
		var err error
		if output, timedOut, err = p.free(p.world.Fill(r.Arg), bystander); err != nil {
			return err
		}
	} else {
		output = p.willing(r)
	}
	res.Ran = "free"
	res.Fired = p.world.Fired(r, s, output) || r.Witness == "net" && p.listener.reached()
	if bystander != nil {
		if r.Witness == "kill" {
			// If no signal has arrived by then, none will.
			spared := time.AfterFunc(time.Second, func() { bystander.Process.Kill() })
			syscall.Wait4(bystander.Process.Pid, nil, syscall.WUNTRACED, nil)
			res.Fired = spared.Stop()
		}
		bystander.Process.Kill()
		bystander.Wait()
	}
	if !res.Fired {
		res.Note = tail(output, 300)
	}
	if timedOut {
		res.Note = "it did not end in time; " + res.Note
	}
	p.world.Played()
	return nil
}

// free runs a command unconfined and waits until none of its processes is left, except the
// given one.
func (p *player) free(command string, but *exec.Cmd) (output []byte, timedOut bool, err error) {
	if err := p.output.Truncate(0); err != nil {
		return nil, false, err
	}
	p.output.Seek(0, io.SeekStart)
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir, cmd.Env = p.world.Workspace(), p.environ()
	cmd.Stdout, cmd.Stderr = p.output, p.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if strings.ContainsRune(command, 0) {
		return nil, false, errors.New("there is a NUL byte in the command")
	}
	if err := cmd.Start(); err != nil {
		return nil, false, err
	}
	over := make(chan struct{})
	late := time.AfterFunc(limit, func() {
		for {
			syscall.Kill(-1, syscall.SIGKILL)
			select {
			case <-over:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	cmd.Wait()
	for but == nil {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	close(over)
	timedOut = !late.Stop()
	output, err = p.printed()
	return output, timedOut, err
}

// printed returns the output of the last command, up to 1 MB.
func (p *player) printed() ([]byte, error) {
	if p.buffer == nil {
		p.buffer = make([]byte, 1<<20)
	}
	n, err := p.output.ReadAt(p.buffer, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return bytes.Clone(p.buffer[:n]), nil
}
