package parley

import (
	"context"
	"sync"
)

// A Pool keeps agents that are connected and wait for their first prompt, so that a conversation begins at once. Each agent is handed
// out once: a conversation never sees what another one left behind. Its methods may be called from several goroutines.
type Pool struct {
	opts   Options
	ctx    context.Context // ends with the pool
	cancel context.CancelFunc
	ready  chan warm // has room for all that are under way

	mu      sync.Mutex // guards closed and starting while closed is false
	closed  bool
	working sync.WaitGroup
}

type warm struct {
	client *Client
	err    error
}

// NewPool starts connecting size agents, at least one. The options are used for all of them and must name no session.
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
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.working.Go(func() {
		opts := p.opts
		c, err := Connect(p.ctx, &opts)
		p.ready <- warm{c, err}
	})
}

// Get returns an agent that is ready, and waits for one if there is none. It belongs to the caller, who closes it; another one takes
// its place in the pool. An agent that could not be started is the error of one Get. ctx bounds the waiting only.
func (p *Pool) Get(ctx context.Context) (*Client, error) {
	for {
		select {
		case w := <-p.ready:
			p.start()
			if w.err == nil && w.client.ended() { // while it waited
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

// Close ends the agents that nobody has got. Those that [Pool.Get] returned go on.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.working.Wait()
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
