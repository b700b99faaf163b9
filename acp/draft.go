package acp

import (
	"encoding/json"
	"path/filepath"
	"sync"

	"github.com/aymanbagabas/go-udiff"
	"github.com/parley-go/parley/acp/internal/v1"
)

// A draft is a connection of version 2, which is a draft. The server works with version 1;
// a draft translates the client's messages and the messages to it.
type draft struct {
	mu      sync.Mutex
	methods map[string]string // of requests without a response, by id, with the client's names
	asks    map[string]string // the sessions of open questions, by id
	states  map[string]string // of sessions that are not idle
}

func newDraft() *draft {
	return &draft{methods: map[string]string{}, asks: map[string]string{}, states: map[string]string{}}
}

// draftMethods maps the methods of version 2 to their names in version 1.
var draftMethods = map[string]string{
	"initialize": "initialize", "auth/login": "authenticate", "auth/logout": "logout", "session/new": "session/new", "session/resume": "session/resume",
	"session/list": "session/list", "session/delete": "session/delete", "session/close": "session/close", "session/prompt": "session/prompt", "session/cancel": "session/cancel",
	"session/set_config_option": "session/set_config_option", "mcp/message": "mcp/message", "_session/steering": "_session/steering",
}

// stateMethod is the method of an internal frame for the draft: a session's state may have
// changed. Its update has the state, empty for one that follows from open questions.
const stateMethod = "draft/state"

// incoming converts a request of version 2 to version 1.
func (d *draft) incoming(r *request) error {
	method, ok := draftMethods[r.method]
	if !ok {
		return errorf(CodeMethodNotFound, "version 2 has no method %s", r.method)
	}
	if r.id != nil {
		d.mu.Lock()
		d.methods[string(r.id)] = r.method
		d.mu.Unlock()
	}
	r.method = method
	if method != "session/new" && method != "session/resume" {
		return nil
	}
	params := map[string]json.RawMessage{}
	if json.Unmarshal(r.params, &params) != nil {
		return nil // the method reports the error
	}
	var servers []map[string]json.RawMessage
	if json.Unmarshal(params["mcpServers"], &servers) == nil {
		for _, s := range servers {
			if string(s["type"]) == `"stdio"` {
				delete(s, "type")
			}
		}
	}
	params["mcpServers"] = mustJSON(append([]map[string]json.RawMessage{}, servers...))
	if from := params["replayFrom"]; len(from) > 0 && string(from) != "null" {
		var x struct{ Type string }
		if json.Unmarshal(from, &x); x.Type != "start" {
			return errorf(CodeInvalidParams, "session/resume: replayFrom can be of the type start")
		}
		r.method = "session/load"
	}
	r.params = mustJSON(params)
	return nil
}

// noteAnswer records that the client answered a request. It reports whether the state of a
// session may have changed.
func (d *draft) noteAnswer(id json.RawMessage) (session string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	session, ok = d.asks[string(id)]
	delete(d.asks, string(id))
	return session, ok
}

// outgoing returns the frames of version 2 for one of version 1.
func (d *draft) outgoing(f *frame) []*frame {
	d.mu.Lock()
	defer d.mu.Unlock()
	var p struct {
		SessionID string
		Update    map[string]json.RawMessage
		RequestID json.RawMessage
	}
	if f.Method != "" {
		json.Unmarshal(f.Params, &p)
	}
	switch f.Method {
	case "":
		method := d.methods[string(f.ID)]
		delete(d.methods, string(f.ID))
		if len(f.Result) > 0 && (method == "session/new" || method == "session/resume" || method == "session/set_config_option") {
			f.Result = changed(f.Result, func(m map[string]json.RawMessage) {
				delete(m, "modes")
				draftOptions(m)
			})
		}
		return []*frame{f}
	case "session/update":
		u := draftUpdate(p.Update)
		if u == nil {
			return nil
		}
		return []*frame{updateFrame(p.SessionID, u)}
	case stateMethod:
		return d.state(p.SessionID, p.Update)
	case "session/request_permission", "elicitation/create":
		d.asks[string(f.ID)] = p.SessionID
		if f.Method == "session/request_permission" {
			f.Params = changed(f.Params, draftPermission)
		}
		return append(d.state(p.SessionID, map[string]json.RawMessage{"state": json.RawMessage(`"requires_action"`)}), f)
	case "$/cancel_request":
		session := d.asks[string(p.RequestID)]
		delete(d.asks, string(p.RequestID))
		return append([]*frame{f}, d.state(session, nil)...)
	}
	return []*frame{f}
}

