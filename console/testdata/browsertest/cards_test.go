package browsertest

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// A dialogConn is a connection to an agent that shows a dialog when it reads a prompt with the word
// "dialog", as the official CLI does.
type dialogConn struct {
	transport.Conn
	out *io.PipeReader
	in  chan []byte
}

const dialogRequest = `{"type":"control_request","request_id":"dialog-1","request":{"subtype":"request_user_dialog","dialog_kind":"pick\u202e","payload":{"text":"<b>Which one?</b>"}}}` + "\n"

func newDialogConn(c transport.Conn) *dialogConn {
	r, w := io.Pipe()
	d := &dialogConn{Conn: c, out: r, in: make(chan []byte)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			buf := make([]byte, 1<<16)
			n, err := c.Read(buf)
			if n > 0 {
				d.in <- buf[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer w.Close()
		for {
			select {
			case b := <-d.in:
				if _, err := w.Write(b); err != nil {
					io.Copy(io.Discard, c)
				}
			case <-ended:
				return
			}
		}
	}()
	return d
}

func (d *dialogConn) Read(p []byte) (int, error) { return d.out.Read(p) }

func (d *dialogConn) Write(p []byte) (int, error) {
	switch {
	case bytes.Contains(p, []byte(`"dialog-1"`)): // the answer; the agent behind this knows of no dialog
		return len(p), nil
	case bytes.Contains(p, []byte("Show a dialog.")):
		d.in <- []byte(dialogRequest)
	}
	return d.Conn.Write(p)
}

// A person logs in for an MCP server, allows a command for the session with a key, and answers a
// dialog of the agent. Each card shows exactly what it is about, and has no barrier.
func TestCards(t *testing.T) {
	r := newRig(t,
		parleytest.Call("mcp__forms__login", `{}`),
		parleytest.Expect(parleytest.ToolResult("accept")).Call("Bash", map[string]string{"command": "touch one"}),
		parleytest.Expect(parleytest.ToolResult("")).Call("Bash", map[string]string{"command": "touch one"}),
		parleytest.Expect(parleytest.ToolResult("")).Say("Twice."),
		parleytest.Say("Shown."),
	)
	r.servers, r.allowed = map[string]*wire.MCPServerConfig{"forms": formServer(t)}, []string{"mcp__forms__login"}
	r.dialer = func(inner transport.Dialer) transport.Dialer {
		return transport.DialerFunc(func(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
			c, err := inner.Dial(ctx, spec)
			if err != nil {
				return nil, err
			}
			return newDialogConn(c), nil
		})
	}
	s := r.create("Cards", "Log in.")
	p := open(t, r.link(serve.ScopeDrive))
	p.enter()

	p.shows(".approval h3", "The MCP server forms asks")
	p.shows(".approval", "Log in, please. <a href=//evil.example>here</a>")
	p.until(`(a => a && a.href === 'https://login.example/start?a=1' && a.innerText === a.href && a.target === '_blank' && a.rel.includes('noopener') && document.querySelectorAll('.approval a').length === 1)(document.querySelector('.approval a'))`)
	p.ready()
	p.accessible("log-in")
	p.until("document.querySelector('.approval .yes')")
	eval[any](p, "document.querySelector('.approval').focus(); 0")
	p.key("y")

	p.shows(".approval .command", "touch one")
	p.ready()
	eval[any](p, "document.querySelector('.approval').focus(); 0")
	p.key("Y")
	p.shows(".answer", "Twice.")
	if a := r.answers(s); len(a) != 2 || !sameJSON(string(a[0].Response), `{"action":"accept"}`) {
		t.Fatalf("the answers are %+v, want the log-in and the rule", a)
	}

	p.write("#prompt", "Show a dialog.")
	p.key("\r")
	p.shows(".approval h3", "The agent shows a dialog: pick")
	p.shows(".approval .raw", "<b>Which one?</b>")
	p.ready()
	p.accessible("dialog")
	p.accept()
	p.gone(".approval")
	if a := r.answers(s); len(a) != 3 || !sameJSON(string(a[2].Response), `{"behavior":"completed"}`) {
		t.Errorf("the answers are %+v, want one of the dialog", a)
	}
}
