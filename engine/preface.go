package engine

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"maps"
	"strings"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/wire"
)

// basePrompt is our own system prompt.
//
//go:embed prompt.md
var basePrompt string

// preface describes the conversation: to the model in the system prompt and the beginning of requests, and to the host
// in init. Its methods are called by the owner of the conversation.
type preface struct {
	given    []string           // system prompt of the host; nil means the built-in prompt
	appended string             // see [Config.AppendSystemPrompt]
	role     *agents.Definition // that the conversation runs as; nil means none

	*briefing
	*choice
	*subagents
}

// init returns the message at the start of a turn that describes the agent and its
// features.
func (c *preface) init(t *turn) *wire.Init {
	agents := wire.Names{}
	for _, d := range c.agents {
		agents = append(agents, d.Name)
	}
	m := &wire.Init{
		Cwd: c.env.Cwd(), Tools: wire.Names(c.ToolNames()), MCPServers: c.initServers(),
		Model: c.model.ID, PermissionMode: c.mode, SlashCommands: wire.Names{}, APIKeySource: c.cfg.APIKeySource,
		ClaudeCodeVersion: c.cfg.Version, OutputStyle: "default", Agents: agents, Skills: wire.Names{},
		Plugins: []*wire.InitPlugin{}, Capabilities: Capabilities(),
		TerminalSlashCommands: wire.Names{}, AdditionalDirectories: []string{}, ViewMode: "default",
		Betas: c.cfg.Betas, FastModeState: "off", FastModeDisabledReason: "sdk_opt_in_required",
	}
	if roots := c.Roots(); len(roots) > 0 {
		m.OriginalCwd = roots[0]
		m.AdditionalDirectories = append(m.AdditionalDirectories, roots[1:]...)
	}
	m.UserMessageUUIDs = t.uuids()
	m.Extra = map[string]json.RawMessage{
		"analytics_disabled":        json.RawMessage("true"),
		"product_feedback_disabled": json.RawMessage("true"),
		"per_turn_effort_active":    json.RawMessage("false"),
		"ultrathink_available":      json.RawMessage("false"),
		"ultrathink_typed_raises":   json.RawMessage("false"),
	}
	if c.env.Sandbox != nil {
		m.Extra["sandbox"] = mustJSON(c.env.Sandbox.Report())
	}
	for _, cmd := range c.Commands() {
		m.SlashCommands = append(m.SlashCommands, cmd.Name)
	}
	c.initContext(m)
	maps.Copy(m.Extra, c.initExtra)
	if unseen := c.unseen(c.tools); len(unseen) > 0 {
		m.Extra["callback_never_sees"] = mustJSON(unseen)
	}
	if c.cfg.OwnVersion != "" {
		m.Extra["parley_version"] = mustJSON(c.cfg.OwnVersion)
	}
	return m
}

// Capabilities returns the features that hosts may rely on, for init.
func Capabilities() []string {
	return []string{"interrupt_receipt_v1", "interrupt_cancel_queued_v1", "msg_lifecycle_v1"}
}

// text returns the system prompt in parts.
func (c *preface) text() []string {
	var parts []string
	given := strings.TrimSpace(strings.Join(c.given, "")) != ""
	if def := c.role; def != nil && !given {
		parts = append(parts, def.Prompt, c.surroundings(c.Roots()))
		if def.Reminder != "" {
			parts = append(parts, def.Reminder)
		}
	} else if c.given != nil {
		for _, s := range c.given {
			if strings.TrimSpace(s) != "" {
				parts = append(parts, s)
			}
		}
		if c.sub == nil { // otherwise the prompt of the subagent contains it
			parts = append(parts, c.surroundings(c.Roots()))
		}
	} else {
		parts = append(parts, basePrompt, c.surroundings(c.Roots()))
	}
	if s := c.style(); s != nil {
		parts = append(parts, "# Output style: "+s.Name+"\n\n"+s.Text)
	}
	if s := c.appended; s != "" {
		parts = append(parts, s)
	}
	return parts
}

// keyOfPrompt returns a hash of the sources of the system prompt, except the date and
// the version.
func (c *preface) keyOfPrompt() string {
	of := []any{c.given, c.appended, c.Roots(), c.cfg.Platform, c.model.ID}
	if c.role != nil {
		of = append(of, c.role.Prompt, c.role.Reminder)
	}
	if s := c.style(); s != nil {
		of = append(of, s.Text)
	}
	sum := sha256.Sum256(mustJSON(of))
	return hex.EncodeToString(sum[:16])
}

// surroundings describes the working environment to the model.
func (c *preface) surroundings(roots []string) string {
	var b strings.Builder
	b.WriteString("# Where you work\n\n")
	if len(roots) > 0 {
		b.WriteString("- Working directory: " + roots[0] + "\n")
	}
	for _, d := range roots[min(1, len(roots)):] {
		b.WriteString("- Another directory you may work in: " + d + "\n")
	}
	if c.cfg.Platform != "" {
		b.WriteString("- Platform: " + c.cfg.Platform + "\n")
	}
	b.WriteString("- Date: " + c.runner.Now().Format("2006-01-02") + "\n")
	b.WriteString("- Model: " + c.model.ID + "\n")
	return b.String()
}

// keepPrompt keeps the system prompt and the tools stable: the session sends those that
// it started with, also after a resume on another day or by another version, unless
// their sources have changed. It is called when a turn starts: the record of the prefix
// waits for the disk together with the prompt.
func (c *preface) keepPrompt() {
	if c.hist.Prefix.Key != c.keyOfPrompt() {
		c.makePrefix()
	}
	if e := c.hist.Prefix.Keep(c.keyOfTools()); e != nil {
		c.rec.Defer(e)
	}
}

// makePrefix rebuilds the beginning of requests.
func (c *preface) makePrefix() {
	c.hist.Prefix.NoMarks = c.cfg.Tuning.NoCaching
	c.hist.Prefix.SetSystem(c.keyOfPrompt(), c.text())
	c.offerTools()
}

// agentName returns the name of the agent that the conversation runs as, if any.
func (c *preface) agentName() string {
	if c.sub != nil {
		return c.sub.Def.Name
	}
	return c.cfg.AgentName
}

// beginAgent returns the texts that its agent adds to the first prompt.
func (c *preface) beginAgent(t *turn, p *prompt) (added []string) {
	def := c.role
	if def == nil || c.sub != nil || c.begun || c.cfg.History != nil {
		return nil
	}
	c.begun = true
	if c.brought != nil {
		added = append(added, c.brought.Context...)
	}
	c.runWhileServing(func() { added = append(added, c.preload(t.ctx, def, func(f func()) { c.Do(f) })...) })
	if def.First != "" && p.origin == nil {
		content := wire.Blocks(append([]wire.Block{&wire.TextBlock{Text: def.First}}, p.content().All()...)...)
		p.expanded = &content
	}
	return added
}
