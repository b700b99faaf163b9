package agent_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/internal/malformed"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestMalformedRequests checks that every request of a host gets a response, whatever its
// members are, and that the conversation continues.
func TestMalformedRequests(t *testing.T) {
	for _, req := range []wire.Request{
		&wire.Initialize{}, &wire.Interrupt{}, &wire.SetPermissionMode{}, &wire.SetModel{}, &wire.SetMaxThinkingTokens{}, &wire.MCPStatus{},
		&wire.MCPSetServers{}, &wire.MCPReconnect{}, &wire.MCPToggle{}, &wire.SetMCPPermissionModeOverride{}, &wire.MCPMessage{}, &wire.MCPReadResource{},
		&wire.MCPCall{}, &wire.MCPAuthenticate{}, &wire.MCPOAuthCallbackURL{}, &wire.MCPClearAuth{}, &wire.GetContextUsage{}, &wire.GetUsage{},
		&wire.GetSettings{}, &wire.ApplyFlagSettings{}, &wire.UpdateSettings{}, &wire.GetHooksListing{}, &wire.ListPermissionRules{}, &wire.RewindFiles{},
		&wire.ReadFile{}, &wire.SeedReadState{}, &wire.FileSuggestions{}, &wire.RegisterRepoRoot{}, &wire.ReloadPlugins{}, &wire.StopTask{},
		&wire.BackgroundTasks{}, &wire.GetTaskOutput{}, &wire.CancelAsyncMessage{}, &wire.RenameSession{}, &wire.SetHasSubscribers{},
		&wire.GenerateSessionTitle{}, &wire.SideQuestion{}, &wire.CanUseTool{}, &wire.HookCallback{},
	} {
		t.Run(req.Subtype(), func(t *testing.T) {
			t.Parallel()
			m := parleytest.Script().Default(parleytest.Say("ok")).Model()
			a := start(t, agent.Config{Model: m, Store: &session.Memory{}, Cwd: t.TempDir(), Environ: []string{"HOME=" + t.TempDir(), "CLAUDE_CONFIG_DIR=" + t.TempDir()}}, streaming)
			values := malformed.Values(reflect.TypeOf(req), 3)
			answered := map[string]bool{}
			read := make(chan *wire.Result)
			go func() {
				defer close(read)
				lines := wire.NewReader(a.stdout, nil)
				for {
					m, err := lines.Next()
					if err != nil {
						return
					}
					switch m := m.(type) {
					case *wire.ControlRequest: // a call of a hook
						fmt.Fprintf(a.stdin, `{"type":"control_response","response":{"subtype":"error","request_id":%q,"error":"no"}}`+"\n", m.RequestID)
					case *wire.ControlResponse:
						answered[m.Response.RequestID] = true
					case *wire.Result:
						read <- m
					}
				}
			}()
			sent := map[string]string{}
			if req.Subtype() == "initialize" {
				values = append(values, `{"permissionUpdates":[null]}`, `{"informModel":[null]}`)
			}
			for i, v := range values {
				if v[0] != '{' || v == "{}" && i > 3 {
					continue
				}
				line := fmt.Sprintf(`{"type":"control_request","request_id":"r%d","request":%s}`, i, `{"subtype":"`+req.Subtype()+`",`+v[1:])
				line = strings.Replace(line, `",}}`, `"}}`, 1)
				if !json.Valid([]byte(line)) {
					t.Fatal(line)
				}
				sent[fmt.Sprint("r", i)] = line
				io.WriteString(a.stdin, line+"\n")
			}
			io.WriteString(a.stdin, hello+"\n")
			if r := <-read; r == nil {
				t.Errorf("the conversation ended: %s", a.stderr.String())
			}
			a.stdin.Close()
			for range read {
			}
			if code := a.wait(); code != 0 && code != 1 || strings.Contains(a.stderr.String(), "goroutine") {
				t.Errorf("exit status %d: %s", code, a.stderr.String())
			}
			for id, line := range sent {
				if !answered[id] {
					t.Errorf("no response to %s", line)
				}
			}
		})
	}
}

