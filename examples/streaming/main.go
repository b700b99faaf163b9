// Streaming shows an answer in the terminal while it is written and the tools that
// are used in between. Ctrl-C stops the turn without losing the answer so far.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/wire"
)

func main() {
	ctx := context.Background()
	c, err := parley.Connect(ctx, &parley.Options{PartialMessages: true, AllowedTools: []string{"Read"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	go func() {
		for range stop {
			c.Interrupt(ctx) // the turn ends with a result
		}
	}()

	for msg, err := range c.Turn(ctx, "What is in notes.txt?") {
		var failed *parley.ResultError
		switch {
		case errors.As(err, &failed):
			fmt.Println("\n", failed.Outcome()) // "interrupted" after Ctrl-C
			return
		case err != nil:
			log.Fatal(err)
		}
		switch m := msg.(type) {
		case *wire.StreamEvent:
			fmt.Print(m.Text()) // empty for events without text
		case *wire.Assistant:
			for _, b := range m.Message.Content.Blocks {
				if call, ok := b.(*wire.ToolUseBlock); ok {
					fmt.Printf("\n[%s %s]\n", call.Name, call.Input)
				}
			}
		case *wire.Result:
			fmt.Println()
		}
	}
}
