package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/parley-go/parley/fleet"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/session"
)

// A simLink is the connection of a process to the server.
type simLink struct {
	s    *server.Server
	rand *rand.Rand // for the delays of the process's output

	mu      sync.Mutex
	conns   []*simConn
	stalled chan struct{} // closed when the link resumes; nil if it is not stalled
	cut     bool          // new connections fail
	slow    time.Duration // the shortest delay of the process's output
}

// InProcessConn implements [nats.InProcessConnProvider].
func (l *simLink) InProcessConn() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut || l.stalled != nil {
		return nil, errors.New("sim: the link is cut")
	}
	inner, err := l.s.InProcessConn()
	if err != nil {
		return nil, err
	}
	c := &simConn{Conn: inner, link: l, in: make(chan []byte, 1<<14), out: make(chan simPiece, 1<<14), gone: make(chan struct{}), began: time.Now()}
	l.conns = append(l.conns, c)
	go c.receive()
	go c.send()
	return c, nil
}

// fresh reports whether the connection is being established. The client holds a mutex meanwhile, and time does not
// advance while others wait for the mutex, so establishing it takes no time.
func (c *simConn) fresh() bool { return time.Since(c.began) < 200*time.Millisecond }

// wait waits while the link is stalled.
func (c *simConn) wait() {
	c.link.mu.Lock()
	stalled := c.link.stalled
	c.link.mu.Unlock()
	if stalled != nil && !c.fresh() {
		select {
		case <-stalled:
		case <-c.gone:
		}
	}
}

func (l *simLink) stall(d time.Duration) {
	ch := make(chan struct{})
	l.mu.Lock()
	l.stalled = ch
	l.mu.Unlock()
	time.Sleep(d)
	l.mu.Lock()
	l.stalled = nil
	l.mu.Unlock()
	close(ch)
}

// disconnect ends all connections. With cut, new connections fail.
func (l *simLink) disconnect(cut bool) {
	l.mu.Lock()
	all := l.conns
	l.conns, l.cut = nil, cut
	l.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
}

// A simConn buffers the data in transit, as a network does.
type simConn struct {
	net.Conn
	link  *simLink
	in    chan []byte
	out   chan simPiece
	rest  []byte
	gone  chan struct{}
	once  sync.Once
	began time.Time
}

// A simPiece is data in transit.
type simPiece struct {
	data []byte
	sent time.Time
}

func (c *simConn) receive() {
	for {
		b := make([]byte, 32<<10)
		n, err := c.Conn.Read(b)
		if n > 0 {
			select {
			case c.in <- b[:n]:
			case <-c.gone:
			}
		}
		if err != nil {
			c.Close()
			return
		}
	}
}

func (c *simConn) send() {
	for {
		select {
		case p := <-c.out:
			c.link.mu.Lock()
			delay := max(time.Duration(c.link.rand.Int64N(int64(3*time.Millisecond))), c.link.slow-time.Since(p.sent))
			c.link.mu.Unlock()
			if !c.fresh() {
				time.Sleep(delay)
			}
			c.wait()
			if _, err := c.Conn.Write(p.data); err != nil {
				c.Close()
				return
			}
		case <-c.gone:
			return
		}
	}
}

