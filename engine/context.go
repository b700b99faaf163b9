package engine

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/crew"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/read"
	"github.com/parley-go/parley/engine/tool/skill"
	"github.com/parley-go/parley/engine/tool/tasklist"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// The context of the user and the project is sent once, before the first prompt, and is part of the conversation from
// then on. It is recorded like any other message, so a resumed session sends the same bytes even if the files have
// changed.

//go:embed context.md
var contextIntro string

// contextField marks the records that contain files, with their paths.
const contextField = "contextFiles"

// gitTime limits how long reading the state of the repository may take.
const gitTime = 3 * time.Second

// briefing manages what the model receives beside prompts and results: the project's files, its commands and skills,
// and reminders. Its methods are called by the owner of the conversation unless documented otherwise.
type briefing struct {
	told           notices
	project        *project.Context
	only           []string    // names of the enabled skills; nil means all
	noInstructions bool        // see [Config]
	outputStyle    string      // see [Config]
	planWords      string      // see [Tuning.PlanInstructions]
	begun          bool        // its agent has sent its first context
	notices        []string    // to be emitted when the first turn begins
	hostPrompt     func() bool // reports whether the host supplies the system prompt

	*owner
	*permissions
	*toolset
	*hooks
	*writer
	cfg    *Config
	env    *tool.Env
	rec    *recorder.Recorder
	runner *call.Runner
}

// sendContext sends the context of the user and the project and the instructions of MCP servers to the model, unless
// they were sent before.
func (c *briefing) sendContext(t *turn) error {
	if err := c.sendProject(t); err != nil {
		return err
	}
	return c.sendInstructions()
}

// instructionsField marks the records that contain instructions of MCP servers, with the names of the servers.
const instructionsField = "mcpInstructions"

// sendInstructions sends the instructions of the MCP servers that have connected since the last prompt.
func (c *briefing) sendInstructions() error {
	var names []string
	var b strings.Builder
	for _, m := range c.managers() {
		for _, in := range m.Instructions() {
			if !slices.Contains(c.told.servers, in.Server) {
				names = append(names, in.Server)
				fmt.Fprintf(&b, "\n\n## %s\n\n%s", in.Server, in.Text)
			}
		}
	}
	if names == nil {
		return nil
	}
	c.told.servers = append(c.told.servers, names...)
	text := "# MCP servers\n\nThese MCP servers describe how to use their tools." + b.String()
	return c.append(fields("isMeta", true, instructionsField, names), mustJSON(&wire.TextBlock{Text: history.Reminder(text)}))
}

// sendProject sends the context of the user and the project to the model, unless it was sent before.
func (c *briefing) sendProject(t *turn) error {
	p := c.project
	if p == nil || c.told.context {
		return c.sendSkills()
	}
	c.instructionHooks(t)
	c.told.context = true
	var parts []string
	var paths []string
	if len(p.Instructions) > 0 && !c.noInstructions {
		var b strings.Builder
		b.WriteString(strings.TrimSpace(contextIntro))
		for _, f := range p.Instructions {
			paths = append(paths, f.Path)
			b.WriteString("\n\n" + showInstructions(f))
		}
		parts = append(parts, b.String())
	}
	var git string
	c.runWhileServing(func() {
		ctx, cancel := context.WithTimeout(t.ctx, gitTime)
		defer cancel()
		git = p.Git(ctx, c.cfg.Git)
	})
	if git != "" {
		parts = append(parts, "# Repository\n\n"+git)
	}
	if !c.noInstructions && !c.below && p.MemoryDir != "" {
		parts = append(parts, showNotes(p, !c.hostPrompt())...)
	}
	list := c.skillList()
	c.told.skills = list
	if list != "" {
		parts = append(parts, list)
	}
	if len(parts) == 0 {
		return nil
	}
	return c.appendReminder(strings.Join(parts, "\n\n"), paths)
}

// MemoryFiles lists the instructions that the model has, with an estimate of their tokens.
func (c *briefing) MemoryFiles() []*wire.ContextMemoryFile {
	list := []*wire.ContextMemoryFile{}
	if c.project == nil || c.noInstructions || !c.told.context {
		return list
	}
	for _, f := range c.project.Instructions {
		list = append(list, &wire.ContextMemoryFile{Path: f.Path, Type: call.InstructionsLoaded(f, "").MemoryType, Tokens: int64(len(f.Text)) / 4})
	}
	return list
}

