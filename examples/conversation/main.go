// Conversation runs several turns with one agent, which remembers the
// conversation. Another model answers the second turn, and the total cost is
// shown.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/wire"
)

func main() {
	ctx := context.Background()
	c, err := parley.Connect(ctx, &parley.Options{Model: "sonnet", Tools: []string{}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	ask(ctx, c, "Suggest a name for a Go package that parses dates.")
	if _, err := c.SetModel(ctx, "haiku"); err != nil {
		log.Fatal(err)
	}
	ask(ctx, c, "A shorter one?")
}

// ask sends one prompt and prints the answer.
func ask(ctx context.Context, c *parley.Client, prompt string) {
	fmt.Println(">", prompt)
	for msg, err := range c.Turn(ctx, prompt) {
		if err != nil {
			log.Fatal(err)
		}
		switch m := msg.(type) {
		case *wire.Assistant:
			fmt.Println(m.Message.Content)
		case *wire.Result:
			fmt.Printf("  (%d tokens so far, $%.6f)\n", tokens(m), m.TotalCostUSD)
		}
	}
}

// tokens adds up the tokens that all models of the conversation have read and
// written.
func tokens(r *wire.Result) (sum int64) {
	for _, u := range r.ModelUsage {
		sum += u.InputTokens + u.OutputTokens
	}
	return sum
}
