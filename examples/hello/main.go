// Hello sends an agent one prompt and prints its answer.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/wire"
)

func main() {
	opts := &parley.Options{AllowedTools: []string{"Read", "Grep"}}
	for msg, err := range parley.Query(context.Background(), "Which tests are flaky?", opts) {
		if err != nil {
			log.Fatal(err)
		}
		if m, ok := msg.(*wire.Assistant); ok && m.Message.Content.String() != "" {
			fmt.Println(m.Message.Content)
		}
	}
}