// instructionHooks runs the hooks for the instructions in the context, unless it was sent before.
func (c *briefing) instructionHooks(t *turn) {
	if c.project == nil || c.told.context || c.told.loaded || c.noInstructions || c.below {
		return
	}
	c.told.loaded = true
	for _, f := range c.project.Instructions {
		in := call.InstructionsLoaded(f, "session_start")
		if c.told.again {
			in = call.InstructionsLoaded(f, "compact")
			in.PromptID = t.promptID
		}
		c.runHooks(t, in, f.Path)
	}
}

//go:embed memory.md
var memoryIntro string

// showNotes describes the model's own notes, unless the host has its own system prompt, and includes their index.
// Subagents keep no notes.
func showNotes(p *project.Context, describe bool) (parts []string) {
	if describe {
		parts = append(parts, fmt.Sprintf(strings.TrimSpace(memoryIntro), p.MemoryDir))
	}
	if text := strings.TrimSpace(p.Memory); text != "" {
		parts = append(parts, fmt.Sprintf("Contents of %s (your notes from earlier sessions of this project):\n\n%s", filepath.Join(p.MemoryDir, "MEMORY.md"), text))
	}
	return parts
}

// showInstructions formats a file of instructions for the model.
func showInstructions(f *project.File) string {
	whose := map[string]string{project.User: "of the user, for all projects", project.Project: "of the project", project.Local: "of the user, for this project"}[f.Source]
	if f.From != "" {
		whose += ", imported by " + f.From
	}
	return fmt.Sprintf("Contents of %s (%s):\n\n%s", f.Path, whose, strings.TrimSpace(f.Text))
}

// appendReminder sends the model a reminder with the contents of files, and records their paths.
func (c *briefing) appendReminder(text string, paths []string) error {
	if paths == nil {
		paths = []string{}
	}
	return c.append(fields("isMeta", true, contextField, paths), mustJSON(&wire.TextBlock{Text: history.Reminder(text)}))
}

// restoreContext restores from a session's record which files and instructions were sent.
func (c *briefing) restoreContext(e *session.Entry) {
	if raw := e.Fields[instructionsField]; raw != nil {
		var names []string
		json.Unmarshal(raw, &names)
		c.told.servers = append(c.told.servers, names...)
	}
	raw := e.Fields[contextField]
	if raw == nil || c.project == nil {
		return
	}
	var paths []string
	json.Unmarshal(raw, &paths)
	c.project.MarkSent(paths...)
	if !c.told.context {
		c.told.context = true
		c.told.skills = c.skillList()
	}
}

// loseContext is called when the context is no longer part of the conversation. It is then sent again with the next
// prompt.
func (c *briefing) loseContext() {
	c.told = notices{tasks: c.told.tasks}
	if c.project != nil {
		c.project.Forget()
	}
}

// maxSkillList limits the list of skills, in bytes.
const maxSkillList = 16 << 10

// skillList returns the list of skills for the model, with names and descriptions.
func (c *briefing) skillList() string {
	if c.findTool("Skill") == nil {
		return ""
	}
	var b strings.Builder
	left := 0
	for _, cmd := range c.skills() {
		line := "- " + cmd.Name
		if cmd.Description != "" {
			line += ": " + cmd.Description
		}
		if b.Len()+len(line) > maxSkillList {
			left++
			continue
		}
		b.WriteString(line + "\n")
	}
	if b.Len() == 0 {
		return ""
	}
	if left > 0 {
		fmt.Fprintf(&b, "(%d more are not listed.)\n", left)
	}
	return "# Skills\n\nThese can be loaded with the Skill tool:\n" + strings.TrimSpace(b.String())
}

// sendSkills sends the list of skills again if it has changed.
func (c *briefing) sendSkills() error {
	if c.project == nil {
		return nil
	}
	list := c.skillList()
	if list == c.told.skills {
		return nil
	}
	c.told.skills = list
	if list == "" {
		list = "There are no skills any more."
	} else {
		list = "The skills have changed.\n\n" + list
	}
	return c.appendReminder(list, nil)
}

// skills returns the commands that the model may load by itself.
func (c *briefing) skills() []*project.Command {
	var list []*project.Command
	for _, cmd := range c.projectCommands() {
		if !cmd.NoModel && (c.only == nil || slices.Contains(c.only, cmd.Name)) {
			list = append(list, cmd)
		}
	}
	return list
}

