package parley_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// TestMessagesBefore checks that a callback knows how many messages came before its
// request.
func TestMessagesBefore(t *testing.T) {
	var before []int64
	opts := &parley.Options{
		Dialer: transport.DialerFunc(func(context.Context, transport.Spec) (transport.Conn, error) {
			host, peer := transport.Pipe()
			go func() {
				defer peer.Exit(0, "")
				lines := wire.NewReader(peer, nil)
				m, _ := lines.Next()
				init := m.(*wire.ControlRequest)
				answer, _ := json.Marshal(map[string]any{"type": "control_response", "response": map[string]any{"subtype": "success", "request_id": init.RequestID, "response": map[string]any{}}})
				peer.Write(append(answer, '\n'))
				for _, line := range []string{
					`{"type":"assistant","message":{"role":"assistant","content":[]}}`, `{"type":"keep_alive"}`, `not a line`,
					`{"type":"assistant","message":{"role":"assistant","content":[]}}`,
					`{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{}}}`,
				} {
					peer.Write([]byte(line + "\n"))
				}
				lines.Next()
				peer.Write([]byte(`{"type":"system","subtype":"status"}` + "\n"))
				peer.Write([]byte(`{"type":"control_request","request_id":"r2","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{}}}` + "\n"))
				lines.Next()
			}()
			return host, nil
		}),
		CanUseTool: func(ctx context.Context, _ *wire.CanUseTool) (*wire.PermissionResult, error) {
			before = append(before, parley.MessagesBefore(ctx))
			return parley.Allow(), nil
		},
	}
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range c.Messages(t.Context()) {
		if err != nil {
			break
		}
		n++
	}
	c.Close()
	if n != 4 || len(before) != 2 || before[0] != 3 || before[1] != 4 {
		t.Errorf("%d messages, before the requests %v, want 4, [3 4]", n, before)
	}
	if got := parley.MessagesBefore(t.Context()); got != 0 {
		t.Errorf("outside of a callback: %d", got)
	}
}
