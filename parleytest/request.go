package parleytest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Request is a received request and its outcome. Its bytes must not be modified.
type Request struct {
	Time   time.Time
	Method string      // empty for a request to a [Model]
	Path   string      // with its query; empty for a request to a [Model]
	Header http.Header // without secrets: their values are replaced by "REDACTED"
	Body   []byte      // as received

	Script string // the script that answered, if any
	Turn   int    // number of the played turn in it, from one
	Status int    // of the answer; 0 before the answer, or if the connection was reset
	Err    error  // why it was rejected or not answered by the script: a [*Refusal] or [*ScriptError]
	Cache  CacheUse

	view *view
}

// A view is a parsed request, in the form of the Messages API for either API.
type view struct {
	once sync.Once
	body messagesBody
}

// messagesBody holds the members that matchers, the cache and answers use.
type messagesBody struct {
	Model    string          `json:"model"`
	Stream   bool            `json:"stream"`
	System   json.RawMessage `json:"system"`
	Messages []bodyMessage   `json:"messages"`
	Tools    []bodyTool      `json:"tools"`
}

type bodyMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type bodyTool struct {
	Name string `json:"name"`
	Type string `json:"type"`
	raw  json.RawMessage
}

func (t *bodyTool) UnmarshalJSON(b []byte) error {
	type plain bodyTool
	err := json.Unmarshal(b, (*plain)(t))
	t.raw = bytes.Clone(b)
	return err
}

type bodyBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// A Result is the outcome of a tool call as the model receives it.
type Result struct {
	ID      string // of the call
	Tool    string // its name, if the call is in the request
	Text    string // the text blocks, joined by newlines
	IsError bool
}

// copies returns copies for callers that read them while answers are in progress.
func copies(rs []*Request) []*Request {
	out := make([]*Request, len(rs))
	for i, r := range rs {
		c := *r
		out[i] = &c
	}
	return out
}

func (r *Request) parse() *messagesBody {
	if r.view == nil { // constructed by hand
		r.view = new(view)
	}
	r.view.once.Do(func() {
		body := &r.view.body
		if rest, known := setAside(r.Body); known != nil {
			if json.Unmarshal(rest, body) == nil && len(body.Tools) == 1 && string(body.Tools[0].raw) == asideTool {
				body.Tools = known.body
				return
			}
			*body = messagesBody{}
		}
		json.Unmarshal(r.Body, body)
	})
	return &r.view.body
}

// ModelName returns the requested model.
func (r *Request) ModelName() string { return r.parse().Model }

// SystemPrompt returns the text of the system prompt, its blocks joined by newlines.
func (r *Request) SystemPrompt() string { return textOf(r.parse().System) }

// Tools returns the names of the tools in the request.
func (r *Request) Tools() []string {
	var names []string
	for _, t := range r.parse().Tools {
		names = append(names, t.Name)
	}
	return names
}

// Roles returns the roles of the messages in order.
func (r *Request) Roles() []string {
	var roles []string
	for _, m := range r.parse().Messages {
		roles = append(roles, m.Role)
	}
	return roles
}

// FirstUser returns the text of the first user message that has any.
func (r *Request) FirstUser() string {
	for _, m := range r.parse().Messages {
		if m.Role == "user" {
			if t := textOf(m.Content); t != "" {
				return t
			}
		}
	}
	return ""
}

// LastUser returns the text of the last user message that has any, without tool
// results.
func (r *Request) LastUser() string {
	ms := r.parse().Messages
	for i := len(ms) - 1; i >= 0; i-- {
		if ms[i].Role == "user" {
			if t := textOf(ms[i].Content); t != "" {
				return t
			}
		}
	}
	return ""
}

