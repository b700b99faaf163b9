package main

import (
	"context"
	"io"
	"testing"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/hub"
)

// TestSessionsShare checks that the sessions of a hub share what never changes: the tools, the
// catalog of models and the connections.
func TestSessionsShare(t *testing.T) {
	open := hubConfig(&process{stderr: io.Discard}, agent.Config{Home: t.TempDir()}, nil).Agent
	start := hub.Start{Cwd: t.TempDir()}
	allocs := testing.AllocsPerRun(20, func() {
		if _, err := open(context.Background(), start); err != nil {
			t.Error(err)
		}
	})
	if allocs > 60 {
		t.Errorf("a session needs %.0f allocations for its dialer", allocs)
	}
}