// projectCommands returns the commands and skills that are defined in files.
func (c *briefing) projectCommands() []*project.Command {
	if c.project == nil || c.cfg.NoSlashCommands {
		return nil
	}
	return c.project.Commands
}

func (c *briefing) projectCommand(name string) *project.Command {
	if c.project == nil || c.cfg.NoSlashCommands {
		return nil
	}
	return c.project.Command(name)
}

// library serves the Skill tool. Tool calls use it, and each of its functions runs in the owner of the conversation.
type library struct {
	skills func() []*project.Command
	find   func(name string) *project.Command
	expand func(ctx context.Context, cmd *project.Command, args string) (string, error)
	fork   func(name string) *crew.Tool // grants the tools of a skill that is about to run in an agent
}

func newLibrary(c *briefing, agents func() *crew.Tool) library {
	return library{
		fork: func(name string) (a *crew.Tool) {
			c.Do(func() {
				c.addCommandRules(c.projectCommand(name))
				a = agents()
			})
			return a
		},
		skills: func() (list []*project.Command) {
			c.Do(func() { list = c.skills() })
			return list
		},
		find: func(name string) (cmd *project.Command) {
			c.Do(func() {
				if found := c.projectCommand(name); found != nil && slices.Contains(c.skills(), found) {
					cmd = found
				}
			})
			return cmd
		},
		expand: func(ctx context.Context, cmd *project.Command, args string) (string, error) {
			return c.expandParts(ctx, cmd, args, func(f func()) { c.Do(f) })
		},
	}
}

func (l library) Names() (names []string) {
	for _, cmd := range l.skills() {
		names = append(names, cmd.Name)
	}
	return names
}

func (l library) Find(name string) *skill.Skill {
	cmd := l.find(name)
	if cmd == nil {
		return nil
	}
	s := &skill.Skill{Name: cmd.Name, Description: cmd.Description, Dir: cmd.Dir, Plain: cmd.Plain, Model: cmd.Model, Fork: cmd.Fork, Agent: cmd.Agent}
	if cmd.Trusted {
		s.AllowedTools = cmd.AllowedTools
	}
	return s
}

func (l library) Text(ctx context.Context, name, args string) (string, error) {
	cmd := l.find(name)
	if cmd == nil {
		return "", fmt.Errorf("the skill %s is gone", name)
	}
	return l.expand(ctx, cmd, args)
}

func (l library) Fork(ctx context.Context, tc *tool.Call, s *skill.Skill, text string) (id, report string, err error) {
	a := l.fork(s.Name)
	if a == nil {
		return "", "", crew.ErrEnded
	}
	return a.Fork(ctx, tc, &crew.Input{Type: s.Agent, Description: s.Description, Prompt: text, Command: "/" + s.Name})
}

// expandParts returns the expanded text of a command. Its shell commands run if the file is trusted and the rules,
// including those of the file, allow them. inside runs a function in the goroutine that owns the conversation.
func (c *briefing) expandParts(ctx context.Context, cmd *project.Command, args string, inside func(func())) (string, error) {
	var b strings.Builder
	for _, part := range cmd.Expand(args) {
		if !part.Shell {
			b.WriteString(part.Text)
			continue
		}
		if c.cfg.Tuning.NoCommandShell {
			fmt.Fprintf(&b, "[The command `%s` of %s did not run, because the settings disable shell commands in commands and skills.]", part.Text, cmd.Path)
			continue
		}
		if !cmd.Trusted {
			fmt.Fprintf(&b, "[The command `%s` of %s did not run, because that file is not trusted. Run it if it is needed.]", part.Text, cmd.Path)
			continue
		}
		out, err := c.shell(ctx, cmd, part.Text, inside)
		if err != nil {
			return "", fmt.Errorf("Shell command failed for pattern \"!`%s`\": %w", part.Text, err)
		}
		b.WriteString(out)
	}
	if cmd.Skill {
		return strings.TrimLeft(b.String(), "\n"), nil // the end of the file stays as it is
	}
	return strings.TrimSpace(b.String()), nil
}

