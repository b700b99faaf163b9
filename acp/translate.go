package acp

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/parley-go/parley/acp/internal/v1"
	"github.com/parley-go/parley/wire"
)

// A translator translates the messages of an agent to updates. It is used by one goroutine.
//
// Pieces of an answer may be missing from some point of a block on: then the rest comes with the whole
// block. Every call that an update names was announced by a tool_call.
type translator struct {
	cwd    string
	client client
	emit   func(v1.SessionUpdate)

	replay  bool               // the messages are history
	streams map[string]*stream // answers that are being written, by parent call
	calls   map[string]*shown  // calls without a result, by the agent's id
	order   []string           // their ids, oldest first
	seen    map[string]int     // how often each id was used
	tasks   map[string]*todo   // the task list, by id
	taskIDs []string
	window  int64 // size of the context in tokens
	used    int64 // tokens in the context
	compact int   // compactions so far
}

// A stream is an answer that is being written.
type stream struct {
	id     string
	blocks []*piece
	next   int // the next block that comes as a whole
}

// A piece is the part of a block of a stream that was sent.
type piece struct {
	kind string // of the block
	sent string // text that was sent in updates
	call string // the id of a tool call
	json []byte // its input, until the path is known
	path bool   // its path was sent
}

// A shown is a call that was sent to the client.
type shown struct {
	id      string // the client's id of it
	name    string
	silent  bool // no update may name it: it is shown in the plan
	started bool // it was reported as in progress
	parent  string
	title   string // as last sent
	content string // as last sent, in JSON
	input   json.RawMessage
	// terminal means that the client shows the output of the call in a terminal with the id of the call.
	terminal bool
	extra    map[string]any // for the member _meta of the next update
}

func newTranslator(cwd string, c client, emit func(v1.SessionUpdate)) *translator {
	return &translator{cwd: cwd, client: c, emit: emit, streams: map[string]*stream{}, calls: map[string]*shown{}, seen: map[string]int{}, tasks: map[string]*todo{}, window: 200_000}
}

// meta returns the member _meta of updates about a call.
func (c *shown) meta() json.RawMessage {
	m := map[string]any{"toolName": c.name}
	if c.parent != "" {
		m["parentToolUseId"] = c.parent
	}
	all := map[string]any{"claudeCode": m}
	for k, v := range c.extra {
		all[k] = v
	}
	c.extra = nil
	return mustJSON(all)
}

func mustJSON(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("acp: %T cannot be encoded: %v", v, err))
	}
	return data
}

// message translates a message of the agent.
func (t *translator) message(m wire.Message) {
	switch m := m.(type) {
	case *wire.StreamEvent:
		t.event(m)
	case *wire.Assistant:
		t.assistant(m)
	case *wire.User:
		t.user(m)
	case *wire.ToolProgress:
		if c := t.calls[m.ToolUseID]; c != nil && !c.silent {
			u := v1.ToolCallUpdate{}
			if !c.started {
				c.started, u.Status = true, v1.ToolCallStatusInProgress
			}
			if m.Output != "" && !c.terminal {
				u.Content = textContent(fence("console", m.Output))
			}
			if u.Status != "" || u.Content != nil && string(mustJSON(u.Content)) != c.content {
				t.update(c, u)
			}
		}
	case *wire.Result:
		t.result(m)
	case *wire.Init:
		t.streams = map[string]*stream{}
	default:
		t.translateOther(m)
	}
}

// event translates a chunk of an answer.
func (t *translator) event(m *wire.StreamEvent) {
	e, err := m.Parse()
	if err != nil {
		return
	}
	parent := m.ParentToolUseID
	s := t.streams[parent]
	switch e.Type {
	case "message_start":
		if e.Message != nil {
			t.streams[parent] = &stream{id: e.Message.ID}
			t.usage(parent, e.Message.Usage)
		}
		return
	case "message_delta":
		t.usage(parent, e.Usage)
		return
	}
	if s == nil || e.Index == nil || *e.Index < 0 || *e.Index > 10_000 {
		return
	}
	for len(s.blocks) <= *e.Index {
		s.blocks = append(s.blocks, nil)
	}
	p := s.blocks[*e.Index]
	switch {
	case e.Type == "content_block_start" && p == nil:
		p = &piece{}
		s.blocks[*e.Index] = p
		switch b := e.ContentBlock.(type) {
		case *wire.TextBlock:
			p.kind = "text"
			t.chunk(s, parent, p, b.Text)
		case *wire.ThinkingBlock:
			p.kind = "thinking"
			t.chunk(s, parent, p, b.Thinking)
		case *wire.ToolUseBlock:
			p.kind, p.call = "tool_use", b.ID
			t.begin(b.ID, b.Name, parent, nil)
		case *wire.ServerToolUseBlock:
			p.kind, p.call = "tool_use", b.ID
			t.begin(b.ID, b.Name, parent, nil)
		}
	case e.Type == "content_block_delta" && p != nil && e.Delta != nil:
		switch e.Delta.Type {
		case "text_delta":
			t.chunk(s, parent, p, e.Delta.Text)
		case "thinking_delta":
			t.chunk(s, parent, p, e.Delta.Thinking)
		case "input_json_delta":
			t.partialInput(p, e.Delta.PartialJSON)
		}
	}
}