// state returns the update that reports the state of a session, if it changed.
func (d *draft) state(session string, u map[string]json.RawMessage) []*frame {
	var next string
	json.Unmarshal(u["state"], &next)
	before, waits := d.states[session], false
	for _, of := range d.asks {
		waits = waits || of == session
	}
	if next == "" { // a question was answered
		if before != "requires_action" {
			return nil
		}
		next = "running"
		u = map[string]json.RawMessage{"state": json.RawMessage(`"running"`)}
	}
	switch {
	case next == before, next == "idle" && before == "", next == "running" && waits:
		return nil
	case next == "idle":
		delete(d.states, session)
	default:
		d.states[session] = next
	}
	u["sessionUpdate"] = json.RawMessage(`"state_update"`)
	return []*frame{updateFrame(session, u)}
}

func updateFrame(session string, u map[string]json.RawMessage) *frame {
	return &frame{Version: "2.0", Method: "session/update", Params: mustJSON(map[string]any{"sessionId": session, "update": u})}
}

// changed returns data, a JSON object, after f has changed it.
func changed(data json.RawMessage, f func(map[string]json.RawMessage)) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(data, &m) != nil || m == nil {
		return data
	}
	f(m)
	return mustJSON(m)
}

// changedAll returns data, a list of JSON objects, after f has changed each of them.
func changedAll(data json.RawMessage, f func(map[string]json.RawMessage)) json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(data, &list) != nil || list == nil {
		return data
	}
	for i := range list {
		list[i] = changed(list[i], f)
	}
	return mustJSON(list)
}

// draftOptions converts the options of a response or an update.
func draftOptions(m map[string]json.RawMessage) {
	if m["configOptions"] != nil {
		m["configOptions"] = changedAll(m["configOptions"], func(o map[string]json.RawMessage) {
			o["configId"] = o["id"]
			delete(o, "id")
		})
	}
}

// draftPermission converts a permission request.
func draftPermission(m map[string]json.RawMessage) {
	call := changed(m["toolCall"], draftCall)
	var c struct{ Title string }
	json.Unmarshal(call, &c)
	delete(m, "toolCall")
	m["title"] = mustJSON(firstOf(c.Title, "Permission"))
	m["subject"] = mustJSON(map[string]json.RawMessage{"type": json.RawMessage(`"tool_call"`), "toolCall": call})
}

// draftUpdate returns an update of version 2, or nil if there is none.
func draftUpdate(u map[string]json.RawMessage) map[string]json.RawMessage {
	var kind string
	json.Unmarshal(u["sessionUpdate"], &kind)
	switch kind {
	case "current_mode_update": // the option reports it
		return nil
	case "tool_call", "tool_call_update":
		u["sessionUpdate"] = json.RawMessage(`"tool_call_update"`)
		draftCall(u)
	case "plan":
		u["sessionUpdate"] = json.RawMessage(`"plan_update"`)
		u["plan"] = mustJSON(map[string]any{"type": "items", "planId": "plan", "entries": u["entries"]})
		delete(u, "entries")
	case "config_option_update":
		draftOptions(u)
	case "available_commands_update":
		u["availableCommands"] = changedAll(u["availableCommands"], func(c map[string]json.RawMessage) {
			c["type"] = json.RawMessage(`"command"`)
			if c["input"] != nil {
				c["input"] = changed(c["input"], func(in map[string]json.RawMessage) { in["type"] = json.RawMessage(`"text"`) })
			}
		})
	case "user_message_chunk", "agent_message_chunk", "agent_thought_chunk":
		if u["messageId"] == nil {
			u["messageId"] = json.RawMessage(`"unknown"`)
		}
	}
	return u
}