// TestMalformedAnswers checks that a malformed answer to a permission request or a hook does not
// end the conversation, and that a call runs only if it was allowed.
func TestMalformedAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		args   []string
		answer reflect.Type
		begin  string // of the answer
		runs   bool   // the call may run
	}{
		"permission":         {nil, reflect.TypeFor[wire.PermissionResult](), ``, false},
		"permission allowed": {nil, reflect.TypeFor[wire.PermissionResult](), `"behavior":"allow",`, true},
		"hook":               {nil, reflect.TypeFor[wire.HookOutput](), ``, false},
		"hook output":        {nil, reflect.TypeFor[wire.PreToolUseOutput](), `"hookSpecificOutput":{"hookEventName":"PreToolUse",`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			m := parleytest.Script().Default(parleytest.Call("Bash", `{"command":"touch ran"}`)).Model()
			a := start(t, agent.Config{Model: m, Store: &session.Memory{}, Cwd: dir, Environ: []string{"HOME=" + t.TempDir(), "CLAUDE_CONFIG_DIR=" + t.TempDir()}},
				append(streaming[:len(streaming):len(streaming)], "--permission-prompt-tool", "stdio", "--max-turns", "1", "--setting-sources", ""))
			lines := wire.NewReader(a.stdout, nil)
			asksHook := strings.HasPrefix(name, "hook")
			if asksHook {
				io.WriteString(a.stdin, `{"type":"control_request","request_id":"i","request":{"subtype":"initialize","hooks":{"PreToolUse":[{"hookCallbackIds":["h"]}]}}}`+"\n")
			}
			for _, v := range malformed.Values(tt.answer, 3) {
				if tt.begin != "" && v[0] != '{' {
					continue
				}
				if tt.begin != "" {
					v = strings.Replace("{"+tt.begin+v[1:], ",}", "}", 1)
					if strings.HasPrefix(name, "hook") {
						v += "}"
					}
				}
				if !json.Valid([]byte(v)) {
					t.Fatal(v)
				}
				io.WriteString(a.stdin, hello+"\n")
				for over := false; !over; {
					m, err := lines.Next()
					if err != nil {
						t.Fatalf("after %s the conversation ended: %v: %s", v, err, a.stderr.String())
					}
					switch m := m.(type) {
					case *wire.ControlRequest:
						response := v
						if _, hook := m.Request.(*wire.HookCallback); hook != asksHook {
							response = `{"behavior":"deny","message":"no"}`
						}
						fmt.Fprintf(a.stdin, `{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":%s}}`+"\n", m.RequestID, response)
					case *wire.Result:
						over = true
					}
				}
				if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil && !tt.runs {
					t.Errorf("the call ran after %s", v)
					os.Remove(filepath.Join(dir, "ran"))
				}
			}
			a.stdin.Close()
			go io.Copy(io.Discard, a.stdout)
			if code := a.wait(); code != 0 && code != 1 {
				t.Errorf("exit status %d: %s", code, a.stderr.String())
			}
		})
	}
}

// TestMalformedMessages checks that malformed messages of a host crash nothing: the agent
// continues, or ends with an error.
func TestMalformedMessages(t *testing.T) {
	for typ, shape := range map[string]reflect.Type{
		"user": reflect.TypeFor[wire.User](), "assistant": reflect.TypeFor[wire.Assistant](), "control_response": reflect.TypeFor[wire.ControlResponse](),
		"control_request": reflect.TypeFor[wire.ControlRequest](), "control_cancel_request": reflect.TypeFor[wire.ControlCancelRequest](),
		"update_environment_variables": reflect.TypeFor[wire.UpdateEnvironmentVariables](),
		"user message":                 reflect.TypeFor[wire.UserMessage](), "user block": reflect.TypeFor[wire.TextBlock](), "user tool_result": reflect.TypeFor[wire.ToolResultBlock](),
	} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			kind, inner, _ := strings.Cut(typ, " ")
			for _, v := range malformed.Values(shape, 1) {
				if v[0] != '{' {
					continue
				}
				switch inner {
				case "":
					v = `{"type":"` + kind + `",` + v[1:]
				case "message":
					v = `{"type":"user","message":{"role":"user",` + v[1:] + `}`
				case "block":
					v = `{"type":"user","message":{"role":"user","content":[{"type":"text",` + v[1:] + `]}}`
				default:
					v = `{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"x",` + v[1:] + `]}}`
				}
				v = strings.Replace(v, ",}", "}", 1)
				if !json.Valid([]byte(v)) {
					t.Fatal(v)
				}
				m := parleytest.Script().Default(parleytest.Say("ok")).Model()
				got := say(t, agent.Config{Model: m, Store: &session.Memory{}, Cwd: t.TempDir(), Environ: []string{"HOME=" + t.TempDir(), "CLAUDE_CONFIG_DIR=" + t.TempDir()}}, streaming, v, hello)
				if strings.Contains(got.stderr, "goroutine") || got.result == nil && got.code == 0 {
					t.Errorf("%.300s: exit status %d, %s", v, got.code, got.stderr)
				}
			}
		})
	}
}
