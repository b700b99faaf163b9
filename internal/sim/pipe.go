package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/transport"
)

// dialer connects the host of a life to its agent.
func (w *world) dialer(l *life, cfg agent.Config) transport.Dialer {
	return transport.DialerFunc(func(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
		host, peer := transport.Pipe()
		stderr := peer.Stderr(spec.Stderr)
		out := &agentEnd{w: w, life: l, peer: peer}
		cfg := cfg
		cfg.Environ = append(cfg.Environ[:len(cfg.Environ):len(cfg.Environ)], spec.Added...)
		w.agents.Go(func() {
			ctx, cancel := context.WithCancel(peer.Context())
			defer cancel()
			go func() { // a killed agent does nothing more and sends nothing
				select {
				case <-l.killed:
					peer.CloseWrite()
					peer.CloseRead()
					cancel()
				case <-ctx.Done():
				}
			}()
			code := agent.Run(ctx, cfg, spec.Args(), peer, out, stderr)
			w.log("agent", "exits with %d", code)
			peer.Exit(code, "")
		})
		return &hostEnd{Conn: host, w: w, life: l, peer: peer, in: source(w.plan.Seed, "pipe in"), out: source(w.plan.Seed, "pipe out")}, nil
	})
}

// An agentEnd is the agent's output, observed when it is written.
type agentEnd struct {
	w    *world
	life *life
	peer *transport.Peer
	rest []byte
}

// Write implements [io.Writer]. The agent has one writer.
func (a *agentEnd) Write(p []byte) (int, error) {
	if !a.w.gate(a.life) {
		return 0, errKilled
	}
	a.rest = append(a.rest, p...)
	for {
		i := bytes.IndexByte(a.rest, '\n')
		if i < 0 {
			break
		}
		a.w.emitted(a.life, a.rest[:i])
		a.rest = a.rest[i+1:]
	}
	return a.peer.Write(p)
}

// A hostEnd is the host's end of the pipe, with delays, short reads and breaks.
type hostEnd struct {
	transport.Conn
	w       *world
	life    *life
	peer    *transport.Peer
	in, out *rand.Rand

	mu     sync.Mutex
	broken bool // nothing more is read or written
	eof    bool // nothing more is read
	rest   []byte
}

// fault applies the faults of the pipe at each read and write.
func (h *hostEnd) fault() error {
	f := h.w.fault("pipe.cut", "pipe.input", "pipe.output", "host.dies")
	h.mu.Lock()
	defer h.mu.Unlock()
	if f != nil {
		h.w.mu.Lock()
		h.life.healthy, h.life.cut = false, true
		h.w.mu.Unlock()
		switch f.Kind {
		case "pipe.cut", "host.dies":
			h.broken = true
			h.peer.CloseRead()
			h.Conn.CloseWrite()
			h.peer.CloseWrite()
			if f.Kind == "host.dies" {
				h.life.cancel()
			}
		case "pipe.input":
			h.Conn.CloseWrite()
		case "pipe.output":
			h.eof = true
			h.peer.CloseWrite()
		}
	}
	if h.broken {
		return errors.New("sim: the pipe broke")
	}
	return nil
}

// Read implements [transport.Conn].
func (h *hostEnd) Read(p []byte) (int, error) {
	pause(h.in, 3*time.Millisecond)
	if err := h.fault(); err != nil {
		return 0, err
	}
	if h.in.IntN(2) == 0 && len(p) > 1 {
		p = p[:1+h.in.IntN(min(len(p)-1, 400))]
	}
	n, err := h.Conn.Read(p)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.eof && n == 0 {
		err = io.EOF
	}
	return n, err
}

// Write implements [transport.Conn].
func (h *hostEnd) Write(p []byte) (n int, err error) {
	for _, line := range bytes.SplitAfter(p, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		h.rest = append(h.rest, line...)
		if line[len(line)-1] == '\n' {
			h.w.sent(h.life, h.rest)
			if strings.Contains(string(h.rest), `"control_response"`) && h.w.fault("host.twice") != nil {
				line = append(bytes.Clone(line), h.rest...)
			}
			h.rest = nil
		}
		for len(line) > 0 {
			pause(h.out, 2*time.Millisecond)
			if err := h.fault(); err != nil {
				return n, err
			}
			piece := line
			if h.out.IntN(4) == 0 && len(line) > 1 {
				piece = line[:1+h.out.IntN(len(line)-1)]
			}
			k, err := h.Conn.Write(piece)
			if err != nil {
				return n, err
			}
			line = line[k:]
		}
	}
	return len(p), nil
}

