package engine

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/ledger"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
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

// A builtin is a built-in command. It is answered locally, or becomes a prompt.
type builtin struct {
	name, description, hint string
	aliases                 []string
	local                   func(c *Conversation, t *turn, p *prompt, args string) *ending
	prompt                  string
	expand                  func(ctx context.Context, c *Conversation, args string) (string, error) // if set, used instead of prompt
	unlisted                bool                                                                    // only /help lists it
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
		{name: "clear", aliases: []string{"reset", "new"}, description: "Begin a new conversation; what was said is kept in its own session", local: (*Conversation).clearCommand},
		{name: "compact", hint: "<what to keep in mind>", description: "Replace what was said by a summary of it", local: (*Conversation).compactCommand},
		{name: "context", description: "Show what fills the model's context", local: (*Conversation).contextCommand},
		{name: "cost", aliases: []string{"usage"}, description: "Show what the session has cost so far", local: (*Conversation).costCommand},
		{name: "help", description: "List the commands", local: (*Conversation).helpCommand},
		{name: "init", description: "Write a CLAUDE.md file that tells agents about the project", prompt: initPrompt},
		{name: "loop", hint: "[interval] <prompt>", description: "Send a prompt again and again: at an interval such as 5m, or when the model sees fit", expand: expandLoop},
		{name: "model", hint: "<model>", description: "Show or change the model", local: (*Conversation).modelCommand},
		{name: "pr-comments", hint: "<pull request>", description: "Show the comments of a pull request", prompt: prCommentsPrompt},
		{name: "release-notes", hint: "<version>", description: "Tell which version this is, and what it and former ones brought", local: (*Conversation).releaseNotesCommand},
		{name: "review", hint: "<pull request>", description: "Review a pull request or the changes at hand", prompt: reviewPrompt},
		{name: "security-review", description: "Look for weaknesses in the changes at hand", prompt: securityReviewPrompt},
	}, sessionCommands()...)
}

// Commands lists the slash commands for hosts: those of the project and the user, those from other sources, and
// built-in ones. It leaves out commands that few sessions need, although they work when typed: hosts keep the list in
// memory for each session.
func (c *Conversation) Commands() []*wire.SlashCommand { return listCommands(c, false) }