// chunk sends the next chunk of a text.
func (t *translator) chunk(s *stream, parent string, p *piece, more string) {
	if more == "" || parent != "" {
		return // a subagent's text is in the result of its call
	}
	p.sent += more
	c := &v1.ContentChunk{Content: text(more), MessageID: s.id}
	if p.kind == "thinking" {
		t.emit(v1.SessionUpdate{AgentThoughtChunk: c})
	} else {
		t.emit(v1.SessionUpdate{AgentMessageChunk: c})
	}
}

// maxPartial is the number of bytes of an input that are searched for its path.
const maxPartial = 64 << 10

// partialInput sends the path of a call as soon as it is known, so that editors can follow.
func (t *translator) partialInput(p *piece, more string) {
	c := t.calls[p.call]
	if c == nil || c.silent || p.path || len(p.json) > maxPartial {
		return
	}
	p.json = append(p.json, more...)
	members := completeMembers(p.json)
	if members["file_path"] == nil && members["notebook_path"] == nil {
		return
	}
	p.path = true
	input := mustJSON(members)
	s := show(c.name, input, t.cwd)
	t.update(c, v1.ToolCallUpdate{Title: s.title, Locations: s.locations, RawInput: input})
}

// begin announces a call, unless it was announced. input is nil if it is not known yet.
func (t *translator) begin(id, name, parent string, input json.RawMessage) *shown {
	if c := t.calls[id]; c != nil {
		return c
	}
	c := &shown{id: id, name: name, parent: parent, silent: planTool(name)}
	if t.seen[id]++; t.seen[id] > 1 { // a provider reused the id
		c.id = fmt.Sprintf("%s#%d", id, t.seen[id])
	}
	t.calls[id] = c
	t.order = append(t.order, id)
	if c.silent {
		return c
	}
	s := show(name, input, t.cwd)
	if name == "Bash" && t.client.terminals && !t.replay { // a terminal of the history is gone
		c.terminal, c.extra = true, map[string]any{"terminal_info": map[string]string{"terminal_id": c.id}}
		s.content = []v1.ToolCallContent{{Terminal: &v1.Terminal{TerminalID: c.id}}}
	}
	c.title, c.content = s.title, string(mustJSON(s.content))
	raw := input
	if raw == nil {
		raw = json.RawMessage("{}")
	}
	t.emit(v1.SessionUpdate{ToolCall: &v1.ToolCall{ToolCallID: c.id, Name: name, Title: s.title, Kind: s.kind, Status: v1.ToolCallStatusPending,
		RawInput: raw, Content: s.content, Locations: s.locations, Meta: c.meta()}})
	return c
}

// planTool reports whether calls of a tool are shown as the plan.
func planTool(name string) bool {
	return name == "TodoWrite" || name == "TaskCreate" || name == "TaskUpdate"
}

// update sends an update of a call.
func (t *translator) update(c *shown, u v1.ToolCallUpdate) {
	u.ToolCallID, u.Meta = c.id, c.meta()
	if u.Title == c.title {
		u.Title = ""
	} else if u.Title != "" {
		c.title = u.Title
	}
	if content := string(mustJSON(u.Content)); content == c.content {
		u.Content = nil
	} else if u.Content != nil {
		c.content = content
	}
	t.emit(v1.SessionUpdate{ToolCallUpdate: &u})
}

