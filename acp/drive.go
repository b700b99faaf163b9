package acp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aymanbagabas/go-udiff"
	"github.com/parley-go/parley/acp/internal/v1"
	"github.com/parley-go/parley/internal/rawjson"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

type object = map[string]any

// A bridge translates between a host, which speaks Parley's protocol, and an agent, which
// speaks the Agent Client Protocol.
//
// One goroutine reads from the host, another one from the agent. Both work under mu and
// never block: frames for the agent go into a queue, and hosts read all the time.
type bridge struct {
	agent *Agent
	cwd   string
	start started
	host  *transport.Peer
	conn  *conn

	mu       sync.Mutex
	can      capabilities // of the agent
	steers   bool         // the agent accepts prompts during a running turn
	id       string       // of the session, for the host
	session  string       // of the session, for the agent; empty until it is open
	opening  bool         // initialize was sent
	failed   string       // why the session cannot be opened
	loading  bool         // updates are history
	options  []v1.SessionConfigOption
	modes    v1.SessionModeState
	commands []object

	queue  []*wire.User
	turn   *drivenTurn
	ended  bool              // the host ended its input
	calls  []*driven         // calls without a result, oldest first
	asked  map[string]*asked // open questions to the host, by request id
	plans  int
	used   int64
	window int64
	cost   float64

	message string // the id of the answer that is being written, empty if none
	block   string // the type of its open block, empty if none
	index   int    // of that block
	text    strings.Builder
	last    string // the last text of the turn

	closeInput func() // ends the agent's input
}

// capabilities are the capabilities of an agent that matter here.
type capabilities struct {
	LoadSession         bool
	PromptCapabilities  struct{ Image, EmbeddedContext bool }
	McpCapabilities     struct{ Http, Sse, Acp bool }
	SessionCapabilities struct {
		Resume, Fork, Close, SystemPrompt, AdditionalDirectories json.RawMessage
	}
}

// A drivenTurn is a prompt that the agent is working on.
type drivenTurn struct {
	uuids   []string
	began   time.Time
	stopped bool
	denials []object
	rounds  int
}

// A driven is a tool call of the agent.
type driven struct {
	v     update
	shown bool // the host received the call
}

// An asked is a question that was sent to the host.
type asked struct {
	req     *request
	options []v1.PermissionOption
	call    *driven // nil for an elicitation
	input   json.RawMessage
	choice  bool // the host chooses one of the options
	mcp     bool // it is a message for an MCP server of the host
}

// An update has the members of all kinds of updates.
type update struct {
	SessionUpdate     string
	Content           json.RawMessage
	MessageID         string
	ToolCallID        string
	Name              string
	Title             string
	Kind              string
	Status            string
	RawInput          json.RawMessage
	RawOutput         json.RawMessage
	Locations         []v1.ToolCallLocation
	Entries           []struct{ Content, Status string }
	AvailableCommands []v1.AvailableCommand
	CurrentModeID     string
	ConfigOptions     []v1.SessionConfigOption
	Used, Size        int64
	Cost              *struct{ Amount float64 }
	Severity          string
	Description       string
	Error             string
	Meta              struct {
		ClaudeCode struct{ ToolName, ParentToolUseID string }
		Goose      struct{ ToolCall struct{ ToolName string } }
	} `json:"_meta"`
}

// run runs until the agent has ended.
func (b *bridge) run(inner transport.Conn) {
	ctx := b.host.Context()
	mail := &letters{bell: make(chan struct{}, 1)}
	b.conn = newConn(context.Background(), mail, b.handle)
	b.conn.log = b.agent.Log
	var once sync.Once
	b.closeInput = func() { once.Do(func() { go inner.Close(ctx) }) }
	var work sync.WaitGroup
	work.Go(func() { mail.send(b.conn.ctx, inner) })
	work.Go(b.readHost)
	stop := context.AfterFunc(ctx, func() { inner.Close(ctx) })
	b.conn.read(inner)
	b.conn.stop(errEnded)
	inner.Close(ctx)
	exit, _ := inner.Wait(context.Background())
	b.host.Exit(exit.Code, exit.Stderr)
	stop()
	work.Wait()
	b.conn.work.Wait()
}

// letters is a writer that never blocks: send writes what was written to it.
type letters struct {
	mu   sync.Mutex
	data []byte
	bell chan struct{}
}