func listCommands(c *Conversation, all bool) []*wire.SlashCommand {
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
func (c *Conversation) CommandsChanged() *wire.CommandsChanged {
	return &wire.CommandsChanged{Commands: c.Commands()}
}

// SkillCommands lists the skills among the commands, including those that only the model loads.
func (c *Conversation) SkillCommands() []*wire.SlashCommand {
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

func (c *Conversation) promptCommands() []*PromptCommand {
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
	m := slashPattern().FindStringSubmatch(strings.TrimSpace(text.Text))
	if m == nil {
		return "", "", false
	}
	return m[1], strings.TrimSpace(m[2]), true
}

// slash returns the command that a prompt consists of, or nil.
func (c *Conversation) slash(p *prompt) *slashCommand {
	name, args, ok := typed(p)
	if !ok || c.cfg.NoSlashCommands {
		return nil
	}
	if cmd := c.projectCommand(name); cmd != nil {
		s := &slashCommand{name: cmd.Name, args: args, file: cmd}
		if cmd.NoPerson {
			s.local = func(t *turn, p *prompt, args string) *ending {
				c.rec.Emit(c.init(t))
				return c.printed(t, "custom", name, args, fmt.Sprintf("The skill %s is for the model alone. Ask for what it does, and the model will load it.", name))
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
			s.expand = func(ctx context.Context, args string) (string, error) { return b.expand(ctx, c, args) }
		}
		return s
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
func (c *Conversation) expandPrompt(t *turn, p *prompt, cmd *slashCommand) *ending {
	if p.origin != nil || p.m.ClientComposed {
		return nil
	}
	if cmd == nil {
		text := p.m.Message.Content.String()
		p.attached = c.attach(t.ctx, text)
		if name, _, ok := typed(p); ok && !c.cfg.NoSlashCommands {
			note := &wire.TextBlock{Text: history.Reminder(fmt.Sprintf("The prompt below begins like a slash command, but there is no command /%s here, so nothing was run. Take it as plain words.", name))}
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
		said = append(said, &wire.TextBlock{Text: text})
		if err == nil {
			c.grant(cmd.file)
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
		return c.complained(t, "custom", cmd.name, cmd.args, err.Error())
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

// printed ends a turn with the output of a local command.
func (c *Conversation) printed(t *turn, as, name, args, text string) *ending {
	return c.localOutput(t, as, name, args, text, "stdout")
}

// complained ends a turn whose command failed.
func (c *Conversation) complained(t *turn, as, name, args, text string) *ending {
	return c.localOutput(t, as, name, args, text, "stderr")
}

func (c *Conversation) localOutput(t *turn, as, name, args, text, stream string) *ending {
	m := c.synthetic(text, syntheticError{stopReason: "end_turn"})
	m.LocalCommandSource = "<local-command-" + stream + ">" + text + "</local-command-" + stream + ">"
	m.LocalCommandRun = mustJSON(map[string]string{"command": name, "args": args})
	if stream == "stderr" {
		m.LocalCommandOutcome = json.RawMessage(`{"kind":"failed"}`)
	}
	m.UserMessageUUIDs = t.uuids()
	m.UserMessageUUID = firstOf(m.UserMessageUUIDs)
	c.echoPrompts(t)
	c.rec.Emit(m)
	return &ending{noTurns: true, text: text, localCommand: as}
}

// answer emits init and then the output of a command.
func (c *Conversation) answer(t *turn, name, args, text string) *ending {
	c.rec.Emit(c.init(t))
	return c.printed(t, name, name, args, text)
}

// clearCommand starts a new conversation: another session, with no history and no cost.
func (c *Conversation) clearCommand(t *turn, p *prompt, args string) *ending {
	id := session.NewID()
	if c.started {
		c.runHooks(t, &wire.SessionEndInput{Reason: "clear"}, "clear")
	}
	for _, task := range c.env.Tasks().All() {
		if info := task.Info(); info.Status == tool.TaskRunning {
			c.tasks.Forget(info.ID)
			c.runWhileServing(task.Stop)
		}
	}
	next, old := recorder.Place{ID: id}, c.rec.Place()
	if old.Log != nil && c.cfg.NewLog != nil {
		var err error
		if next.Log, err = c.cfg.NewLog(id); err != nil {
			c.rec.Emit(c.init(t))
			return c.complained(t, "clear", "clear", args, "Error: the new session cannot be begun, so nothing was cleared: "+err.Error())
		}
		if err := errors.Join(c.rec.Record(), old.Log.Close()); err != nil {
			c.runner.Log.Error("the session could not be closed", "error", err)
		}
	}
	reset := session.NewID()
	c.rec.Emit(&wire.ConversationReset{NewConversationID: reset, Trigger: "clear", UserMessageUUID: p.uuid, UUID: reset})
	c.rec.Emit(&wire.BackgroundTasksChanged{Tasks: []*wire.BackgroundTask{}})
	c.rec.Begin(next)
	c.hist, c.lastUsage = history.History{}, nil // makePrefix writes its prefix below
	c.ledger, c.spentBefore = ledger.New(c.cfg.Catalog), 0
	c.ledger.BeginTurn()
	if c.keeper != nil {
		c.set.loadPart = nil // it reads the previous session
		c.keeper = c.newKeeper()
		c.publish()
	}
	c.compaction.Reset()
	c.loseContext()
	c.brief.forget()
	c.reloadProject() // an agent may have written these files, for example after /init
	c.makePrefix()
	c.started = true
	c.fromHooks = c.sessionHooks(t, "clear")
	c.rec.Emit(c.init(t))
	return &ending{noTurns: true, localCommand: "clear"}
}

func (c *Conversation) contextCommand(t *turn, p *prompt, args string) *ending {
	u := c.Context()
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
	return c.answer(t, "context", args, strings.TrimSpace(b.String()))
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

func (c *Conversation) costCommand(t *turn, p *prompt, args string) *ending {
	usd, models := c.Ledger()
	var b strings.Builder
	fmt.Fprintf(&b, "Total cost: $%.4f", usd)
	if c.ledger.Unknown() {
		b.WriteString(" and what has no known price")
	}
	fmt.Fprintf(&b, "\nTotal duration (API): %s\nTotal duration (wall): %s", c.ledger.APITime().Round(time.Second), c.runner.Now().Sub(c.began).Round(time.Second))
	for _, name := range slices.Sorted(maps.Keys(models)) {
		m := models[name]
		fmt.Fprintf(&b, "\n%s: %d input, %d output, %d cache read, %d cache write ($%.4f)", name, m.InputTokens, m.OutputTokens, m.CacheReadInputTokens, m.CacheCreationInputTokens, m.CostUSD)
	}
	name, _, _ := typed(p)
	c.rec.Emit(c.init(t))
	return c.printed(t, name, "usage", args, b.String())
}

func (c *Conversation) helpCommand(t *turn, p *prompt, args string) *ending {
	var b strings.Builder
	b.WriteString("The commands are:\n")
	for _, cmd := range listCommands(c, true) {
		b.WriteString("\n- /" + cmd.Name)
		if cmd.ArgumentHint != "" {
			b.WriteString(" " + cmd.ArgumentHint)
		}
		if cmd.Description != "" {
			b.WriteString(": " + cmd.Description)
		}
	}
	return c.answer(t, "help", args, b.String())
}

func (c *Conversation) modelCommand(t *turn, p *prompt, args string) *ending {
	c.rec.Emit(c.init(t))
	if args == "" {
		var names []string
		for _, m := range c.cfg.Catalog.All() {
			names = append(names, m.ID)
		}
		return c.printed(t, "model", "model", args, fmt.Sprintf("The model is %s. Change it with /model NAME; known are %s, and any other name is taken as it is.", c.model.ID, strings.Join(names, ", ")))
	}
	in, another := c.SwitchInput(args, "command")
	if another {
		if err := SwitchRefused(c.runHooks(t, in, in.ToModel)); err != nil {
			return c.complained(t, "model", "model", args, "Error: "+err.Error())
		}
	}
	if _, err := c.SetModel(args); err != nil {
		return c.complained(t, "model", "model", args, "Error: "+err.Error())
	}
	if another {
		c.fromHooks = append(c.fromHooks, c.runHooks(t, PostSwitch(in), in.ToModel).ForModel(hook.Above)...)
	}
	return c.printed(t, "model", "model", args, "Set model to "+c.model.ID+" for this session.")
}

// releaseNotesCommand prints the notes of all versions, or of the named one.
func (c *Conversation) releaseNotesCommand(t *turn, p *prompt, args string) *ending {
	version := c.cfg.OwnVersion
	if version == "" {
		version = "of no released version"
	}
	text := fmt.Sprintf("This is parley %s, compatible with version %s of the protocol's official command.\n\n", version, c.cfg.Version)
	if args == "" {
		return c.answer(t, "release-notes", args, text+strings.TrimSpace(releaseNotes))
	}
	var versions []string
	for part := range strings.SplitSeq("\n"+releaseNotes, "\n## ") {
		name, _, _ := strings.Cut(part, "\n")
		if name == strings.TrimPrefix(args, "v") {
			return c.answer(t, "release-notes", args, text+"## "+strings.TrimSpace(part))
		}
		if name != "" {
			versions = append(versions, name)
		}
	}
	c.rec.Emit(c.init(t))
	return c.complained(t, "release-notes", "release-notes", args, fmt.Sprintf("There are no notes of a version %s. There are notes of %s.", args, strings.Join(versions, ", ")))
}
