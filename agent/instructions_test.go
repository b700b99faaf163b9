package agent_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/parleytest"
)

// The model receives the instructions of an MCP server once, before the first prompt. A resumed session has them.
func TestInstructionsOfServersReachTheModel(t *testing.T) {
	once := parleytest.Check("the instructions are in the request once", func(r *parleytest.Request) error {
		if n := bytes.Count(r.Body, []byte("Read the note first.")); n != 1 {
			return fmt.Errorf("they are in it %d times", n)
		}
		return nil
	})
	opts, m, _ := inProcess(t, parleytest.Script(
		parleytest.Expect(once).Say("one"),
		parleytest.Expect(once).Say("two"),
		parleytest.Expect(once).Say("three"),
	))
	opts.ToolServers = map[string]*mcp.Server{"db": mcp.NewServer(&mcp.Implementation{Name: "db"}, &mcp.ServerOptions{Instructions: "Read the note first.\n"})}
	opts.SessionID = "11111111-1111-4111-8111-111111111111"
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, prompt := range []string{"first", "second"} {
		for _, err := range c.Turn(t.Context(), prompt) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	opts.Resume, opts.SessionID = opts.SessionID, ""
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := collect(t, opts, "third"); err != nil {
		t.Fatal(err)
	}
	if err := m.Err(); err != nil {
		t.Error(err)
	}
}
