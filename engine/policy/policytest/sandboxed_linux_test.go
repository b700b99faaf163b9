package policytest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/parley-go/parley/engine/sandbox"
)

func init() { workerKinds["sandbox"] = (*player).sandboxed }

// reachesOut reports whether the witness of a row is outside of the files that a
// command in the workspace sandbox may change and read.
func reachesOut(r *Row) bool {
	return r.Tool == "Bash" && (r.Witness == "mark" || r.Witness == "net" || r.Witness == "kill" || strings.HasPrefix(r.Witness, "~/"))
}

// sandboxed runs rows in the workspace sandbox, as if everything had been allowed.
func (p *player) sandboxed() error {
	rows, err := p.job.table()
	if err != nil {
		return err
	}
	if err := p.world.Enter("app"); err != nil {
		return err
	}
	set := p.job.Sandbox
	set.Enabled = true
	box, err := sandbox.New(sandbox.Options{Settings: &set, Dir: p.world.Workspace(), Home: p.world.Home(), Path: os.Getenv("PATH"), Only: p.job.Wall})
	if err != nil {
		return p.out.Encode(result{Row: -1, Note: err.Error()})
	}
	defer box.Close()
	for _, i := range p.job.Rows {
		r := &rows[i]
		s, err := ParseSetting(r.Setting)
		if err != nil {
			return err
		}
		if !r.confined(s, "sandbox") || missingPrograms(r) != "" {
			continue
		}
		if err := p.world.Enter("app"); err != nil {
			return err
		}
		p.listener.forget()
		p.world.PID = os.Getpid() // a signal to it would end the worker
		if err := p.inSandbox(box, p.world.Fill(r.Arg)); err != nil {
			return fmt.Errorf("%s: %w", r.Where(), err)
		}
		res := result{Row: i, Ran: "sandbox", Fired: p.world.Fired(r, s, nil) || p.listener.count.Load() > 0}
		if p.job.Wall == sandbox.Landlock && strings.HasPrefix(r.Witness, "~/") && p.world.SameData(r.Witness) {
			res.Fired = false // Landlock does not cover modes and times, as the report of the sandbox says
		}
		p.world.Played()
		if err := p.out.Encode(res); err != nil {
			return err
		}
	}
	return nil
}

func (p *player) inSandbox(box *sandbox.Sandbox, command string) error {
	p.output.Truncate(0)
	p.output.Seek(0, io.SeekStart)
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir, cmd.Env = p.world.Workspace(), box.Environ(p.environ())
	cmd.Stdout, cmd.Stderr = p.output, p.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	started, err := box.Confine(cmd)
	if err != nil {
		return err
	}
	err = cmd.Start()
	over := started(err)
	if err != nil {
		return err
	}
	late := time.AfterFunc(walledLimit, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	select {
	case <-over:
	case <-time.After(walledLimit):
	}
	return nil
}
