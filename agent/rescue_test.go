package agent

import (
	"bytes"
	"strings"
	"testing"

	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/wire"
)

// TestPanicFailsTheRequest checks that a panic in a handler fails its request and nothing else.
// The server has no conversation, so that handlers which use it panic.
func TestPanicFailsTheRequest(t *testing.T) {
	for _, req := range []wire.Request{&wire.GetSettings{}, &wire.FileSuggestions{}} { // by the reader, and beside it
		var out, stderr bytes.Buffer
		s := newServer(&setup{flags: &cli.Flags{}}, newOutbox(&out), &stderr)
		s.control(&wire.ControlRequest{RequestID: "r", Request: req})
		s.jobs.Wait()
		if err := s.out.close(); err != nil {
			t.Fatal(err)
		}
		m, err := wire.Decode(bytes.TrimSpace(out.Bytes()))
		if r, ok := m.(*wire.ControlResponse); err != nil || !ok || r.Response.Subtype != "error" || r.Response.RequestID != "r" {
			t.Errorf("%s: %q, %v", req.Subtype(), out.String(), err)
		}
		if !strings.Contains(stderr.String(), "goroutine") {
			t.Errorf("%s: standard error has no stack: %q", req.Subtype(), stderr.String())
		}
	}
}
