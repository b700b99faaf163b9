package engine

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// promptTexts holds the prompts of more commands, one below each heading.
//
//go:embed command_prompts.md
var promptTexts string

// promptOf returns the prompt of a command in promptTexts.
func promptOf(name string) string {
	_, text, _ := strings.Cut(promptTexts, "## "+name+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// sessionCommand returns a command that runs a function that shows or changes the session.
func sessionCommand(name, hint, description string, run func(c *commands, args string) (string, error)) *builtin {
	return &builtin{name: name, hint: hint, description: description, unlisted: true, local: func(c *commands, t *turn, p *prompt, args string) *ending {
		text, err := run(c, strings.TrimSpace(args))
		c.rec.Emit(c.init(t))
		if err != nil {
			return c.failCommand(t, name, name, args, "Error: "+err.Error())
		}
		return c.printed(t, name, name, args, text)
	}}
}

// promptCommand returns a command that sends its prompt in promptTexts.
func promptCommand(name, hint, description string) *builtin {
	return &builtin{name: name, hint: hint, description: description, unlisted: true, prompt: promptOf(name)}
}

// sessionCommands returns more commands of the official list, with our own texts: prompts, and commands that show or
// change the session.
func sessionCommands() []*builtin {
	return []*builtin{
		{name: "code-review", hint: "<pull request>", description: "Review a pull request or the current changes", unlisted: true, prompt: reviewPrompt},
		promptCommand("batch", "<change>", "Make the same change in many places, with subagents"),
		promptCommand("debug", "<problem>", "Find the cause of a problem before changing anything"),
		promptCommand("deep-research", "<question>", "Research a question with subagents, and cite sources"),
		promptCommand("doctor", "", "Check settings, instructions, hooks and servers"),
		promptCommand("fewer-permission-prompts", "", "Suggest rules for calls that you approve often"),
		promptCommand("recap", "", "Summarize the conversation so far"),
		promptCommand("run", "<what>", "Start the program of the project, and show that it works"),
		promptCommand("simplify", "<code>", "Make code simpler without changing what it does"),
		promptCommand("team-onboarding", "", "Write a guide for people who are new to the project"),
		promptCommand("update-config", "<change>", "Change settings"),
		promptCommand("verify", "<change>", "Check that a change does what it should"),
		sessionCommand("agents", "", "List the subagents that the model can start", listAgents),
		sessionCommand("config", "", "Show the settings of the session", showConfig),
		sessionCommand("effort", "<level>", "Show or change the effort of the model", changeEffort),
		sessionCommand("list-agents", "", "List the subagents that the model can start", listAgents),
		sessionCommand("mcp", "", "List the MCP servers and their states", listServers),
		sessionCommand("output-style", "<name>", "Show or change the output style", changeStyle),
		sessionCommand("reload-plugins", "", "Reload instructions, commands, skills and plugins", reloadCommand),
		sessionCommand("reload-skills", "", "Reload instructions, commands, skills and plugins", reloadCommand),
		sessionCommand("rename", "<title>", "Give the session a title", func(c *commands, title string) (string, error) {
			if title == "" {
				return "", fmt.Errorf("a title is missing: /rename TITLE")
			}
			return "The session is now called " + title + ".", c.Rename(title)
		}),
	}
}

func listAgents(c *commands, _ string) (string, error) {
	var b strings.Builder
	for _, d := range c.Agents() {
		fmt.Fprintf(&b, "- %s: %s\n", d.Name, d.Description)
	}
	if b.Len() == 0 {
		return "There are no subagents here.", nil
	}
	return "The model can start these subagents:\n\n" + b.String(), nil
}

func listServers(c *commands, _ string) (string, error) {
	var b strings.Builder
	for _, s := range c.initServers() {
		fmt.Fprintf(&b, "- %s: %s\n", s.Name, s.Status)
	}
	if b.Len() == 0 {
		return "There are no MCP servers here.", nil
	}
	return "The MCP servers are:\n\n" + b.String(), nil
}

func showConfig(c *commands, _ string) (string, error) {
	effort := c.Effort()
	if effort == "" {
		effort = "that of the model"
	}
	return fmt.Sprintf("- Model: %s\n- Effort: %s\n- Output style: %s\n- Permission mode: %s\n- Working directory: %s\n\n"+
		"Change them with /model, /effort and /output-style, or in the settings.", c.model.ID, effort, c.OutputStyle(), c.mode, c.env.Cwd()), nil
}

func changeEffort(c *commands, level string) (string, error) {
	known := c.model.Efforts
	switch {
	case len(known) == 0:
		return fmt.Sprintf("The model %s has no levels of effort.", c.model.ID), nil
	case level == "":
		return fmt.Sprintf("The effort is %s. Change it with /effort LEVEL; the levels are %s.", c.Effort(), strings.Join(known, ", ")), nil
	case !slices.Contains(known, level):
		return "", fmt.Errorf("unknown effort %q: use one of %s", level, strings.Join(known, ", "))
	}
	c.SetEffort(level)
	return "The effort is now " + level + ", for this session.", nil
}

func changeStyle(c *commands, name string) (string, error) {
	if name == "" {
		names := []string{"default"}
		if c.project != nil {
			for _, s := range c.project.Styles {
				names = append(names, s.Name)
			}
		}
		return fmt.Sprintf("The output style is %s. Change it with /output-style NAME; there are %s.", c.OutputStyle(), strings.Join(names, ", ")), nil
	}
	if err := c.SetOutputStyle(name); err != nil {
		return "", err
	}
	return "The output style is now " + c.OutputStyle() + ", for this session.", nil
}

func reloadCommand(c *commands, _ string) (string, error) {
	if !c.reloadProject() {
		return "Nothing is read from files here.", nil
	}
	return "Instructions, commands, skills and plugins were read again.", nil
}
