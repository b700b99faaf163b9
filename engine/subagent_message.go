package engine

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// messageToolName is the tool that says something to a subagent.
const messageToolName = "SendMessage"

//go:embed subagent_message.md
var messageToolDescription string

const messageToolSchema = `{"type":"object","required":["to","message"],"properties":{
	"to":{"type":"string","description":"The agentId of the subagent"},
	"message":{"type":"string","description":"What to say to it"},
	"summary":{"type":"string","description":"What it is about, in five to ten words"}}}`

// A messageInput is what the model gives.
type messageInput struct {
	To      string `json:"to"`
	Message string `json:"message"`
	Summary string `json:"summary"`
}

// A messageOutput is what programs and the model get.
type messageOutput struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
	Resumed string `json:"resumedAgentId,omitempty"`
	Revived string `json:"revivedAgentId,omitempty"` // the same: one that has ended
}

// An earlier is what is left of a subagent that has ended: enough to go on with it.
type earlier struct {
	id      string
	call    string // that started it
	history *session.History
	memory  *session.Memory // that holds its log, if the session has none
}

// messageTool says something to subagents of a conversation. One that has ended goes
// on.
type messageTool struct {
	agents *agentTool
	spec   *tool.Spec
}

func newMessageTool(a *agentTool) *messageTool {
	return &messageTool{agents: a, spec: &tool.Spec{
		// As the tool that starts them.
		Name: messageToolName, Description: messageToolDescription, Schema: json.RawMessage(messageToolSchema), ReadOnly: true,
	}}
}

func (m *messageTool) Spec() *tool.Spec { return m.spec }

func (*messageTool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

// AgentType returns the name of the agent that a call is about, if this process has run it.
func (m *messageTool) AgentType(input json.RawMessage) string {
	var in messageInput
	if tool.Decode(input, &in) != nil {
		return ""
	}
	if s := m.agents.c.startedHere(in.To); s != nil {
		return s.def.Name
	}
	return ""
}

// startedHere returns a subagent that the conversation started in this process, nil if
// there is none of that id. Those of others are not its own to speak to.
func (c *Conversation) startedHere(id string) *subagent {
	task, _ := c.env.Tasks().Get(strings.TrimSpace(id))
	if s, ok := task.(*subagent); ok && s.parent == c {
		return s
	}
	return nil
}

// Run says something to a subagent.
func (m *messageTool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	var in messageInput
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Message) == "" {
		return nil, tool.Misuse("InputValidationError: SendMessage failed: the message is empty.")
	}
	c := m.agents.c
	was := c.startedHere(in.To)
	if was != nil {
		heard, err := was.tellChild(ctx, in.Message)
		if err != nil {
			return nil, err
		}
		if heard {
			return said(&messageOutput{Success: true, Message: fmt.Sprintf(
				"The subagent %s hears the message behind its next tool call. If it ends first, it goes on with the message. You are told when it has ended.", was.id)}), nil
		}
		select {
		case <-was.done: // all that it did is on record
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	leave, err := c.admit()
	if err != nil {
		return nil, err
	}
	s, err := m.resume(ctx, call, &in, was)
	if err != nil {
		leave()
	}
	if errors.Is(err, session.ErrNotFound) {
		return nil, fmt.Errorf("There is no subagent %q that can go on. Use the agentId of one that you started in this session.", in.To)
	}
	if err != nil {
		return nil, err
	}
	s.leave = leave
	wait := c.cfg.NoBackground
	res, err := s.start(ctx, !wait)
	if wait || err != nil {
		return res, err
	}
	return said(&messageOutput{Success: true, Message: "The subagent goes on in the background. You are told when it has ended.", Resumed: s.id, Revived: s.id}), nil
}

func said(out *messageOutput) *tool.Result {
	return &tool.Result{Content: wire.Blocks(&wire.TextBlock{Text: string(mustJSON(out))}), Structured: out}
}

// resume makes a subagent ready to go on that has ended here, or in a process before.
func (m *messageTool) resume(ctx context.Context, call *tool.Call, in *messageInput, was *subagent) (*subagent, error) {
	c := m.agents.c
	again := &earlier{id: strings.TrimSpace(in.To)}
	more := &agentInput{Prompt: in.Message}
	var err error
	if was != nil && was.memory != nil {
		again.memory = was.memory
		again.history, err = session.PartHistory(context.Background(), was.memory, was.log.ID(), "", nil)
	} else if root := c.root(); root.cfg.PartHistory == nil || root.rec.Place().Log == nil {
		return nil, session.ErrNotFound
	} else {
		again.history, err = root.cfg.PartHistory(root.ID(), agentPart(again.id))
	}
	if err != nil {
		return nil, err
	}
	if was != nil {
		again.call, more.Description = was.call, was.Info().Description
		more.Model, more.Effort, more.Isolation = was.asked.Model, was.asked.Effort, was.asked.Isolation
		return c.newSubagent(ctx, call, was.def, more, !c.cfg.NoBackground, again)
	}
	var meta struct {
		AgentType     string `json:"agentType"`
		Description   string `json:"description"`
		ToolUseID     string `json:"toolUseId"`
		ParentAgentID string `json:"parentAgentId"`
		Model         string `json:"model"`
		Worktree      bool   `json:"spawnedWithWorktree"`
	}
	if e := again.history.Latest["agent_metadata"]; e == nil || json.Unmarshal(mustJSON(e.Fields), &meta) != nil || meta.ParentAgentID != c.env.Agent {
		return nil, session.ErrNotFound
	}
	def, err := m.agents.find(meta.AgentType)
	if err != nil {
		return nil, err
	}
	again.call, more.Description, more.Model = meta.ToolUseID, meta.Description, meta.Model
	if meta.Worktree {
		more.Isolation = "worktree"
	}
	return c.newSubagent(ctx, call, def, more, !c.cfg.NoBackground, again)
}

// tellChild puts a message before a subagent that works. It reports whether it still
// does.
func (s *subagent) tellChild(ctx context.Context, text string) (bool, error) {
	s.mu.Lock()
	child := s.child
	s.mu.Unlock()
	if child == nil || s.ctx.Err() != nil {
		return false, nil
	}
	told := make(chan bool, 1)
	go func() {
		told <- child.Do(func() {
			child.inbox = append(child.inbox, &prompt{m: wire.Prompt(wire.Text(fromStarter(text))), uuid: session.NewID(), origin: &wire.Origin{Kind: "agent"}})
		})
	}()
	select {
	case ok := <-told:
		return ok, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// fromStarter is a message of whoever started a subagent, as the subagent is told it.
func fromStarter(text string) string {
	return "Whoever started you says:\n" + text
}

// howToContinue tells the model how the subagent can go on once it has ended.
func (s *subagent) howToContinue() string {
	if !s.continues {
		return ""
	}
	return " (SendMessage with this id goes on with it)"
}
