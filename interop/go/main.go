// Command go runs one scenario with a CLI through our SDK, like the drivers beside it
// through the official ones: the scenario is the first argument (JSON, or a file), and
// the command prints what the SDK's user sees, one JSON object per line.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/parley-go/parley/interop"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("the scenario is the one argument, as JSON or as a file")
	}
	text := []byte(os.Args[1])
	if file, err := os.ReadFile(os.Args[1]); err == nil {
		text = file
	}
	var job interop.Job
	if err := json.Unmarshal(text, &job); err != nil {
		return fmt.Errorf("the scenario: %w", err)
	}
	events, err := interop.GoSDK{}.Drive(context.Background(), &job)
	if err != nil {
		return err
	}
	e := json.NewEncoder(os.Stdout)
	e.SetEscapeHTML(false)
	for _, event := range events {
		if err := e.Encode(event); err != nil {
			return err
		}
	}
	return nil
}