// sent records a line that the host writes.
func (w *world) sent(l *life, line []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logText("host", string(line))
	var m struct {
		Type      string `json:"type"`
		UUID      string `json:"uuid"`
		RequestID string `json:"request_id"`
		Request   struct {
			Subtype string `json:"subtype"`
		} `json:"request"`
		Response struct {
			RequestID string `json:"request_id"`
		} `json:"response"`
		Message jsontext.Value `json:"message"`
	}
	jsonv2.Unmarshal(line, &m)
	switch {
	case m.Type == "control_response":
		id := m.Response.RequestID
		delete(l.questions, id)
		if l.answers[id]++; l.answers[id] > 1 {
			w.violateLocked("a request is answered once: the host answers %s again", id)
		}
	case m.Type == "user":
		l.prompts = append(l.prompts, m.UUID)
		if found := marker.FindSubmatch(m.Message); found != nil {
			name := string(found[2])
			l.names[m.UUID] = name
			l.started[name] = max(l.started[name], 0)
		}
	case m.Request.Subtype == "interrupt":
		l.interrupts[m.RequestID] = true
	}
}

// lifecycle records when a prompt starts.
func (l *life) lifecycle(uuid, state string, seq int) {
	if name := l.names[uuid]; name != "" && state == "started" && l.started[name] == 0 {
		l.started[name] = seq
	}
}

// checkBill compares the sum in a result with the bills of the prompts that started before it. The lock of the world is held.
func (w *world) checkBill(l *life, sum bill, result int) {
	var due bill
	for prompt, b := range w.bills {
		if !l.startedAfter(prompt, result) {
			due = bill{due.open + b.open, due.input + b.input, due.output + b.output}
		}
	}
	if due.open == 0 && l.healthy && !w.plan.slow() && !l.unbilled && sum != due {
		w.violateLocked("money is exact: the result has %d and %d tokens, the requests used %d and %d", sum.input, sum.output, due.input, due.output)
		l.unbilled = true
	}
}

// emitted checks a line when the agent writes it.
func (w *world) emitted(l *life, line []byte) {
	var m struct {
		Type       string `json:"type"`
		UUID       string `json:"uuid"`
		RequestID  string `json:"request_id"`
		ModelUsage map[string]struct {
			Input  int64 `json:"inputTokens"`
			Output int64 `json:"outputTokens"`
		} `json:"modelUsage"`
		Request struct {
			Subtype string `json:"subtype"`
		} `json:"request"`
		CommandUUID      string         `json:"command_uuid"`
		State            string         `json:"state"`
		UserMessageUUID  string         `json:"user_message_uuid"`
		UserMessageUUIDs []string       `json:"user_message_uuids"`
		ParentToolUseID  string         `json:"parent_tool_use_id"`
		IsReplay         bool           `json:"isReplay"`
		Message          jsontext.Value `json:"message"`
		Response         struct {
			RequestID string `json:"request_id"`
		} `json:"response"`
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	seq := w.logText("agent", string(line))
	if err := jsonv2.Unmarshal(line, &m); err != nil {
		w.violateLocked("lines are JSON: %v: %.200s", err, line)
		return
	}
	switch m.Type {
	case "control_request":
		switch m.Request.Subtype {
		case "can_use_tool", "hook_callback":
			l.questions[m.RequestID] = m.Request.Subtype
		}
	case "control_cancel_request":
		delete(l.questions, m.RequestID)
	case "control_response":
		if l.requests[m.Response.RequestID]++; l.requests[m.Response.RequestID] > 1 {
			w.violateLocked("a request is answered once: the agent answers %s again", m.Response.RequestID)
		}
		if l.interrupts[m.Response.RequestID] {
			l.acked.Store(int64(seq))
		}
	case "command_lifecycle":
		l.lifecycle(m.CommandUUID, m.State, seq)
	case "result":
		ids := m.UserMessageUUIDs
		if len(ids) == 0 && m.UserMessageUUID != "" {
			ids = []string{m.UserMessageUUID}
		}
		l.results = append(l.results, ids...)
		for _, id := range slices.Sorted(maps.Keys(l.open)) {
			if l.unwritten {
				break // the turn could not be recorded
			}
			w.violateLocked("every tool call has a result: a turn ends and %s has none", id)
		}
		clear(l.open)
		for _, id := range slices.Sorted(maps.Keys(l.questions)) {
			if !l.healthy {
				break // nobody can answer, or the agent that asked has ended
			}
			w.violateLocked("no question is open after the result: the %s %s is open", l.questions[id], id)
		}
		clear(l.questions)
		// A process that ends before it has recorded its usage loses it. The usage of a subagent that
		// does not end in time is in the next sum.
		var sum bill
		for _, u := range m.ModelUsage {
			sum.input, sum.output = sum.input+u.Input, sum.output+u.Output
		}
		w.checkBill(l, sum, seq)
	case "user", "assistant":
		var said message
		jsonv2.Unmarshal(m.Message, &said)
		for _, b := range said.blocks() {
			switch b.Type {
			case "tool_use":
				if m.ParentToolUseID == "" {
					l.open[b.ID] = true
				}
			case "tool_result":
				delete(l.open, b.ToolUseID)
				if !m.IsReplay && !w.written[m.UUID] {
					w.violateLocked("every message is on record: the result of %s was sent and is not on record", b.ToolUseID)
				}
				c := w.call(b.ToolUseID)
				if c.results++; c.results > 1 && !m.IsReplay {
					w.violateLocked("every tool call has one result: %s has %d", b.ToolUseID, c.results)
				}
			}
		}
	}
}
