package parley_test

import (
	"context"
	"fmt"
	"log"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/session"
)

// This example lists the sessions of all projects without an agent, prints the last
// messages, and sets a better title.
func ExampleSessions() {
	ctx := context.Background()
	all, err := session.List(ctx, parley.Sessions(), &session.ListOptions{Limit: 10})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range all {
		said, err := session.Messages(ctx, parley.Sessions(), s.ID, nil)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(s.Modified.Format("2 Jan 15:04"), s.Summary, len(said), "messages")
	}
	if len(all) > 0 {
		if err := session.Rename(ctx, parley.Sessions(), all[0].ID, "The one of today", nil); err != nil {
			log.Fatal(err)
		}
	}
}
