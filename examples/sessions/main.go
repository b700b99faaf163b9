// Sessions continues a conversation in another process: run it twice in one
// directory, and the second run knows the prompts of the first. To leave the first
// session unchanged, set Options.Fork: the conversation continues in a copy.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/session"
)

func main() {
	ctx := context.Background()
	cwd, err := os.Getwd()
	if err != nil {
		log.Fatal(err)
	}
	// The sessions of this directory, newest first; no agent is needed to read them.
	before, err := session.List(ctx, parley.Sessions(), &session.ListOptions{Dir: cwd})
	if err != nil {
		log.Fatal(err)
	}
	opts, prompt := &parley.Options{Tools: []string{}}, "My favourite number is 27."
	if len(before) > 0 {
		fmt.Println("continuing:", before[0].FirstPrompt)
		opts.Resume, prompt = before[0].ID, "What is my favourite number?"
	}
	res, err := parley.Run(ctx, prompt, opts)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Result)

	said, err := session.Messages(ctx, parley.Sessions(), res.SessionID, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("messages in the session:", len(said))
}
