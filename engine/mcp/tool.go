package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// Limits of what a server may offer.
const (
	maxTools       = 1000
	maxPages       = 100
	maxDescription = 8 << 10
	maxSchema      = 128 << 10
	maxListed      = 1 << 20 // all descriptions and schemas
	maxDepth       = 100     // of a schema
)

// A Tool is a tool of a server.
type Tool struct {
	server *server
	name   string // the server's name for it
	title  string
	spec   *tool.Spec
	hints  hints
	limit  int // of characters in a result; 0 means the manager's
	always bool
}

type hints struct {
	Title       string `json:"title"`
	ReadOnly    bool   `json:"readOnlyHint"`
	Destructive bool   `json:"destructiveHint"`
	OpenWorld   bool   `json:"openWorldHint"`
}

// listed is a tool as a server lists it.
type listed struct {
	Name        string          `json:"name"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Annotations hints           `json:"annotations"`
	Meta        struct {
		MaxResult  int  `json:"anthropic/maxResultSizeChars"`
		AlwaysLoad bool `json:"anthropic/alwaysLoad"`
	} `json:"_meta"`
}

// Server returns the server that the tool belongs to.
func (t *Tool) Server() *wire.ToolServer {
	return &wire.ToolServer{Name: t.server.name, Source: t.server.source}
}

// ServerTitle returns the server's own name, or else its configured one.
func (t *Tool) ServerTitle() string {
	t.server.m.mu.Lock()
	defer t.server.m.mu.Unlock()
	if info := t.server.info; info != nil && info.Name != "" {
		return clip(info.Name, 100)
	}
	return t.server.name
}

// AlwaysLoad reports whether the tool is sent to the model from the start, however many there
// are.
func (t *Tool) AlwaysLoad() bool { return t.always || t.server.cfg != nil && t.server.cfg.AlwaysLoad }

// ServerName returns the server's name for the tool.
func (t *Tool) ServerName() string { return t.name }

// DisplayName returns the name of the tool for people.
func (t *Tool) DisplayName() string {
	if t.title != "" {
		return t.title
	}
	words := strings.FieldsFunc(t.name, func(r rune) bool { return r == '_' || r == '-' || r == ' ' })
	if len(words) == 0 {
		return t.name
	}
	for i, w := range words {
		r := []rune(w)
		words[i] = strings.ToUpper(string(r[0])) + string(r[1:])
	}
	return strings.Join(words, " ")
}

// Spec implements [tool.Tool].
func (t *Tool) Spec() *tool.Spec { return t.spec }

// Access returns an access that only the tool's name decides. The server's own annotations are
// no reason to allow it.
func (t *Tool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) {
	return []tool.Access{{Kind: tool.Other}}, nil
}

// Run calls the tool.
func (t *Tool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	raw, err := t.call(ctx, call.ID, call.Input)
	if err != nil {
		return nil, err
	}
	return t.result(call, raw)
}

func (t *Tool) call(ctx context.Context, toolUseID string, arguments json.RawMessage) (json.RawMessage, error) {
	conn, err := t.server.live(ctx)
	if err != nil {
		return nil, err
	}
	return conn.call(ctx, t.server, t.name, toolUseID, arguments)
}

// list lists the tools of a server. A malformed one is skipped.
func (s *server) list(ctx context.Context, conn *connection) ([]*Tool, error) {
	if r := conn.session.InitializeResult(); r != nil && r.Capabilities != nil && r.Capabilities.Tools == nil {
		return nil, nil // it has none
	}
	var tools []*Tool
	seen, size := map[string]bool{}, 0
	skip := func(name string, err error) {
		s.m.log.Warn("a tool of an MCP server is skipped", "server", s.name, "tool", clip(name, 100), "error", err)
	}
	err := s.pages(ctx, conn, rawTools, "tools", "", func(one json.RawMessage) bool {
		t, err := s.offer(one)
		switch {
		case err != nil:
			skip(t.name, err)
		case seen[t.spec.Name]:
			skip(t.name, errors.New("there is another one of the same name"))
		case len(tools) == maxTools || size+len(t.spec.Description)+len(t.spec.Schema) > maxListed:
			skip(t.name, errors.New("the server offers too much"))
			return false
		default:
			seen[t.spec.Name] = true
			size += len(t.spec.Description) + len(t.spec.Schema)
			tools = append(tools, t)
		}
		return true
	})
	return tools, err
}

// pages reads all pages of a list of a server, until each returns false. The URI is that of a
// directory, if the list is of one.
func (s *server) pages(ctx context.Context, conn *connection, method, member, uri string, each func(json.RawMessage) bool) error {
	cursors, cursor := map[string]bool{}, ""
	for page := 0; ; page++ {
		r, err := mcp.CallCustomMethod[*listParams, *rawResult](ctx, conn.session, method, &listParams{Cursor: cursor, URI: uri})
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return err
		}
		var answer map[string]json.RawMessage
		var list []json.RawMessage
		err = json.Unmarshal(r.bytes, &answer)
		if err == nil && answer[member] != nil {
			err = json.Unmarshal(answer[member], &list)
		}
		if err != nil {
			return fmt.Errorf("the list of its %s cannot be read: %w", member, err)
		}
		for _, one := range list {
			if !each(one) {
				return nil
			}
			if cause := context.Cause(ctx); cause != nil { // parsing a list may take long
				return cause
			}
		}
		cursor = ""
		json.Unmarshal(answer["nextCursor"], &cursor)
		if cursor == "" || cursors[cursor] || page == maxPages {
			return nil
		}
		cursors[cursor] = true
	}
}

// offer converts a listed tool. With an error only its name is set.
func (s *server) offer(raw json.RawMessage) (*Tool, error) {
	var l listed
	if err := json.Unmarshal(raw, &l); err != nil {
		return &Tool{name: clip(string(raw), 100)}, err
	}
	t := &Tool{server: s, name: l.Name, title: l.Title, hints: l.Annotations}
	if t.title == "" {
		t.title = l.Annotations.Title
	}
	t.always = l.Meta.AlwaysLoad
	if l.Meta.MaxResult > 0 {
		t.limit = min(l.Meta.MaxResult, 500_000)
	}
	if l.Name == "" {
		return t, errors.New("it has no name")
	}
	for _, p := range s.cfg.Tools {
		if p != nil && p.Name == l.Name && (p.PermissionPolicy == "always_deny" || p.OrgMaxPermission == "blocked") {
			return t, errors.New("the configuration denies it")
		}
	}
	schema, err := inputSchema(l.InputSchema)
	if err != nil {
		return t, err
	}
	t.spec = &tool.Spec{Name: ToolName(s.name, l.Name), Server: normal(s.name), Description: clip(l.Description, maxDescription), Schema: schema, ReadOnly: l.Annotations.ReadOnly}
	return t, nil
}

var badRune = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9_-]`) })

