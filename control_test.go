package parley_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/wire"
)

// TestControls calls every method that sends a control request, and checks the request
// and the result.
func TestControls(t *testing.T) {
	ctx := context.Background()
	nothing := func(err error) (any, error) { return nil, err }
	tests := map[string]struct {
		request string // as in a script
		answer  string
		call    func(c *parley.Client) (any, error)
		want    any
	}{
		"Interrupt": {
			`{"subtype":"interrupt","cancel_queued":"$absent"}`, `{"still_queued":["a"]}`,
			func(c *parley.Client) (any, error) { return c.Interrupt(ctx) },
			&wire.InterruptResponse{StillQueued: []string{"a"}},
		},
		"InterruptAll": {
			`{"subtype":"interrupt","cancel_queued":true}`, `{"still_queued":[],"cancelled":["a"]}`,
			func(c *parley.Client) (any, error) { return c.InterruptAll(ctx) },
			&wire.InterruptResponse{StillQueued: []string{}, Cancelled: []string{"a"}},
		},
		"SetModel": {
			`{"subtype":"set_model","model":"opus"}`, `{"model":"claude-opus-9"}`,
			func(c *parley.Client) (any, error) { return c.SetModel(ctx, "opus") },
			&wire.SetModelResponse{Model: "claude-opus-9"},
		},
		"SetModel to the default": {
			`{"subtype":"set_model","model":"$absent"}`, `{}`,
			func(c *parley.Client) (any, error) { return c.SetModel(ctx, "") },
			&wire.SetModelResponse{},
		},
		"SetPermissionMode": {
			`{"subtype":"set_permission_mode","mode":"acceptEdits"}`, `{"mode":"acceptEdits"}`,
			func(c *parley.Client) (any, error) { return c.SetPermissionMode(ctx, wire.ModeAcceptEdits) },
			&wire.SetPermissionModeResponse{Mode: wire.ModeAcceptEdits},
		},
		"SetMaxThinkingTokens": {
			`{"subtype":"set_max_thinking_tokens","max_thinking_tokens":0}`, `{}`,
			func(c *parley.Client) (any, error) { return nothing(c.SetMaxThinkingTokens(ctx, 0)) },
			nil,
		},
		"ResetMaxThinkingTokens": {
			`{"subtype":"set_max_thinking_tokens"}`, ``,
			func(c *parley.Client) (any, error) { return nothing(c.ResetMaxThinkingTokens(ctx)) },
			nil,
		},
		"MCPStatus": {
			`{"subtype":"mcp_status"}`, `{"mcpServers":[{"name":"db","status":"connected"}]}`,
			func(c *parley.Client) (any, error) { return c.MCPStatus(ctx) },
			[]*wire.MCPServerStatus{{Name: "db", Status: wire.MCPConnected}},
		},
		"MCPStatus as an array": {
			`{"subtype":"mcp_status"}`, `[{"name":"db","status":"failed"}]`,
			func(c *parley.Client) (any, error) { return c.MCPStatus(ctx) },
			[]*wire.MCPServerStatus{{Name: "db", Status: "failed"}},
		},
		"SetMCPServers": {
			`{"subtype":"mcp_set_servers","servers":{"db":{"command":"dbd"}}}`, `{"added":["db"],"removed":[],"errors":{}}`,
			func(c *parley.Client) (any, error) {
				return c.SetMCPServers(ctx, map[string]*wire.MCPServerConfig{"db": {Command: "dbd"}})
			},
			&wire.MCPSetServersResponse{Added: []string{"db"}, Removed: []string{}, Errors: map[string]string{}},
		},
		"ReconnectMCPServer": {
			`{"subtype":"mcp_reconnect","serverName":"db"}`, `{}`,
			func(c *parley.Client) (any, error) { return nothing(c.ReconnectMCPServer(ctx, "db")) },
			nil,
		},
		"ToggleMCPServer": {
			`{"subtype":"mcp_toggle","serverName":"db","enabled":false}`, `{}`,
			func(c *parley.Client) (any, error) { return nothing(c.ToggleMCPServer(ctx, "db", false)) },
			nil,
		},
		"ContextUsage": {
			`{"subtype":"get_context_usage"}`, `{"totalTokens":12,"maxTokens":100,"model":"m","categories":[]}`,
			func(c *parley.Client) (any, error) {
				u, err := c.ContextUsage(ctx)
				return []any{u.TotalTokens, u.Model}, err
			},
			[]any{int64(12), "m"},
		},
		"Settings": {
			`{"subtype":"get_settings"}`, `{"effective":{"model":"m"}}`,
			func(c *parley.Client) (any, error) {
				s, err := c.Settings(ctx)
				return string(s.Effective), err
			},
			`{"model":"m"}`,
		},
		"ApplySettings": {
			`{"subtype":"apply_flag_settings","settings":{"model":null,"a":[1]}}`, `{}`,
			func(c *parley.Client) (any, error) {
				return nothing(c.ApplySettings(ctx, map[string]json.RawMessage{"model": json.RawMessage("null"), "a": json.RawMessage("[1]")}))
			},
			nil,
		},
		"RewindFiles": {
			`{"subtype":"rewind_files","user_message_id":"u","dry_run":true}`, `{"canRewind":true,"filesChanged":["a"],"insertions":1}`,
			func(c *parley.Client) (any, error) { return c.RewindFiles(ctx, "u", true) },
			&wire.RewindFilesResponse{CanRewind: true, FilesChanged: []string{"a"}, Insertions: new(int64(1))},
		},
		"StopTask": {
			`{"subtype":"stop_task","task_id":"t"}`, `{}`,
			func(c *parley.Client) (any, error) { return nothing(c.StopTask(ctx, "t")) },
			nil,
		},
		"CancelMessage": {
			`{"subtype":"cancel_async_message","message_uuid":"u"}`, `{"cancelled":true}`,
			func(c *parley.Client) (any, error) { return c.CancelMessage(ctx, "u") },
			true,
		},
		"Call": {
			`{"subtype":"rename_session","title":"T"}`, `{}`,
			func(c *parley.Client) (any, error) { return nothing(c.Call(ctx, &wire.RenameSession{Title: "T"}, nil)) },
			nil,
		},
		"Reinitialize": {
			`{"subtype":"initialize","systemPrompt":[""]}`, `{"output_style":"x"}`,
			func(c *parley.Client) (any, error) {
				r, err := c.Reinitialize(ctx)
				return r.OutputStyle, err
			},
			"x",
		},
	}
	client := reflect.TypeFor[*parley.Client]()
	for method := range client.Methods() {
		switch method.Name {
		case "Run", "Turn", "TurnMessage", "Send", "SendToolResult", "Messages", "Close", "Shutdown", "LastInit", "InitializeResponse":
			continue // not control requests
		}
		if _, ok := tests[method.Name]; !ok {
			t.Errorf("no row for Client.%s", method.Name)
		}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				payload := `,"response":` + tt.answer
				if tt.answer == "" {
					payload = ""
				}
				c := connect(t, plays(t, hello+`
					< {"type":"control_request","request_id":"$r","request":`+tt.request+`}
					> {"type":"control_response","response":{"subtype":"success","request_id":"$r"`+payload+`}}
					< eof
				`))
				got, err := tt.call(c)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got, tt.want) {
					t.Errorf("got %#v, want %#v", got, tt.want)
				}
			})
		})
	}
}

