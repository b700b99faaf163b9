package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// flagHelp says what each flag is for, in the groups and the order in which people
// are shown them. The name of the value is in capitals before the text.
var flagHelp = []struct {
	group string
	flags [][3]string // the name, the value, the text
}{
	{"What comes in and goes out", [][3]string{
		{"--print", "", "answer one prompt and end"},
		{"--output-format", "FORMAT", "text, json, stream-json, or message: stream-json without partial messages"},
		{"--input-format", "FORMAT", "text, or stream-json for a host"},
		{"--verbose", "", "all messages, not only the result"},
		{"--include-partial-messages", "", "the answer while it is written"},
		{"--include-hook-events", "", "what hooks do"},
		{"--forward-subagent-text", "", "what subagents write, not only what they do"},
		{"--replay-user-messages", "", "prompts when they are taken up"},
		{"--json-schema", "JSON", "the form that the answer must have"},
	}},
	{"The model", [][3]string{
		{"--model", "NAME", "an alias such as sonnet, or the name of a model"},
		{"--fallback-model", "NAME", "what answers when the model is overloaded"},
		{"--effort", "LEVEL", "low, medium, high, xhigh or max"},
		{"--thinking", "MODE", "adaptive, enabled or disabled"},
		{"--thinking-display", "HOW", "summarized, or omitted: how much of the reasoning is shown"},
		{"--max-thinking-tokens", "N", "a bound for reasoning"},
		{"--betas", "NAMES", "beta features of the API"},
		{"--provider", "NAME", "anthropic, bedrock, vertex, openai for any compatible server, or script"},
		{"--base-url", "URL", "where the API is"},
		{"--api-key", "KEY", "before the environment and the config file; others can see a command line"},
		{"--api-key-helper", "COMMAND", "a command that prints the key"},
		{"--enable-auth-status", "", "tell the host while such a command runs"},
		{"--models", "FILE", "more models and other prices, beside ~/.config/parley/models.json"},
		{"--script", "FILE", "what --provider script plays: parley help script"},
	}},
	{"Bounds", [][3]string{
		{"--max-turns", "N", "how often the model may be asked for one prompt"},
		{"--max-budget-usd", "AMOUNT", "how much the conversation may cost"},
		{"--autocompact", "TOKENS", "what counts as the model's window for compaction: 100k to 1M, or auto"},
	}},
	{"What the model is told", [][3]string{
		{"--system-prompt", "TEXT", "in place of the agent's own"},
		{"--system-prompt-file", "FILE", "the same, from a file"},
		{"--append-system-prompt", "TEXT", "added to the system prompt"},
		{"--append-system-prompt-file", "FILE", "the same, from a file"},
		{"--setting-sources", "NAMES", "user, project and local: whose files are read"},
		{"--plugin-dir", "DIRS", "plugins: commands, skills and more"},
		{"--plugin-dir-no-mcp", "DIRS", "the same, without their MCP servers"},
		{"--disable-slash-commands", "", "a prompt is never a command; no skills"},
	}},
	{"What it may do", [][3]string{
		{"--tools", "NAMES", "the tools there are; \"\" for none"},
		{"--agent", "NAME", "be this agent: its prompt, tools and model"},
		{"--agents", "JSON", "subagents by name: {\"NAME\":{\"description\":…,\"prompt\":…}}"},
		{"--bare", "", "no tools but Bash, Edit and Read"},
		{"--allowedTools", "RULES", "calls that need no asking, such as Bash(git diff:*)"},
		{"--disallowedTools", "RULES", "calls that are refused; a name alone takes the tool away"},
		{"--permission-mode", "MODE", "default, acceptEdits, plan, dontAsk or bypassPermissions"},
		{"--permission-prompt-tool", "NAME", "who is asked: stdio for the host, or a tool such as mcp__server__tool"},
		{"--permission-prompts", "WHO", "host, or none: what would be asked is refused"},
		{"--dangerously-skip-permissions", "", "all is allowed that no rule refuses"},
		{"--allow-dangerously-skip-permissions", "", "the host may choose so later"},
		{"--add-dir", "DIRS", "more directories to work in"},
		{"--settings", "FILE", "settings, or their JSON"},
		{"--managed-settings", "JSON", "settings that only restrict, whatever else is said"},
		{"--trust-project", "WHAT", "all that the project brings may have effects, or what has this digest: parley help trust"},
		{"--mcp-config", "FILES", "MCP servers, or their JSON"},
		{"--strict-mcp-config", "", "no MCP servers from anywhere else"},
	}},
	{"Sessions", [][3]string{
		{"--continue", "", "go on with the last one in this directory"},
		{"--resume", "ID", "go on with the one of this id or title"},
		{"--fork-session", "", "do so in a new session"},
		{"--resume-session-at", "UUID", "go on behind this message"},
		{"--resume-drops-turn", "UUID", "only if that drops no turn but this"},
		{"--replay-history", "", "tell the host what was said before"},
		{"--session-id", "UUID", "the id of a new one"},
		{"--name", "TITLE", "the title of a new one"},
		{"--no-session-persistence", "", "keep it nowhere"},
		{"--session-mirror", "", "tell the host what is written to the session's files, for a store of its own"},
		{"--session-durability", "HOW", "it survives a power cut (fsync), kill -9 (write) or nothing (none)"},
	}},
	{"Finding out", [][3]string{
		{"--init", "", "run Setup hooks of settings first, with the trigger init"},
		{"--init-only", "", "run them and those for the start of a session, and end"},
		{"--maintenance", "", "run Setup hooks first, with the trigger maintenance"},
		{"--debug", "", "say more on standard error"},
		{"--debug-to-stderr", "", "the same"},
		{"--debug-file", "FILE", "the same, to a file"},
		{"--version", "", "the version, as SDKs read it"},
		{"--help", "", "the commands"},
	}},
}

// FlagHelp lists every flag that [ParseFlags] takes, for people.
func FlagHelp() string {
	const indent, wide = 34, 80
	var b strings.Builder
	b.WriteString("Flags of the agent. A value may stand behind the flag or after \"=\"; what ends in S\ntakes several, with commas or spaces between. \"--\" ends the flags.\n")
	for _, g := range flagHelp {
		fmt.Fprintf(&b, "\n%s:\n", g.group)
		for _, f := range g.flags {
			left := "  " + strings.Join(namesOf(f[0]), ", ")
			if f[1] != "" {
				left += " " + f[1]
			}
			if len(left) > indent-2 {
				fmt.Fprintf(&b, "%s\n%*s", left, indent, "")
			} else {
				fmt.Fprintf(&b, "%-*s", indent, left)
			}
			column := indent
			for i, word := range strings.Fields(f[2]) {
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
	b.WriteString("\nAccepted for the sake of those who pass them, with no effect in this version:\n ")
	column := 1
	for _, name := range slices.Sorted(maps.Keys(inert)) {
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

// namesOf returns all spellings of a flag; nil if there is no such flag.
func namesOf(name string) []string {
	for _, f := range flagTable {
		if slices.Contains(f.names, name) {
			return f.names
		}
	}
	return nil
}
