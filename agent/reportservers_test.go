package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/wire"
)

// Standard error names the MCP server that delays the turn, and why one failed, once each.
func TestReportServers(t *testing.T) {
	var stderr strings.Builder
	release := make(chan struct{})
	s := newServer(&setup{flags: &cli.Flags{}}, newOutbox(io.Discard), &stderr)
	defer s.out.close()
	s.mcp = mcp.New(mcp.Options{Host: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		<-release
		return nil, errors.New("it is gone")
	}})
	defer s.mcp.Close()
	s.mcp.Set("sdk", mcp.Server{Name: "slow", Config: &wire.MCPServerConfig{Type: "sdk", Name: "slow"}})
	s.reportServers(false)
	s.reportServers(true)
	s.reportServers(true)
	if got, want := stderr.String(), "Warning: the MCP server slow does not answer yet; the turn waits for it (MCP_TIMEOUT sets for how many milliseconds)\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	stderr.Reset()
	close(release)
	s.mcp.Ready(t.Context())
	s.reportServers(false)
	s.reportServers(false)
	if got := stderr.String(); !strings.HasPrefix(got, "Warning: the MCP server slow failed: ") || !strings.Contains(got, "it is gone") || strings.Count(got, "\n") != 1 {
		t.Errorf("got %q", got)
	}
	s.set.flags.InputFormat = "stream-json"
	s.reported = nil
	if s.reportServers(true); strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("a host reads init and mcp_status, and stderr has %q", stderr.String())
	}
}