// TestControlErrors checks rejections, unreadable responses, duplicate responses and the
// end of the agent.
func TestControlErrors(t *testing.T) {
	const request = "< {\"type\":\"control_request\",\"request_id\":\"$r\",\"request\":{\"subtype\":\"mcp_status\"}}\n"
	status := func(t *testing.T, c *parley.Client) error {
		_, err := c.MCPStatus(t.Context())
		return err
	}
	t.Run("refused", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := connect(t, plays(t, hello+request+`> {"type":"control_response","response":{"subtype":"error","request_id":"$r","error":"come back later","error_code":"busy"}}`+"\n< eof\n"))
			var refused *parley.ControlError
			if err := status(t, c); !errors.As(err, &refused) || *refused != (parley.ControlError{Subtype: "mcp_status", Message: "come back later", Code: "busy"}) {
				t.Errorf("got %v", err)
			}
		})
	})
	t.Run("unreadable", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := connect(t, plays(t, hello+request+`> {"type":"control_response","response":{"subtype":"success","request_id":"$r","response":"fine"}}`+"\n< eof\n"))
			var odd *parley.ProtocolError
			if err := status(t, c); !errors.As(err, &odd) || len(odd.Frames) == 0 {
				t.Errorf("got %v", err)
			}
		})
	})
	t.Run("twice", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			const ok = `> {"type":"control_response","response":{"subtype":"success","request_id":"$r","response":{"mcpServers":[]}}}` + "\n"
			const second = "< {\"type\":\"control_request\",\"request_id\":\"$s\",\"request\":{\"subtype\":\"mcp_status\"}}\n"
			c := connect(t, plays(t, hello+request+ok+ok+second+strings.ReplaceAll(ok, "$r", "$s")+"< eof\n"))
			for range 2 {
				if err := status(t, c); err != nil {
					t.Error(err)
				}
			}
		})
	})
	t.Run("exit", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := connect(t, plays(t, hello+request+"stderr no more\nexit 4\n"))
			var exit *parley.ExitError
			if err := status(t, c); !errors.As(err, &exit) || exit.Code != 4 || !strings.Contains(err.Error(), "no more") {
				t.Errorf("got %v", err)
			}
		})
	})
	t.Run("answer just before the exit", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := connect(t, plays(t, hello+request+`> {"type":"control_response","response":{"subtype":"success","request_id":"$r"}}`+"\nexit 4\n"))
			if err := status(t, c); err != nil {
				t.Errorf("got %v", err)
			}
		})
	})
	t.Run("context", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := connect(t, plays(t, hello+request+`< {"type":"control_cancel_request","request_id":"$r"}`+"\n< eof\n"))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := c.MCPStatus(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			time.Sleep(time.Second) // for the request to be withdrawn
		})
	})
}