// shell runs a shell command from the text of a trusted file.
func (c *briefing) shell(ctx context.Context, cmd *project.Command, command string, inside func(func())) (string, error) {
	var tl tool.Tool
	inside(func() { tl = c.findTool("Bash") })
	if tl == nil {
		return "", errors.New("there is no Bash tool")
	}
	input := mustJSON(map[string]string{"command": command, "description": "Part of /" + cmd.Name})
	access, err := tl.Access(c.env, input)
	if err != nil {
		return "", err
	}
	// In a subagent the skill's own rules do not apply: the current rules of the parent conversation do.
	var d policy.Decision
	if c.below {
		d, _, _ = c.runner.Decide(tl, input, access, nil)
	} else {
		own := *c.view.Load()
		own.Policy = policy.New(append(own.Policy.Rules(), c.commandRules(cmd.Name, cmd.Path, cmd.AllowedTools)...)...)
		req := own.Request(c.env, tl, input, access, nil)
		req.ReadWall = c.runner.Walled(access)
		d = own.Rules().Decide(req)
	}
	err = errors.New("the conversation is over")
	inside(func() {
		switch d.Behavior {
		case wire.BehaviorAllow:
			// Record the intent before the effect.
			err = c.rec.Record(&session.Entry{Type: "parley-shell", Fields: fields("command", command, "of", cmd.Path)})
		case wire.BehaviorDeny:
			err = errors.New(d.Reason)
		default:
			err = fmt.Errorf("it needs approval; name it in the allowed-tools of %s, or allow it by a rule", cmd.Path)
		}
	})
	if err != nil {
		return "", err
	}
	r, err := tl.Run(ctx, &tool.Call{ID: "shell_" + session.NewID(), Input: input, Env: c.view.Load().Env, Place: d.DecidedBy.Place()})
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(r.Content.String()), nil
}

// sendNested sends the model the instructions found for files that it touched.
func (c *briefing) sendNested(found []*project.File) error {
	var parts, paths []string
	for _, f := range found {
		parts = append(parts, showInstructions(f))
		paths = append(paths, f.Path)
	}
	return c.appendReminder("The project has instructions for files that you just touched.\n\n"+strings.Join(parts, "\n\n"), paths)
}

// Limits of files that a prompt attaches with @.
const (
	maxMentions  = 20
	maxMentioned = 512 << 10 // bytes of text
	maxListed    = 200       // entries of a directory
)

// lineRange matches a line range after the path of a mention: a.go:10-20 or a.go#L10-20.
var lineRange = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?::|#L?)(\d+)(?:-L?(\d+))?$`) })

// An attachment is a file that a prompt names.
type attachment struct {
	path   string
	blocks []json.RawMessage
	nested []*project.File
}

// attach reads the files that a text names with an @. Rules apply as for a call of Read; a file that needs permission
// is not read. It is called by the owner of the conversation.
func (c *briefing) attach(ctx context.Context, text string) []*attachment {
	mentions := project.Mentions(text)
	if len(mentions) > maxMentions {
		mentions = mentions[:maxMentions]
	}
	var list []*attachment
	size := 0
	tl := read.New()
	for _, m := range mentions {
		input := map[string]any{}
		name := m
		if at := lineRange().FindStringSubmatch(m); at != nil {
			var from, to int
			fmt.Sscan(at[1], &from)
			name = strings.TrimSuffix(m, at[0])
			input["offset"], input["limit"] = from, 1
			if fmt.Sscan(at[2], &to); to >= from && to > 0 {
				input["limit"] = to - from + 1
			}
		}
		path := files.Abs(c.env, name)
		input["file_path"] = path
		access := []tool.Access{{Kind: tool.Read, Path: path}}
		var d policy.Decision
		var req *policy.Request
		hidden := false
		c.runWhileServing(func() {
			v := c.view.Load()
			req = v.Request(c.env, tl, mustJSON(input), access, nil)
			d = v.Rules().Decide(req)
			target := req.Resolved[path]
			hidden = c.env.Hidden != nil && target.Info != nil && c.env.Hidden(path, &target)
		})
		resolved, info := req.Resolved, req.Resolved[path].Info
		if info == nil || !info.IsDir() && !info.Mode().IsRegular() {
			continue // it names no file
		}
		if d.Behavior != wire.BehaviorAllow || hidden {
			reason := d.Reason
			if reason == "" {
				reason = "a rule hides it"
			}
			c.rec.Emit(&wire.Informational{Content: fmt.Sprintf("@%s was not attached: %s.", m, reason), Level: "warning"})
			continue
		}
		a := &attachment{path: path}
		var result *tool.Result
		var err error
		c.runWhileServing(func() {
			mention := &tool.Call{ID: "mention_" + session.NewID(), Input: mustJSON(input), Env: c.view.Load().Env, Resolved: resolved}
			if info.IsDir() {
				result, err = c.listDirectory(mention, path)
			} else {
				result, err = tl.Run(ctx, mention)
			}
			if c.project != nil && err == nil {
				a.nested = c.project.Below(path)
			}
		})
		if err != nil {
			c.rec.Emit(&wire.Informational{Content: fmt.Sprintf("@%s was not attached: %v.", m, err), Level: "warning"})
			continue
		}
		text := result.Content.String()
		if size += len(text); size > maxMentioned {
			c.rec.Emit(&wire.Informational{Content: fmt.Sprintf("@%s was not attached: the prompt names more than is attached at once.", m), Level: "warning"})
			break
		}
		what := "Its contents, as Read shows them"
		if info.IsDir() {
			what = "Its entries"
		}
		head := fmt.Sprintf("The prompt names @%s, which is %s. %s:\n", m, path, what)
		a.blocks = append(a.blocks, mustJSON(&wire.TextBlock{Text: history.Reminder(head + text)}))
		for _, b := range result.Content.Blocks {
			if _, ok := b.(*wire.TextBlock); !ok {
				a.blocks = append(a.blocks, mustJSON(b))
			}
		}
		list = append(list, a)
	}
	return list
}

