// Command example is the agent of the parley command with its sessions in PostgreSQL:
// any SDK can start it instead of the official CLI, on any machine that reaches the
// database, and resume a session that another machine started.
//
//	PARLEY_DATABASE=postgres://user@host/database example -p "Which tests are flaky?"
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/stores/postgres"
)

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
	}
	os.Exit(code)
}

func run() (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	database := os.Getenv("PARLEY_DATABASE")
	if database == "" {
		return 2, errors.New("PARLEY_DATABASE is not set; it names the database of the sessions, as postgres://user@host/database")
	}
	cfg, err := agent.FromProcess()
	if err != nil {
		return 1, err
	}
	store, err := postgres.Open(ctx, database, nil)
	if err != nil {
		return 1, err
	}
	defer store.Close()
	cfg.Store = store
	return agent.Run(ctx, cfg, os.Args[1:], os.Stdin, os.Stdout, os.Stderr), nil
}