func (l *letters) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = append(l.data, p...)
	select {
	case l.bell <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (l *letters) send(ctx context.Context, w io.Writer) {
	for {
		select {
		case <-l.bell:
		case <-ctx.Done():
			return
		}
		l.mu.Lock()
		data := l.data
		l.data = nil
		l.mu.Unlock()
		if _, err := w.Write(data); err != nil {
			return // the reader notices it
		}
	}
}

// emit sends a frame to the host.
func (b *bridge) emit(f object) {
	if f["type"] != "control_request" && f["type"] != "control_response" && f["type"] != "control_cancel_request" {
		f["session_id"] = b.id
		if f["uuid"] == nil {
			f["uuid"] = session.NewID()
		}
	}
	b.host.Write(append(mustJSON(f), '\n'))
}

// emitSystem sends a system message.
func (b *bridge) emitSystem(subtype string, f object) {
	f["type"], f["subtype"] = "system", subtype
	b.emit(f)
}

// inform shows a message to people.
func (b *bridge) inform(level, format string, args ...any) {
	b.emitSystem("informational", object{"level": level, "content": fmt.Sprintf(format, args...)})
}

// respond responds to a control request of the host.
func (b *bridge) respond(id string, payload any, err error) {
	r := object{"subtype": "success", "request_id": id, "response": payload}
	if err != nil {
		r = object{"subtype": "error", "request_id": id, "error": err.Error()}
	}
	b.emit(object{"type": "control_response", "response": r})
}

// request sends a request to the agent; then is called with the response.
func (b *bridge) request(method string, params any, then func(json.RawMessage, *Error)) {
	b.conn.sendThen(method, params, func(f *frame) {
		b.mu.Lock()
		defer b.mu.Unlock()
		then(f.Result, f.Error)
	})
}

// readHost handles the frames of the host until its input ends.
func (b *bridge) readHost() {
	lines := wire.NewReader(b.host, nil)
	for {
		line, err := lines.ReadLine()
		if err != nil {
			var bad *wire.BadLine
			if errors.As(err, &bad) {
				continue
			}
			break
		}
		m, err := wire.Decode(line)
		if err != nil {
			continue
		}
		b.mu.Lock()
		switch m := m.(type) {
		case *wire.ControlRequest:
			b.control(m)
		case *wire.ControlResponse:
			b.answer(&m.Response)
		case *wire.User:
			b.prompt(m)
		}
		b.mu.Unlock()
	}
	b.mu.Lock()
	b.ended = true
	b.endIfIdle()
	b.mu.Unlock()
}

// endIfIdle ends the agent's input when the host ended its own and no turn is running.
func (b *bridge) endIfIdle() {
	if b.ended && b.turn == nil && len(b.queue) == 0 && !(b.opening && b.session == "" && b.failed == "") {
		b.closeInput()
	}
}

// control handles a request of the host.
func (b *bridge) control(m *wire.ControlRequest) {
	id := m.RequestID
	switch r := m.Request.(type) {
	case *wire.Initialize:
		b.open(r, func(err error) { b.respond(id, b.initialized(), err) })
	case *wire.Interrupt:
		b.respond(id, b.interrupt(r.CancelQueued), nil)
	case *wire.SetPermissionMode:
		b.set(indexMode, string(r.Mode), func(err error) { b.respond(id, object{"mode": r.Mode}, err) })
	case *wire.SetModel:
		if r.Model == "" || r.Model == "default" {
			r.Model = b.start.options[indexModel]
		}
		b.set(indexModel, r.Model, func(err error) { b.respond(id, object{}, err) })
	case *wire.ApplyFlagSettings:
		var level string
		if len(r.Settings) != 1 || json.Unmarshal(r.Settings["effortLevel"], &level) != nil {
			b.respond(id, nil, errors.New("the Agent Client Protocol cannot express settings other than effortLevel"))
			return
		}
		b.set(indexEffort, level, func(err error) { b.respond(id, object{}, err) })
	case *wire.EndSession:
		b.respond(id, object{}, nil)
		b.closeInput()
	default:
		b.respond(id, nil, fmt.Errorf("the Agent Client Protocol cannot express %s", m.Request.Subtype()))
	}
}

// initialized returns the response to initialize.
func (b *bridge) initialized() object {
	models := []object{}
	for _, o := range b.options {
		if string(o.Category) == optionCategories[indexModel] {
			for _, v := range selectable(o) {
				models = append(models, object{"value": v.Value, "displayName": v.Name, "description": v.Description})
			}
		}
	}
	commands := b.commands
	if commands == nil {
		commands = []object{}
	}
	return object{"commands": commands, "agents": []any{}, "models": models, "account": object{}, "output_style": "default",
		"available_output_styles": []string{"default"}, "current_permission_mode": b.mode()}
}

// selectable returns the values of an option. They may be in groups.
func selectable(o v1.SessionConfigOption) (values []v1.SessionConfigSelectOption) {
	var groups []struct {
		v1.SessionConfigSelectOption
		Options []v1.SessionConfigSelectOption
	}
	json.Unmarshal(o.Options, &groups)
	for _, g := range groups {
		if g.Options != nil {
			values = append(values, g.Options...)
		} else {
			values = append(values, g.SessionConfigSelectOption)
		}
	}
	return values
}

// current returns the value of an option.
func (b *bridge) current(index int) (value string) {
	for _, o := range b.options {
		if string(o.Category) == optionCategories[index] {
			json.Unmarshal(o.CurrentValue, &value)
			return value
		}
	}
	return ""
}

func (b *bridge) mode() string {
	return firstOf(b.current(indexMode), b.modes.CurrentModeID, "default")
}

// set sets an option of the session.
func (b *bridge) set(index int, value string, done func(error)) {
	if b.session == "" {
		done(errors.New("the session is not open"))
		return
	}
	category := optionCategories[index]
	over := func(result json.RawMessage, e *Error) {
		var r struct{ ConfigOptions []v1.SessionConfigOption }
		if json.Unmarshal(result, &r) == nil && r.ConfigOptions != nil {
			b.options = r.ConfigOptions
		}
		if e != nil {
			done(e)
			return
		}
		done(nil)
	}
	for _, o := range b.options {
		if string(o.Category) != category {
			continue
		}
		var names []string
		for _, v := range selectable(o) {
			if names = append(names, v.Value); v.Value == value {
				b.request("session/set_config_option", object{"sessionId": b.session, "configId": o.ID, "value": value}, over)
				return
			}
		}
		if value == "" || value == b.current(index) {
			done(nil)
			return
		}
		done(fmt.Errorf("the agent has no %s %q; it has %s", category, value, strings.Join(names, ", ")))
		return
	}
	if index == indexMode {
		var names []string
		for _, m := range b.modes.AvailableModes {
			if names = append(names, m.ID); m.ID == value {
				b.request("session/set_mode", object{"sessionId": b.session, "modeId": value}, func(r json.RawMessage, e *Error) {
					if e == nil {
						b.modes.CurrentModeID = value
					}
					over(r, e)
				})
				return
			}
		}
		if len(names) > 0 && value != "default" {
			done(fmt.Errorf("the agent has no mode %q; it has %s", value, strings.Join(names, ", ")))
			return
		}
	}
	if value == "" || value == "default" {
		done(nil)
		return
	}
	done(fmt.Errorf("the agent has no option for its %s", category))
}

// open opens the session.
func (b *bridge) open(r *wire.Initialize, done func(error)) {
	if b.opening {
		done(errors.New("the Agent Client Protocol cannot express a second initialize"))
		return
	}
	b.opening = true
	fail := func(err error) {
		b.failed = err.Error()
		done(err)
		b.promptNext()
	}
	b.request("initialize", object{"protocolVersion": 1, "clientInfo": object{"name": "parley", "title": "Parley", "version": "1"}, "clientCapabilities": object{
		"fs": object{"readTextFile": false, "writeTextFile": false}, "terminal": false, "elicitation": object{"form": object{}, "url": object{}},
		"session": object{"notices": object{}, "compaction": object{}}}}, func(result json.RawMessage, e *Error) {
		var info struct {
			ProtocolVersion   anyVersion
			AgentCapabilities capabilities
			AuthMethods       []struct{ ID, Name, Description string }
			Meta              struct{ Steering struct{ Supported bool } } `json:"_meta"`
		}
		if e != nil {
			fail(e)
			return
		}
		if err := json.Unmarshal(result, &info); err != nil || info.ProtocolVersion != 1 {
			fail(fmt.Errorf("the agent does not speak version 1 of the Agent Client Protocol, but %d", info.ProtocolVersion))
			return
		}
		b.can, b.steers = info.AgentCapabilities, info.Meta.Steering.Supported
		if list := b.inexpressible(r); len(list) > 0 {
			slices.Sort(list)
			fail(fmt.Errorf("the Agent Client Protocol cannot express: %s", strings.Join(list, ", ")))
			return
		}
		var methods []string
		for _, m := range info.AuthMethods {
			methods = append(methods, strings.TrimSpace(m.ID+": "+firstOf(m.Description, m.Name)))
		}
		b.openSession(r, methods, b.agent.AuthMethod, func(err error) {
			if err != nil {
				fail(err)
				return
			}
			b.setFirst(0, func(err error) {
				if err != nil {
					fail(err)
					return
				}
				done(nil)
				b.promptNext()
			})
		})
	})
}

// openSession creates the session, or opens the one that the host resumes.
func (b *bridge) openSession(r *wire.Initialize, methods []string, login string, done func(error)) {
	servers, err := b.mcpServers(r.SDKMCPServers)
	if err != nil {
		done(err)
		return
	}
	params := object{"cwd": b.cwd, "mcpServers": servers}
	if len(b.start.dirs) > 0 {
		if b.can.SessionCapabilities.AdditionalDirectories == nil {
			done(errors.New("the agent does not accept additional directories"))
			return
		}
		params["additionalDirectories"] = b.start.dirs
	}
	if s := b.system(r); s != nil {
		params["systemPrompt"] = s
	}
	method, old := "session/new", b.agentSession()
	if old != "" {
		params["sessionId"] = old
		switch c := b.can; {
		case b.start.fork && c.SessionCapabilities.Fork != nil:
			method = "session/fork"
		case b.start.fork:
			done(errors.New("the agent cannot fork sessions"))
			return
		case c.SessionCapabilities.Resume != nil:
			method = "session/resume"
		case c.LoadSession:
			method, b.loading = "session/load", true
		default:
			done(errors.New("the agent cannot resume sessions"))
			return
		}
	}
	b.request(method, params, func(result json.RawMessage, e *Error) {
		b.loading = false
		switch {
		case e != nil && e.Code == CodeAuthRequired && login != "":
			b.request("authenticate", object{"methodId": login}, func(_ json.RawMessage, e *Error) {
				if e != nil {
					done(e)
					return
				}
				b.openSession(r, methods, "", done)
			})
			return
		case e != nil && e.Code == CodeAuthRequired:
			done(fmt.Errorf("the agent requires authentication: %s (set acp.Agent.AuthMethod, or log in with the agent itself): %s", e.Message, strings.Join(methods, "; ")))
			return
		case e != nil:
			done(e)
			return
		}
		var s struct {
			SessionID     string
			Modes         v1.SessionModeState
			ConfigOptions []v1.SessionConfigOption
		}
		if err := json.Unmarshal(result, &s); err != nil || s.SessionID == "" && (old == "" || b.start.fork) {
			done(fmt.Errorf("the agent answered %s with no session", method))
			return
		}
		b.session, b.modes, b.options = firstOf(s.SessionID, old), s.Modes, s.ConfigOptions
		b.id = firstOf(b.start.id, b.session)
		if b.start.fork {
			b.id = b.session
		}
		done(b.keep())
	})
}

// setFirst sets the options that flags named, starting at an index.
func (b *bridge) setFirst(index int, done func(error)) {
	for ; index < len(b.start.options); index++ {
		if value := b.start.options[index]; value != "" {
			b.set(index, value, func(err error) {
				if err != nil {
					done(err)
					return
				}
				b.setFirst(index+1, done)
			})
			return
		}
	}
	done(nil)
}

// prompt handles a prompt of the host.
func (b *bridge) prompt(m *wire.User) {
	if !b.opening { // a host that sends no initialize
		b.open(&wire.Initialize{}, func(error) {})
	}
	if m.UUID == "" {
		m.UUID = session.NewID()
	}
	if m.Priority == "now" && b.turn != nil && b.steers {
		if blocks, err := b.blocks(m); err == nil {
			t := b.turn
			b.request("_session/steering", object{"sessionId": b.session, "prompt": blocks}, func(result json.RawMessage, e *Error) {
				var r struct{ Outcome string }
				if json.Unmarshal(result, &r); e == nil && r.Outcome == "injected" && t == b.turn {
					t.uuids = append(t.uuids, m.UUID)
					b.echo(m)
					return
				}
				b.queue = append(b.queue, m)
				b.promptNext()
			})
			return
		}
	}
	b.queue = append(b.queue, m)
	b.promptNext()
}

// promptNext starts the next turn if none is running.
func (b *bridge) promptNext() {
	for b.turn == nil && len(b.queue) > 0 && (b.session != "" || b.failed != "") {
		m := b.queue[0]
		b.queue = b.queue[1:]
		b.endMessage("end_turn") // end what the agent wrote between turns
		b.turn = &drivenTurn{uuids: []string{m.UUID}, began: time.Now()}
		b.last = ""
		var names []string
		for _, c := range b.commands {
			names = append(names, c["name"].(string))
		}
		b.emitSystem("init", object{"cwd": b.cwd, "tools": []any{}, "mcp_servers": []any{}, "model": b.current(indexModel), "permissionMode": b.mode(),
			"slash_commands": append([]string{}, names...), "apiKeySource": "none", "output_style": "default", "agents": []any{}, "skills": []any{}, "plugins": []any{}})
		b.echo(m)
		blocks, err := b.blocks(m)
		if b.failed != "" {
			err = errors.New(b.failed)
		}
		if err != nil {
			b.finish(&promptResult{}, errorf(CodeInvalidParams, "%v", err))
			continue
		}
		b.request("session/prompt", object{"sessionId": b.session, "prompt": blocks}, func(result json.RawMessage, e *Error) {
			var r promptResult
			if e == nil && json.Unmarshal(result, &r) != nil {
				e = errorf(CodeInternal, "the response to the prompt is not valid")
			}
			b.finish(&r, e)
			b.promptNext()
		})
	}
	b.endIfIdle()
}

// echo repeats a prompt if the host asked for that.
func (b *bridge) echo(m *wire.User) {
	if b.start.echo {
		again := *m
		again.IsReplay, again.SessionID = true, b.id
		if data, err := wire.Encode(&again); err == nil {
			b.host.Write(append(data, '\n'))
		}
	}
}

// blocks returns a prompt in the form that the agent receives.
func (b *bridge) blocks(m *wire.User) ([]any, error) {
	list := []any{}
	for _, x := range m.Message.Content.All() {
		switch x := x.(type) {
		case *wire.TextBlock:
			list = append(list, object{"type": "text", "text": x.Text})
		case *wire.ImageBlock:
			switch {
			case !b.can.PromptCapabilities.Image:
				return nil, errors.New("the agent does not accept images")
			case x.Source != nil && x.Source.Type == "base64":
				list = append(list, object{"type": "image", "mimeType": x.Source.MediaType, "data": x.Source.Data})
			case x.Source != nil && x.Source.Type == "url":
				list = append(list, object{"type": "resource_link", "name": "image", "uri": x.Source.URL})
			default:
				return nil, errors.New("the Agent Client Protocol cannot express this kind of image")
			}
		case *wire.DocumentBlock:
			uri := "attachment:///document"
			switch {
			case !b.can.PromptCapabilities.EmbeddedContext:
				return nil, errors.New("the agent does not accept documents")
			case x.Source != nil && x.Source.Type == "text":
				list = append(list, object{"type": "resource", "resource": object{"uri": uri, "mimeType": firstOf(x.Source.MediaType, "text/plain"), "text": x.Source.Data}})
			case x.Source != nil && x.Source.Type == "base64":
				list = append(list, object{"type": "resource", "resource": object{"uri": uri, "mimeType": x.Source.MediaType, "blob": x.Source.Data}})
			default:
				return nil, errors.New("the Agent Client Protocol cannot express this kind of document")
			}
		default:
			return nil, fmt.Errorf("the Agent Client Protocol cannot express a prompt with %T", x)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("the prompt is empty")
	}
	return list, nil
}

// interrupt cancels the turn, and also the queued prompts if queued is set.
func (b *bridge) interrupt(queued bool) object {
	list := func() []string {
		ids := []string{}
		for _, m := range b.queue {
			ids = append(ids, m.UUID)
		}
		return ids
	}
	r := object{"still_queued": list()}
	if queued {
		r = object{"still_queued": []string{}, "cancelled": list()}
		b.queue = nil
	}
	if b.turn != nil && b.session != "" {
		b.turn.stopped = true
		b.conn.notify("session/cancel", object{"sessionId": b.session})
		for id := range b.asked {
			b.withdraw(id)
		}
	}
	return r
}

// withdraw cancels a question to the host.
func (b *bridge) withdraw(id string) {
	q := b.asked[id]
	if q == nil || q.mcp {
		return
	}
	delete(b.asked, id)
	b.emit(object{"type": "control_cancel_request", "request_id": id})
	if q.call != nil {
		q.req.respond(cancelledOutcome, nil)
	} else {
		q.req.respond(object{"action": "cancel"}, nil)
	}
}

var cancelledOutcome = object{"outcome": object{"outcome": "cancelled"}}

// A promptResult is the response to a prompt. Not all agents count tokens.
type promptResult struct {
	StopReason string
	Usage      struct{ InputTokens, OutputTokens, CachedReadTokens, CachedWriteTokens int64 }
}

// finish ends the turn with a result.
func (b *bridge) finish(p *promptResult, e *Error) {
	t, stop := b.turn, p.StopReason
	b.endMessage("end_turn")
	for _, c := range b.calls { // their results will not arrive
		b.finishCall(c, "The call was interrupted.", true)
	}
	b.calls = nil
	r := object{"type": "result", "subtype": "success", "is_error": false, "result": b.last, "stop_reason": "end_turn", "num_turns": max(1, t.rounds),
		"duration_ms": time.Since(t.began).Milliseconds(), "duration_api_ms": 0, "total_cost_usd": b.cost, "usage": object{"input_tokens": p.Usage.InputTokens, "output_tokens": p.Usage.OutputTokens,
			"cache_read_input_tokens": p.Usage.CachedReadTokens, "cache_creation_input_tokens": p.Usage.CachedWriteTokens},
		"permission_denials": append([]object{}, t.denials...), "user_message_uuid": t.uuids[0], "user_message_uuids": t.uuids}
	if b.window > 0 {
		r["modelUsage"] = object{firstOf(b.current(indexModel), "default"): object{"contextWindow": b.window}}
	}
	fail := func(subtype, reason string, errors ...string) {
		r["subtype"], r["is_error"], r["terminal_reason"], r["errors"] = subtype, true, reason, errors
		delete(r, "result")
	}
	switch {
	case stop == "cancelled" || t.stopped:
		fail("error_during_execution", "aborted_streaming", "[Request interrupted by user]")
	case e != nil && e.Code == CodeAuthRequired:
		fail("error_during_execution", "api_error", e.Message)
		r["api_error_status"] = 401
	case e != nil:
		fail("error_during_execution", "turn_setup_failed", errorText(e))
	case stop == "max_turn_requests":
		fail("error_max_turns", "max_turns", "the agent reached its limit of requests in a turn")
	case stop == "max_tokens" || stop == "refusal":
		r["stop_reason"] = stop
	case stop != "end_turn":
		fail("error_during_execution", "turn_setup_failed", fmt.Sprintf("the agent stopped for the unknown reason %q", stop))
	}
	b.turn = nil
	b.emit(r)
}

// errorText returns the message of an error, with the details in its data.
func errorText(e *Error) string {
	var details string
	var data struct{ Details, Message string }
	if json.Unmarshal(e.Data, &details) != nil && json.Unmarshal(e.Data, &data) == nil {
		details = firstOf(data.Details, data.Message)
	}
	if details == "" || strings.Contains(e.Message, details) {
		return e.Message
	}
	return e.Message + ": " + details
}

// handle is called by the reader with requests and notifications of the agent.
func (b *bridge) handle(r *request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch r.method {
	case "session/update":
		var p struct {
			SessionID string
			Update    json.RawMessage
		}
		if r.decode(&p) == nil && !b.loading && (p.SessionID == b.session || b.session == "") {
			b.update(p.Update)
		}
	case "session/request_permission":
		b.permission(r)
	case "elicitation/create":
		b.elicit(r)
	case "mcp/message":
		b.forHost(r)
	default:
		r.respond(nil, errorf(CodeMethodNotFound, "this client has no method %s", r.method))
	}
}

// event sends a piece of an answer, if the host asked for pieces.
func (b *bridge) event(e object) {
	if b.start.partial {
		b.emit(object{"type": "stream_event", "event": e, "parent_tool_use_id": nil})
	}
}

// beginMessage starts an answer, unless one is being written.
func (b *bridge) beginMessage(id string) {
	if b.message != "" {
		return
	}
	b.message, b.index = firstOf(id, "msg_"+session.NewID()), 0
	if b.turn != nil {
		b.turn.rounds++
	}
	b.event(object{"type": "message_start", "message": b.apiMessage([]any{})})
}

// apiMessage returns an answer in the form of the Messages API.
func (b *bridge) apiMessage(content []any) object {
	return object{"id": b.message, "type": "message", "role": "assistant", "model": firstOf(b.current(indexModel), "unknown"), "content": content, "stop_reason": nil,
		"stop_sequence": nil, "usage": object{"input_tokens": 0, "output_tokens": 0}}
}

// emitBlock sends a complete block of an answer.
func (b *bridge) emitBlock(content object, parent string) {
	var of any
	if parent != "" {
		of = parent
	}
	b.emit(object{"type": "assistant", "message": b.apiMessage([]any{content}), "parent_tool_use_id": of})
	b.event(object{"type": "content_block_stop", "index": b.index})
	b.index++
}

// endBlock ends the text that is being written.
func (b *bridge) endBlock() {
	text, kind := b.text.String(), b.block
	b.text.Reset()
	switch b.block = ""; kind {
	case "text":
		b.last = text
		b.emitBlock(object{"type": "text", "text": text}, "")
	case "thinking":
		b.emitBlock(object{"type": "thinking", "thinking": text, "signature": ""}, "")
	}
}

// endMessage ends the answer that is being written.
func (b *bridge) endMessage(reason string) {
	b.endBlock()
	if b.message == "" {
		return
	}
	b.event(object{"type": "message_delta", "delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": object{"output_tokens": 0}})
	b.event(object{"type": "message_stop"})
	b.message = ""
}

// chunk adds to a text of the answer.
func (b *bridge) chunk(kind string, u *update) {
	var c struct{ Type, Text, URI, Name, MimeType string }
	json.Unmarshal(u.Content, &c)
	text := c.Text
	if c.Type != "text" { // pictures and links of the agent: show what is possible
		text = "[" + strings.TrimSpace(c.Type+" "+firstOf(c.URI, c.Name, c.MimeType)) + "]"
	}
	if text == "" {
		return
	}
	if u.MessageID != "" && b.message != "" && u.MessageID != b.message {
		b.endMessage("end_turn")
	}
	if b.block != kind {
		b.endBlock()
	}
	b.showPending()
	b.beginMessage(u.MessageID)
	if b.block == "" {
		b.block = kind
		b.event(object{"type": "content_block_start", "index": b.index, "content_block": object{"type": kind, kind: ""}})
	}
	b.text.WriteString(text)
	b.event(object{"type": "content_block_delta", "index": b.index, "delta": object{"type": kind + "_delta", kind: text}})
}

// update handles an update of the session.
func (b *bridge) update(data json.RawMessage) {
	var u update
	if err := json.Unmarshal(data, &u); err != nil {
		b.emitSystem("acp_update", object{"update": data})
		return
	}
	switch u.SessionUpdate {
	case "agent_message_chunk":
		b.chunk("text", &u)
	case "agent_thought_chunk":
		b.chunk("thinking", &u)
	case "user_message_chunk": // a prompt of somebody else, or one that the host knows
	case "tool_call", "tool_call_update":
		b.called(&u)
	case "plan":
		b.plan(&u)
	case "available_commands_update":
		b.commands = []object{}
		for _, c := range u.AvailableCommands {
			hint := ""
			if c.Input != nil {
				hint = c.Input.Hint
			}
			b.commands = append(b.commands, object{"name": c.Name, "description": c.Description, "argumentHint": hint})
		}
		b.emitSystem("commands_changed", object{"commands": b.commands})
	case "current_mode_update", "config_option_update":
		before := b.mode()
		b.modes.CurrentModeID = firstOf(u.CurrentModeID, b.modes.CurrentModeID)
		if u.ConfigOptions != nil {
			b.options = u.ConfigOptions
		} else {
			for i, o := range b.options {
				if string(o.Category) == optionCategories[indexMode] {
					b.options[i].CurrentValue = mustJSON(u.CurrentModeID)
				}
			}
		}
		if now := b.mode(); now != before {
			b.emitSystem("status", object{"status": nil, "permissionMode": now})
		}
	case "session_info_update":
		if u.Title != "" {
			b.emitSystem("session_title_changed", object{"title": u.Title})
		}
	case "usage_update":
		if b.used, b.window = u.Used, u.Size; u.Cost != nil {
			b.cost = u.Cost.Amount
		}
	case "notice":
		level := "info"
		if u.Severity == "warning" || u.Severity == "error" {
			level = "warning"
		}
		b.inform(level, "%s", strings.TrimSpace(u.Title+"\n"+u.Description))
	case "compaction_update":
		switch u.Status {
		case "in_progress":
			b.emitSystem("status", object{"status": "compacting"})
		case "completed":
			b.emitSystem("compact_boundary", object{"compact_metadata": object{"trigger": "auto", "pre_tokens": b.used}})
		case "failed":
			b.emitSystem("status", object{"status": nil, "compact_result": "failed", "compact_error": u.Error})
		}
	default: // pass it on, so that nothing is lost
		b.emitSystem("acp_update", object{"update": data})
	}
}

// called handles an update of a tool call. The host receives the call when its input is
// complete: when it runs, when the agent asks for permission, or when something else
// happens.
func (b *bridge) called(u *update) {
	c := b.call(u)
	if u.Status == "in_progress" || u.Status == "completed" || u.Status == "failed" {
		b.show(c)
	}
	if u.Status == "completed" || u.Status == "failed" {
		b.calls = slices.DeleteFunc(b.calls, func(x *driven) bool { return x == c })
		b.finishCall(c, "", u.Status == "failed")
	}
}

// call returns the call of an update, with the update applied.
func (b *bridge) call(u *update) *driven {
	i := slices.IndexFunc(b.calls, func(c *driven) bool { return c.v.ToolCallID == u.ToolCallID })
	if i < 0 {
		i = len(b.calls)
		b.calls = append(b.calls, &driven{v: update{ToolCallID: u.ToolCallID}})
	}
	b.calls[i].merge(u)
	return b.calls[i]
}

// merge applies the members of an update.
func (c *driven) merge(u *update) {
	v := &c.v
	v.Name = firstOf(u.Name, u.Meta.ClaudeCode.ToolName, u.Meta.Goose.ToolCall.ToolName, v.Name)
	v.Title, v.Kind = firstOf(u.Title, v.Title), firstOf(u.Kind, v.Kind)
	v.Meta.ClaudeCode.ParentToolUseID = firstOf(u.Meta.ClaudeCode.ParentToolUseID, v.Meta.ClaudeCode.ParentToolUseID)
	if len(u.RawInput) > 0 && string(u.RawInput) != "null" {
		v.RawInput = u.RawInput
	}
	if len(u.RawOutput) > 0 && string(u.RawOutput) != "null" {
		v.RawOutput = u.RawOutput
	}
	if len(u.Content) > 0 && string(u.Content) != "null" {
		v.Content = u.Content
	}
	if u.Locations != nil {
		v.Locations = u.Locations
	}
}

// toolName returns the name of the tool: the agent's own, or else its kind.
func (c *driven) toolName() string { return firstOf(c.v.Name, c.v.Kind, "other") }

// input returns the input of a call: the agent's own, or else what it shows to people.
func (c *driven) input() json.RawMessage {
	if in := bytes.TrimSpace(c.v.RawInput); len(in) > 2 && in[0] == '{' {
		return c.v.RawInput
	}
	in := object{}
	if c.v.Title != "" {
		in["title"] = c.v.Title
	}
	if len(c.v.Locations) > 0 {
		in["locations"] = c.v.Locations
	}
	if text := contentText(c.v.Content); text != "" && !c.shown {
		in["content"] = text
	}
	if len(c.v.RawInput) > 2 {
		in["input"] = c.v.RawInput
	}
	return mustJSON(in)
}

// show sends a call to the host, once.
func (b *bridge) show(c *driven) {
	if c.shown {
		return
	}
	b.endBlock()
	b.beginMessage("")
	input := c.input()
	c.shown = true
	id, name := c.v.ToolCallID, c.toolName()
	b.event(object{"type": "content_block_start", "index": b.index, "content_block": object{"type": "tool_use", "id": id, "name": name, "input": object{}}})
	b.event(object{"type": "content_block_delta", "index": b.index, "delta": object{"type": "input_json_delta", "partial_json": string(input)}})
	b.emitBlock(object{"type": "tool_use", "id": id, "name": name, "input": input}, c.v.Meta.ClaudeCode.ParentToolUseID)
}

// showPending sends the announced calls whose input is known.
func (b *bridge) showPending() {
	for _, c := range b.calls {
		if len(bytes.TrimSpace(c.v.RawInput)) > 2 {
			b.show(c)
		}
	}
}

// finishCall sends the result of a call.
func (b *bridge) finishCall(c *driven, text string, failed bool) {
	b.show(c)
	b.endMessage("tool_use")
	content := any(text)
	if text == "" {
		content = contentBlocks(c.v.Content)
		if len(content.([]any)) == 0 {
			var s string
			if json.Unmarshal(c.v.RawOutput, &s) != nil {
				s = string(c.v.RawOutput)
			}
			content = s
		}
	}
	var parent any
	if p := c.v.Meta.ClaudeCode.ParentToolUseID; p != "" {
		parent = p
	}
	r := object{"type": "tool_result", "tool_use_id": c.v.ToolCallID, "content": content}
	if failed {
		r["is_error"] = true
	}
	f := object{"type": "user", "message": object{"role": "user", "content": []any{r}}, "parent_tool_use_id": parent}
	if len(c.v.RawOutput) > 0 {
		f["tool_use_result"] = c.v.RawOutput
	}
	b.emit(f)
}

// contentBlocks returns the content of a call in the form of the Messages API.
func contentBlocks(data json.RawMessage) (list []any) {
	list = []any{}
	var content []struct {
		Type    string
		Content struct {
			Type, Text, Data, MimeType, URI, Name string
			Resource                              struct{ Text, URI string }
		}
		Path, OldText, NewText, TerminalID string
	}
	json.Unmarshal(data, &content)
	text := func(s string) {
		if s != "" {
			list = append(list, object{"type": "text", "text": s})
		}
	}
	for _, c := range content {
		switch x := c.Content; {
		case c.Type == "diff":
			text(udiff.Unified(c.Path, c.Path, c.OldText, c.NewText))
		case c.Type == "terminal":
			text("[terminal " + c.TerminalID + "]")
		case x.Type == "image":
			list = append(list, object{"type": "image", "source": object{"type": "base64", "media_type": x.MimeType, "data": x.Data}})
		case x.Type == "text":
			text(x.Text)
		case x.Type == "resource":
			text(firstOf(x.Resource.Text, x.Resource.URI))
		default:
			text(firstOf(x.URI, x.Name))
		}
	}
	return list
}

func contentText(data json.RawMessage) string {
	var parts []string
	for _, b := range contentBlocks(data) {
		if s, ok := b.(object)["text"].(string); ok {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, "\n")
}

// plan shows the agent's plan as a TodoWrite call, which hosts support.
func (b *bridge) plan(u *update) {
	b.plans++
	todos := []object{}
	for _, e := range u.Entries {
		todos = append(todos, object{"content": e.Content, "status": e.Status, "activeForm": e.Content})
	}
	c := &driven{}
	c.v = update{ToolCallID: fmt.Sprintf("plan_%d", b.plans), Name: "TodoWrite", RawInput: mustJSON(object{"todos": todos})}
	b.finishCall(c, "The plan was updated.", false)
}

// permission asks the host for permission to run a call.
func (b *bridge) permission(r *request) {
	var p struct {
		ToolCall update
		Options  []v1.PermissionOption
	}
	if err := r.decode(&p); err != nil || p.ToolCall.ToolCallID == "" || len(p.Options) == 0 {
		r.respond(nil, errorf(CodeInvalidParams, "session/request_permission needs a toolCall and options"))
		return
	}
	c := b.call(&p.ToolCall)
	input := c.input()
	b.show(c)
	if !b.start.ask || b.turn != nil && b.turn.stopped {
		b.deny(c, input)
		if !b.start.ask {
			b.emitSystem("permission_denied", object{"tool_name": c.toolName(), "tool_use_id": c.v.ToolCallID, "message": "The host answers no permission requests."})
		}
		r.respond(outcomeOf(p.Options, false, ""), nil)
		return
	}
	var once []v1.PermissionOption
	suggestions := []object{}
	for _, o := range p.Options {
		switch o.Kind {
		case v1.PermissionOptionKindAllowOnce:
			once = append(once, o)
		case v1.PermissionOptionKindAllowAlways:
			suggestions = append(suggestions, object{"type": "addRules", "behavior": "allow", "destination": "session",
				"rules": []object{{"toolName": c.toolName(), "ruleContent": o.Name}}})
		}
	}
	q := &asked{req: r, options: p.Options, call: c, input: input, choice: len(once) > 1}
	ask := object{"subtype": "can_use_tool", "tool_name": c.toolName(), "input": input, "tool_use_id": c.v.ToolCallID, "title": c.v.Title, "permission_suggestions": suggestions}
	if q.choice {
		choices := []object{}
		for _, o := range p.Options {
			choices = append(choices, object{"label": o.Name, "description": string(o.Kind)})
		}
		q.input = mustJSON(object{"questions": []object{{"question": firstOf(c.v.Title, "Which one?"), "header": "Choice", "multiSelect": false, "options": choices}}})
		ask["tool_name"], ask["input"], ask["requires_user_interaction"] = "AskUserQuestion", q.input, true
		delete(ask, "permission_suggestions")
	}
	if len(c.v.Locations) > 0 {
		ask["blocked_path"] = c.v.Locations[0].Path
	}
	b.askHost(q, ask)
}

// askHost sends a request to the host.
func (b *bridge) askHost(q *asked, request object) {
	id := session.NewID()
	b.asked[id] = q
	context.AfterFunc(q.req.ctx, func() { // the agent cancelled it
		if errors.Is(context.Cause(q.req.ctx), errCancelled) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.asked[id] == q {
				delete(b.asked, id)
				b.emit(object{"type": "control_cancel_request", "request_id": id})
				q.req.respond(nil, errorf(CodeCancelled, "the request was cancelled"))
			}
		}
	})
	b.emit(object{"type": "control_request", "request_id": id, "request": request})
}

// deny records that a call was denied.
func (b *bridge) deny(c *driven, input json.RawMessage) {
	if b.turn != nil {
		b.turn.denials = append(b.turn.denials, object{"tool_name": c.toolName(), "tool_use_id": c.v.ToolCallID, "tool_input": input})
	}
}

// outcomeOf returns the outcome that allows or rejects a call, permanently if a name is
// given.
func outcomeOf(options []v1.PermissionOption, allow bool, always string) object {
	kinds := []v1.PermissionOptionKind{v1.PermissionOptionKindRejectOnce, v1.PermissionOptionKindRejectAlways}
	if allow {
		kinds = []v1.PermissionOptionKind{v1.PermissionOptionKindAllowOnce, v1.PermissionOptionKindAllowAlways}
		if always != "" {
			slices.Reverse(kinds)
		}
	}
	for _, kind := range kinds {
		var found *v1.PermissionOption
		for i, o := range options {
			if o.Kind == kind && (found == nil || o.Name == always) {
				found = &options[i]
			}
		}
		if found != nil {
			return object{"outcome": object{"outcome": "selected", "optionId": found.OptionID}}
		}
	}
	return cancelledOutcome
}

// answer handles a response of the host.
func (b *bridge) answer(r *wire.Response) {
	q := b.asked[r.RequestID]
	if q == nil {
		return
	}
	delete(b.asked, r.RequestID)
	switch {
	case q.mcp:
		var m wire.MCPMessageResponse
		var inner struct {
			Result json.RawMessage `json:"result,omitempty"`
			Error  json.RawMessage `json:"error,omitempty"`
		}
		if r.Subtype != "success" || r.Decode(&m) != nil || json.Unmarshal(m.MCPResponse, &inner) != nil {
			q.req.respond(nil, errorf(CodeInternal, "the host has no answer: %s", r.Error))
			return
		}
		q.req.respond(inner, nil)
	case q.call == nil:
		var e wire.ElicitResult
		if r.Subtype != "success" || r.Decode(&e) != nil || e.Action == "" {
			e = wire.ElicitResult{Action: "cancel"}
		}
		answer := object{"action": e.Action}
		if e.Action == "accept" && len(e.Content) > 0 {
			answer["content"] = e.Content
		}
		q.req.respond(answer, nil)
	default:
		b.decided(q, r)
	}
}

// decided handles the answer to a permission request. Only an answer that allows exactly
// this call allows it.
func (b *bridge) decided(q *asked, r *wire.Response) {
	var d wire.PermissionResult
	failed := r.Subtype != "success" || r.Decode(&d) != nil
	if !failed && d.Behavior == wire.BehaviorAllow && q.choice {
		var in struct{ Answers map[string]string }
		json.Unmarshal(d.UpdatedInput, &in)
		for _, label := range in.Answers {
			for _, o := range q.options {
				if o.Name == label {
					q.req.respond(object{"outcome": object{"outcome": "selected", "optionId": o.OptionID}}, nil)
					return
				}
			}
		}
		failed = true
	}
	if !failed && d.Behavior == wire.BehaviorAllow && len(d.UpdatedInput) > 0 && !sameJSON(d.UpdatedInput, q.input) {
		b.inform("warning", "The call of %s was rejected: the Agent Client Protocol cannot express another input for it.", q.call.toolName())
		failed = true
	}
	if !failed && d.Behavior == wire.BehaviorAllow {
		always := ""
		for _, u := range d.UpdatedPermissions {
			if u.Type == wire.UpdateAddRules && len(u.Rules) > 0 {
				always = firstOf(u.Rules[0].RuleContent, u.Rules[0].ToolName)
			}
		}
		q.req.respond(outcomeOf(q.options, true, always), nil)
		return
	}
	b.deny(q.call, q.input)
	if d.Interrupt {
		q.req.respond(cancelledOutcome, nil)
		b.interrupt(false)
		return
	}
	q.req.respond(outcomeOf(q.options, false, ""), nil)
}

// sameJSON reports whether two values are equal.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// elicit asks the host a question of the agent, or of one of its MCP servers.
func (b *bridge) elicit(r *request) {
	var p struct {
		Message, Mode, URL, ElicitationID string
		RequestedSchema                   json.RawMessage
	}
	if err := r.decode(&p); err != nil {
		r.respond(nil, err)
		return
	}
	ask := object{"subtype": "elicitation", "mcp_server_name": "agent", "message": p.Message, "mode": firstOf(p.Mode, "form")}
	if p.URL != "" {
		ask["url"], ask["elicitation_id"] = p.URL, p.ElicitationID
	}
	if len(p.RequestedSchema) > 0 {
		ask["requested_schema"] = p.RequestedSchema
		ask["property_order"] = rawjson.Names(rawjson.Get(p.RequestedSchema, "properties"))
	}
	b.askHost(&asked{req: r}, ask)
}

// forHost passes a message to an MCP server of the host.
func (b *bridge) forHost(r *request) {
	var p struct {
		ServerID, Method  string
		RequestID, Params json.RawMessage
	}
	if err := r.decode(&p); err != nil {
		r.respond(nil, err)
		return
	}
	m := object{"jsonrpc": "2.0", "method": p.Method}
	if len(p.Params) > 0 && string(p.Params) != "null" {
		m["params"] = p.Params
	}
	if r.id != nil {
		if m["id"] = p.RequestID; len(p.RequestID) == 0 {
			m["id"] = r.id
		}
	}
	ask := object{"subtype": "mcp_message", "server_name": p.ServerID, "message": m}
	if r.id == nil {
		b.emit(object{"type": "control_request", "request_id": session.NewID(), "request": ask})
		return
	}
	b.askHost(&asked{req: r, mcp: true}, ask)
}
