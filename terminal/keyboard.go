package terminal

import (
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/term"
)

// A keyboard turns the bytes of a terminal into keys. Meanwhile the terminal is in raw mode. It uses
// ultraviolet, the library below bubbletea: a bubbletea program wakes up at least once a second.
type keyboard struct {
	in, out *os.File
	term    string // $TERM
	events  chan uv.Event
	ended   chan struct{} // closed when the input ends
	ctx     context.Context

	mu      sync.Mutex
	state   *term.State
	console console
	reader  cancelReader
	read    chan struct{} // closed when the reader has returned
	early   []uv.Event    // arrived before the terminal was released; not yet received
}

// A cancelReader is a reader whose Read ends when it is canceled.
type cancelReader interface {
	io.ReadCloser
	Cancel() bool
}

// The modes that a screen enables and disables: bracketed paste, and keys with
// modifiers (the protocol of kitty, and that of xterm).
const (
	enableModes  = "\x1b[?2004h\x1b[>1u\x1b[>4;1m"
	disableModes = "\x1b[?2004l\x1b[<1u\x1b[>4;0m"
)

// openKeyboard puts the terminal into raw mode and starts reading.
func openKeyboard(ctx context.Context, in, out *os.File, env []string) (*keyboard, error) {
	k := &keyboard{ctx: ctx, in: in, out: out, term: getenv(env, "TERM"), events: make(chan uv.Event, 256), ended: make(chan struct{})}
	return k, k.open()
}

// open puts the terminal into raw mode and starts reading.
func (k *keyboard) open() (err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.console = openConsole(k.in, k.out)
	if k.state, err = term.MakeRaw(k.in.Fd()); err != nil {
		return err
	}
	if _, err = io.WriteString(k.out, enableModes); err == nil {
		k.reader, err = uv.NewCancelReader(k.in)
	}
	if err != nil {
		k.cooked()
		return err
	}
	k.console.allowSelection()
	k.read = make(chan struct{})
	go k.forward(k.reader, k.read, k.early)
	k.early = nil
	return nil
}

// pasteTime is how long keys after a paste wait. A pasted text may contain the sequence that ends a
// paste; the rest of it then looks like keys, until the real end.
const pasteTime = 50 * time.Millisecond

// forward sends events, those of early first, until the reader is canceled or the input ends.
func (k *keyboard) forward(reader io.Reader, done chan struct{}, early []uv.Event) {
	defer close(done)
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	raw, read := make(chan uv.Event), make(chan error, 1)
	go func() { read <- uv.NewTerminalReader(reader, k.term).StreamEvents(ctx, raw) }()
	send := func(list []uv.Event) {
		for _, m := range list {
			select {
			case k.events <- m:
			case <-k.ctx.Done():
			}
		}
	}
	send(early)
	var held []uv.Event // after a paste
	var quiet *time.Timer
	var expired <-chan time.Time // nil if there was no paste
	open := false                // the start of a paste has arrived, and its end has not
	for {
		select {
		case m := <-raw:
			switch m := m.(type) {
			case uv.PasteStartEvent:
				send(pasted(held))
				held, open = nil, true
			case uv.PasteEvent:
				if send(pasted(held)); open {
					send([]uv.Event{m})
				}
				held, open = nil, false
				quiet = time.NewTimer(pasteTime)
				expired = quiet.C
			case uv.KeyPressEvent, uv.WindowSizeEvent, uv.PrimaryDeviceAttributesEvent, uv.BackgroundColorEvent:
				list := []uv.Event{m}
				if k, ok := m.(uv.KeyPressEvent); ok && k.Keystroke() == "alt+esc" { // Esc twice, so fast that it arrives at once
					esc := uv.KeyPressEvent{Code: uv.KeyEscape}
					list = []uv.Event{esc, esc}
				}
				if expired == nil {
					send(list)
				} else {
					held = append(held, list...)
					quiet.Reset(pasteTime)
				}
			}
		case <-expired:
			send(held)
			held, expired = nil, nil
		case <-read:
			send(held)
			k.mu.Lock()
			if k.reader == reader { // nobody closed it
				select {
				case <-k.ended:
				default:
					close(k.ended)
				}
			}
			k.mu.Unlock()
			return
		}
	}
}

// pasted returns events with the keys in them as pasted text.
func pasted(events []uv.Event) (list []uv.Event) {
	var text strings.Builder
	for _, m := range events {
		switch k, ok := m.(uv.KeyPressEvent); {
		case !ok:
			list = append(list, m)
		case k.Code == uv.KeyEnter:
			text.WriteByte('\n')
		case k.Code == uv.KeyTab && k.Mod == 0:
			text.WriteByte('\t')
		default:
			text.WriteString(k.Text)
		}
	}
	if text.Len() > 0 {
		list = append([]uv.Event{uv.PasteEvent{Content: text.String()}}, list...)
	}
	return list
}

// cooked restores the modes of the terminal. The caller holds mu.
func (k *keyboard) cooked() {
	io.WriteString(k.out, disableModes)
	term.Restore(k.in.Fd(), k.state)
	k.console.restore()
}

// close stops reading and restores the terminal.
func (k *keyboard) close() {
	k.mu.Lock()
	reader := k.reader
	k.reader = nil
	k.mu.Unlock()
	if reader == nil {
		return
	}
	reader.Cancel()
	for open := true; open; {
		select {
		case m := <-k.events: // the caller does not receive them now
			k.early = append(k.early, m)
		case <-k.read:
			open = false
		}
	}
	reader.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cooked()
}

// pause releases the terminal to another program while f runs.
func (k *keyboard) pause(f func() error) error {
	k.close()
	err := f()
	if again := k.open(); err == nil {
		err = again
	}
	return err
}

// regain puts the terminal into raw mode again if a shell has changed that, because somebody stopped the program
// without our doing (SIGSTOP). It reports whether that was so.
func (k *keyboard) regain() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reader == nil || k.state == nil || !isCooked(k.in.Fd()) {
		return false
	}
	if _, err := term.MakeRaw(k.in.Fd()); err != nil {
		return false
	}
	io.WriteString(k.out, disableModes+enableModes)
	return true
}

// keyOf returns the key of an event.
func keyOf(m uv.Event) (key, bool) {
	switch m := m.(type) {
	case uv.KeyPressEvent:
		return key{name: m.Keystroke(), text: m.Text}, true
	case uv.PasteEvent:
		return key{name: "paste", text: m.Content, paste: true}, true
	}
	return key{}, false
}
