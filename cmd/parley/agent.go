package main

import (
	"context"
	"fmt"
	"strings"
)

// runAgent is the agent: the command without a subcommand. It returns the exit
// status.
func runAgent(_ context.Context, p *process, _ []string) int {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	fmt.Fprintf(p.stderr, "parley: the agent is not part of this build; its commands are %s. Try: parley help\n", strings.Join(names, ", "))
	return exitUsage
}
