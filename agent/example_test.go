package agent_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
)

// This agent runs in this process: no command is started, and options are reused for
// many conversations. The model here plays a script; without one the flags, the
// environment in the config and the config file determine the model.
func ExampleInProcess() {
	script := parleytest.Script(parleytest.Say("Seven of them."))
	opts := &parley.Options{
		Cwd:    os.TempDir(),
		Dialer: agent.InProcess(agent.Config{Model: script.Model(), Store: &session.Memory{}}),
	}
	r, err := parley.Run(context.Background(), "How many tests are flaky?", opts)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Result)
	// Output: Seven of them.
}

// Run is the command without its subcommands. Everything that the command would take
// from its process is passed to it.
func ExampleRun() {
	script := parleytest.Script(parleytest.Say("Hello."))
	cfg := agent.Config{Cwd: os.TempDir(), Model: script.Model()}
	status := agent.Run(context.Background(), cfg, []string{"-p", "Say hello."}, strings.NewReader(""), os.Stdout, os.Stderr)
	fmt.Println("exit status", status)
	// Output:
	// Hello.
	// exit status 0
}
