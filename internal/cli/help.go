package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Info describes a flag of the agent, for completion and documentation.
type Info struct {
	Names   []string
	Value   string   // name of its value; empty if it has none
	Help    string   // one line
	Choices []string // the values it accepts; empty if any
}

// All returns every flag that has an effect, in the order of the help.
func All() (all []Info) {
	for _, g := range flagTable {
		for _, f := range g.flags {
			all = append(all, Info{f.names, f.value, f.help, f.choice})
		}
	}
	return all
}

// Help lists every flag that [Parse] accepts, for people.
func Help() string {
	const indent, wide = 34, 80
	var b strings.Builder
	b.WriteString("Flags of the agent. A value follows its flag, or \"=\". A plural such as NAMES takes\nseveral values, separated by commas or spaces. \"--\" ends the flags.\n")
	for _, g := range flagTable {
		fmt.Fprintf(&b, "\n%s:\n", g.title)
		for _, f := range g.flags {
			left := "  " + strings.Join(f.names, ", ")
			if f.value != "" {
				left += " " + f.value
			}
			if len(left) > indent-2 {
				fmt.Fprintf(&b, "%s\n%*s", left, indent, "")
			} else {
				fmt.Fprintf(&b, "%-*s", indent, left)
			}
			column := indent
			for i, word := range strings.Fields(f.help) {
				if i > 0 && column+1+len(word) > wide {
					fmt.Fprintf(&b, "\n%*s", indent, "")
					column = indent
				} else if i > 0 {
					b.WriteByte(' ')
					column++
				}
				b.WriteString(word)
				column += len(word)
			}
			b.WriteByte('\n')
		}
	}
	b.WriteString("\nAccepted for compatibility, with no effect:\n ")
	column := 1
	for _, name := range slices.Sorted(maps.Keys(ignoredFlags)) {
		if column+1+len(name) > wide {
			b.WriteString("\n ")
			column = 1
		}
		b.WriteString(" " + name)
		column += 1 + len(name)
	}
	b.WriteByte('\n')
	return b.String()
}
