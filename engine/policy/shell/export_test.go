package shell

import (
	"slices"
	"strings"
)

// ProgramNames returns the names of the programs of the table, without subcommands.
func ProgramNames() []string {
	var names []string
	for name := range programs().lines {
		if !strings.ContainsAny(name, " (") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// RunningSubcommands returns the subcommands of the table that run the words after them.
func RunningSubcommands() []string {
	var names []string
	for name, line := range programs().lines {
		if p := programs().program(name); strings.Contains(name, " ") && p.is(runsTrait) && line.program == p {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
