package postgres_test

import (
	"context"
	"fmt"
	"log"

	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/stores/postgres"
)

// The sessions of a team, newest first. An agent keeps its own there with
// agent.Config.Store.
func Example() {
	ctx := context.Background()
	store, err := postgres.Open(ctx, "postgres://user@host/database", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	all, err := session.List(ctx, store, &session.ListOptions{Limit: 20})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range all {
		fmt.Println(s.ID, s.Summary)
	}
}
