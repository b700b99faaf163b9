package parrot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/parleytest/parrot"
	"github.com/parley-go/parley/parleytest/peer"
	"github.com/parley-go/parley/transport"
)

// closeWriter ends the input of a connection when it is closed.
type closeWriter struct{ transport.Conn }

func (c closeWriter) Close() error { return c.CloseWrite() }

// The agent is tested by the other kind of peer.
func TestAgent(t *testing.T) {
	const session = `"session_id":"5e551011-0000-4000-8000-000000000001"`
	tests := map[string]string{
		"echo": `
> {"type":"user","message":{"role":"user","content":[{"type":"text","text":"echo "},{"type":"text","text":"a <b> \"c\""}]}}
< {"type":"system","subtype":"init",` + session + `,"model":"claude-fake-1","permissionMode":"default"}
< {"type":"assistant","message":{"content":[{"type":"text","text":"a <b> \"c\""}]},` + session + `}
< {"type":"result","subtype":"success","is_error":false,"result":"a <b> \"c\"","result_index":0}
> {"type":"user","message":{"role":"user","content":"just text"}}
< {"type":"system","subtype":"init"}
< {"type":"assistant"}
< {"type":"result","result":"just text","result_index":1}`,
		"deltas": `
> {"type":"user","message":{"role":"user","content":"deltas 3"}}
< {"type":"system","subtype":"init"}
< {"type":"stream_event","event":{"type":"message_start"}}
< {"type":"stream_event","event":{"type":"content_block_start"}}
< {"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":" token"}},"uuid":"$~0001$"}
< {"type":"stream_event","event":{"type":"content_block_delta"},"uuid":"$~0002$"}
< {"type":"stream_event","event":{"type":"content_block_delta"},"uuid":"$~0003$"}
< {"type":"assistant","message":{"content":[{"type":"text","text":" token token token"}]}}
< {"type":"stream_event","event":{"type":"content_block_stop"}}
< {"type":"stream_event","event":{"type":"message_delta"}}
< {"type":"stream_event","event":{"type":"message_stop"}}
< {"type":"result","result":" token token token"}`,
		"messages": `
> {"type":"user","message":{"role":"user","content":"messages 100 2400"}}
< {"type":"system","subtype":"init"}
repeat 100
< {"type":"assistant","message":{"content":[{"text":"$~^[a-z ]{1000}[a-z ]{1000}[a-z ]{400}$"}]}}
end
< {"type":"result","result":"100 messages"}`,
		"permissions": `
> {"type":"user","message":{"role":"user","content":"permissions 3"}}
< {"type":"system","subtype":"init"}
< {"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"}]}}
< {"type":"control_request","request_id":"$a","request":{"subtype":"can_use_tool","tool_name":"Bash"}}
> {"type":"control_response","response":{"subtype":"success","request_id":"somebody else","response":{"behavior":"allow"}}}
> {"type":"control_response","response":{"subtype":"success","request_id":"$a","response":{"behavior":"allow"}}}
< {"type":"control_request","request_id":"$b","request":{"subtype":"can_use_tool"}}
> {"type":"control_response","response":{"subtype":"success","request_id":"$b","response":{"behavior":"deny","message":"no"}}}
< {"type":"control_request","request_id":"$c","request":{"subtype":"can_use_tool"}}
> {"type":"control_response","response":{"subtype":"success","request_id":"$c","response":{"behavior":"allow"}}}
< {"type":"result","result":"allowed 2 of 3"}`,
		"interrupted permission": `
> {"type":"user","message":{"role":"user","content":"permissions 3"}}
< ...
< {"type":"control_request","request_id":"$a"}
> {"type":"control_request","request_id":"x","request":{"subtype":"interrupt"}}
< {"type":"control_cancel_request","request_id":"$a"}
< {"type":"control_response","response":{"subtype":"success","request_id":"x","response":{"still_queued":[]}}}
< {"type":"user","message":{"content":[{"text":"[Request interrupted by user]"}]}}
< {"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_streaming"}`,
		"interrupted sleep": `
> {"type":"user","message":{"role":"user","content":"sleep 1h"}}
< {"type":"system","subtype":"init"}
> {"type":"control_request","request_id":"x","request":{"subtype":"interrupt"}}
< {"type":"control_response","response":{"request_id":"x"}}
< {"type":"user"}
< {"type":"result","subtype":"error_during_execution"}
> {"type":"control_request","request_id":"y","request":{"subtype":"interrupt"}}
< {"type":"control_response","response":{"request_id":"y","subtype":"success"}}`,
		"controls": `
> {"type":"keep_alive"}
> {"type":"control_request","request_id":"1","request":{"subtype":"initialize","hooks":{"Stop":[]}}}
< {"type":"control_response","response":{"subtype":"success","request_id":"1","response":{"commands":["$_","..."],"models":["$_"],"hooks_applied":true},"pending_permission_requests":[]}}
> {"type":"control_request","request_id":"2","request":{"subtype":"set_model","model":"big"}}
< {"type":"control_response","response":{"subtype":"success","request_id":"2","response":{"model":"big"}}}
> {"type":"control_request","request_id":"3","request":{"subtype":"set_model","model":5}}
< {"type":"control_response","response":{"subtype":"error","request_id":"3","error_code":"invalid_request"}}
> {"type":"control_request","request_id":"4","request":{"subtype":"set_permission_mode","mode":"manual"}}
< {"type":"control_response","response":{"subtype":"success","request_id":"4","response":{"mode":"default"}}}
< {"type":"system","subtype":"status","permissionMode":"default"}
> {"type":"control_request","request_id":"5","request":{"subtype":"set_permission_mode","mode":"reckless"}}
< {"type":"control_response","response":{"subtype":"error","request_id":"5","error_code":"invalid_mode"}}
> {"type":"control_request","request_id":"6","request":{"subtype":"mcp_status"}}
< {"type":"control_response","response":{"subtype":"success","response":{"mcpServers":[{"name":"files","status":"connected"}]}}}
> {"type":"control_request","request_id":"7","request":{"subtype":"mcp_set_servers","servers":{"x":{}}}}
< {"type":"control_response","response":{"response":{"added":["x"],"removed":[],"errors":{}}}}
> {"type":"control_request","request_id":"8","request":{"subtype":"mcp_toggle","serverName":"nope","enabled":true}}
< {"type":"control_response","response":{"subtype":"error","error":"Server not found: nope"}}
> {"type":"control_request","request_id":"9","request":{"subtype":"rename_session","title":"T"}}
< {"type":"system","subtype":"session_title_changed","title":"T"}
< {"type":"control_response","response":{"subtype":"success","request_id":"9","response":"$absent"}}
> {"type":"control_request","request_id":"10","request":{"subtype":"set_color"}}
< {"type":"control_response","response":{"subtype":"error","error":"Unsupported control request subtype: set_color","error_code":"unsupported_request"}}
> {"type":"user","message":{"role":"user","content":"hi"}}
< {"type":"system","subtype":"init","model":"big"}
< {"type":"assistant"}
< {"type":"result","modelUsage":{"big":"$_"}}
> {"type":"control_request","request_id":"11","request":{"subtype":"end_session"}}
< {"type":"control_response","response":{"subtype":"success","request_id":"11"}}`,
		"input ends first": `
> {"type":"user","message":{"role":"user","content":"permissions 5"}}
close
< ...
< {"type":"result","result":"$~^allowed 0 of 5"}`,
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := peer.AgentDialer(parrot.Agent{}).Dial(t.Context(), transport.Spec{})
				if err != nil {
					t.Fatal(err)
				}
				s := peer.MustParse("host", "-- steps --"+steps+"\nclose\n< eof\n")
				if _, err := peer.Play(t.Context(), s, c, closeWriter{c}, nil); err != nil {
					t.Error(err)
				}
				if err := c.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestAgentClosed(t *testing.T) {
	// Closing ends it in every state: asleep, asking, or blocked in a write.
	for _, prompt := range []string{"sleep 10h", "permissions 3", "deltas 100000"} {
		synctest.Test(t, func(t *testing.T) {
			c, err := peer.AgentDialer(parrot.Agent{}).Dial(t.Context(), transport.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, `{"type":"user","message":{"role":"user","content":%q}}`+"\n", prompt)
			time.Sleep(time.Second)
			if err := c.Close(t.Context()); err != nil {
				t.Errorf("%s: %v", prompt, err)
			}
		})
	}
}

// TestAgentLines checks every line of much output.
func TestAgentLines(t *testing.T) {
	var out bytes.Buffer
	in := `{"type":"user","message":{"content":"deltas 5000"}}` + "\n" + `{"type":"user","message":{"content":"messages 500 100"}}`
	if _, err := (parrot.Agent{}).Serve(t.Context(), strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	uuids := make(map[string]bool)
	lines, deltas, messages := 0, 0, 0
	for line := range bytes.Lines(out.Bytes()) {
		var m struct {
			Type  string `json:"type"`
			UUID  string `json:"uuid"`
			Event struct {
				Type string `json:"type"`
			} `json:"event"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		lines++
		switch {
		case m.Event.Type == "content_block_delta":
			deltas++
			if uuids[m.UUID] {
				t.Fatalf("uuid %s twice", m.UUID)
			}
			uuids[m.UUID] = true
		case m.Type == "assistant":
			messages++
		}
	}
	if deltas != 5000 || messages != 501 || lines != 2+5000+6+500+2 {
		t.Errorf("%d lines, %d deltas, %d messages", lines, deltas, messages)
	}
	if code := parrot.ServeMain(nil, strings.NewReader("{oops\n"), io.Discard); code != 1 {
		t.Errorf("bad input: exit %d", code)
	}
}

func BenchmarkAgentDeltas(b *testing.B) {
	in := fmt.Sprintf(`{"type":"user","message":{"content":"deltas %d"}}`, b.N)
	if _, err := (parrot.Agent{}).Serve(b.Context(), strings.NewReader(in), io.Discard); err != nil {
		b.Fatal(err)
	}
}

func ExampleAgent() {
	in := strings.NewReader(`{"type":"user","message":{"role":"user","content":"messages 2 5"}}` + "\n")
	var out bytes.Buffer
	failed, err := parrot.Agent{}.Serve(context.Background(), in, &out)
	fmt.Println(strings.Count(out.String(), `"type":"assistant"`), failed, err)
	// Output: 2 false <nil>
}