// TestControlTimeout checks that a request without a response times out, and is
// withdrawn.
func TestControlTimeout(t *testing.T) {
	for _, limit := range []time.Duration{0, 7 * time.Second} {
		bubble(t, func(t *testing.T) {
			opts := plays(t, hello+`
				timeout 2m
				< {"type":"control_request","request_id":"$r","request":{"subtype":"mcp_status"}}
				< {"type":"control_cancel_request","request_id":"$r"}
				> {"type":"control_response","response":{"subtype":"success","request_id":"$r"}}
				< {"type":"user"}
				`+done+`
				< eof
			`)
			opts.ControlTimeout = limit
			c := connect(t, opts)
			start := time.Now()
			_, err := c.MCPStatus(t.Context())
			want := limit
			if limit == 0 {
				want = time.Minute
			}
			var late *parley.TimeoutError
			if !errors.As(err, &late) || late.What != "mcp_status" || late.After != want || time.Since(start) != want || len(late.Frames) == 0 {
				t.Errorf("got %v after %v", err, time.Since(start))
			}
			wantResult(t, turn(t, c, "the client goes on"), "done")
		})
	}
}

// TestUnknownResponseSubtype checks that a response that is neither success nor error is
// not a success.
func TestUnknownResponseSubtype(t *testing.T) {
	for _, subtype := range []string{"partial", ""} {
		bubble(t, func(t *testing.T) {
			c := connect(t, plays(t, hello+`
				< {"type":"control_request","request_id":"$r","request":{"subtype":"set_model"}}
				> {"type":"control_response","response":{"subtype":"`+subtype+`","request_id":"$r","response":{}}}
				< eof
			`))
			var broken *parley.ProtocolError
			if _, err := c.SetModel(t.Context(), "x"); !errors.As(err, &broken) || !strings.Contains(err.Error(), "set_model") {
				t.Errorf("SetModel: %v", err)
			}
		})
	}
}
