package bash_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/bash"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

// Behind the read wall the shell has the snapshot of the user's ~/.bashrc, and long
// commands run.
func TestPrivateFilesBehindWall(t *testing.T) {
	env := tooltest.Env(t)
	os.MkdirAll(env.Home, 0o700)
	os.WriteFile(filepath.Join(env.Home, ".bashrc"), []byte("hello() { echo from bashrc; }\n"), 0o600)
	env.Wall = sandbox.NewWall(sandbox.WallOptions{Home: env.Home, Path: os.Getenv("PATH")})
	defer env.Wall.Close()
	if err := env.Wall.Ready(); err != nil {
		t.Skip(err)
	}
	b := bash.New(&bash.Options{Snapshot: new(bash.Snapshot)})
	for _, command := range []string{"hello", ": " + strings.Repeat("y", 200_000) + "; hello"} {
		r, err := b.Run(t.Context(), &tool.Call{ID: "t", Input: tooltest.Input(t, "command", command), Env: env, Place: tool.ReadWall})
		if err != nil || r.Content.Text != "from bashrc" {
			t.Errorf("%.20q: %v, %v", command, r, err)
		}
	}
}
