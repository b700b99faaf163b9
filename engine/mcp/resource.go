package mcp

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

const maxResources = 1000 // in one list

//go:embed resource_list.md
var listDescription string

//go:embed resource_read.md
var readDescription string

// A ResourceTool lists or reads what servers have to read. There is one of each while a
// server has resources.
type ResourceTool struct {
	m    *Manager
	spec *tool.Spec
	run  func(ctx context.Context, call *tool.Call) (*tool.Result, error)
}

func newResourceTools(m *Manager) (list, read *ResourceTool) {
	list = &ResourceTool{m: m, spec: &tool.Spec{Name: "ListMcpResourcesTool", Aliases: []string{"ListMcpResources"}, Description: listDescription, ReadOnly: true,
		Schema: json.RawMessage(`{"type":"object","properties":{"server":{"type":"string","description":"the server whose resources to list; without it, those of all servers"}},"additionalProperties":false}`)}}
	list.run = list.list
	read = &ResourceTool{m: m, spec: &tool.Spec{Name: "ReadMcpResourceTool", Aliases: []string{"ReadMcpResource"}, Description: readDescription, ReadOnly: true,
		Schema: json.RawMessage(`{"type":"object","properties":{"server":{"type":"string","description":"the server that has the resource"},"uri":{"type":"string","description":"the URI of the resource, as it is listed"}},"required":["server","uri"],"additionalProperties":false}`)}}
	read.run = read.read
	return list, read
}

type resourceInput struct {
	Server string `json:"server"`
	URI    string `json:"uri"`
}

// Spec says what the tool is.
func (t *ResourceTool) Spec() *tool.Spec { return t.spec }

// Access says whose resource is read. To list them touches nothing.
func (t *ResourceTool) Access(_ *tool.Env, input json.RawMessage) ([]tool.Access, error) {
	var in resourceInput
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	if t == t.m.list {
		return nil, nil
	}
	return []tool.Access{{Kind: tool.Other, URL: in.URI, Name: "mcp__" + badRune.ReplaceAllString(in.Server, "_")}}, nil
}

// Run lists or reads.
func (t *ResourceTool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	return t.run(ctx, call)
}

// hasResources reports whether the server has something to read. The caller holds the
// manager's mu.
func (s *server) hasResources() bool {
	if s.conn == nil {
		return false
	}
	r := s.conn.session.InitializeResult()
	return r != nil && r.Capabilities != nil && r.Capabilities.Resources != nil
}

// readable returns the servers that have resources, or the one of a name.
func (m *Manager) readable(name string) ([]*server, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []*server
	var names []string
	for _, s := range m.servers {
		if s.hasResources() && !m.hidden("mcp__"+badRune.ReplaceAllString(s.name, "_")) {
			found = append(found, s)
			names = append(names, s.name)
		}
	}
	if name == "" {
		return found, nil
	}
	i := slices.Index(names, name)
	if i < 0 {
		return nil, fmt.Errorf("There is no server %q with resources. Those that have some: %s", clip(name, 100), strings.Join(append(names, "none else"), ", "))
	}
	return found[i : i+1], nil
}

// A listedResource is a resource as programs and the model get it.
type listedResource struct {
	URI         string `json:"uri"`
	Name        string `json:"name"`
	MIMEType    string `json:"mimeType,omitempty"`
	Description string `json:"description,omitempty"`
	Server      string `json:"server"`
}

func (t *ResourceTool) list(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	var in resourceInput
	if err := json.Unmarshal(call.Input, &in); err != nil {
		return nil, err
	}
	servers, err := t.m.readable(in.Server)
	if err != nil {
		return nil, err
	}
	type answer struct {
		list []listedResource
		err  error
	}
	answers := make([]chan answer, len(servers))
	for i, s := range servers {
		answers[i] = make(chan answer, 1)
		go func() {
			list, err := s.resources(ctx)
			answers[i] <- answer{list, err}
		}()
	}
	all := []listedResource{}
	var failed []string
	for i, ch := range answers {
		a := <-ch
		all = append(all, a.list...)
		if a.err != nil {
			failed = append(failed, fmt.Sprintf("The resources of %s cannot be listed: %v", servers[i].name, a.err))
		}
	}
	if len(failed) == len(servers) && len(failed) > 0 {
		return nil, errors.New(strings.Join(failed, "\n"))
	}
	body, err := encode(all)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		body = "There are no resources now. Servers may still have tools."
	}
	text := (&spill{name: t.spec.Name, max: t.m.opts.MaxResult, call: call}).text(body)
	return tool.Text(strings.Join(append([]string{text}, failed...), "\n"), all), nil
}

