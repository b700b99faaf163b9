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
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

const maxResources = 1000 // in one list

//go:embed resource_list.md
var listDescription string

//go:embed resource_read.md
var readDescription string

//go:embed resource_dir.md
var dirDescription string

// A ResourceTool lists or reads the resources of servers. There is one of each while a
// server has resources.
type ResourceTool struct {
	m    *Manager
	spec *tool.Spec
	run  func(ctx context.Context, call *tool.Call, servers []*server, uri string) (*tool.Result, error)
}

// The specs of the tools, which all conversations share.
var listSpec, readSpec, dirSpec = func() (list, read, dir *tool.Spec) {
	const server = `"server":{"type":"string","description":"the server of the resource"}`
	one := func(uri string) json.RawMessage {
		return json.RawMessage(`{"type":"object","properties":{` + server + `,"uri":{"type":"string","description":"` + uri + `"}},"required":["server","uri"],"additionalProperties":false}`)
	}
	list = &tool.Spec{Name: "ListMcpResourcesTool", Aliases: []string{"ListMcpResources"}, Description: listDescription, ReadOnly: true,
		Schema: json.RawMessage(`{"type":"object","properties":{"server":{"type":"string","description":"the server whose resources to list; default all"}},"additionalProperties":false}`)}
	read = &tool.Spec{Name: "ReadMcpResourceTool", Aliases: []string{"ReadMcpResource"}, Description: readDescription, ReadOnly: true,
		Schema: one("the URI of the resource, as it is listed, or of a template, filled in")}
	dir = &tool.Spec{Name: "ReadMcpResourceDirTool", Aliases: []string{"ReadMcpResourceDir"}, Description: dirDescription, ReadOnly: true,
		Schema: one("the URI of the directory")}
	return list, read, dir
}()

// newResourceTools returns the tools that list, read, and list a directory.
func newResourceTools(m *Manager) (list, read, dir *ResourceTool) {
	list, read, dir = &ResourceTool{m: m, spec: listSpec}, &ResourceTool{m: m, spec: readSpec}, &ResourceTool{m: m, spec: dirSpec}
	list.run, read.run, dir.run = list.list, read.read, dir.directory
	return list, read, dir
}

type resourceInput struct {
	Server string `json:"server"`
	URI    string `json:"uri"`
}

// Spec implements [tool.Tool].
func (t *ResourceTool) Spec() *tool.Spec { return t.spec }

// Access returns the resource to read and its server. Listing needs no access.
func (t *ResourceTool) Access(_ *tool.Env, input json.RawMessage) ([]tool.Access, error) {
	var in resourceInput
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	if t == t.m.list {
		return nil, nil
	}
	return []tool.Access{{Kind: tool.Other, URL: in.URI, Plain: t.m.listed(in.Server, in.URI), Name: "mcp__" + badRune().ReplaceAllString(in.Server, "_")}}, nil
}

// listed reports whether a server has listed a resource.
func (m *Manager) listed(name, uri string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.servers, func(s *server) bool { return s.name == name && s.listed[uri] })
}

// Run lists or reads.
func (t *ResourceTool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	var in resourceInput
	if err := json.Unmarshal(call.Input, &in); err != nil {
		return nil, err
	}
	servers, err := t.m.readable(in.Server)
	if err != nil {
		return nil, err
	}
	if t != t.m.list && in.Server == "" {
		return nil, errors.New("Name the server of the resource.")
	}
	return t.run(ctx, call, servers, in.URI)
}

// result formats what a tool found for the model; programs receive it unchanged.
func (t *ResourceTool) result(call *tool.Call, found any, notes ...string) (*tool.Result, error) {
	body, err := encode(found)
	if err != nil {
		return nil, err
	}
	text := (&spill{name: t.spec.Name, max: t.m.opts.MaxResult, call: call}).text(body)
	return tool.Text(strings.Join(append([]string{text}, notes...), "\n"), found), nil
}

// hasResources reports whether the server has resources. The caller holds the manager's
// mu.
func (s *server) hasResources() bool {
	if s.conn == nil {
		return false
	}
	r := s.conn.session.InitializeResult()
	return r != nil && r.Capabilities != nil && r.Capabilities.Resources != nil
}

// readable returns the servers that have resources, or the one with the given name.
func (m *Manager) readable(name string) ([]*server, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []*server
	var names []string
	for _, s := range m.servers {
		if s.hasResources() && !m.hidden("mcp__"+badRune().ReplaceAllString(s.name, "_")) {
			found = append(found, s)
			names = append(names, s.name)
		}
	}
	if name == "" {
		return found, nil
	}
	i := slices.Index(names, name)
	if i < 0 {
		return nil, fmt.Errorf("No server %q has resources. Servers with resources: %s", clip(name, 100), strings.Join(append(names, "none else"), ", "))
	}
	return found[i : i+1], nil
}

// A listedResource is a resource in a list for programs and the model.
type listedResource struct {
	URI         string `json:"uri"`
	Name        string `json:"name"`
	MIMEType    string `json:"mimeType,omitempty"`
	Description string `json:"description,omitempty"`
	Server      string `json:"server,omitempty"`
}

// A template is the pattern of the URIs of more resources.
type template struct {
	URITemplate string `json:"uriTemplate"`
	Name        string `json:"name"`
	MIMEType    string `json:"mimeType,omitempty"`
	Description string `json:"description,omitempty"`
	Server      string `json:"server"`
}

