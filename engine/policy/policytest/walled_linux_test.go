package policytest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/wire"
)

// walledLimit is how long a command behind the wall may take.
const walledLimit = 3 * time.Second

// play plays a row with Parley in between: the policy decides, and an allowed command
// runs where its decision says. In a job "wall" the policy is skipped, and the command
// always runs behind the wall.
func (p *player) play(r *Row, s *Setting, res *result) error {
	place := "wall"
	if p.job.Kind == "parley" {
		req, err := p.world.Request(r, s)
		if err != nil {
			return nil // the tool rejects it
		}
		req.ReadWall = p.wall.Ready() == nil
		d := policy.New(p.world.Rules(s)...).Decide(req)
		if d.Behavior != wire.BehaviorAllow {
			return nil
		}
		if d.DecidedBy != policy.ByProof || !req.ReadWall {
			place = "free"
		}
	}
	res.Ran = place
	if place == "free" {
		return p.control(r, s, res)
	}
	var bystander *exec.Cmd
	if strings.Contains(r.Arg, "{pid}") || r.Witness == "kill" {
		bystander = exec.Command("/bin/sleep", "1000")
		bystander.Env = []string{"SECRET=" + OutsideSecret}
		if err := bystander.Start(); err != nil {
			return err
		}
		p.world.PID = bystander.Process.Pid
	}
	p.listener.forget()
	output, _, err := p.behindWall(p.world.Fill(r.Arg), sandbox.View{Roots: []string{p.world.Workspace()}}, walledLimit)
	if err != nil {
		return err
	}
	res.Fired = p.world.Fired(r, s, output) || p.listener.count.Load() > 0 || Leaks(output, OutsideSecret)
	if bystander != nil && gotSignal(bystander) {
		res.Fired = true
	}
	if res.Fired {
		res.Note = tail(output, 300)
		p.world.Played()
	}
	return nil
}

// gotSignal ends a process that sleeps, and reports whether a signal reached it before. A signal that was sent may not be
// delivered yet, so it waits until none is pending and the process sleeps.
func gotSignal(p *exec.Cmd) bool {
	defer p.Wait()
	defer p.Process.Kill()
	for {
		if pid, _ := syscall.Wait4(p.Process.Pid, nil, syscall.WNOHANG|syscall.WUNTRACED, nil); pid == p.Process.Pid {
			return true
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
		if err != nil || asleep.Match(status) {
			return false
		}
		runtime.Gosched()
	}
}

var asleep = regexp.MustCompile(`(?s)\nState:\tS.*\nSigPnd:\t0+\nShdPnd:\t0+\n`)

// behindWall runs a command behind the read wall, and ends it after a time.
func (p *player) behindWall(command string, view sandbox.View, limit time.Duration) (output []byte, code int, err error) {
	if err := p.output.Truncate(0); err != nil {
		return nil, 0, err
	}
	p.output.Seek(0, io.SeekStart)
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir, cmd.Env = view.Roots[0], sandbox.Environ(p.environ())
	cmd.Stdout, cmd.Stderr = p.output, p.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	walled, err := p.wall.Confine(cmd, view)
	if err != nil {
		return nil, 0, err
	}
	err = cmd.Start()
	over := walled.Started(err)
	if err != nil {
		return nil, 0, err
	}
	late := time.AfterFunc(limit, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	cmd.Wait()
	select {
	case <-over:
	case <-time.After(walledLimit):
	}
	late.Stop()
	output, err = p.printed()
	return output, cmd.ProcessState.ExitCode(), err
}

// playAll plays rows that must leave no trace. After some rows it compares the place
// with its snapshot, to find changes that no witness shows.
func (p *player) playAll(rows []Row, list []int, settings map[string]*Setting) error {
	p.wall = sandbox.NewWall(sandbox.WallOptions{Home: p.world.Home(), Path: os.Getenv("PATH")})
	defer p.wall.Close()
	if err := p.wall.Ready(); err != nil && p.job.Kind == "wall" {
		return p.out.Encode(result{Row: -1, Ran: "no wall", Note: err.Error()})
	}
	var since []int // rows since the last comparison
	look := func() error {
		if p.world.place == "" {
			return nil // nothing was played
		}
		changed := p.world.Changes()
		if changed == nil {
			since = nil
			return nil
		}
		p.world.Played()
		suspects := since
		since = nil
		if len(suspects) == 1 {
			return p.out.Encode(result{Row: suspects[0], Fired: true, Ran: "wall", Note: "changed: " + strings.Join(changed, " ")})
		}
		for _, i := range suspects { // one of them caused the change
			if err := p.world.Enter(settings[rows[i].Setting].Place); err != nil {
				return err
			}
			var res result
			if err := p.play(&rows[i], settings[rows[i].Setting], &res); err != nil {
				return err
			}
			if changed := p.world.Changes(); changed != nil {
				p.world.Played()
				if err := p.out.Encode(result{Row: i, Fired: true, Ran: "wall", Note: "changed: " + strings.Join(changed, " ")}); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, i := range list {
		r, s := &rows[i], settings[rows[i].Setting]
		if p.job.Kind == "wall" && !r.confined(s, "wall") || missingPrograms(r) != "" {
			continue
		}
		if p.world.place != s.Place || len(since) >= 40 {
			if p.world.place != "" {
				if err := look(); err != nil {
					return err
				}
			}
		}
		if err := p.world.Enter(s.Place); err != nil {
			return err
		}
		res := result{Row: i}
		if err := p.play(r, s, &res); err != nil {
			return fmt.Errorf("%s: %w", r.Where(), err)
		}
		if res.Ran == "wall" && !res.Fired {
			since = append(since, i)
		}
		if err := p.out.Encode(res); err != nil {
			return err
		}
	}
	return look()
}
