package engine

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/crew"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/skill"
	"github.com/parley-go/parley/wire"
)

// Prompts of built-in commands.
//
//go:embed command_init.md
var initPrompt string

//go:embed command_review.md
var reviewPrompt string

//go:embed command_securityreview.md
var securityReviewPrompt string

//go:embed command_prcomments.md
var prCommentsPrompt string

// releaseNotes describes each version for users, newest first; CHANGELOG.md has the full list.
//
//go:embed command_releasenotes.md
var releaseNotes string

// A PromptCommand is a slash command from another source, such as a prompt of an MCP server.
type PromptCommand struct {
	Name         string // without the slash
	Description  string
	ArgumentHint string
	// Expand returns the text that is sent to the model in place of the command. It is not called by the goroutine that
	// owns the conversation.
	Expand func(ctx context.Context, args string) (wire.Content, error)
}

// commands expands slash commands and runs those that are answered locally. Its methods are called by the owner of the
// conversation.
type commands struct {
	*preface
	requests       *requester
	setModel       func(name string) (changed bool, err error)
	forkable       func() *crew.Tool
	clear, compact func(t *turn, p *prompt, args string) *ending // they replace the conversation
}

// A builtin is a built-in command. It is answered locally, or becomes a prompt.
type builtin struct {
	name, description, hint string
	aliases                 []string
	local                   func(c *commands, t *turn, p *prompt, args string) *ending
	prompt                  string
	expand                  func(ctx context.Context, s tool.Schedules, args string) (string, error) // if set, used instead of prompt
	unlisted                bool                                                                     // only /help lists it
}

// builtins returns the built-in commands in the order in which they are listed. All conversations share them.
func builtins() []*builtin {
	builtinOnce.Do(func() { builtinList = makeBuiltins() })
	return builtinList
}

var (
	builtinOnce sync.Once
	builtinList []*builtin
)

func makeBuiltins() []*builtin {
	return append([]*builtin{
		{name: "clear", aliases: []string{"reset", "new"}, description: "Start a new conversation; the old one stays in its session", local: func(c *commands, t *turn, p *prompt, args string) *ending { return c.clear(t, p, args) }},
		{name: "compact", hint: "<what to keep>", description: "Replace the conversation by a summary", local: func(c *commands, t *turn, p *prompt, args string) *ending { return c.compact(t, p, args) }},
		{name: "context", description: "Show how the context is used", local: (*commands).contextCommand},
		{name: "cost", aliases: []string{"usage"}, description: "Show the cost of the session", local: (*commands).costCommand},
		{name: "help", description: "List the commands", local: (*commands).helpCommand},
		{name: "init", description: "Write a CLAUDE.md file that describes the project for agents", prompt: initPrompt},
		{name: "loop", hint: "[interval] <prompt>", description: "Repeat a prompt: at an interval such as 5m, or when the model decides", expand: expandLoop},
		{name: "model", hint: "<model>", description: "Show or change the model", local: (*commands).modelCommand},
		{name: "pr-comments", hint: "<pull request>", description: "Show the comments of a pull request", prompt: prCommentsPrompt},
		{name: "release-notes", hint: "<version>", description: "Show the version and its changes", local: (*commands).releaseNotesCommand},
		{name: "review", hint: "<pull request>", description: "Review a pull request or the current changes", prompt: reviewPrompt},
		{name: "security-review", description: "Look for vulnerabilities in the current changes", prompt: securityReviewPrompt},
	}, sessionCommands()...)
}

// Commands lists the slash commands for hosts: those of the project and the user, those from other sources, and
// built-in ones. It leaves out commands that few sessions need, although they work when typed: hosts keep the list in
// memory for each session.
func (c *briefing) Commands() []*wire.SlashCommand { return c.listCommands(false) }

