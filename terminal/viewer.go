package terminal

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// A ViewerConfig configures a [Viewer].
type ViewerConfig struct {
	Output io.Writer
	Cwd    string     // file names are shown relative to it
	Width  func() int // the columns of the output; nil means 80
	Color  bool
	Live   bool // the output is a terminal: a line below the text shows what the agent does
}

// A Viewer shows a conversation to a person who types nothing, in the same way as [Run]. Its methods may be called by
// any goroutine.
type Viewer struct {
	mu      sync.Mutex
	t       *transcript
	cfg     ViewerConfig
	live    string // the line about current work, if it is on the screen
	asking  bool   // a question is on the screen: everything else waits
	held    []wire.Message
	shown   map[string]chan struct{} // by call; closed when the call was received
	frame   int
	stop    chan struct{}
	stopped sync.WaitGroup
}

// NewViewer returns a viewer.
func NewViewer(cfg ViewerConfig) *Viewer {
	if cfg.Width == nil {
		cfg.Width = func() int { return 80 }
	}
	v := &Viewer{t: newTranscript(theme{color: cfg.Color, links: cfg.Color}, cfg.Width, cfg.Cwd), cfg: cfg, shown: map[string]chan struct{}{}}
	v.t.more = ""
	return v
}

// Paint styles text, such as "1" for bold.
func (v *Viewer) Paint(look, text string) string { return v.t.paint(look, text) }

// Begin starts a turn.
func (v *Viewer) Begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.t.begin()
	if !v.cfg.Live || v.stop != nil {
		return
	}
	stop := make(chan struct{})
	v.stop = stop
	v.stopped.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				v.mu.Lock()
				v.frame++
				v.draw()
				v.mu.Unlock()
			}
		}
	})
}

// End ends the turn.
func (v *Viewer) End() {
	v.mu.Lock()
	v.t.end()
	v.draw()
	stop := v.stop
	v.stop = nil
	v.mu.Unlock()
	if stop != nil {
		close(stop)
		v.stopped.Wait()
	}
}

// draw prints finished lines, and what the agent does below them. The caller holds mu.
func (v *Viewer) draw() {
	if v.asking {
		return
	}
	live := ""
	if v.cfg.Live && v.t.busy {
		what := v.t.doing
		if len(v.t.calls) > 0 {
			what = Visible(v.t.calls[0].name) + " " + v.t.calls[0].arg
		}
		seconds := fmt.Sprintf(" %ds", int(time.Since(v.t.since).Seconds()))
		live = v.t.paint(cyan, spinner[v.frame%len(spinner)]) + " " + clip(what, v.cfg.Width()-len(seconds)-4) + v.t.paint(dim, seconds)
	}
	v.write(live)
}

// write writes finished lines, and a line that the next call replaces. The caller holds mu.
func (v *Viewer) write(live string) {
	var b strings.Builder
	if v.live != "" {
		b.WriteString("\r\x1b[K")
	}
	for _, l := range v.t.out {
		b.WriteString(l + "\n")
	}
	b.WriteString(live)
	v.t.out, v.live = nil, live
	io.WriteString(v.cfg.Output, b.String())
}

// Print prints lines.
func (v *Viewer) Print(lines ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.t.print(lines...)
	v.draw()
}

// Beside returns a writer to w, which may be the same terminal: what it writes comes between lines.
func (v *Viewer) Beside(w io.Writer) io.Writer { return besideViewer{v, w} }

type besideViewer struct {
	v *Viewer
	w io.Writer
}

// Write implements [io.Writer].
func (b besideViewer) Write(p []byte) (int, error) {
	b.v.mu.Lock()
	defer b.v.mu.Unlock()
	if !b.v.asking {
		b.v.write("")
	}
	return b.w.Write(p)
}

// Show shows a message, once no question is on the screen.
func (v *Viewer) Show(m wire.Message) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.asking {
		v.held = append(v.held, m)
		return
	}
	v.message(m)
}

func (v *Viewer) message(m wire.Message) {
	v.t.message(m)
	v.draw()
	if a, ok := m.(*wire.Assistant); ok {
		for _, b := range a.Message.Content.All() {
			if b, ok := b.(*wire.ToolUseBlock); ok {
				c := v.call(b.ID)
				select {
				case <-c:
				default:
					close(c)
				}
			}
		}
	}
}

// call returns a channel that is closed when a call was shown. The caller holds mu.
func (v *Viewer) call(id string) chan struct{} {
	if v.shown[id] == nil {
		v.shown[id] = make(chan struct{})
	}
	return v.shown[id]
}

// Ask shows a question about a call: earlier messages come first, later ones once answered was called, with text that
// ends the line of the label.
func (v *Viewer) Ask(ctx context.Context, req *wire.CanUseTool, label string) (answered func(text string)) {
	v.mu.Lock()
	shown := v.call(req.ToolUseID)
	v.mu.Unlock()
	select {
	case <-shown:
	case <-ctx.Done():
	case <-time.After(time.Second): // the model's message has not arrived
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.t.request(&hub.Ask{}, req, 0)
	v.write("")
	io.WriteString(v.cfg.Output, v.t.paint(yellow, label))
	v.asking = true
	return func(text string) {
		v.mu.Lock()
		defer v.mu.Unlock()
		io.WriteString(v.cfg.Output, text)
		v.asking, v.t.since = false, time.Now()
		for _, m := range v.held {
			v.message(m)
		}
		v.held = nil
	}
}