// assistant translates complete blocks.
func (t *translator) assistant(m *wire.Assistant) {
	s := t.streams[m.ParentToolUseID]
	if s == nil || s.id != m.Message.ID {
		s = &stream{id: m.Message.ID}
		t.streams[m.ParentToolUseID] = s
	}
	if m.IsAPIError || m.Error != "" {
		return // it is in the result
	}
	for _, b := range m.Message.Content.All() {
		var p *piece
		if s.next < len(s.blocks) {
			p = s.blocks[s.next]
		}
		if s.next++; p == nil {
			p = &piece{}
		}
		switch b := b.(type) {
		case *wire.TextBlock:
			p.kind = "text"
			t.chunk(s, m.ParentToolUseID, p, strings.TrimPrefix(b.Text, p.sent))
		case *wire.ThinkingBlock:
			p.kind = "thinking"
			t.chunk(s, m.ParentToolUseID, p, strings.TrimPrefix(b.Thinking, p.sent))
		case *wire.ToolUseBlock:
			t.called(b.ID, b.Name, m.ParentToolUseID, b.Input)
		case *wire.ServerToolUseBlock:
			t.called(b.ID, b.Name, m.ParentToolUseID, b.Input)
		case *wire.ServerToolResultBlock:
			if c := t.calls[b.ToolUseID]; c != nil {
				t.finish(b.ToolUseID, v1.ToolCallUpdate{Status: v1.ToolCallStatusCompleted})
			}
		}
	}
}

// called translates a call whose input is complete.
func (t *translator) called(id, name, parent string, input json.RawMessage) {
	known := t.calls[id] != nil
	c := t.begin(id, name, parent, input)
	if c.input = input; c.silent {
		var in toolInput
		if json.Unmarshal(input, &in) == nil && name == "TodoWrite" {
			t.emit(v1.SessionUpdate{Plan: planOf(in.Todos)})
		}
		return
	}
	if !known {
		return // tool_call contained all of it
	}
	s := show(name, input, t.cwd)
	u := v1.ToolCallUpdate{Title: s.title, RawInput: input}
	if len(s.content) > 0 && !c.terminal {
		u.Content = s.content
	}
	if len(s.locations) > 0 {
		u.Locations = s.locations
	}
	t.update(c, u)
}

// user translates results of calls, and prompts that this client did not send.
func (t *translator) user(m *wire.User) {
	var prompt []wire.Block
	for _, b := range m.Message.Content.All() {
		switch b := b.(type) {
		case *wire.ToolResultBlock:
			t.resultOf(b, m.ToolUseResult)
		default:
			prompt = append(prompt, b)
		}
	}
	if len(prompt) == 0 || m.IsSynthetic || m.ParentToolUseID != "" {
		return
	}
	for _, b := range prompt {
		c, ok := blockOf(b)
		if c.Text != nil {
			c.Text.Text = promptText(c.Text.Text)
			ok = c.Text.Text != ""
		}
		if ok {
			t.emit(v1.SessionUpdate{UserMessageChunk: &v1.ContentChunk{Content: c, MessageID: m.UUID}})
		}
	}
}

// resultOf translates the result of a call.
func (t *translator) resultOf(r *wire.ToolResultBlock, structured json.RawMessage) {
	c := t.calls[r.ToolUseID]
	if c == nil {
		return // the call was not shown to the client
	}
	if c.silent {
		t.planned(c, structured)
		t.forget(r.ToolUseID)
		return
	}
	u := v1.ToolCallUpdate{Status: v1.ToolCallStatusCompleted, Content: toolOf(c.name).result(r, structured), RawOutput: rawOutput(r)}
	if r.IsError {
		u.Status = v1.ToolCallStatusFailed
	} else {
		t.patched(&u, structured)
	}
	if c.terminal {
		t.terminalOutput(c, r, len(u.Content) > 0)
		u.Content = nil
	}
	t.finish(r.ToolUseID, u)
}

