package mcp

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/tooltest"
	"github.com/parley-go/parley/wire"
)

// A server from a project runs in the sandbox, and works; others are trusted.
func TestSandbox(t *testing.T) {
	set, err := sandbox.Parse(json.RawMessage(`{"enabled":true}`))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	box, err := sandbox.New(sandbox.Options{Settings: set, Dir: dir, Path: os.Getenv("PATH"), Only: sandbox.Bubblewrap})
	if errors.Is(err, sandbox.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	for source, confined := range map[string]bool{"project": true, "dynamic": false} {
		m := manager(t, func(o *Options) { o.Dir, o.Sandbox, o.Env = dir, box, []string{"PATH=" + os.Getenv("PATH")} })
		cfg := child("good")
		marker := filepath.Join(t.TempDir(), "marker")
		cfg.Args = []string{"-c", "touch inside " + marker + "; exec " + cfg.Command}
		cfg.Command = "/bin/bash"
		m.Set(source, Server{Name: "p", Config: cfg})
		if s := ready(t, m)["p"]; s.Status != wire.MCPConnected {
			t.Fatalf("%s: %+v", source, s)
		}
		got := tooltest.Call(t.Context(), &tool.Env{}, find(t, m, "mcp__p__add"), json.RawMessage(`{"a":1,"b":2}`)).Content.String()
		_, err := os.Stat(marker)
		if got != "3" || (err != nil) != confined {
			t.Errorf("%s: it says %s; written outside: %v", source, got, err == nil)
		}
		m.Close()
	}
}