// listCommands is like Commands. With all it leaves out none.
func (c *briefing) listCommands(all bool) []*wire.SlashCommand {
	list := []*wire.SlashCommand{}
	if c.cfg.NoSlashCommands {
		return list
	}
	seen := map[string]bool{}
	for _, cmd := range c.projectCommands() {
		if cmd.NoPerson || cmd.Skill && c.only != nil && !slices.Contains(c.only, cmd.Name) {
			continue
		}
		seen[cmd.Name] = true
		list = append(list, describe(cmd))
	}
	for _, pc := range c.promptCommands() {
		if !seen[pc.Name] {
			seen[pc.Name] = true
			list = append(list, &wire.SlashCommand{Name: pc.Name, Description: pc.Description, ArgumentHint: pc.ArgumentHint})
		}
	}
	for _, b := range builtins() {
		if !seen[b.name] && (all || !b.unlisted) {
			list = append(list, &wire.SlashCommand{Name: b.name, Description: b.description, ArgumentHint: b.hint, Aliases: b.aliases, Builtin: true})
		}
	}
	return list
}

// CommandsChanged returns the message with the current slash commands.
func (c *briefing) CommandsChanged() *wire.CommandsChanged {
	return &wire.CommandsChanged{Commands: c.Commands()}
}

// SkillCommands lists the skills among the commands, including those that only the model loads.
func (c *briefing) SkillCommands() []*wire.SlashCommand {
	list := []*wire.SlashCommand{}
	for _, cmd := range c.projectCommands() {
		if cmd.Skill {
			list = append(list, describe(cmd))
		}
	}
	return list
}

// describe returns the description of a command for hosts, with its source.
func describe(cmd *project.Command) *wire.SlashCommand {
	s := &wire.SlashCommand{Name: cmd.Name, Description: cmd.Description, ArgumentHint: cmd.ArgumentHint, Aliases: cmd.Aliases}
	switch {
	case cmd.PluginName != "":
		s.Description = strings.TrimSpace("(" + cmd.PluginName + ") " + s.Description)
	default:
		s.Description = strings.TrimSpace(s.Description + " (" + cmd.Source + ")")
	}
	return s
}

func (c *briefing) promptCommands() []*PromptCommand {
	if c.cfg.PromptCommands == nil {
		return nil
	}
	return c.cfg.PromptCommands()
}

// A slashCommand is a command that a prompt consists of, with its arguments.
type slashCommand struct {
	name, args string
	local      func(t *turn, p *prompt, args string) *ending // nil if the command becomes a prompt
	file       *project.Command
	from       *PromptCommand
	text       string                                                 // of a built-in command
	expand     func(ctx context.Context, args string) (string, error) // if set, used instead of text
}

var slashPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^/([\pL\pN_][\pL\pN_.:-]*)(?:\s+([\s\S]*))?$`) })

// typed returns the name and arguments of a prompt that has the form of a command.
func typed(p *prompt) (name, args string, ok bool) {
	if p.origin != nil || p.m.ClientComposed {
		return "", "", false
	}
	blocks := p.m.Message.Content.All()
	if len(blocks) == 0 {
		return "", "", false
	}
	text, is := blocks[0].(*wire.TextBlock)
	if !is {
		return "", "", false
	}
	trimmed := strings.TrimSpace(text.Text)
	if !strings.HasPrefix(trimmed, "/") {
		return "", "", false // the pattern takes a millisecond to compile
	}
	m := slashPattern().FindStringSubmatch(trimmed)
	if m == nil {
		return "", "", false
	}
	return m[1], strings.TrimSpace(m[2]), true
}

// slash returns the command that a prompt consists of, or nil.
func (c *commands) slash(p *prompt) *slashCommand {
	name, args, ok := typed(p)
	if !ok || c.cfg.NoSlashCommands {
		return nil
	}
	if cmd := c.projectCommand(name); cmd != nil {
		s := &slashCommand{name: cmd.Name, args: args, file: cmd}
		if cmd.NoPerson {
			s.local = func(t *turn, p *prompt, args string) *ending {
				c.rec.Emit(c.init(t))
				return c.printed(t, "custom", name, args, fmt.Sprintf("The skill %s can only be loaded by the model. Describe the task, and the model will load it.", name))
			}
		}
		return s
	}
	for _, pc := range c.promptCommands() {
		if pc.Name == name {
			return &slashCommand{name: name, args: args, from: pc}
		}
	}
	for _, b := range builtins() {
		if b.name != name && !slices.Contains(b.aliases, name) {
			continue
		}
		s := &slashCommand{name: name, args: args, text: b.prompt}
		if b.local != nil {
			s.local = func(t *turn, p *prompt, args string) *ending { return b.local(c, t, p, args) }
		}
		if b.expand != nil {
			s.expand = func(ctx context.Context, args string) (string, error) { return b.expand(ctx, c.env.Schedules, args) }
		}
		return s
	}
	if terminalCommands()[name] {
		return &slashCommand{name: name, args: args, local: func(t *turn, _ *prompt, _ string) *ending {
			c.rec.Emit(c.init(t))
			return c.localOutput(t, "", "", "", "/"+name+" is not available here: it needs a terminal of its own.", "stdout", "unavailable_headless")
		}}
	}
	return nil
}

// model returns the model that the command names, or "".
func (s *slashCommand) model() string {
	if s == nil || s.file == nil {
		return ""
	}
	return s.file.Model
}

// content returns the content of a prompt that is sent to the model.
func (p *prompt) content() wire.Content {
	if p.expanded != nil {
		return *p.expanded
	}
	return p.m.Message.Content
}

// expandPrompt replaces a prompt by the text of its command and attaches the files that it names. It returns an ending
// if there is nothing to send to the model.
func (c *commands) expandPrompt(t *turn, p *prompt, cmd *slashCommand) *ending {
	if p.origin != nil || p.m.ClientComposed {
		return nil
	}
	if cmd == nil {
		text := p.m.Message.Content.String()
		p.attached = c.attach(t.ctx, text)
		if name, _, ok := typed(p); ok && !c.cfg.NoSlashCommands {
			note := &wire.TextBlock{Text: history.Reminder(fmt.Sprintf("The prompt below begins like a slash command, but there is no command /%s here, so nothing ran. Treat it as plain text.", name))}
			content := wire.Blocks(append([]wire.Block{note}, p.m.Message.Content.All()...)...)
			p.expanded, p.typed = &content, text
		}
		return nil
	}
	var said []wire.Block
	var err error
	switch {
	case cmd.file != nil:
		var text string
		c.runWhileServing(func() { text, err = c.expandParts(t.ctx, cmd.file, cmd.args, func(f func()) { c.Do(f) }) })
		if err == nil && cmd.file.Fork {
			return c.runForked(t, cmd, text)
		}
		said = append(said, &wire.TextBlock{Text: text})
		if err == nil {
			c.addCommandRules(cmd.file)
			p.attached = c.attach(t.ctx, text)
		}
	case cmd.from != nil:
		var content wire.Content
		c.runWhileServing(func() { content, err = cmd.from.Expand(t.ctx, cmd.args) })
		said = content.All()
	case cmd.expand != nil:
		var text string
		c.runWhileServing(func() { text, err = cmd.expand(t.ctx, cmd.args) })
		said = append(said, &wire.TextBlock{Text: text})
	default:
		text := strings.TrimSpace(strings.ReplaceAll(cmd.text, "$ARGUMENTS", cmd.args))
		said = append(said, &wire.TextBlock{Text: text})
	}
	if cause := context.Cause(t.ctx); cause != nil {
		return c.interrupted(t, "[Request interrupted by user]", "aborted_streaming", cause)
	}
	if err != nil {
		return c.failCommand(t, "custom", cmd.name, cmd.args, err.Error())
	}
	head := fmt.Sprintf("<command-message>%s</command-message>\n<command-name>/%s</command-name>", cmd.name, cmd.name)
	if cmd.args != "" {
		head += "\n<command-args>" + cmd.args + "</command-args>"
	}
	blocks := append([]wire.Block{&wire.TextBlock{Text: head}}, said...)
	blocks = append(blocks, p.m.Message.Content.All()[1:]...)
	content := wire.Blocks(blocks...)
	p.expanded = &content
	if len(p.m.Message.Content.All()) == 1 {
		p.typed = head
	}
	return nil
}

// runForked runs a command in a subagent. The report is the output of the command, which the model receives with the
// next prompt.
func (c *commands) runForked(t *turn, cmd *slashCommand, text string) *ending {
	file, agents := cmd.file, c.forkable()
	c.addCommandRules(file)
	var report string
	var err error
	c.runWhileServing(func() {
		_, report, err = agents.Fork(t.ctx, &tool.Call{ID: crew.ForkedCommand + cmd.name},
			&crew.Input{Type: file.Agent, Description: file.Description, Prompt: skill.Located(file.Dir, text), Command: "/" + cmd.name})
	})
	if cause := context.Cause(t.ctx); cause != nil {
		return c.interrupted(t, "[Request interrupted by user]", "aborted_streaming", cause)
	}
	if err != nil {
		return c.failCommand(t, "custom", cmd.name, cmd.args, err.Error())
	}
	c.hooks.Inform(fmt.Sprintf("The user ran the command /%s %s in a subagent. Its report:\n%s", cmd.name, cmd.args, report))
	return c.printed(t, "custom", "", "", report)
}

// terminalCommands has the commands that the official command offers in its terminal only. They never become prompts.
var terminalCommands = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.Fields(`add-dir advisor allowed-tools app bashes branch btw bug checkpoint chrome continue copy desktop diff exit
		export extra-usage feedback fork hooks ide install-github-app install-slack-app keybindings login logout marketplace memory mobile passes
		permissions plan plugin plugins privacy-settings quit remote-control remote-env resume rewind sandbox session share skills status statusline
		stickers tasks terminal-setup theme undo upgrade vim voice`) {
		names[name] = true
	}
	return names
})

// printed ends a turn with the output of a local command.
func (c *commands) printed(t *turn, as, name, args, text string) *ending {
	return c.localOutput(t, as, name, args, text, "stdout", "")
}

// failCommand ends a turn whose command failed.
func (c *commands) failCommand(t *turn, as, name, args, text string) *ending {
	return c.localOutput(t, as, name, args, text, "stderr", "failed")
}

// localOutput emits the output of a command on a stream. outcome is empty if the command succeeded.
func (c *commands) localOutput(t *turn, as, name, args, text, stream, outcome string) *ending {
	m := synthetic(text, syntheticError{stopReason: "end_turn"})
	m.LocalCommandSource = "<local-command-" + stream + ">" + text + "</local-command-" + stream + ">"
	if name != "" {
		m.LocalCommandRun = mustJSON(map[string]string{"command": name, "args": args})
	}
	if outcome != "" {
		m.LocalCommandOutcome = mustJSON(map[string]string{"kind": outcome})
	}
	m.UserMessageUUIDs = t.uuids()
	m.UserMessageUUID = firstOf(m.UserMessageUUIDs)
	t.echoPrompts(c.rec)
	c.rec.Emit(m)
	return &ending{noTurns: true, text: text, localCommand: as, local: true}
}

// answerCommand emits init and then the output of a command.
func (c *commands) answerCommand(t *turn, name, args, text string) *ending {
	c.rec.Emit(c.init(t))
	return c.printed(t, name, name, args, text)
}

func (c *commands) contextCommand(t *turn, p *prompt, args string) *ending {
	u := c.requests.Context()
	total, window := u.System+u.Tools+u.Messages, u.Window
	share := func(n int64) string {
		if window <= 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f%%", float64(n)*100/float64(window))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## Context Usage\n\n**Model:** %s  \n**Tokens:** %s / %s (%s, estimated)\n\n", c.model.ID, thousands(total), thousands(window), share(total))
	b.WriteString("| Category | Tokens | Percentage |\n|----------|--------|------------|\n")
	for _, row := range []struct {
		name string
		n    int64
	}{{"System prompt", u.System}, {"System tools", u.Tools}, {"Messages", u.Messages}, {"Free space", max(0, window-total)}} {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.name, thousands(row.n), share(row.n))
	}
	if pr := c.project; pr != nil && len(pr.Instructions) > 0 {
		b.WriteString("\n### Memory files\n\n| Source | Path | Tokens |\n|--------|------|--------|\n")
		for _, f := range pr.Instructions {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", f.Source, f.Path, thousands(int64(f.Size)/4))
		}
	}
	if list := c.skills(); len(list) > 0 {
		b.WriteString("\n### Skills\n\n| Skill | Source |\n|-------|--------|\n")
		for _, s := range list {
			fmt.Fprintf(&b, "| %s | %s |\n", s.Name, s.Source)
		}
	}
	return c.answerCommand(t, "context", args, strings.TrimSpace(b.String()))
}

// thousands formats a number of tokens.
func thousands(n int64) string {
	switch {
	case n >= 1_000_000:
		return strings.Replace(fmt.Sprintf("%.1fm", float64(n)/1e6), ".0m", "m", 1)
	case n >= 1000:
		return strings.Replace(fmt.Sprintf("%.1fk", float64(n)/1e3), ".0k", "k", 1)
	}
	return fmt.Sprint(n)
}

func (c *commands) costCommand(t *turn, p *prompt, args string) *ending {
	name, _, _ := typed(p)
	c.rec.Emit(c.init(t))
	return c.printed(t, name, "usage", args, c.requests.CostText())
}

// CostText describes the costs and the durations so far for people.
func (r *requester) CostText() string {
	usd, models := r.Ledger()
	wall, api := r.Times()
	// The cost is exact, but as a binary number it may be below a half.
	dollars := func(usd float64) string { return fmt.Sprintf("$%.4f", math.Round(usd*1e4)/1e4) }
	var b strings.Builder
	b.WriteString("Total cost: " + dollars(usd))
	if r.ledger.Unknown() {
		b.WriteString(" and what has no known price")
	}
	fmt.Fprintf(&b, "\nTotal duration (API): %s\nTotal duration (wall): %s", api.Round(time.Second), wall.Round(time.Second))
	for _, name := range slices.Sorted(maps.Keys(models)) {
		m := models[name]
		fmt.Fprintf(&b, "\n%s: %d input, %d output, %d cache read, %d cache write (%s)", name, m.InputTokens, m.OutputTokens, m.CacheReadInputTokens, m.CacheCreationInputTokens, dollars(m.CostUSD))
	}
	return b.String()
}

func (c *commands) helpCommand(t *turn, p *prompt, args string) *ending {
	var b strings.Builder
	b.WriteString("Commands:\n")
	for _, cmd := range c.listCommands(true) {
		b.WriteString("\n- /" + cmd.Name)
		if cmd.ArgumentHint != "" {
			b.WriteString(" " + cmd.ArgumentHint)
		}
		if cmd.Description != "" {
			b.WriteString(": " + cmd.Description)
		}
	}
	return c.answerCommand(t, "help", args, b.String())
}

func (c *commands) modelCommand(t *turn, p *prompt, args string) *ending {
	c.rec.Emit(c.init(t))
	if args == "" {
		var names []string
		for _, m := range c.cfg.Catalog.All() {
			names = append(names, m.ID)
		}
		return c.printed(t, "model", "model", args, fmt.Sprintf("The model is %s. Change it with /model NAME. Known names are %s; any other name is sent as it is.", c.model.ID, strings.Join(names, ", ")))
	}
	in, another := c.requests.SwitchInput(args, "command")
	if another {
		if err := SwitchRefused(c.runHooks(t, in, in.ToModel)); err != nil {
			return c.failCommand(t, "model", "model", args, "Error: "+err.Error())
		}
	}
	if _, err := c.setModel(args); err != nil {
		return c.failCommand(t, "model", "model", args, "Error: "+err.Error())
	}
	if another {
		c.fromHooks = append(c.fromHooks, c.runHooks(t, PostSwitch(in), in.ToModel).ForModel(hook.Above)...)
	}
	return c.printed(t, "model", "model", args, "Set model to "+c.model.ID+" for this session.")
}

// releaseNotesCommand prints the notes of all versions, or of the named one.
func (c *commands) releaseNotesCommand(t *turn, p *prompt, args string) *ending {
	version := c.cfg.OwnVersion
	if version == "" {
		version = "of no released version"
	}
	text := fmt.Sprintf("This is parley %s, compatible with version %s of the protocol's official command.\n\n", version, c.cfg.Version)
	if args == "" {
		return c.answerCommand(t, "release-notes", args, text+strings.TrimSpace(releaseNotes))
	}
	var versions []string
	for part := range strings.SplitSeq("\n"+releaseNotes, "\n## ") {
		name, _, _ := strings.Cut(part, "\n")
		if name == strings.TrimPrefix(args, "v") {
			return c.answerCommand(t, "release-notes", args, text+"## "+strings.TrimSpace(part))
		}
		if name != "" {
			versions = append(versions, name)
		}
	}
	c.rec.Emit(c.init(t))
	return c.failCommand(t, "release-notes", "release-notes", args, fmt.Sprintf("There are no release notes for version %s, only for %s.", args, strings.Join(versions, ", ")))
}
