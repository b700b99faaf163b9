package parley

import (
	"context"

	"github.com/parley-go/parley/internal/gate"
)

// A Pool keeps connected agents that wait for their first prompt, so that a conversation starts without delay. Each
// agent is used once: a conversation never sees what another one left behind. A Pool is safe for concurrent use.
type Pool struct {
	opts   Options
	ctx    context.Context // ends with the pool
	cancel context.CancelFunc
	ready  chan warm // has capacity for all agents that are being connected

	working gate.Gate // agents that are being connected
}

type warm struct {
	client *Client
	err    error
}

// NewPool starts connecting size agents, at least one. The options are used for all of them and must not name a
// session.
func NewPool(size int, opts *Options) *Pool {
	size = max(1, size)
	p := &Pool{ready: make(chan warm, size)}
	if opts != nil {
		p.opts = *opts
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for range size {
		p.start()
	}
	return p
}

// start connects one more agent, unless the pool is closed.
func (p *Pool) start() {
	p.working.Go(func() {
		opts := p.opts
		c, err := Connect(p.ctx, &opts)
		p.ready <- warm{c, err}
	})
}

// Get returns a connected agent, and waits for one if there is none. The caller must close it; the pool connects
// another one in its place. If an agent could not be started, one call of Get returns the error. ctx bounds only the
// waiting.
func (p *Pool) Get(ctx context.Context) (*Client, error) {
	for {
		select {
		case w := <-p.ready:
			p.start()
			if w.err == nil && w.client.ended() { // while it was in the pool
				w.client.Close()
				continue
			}
			return w.client, w.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-p.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// Close ends the agents that are still in the pool. Agents that [Pool.Get] returned keep running.
func (p *Pool) Close() error {
	idle := p.working.Close()
	p.cancel()
	<-idle
	for {
		select {
		case w := <-p.ready:
			if w.client != nil {
				w.client.Close()
			}
		default:
			return nil
		}
	}
}

// ended reports whether the agent's output has ended.
func (c *Client) ended() bool {
	select {
	case <-c.s.readDone:
		return true
	default:
		return false
	}
}
