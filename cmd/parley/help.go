package main

import (
	"context"
	_ "embed" // for the topics
	"fmt"
	"slices"
	"strings"

	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/internal/spelling"
)

// The texts of topics that are not commands. The formats of script files are copied
// from the documentation of the packages that read them.
var (
	//go:embed help/script.txt
	scriptFormat string
	//go:embed help/steps.txt
	stepsFormat string
	//go:embed help/environment.txt
	environment string
)

// A topic is an entry of help that is not a command.
type topic struct {
	name, short string
	text        func() string
}

func topics() []topic {
	return []topic{
		{"flags", "all flags of the agent", cli.Help},
		{"settings", "common settings, with explanations", func() string { return string(settingsExplained) }},
		{"environment", "the environment variables", func() string { return environment }},
		{"script", "the files that fake-api plays", func() string { return scriptFormat }},
		{"steps", "the files that fake-cli and fake-host play", func() string { return stepsFormat }},
		{"faults", "the faults that fake-cli can play", faultList},
	}
}

const usage = `
The agent, a drop-in for the claude command:
  parley                        start a conversation in this terminal
  parley --continue             continue the last conversation
  parley -p "why is CI red?"    answer one prompt and end
  parley -p --output-format json < prompt.md
`

const examples = `Examples:
  parley fake-api --script greet.script -- python3 agent.py
  parley fake-api --script greet.script --addr 127.0.0.1:8080
  parley fake-cli --fault die-mid-line --install ./claude
  parley record --upstream https://api.anthropic.com --to talk.cassette -- node agent.mjs
  parley replay --from talk.cassette -- node agent.mjs
`

// runHelp runs help and returns the exit status.
func runHelp(ctx context.Context, p *process, args []string) int {
	return status(p, "parley help", help(ctx, p, args))
}

// help prints an overview, or the help of a command or a topic.
func help(ctx context.Context, p *process, args []string) error {
	if len(args) == 0 {
		_, err := fmt.Fprint(p.stdout, overview())
		return err
	}
	if strings.HasPrefix(args[0], "-") {
		fs := newFlags(p, "help", "[COMMAND or TOPIC]", "Explains a command or a file format. Without an argument it lists them.")
		return parse(fs, args)
	}
	if len(args) > 1 {
		return usagef("one topic at a time: parley help %s", args[0])
	}
	if c, ok := lookup(args[0]); ok {
		return c.run(ctx, p, []string{"--help"})
	}
	all := topics()
	if i := slices.IndexFunc(all, func(t topic) bool { return t.name == args[0] }); i >= 0 {
		_, err := fmt.Fprint(p.stdout, all[i].text())
		return err
	}
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	for _, t := range all {
		names = append(names, t.name)
	}
	if like := spelling.Closest(args[0], names); like != "" {
		return usagef("unknown help topic %q. Did you mean %s?", args[0], like)
	}
	return usagef("unknown help topic %q. Run \"parley help\" for the list", args[0])
}

// overview lists all commands and topics.
func overview() string {
	var b strings.Builder
	b.WriteString("parley speaks the Claude Agent SDK protocol, both ends of the wire.\n")
	b.WriteString(usage)
	group := ""
	for _, c := range commands() {
		if c.group != group {
			group = c.group
			fmt.Fprintf(&b, "\n%s:\n", group)
		}
		fmt.Fprintf(&b, "  %-11s %s\n", c.name, c.short)
	}
	b.WriteString("\n" + examples)
	b.WriteString("\nRun \"parley help COMMAND\" for details. Other topics:\n")
	for _, t := range topics() {
		fmt.Fprintf(&b, "  %-11s %s\n", t.name, t.short)
	}
	b.WriteString("\nThe exit status is 0 for success, 1 for failure and 2 for wrong usage.\nWithout a subcommand, wrong flags exit with 1, as those of the claude command do.\n")
	return b.String()
}