// draftCall converts a tool call: a diff is a patch.
func draftCall(u map[string]json.RawMessage) {
	if u["content"] == nil {
		return
	}
	u["content"] = changedAll(u["content"], func(c map[string]json.RawMessage) {
		var d struct {
			Type, Path, NewText string
			OldText             *string
		}
		if json.Unmarshal(mustJSON(c), &d); d.Type != "diff" {
			return
		}
		operation, old, from := "modify", "", "a"+d.Path
		if d.OldText == nil {
			operation, from = "add", "/dev/null"
		} else {
			old = *d.OldText
		}
		patch := "diff --git a" + d.Path + " b" + d.Path + "\n" + udiff.Unified(from, "b"+d.Path, old, d.NewText)
		for _, k := range []string{"path", "oldText", "newText"} {
			delete(c, k)
		}
		if !filepath.IsAbs(d.Path) {
			c["type"], c["content"] = json.RawMessage(`"content"`), mustJSON(map[string]string{"type": "text", "text": patch})
			return
		}
		c["changes"] = mustJSON([]map[string]string{{"operation": operation, "path": d.Path}})
		c["patch"] = mustJSON(map[string]string{"format": "git_patch", "text": patch})
	})
}

// draftCapabilities returns the capabilities of a client of version 2 as one of version 1.
func draftCapabilities(data json.RawMessage) (*v1.ClientCapabilities, error) {
	d, err := decodeCapabilities[struct {
		Auth        struct{ Terminal *empty }
		Elicitation *v1.ElicitationCapabilities
		Session     *v1.ClientSessionCapabilities
		Meta        json.RawMessage `json:"_meta"`
	}](data)
	if err != nil {
		return nil, err
	}
	return &v1.ClientCapabilities{Auth: &v1.AuthCapabilities{Terminal: d.Auth.Terminal != nil}, Elicitation: d.Elicitation, Session: d.Session, Meta: d.Meta}, nil
}

// initializeDraft returns the response to an initialize request of version 2.
func (s *server) initializeDraft() any {
	methods := changedAll(mustJSON(s.authMethods()), func(m map[string]json.RawMessage) {
		if m["type"] == nil {
			m["type"] = json.RawMessage(`"agent"`)
		}
		m["methodId"] = m["id"]
		delete(m, "id")
	})
	return map[string]any{
		"protocolVersion": 2,
		"info":            map[string]string{"name": s.cfg.Name, "title": "Parley", "version": firstOf(s.cfg.Version, "0")},
		"capabilities": map[string]any{
			"session": map[string]any{"prompt": map[string]any{"image": empty{}, "embeddedContext": empty{}}, "mcp": map[string]any{"stdio": empty{}, "http": empty{}, "acp": empty{}}, "delete": empty{}, "additionalDirectories": empty{}},
			"auth":    empty{},
		},
		"authMethods": methods, "_meta": json.RawMessage(`{"steering":{"supported":true}}`),
	}
}

// acceptDraft responds to a prompt of version 2 that it is accepted. Everything else
// follows in updates.
func (e *editing) acceptDraft(t *turn, prompt any) {
	t.req.respond(map[string]string{"messageId": t.uuid}, nil)
	e.srv.conn.notify("session/update", map[string]any{"sessionId": e.id, "update": map[string]any{"sessionUpdate": "user_message", "messageId": t.uuid, "content": prompt}})
	e.state(map[string]any{"state": "running"})
}

// state reports the state of the session to a client of version 2.
func (e *editing) state(state map[string]any) {
	if e.client.version == 2 {
		e.srv.conn.notify(stateMethod, map[string]any{"sessionId": e.id, "update": state})
	}
}

// idle reports that no turn is running any more.
func (e *editing) idle(result *v1.PromptResponse, err error) {
	e.mu.Lock()
	more := len(e.turns) > 0
	e.mu.Unlock()
	if more {
		return
	}
	state := map[string]any{"state": "idle"}
	if err != nil {
		state["stopReason"], state["error"] = "error", asError(err)
	} else if result != nil {
		state["stopReason"] = result.StopReason
	}
	e.state(state)
}