// ToolResults returns the new tool results in the request: those of all messages after
// the last assistant message.
func (r *Request) ToolResults() []Result {
	ms := r.parse().Messages
	i := len(ms)
	for i > 0 && ms[i-1].Role != "assistant" {
		i--
	}
	names := map[string]string{}
	if i > 0 {
		for _, b := range blocksOf(ms[i-1].Content) {
			if b.Type == "tool_use" {
				names[b.ID] = b.Name
			}
		}
	}
	var out []Result
	for ; i < len(ms); i++ {
		for _, b := range blocksOf(ms[i].Content) {
			if b.Type == "tool_result" {
				out = append(out, Result{ID: b.ToolUseID, Tool: names[b.ToolUseID], Text: textOf(b.Content), IsError: b.IsError})
			}
		}
	}
	return out
}

// Field returns the value at a path of member names and indexes such as
// "thinking.type" or "messages.0.role": a string unquoted, anything else as compact
// JSON.
func (r *Request) Field(path string) (string, bool) {
	raw := json.RawMessage(r.Body)
	for name := range strings.SplitSeq(path, ".") {
		var m map[string]json.RawMessage
		if json.Unmarshal(raw, &m) == nil && m != nil {
			v, ok := m[name]
			if !ok {
				return "", false
			}
			raw = v
			continue
		}
		var a []json.RawMessage
		i, ok := index(name)
		if !ok || json.Unmarshal(raw, &a) != nil || i >= len(a) {
			return "", false
		}
		raw = a[i]
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, true
	}
	var buf bytes.Buffer
	if json.Compact(&buf, raw) != nil {
		return "", false
	}
	return buf.String(), true
}

func index(s string) (int, bool) {
	n := 0
	for _, c := range s {
		if c < '0' || c > '9' || n > 1<<20 {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, s != ""
}

// conversation identifies the conversation of a request.
func (r *Request) conversation() string {
	return r.Header.Get("x-claude-code-session-id") + "\n" + r.FirstUser()
}

// textOf joins the texts of a content member, which is a string or blocks.
func textOf(content json.RawMessage) string {
	var s string
	if len(content) > 0 && content[0] == '"' && json.Unmarshal(content, &s) == nil {
		return s
	}
	var texts []string
	for _, b := range blocksOf(content) {
		if b.Type == "text" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

func blocksOf(content json.RawMessage) []bodyBlock {
	var bs []bodyBlock
	if len(content) == 0 || content[0] != '[' || json.Unmarshal(content, &bs) != nil {
		return nil
	}
	return bs
}

// peek reads the model and stream members of a body without parsing the rest.
func peek(body []byte) (model string, stream bool) {
	// Most clients write the model first and stream last: a member before the final
	// brace belongs to the request itself.
	if rest, ok := bytes.CutPrefix(body, []byte(`{"model":"`)); ok && bytes.HasSuffix(body, []byte(`,"stream":true}`)) {
		if n := bytes.IndexAny(rest, "\"\\"); n >= 0 && rest[n] == '"' {
			return string(rest[:n]), true
		}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return "", false
	}
	var haveModel, haveStream bool
	for d.More() && !(haveModel && haveStream) {
		t, err := d.Token()
		if err != nil {
			break
		}
		var dst any = &json.RawMessage{}
		switch t {
		case "model":
			dst, haveModel = &model, true
		case "stream":
			dst, haveStream = &stream, true
		}
		if d.Decode(dst) != nil {
			break
		}
	}
	return model, stream
}

// secretHeaders never leave the sender's process.
var secretHeaders = []string{"Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "Cookie", "Set-Cookie", "X-Goog-Api-Key", "X-Amz-Security-Token"}

const redacted = "REDACTED"

// withoutSecrets returns a copy of h without keys and tokens.
func withoutSecrets(h http.Header) http.Header {
	out := h.Clone()
	for _, name := range secretHeaders {
		if out.Get(name) != "" {
			out.Set(name, redacted)
		}
	}
	for name, vs := range out {
		for i, v := range vs {
			out[name][i] = hideSecrets(v)
		}
	}
	return out
}
