package crew

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/tool"
)

//go:embed tool.md
var toolDescription string

const toolSchema = `{"type":"object","required":["description","prompt"],"properties":{
	"description":{"type":"string","description":"What it does, in three to five words"},
	"prompt":{"type":"string","description":"The whole task; the subagent sees nothing else"},
	"subagent_type":{"type":"string","description":"The agent to use; default general-purpose"},
	"model":{"type":"string","description":"A model in place of the agent's own, such as haiku, sonnet or opus"},
	"effort":{"type":"string","enum":["low","medium","high","xhigh","max"],"description":"The effort, if it should differ from this conversation's"},
	"isolation":{"type":"string","enum":["worktree"],"description":"worktree: it works in its own git worktree, which is kept if it changed anything"},
	"run_in_background":{"type":"boolean","description":"Set to false to wait for the report"}}}`

// An Input is the input of a call that starts a subagent.
type Input struct {
	Description string     `json:"description"`
	Prompt      string     `json:"prompt"`
	Type        string     `json:"subagent_type"`
	Model       string     `json:"model"`
	Effort      string     `json:"effort"`
	Background  *tool.Bool `json:"run_in_background"`
	Isolation   string     `json:"isolation"`

	Command string `json:"-"` // the command or skill that runs in the subagent, such as "/review"; empty otherwise
}

// A Tool starts subagents of a conversation.
type Tool struct {
	parent *Parent
	spec   *tool.Spec
	defs   []*agents.Definition
}

// NewTool returns the tool that starts the given agents.
func NewTool(p *Parent, defs []*agents.Definition) *Tool {
	var said []string
	for _, d := range defs {
		said = append(said, d.Name, d.Description)
	}
	return &Tool{parent: p, defs: defs, spec: sharedSpecs.Get(said, func() *tool.Spec {
		var b strings.Builder
		b.WriteString(toolDescription)
		for _, d := range defs {
			fmt.Fprintf(&b, "- %s: %s\n", d.Name, strings.Join(strings.Fields(d.Description), " "))
		}
		return &tool.Spec{
			// The effects are decided call by call inside the subagent; starting one
			// changes nothing.
			Name: call.AgentName, Aliases: []string{call.AgentHostName}, Description: b.String(), Schema: json.RawMessage(toolSchema), ReadOnly: true,
		}
	})}
}

// sharedSpecs holds specs by the names and descriptions of the agents.
var sharedSpecs = history.Shared[[]string, *tool.Spec]{Same: slices.Equal[[]string]}

// Spec describes the tool.
func (a *Tool) Spec() *tool.Spec { return a.spec }

// AgentType returns the name of the agent that a call starts.
func (a *Tool) AgentType(input json.RawMessage) string {
	var in Input
	tool.Decode(input, &in)
	if def, err := a.find(in.Type); err == nil {
		return def.Name
	}
	return ""
}

// Access returns nothing: each call of the subagent has its own access.
func (*Tool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

// find returns the agent that a call names.
func (a *Tool) find(name string) (*agents.Definition, error) {
	if name == "" {
		name = agents.Default
	}
	var names []string
	for _, d := range a.defs {
		if d.Name == name {
			return d, nil
		}
		names = append(names, d.Name)
	}
	for _, d := range a.defs {
		if strings.EqualFold(d.Name, name) {
			return d, nil
		}
	}
	return nil, fmt.Errorf("Agent type '%s' not found. Available agents: %s", name, strings.Join(names, ", "))
}

// Run starts a subagent. It returns its report, or returns at once if the subagent runs
// in the background.
func (a *Tool) Run(ctx context.Context, tc *tool.Call) (*tool.Result, error) {
	var in Input
	if err := tool.Decode(tc.Input, &in); err != nil {
		return nil, err
	}
	def, err := a.find(in.Type)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Prompt) == "" {
		return nil, tool.Misuse("InputValidationError: Agent failed: the prompt is empty. The subagent knows nothing but its prompt.")
	}
	if in.Isolation == "" {
		in.Isolation = def.Isolation
	}
	if in.Isolation != "" && in.Isolation != "worktree" {
		return nil, tool.Misuse("InputValidationError: Agent failed: the isolation %q is not available here. Use worktree, or leave it out.", in.Isolation)
	}
	p := a.parent
	leave, err := p.reserveSlot()
	if err != nil {
		return nil, err
	}
	// The topmost conversation does not wait by default. A subagent does, because its
	// own report would come too early otherwise.
	background := p.Depth == 0 || def.Background
	asked := "unset"
	if in.Background != nil {
		background, asked = bool(*in.Background), "foreground"
		if background {
			asked = "background"
		}
	}
	if p.NoBackground {
		background = false
	}
	s, err := p.newSubagent(ctx, tc, def, &in, background, nil)
	if err != nil {
		leave()
		return nil, err
	}
	s.leave = leave
	p.Top.Stats.recordStart(s, asked, background)
	return s.start(ctx, background)
}

// ForkedCommand begins the id that stands for the call of a subagent that a command of the user started.
const ForkedCommand = "forked-command-"

// Fork runs a command or skill in a subagent, waits for it and returns its id and its report. Hosts may hide such a
// subagent: it does not belong to a call of the Agent tool.
func (a *Tool) Fork(ctx context.Context, tc *tool.Call, in *Input) (id, report string, err error) {
	def, err := a.find(in.Type)
	if err != nil {
		return "", "", err
	}
	leave, err := a.parent.reserveSlot()
	if err != nil {
		return "", "", err
	}
	s, err := a.parent.newSubagent(ctx, tc, def, in, false, nil)
	if err != nil {
		leave()
		return "", "", err
	}
	s.leave = leave
	res, err := s.start(ctx, false)
	if err != nil {
		return "", "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info.Background { // the host moved it, so its report comes later
		return s.ID, res.Content.String(), nil
	}
	return s.ID, cmp.Or(s.report.text, noReport), nil
}

// reserveSlot returns an error if no subagent can start now. Otherwise it reserves a slot
// among the running ones until leave is called.
func (p *Parent) reserveSlot() (leave func(), err error) {
	stats := &p.Top.Stats
	if p.Depth >= MaxDepth {
		stats.recordRefusal("depth_limit")
		return nil, fmt.Errorf("Subagents start subagents at most %d deep. Do the work yourself.", MaxDepth)
	}
	if p.Spent() {
		stats.recordRefusal("budget")
		return nil, errors.New("The budget is used up, so no subagent was started.")
	}
	if p.Top.running.Add(1) > maxSubagents {
		p.Top.running.Add(-1)
		stats.recordRefusal("concurrency_limit")
		return nil, fmt.Errorf("%d subagents are running already. Wait until some have ended.", maxSubagents)
	}
	return sync.OnceFunc(func() { p.Top.running.Add(-1) }), nil
}
