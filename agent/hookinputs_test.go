package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestHookInputMembers checks the common members of the inputs of hooks, and the order of the hooks, as the
// official command has them.
func TestHookInputMembers(t *testing.T) {
	dir, _ := workdir(t)
	write(t, filepath.Join(dir, "CLAUDE.md"), "Be kind.")
	write(t, filepath.Join(dir, "sub", "CLAUDE.md"), "Be bold.")
	write(t, filepath.Join(dir, "sub", "f.txt"), "x")
	var mu sync.Mutex
	var heard []string
	hear := func(in wire.HookInput, more ...string) (*wire.HookOutput, error) {
		mu.Lock()
		defer mu.Unlock()
		b := in.Base()
		text := string(in.Event())
		if b.PromptID != "" {
			text += " prompt"
		}
		if b.PermissionMode != "" {
			text += " mode"
		}
		if b.Effort != nil {
			text += " " + string(b.Effort.Level)
		}
		heard = append(heard, strings.Join(append([]string{text}, more...), " "))
		return nil, nil
	}
	synctest.Test(t, func(t *testing.T) {
		m := parleytest.Script(
			parleytest.Call("Read", map[string]string{"file_path": filepath.Join(dir, "sub", "f.txt")}),
			parleytest.Say("one").Usage(parleytest.Usage{Input: 1_000_000, Output: 10}),
			summary("S"),
			parleytest.Say("two"),
		).Model()
		opts := &parley.Options{Cwd: dir, Model: "opus", SettingSources: []string{"project"},
			Dialer: agent.InProcess(agent.Config{Model: m, Store: &session.Memory{}, Environ: []string{"DISABLE_AUTO_COMPACT=1"}})}
		opts.Hooks = []parley.Hook{
			parley.On("", func(_ context.Context, in *wire.InstructionsLoadedInput) (*wire.HookOutput, error) {
				trigger := ""
				if in.TriggerFilePath != "" {
					trigger = " for " + filepath.Base(in.TriggerFilePath)
				}
				return hear(in, in.LoadReason+trigger)
			}),
			parley.On("", func(_ context.Context, in *wire.UserPromptSubmitInput) (*wire.HookOutput, error) { return hear(in) }),
			parley.On("", func(_ context.Context, in *wire.PreToolUseInput) (*wire.HookOutput, error) { return hear(in) }),
			parley.On("", func(_ context.Context, in *wire.PostToolUseInput) (*wire.HookOutput, error) { return hear(in) }),
			parley.On("", func(_ context.Context, in *wire.PostToolBatchInput) (*wire.HookOutput, error) { return hear(in) }),
			parley.On("", func(_ context.Context, in *wire.StopInput) (*wire.HookOutput, error) { return hear(in) }),
			parley.On("", func(_ context.Context, in *wire.PreModelSwitchInput) (*wire.HookOutput, error) {
				return hear(in, fmt.Sprintf("%d tokens, $%.4f", in.ContextTokens, in.EstimatedCacheWriteUSD))
			}),
			parley.On("", func(_ context.Context, in *wire.PostModelSwitchInput) (*wire.HookOutput, error) { return hear(in) }),
			parley.On("", func(_ context.Context, in *wire.PreCompactInput) (*wire.HookOutput, error) { return hear(in) }),
			parley.On("", func(_ context.Context, in *wire.PostCompactInput) (*wire.HookOutput, error) { return hear(in) }),
			parley.On("", func(_ context.Context, in *wire.SessionStartInput) (*wire.HookOutput, error) {
				return hear(in, in.Source)
			}),
		}
		c, err := parley.Connect(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		say := func(text string) {
			t.Helper()
			if _, err := run(t, c, text); err != nil {
				t.Fatal(err)
			}
		}
		say("one")
		if _, err := c.SetModel(t.Context(), "claude-sonnet-4-6"); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		say("/compact")
		say("two")
	})
	want := `InstructionsLoaded session_start
UserPromptSubmit prompt mode
PreToolUse prompt mode medium
PostToolUse prompt mode medium
InstructionsLoaded prompt medium nested_traversal for f.txt
PostToolBatch prompt mode medium
Stop prompt mode medium
PreModelSwitch prompt 1000010 tokens, $3.7500
PostModelSwitch prompt
PreCompact prompt
SessionStart prompt compact
PostCompact prompt
InstructionsLoaded prompt compact
UserPromptSubmit prompt mode
Stop prompt mode high`
	if got := strings.Join(heard, "\n"); got != want {
		t.Errorf("the hooks heard\n%s\nwant\n%s", got, want)
	}
}

// TestBatchHookSeesBlocks checks that hooks receive the content blocks of a result as they are.
func TestBatchHookSeesBlocks(t *testing.T) {
	var seen json.RawMessage
	opts, _, _ := inProcess(t, parleytest.Script(parleytest.Call("mcp__kit__look", `{}`), parleytest.Say("done")))
	opts.AllowedTools = []string{"mcp__kit__look"}
	look := parley.NewTool("look", "Looks.", func(context.Context, struct{}) (string, error) { return "seen", nil })
	opts.ToolServers = map[string]*mcp.Server{"kit": parley.ToolServer("kit", look)}
	opts.Hooks = []parley.Hook{parley.On("", func(_ context.Context, in *wire.PostToolBatchInput) (*wire.HookOutput, error) {
		seen = in.ToolCalls[0].ToolResponse
		return nil, nil
	})}
	if _, err := parley.Run(t.Context(), "look", opts); err != nil {
		t.Fatal(err)
	}
	if want := `[{"type":"text","text":"seen"}]`; string(seen) != want {
		t.Errorf("the hook saw %s, want %s", seen, want)
	}
}

// TestStopHookOfStructuredOutput checks that Stop hooks also run before the model is reminded of its tool.
func TestStopHookOfStructuredOutput(t *testing.T) {
	var heard []string
	opts, _, _ := inProcess(t, parleytest.Script(parleytest.Say("one"), parleytest.Call("StructuredOutput", `{"n":1}`)))
	opts.OutputSchema = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
	opts.Hooks = []parley.Hook{parley.On("", func(_ context.Context, in *wire.StopInput) (*wire.HookOutput, error) {
		heard = append(heard, fmt.Sprintf("%v %q", in.StopHookActive, in.LastAssistantMessage))
		return nil, nil
	})}
	if _, err := parley.Run(t.Context(), "one", opts); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(heard, ", "), `false "one", true ""`; got != want {
		t.Errorf("the hooks heard %s, want %s", got, want)
	}
}
