package remote_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/remote"
	"github.com/parley-go/parley/wire"
)

// A program attaches to a session that somebody else started on a server, sends a prompt,
// answers its questions and prints the answer.
func Example() {
	ctx := context.Background()
	server := &remote.Server{URL: "https://parley.example.com", Token: os.Getenv("PARLEY_TOKEN"), Session: "1b4e28ba-2fa1-4d3c-a7b5-cd9e8f001234"}
	c, err := parley.Connect(ctx, &parley.Options{Dialer: server, CanUseTool: func(ctx context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
		if req.ToolName == "Bash" {
			return parley.Deny("Commands are run by people."), nil
		}
		return parley.Allow(), nil
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for m, err := range c.Turn(ctx, "Which tests are flaky?") {
		if err != nil {
			log.Fatal(err)
		}
		if m, ok := m.(*wire.Result); ok {
			fmt.Println(m.Result)
		}
	}
}