func (t *ResourceTool) list(ctx context.Context, call *tool.Call, servers []*server, _ string) (*tool.Result, error) {
	type answer struct {
		list      []listedResource
		templates []template
		err       error
	}
	answers := make([]answer, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() {
			a := &answers[i]
			if a.list, a.err = s.resources(ctx, rawResources, ""); a.err == nil {
				a.templates = s.templates(ctx)
			}
		})
	}
	wg.Wait()
	all, templates := []listedResource{}, []template{}
	var notes []string
	for i, a := range answers {
		all, templates = append(all, a.list...), append(templates, a.templates...)
		if a.err != nil {
			notes = append(notes, fmt.Sprintf("The resources of %s cannot be listed: %v", servers[i].name, a.err))
		}
	}
	if len(notes) == len(servers) && len(notes) > 0 {
		return nil, errors.New(strings.Join(notes, "\n"))
	}
	if len(templates) > 0 {
		body, err := encode(templates)
		if err != nil {
			return nil, err
		}
		more := &spill{name: t.spec.Name, max: t.m.opts.MaxResult, call: call}
		notes = append(notes, "URIs of these forms can also be read, with values in place of the names in braces: "+more.text(body))
	}
	if len(all) == 0 {
		text := "There are no resources now. Servers may still have tools."
		return tool.Text(strings.Join(append([]string{text}, notes...), "\n"), all), nil
	}
	return t.result(call, all, notes...)
}

// resources lists the resources of the server: all, or those in a directory.
func (s *server) resources(ctx context.Context, method, directory string) ([]listedResource, error) {
	var list []listedResource
	var uris []string
	err := s.enumerate(ctx, method, "resources", directory, func(one json.RawMessage) bool {
		var r listedResource
		if json.Unmarshal(one, &r) == nil && r.URI != "" {
			uris = append(uris, r.URI)
			r.URI, r.Name, r.Description, r.Server = clip(r.URI, 2000), clip(line(r.Name), 200), clip(r.Description, 1000), s.name
			list = append(list, r)
		}
		return len(list) < maxResources
	})
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.listed == nil || len(s.listed) > 10*maxResources {
		s.listed = map[string]bool{}
	}
	for _, uri := range uris {
		s.listed[uri] = true
	}
	return list, err
}

// templates lists the URI templates of the server. A server that cannot list them has
// none.
func (s *server) templates(ctx context.Context) []template {
	var list []template
	err := s.enumerate(ctx, rawTemplates, "resourceTemplates", "", func(one json.RawMessage) bool {
		var r template
		if json.Unmarshal(one, &r) == nil && r.URITemplate != "" {
			r.URITemplate, r.Name, r.Description, r.Server = clip(r.URITemplate, 2000), clip(line(r.Name), 200), clip(r.Description, 1000), s.name
			list = append(list, r)
		}
		return len(list) < maxResources
	})
	if err != nil {
		s.m.log.Debug("the templates of an MCP server cannot be listed", "server", s.name, "error", err)
	}
	return list
}

// enumerate reads a list of the server, within its deadline.
func (s *server) enumerate(ctx context.Context, method, member, uri string, each func(json.RawMessage) bool) error {
	conn, err := s.live(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.deadline(), fmt.Errorf("the server did not answer within %v", s.deadline()))
	defer cancel()
	return s.pages(ctx, conn, method, member, uri, each)
}

// directory lists a directory of a server. If the server does not support that request,
// it filters the list of all resources.
func (t *ResourceTool) directory(ctx context.Context, call *tool.Call, servers []*server, uri string) (*tool.Result, error) {
	list, err := servers[0].resources(ctx, rawDirectory, uri)
	var refused *jsonrpc.Error
	if errors.As(err, &refused) && refused.Code == jsonrpc.CodeMethodNotFound {
		below := strings.TrimSuffix(uri, "/") + "/"
		list, err = servers[0].resources(ctx, rawResources, "")
		list = slices.DeleteFunc(list, func(r listedResource) bool { return !strings.HasPrefix(r.URI, below) })
	}
	if err != nil {
		return nil, fmt.Errorf("The directory cannot be listed: %w", err)
	}
	found := struct {
		Resources []listedResource `json:"resources"`
	}{[]listedResource{}}
	for _, r := range list {
		r.Server = ""
		found.Resources = append(found.Resources, r)
	}
	return t.result(call, found)
}

// A readResource is a part of a resource for programs and the model.
type readResource struct {
	URI         string `json:"uri"`
	MIMEType    string `json:"mimeType,omitempty"`
	Text        string `json:"text,omitempty"`
	BlobSavedTo string `json:"blobSavedTo,omitempty"`
}

func (t *ResourceTool) read(ctx context.Context, call *tool.Call, servers []*server, uri string) (*tool.Result, error) {
	var has struct {
		Contents []resource `json:"contents"`
	}
	if err := servers[0].read(ctx, uri, &has); err != nil {
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
				return nil, errors.New("The resource is malformed: its data is not base64.")
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

// read reads a resource and decodes the response into v.
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
		return fmt.Errorf("The answer of the MCP server %s cannot be read: %v", s.name, err)
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

// encode encodes JSON for a model to read.
func encode(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSpace(b.String()), err
}