// Read implements [net.Conn].
func (c *simConn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		select {
		case c.rest = <-c.in:
		case <-c.gone:
			return 0, io.EOF
		}
		c.wait()
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write implements [net.Conn].
func (c *simConn) Write(p []byte) (int, error) {
	select {
	case c.out <- simPiece{append([]byte(nil), p...), time.Now()}:
		return len(p), nil
	case <-c.gone:
		return 0, net.ErrClosed
	}
}

// Close implements [net.Conn].
func (c *simConn) Close() error {
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}

// SetDeadline, SetReadDeadline and SetWriteDeadline implement [net.Conn]. They do nothing: no call blocks for long.
func (c *simConn) SetDeadline(time.Time) error      { return nil }
func (c *simConn) SetReadDeadline(time.Time) error  { return nil }
func (c *simConn) SetWriteDeadline(time.Time) error { return nil }

// A simWorld is one run.
type simWorld struct {
	seed     uint64
	server   *server.Server
	plant    func(*fleet.Backend) hub.Backend // a planted bug, or nil
	sessions []string

	mu       sync.Mutex
	trace    []string
	problems []string
	acked    map[string]int    // acknowledged appends, by content
	effects  map[string]int    // how often each effect took place
	holders  map[string]string // which process believes that it holds the lease of a session
	cut      map[string]bool   // processes whose connection was broken, so that nobody answered for them for a while
	began    time.Time
}

func (w *simWorld) log(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, fmt.Sprintf("%10v ", time.Since(w.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

func (w *simWorld) complain(format string, args ...any) {
	w.log("VIOLATION "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

func (w *simWorld) wasCut(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut[name]
}

func (w *simWorld) source(name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const simLease = 15 * time.Second

// A simProcess is a worker.
type simProcess struct {
	w    *simWorld
	name string
	rand *rand.Rand
	link *simLink
	nc   *nats.Conn
	raw  *fleet.Backend
	b    hub.Backend
	ctx  context.Context // ends when it is killed
	kill context.CancelFunc
	done sync.WaitGroup
}

func (w *simWorld) start(ctx context.Context, name string) (*simProcess, error) {
	p := &simProcess{w: w, name: name, rand: w.source(name)}
	p.link = &simLink{s: w.server, rand: w.source("link of " + name)}
	var err error
	p.nc, err = nats.Connect("", nats.InProcessServer(p.link), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.ReconnectJitter(0, 0), nats.Timeout(time.Minute))
	if err != nil {
		return nil, err
	}
	if p.raw, err = fleet.Open(ctx, fleet.Config{Conn: p.nc, Lease: simLease, Worker: name}); err != nil {
		p.nc.Close()
		return nil, err
	}
	if p.b = p.raw; w.plant != nil {
		p.b = w.plant(p.raw)
	}
	p.ctx, p.kill = context.WithCancel(ctx)
	p.done.Go(p.run)
	return p, nil
}

// die kills the process: none of its messages reaches the server from now on.
func (p *simProcess) die() {
	p.link.disconnect(true)
	p.kill()
	p.nc.Close()
	p.done.Wait()
	p.raw.Close()
}

// run acquires the leases of sessions and runs steps in them.
func (p *simProcess) run() {
	for p.ctx.Err() == nil {
		id := p.w.sessions[p.rand.IntN(len(p.w.sessions))]
		l, err := p.b.Lease(p.ctx, id)
		if err == nil {
			p.hold(id, l)
			continue
		}
		sleep(p.ctx, time.Duration(1+p.rand.IntN(2000))*time.Millisecond)
	}
}

// A simRecord is the content of an entry.
type simRecord struct {
	By, Do string
	Step   int
}

// hold runs steps of a session while the process holds the lease.
func (p *simProcess) hold(id string, l hub.Lease) {
	w := p.w
	w.log("%s has %s", p.name, id[:4])
	w.mu.Lock()
	before := w.holders[id]
	w.holders[id] = p.name
	w.mu.Unlock()
	if before != "" && !w.wasCut(before) {
		w.complain("%s has taken %s, and %s has its lease", p.name, id[:4], before)
	}
	over := make(chan struct{})
	p.done.Go(func() {
		select {
		case <-l.Lost():
			w.log("%s has lost %s", p.name, id[:4])
		case <-p.ctx.Done():
		case <-over:
		}
		w.mu.Lock()
		if w.holders[id] == p.name {
			w.holders[id] = ""
		}
		w.mu.Unlock()
	})
	defer l.Close()
	defer close(over)
	var n, epoch uint64
	step, open := 0, -1
	for e, err := range p.b.Read(p.ctx, id, 0, false) {
		if err != nil {
			return
		}
		n = e.N
		var r simRecord
		json.Unmarshal(e.Data, &r)
		switch r.Do {
		case "intent":
			open, step = r.Step, r.Step+1
		case "outcome":
			open = -1
		}
	}
	write := func(kind hub.Kind, do string, step int) bool {
		data, _ := json.Marshal(simRecord{p.name, do, step})
		e := hub.Entry{N: n + 1, Kind: kind, Epoch: epoch, Time: time.Now(), Data: data}
		if kind == hub.KindOwner {
			e.Epoch = e.N
		}
		if err := p.b.Append(p.ctx, id, n, []hub.Entry{e}); err != nil {
			w.log("%s writes %d %s %d to %s: %v", p.name, e.N, do, step, id[:4], err)
			return false
		}
		w.log("%s writes %d %s %d to %s", p.name, e.N, do, step, id[:4])
		n, epoch = e.N, e.Epoch
		w.mu.Lock()
		w.acked[id+" "+string(data)+fmt.Sprint(e.Epoch)]++
		w.mu.Unlock()
		return true
	}
	if !write(hub.KindOwner, "own", 0) {
		return
	}
	if open >= 0 && !write(hub.KindFrame, "outcome", open) { // the outcome is unknown, so the step must not run again
		return
	}
	for range 1 + p.rand.IntN(6) {
		if !write(hub.KindFrame, "intent", step) {
			return
		}
		select {
		case <-l.Lost():
			return
		case <-p.ctx.Done():
			return
		default:
		}
		w.mu.Lock()
		w.effects[fmt.Sprint(id, step)]++
		w.mu.Unlock()
		if sleep(p.ctx, time.Duration(p.rand.IntN(3000))*time.Millisecond) != nil {
			return
		}
		if !write(hub.KindFrame, "outcome", step) {
			return
		}
		step++
	}
}

// simulate plays one seed and returns the problems, with a trace.
func simulate(t *testing.T, seed uint64, plant func(*fleet.Backend) hub.Backend) (problems, trace []string) {
	dir, err := os.MkdirTemp(simDir(), "fleet-sim-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	synctest.Test(t, func(t *testing.T) {
		w := &simWorld{seed: seed, plant: plant, acked: map[string]int{}, effects: map[string]int{}, holders: map[string]string{}, cut: map[string]bool{}, began: time.Now()}
		stopClock := runClock()
		if w.server, err = fleet.StartServer(fleet.ServerConfig{Name: "sim", Dir: dir}); err != nil {
			t.Fatal(err)
		}
		r := w.source("faults")
		for range 2 {
			w.sessions = append(w.sessions, session.NewID())
		}
		var crew []*simProcess
		count := 0
		add := func() {
			p, err := w.start(t.Context(), fmt.Sprint("p", count))
			if err != nil {
				t.Fatal(err)
			}
			count++
			crew = append(crew, p)
		}
		for range 3 {
			add()
		}
		var faults sync.WaitGroup
		for range 4 + r.IntN(6) {
			time.Sleep(time.Duration(r.IntN(12_000)) * time.Millisecond)
			i := r.IntN(len(crew))
			p := crew[i]
			d := time.Duration(1+r.IntN(40)) * time.Second
			switch r.IntN(4) {
			case 0:
				w.log("%s is killed", p.name)
				p.die()
				crew = append(crew[:i], crew[i+1:]...)
				add()
			case 1:
				d /= 4
				w.log("the link of %s is cut for %v", p.name, d)
				w.mu.Lock()
				w.cut[p.name] = true
				w.mu.Unlock()
				faults.Go(func() {
					p.link.disconnect(true)
					time.Sleep(d)
					p.link.mu.Lock()
					p.link.cut = p.ctx.Err() != nil
					p.link.mu.Unlock()
				})
			default:
				w.log("the link of %s stalls for %v", p.name, d)
				faults.Go(func() { p.link.stall(d) })
			}
		}
		faults.Wait()
		time.Sleep(2 * simLease)
		for _, p := range crew {
			p.die()
		}
		nc, err := fleet.Connect(w.server)
		if err != nil {
			t.Fatal(err)
		}
		b, err := fleet.Open(t.Context(), fleet.Config{Conn: nc})
		if err != nil {
			t.Fatal(err)
		}
		w.check(t, b)
		b.Close()
		nc.Close()
		w.server.Shutdown()
		w.server.WaitForShutdown()
		stopClock()
		time.Sleep(time.Second) // messages in transit are lost
		problems, trace = w.problems, w.trace
	})
	return problems, trace
}

// simDir returns a directory in memory if possible, because the server syncs every write.
func simDir() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// check checks the logs.
func (w *simWorld) check(t *testing.T, b *fleet.Backend) {
	found := map[string]int{}
	for _, id := range w.sessions {
		var n, epoch uint64
		for e, err := range b.Read(t.Context(), id, 0, false) {
			if err != nil {
				w.complain("the log cannot be read: %v", err)
				return
			}
			if e.N != n+1 {
				w.complain("entry %d follows %d", e.N, n)
			}
			if n = e.N; e.Kind == hub.KindOwner {
				epoch = e.N
			}
			if e.Epoch != epoch {
				w.complain("entry %d has the epoch %d, and the owner has %d", e.N, e.Epoch, epoch)
			}
			found[id+" "+string(e.Data)+fmt.Sprint(e.Epoch)]++
		}
	}
	w.mu.Lock()
	acked, effects := w.acked, w.effects
	w.mu.Unlock()
	for what, times := range acked {
		if found[what] != times {
			w.complain("%s was acknowledged %d times and is in the log %d times", what, times, found[what])
		}
	}
	for what, times := range effects {
		if times != 1 {
			w.complain("the effect %s took place %d times", what, times)
		}
	}
}
