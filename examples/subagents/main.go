// Subagents lets an agent delegate work to others: each has its own prompt, tools
// and conversation, and only its answer is returned.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/wire"
)

func main() {
	opts := &parley.Options{
		Agents: map[string]*wire.AgentDefinition{
			"reader": {
				Description: "Reads files and says in one line what they are about.",
				Prompt:      "You read one file and answer in one line.",
				Tools:       []string{"Read"}, // it cannot change anything
				Model:       "haiku",
			},
		},
		AllowedTools: []string{"Task", "Read"},
		SubagentText: true, // yield their text as messages, too
	}
	for msg, err := range parley.Query(context.Background(), "What are a.txt and b.txt about?", opts) {
		if err != nil {
			log.Fatal(err)
		}
		switch m := msg.(type) {
		case *wire.Assistant:
			if text := m.Message.Content.String(); text != "" && m.ParentToolUseID == "" {
				fmt.Println(text)
			}
		case *wire.Result:
			fmt.Printf("models: %d, one bill for all: $%.6f\n", len(m.ModelUsage), m.TotalCostUSD)
		}
	}
}
