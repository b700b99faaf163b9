package parleytest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// openai serves POST /v1/chat/completions and GET /v1/models. The request is
// first converted to the form of the Messages API, so that matchers see the
// same with either API.
func (x *exchange) openai() {
	path, _, _ := strings.Cut(x.r.Path, "?")
	switch {
	case path == "/v1/models" && x.r.Method == http.MethodGet:
		x.json(200, []byte(`{"object":"list","data":[{"id":"parleytest","object":"model","created":0,"owned_by":"parleytest"}]}`))
		return
	case path != "/v1/chat/completions" || x.r.Method != http.MethodPost:
		x.fail(404, "invalid_request_error", fmt.Sprintf("Invalid URL (%s %s)", x.r.Method, path))
		return
	}
	q := &chatRequest{r: x.r}
	q.parse()
	if !x.api.opts.Lenient {
		for i := range chatRules {
			if msg, param := chatRules[i].check(q); msg != "" {
				rule := chatRules[i]
				x.face = openaiFace{param: param, code: rule.code}
				x.refuse(&Refusal{Rule: rule.Name, Status: rule.Status, Type: rule.Type, Message: msg})
				return
			}
		}
	}
	x.r.view.once.Do(func() { x.r.view.body = q.messagesBody() })
	x.face = openaiFace{usage: q.StreamOptions.IncludeUsage}
	x.answer(q.Stream)
}

// openaiFace formats answers of the chat completions API.
type openaiFace struct {
	usage bool // a last chunk has the usage
	param string
	code  string
}

func (f openaiFace) failure(typ, message, _ string) []byte {
	null := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	b, _ := json.Marshal(map[string]any{"error": map[string]any{"message": message, "type": typ, "param": null(f.param), "code": null(f.code)}})
	return b
}

func (openaiFace) id(a *answer) string { return "chatcmpl-" + strings.TrimPrefix(a.id(), "msg_") }

// finish returns the stop reason in the terms of this API.
func (openaiFace) finish(a *answer) string {
	switch a.stopReason() {
	case "tool_use":
		return "tool_calls"
	case "max_tokens", "model_context_window_exceeded":
		return "length"
	case "refusal":
		return "content_filter"
	}
	return "stop"
}

type chatUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (openaiFace) usageOf(a *answer) *chatUsage {
	u := a.usage
	c := &chatUsage{Prompt: u.Input + u.CacheRead + u.CacheWrite + u.CacheWrite1h, Completion: u.Output}
	c.Total = c.Prompt + c.Completion
	c.Details.Cached = u.CacheRead
	return c
}

