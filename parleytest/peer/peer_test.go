package peer_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/parleytest/peer"
	"github.com/parley-go/parley/transport"
)

func TestMain(m *testing.M) {
	peer.RunIfChild()
	goleak.VerifyTestMain(m)
}

// host is a small host: it sends initialize and a prompt, allows every permission
// and reads to the end of the output.
type host struct {
	inner    bool // ask mcp_status before a permission is allowed
	silent   bool // answer no permission
	messages int
	bad      int // lines that are not JSON
	results  []string
	longest  int
}

func (h *host) run(r io.Reader, w io.WriteCloser) error {
	// A peer that does not read must not stop this host: one goroutine writes.
	lines := make(chan string, 100)
	defer close(lines)
	go func() {
		for l := range lines {
			if l == "" {
				w.Close()
				continue
			}
			fmt.Fprintln(w, l)
		}
	}()
	send := func(l string) { lines <- l }
	send(`{"type":"control_request","request_id":"1","request":{"subtype":"initialize","hooks":null}}`)
	send(`{"type":"user","session_id":"","message":{"role":"user","content":"hi"},"parent_tool_use_id":null}`)
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadBytes('\n')
		h.longest = max(h.longest, len(line))
		var f struct {
			Type      string `json:"type"`
			RequestID string `json:"request_id"`
			Request   struct {
				Subtype string `json:"subtype"`
			} `json:"request"`
			Result string `json:"result"`
		}
		if len(line) > 1<<20 {
			h.messages++ // decoding it would take its time
		} else if len(bytes.TrimSpace(line)) > 0 {
			var shape *json.UnmarshalTypeError
			if jerr := json.Unmarshal(line, &f); jerr != nil && !errors.As(jerr, &shape) {
				h.bad++
			}
			h.messages++
		}
		switch {
		case f.Type == "control_request" && f.Request.Subtype != "can_use_tool":
			send(fmt.Sprintf(`{"type":"control_response","response":{"subtype":"error","request_id":%q,"error":"unsupported"}}`, f.RequestID))
		case f.Type == "control_request" && !h.silent:
			if h.inner {
				send(`{"type":"control_request","request_id":"2","request":{"subtype":"mcp_status"}}`)
			}
			send(fmt.Sprintf(`{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":{"behavior":"allow","updatedInput":{}}}}`, f.RequestID))
		case f.Type == "result":
			h.results = append(h.results, f.Result)
			send("")
		}
		if err != nil {
			return err
		}
	}
}

func TestDieAfterEveryFrame(t *testing.T) {
	f := peer.Fault("die-after-frame")
	for n := range f.Frames() + 1 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			d := &peer.Dialer{Script: f.With("n", fmt.Sprint(n)), Done: func(_ *peer.Report, err error) {
				if err != nil {
					t.Error(err)
				}
			}}
			c, err := d.Dial(t.Context(), transport.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			h := host{}
			_ = h.run(c, closeWriter{c})
			exit, err := c.Wait(t.Context())
			if err != nil || exit.Signal != "killed" || exit.Code != -1 {
				t.Errorf("%+v, %v", exit, err)
			}
			if got, want := len(h.results), 0; n == f.Frames() != (got == 1) {
				t.Errorf("%d results, want %d", got, want)
			}
			c.Close(t.Context())
		})
	}
}

type closeWriter struct{ transport.Conn }

func (c closeWriter) Close() error { return c.CloseWrite() }

// TestFaultsInMemory plays what needs no process over a dialer, in virtual time.
func TestFaultsInMemory(t *testing.T) {
	for _, f := range peer.Faults() {
		if f.NeedsProcess() {
			if _, err := (&peer.Dialer{Script: f}).Dial(t.Context(), transport.Spec{}); !errors.Is(err, peer.ErrNeedsProcess) {
				t.Errorf("%s: %v", f.Name, err)
			}
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if f.Name == "long-line" {
					f = f.With("size", "2MB")
				}
				d := &peer.Dialer{Script: f, Done: func(_ *peer.Report, err error) {
					if err != nil {
						t.Error(err)
					}
				}}
				c, err := d.Dial(t.Context(), transport.Spec{})
				if err != nil {
					t.Fatal(err)
				}
				h := host{inner: f.Name == "ask-inside-callback", silent: f.Name == "cancel-request"}
				go func() { _ = h.run(c, closeWriter{c}) }()
				time.Sleep(time.Second)
				if err := c.Close(t.Context()); err != nil {
					t.Error(err)
				}
				exit, err := c.Wait(t.Context())
				if err != nil {
					t.Error(err)
				}
				hangs := map[string]bool{"ignore-eof": true, "stop-reading": true, "close-stdout": true, "result-then-hang": true}
				if got := exit.Step == transport.StepTerminate; got != hangs[f.Name] {
					t.Errorf("exit %+v", exit)
				}
			})
		})
	}
}
