// Many runs twenty agents in one process, with no subprocess at all: each has its
// own conversation, permissions and directory. Four work at a time.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/transport"
)

func main() {
	cfg, err := agent.FromProcess() // the environment, the home directory and so on; or fill in your own
	if err != nil {
		log.Fatal(err)
	}
	cfg.Home = "" // these agents store no sessions and read no settings
	dialer := agent.InProcess(cfg)

	answers := make([]string, 20)
	var all sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i := range answers {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			answers[i] = greet(dialer, i)
		})
	}
	all.Wait()
	for _, a := range answers {
		fmt.Println(a)
	}
}

// greet runs one agent from start to end, in its own directory.
func greet(dialer transport.Dialer, i int) string {
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		return err.Error()
	}
	defer os.RemoveAll(dir)
	prompt := fmt.Sprintf("Write hello %d to hello.txt.", i)
	res, err := parley.Run(context.Background(), prompt, &parley.Options{
		Dialer: dialer, Cwd: dir, AllowedTools: []string{"Write"}, MaxBudgetUSD: 0.10,
	})
	if err != nil {
		return fmt.Sprintf("agent %d: %v", i, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "hello.txt"))
	if err != nil {
		return fmt.Sprintf("agent %d: %v", i, err)
	}
	return fmt.Sprintf("agent %d: %s It wrote %q.", i, res.Result, text)
}