// resources lists what the server has to read.
func (s *server) resources(ctx context.Context) ([]listedResource, error) {
	conn, err := s.live(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.deadline(), fmt.Errorf("the server did not answer within %v", s.deadline()))
	defer cancel()
	var list []listedResource
	err = s.pages(ctx, conn, rawResources, "resources", func(one json.RawMessage) bool {
		var r listedResource
		if json.Unmarshal(one, &r) == nil && r.URI != "" {
			r.URI, r.Name, r.Description, r.Server = clip(r.URI, 2000), clip(line(r.Name), 200), clip(r.Description, 1000), s.name
			list = append(list, r)
		}
		return len(list) < maxResources
	})
	return list, err
}

// A readResource is a part of a resource as programs and the model get it.
type readResource struct {
	URI         string `json:"uri"`
	MIMEType    string `json:"mimeType,omitempty"`
	Text        string `json:"text,omitempty"`
	BlobSavedTo string `json:"blobSavedTo,omitempty"`
}

func (t *ResourceTool) read(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	var in resourceInput
	if err := json.Unmarshal(call.Input, &in); err != nil {
		return nil, err
	}
	servers, err := t.m.readable(in.Server)
	if err != nil {
		return nil, err
	}
	if len(servers) != 1 {
		return nil, errors.New("Name the server that has the resource.")
	}
	var has struct {
		Contents []resource `json:"contents"`
	}
	if err := servers[0].read(ctx, in.URI, &has); err != nil {
		return nil, err
	}
	spill := &spill{name: t.spec.Name, max: t.m.opts.MaxResult, call: call}
	told := struct {
		Contents []readResource `json:"contents"`
	}{[]readResource{}}
	var pictures []wire.Block
	for _, c := range has.Contents {
		part := readResource{URI: c.URI, MIMEType: c.MIMEType, Text: strings.ToValidUTF8(c.Text, "\ufffd")}
		if c.Blob != "" {
			data, err := base64.StdEncoding.DecodeString(c.Blob)
			if err != nil {
				return nil, errors.New("The resource is not what it says: its data is not base64.")
			}
			suffix := ".bin"
			if list, err := mime.ExtensionsByType(c.MIMEType); err == nil && len(list) > 0 {
				suffix = list[0]
			}
			if part.BlobSavedTo, err = spill.file(data, suffix); err != nil {
				return nil, fmt.Errorf("The resource could not be saved: %v", err)
			}
			if picture(c.MIMEType) && len(c.Blob) <= maxImage && len(data) > 0 {
				pictures = append(pictures, &wire.ImageBlock{Source: &wire.Source{Type: "base64", MediaType: c.MIMEType, Data: c.Blob}})
			}
		}
		told.Contents = append(told.Contents, part)
	}
	body, err := encode(told)
	if err != nil {
		return nil, err
	}
	blocks := append([]wire.Block{&wire.TextBlock{Text: spill.text(body)}}, pictures...)
	return &tool.Result{Content: wire.Blocks(blocks...), Structured: told}, nil
}

// read reads a resource; v is what the answer is put into.
func (s *server) read(ctx context.Context, uri string, v any) error {
	conn, err := s.live(ctx)
	if err != nil {
		return err
	}
	answer, err := conn.ask(ctx, s, 0, func(ctx context.Context) (*rawResult, error) {
		return mcp.CallCustomMethod[*readParams, *rawResult](ctx, conn.session, rawRead, &readParams{URI: uri})
	})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return fmt.Errorf("The MCP server %s answered what cannot be read: %v", s.name, err)
	}
	return nil
}

// ReadResource reads a resource for the host.
func (m *Manager) ReadResource(ctx context.Context, server, uri string) (*wire.MCPReadResourceResponse, error) {
	m.mu.Lock()
	s, err := m.find(server)
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	r := new(wire.MCPReadResourceResponse)
	return r, s.read(ctx, uri, r)
}

// encode writes JSON for a model to read.
func encode(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSpace(b.String()), err
}
