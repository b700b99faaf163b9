package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/fleet"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// stuck is a model that never answers, so that a turn lasts.
type stuck struct{}

// Stream implements [model.Model].
func (stuck) Stream(ctx context.Context, _ model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		<-ctx.Done()
		yield(model.Event{}, ctx.Err())
	}
}

var ann = hub.Actor{Name: "ann", Rights: hub.Everything}

// A simWorker is a process with a worker and its hub.
type simWorker struct {
	link *simLink
	nc   *nats.Conn
	b    *fleet.Backend
	hub  *hub.Hub
	stop context.CancelFunc
	done sync.WaitGroup
}

// addWorker starts a worker; with no slots it is a gateway.
func (w *simWorld) addWorker(t *testing.T, name string, slots int) *simWorker {
	t.Helper()
	p := &simWorker{link: &simLink{s: w.server, rand: w.source(name)}}
	var err error
	p.nc, err = nats.Connect("", nats.InProcessServer(p.link), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.ReconnectJitter(0, 0), nats.Timeout(time.Minute))
	if err == nil {
		p.b, err = fleet.Open(t.Context(), fleet.Config{Conn: p.nc, Lease: simLease, Worker: name})
	}
	if err != nil {
		t.Fatal(err)
	}
	work := fleet.NewWorker(p.b, slots, nil)
	p.hub, err = hub.New(hub.Config{Backend: work.Backend(), Name: name, Gateway: slots == 0, Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
		return &parley.Options{Cwd: start.Cwd, Dialer: agent.InProcess(agent.Config{Model: stuck{}, Store: start.Store, Environ: os.Environ()})}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.stop = cancel
	if slots > 0 {
		p.done.Go(func() { work.Run(ctx, p.hub) })
	}
	return p
}

func (p *simWorker) close() {
	p.link.disconnect(true)
	p.stop()
	p.nc.Close()
	p.done.Wait()
	p.hub.Close()
	p.b.Close()
}

// owners yields the names of the successive owners of a session.
func owners(ctx context.Context, b *fleet.Backend, id string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for e, err := range b.Read(ctx, id, 0, true) {
			if err != nil {
				return
			}
			var o hub.Owner
			if e.Kind == hub.KindOwner && (json.Unmarshal(e.Data, &o) != nil || !yield(o.Hub)) {
				return
			}
		}
	}
}

// watch attaches a viewer to a session until ctx ends.
func watch(ctx context.Context, s *hub.Session) {
	attached := make(chan struct{})
	go func() {
		once := sync.OnceFunc(func() { close(attached) })
		for e := range s.Attach(ctx, ann, 0) {
			if e.Kind == hub.KindState {
				once()
			}
		}
	}()
	<-attached
}

// A session of a worker that is killed or paused has another worker in time, at whichever moment that happens and however
// the clocks of the servers differ.
func TestTakeoverInTime(t *testing.T) {
	for _, x := range []struct {
		name  string
		fault func(*simWorker)
		age   time.Duration // after which the server removes entries; 0 means the lease
		most  time.Duration // until another worker must have the session; 0 means that none may have it
		watch bool          // viewers are attached at both workers
		third bool          // a third worker, which has a session, is paused at the same time
	}{
		{"killed", func(p *simWorker) { p.link.disconnect(true) }, 0, 2 * time.Second, false, false},
		{"killed, with viewers", func(p *simWorker) { p.link.disconnect(true) }, 0, 2 * time.Second, true, false},
		{"killed while another one is paused", func(p *simWorker) { p.link.disconnect(true) }, 0, 2 * time.Second, false, true},
		{"paused", func(p *simWorker) { p.link.stall(time.Hour) }, 0, simLease + 2*time.Second, false, false},
		{"paused, clocks behind", func(p *simWorker) { p.link.stall(time.Hour) }, time.Hour, simLease + 3*time.Second, false, false},
		{"alive, clocks ahead", func(p *simWorker) {}, 100 * time.Millisecond, 0, false, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			for i := range 3 {
				dir, err := os.MkdirTemp(simDir(), "fleet-sim-")
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
				synctest.Test(t, func(t *testing.T) {
					w := &simWorld{seed: uint64(i)}
					stopClock := runClock()
					if w.server, err = fleet.StartServer(fleet.ServerConfig{Name: "sim", Dir: dir}); err != nil {
						t.Fatal(err)
					}
					gateway := w.addWorker(t, "gateway", 0)
					work := func() *hub.Session {
						s, err := gateway.hub.Create(t.Context(), ann, hub.Spec{Cwd: dir})
						if err == nil {
							_, err = s.Prompt(t.Context(), ann, wire.Prompt(wire.Text("Do it.")))
						}
						if err != nil {
							t.Fatal(err)
						}
						return s
					}
					reading, stop := context.WithCancel(t.Context())
					var third *simWorker
					if x.third {
						third = w.addWorker(t, "three", 1)
						for range owners(reading, gateway.b, work().ID()) {
							break
						}
					}
					crew := map[string]*simWorker{"one": w.addWorker(t, "one", 4), "two": w.addWorker(t, "two", 4)}
					if x.age > 0 {
						setAge(t, gateway.nc, x.age)
					}
					s := work()
					next, done := iter.Pull(owners(reading, gateway.b, s.ID()))
					first, _ := next()
					if x.watch {
						for _, p := range crew {
							watch(reading, p.hub.Session(s.ID()))
						}
					}
					time.Sleep(time.Duration(i) * 370 * time.Millisecond)
					began := time.Now()
					go x.fault(crew[first])
					if third != nil {
						go third.link.stall(time.Hour)
					}
					if x.most == 0 {
						time.AfterFunc(3*simLease, stop)
					}
					second, ok := next()
					took := time.Since(began)
					t.Logf("%s, then %q after %v", first, second, took)
					switch {
					case x.most == 0 && ok:
						t.Errorf("%s has taken the session from %s, which is alive", second, first)
					case x.most > 0 && (second == first || took > x.most):
						t.Errorf("%s has the session of %s after %v, want at most %v", second, first, took, x.most)
					}
					stop()
					done()
					for _, p := range []*simWorker{crew["one"], crew["two"], third, gateway} {
						if p != nil {
							p.close()
						}
					}
					w.server.Shutdown()
					w.server.WaitForShutdown()
					stopClock()
					time.Sleep(2 * time.Hour) // messages in transit are lost
				})
			}
		})
	}
}

// setAge makes the server remove the entries of processes after a time: its clock differs from the one of the server that
// stored them.
func setAge(t *testing.T, nc *nats.Conn, d time.Duration) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "KV_parley-workers")
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxAge, cfg.Duplicates = d, min(d, cfg.Duplicates)
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(fmt.Errorf("%v: %w", d, err))
	}
}