// normal returns a name in the form that is used in the names of tools.
func normal(name string) string { return badRune().ReplaceAllString(name, "_") }

// ToolName returns the name of a server's tool for the model.
func ToolName(server, name string) string {
	full := "mcp__" + normal(server) + "__" + normal(name)
	const most = 128 // limit of the API
	if len(full) > most {
		h := fnv.New32a()
		h.Write([]byte(full))
		full = fmt.Sprintf("%s_%08x", full[:most-9], h.Sum32())
	}
	return full
}

var propertyName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`) })

const anySchema = `{"type":"object","properties":{}}`

// inputSchema converts a schema to one that the API accepts: a single rejected tool would make
// the whole conversation fail. The server checks unknown keywords.
func inputSchema(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage(anySchema), nil
	}
	if len(raw) > maxSchema || depth(raw) > maxDepth {
		return nil, errors.New("its schema is too big")
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return json.RawMessage(anySchema), nil
	}
	changed := false
	var typ any
	if json.Unmarshal(members["type"], &typ); typ != "object" {
		if typ != nil {
			return nil, fmt.Errorf("its input is not an object but %v", typ)
		}
		members["type"], changed = json.RawMessage(`"object"`), true
	}
	for _, name := range []string{"anyOf", "oneOf", "allOf"} { // not at the top level
		if _, ok := members[name]; ok {
			delete(members, name)
			changed = true
		}
	}
	var properties map[string]json.RawMessage
	json.Unmarshal(members["properties"], &properties)
	for name := range properties {
		if !propertyName().MatchString(name) {
			return nil, fmt.Errorf("the API has no parameter %q", clip(name, 80))
		}
	}
	if changed {
		raw, _ = json.Marshal(members)
	}
	var s jsonschema.Schema
	if json.Unmarshal(raw, &s) != nil {
		return json.RawMessage(anySchema), nil
	}
	if _, err := s.Resolve(nil); err != nil {
		return json.RawMessage(anySchema), nil
	}
	return raw, nil
}

// depth returns the nesting depth of objects and lists in a value.
func depth(raw json.RawMessage) (deepest int) {
	now, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

// clip truncates a text.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
