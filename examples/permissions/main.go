// Permissions asks the person at the keyboard before an agent does something that no
// rule allows. Any answer except yes or always denies the call. The model receives an
// answer other than no as the reason.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/wire"
)

func main() {
	keyboard := bufio.NewScanner(os.Stdin)
	var oneAtATime sync.Mutex // requests may come concurrently
	ask := func(ctx context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
		oneAtATime.Lock()
		defer oneAtATime.Unlock()
		fmt.Printf("May it use %s with %s? [y]es, [a]lways, [n]o, or a reason to deny it: ", req.ToolName, req.Input)
		if !keyboard.Scan() {
			fmt.Println()
			return parley.Deny("nobody is there to ask"), nil
		}
		answer := strings.TrimSpace(keyboard.Text())
		fmt.Println(answer)
		switch answer {
		case "y", "yes":
			return parley.Allow(), nil
		case "a", "always":
			return parley.AllowAlways(req), nil // with the agent's suggested rules, for this session or permanently
		case "n", "no":
			return parley.Deny("the person at the keyboard denied it"), nil
		}
		return parley.Deny(answer), nil
	}
	// The agent works on a copy: the example itself stays unchanged.
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS(".")); err != nil {
		log.Fatal(err)
	}
	res, err := parley.Run(context.Background(), "Tidy up this directory.", &parley.Options{
		Cwd:             dir,
		AllowedTools:    []string{"Read", "Glob"},
		DisallowedTools: []string{"Bash(rm:*)"}, // never asked: deny wins
		CanUseTool:      ask,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Result)
	for _, d := range res.PermissionDenials {
		fmt.Printf("denied: %s %s\n", d.ToolName, d.ToolInput)
	}
}
