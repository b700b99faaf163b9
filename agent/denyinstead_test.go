package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// With denyInsteadOfPrompting a call that needs permission is denied without asking.
func TestDenyInsteadOfPrompting(t *testing.T) {
	made := filepath.Join(t.TempDir(), "made")
	opts, _, _ := inProcess(t, parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch " + made}), parleytest.Say("Done.")))
	opts.Settings = json.RawMessage(`{"permissions":{"denyInsteadOfPrompting":true}}`)
	opts.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
		t.Error("the host was asked")
		return &wire.PermissionResult{Behavior: wire.BehaviorAllow}, nil
	}
	_, r, err := collect(t, opts, "go")
	if err != nil || len(r.PermissionDenials) != 1 {
		t.Errorf("the result is %+v, %v; want one denial", r, err)
	}
	if _, err := os.Stat(made); err == nil {
		t.Error("the command ran")
	}
}