type chatCall struct {
	Index    *int   `json:"index,omitempty"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type chatDelta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []chatCall `json:"tool_calls,omitempty"`
}

// whole returns the body of an answer that is not streamed.
func (f openaiFace) whole(a *answer) []byte {
	msg := chatDelta{Role: "assistant"}
	var text string
	for i := range a.blocks {
		k := &a.blocks[i]
		switch k.kind {
		case stepSay:
			text += k.text()
			msg.Content = &text
		case stepThink:
			msg.Reasoning += k.text()
		case stepCall:
			c := chatCall{ID: k.id, Type: "function"}
			c.Function.Name, c.Function.Arguments = k.name, k.text()
			msg.ToolCalls = append(msg.ToolCalls, c)
		}
	}
	type message struct {
		Role      string     `json:"role"`
		Content   *string    `json:"content"`
		Refusal   *string    `json:"refusal"`
		Reasoning string     `json:"reasoning_content,omitempty"`
		ToolCalls []chatCall `json:"tool_calls,omitempty"`
	}
	b, _ := json.Marshal(map[string]any{
		"id": f.id(a), "object": "chat.completion", "created": 0, "model": a.model,
		"choices": []any{map[string]any{"index": 0, "message": message{msg.Role, msg.Content, nil, msg.Reasoning, msg.ToolCalls}, "logprobs": nil, "finish_reason": f.finish(a)}},
		"usage":   f.usageOf(a),
	})
	return b
}

// events translates one event of the Messages API.
func (f openaiFace) events(a *answer, o op) []byte {
	switch o.kind {
	case opMalformed:
		return sse("", o.data)
	case opPing:
		return []byte(": ping\n\n")
	case opError:
		return sse("", f.failure(o.typ, string(o.data), ""))
	case opEvent:
	default:
		return nil
	}
	var ev struct {
		Index int `json:"index"`
		Delta struct {
			Type, Text, Thinking string
			PartialJSON          string `json:"partial_json"`
		}
	}
	json.Unmarshal(o.data, &ev)
	chunk := func(d *chatDelta, finish any, usage *chatUsage) []byte {
		m := map[string]any{"id": f.id(a), "object": "chat.completion.chunk", "created": 0, "model": a.model, "choices": []any{}}
		if d != nil {
			m["choices"] = []any{map[string]any{"index": 0, "delta": d, "logprobs": nil, "finish_reason": finish}}
		}
		if f.usage {
			m["usage"] = usage
		}
		b, _ := json.Marshal(m)
		return sse("", b)
	}
	call := func() int { // the index of the block's tool call
		n := 0
		for _, k := range a.blocks[:ev.Index] {
			if k.kind == stepCall {
				n++
			}
		}
		return n
	}
	switch o.typ {
	case "message_start":
		empty := ""
		return chunk(&chatDelta{Role: "assistant", Content: &empty}, nil, nil)
	case "content_block_start":
		if k := a.blocks[ev.Index]; k.kind == stepCall {
			n := call()
			c := chatCall{Index: &n, ID: k.id, Type: "function"}
			c.Function.Name = k.name
			return chunk(&chatDelta{ToolCalls: []chatCall{c}}, nil, nil)
		}
	case "content_block_delta":
		switch ev.Delta.Type {
		case "text_delta":
			return chunk(&chatDelta{Content: &ev.Delta.Text}, nil, nil)
		case "thinking_delta":
			return chunk(&chatDelta{Reasoning: ev.Delta.Thinking}, nil, nil)
		case "input_json_delta":
			if ev.Delta.PartialJSON == "" {
				return nil
			}
			n := call()
			c := chatCall{Index: &n}
			c.Function.Arguments = ev.Delta.PartialJSON
			return chunk(&chatDelta{ToolCalls: []chatCall{c}}, nil, nil)
		}
	case "message_delta":
		return chunk(&chatDelta{}, f.finish(a), nil)
	case "message_stop":
		var b []byte
		if f.usage {
			b = chunk(nil, nil, f.usageOf(a))
		}
		return append(b, "data: [DONE]\n\n"...)
	}
	return nil
}

// A chatRequest is a request of the chat completions API.
type chatRequest struct {
	r       *Request
	jsonErr error

	Model         string
	Messages      []chatMessage
	Stream        bool
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Tools []struct {
		Type     string
		Function struct {
			Name        string
			Description string
			Parameters  json.RawMessage
		}
	}
	ToolChoice  json.RawMessage `json:"tool_choice"`
	Temperature *float64
	top         map[string]json.RawMessage
}

type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCalls  []chatCall      `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
}

func (q *chatRequest) parse() {
	if q.jsonErr = json.Unmarshal(q.r.Body, &q.top); q.jsonErr == nil {
		q.jsonErr = json.Unmarshal(q.r.Body, q)
	}
}

// messagesBody returns the request in the form of the Messages API.
func (q *chatRequest) messagesBody() messagesBody {
	out := messagesBody{Model: q.Model, Stream: q.Stream}
	var system []string
	marshal := func(v any) json.RawMessage { b, _ := json.Marshal(v); return b }
	for _, m := range q.Messages {
		text := chatText(m.Content)
		switch m.Role {
		case "system", "developer":
			system = append(system, text)
		case "tool":
			block := map[string]any{"type": "tool_result", "tool_use_id": m.ToolCallID, "content": text}
			out.Messages = append(out.Messages, bodyMessage{"user", marshal([]any{block})})
		case "assistant":
			var blocks []any
			if text != "" {
				blocks = append(blocks, map[string]any{"type": "text", "text": text})
			}
			for _, c := range m.ToolCalls {
				input := json.RawMessage(c.Function.Arguments)
				if !json.Valid(input) {
					input = json.RawMessage("{}")
				}
				blocks = append(blocks, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Function.Name, "input": input})
			}
			out.Messages = append(out.Messages, bodyMessage{"assistant", marshal(blocks)})
		default:
			out.Messages = append(out.Messages, bodyMessage{m.Role, marshal(text)})
		}
	}
	if system != nil {
		out.System = marshal(strings.Join(system, "\n"))
	}
	for _, t := range q.Tools {
		out.Tools = append(out.Tools, bodyTool{Name: t.Function.Name, raw: marshal(t)})
	}
	return out
}

func chatText(content json.RawMessage) string {
	return textOf(bytes.TrimSpace(content))
}

// A chatRule is a rule by which the chat completions API rejects requests; see
// [Rule].
type chatRule struct {
	Rule
	code  string
	check func(*chatRequest) (message, param string)
}

