package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// compareScale measures the memory of many concurrent sessions: official agents and
// ours, each in its own process, and agents inside one process. Each has answered
// once and waits. The memory of a process is its private memory plus its share of
// the shared memory.
func compareScale(b *board, official, ours string) error {
	b.begin("Memory by the number of sessions", "claude", "The agents have answered once and wait for a prompt. For processes, the value is the sum of their proportional set sizes. In one process, it is the resident memory, with both ends of the protocol.")
	for _, n := range []int{1, 10, 100, 1000} {
		r := row{title: fmt.Sprintf("%d as processes", n), unit: "MB"}
		if n <= 10 { // a hundred of them need more than 20 GB
			mb, err := processes(official, n)
			if err != nil {
				return err
			}
			r.theirs = []float64{mb}
		}
		mb, err := processes(ours, n)
		if err != nil {
			return err
		}
		r.ours = []float64{mb}
		b.add(r)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, n := range []int{1, 10, 100, 1000} {
		out, err := exec.Command(self, "hold", strconv.Itoa(n)).Output()
		if err != nil {
			return err
		}
		mb, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		if err != nil {
			return err
		}
		b.add(row{title: fmt.Sprintf("%d in one process", n), unit: "MB", ours: []float64{mb}})
	}
	return nil
}

// processes returns the memory of n commands that have answered once, in MB.
func processes(cli string, n int) (mb float64, err error) {
	dir, err := os.MkdirTemp("", "parley-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	api := parleytest.NewHandler(parleytest.Script(parleytest.Say("Done.").Always()), &parleytest.APIOptions{Lenient: true})
	if err := api.Listen("127.0.0.1:0"); err != nil {
		return 0, err
	}
	defer api.Close()
	line, err := wire.Encode(wire.Prompt(wire.Text("go")))
	if err != nil {
		return 0, err
	}
	var cmds []*exec.Cmd
	var ins []io.Closer
	defer func() {
		for i, cmd := range cmds {
			ins[i].Close()
			cmd.Process.Kill()
			cmd.Wait()
		}
	}()
	for i := range n {
		home := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(home, 0o700); err != nil {
			return 0, err
		}
		cmd := agentCommand(cli, home, api.URL)
		in, err := cmd.StdinPipe()
		if err != nil {
			return 0, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return 0, err
		}
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		cmds, ins = append(cmds, cmd), append(ins, in)
		if _, err := in.Write(append(line, '\n')); err != nil {
			return 0, err
		}
		if err := awaitResult(out); err != nil {
			return 0, err
		}
	}
	for _, cmd := range cmds {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/smaps_rollup")
		if err != nil {
			return 0, err
		}
		pss, err := memoryLine(string(text), "Pss:")
		if err != nil {
			return 0, err
		}
		mb += pss
	}
	return mb, nil
}

// awaitResult reads to the first result.
func awaitResult(out io.Reader) error {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var m struct{ Type string }
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return err
		}
		if m.Type == "result" {
			go io.Copy(io.Discard, out)
			return nil
		}
	}
	return errors.Join(io.ErrUnexpectedEOF, lines.Err())
}

// hold prints the resident memory of this process with n agents in it, each with its
// host, that have answered once.
func hold(n int) error {
	dir, err := os.MkdirTemp("", "parley-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	opts := &parley.Options{Cwd: dir, Dialer: agent.InProcess(agent.Config{
		Model: parleytest.Script(parleytest.Say("hello").Always()).Model(), Store: &session.Memory{},
	})}
	clients := make([]*parley.Client, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range clients {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if clients[i], errs[i] = parley.Connect(ctx, opts); errs[i] != nil {
				return
			}
			for _, err := range clients[i].Turn(ctx, "hi") {
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	mb, err := memoryLine(string(status), "VmRSS:")
	if err != nil {
		return err
	}
	for _, c := range clients {
		c.Close()
	}
	fmt.Println(mb)
	return nil
}
