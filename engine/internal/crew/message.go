package crew

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// MessageToolName is the name of the tool that sends a message to a subagent.
const MessageToolName = "SendMessage"

//go:embed message.md
var messageDescription string

const messageSchema = `{"type":"object","required":["to","message"],"properties":{
	"to":{"type":"string","description":"The agentId of the subagent"},
	"message":{"type":"string","description":"The message"},
	"summary":{"type":"string","description":"What it is about, in five to ten words"}}}`

// A messageInput is the input of SendMessage.
type messageInput struct {
	To      string `json:"to"`
	Message string `json:"message"`
	Summary string `json:"summary"`
}

// A messageOutput is its structured result.
type messageOutput struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
	Resumed string `json:"resumedAgentId,omitempty"`
	Revived string `json:"revivedAgentId,omitempty"` // the same id, if the subagent had ended
}

// An Earlier is an ended subagent, with what is needed to resume it.
type Earlier struct {
	id      string
	call    string // the call that started it
	History *session.History
	memory  *session.Memory // holds its log, if the session has none
}

// A MessageTool sends messages to subagents of a conversation. It resumes one that has
// ended.
type MessageTool struct {
	agents *Tool
	spec   *tool.Spec
}

// NewMessageTool returns the tool for the subagents that a starts.
func NewMessageTool(a *Tool) *MessageTool {
	return &MessageTool{agents: a, spec: &tool.Spec{
		// Read-only, like the tool that starts subagents.
		Name: MessageToolName, Description: messageDescription, Schema: json.RawMessage(messageSchema), ReadOnly: true,
	}}
}

// Spec describes the tool.
func (m *MessageTool) Spec() *tool.Spec { return m.spec }

// Access returns nothing: each call of the subagent has its own access.
func (*MessageTool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

// AgentType returns the name of the agent that a call addresses, if this process has run
// it.
func (m *MessageTool) AgentType(input json.RawMessage) string {
	var in messageInput
	if tool.Decode(input, &in) != nil {
		return ""
	}
	if s := m.agents.parent.startedHere(in.To); s != nil {
		return s.Def.Name
	}
	return ""
}

// startedHere returns a subagent that the conversation started in this process, or nil if
// there is none with that id. A conversation cannot address the subagents of others.
func (p *Parent) startedHere(id string) *Subagent {
	task, _ := p.Env.Tasks().Get(strings.TrimSpace(id))
	if s, ok := task.(*Subagent); ok && s.parent == p {
		return s
	}
	return nil
}

// Run sends a message to a subagent.
func (m *MessageTool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	var in messageInput
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Message) == "" {
		return nil, tool.Misuse("InputValidationError: SendMessage failed: the message is empty.")
	}
	p := m.agents.parent
	was := p.startedHere(in.To)
	if was != nil {
		heard, err := was.sendToChild(ctx, in.Message)
		if err != nil {
			return nil, err
		}
		if heard {
			return messageResult(&messageOutput{Success: true, Message: fmt.Sprintf(
				"The subagent %s receives the message after its next tool call. If it finishes first, it continues with the message. You will be notified when it finishes.", was.ID)}), nil
		}
		select {
		case <-was.done: // everything it did is recorded
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	leave, err := p.reserveSlot()
	if err != nil {
		return nil, err
	}
	s, err := m.resume(ctx, call, &in, was)
	if err != nil {
		leave()
	}
	if errors.Is(err, session.ErrNotFound) {
		return nil, fmt.Errorf("No subagent %q can continue. Use the agentId of one that you started in this session.", in.To)
	}
	if err != nil {
		return nil, err
	}
	s.leave = leave
	wait := p.NoBackground
	res, err := s.start(ctx, !wait)
	if wait || err != nil {
		return res, err
	}
	return messageResult(&messageOutput{Success: true, Message: "The subagent continues in the background. You will be notified when it finishes.", Resumed: s.ID, Revived: s.ID}), nil
}

func messageResult(out *messageOutput) *tool.Result {
	return &tool.Result{Content: wire.Blocks(&wire.TextBlock{Text: string(recorder.JSON(out))}), Structured: out}
}

// resume prepares a subagent to continue that ended in this process or in an earlier one.
func (m *MessageTool) resume(ctx context.Context, call *tool.Call, in *messageInput, was *Subagent) (*Subagent, error) {
	p := m.agents.parent
	again := &Earlier{id: strings.TrimSpace(in.To)}
	more := &Input{Prompt: in.Message}
	var err error
	if was != nil && was.memory != nil {
		again.memory = was.memory
		again.History, err = session.PartHistory(context.Background(), was.memory, was.log.ID(), "", nil)
	} else if p.Top.PartHistory == nil || p.Top.Place().Log == nil {
		return nil, session.ErrNotFound
	} else {
		again.History, err = p.Top.PartHistory(p.Top.Place().ID, agentPart(again.id))
	}
	if err != nil {
		return nil, err
	}
	if was != nil {
		again.call, more.Description = was.call, was.Info().Description
		more.Model, more.Effort, more.Isolation = was.Asked.Model, was.Asked.Effort, was.Asked.Isolation
		return p.newSubagent(ctx, call, was.Def, more, !p.NoBackground, again)
	}
	var meta struct {
		AgentType     string `json:"agentType"`
		Description   string `json:"description"`
		ToolUseID     string `json:"toolUseId"`
		ParentAgentID string `json:"parentAgentId"`
		Model         string `json:"model"`
		Worktree      bool   `json:"spawnedWithWorktree"`
	}
	if e := again.History.Latest["agent_metadata"]; e == nil || json.Unmarshal(recorder.JSON(e.Fields), &meta) != nil || meta.ParentAgentID != p.Env.Agent {
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
	return p.newSubagent(ctx, call, def, more, !p.NoBackground, again)
}

// sendToChild sends a message to a running subagent. It reports whether the subagent was
// still running.
func (s *Subagent) sendToChild(ctx context.Context, text string) (bool, error) {
	s.mu.Lock()
	child := s.child
	s.mu.Unlock()
	if child == nil || s.ctx.Err() != nil {
		return false, nil
	}
	told := make(chan bool, 1)
	go func() { told <- child.Tell(fromStarter(text)) }()
	select {
	case ok := <-told:
		return ok, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// fromStarter returns a message to a subagent from the conversation that started it.
func fromStarter(text string) string {
	return "Message from the agent that started you:\n" + text
}

// howToContinue explains to the model how to resume the subagent after its end.
func (s *Subagent) howToContinue() string {
	if !s.Continues {
		return ""
	}
	return " (continue it with SendMessage and this id)"
}