// ChatRules returns the rules of the OpenAI-compatible API.
func ChatRules() []Rule {
	out := make([]Rule, len(chatRules))
	for i := range chatRules {
		out[i] = chatRules[i].Rule
	}
	return out
}

// Sources of the error formats.
const (
	fromOpenAI     = "https://platform.openai.com/docs/api-reference/chat/create (the constraint); the wording is close to its own"
	fromOpenAICode = "https://platform.openai.com/docs/guides/error-codes"
)

const goodChat = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`

func chatMessages(list string) string { return `{"model":"m","messages":[` + list + `]}` }

var chatRules []chatRule

func init() {
	header := func(without string) http.Header {
		h := http.Header{"Authorization": {"Bearer test-key"}, "Content-Type": {"application/json"}}
		h.Del(without)
		return h
	}
	rule := func(name, says, breaks, message string, check func(*chatRequest) (string, string)) chatRule {
		return chatRule{Rule: Rule{Name: name, Says: says, Status: 400, Type: "invalid_request_error", Message: message, Known: fromOpenAI,
			Breaks: func() (http.Header, []byte) { return header(""), []byte(breaks) }}, check: check}
	}
	chatRules = []chatRule{
		{
			Rule: Rule{Name: "api-key", Says: "a key is given as a bearer token", Status: 401, Type: "invalid_request_error", Known: fromOpenAICode,
				Message: "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
				Breaks:  func() (http.Header, []byte) { return header("Authorization"), []byte(goodChat) }},
			check: func(q *chatRequest) (string, string) {
				return when(q.r.Header.Get("authorization") == "" && q.r.Header.Get("api-key") == "", "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."), ""
			},
		}, {
			Rule: Rule{Name: "content-type", Says: "the body is sent as application/json", Status: 400, Type: "invalid_request_error", Known: fromOpenAI,
				Message: "Unsupported content type: ''. This API method only accepts 'application/json' requests.",
				Breaks:  func() (http.Header, []byte) { return header("Content-Type"), []byte(goodChat) }},
			check: func(q *chatRequest) (string, string) {
				t, _, _ := mime.ParseMediaType(q.r.Header.Get("content-type"))
				return when(t != "application/json", fmt.Sprintf("Unsupported content type: '%s'. This API method only accepts 'application/json' requests.", q.r.Header.Get("content-type"))), ""
			},
		},
		rule("json", "the body is a JSON object of the right types", `{"model":`, "We could not parse the JSON body of your request.",
			func(q *chatRequest) (string, string) {
				return when(q.jsonErr != nil, "We could not parse the JSON body of your request."), ""
			}),
		rule("model", "model names a model", `{"messages":[{"role":"user","content":"hi"}]}`, "you must provide a model parameter",
			func(q *chatRequest) (string, string) {
				return when(q.Model == "", "you must provide a model parameter"), ""
			}),
		rule("messages", "there is a message", `{"model":"m","messages":[]}`, "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
			func(q *chatRequest) (string, string) {
				if q.top["messages"] == nil {
					return "Missing required parameter: 'messages'.", "messages"
				}
				return when(len(q.Messages) == 0, "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."), "messages"
			}),
		rule("role", "a message has a role that exists", chatMessages(`{"role":"bot","content":"hi"}`), "Invalid value: 'bot'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.",
			func(q *chatRequest) (string, string) {
				for i, m := range q.Messages {
					if !slices.Contains([]string{"system", "assistant", "user", "function", "tool", "developer"}, m.Role) {
						return fmt.Sprintf("Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.", m.Role), fmt.Sprintf("messages[%d].role", i)
					}
				}
				return "", ""
			}),
		rule("content", "a message has content, unless it calls tools", chatMessages(`{"role":"user"}`), "Invalid value for 'content': expected a string, got null.",
			func(q *chatRequest) (string, string) {
				for i, m := range q.Messages {
					if (m.Content == nil || string(m.Content) == "null") && !(m.Role == "assistant" && len(m.ToolCalls) > 0) {
						return "Invalid value for 'content': expected a string, got null.", fmt.Sprintf("messages.[%d].content", i)
					}
				}
				return "", ""
			}),
		rule("tool_calls", "each tool call is followed by a message of tool that answers it", chatMessages(`{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"a","arguments":"{}"}}]},{"role":"user","content":"so?"}`),
			"An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: c1",
			func(q *chatRequest) (string, string) {
				for i, m := range q.Messages {
					var missing []string
					for _, c := range m.ToolCalls {
						found := false
						for j := i + 1; j < len(q.Messages) && q.Messages[j].Role == "tool"; j++ {
							found = found || q.Messages[j].ToolCallID == c.ID
						}
						if !found {
							missing = append(missing, c.ID)
						}
					}
					if missing != nil {
						return "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: " + strings.Join(missing, ", "), fmt.Sprintf("messages.[%d].role", i+1)
					}
				}
				return "", ""
			}),
		rule("tool", "a message of tool answers a call before it", chatMessages(`{"role":"tool","tool_call_id":"c1","content":"x"}`),
			"Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
			func(q *chatRequest) (string, string) {
				for i, m := range q.Messages {
					if m.Role != "tool" {
						continue
					}
					j := i - 1
					for j >= 0 && q.Messages[j].Role == "tool" {
						j--
					}
					if j < 0 || !slices.ContainsFunc(q.Messages[j].ToolCalls, func(c chatCall) bool { return c.ID == m.ToolCallID }) {
						return "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.", fmt.Sprintf("messages.[%d].role", i)
					}
				}
				return "", ""
			}),
		rule("tool_call-type", "a tool call is of a function", chatMessages(`{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"c1","type":"func","function":{"name":"a","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"x"}`),
			"Invalid value: 'func'. Supported values are: 'function' and 'custom'.",
			func(q *chatRequest) (string, string) {
				for i, m := range q.Messages {
					for j, c := range m.ToolCalls {
						if c.Type != "function" && c.Type != "custom" {
							return fmt.Sprintf("Invalid value: '%s'. Supported values are: 'function' and 'custom'.", c.Type), fmt.Sprintf("messages[%d].tool_calls[%d].type", i, j)
						}
					}
				}
				return "", ""
			}),
		rule("tool-name", "a tool has a name of 64 letters, digits, _ and - at most", `{"model":"m","tools":[{"type":"function","function":{"name":"a b"}}],"messages":[{"role":"user","content":"hi"}]}`,
			"Invalid 'tools[0].function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
			func(q *chatRequest) (string, string) {
				for i, t := range q.Tools {
					if t.Type == "function" && (!nameRE().MatchString(t.Function.Name) || len(t.Function.Name) > 64) {
						return fmt.Sprintf("Invalid 'tools[%d].function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.", i), fmt.Sprintf("tools[%d].function.name", i)
					}
				}
				return "", ""
			}),
		rule("tool-schema", "the parameters of a tool are a JSON schema", `{"model":"m","tools":[{"type":"function","function":{"name":"a","parameters":{"type":"thing"}}}],"messages":[{"role":"user","content":"hi"}]}`,
			"Invalid schema for function 'a': the parameters are not a JSON schema of type object.",
			func(q *chatRequest) (string, string) {
				for i, t := range q.Tools {
					if t.Function.Parameters == nil {
						continue
					}
					var top struct{ Type string }
					json.Unmarshal(t.Function.Parameters, &top)
					if top.Type != "object" || !validSchema(t.Function.Parameters) {
						return fmt.Sprintf("Invalid schema for function '%s': the parameters are not a JSON schema of type object.", t.Function.Name), fmt.Sprintf("tools[%d].function.parameters", i)
					}
				}
				return "", ""
			}),
		rule("tool_choice", "tool_choice comes with tools", `{"model":"m","tool_choice":"auto","messages":[{"role":"user","content":"hi"}]}`,
			"Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
			func(q *chatRequest) (string, string) {
				return when(q.ToolChoice != nil && len(q.Tools) == 0, "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."), "tool_choice"
			}),
		rule("temperature", "temperature is from 0 to 2", `{"model":"m","temperature":3,"messages":[{"role":"user","content":"hi"}]}`,
			"Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3 instead.",
			func(q *chatRequest) (string, string) {
				switch t := q.Temperature; {
				case t != nil && *t > 2:
					return fmt.Sprintf("Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got %v instead.", *t), "temperature"
				case t != nil && *t < 0:
					return fmt.Sprintf("Invalid 'temperature': decimal below minimum value. Expected a value >= 0, but got %v instead.", *t), "temperature"
				}
				return "", ""
			}),
		rule("stream_options", "stream_options comes with stream", `{"model":"m","stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`,
			"The 'stream_options' parameter is only allowed when 'stream' is enabled.",
			func(q *chatRequest) (string, string) {
				return when(q.top["stream_options"] != nil && !q.Stream, "The 'stream_options' parameter is only allowed when 'stream' is enabled."), "stream_options"
			}),
	}
}