// listDirectory lists a directory, up to a limit and without entries that rules hide.
func (c *briefing) listDirectory(call *tool.Call, dir string) (*tool.Result, error) {
	root, real, err := files.OpenDirectory(call, dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(maxListed + 1)
	if err != nil && len(entries) == 0 {
		return tool.Text("(The directory is empty.)", nil), nil
	}
	var b bytes.Buffer
	for i, e := range entries {
		if i == maxListed {
			b.WriteString("… and more\n")
			break
		}
		if c.env.Hidden != nil && c.env.Hidden(filepath.Join(real, e.Name()), nil) {
			continue
		}
		b.WriteString(e.Name())
		if e.IsDir() {
			b.WriteByte('/')
		}
		b.WriteByte('\n')
	}
	return tool.Text(b.String(), nil), nil
}

// appendAttachments records the attachments of a prompt and adds them to the history.
func (c *briefing) appendAttachments(list []*attachment) error {
	for _, a := range list {
		if err := c.append(fields("isMeta", true), a.blocks...); err != nil {
			return err
		}
		if len(a.nested) > 0 {
			if err := c.sendNested(a.nested); err != nil {
				return err
			}
		}
	}
	return nil
}

// SetProject replaces the project's files after they were read again. The model receives the changes with the next
// prompt.
func (c *briefing) SetProject(p *project.Context) {
	if old := c.project; old != nil {
		p.MarkSent(old.AllTold()...)
	}
	c.project = p
	c.publish()
}

// reloadProject reads the files of the project again. It returns false if the conversation does not read them.
func (c *briefing) reloadProject() bool {
	if c.project == nil || c.cfg.ReadProject == nil {
		return false
	}
	c.SetProject(c.cfg.ReadProject())
	return true
}

// Project returns the context of the user and the project, or nil if none was read.
func (c *briefing) Project() *project.Context { return c.project }

// style returns the current output style; nil means the default.
func (c *briefing) style() *project.Style {
	if c.project == nil || c.outputStyle == "" {
		return nil
	}
	return c.project.Style(c.outputStyle)
}

// OutputStyle returns the name of the output style. As in the official CLI, this is the name in the settings even if
// there is no such style.
func (c *briefing) OutputStyle() string {
	if s := c.style(); s != nil {
		return s.Name
	}
	return cmp.Or(c.outputStyle, "default")
}

// SetOutputStyle changes the output style, starting with the next turn; empty or "default" means the default.
func (c *briefing) SetOutputStyle(name string) error {
	if name != "" && name != "default" && (c.project == nil || c.project.Style(name) == nil) {
		return fmt.Errorf("there is no output style named %s", name)
	}
	c.outputStyle = name
	return nil
}

// A contextFile describes a file that was read, as a member of init.
type contextFile struct {
	Path   string `json:"path"`
	Kind   string `json:"kind"`
	Source string `json:"source"`
	SHA256 string `json:"sha256"`
	Bytes  int    `json:"bytes"`
}

// initContext adds the context that was read to init.
func (c *briefing) initContext(m *wire.Init) {
	m.OutputStyle = c.OutputStyle()
	p := c.project
	if p == nil {
		return
	}
	for _, cmd := range c.projectCommands() {
		if cmd.Skill && (c.only == nil || slices.Contains(c.only, cmd.Name)) && !cmd.NoPerson {
			m.Skills = append(m.Skills, cmd.Name)
		}
	}
	if p.MemoryDir != "" {
		m.MemoryPaths = mustJSON(map[string]string{"auto": p.MemoryDir + string(filepath.Separator)})
	}
	for _, pl := range p.Plugins {
		if pl.Err != nil {
			e := &wire.InitPluginError{Plugin: pl.Name, Type: "invalid-plugin", Message: pl.Err.Error(), Path: pl.Dir}
			if errors.Is(pl.Err, project.ErrNoPlugin) {
				e.Type = "path-not-found"
			}
			m.PluginErrors = append(m.PluginErrors, e)
			continue
		}
		m.Plugins = append(m.Plugins, &wire.InitPlugin{Name: pl.Name, Path: pl.Dir, Source: pl.ID(), Version: pl.Version})
	}
	list := []contextFile{}
	for _, f := range p.Files {
		list = append(list, contextFile{f.Path, f.Kind, f.Source, fmt.Sprintf("%x", f.Sum), f.Size})
	}
	m.Extra["context_files"] = mustJSON(list)
	if len(p.Problems) > 0 {
		type problem struct {
			Path   string `json:"path"`
			Reason string `json:"reason"`
		}
		var list []problem
		for _, pr := range p.Problems {
			list = append(list, problem{pr.Path, pr.Reason})
		}
		m.Extra["context_problems"] = mustJSON(list)
	}
}

// preload returns the texts of the skills that an agent starts with. inside runs a function in the goroutine that owns
// the conversation.
func (c *briefing) preload(ctx context.Context, def *agents.Definition, inside func(func())) (texts []string) {
	for _, name := range def.Skills {
		var cmd *project.Command
		inside(func() {
			if cmd = c.projectCommand(name); cmd != nil && c.only != nil && !slices.Contains(c.only, cmd.Name) {
				cmd = nil
			}
		})
		if cmd == nil {
			texts = append(texts, fmt.Sprintf("The skill %s, which your definition names, does not exist. If you need it, report that.", name))
			continue
		}
		text, err := c.expandParts(ctx, cmd, "", inside)
		if err != nil {
			texts = append(texts, fmt.Sprintf("The skill %s could not be loaded: %v", cmd.Name, err))
			continue
		}
		head := "The skill " + cmd.Name + " is loaded."
		if cmd.Dir != "" {
			head += " Base directory for this skill: " + cmd.Dir
		}
		texts = append(texts, head+"\n\n"+strings.TrimSpace(text))
	}
	return texts
}

// taskRecord returns a record of the list of TaskCreate, or nil if the log is up to date.
func (c *briefing) taskRecord() *session.Entry {
	list := tasklist.Of(c.env)
	raw := string(mustJSON(list))
	if raw == c.told.tasks || len(list) == 0 && c.told.tasks == "" {
		return nil
	}
	c.told.tasks = raw
	return &session.Entry{Type: tasksType, Fields: fields("tasks", list)}
}

// restoreTasks restores the list of TaskCreate from its record.
func (c *briefing) restoreTasks(e *session.Entry) {
	var list []tasklist.Task
	if e == nil || json.Unmarshal(e.Fields["tasks"], &list) != nil {
		return
	}
	tasklist.Restore(c.env, list)
	c.told.tasks = string(mustJSON(list))
}

// sendMode informs the model that plan mode has started or ended.
func (c *briefing) sendMode() error {
	on := c.mode == wire.ModePlan
	if c.below || on == c.told.plan {
		return nil
	}
	c.told.plan = on
	text := "Plan mode is off. You may make changes again, within your permissions."
	if on {
		text = strings.TrimSpace(planModeText)
		if own := c.planWords; own != "" {
			text = "Plan mode is on: change nothing until the user has approved a plan.\n\n" + own
		}
		if c.findTool(exitPlanName) != nil {
			text += "\n\nWhen the plan is ready, call " + exitPlanName + " to have it approved. Do not ask for approval in any other way."
		}
	}
	return c.appendNote(history.Reminder(text))
}
