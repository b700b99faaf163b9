package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/internal/durable"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// The command of two calls passes for one that only reads, and adds a line to the file
// "made". Behind the wall it fails and its result says why. The second call has to leave the
// wall: a person is asked, without an offer for the future. Neither call runs it twice, and
// only the second one waits until its intent, and then its outcome, is on disk.
func TestWalledCallIsRepeatedOutside(t *testing.T) {
	if err := sandbox.NewWall(sandbox.WallOptions{}).Ready(); err != nil {
		t.Skip(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(dir, "made")
	const command = `a='x[$(echo line >>made)]'; : $((a)); cat made`
	var mu sync.Mutex
	synced := map[string]bool{} // calls whose intent was synced before their outcome
	ended := map[string]bool{}  // calls whose outcome was synced before their result
	durable.Synced = func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			return // a directory
		}
		mu.Lock()
		defer mu.Unlock()
		for id := range recorded(text, "parley-intent") {
			if !recorded(text, "parley-outcome")[id] {
				synced[id] = true
			}
		}
		for id := range recorded(text, "parley-outcome") {
			if !strings.Contains(string(text), `{"type":"tool_result","tool_use_id":"`+id+`"`) {
				ended[id] = true
			}
		}
	}
	defer func() { durable.Synced = nil }()
	var asked []*wire.CanUseTool
	p := promptIn(t, dir, parleytest.Script(
		new(parleytest.Turn).CallID("toolu_walled", "Bash", map[string]any{"command": command}),
		new(parleytest.Turn).CallID("toolu_free", "Bash", map[string]any{"command": command, "dangerouslyDisableSandbox": true}),
		parleytest.Say("done")), func(o *parley.Options, cfg *agent.Config) {
		cfg.Store = &session.Files{Dir: t.TempDir()}
		o.CanUseTool = func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
			asked = append(asked, req)
			if text, err := os.ReadFile(made); err == nil {
				t.Errorf("before anybody was asked it wrote %q", text)
			}
			return parley.Allow(), nil
		}
	})
	results := resultsByCall(p.all)
	if len(results) != 2 {
		t.Fatalf("%d results of 2 calls", len(results))
	}
	if text := results[0].Content.String(); !results[0].IsError || !strings.Contains(text, "It tried to change files, which was refused.") {
		t.Errorf("behind the wall: %s", text)
	}
	if text := results[1].Content.String(); strings.Contains(text, "refused") {
		t.Errorf("outside: %s", text)
	}
	if len(asked) != 1 || asked[0].ToolUseID != "toolu_free" || asked[0].DecisionReasonType != "sandboxOverride" || len(asked[0].PermissionSuggestions) > 0 {
		t.Errorf("asked %+v", asked)
	}
	if text, err := os.ReadFile(made); string(text) != "line\n" {
		t.Errorf("the file has %q (%v)", text, err)
	}
	if synced["toolu_walled"] || !synced["toolu_free"] {
		t.Errorf("intents synced before their outcome: %v, want that of the call outside only", synced)
	}
	if ended["toolu_walled"] || !ended["toolu_free"] {
		t.Errorf("outcomes synced before their result: %v, want that of the call outside only", ended)
	}
}

// recorded returns the calls that have an entry of a type in a log.
func recorded(log []byte, kind string) map[string]bool {
	ids := map[string]bool{}
	for line := range strings.Lines(string(log)) {
		var e struct {
			Type      string `json:"type"`
			ToolUseID string `json:"toolUseId"`
		}
		if json.Unmarshal([]byte(line), &e) == nil && e.Type == kind {
			ids[e.ToolUseID] = true
		}
	}
	return ids
}