var exitCode = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^Exit code (\d+)\n?`) })

// terminalOutput sends the output of a command, if any, to the client's terminal. The update that ends the
// call reports how the command ended.
func (t *translator) terminalOutput(c *shown, r *wire.ToolResultBlock, printed bool) {
	output, code := r.Content.String(), 0
	if m := exitCode().FindStringSubmatch(output); m != nil {
		code, _ = strconv.Atoi(m[1])
		output = output[len(m[0]):]
	} else if r.IsError {
		code = 1
	}
	if printed && output != "" {
		c.extra = map[string]any{"terminal_output": map[string]string{"terminal_id": c.id, "data": output}}
		t.update(c, v1.ToolCallUpdate{})
	}
	c.extra = map[string]any{"terminal_exit": map[string]any{"terminal_id": c.id, "exit_code": code, "signal": nil}}
}

func rawOutput(r *wire.ToolResultBlock) json.RawMessage {
	if r.Content.Blocks == nil {
		return mustJSON(r.Content.Text)
	}
	return mustJSON(r.Content)
}

// patched adds the change of the file and its location to the update of an edit.
func (t *translator) patched(u *v1.ToolCallUpdate, structured json.RawMessage) {
	var out struct {
		FilePath        string `json:"filePath"`
		StructuredPatch []struct {
			NewStart int64    `json:"newStart"`
			Lines    []string `json:"lines"`
		} `json:"structuredPatch"`
	}
	if json.Unmarshal(structured, &out) != nil || out.FilePath == "" {
		return
	}
	if !filepath.IsAbs(out.FilePath) { // the model named it relative to its working directory
		out.FilePath = filepath.Join(t.cwd, out.FilePath)
	}
	for _, h := range out.StructuredPatch {
		var before, after []string
		for _, l := range h.Lines {
			if l == "" || l[0] == '\\' { // no newline at the end of the file
				continue
			}
			if l[0] != '+' {
				before = append(before, l[1:])
			}
			if l[0] != '-' {
				after = append(after, l[1:])
			}
		}
		old := strings.Join(before, "\n")
		u.Content = append(u.Content, v1.ToolCallContent{Diff: &v1.Diff{Path: out.FilePath, OldText: &old, NewText: strings.Join(after, "\n")}})
		u.Locations = append(u.Locations, v1.ToolCallLocation{Path: out.FilePath, Line: h.NewStart})
	}
}

// planned applies the result of a tool that manages tasks.
func (t *translator) planned(c *shown, structured json.RawMessage) {
	var in struct {
		Subject string `json:"subject"`
		TaskID  string `json:"taskId"`
		Status  string `json:"status"`
	}
	var out struct {
		Task struct {
			ID string `json:"id"`
		} `json:"task"`
	}
	if json.Unmarshal(c.input, &in) != nil || c.name == "TodoWrite" {
		return
	}
	json.Unmarshal(structured, &out)
	switch {
	case c.name == "TaskCreate" && out.Task.ID != "":
		t.tasks[out.Task.ID] = &todo{Content: in.Subject, Status: "pending"}
		t.taskIDs = append(t.taskIDs, out.Task.ID)
	case c.name == "TaskUpdate" && t.tasks[in.TaskID] != nil:
		task := t.tasks[in.TaskID]
		if in.Subject != "" {
			task.Content = in.Subject
		}
		if in.Status != "" {
			task.Status = in.Status
		}
	default:
		return
	}
	var list []todo
	for _, id := range t.taskIDs {
		if task := t.tasks[id]; task.Status != "deleted" {
			list = append(list, *task)
		}
	}
	t.emit(v1.SessionUpdate{Plan: planOf(list)})
}

// finish sends the last update of a call.
func (t *translator) finish(id string, u v1.ToolCallUpdate) {
	c := t.calls[id]
	t.forget(id)
	if c != nil && !c.silent {
		t.update(c, u)
	}
}

func (t *translator) forget(id string) {
	delete(t.calls, id)
	for i, x := range t.order {
		if x == id {
			t.order = append(t.order[:i:i], t.order[i+1:]...)
			break
		}
	}
}

// endCalls reports the calls without a result as failed, because there will be none.
func (t *translator) endCalls(why string) {
	for len(t.order) > 0 {
		t.finish(t.order[0], v1.ToolCallUpdate{Status: v1.ToolCallStatusFailed, Content: textContent(why)})
	}
}

// usage reports the usage of the context.
func (t *translator) usage(parent string, u *wire.Usage) {
	if u == nil || parent != "" {
		return
	}
	in := u.InputTokens + u.CacheCreationInputTokens + u.CacheReadInputTokens
	if in > 0 {
		t.used = in
	}
	if !t.replay {
		t.emit(v1.SessionUpdate{UsageUpdate: &v1.UsageUpdate{Used: max(0, t.used+u.OutputTokens), Size: t.window}})
	}
	t.used = max(t.used, in+u.OutputTokens)
}

// result translates the end of a turn.
func (t *translator) result(m *wire.Result) {
	for _, u := range m.ModelUsage {
		if u != nil && u.ContextWindow > 0 {
			t.window = u.ContextWindow
		}
	}
	if !t.replay {
		t.emit(v1.SessionUpdate{UsageUpdate: &v1.UsageUpdate{Used: max(0, t.used), Size: t.window, Cost: &v1.Cost{Amount: m.TotalCostUSD, Currency: "USD"}}})
	}
}
