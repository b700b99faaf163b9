package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/parley-go/parley/fleet"
	"github.com/parley-go/parley/internal/testwait"
)

// A world holds the processes, and the links between the nodes.
type world struct {
	dir, exe, ledger string
	lease            time.Duration
	rand             *rand.Rand
	log              *os.File
	nodes, workers   []*process
	urls             string
	links            map[[2]int]*link
	conns            []*nats.Conn
	backends         []*fleet.Backend

	mu                                   sync.Mutex // guards the fields below
	kills, nodeKills, pauses, partitions int
	leaderKills, machineKills            int                    // of the node kills
	killed                               map[string][]time.Time // workers, by name
	paused                               map[string][]time.Time
	nodeFaults                           []nodeFault
}

// A nodeFault is a time in which a node was down or cut off.
type nodeFault struct {
	kind       string
	began, end time.Time
}

// A process is a process that chaos starts and restarts.
type process struct {
	mu   sync.Mutex // held while it is down
	name string
	args []string
	log  io.Writer
	cmd  *exec.Cmd
	done chan struct{}
}

func (p *process) start(exe string) error {
	p.cmd = exec.Command(exe, p.args...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	p.done = done
	cmd := p.cmd
	go func() { cmd.Wait(); close(done) }()
	return nil
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// A link is a TCP proxy from one node to another, which can be cut.
type link struct {
	l      net.Listener
	target string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

func newLink(target string) (*link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &link{l: l, target: target, conns: map[net.Conn]bool{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go k.serve(c)
		}
	}()
	return k, nil
}

func (k *link) serve(c net.Conn) {
	defer c.Close()
	d, err := net.Dial("tcp", k.target)
	if err != nil {
		return
	}
	defer d.Close()
	k.mu.Lock()
	if k.cut {
		k.mu.Unlock()
		return
	}
	k.conns[c], k.conns[d] = true, true
	k.mu.Unlock()
	go func() { io.Copy(d, c); d.Close() }()
	io.Copy(c, d)
	k.mu.Lock()
	delete(k.conns, c)
	delete(k.conns, d)
	k.mu.Unlock()
}

func (k *link) set(cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cut = cut; cut {
		for c := range k.conns {
			c.Close()
		}
	}
}

// newWorld starts three nodes and four workers.
func newWorld(ctx context.Context, dir string, lease time.Duration, r *rand.Rand) (w *world, err error) {
	w = &world{dir: dir, lease: lease, rand: r, ledger: filepath.Join(dir, "ledger"), links: map[[2]int]*link{}, killed: map[string][]time.Time{}, paused: map[string][]time.Time{}}
	if w.exe, err = os.Executable(); err != nil {
		return nil, err
	}
	if w.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	var clients, routes [3]string
	for i := range 3 {
		clients[i], routes[i] = testwait.Address(), testwait.Address()
	}
	w.urls = "nats://" + strings.Join(clients[:], ",nats://")
	for i := range 3 {
		cfg := fleet.ServerConfig{Name: fmt.Sprint("n", i), Dir: filepath.Join(dir, fmt.Sprint("n", i)), Listen: clients[i], Cluster: routes[i], Routes: make([]string, 3)}
		for j := range 3 {
			if cfg.Routes[j] = routes[j]; i != j {
				k, err := newLink(routes[j])
				if err != nil {
					return nil, err
				}
				w.links[[2]int{i, j}] = k
				cfg.Routes[j] = k.l.Addr().String()
			}
		}
		spec, err := json.Marshal(cfg)
		if err != nil {
			return nil, err
		}
		p := &process{name: cfg.Name, args: []string{"-role", "node", "-spec", string(spec)}, log: w.log}
		if err := p.start(w.exe); err != nil {
			return nil, err
		}
		w.nodes = append(w.nodes, p)
	}
	for i := range 3 { // one client for each node
		nc, err := nats.Connect("nats://"+clients[i], nats.MaxReconnects(-1), nats.ReconnectWait(fleet.ReconnectWait), nats.RetryOnFailedConnect(true), nats.IgnoreDiscoveredServers())
		if err != nil {
			return nil, err
		}
		w.conns = append(w.conns, nc)
		limit, cancel := context.WithTimeout(ctx, 90*time.Second)
		b, err := fleet.Open(limit, fleet.Config{Conn: nc, Replicas: 3, Lease: lease, Worker: fmt.Sprint("client", i)})
		cancel()
		if err != nil {
			return nil, &lateError{err.Error()}
		}
		w.backends = append(w.backends, b)
	}
	for i := range 4 {
		if err := w.addWorker(fmt.Sprint("w", i)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *world) addWorker(name string) error {
	spec, err := json.Marshal(workerSpec{Name: name, URLs: w.urls, Ledger: w.ledger, Lease: w.lease})
	if err != nil {
		return err
	}
	p := &process{name: name, args: []string{"-role", "worker", "-spec", string(spec)}, log: w.log}
	w.workers = append(w.workers, p)
	return p.start(w.exe)
}

func (w *world) close() {
	for _, b := range w.backends {
		b.Close()
	}
	for _, c := range w.conns {
		c.Close()
	}
	for _, p := range append(w.workers, w.nodes...) {
		if p.cmd != nil && p.cmd.Process != nil {
			p.cmd.Process.Signal(syscall.SIGCONT)
			p.kill()
		}
	}
	for _, k := range w.links {
		k.l.Close()
		k.set(true)
	}
	w.log.Close()
}

// note adds a line to the log, among those of the processes.
func (w *world) note(format string, args ...any) {
	fmt.Fprintf(w.log, "time=%s chaos: %s\n", time.Now().Format("2006-01-02T15:04:05.000Z07:00"), fmt.Sprintf(format, args...))
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// pauseMore is the longest time by which a pause of a worker exceeds its lease.
const pauseMore = 6 * time.Second

// faults causes faults for a while. Faults of workers overlap with those of nodes; only one node
// at a time is affected, so that a majority remains.
func (w *world) faults(ctx context.Context, d time.Duration) {
	end, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var all sync.WaitGroup
	seed := func() *rand.Rand { return rand.New(rand.NewPCG(w.rand.Uint64(), 1)) }
	forWorkers, forPaused, forNodes := seed(), seed(), seed()
	all.Go(func() { // the first two are killed
		for pause(end, 2*time.Second); end.Err() == nil; pause(end, time.Duration(3000+forWorkers.IntN(4000))*time.Millisecond) {
			p := w.workers[forWorkers.IntN(2)]
			p.mu.Lock()
			w.killWorker(p)
			pause(end, time.Duration(forWorkers.IntN(3000))*time.Millisecond)
			p.start(w.exe)
			p.mu.Unlock()
		}
	})
	all.Go(func() { // the others are paused for longer than their lease
		for pause(end, 4*time.Second); end.Err() == nil; pause(end, time.Duration(1000+forPaused.IntN(3000))*time.Millisecond) {
			p := w.workers[2+forPaused.IntN(2)]
			name := processName(p.name, p.cmd.Process.Pid)
			w.paused[name] = append(w.paused[name], time.Now())
			w.note("%s is paused", name)
			p.cmd.Process.Signal(syscall.SIGSTOP)
			w.pauses++
			pause(ctx, w.lease+pauseMore-time.Duration(forPaused.IntN(2000))*time.Millisecond)
			p.cmd.Process.Signal(syscall.SIGCONT)
			w.note("%s continues", name)
		}
	})
	all.Go(func() {
		for pause(end, 6*time.Second); end.Err() == nil; pause(end, time.Duration(8000+forNodes.IntN(6000))*time.Millisecond) {
			i := forNodes.IntN(3)
			fault := nodeFault{began: time.Now()}
			if w.nodeKills <= w.partitions {
				var machine []*process
				fault.kind = "a node was killed"
				switch w.nodeKills % 3 {
				case 0:
					w.leaderKills++
					fault.kind = "the leader was killed"
					i = w.leader(ctx, i)
				case 1: // the whole machine, with its worker
					w.machineKills++
					fault.kind = "a node was killed with its worker"
					i = forNodes.IntN(2)
					machine = append(machine, w.workers[i])
				}
				w.nodeKills++
				w.note("%s: %s", fault.kind, w.nodes[i].name)
				w.nodes[i].kill()
				for _, p := range machine {
					p.mu.Lock()
					w.killWorker(p)
				}
				pause(ctx, time.Duration(1000+forNodes.IntN(8000))*time.Millisecond)
				w.note("%s starts", w.nodes[i].name)
				w.nodes[i].start(w.exe)
				for _, p := range machine {
					p.start(w.exe)
					p.mu.Unlock()
				}
				fault.end = time.Now()
				w.nodeFaults = append(w.nodeFaults, fault)
				continue
			}
			w.partitions++
			w.note("%s is cut off", w.nodes[i].name)
			w.isolate(i, true)
			pause(ctx, time.Duration(4000+forNodes.IntN(8000))*time.Millisecond)
			w.isolate(i, false)
			w.note("%s is connected", w.nodes[i].name)
			fault.kind, fault.end = "a node was cut off", time.Now()
			w.nodeFaults = append(w.nodeFaults, fault)
		}
	})
	all.Wait()
	fmt.Printf("faults: %d worker kills, %d worker pauses, %d node kills (%d of the leader, %d with the worker on the machine), %d partitions\n", w.kills, w.pauses, w.nodeKills, w.leaderKills, w.machineKills, w.partitions)
}

// killWorker kills a worker. The caller holds its lock.
func (w *world) killWorker(p *process) {
	name := processName(p.name, p.cmd.Process.Pid)
	w.mu.Lock()
	w.killed[name] = append(w.killed[name], time.Now())
	w.kills++
	w.mu.Unlock()
	w.note("%s is killed", name)
	p.kill()
}

// leader returns the number of the node that leads the stream of logs, or another one if that is not known.
func (w *world) leader(ctx context.Context, other int) int {
	limit, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	m, err := w.conns[other].RequestWithContext(limit, "$JS.API.STREAM.INFO.parley-log", nil)
	if err != nil {
		return other
	}
	var info struct {
		Cluster struct{ Leader string }
	}
	json.Unmarshal(m.Data, &info)
	for i, p := range w.nodes {
		if p.name == info.Cluster.Leader {
			return i
		}
	}
	return other
}

// isolate disconnects a node from the other two, or reconnects it.
func (w *world) isolate(i int, cut bool) {
	for pair, k := range w.links {
		if pair[0] == i || pair[1] == i {
			k.set(cut)
		}
	}
}
