package terminal

import (
	"context"
	"io"
	"os"
	"sync"

	tea "charm.land/bubbletea/v2"
	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/term"
)

// A keyboard turns the bytes of a terminal into keys. Meanwhile the terminal is in raw
// mode.
type keyboard struct {
	in, out *os.File
	events  chan tea.Msg
	program *tea.Program
	ended   chan struct{}
	stop    context.CancelFunc

	mu    sync.Mutex
	state *term.State
}

// The modes that a screen enables and disables: bracketed paste, and keys with
// modifiers (the protocol of kitty, and that of xterm).
const (
	enableModes  = "\x1b[?2004h\x1b[>1u\x1b[>4;1m"
	disableModes = "\x1b[?2004l\x1b[<1u\x1b[>4;0m"
)

// openKeyboard puts the terminal into raw mode and starts reading.
func openKeyboard(ctx context.Context, in, out *os.File, env []string) (*keyboard, error) {
	ctx, stop := context.WithCancel(ctx)
	k := &keyboard{stop: stop, in: in, out: out, events: make(chan tea.Msg, 256), ended: make(chan struct{})}
	if err := k.raw(); err != nil {
		stop()
		return nil, err
	}
	k.program = tea.NewProgram(forwarder{k.events, k.ended}, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(io.Discard), tea.WithEnvironment(env),
		tea.WithoutRenderer(), tea.WithoutSignalHandler(), tea.WithoutCatchPanics(),
		tea.WithFPS(1)) // it ticks even without a renderer, by default 60 times a second
	go func() {
		defer close(k.ended)
		k.program.Run()
	}()
	return k, nil
}

func (k *keyboard) raw() (err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state, err = term.MakeRaw(k.in.Fd()); err != nil {
		return err
	}
	enableSequences(k.out)
	_, err = io.WriteString(k.out, enableModes)
	return err
}

func (k *keyboard) cooked() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == nil {
		return
	}
	io.WriteString(k.out, disableModes)
	term.Restore(k.in.Fd(), k.state)
	k.state = nil
}

// pause releases the terminal to another program while f runs.
func (k *keyboard) pause(f func() error) error {
	if err := k.program.ReleaseTerminal(); err != nil {
		return err
	}
	k.cooked()
	err := f()
	if again := k.raw(); err == nil {
		err = again
	}
	if again := k.program.RestoreTerminal(); err == nil {
		err = again
	}
	return err
}

// close restores the terminal.
func (k *keyboard) close() {
	k.stop() // not Kill, which panics if the program has not started yet
	<-k.ended
	k.cooked()
}

// A forwarder passes on events. It is a model for bubbletea that shows nothing.
type forwarder struct {
	events chan<- tea.Msg
	ended  <-chan struct{}
}

func (f forwarder) Init() tea.Cmd { return nil }

func (f forwarder) Update(m tea.Msg) (tea.Model, tea.Cmd) {
	switch m.(type) {
	case tea.KeyPressMsg, tea.PasteMsg, tea.WindowSizeMsg, uv.PrimaryDeviceAttributesEvent, tea.BackgroundColorMsg:
		select {
		case f.events <- m:
		case <-f.ended:
		}
	}
	return f, nil
}

func (f forwarder) View() tea.View { return tea.View{} }

// keyOf returns the key of an event.
func keyOf(m tea.Msg) (key, bool) {
	switch m := m.(type) {
	case tea.KeyPressMsg:
		return key{name: m.Keystroke(), text: m.Text}, true
	case tea.PasteMsg:
		return key{name: "paste", text: m.Content, paste: true}, true
	}
	return key{}, false
}
