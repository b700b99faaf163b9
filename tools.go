package parley

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/wire"
)

// A Tool is a Go function that a model can call. [NewTool] makes one, and [ToolServer]
// makes tools available to an agent. The fields may be set until the tool is used for
// the first time.
//
// A tool may run several times concurrently.
type Tool struct {
	Name        string // the name by which the model calls it
	Description string // for the model
	Title       string // for people

	// InputSchema describes the arguments of the tool. NewTool infers it; add
	// constraints here that Go types cannot express, such as an enumeration.
	InputSchema *jsonschema.Schema
	// OutputSchema describes the structured part of a result. NewTool leaves it nil,
	// which promises nothing.
	OutputSchema *jsonschema.Schema

	// Annotations are hints about the tool, for example that it only reads. They can
	// avoid permission prompts.
	Annotations *mcp.ToolAnnotations

	// MaxResultChars is how long a result may be before the agent writes it to a file
	// and shows the model only the start. Zero leaves it to the agent.
	MaxResultChars int
	// AlwaysLoad makes the tool available to the model from the start. Otherwise an
	// agent with many tools may let the model search for it.
	AlwaysLoad bool
	// Meta is additional metadata for agents.
	Meta map[string]any

	call func(ctx context.Context, args []byte) (any, error)

	once          sync.Once
	input, output *jsonschema.Resolved
	err           error // the error in the schemas, if any
}

// NewTool makes a tool from a function.
//
// In defines the tool's arguments. It is a struct, a map or any: the schema has the
// names that encoding/json uses, a field without omitempty or omitzero is required, and
// the jsonschema tag of a field is its description. Arguments that do not match the
// schema do not reach the function.
//
// The model receives a result that depends on Out:
//
//   - a string is text,
//   - an [mcp.Content], a [wire.Block], a slice of them, and a [wire.Content] is
//     content: text, pictures,
//   - an [*mcp.CallToolResult] is the result as it is,
//   - any other value is JSON, and if that is an object it is the structured
//     content of the result, too.
//
// If the function returns an error, the model receives its text and can try again. The
// same happens with a panic, which is also reported to [Options.OnWarning]. The context
// ends when the agent cancels the call. [ToolRequest] returns the request that the
// function handles.
//
// NewTool panics if name is empty, f is nil, or there is no schema for In.
func NewTool[In, Out any](name, description string, f func(ctx context.Context, in In) (Out, error)) *Tool {
	if name == "" {
		panic("parley: NewTool: a tool needs a name")
	}
	if f == nil {
		panic("parley: NewTool " + name + ": the function is nil")
	}
	schema, err := inputSchema(reflect.TypeFor[In]())
	if err != nil {
		panic("parley: NewTool " + name + ": " + err.Error())
	}
	return &Tool{
		Name:        name,
		Description: description,
		InputSchema: schema,
		call: func(ctx context.Context, args []byte) (any, error) {
			var in In
			if err := json.Unmarshal(args, &in); err != nil {
				return nil, argumentError(err)
			}
			return f(ctx, in)
		},
	}
}

func inputSchema(t reflect.Type) (*jsonschema.Schema, error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[any]() {
		return &jsonschema.Schema{Type: "object"}, nil
	}
	schema, err := jsonschema.ForType(t, nil)
	if err != nil {
		return nil, fmt.Errorf("there is no schema for %v: %w", t, err)
	}
	if schema.Type != "object" {
		return nil, fmt.Errorf("the arguments of a tool are an object, which %v is not; use a struct", t)
	}
	return schema, nil
}

func argumentError(err error) error {
	return fmt.Errorf("invalid arguments: %s", strings.TrimPrefix(err.Error(), "validating root: "))
}

// prepare resolves the schemas.
func (t *Tool) prepare() error {
	t.once.Do(func() {
		resolve := func(s *jsonschema.Schema) (*jsonschema.Resolved, error) {
			return s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
		}
		switch {
		case t.call == nil:
			t.err = errors.New("it was not made by NewTool")
			return
		case t.InputSchema == nil || t.InputSchema.Type != "object":
			t.err = errors.New("InputSchema is not the schema of an object")
			return
		}
		var err error
		if t.input, err = resolve(t.InputSchema); err != nil {
			t.err = fmt.Errorf("InputSchema: %w", err)
			return
		}
		if t.OutputSchema != nil {
			if t.output, err = resolve(t.OutputSchema); err != nil {
				t.err = fmt.Errorf("OutputSchema: %w", err)
			}
		}
	})
	if t.err != nil {
		return fmt.Errorf("parley: tool %s: %w", t.Name, t.err)
	}
	return nil
}

// AddTo adds the tool to a server, replacing one with the same name. It panics if the
// tool's schemas are invalid.
func (t *Tool) AddTo(server *mcp.Server) {
	if err := t.prepare(); err != nil {
		panic(err)
	}
	meta := maps.Clone(t.Meta)
	set := func(key string, value any) {
		if meta == nil {
			meta = map[string]any{}
		}
		meta[key] = value
	}
	if t.MaxResultChars > 0 {
		set("anthropic/maxResultSizeChars", t.MaxResultChars)
	}
	if t.AlwaysLoad {
		set("anthropic/alwaysLoad", true)
	}
	def := &mcp.Tool{
		Name:        t.Name,
		Title:       t.Title,
		Description: t.Description,
		Annotations: t.Annotations,
		InputSchema: t.InputSchema,
		Meta:        meta,
	}
	if t.OutputSchema != nil {
		def.OutputSchema = t.OutputSchema
	}
	server.AddTool(def, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return t.Call(context.WithValue(ctx, requestKey{}, req), req.Params.Arguments), nil
	})
}

// Call runs the tool as an agent would: args is a JSON object, and any failure is a
// result with IsError set.
func (t *Tool) Call(ctx context.Context, args json.RawMessage) *mcp.CallToolResult {
	if err := t.prepare(); err != nil {
		return errorResult(err)
	}
	res, err := protect("tool "+t.Name, func() (*mcp.CallToolResult, error) {
		args, err := t.checkArguments(args)
		if err != nil {
			return nil, argumentError(err)
		}
		out, err := t.call(ctx, args)
		if err != nil {
			return nil, err
		}
		return t.result(out)
	})
	if err != nil {
		reportPanic(ctx, err)
		return errorResult(err)
	}
	return res
}

// checkArguments validates the arguments and returns them with the defaults of the
// schema.
func (t *Tool) checkArguments(args json.RawMessage) ([]byte, error) {
	var tree any
	if len(bytes.TrimSpace(args)) > 0 {
		var err error
		if tree, err = jsonTree(args); err != nil {
			return nil, err
		}
	}
	if tree == nil {
		tree = map[string]any{}
	}
	if _, ok := tree.(map[string]any); ok {
		if err := t.input.ApplyDefaults(&tree); err != nil {
			return nil, err
		}
	}
	if err := t.input.Validate(tree); err != nil {
		return nil, err
	}
	return json.Marshal(tree)
}

// jsonTree decodes a value for the validator, which does not support json.Number.
// Integers stay exact, in whatever notation they are written.
func jsonTree(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("there is more than one JSON value")
	}
	return plainNumbers(tree)
}

func plainNumbers(v any) (_ any, err error) {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			if v[key], err = plainNumbers(v[key]); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range v {
			if v[i], err = plainNumbers(v[i]); err != nil {
				return nil, err
			}
		}
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n, nil
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n, nil
		}
		f, err := v.Float64()
		if err != nil {
			return nil, err
		}
		if n := int64(f); float64(n) == f && n < maxExact && n > -maxExact {
			return n, nil // such as 3.0 or 1e3
		}
		return f, nil
	}
	return v, nil
}

const maxExact = 1 << 53 // integers below this are exact as float64

// result makes a tool result from the function's return value.
func (t *Tool) result(out any) (*mcp.CallToolResult, error) {
	res := &mcp.CallToolResult{Content: []mcp.Content{}}
	add := func(c mcp.Content) {
		if v := reflect.ValueOf(c); v.IsValid() && !v.IsNil() {
			res.Content = append(res.Content, c)
		}
	}
	switch out := out.(type) {
	case nil:
	case string:
		add(&mcp.TextContent{Text: out})
	case *mcp.CallToolResult:
		if out == nil {
			break
		}
		whole := *out
		for _, c := range out.Content {
			add(c)
		}
		whole.Content = res.Content
		res = &whole
		if res.StructuredContent != nil {
			data, err := encodeJSON(res.StructuredContent)
			if err != nil {
				return nil, fmt.Errorf("the structured content of the result cannot be encoded: %w", err)
			}
			res.StructuredContent = json.RawMessage(data)
		}
		if res.IsError && len(res.Content) == 0 {
			add(&mcp.TextContent{Text: noReason})
		}
	case mcp.Content:
		add(out)
	case []mcp.Content:
		for _, c := range out {
			add(c)
		}
	case wire.Block:
		add(blockContent(out))
	case []wire.Block:
		for _, b := range out {
			add(blockContent(b))
		}
	case wire.Content:
		for _, b := range out.All() {
			add(blockContent(b))
		}
	default:
		data, err := encodeJSON(out)
		if err != nil {
			return nil, fmt.Errorf("the result cannot be encoded: %w", err)
		}
		add(&mcp.TextContent{Text: string(data)})
		if data[0] == '{' {
			res.StructuredContent = json.RawMessage(data)
		}
	}
	if t.output != nil && !res.IsError {
		if err := t.checkOutput(res.StructuredContent); err != nil {
			return nil, fmt.Errorf("the result does not fit the output schema: %w", err)
		}
	}
	return res, nil
}

func (t *Tool) checkOutput(content any) error {
	data, ok := content.(json.RawMessage)
	if !ok {
		return errors.New("it has no structured content")
	}
	tree, err := jsonTree(data)
	if err != nil {
		return err
	}
	return t.output.Validate(tree)
}

// encodeJSON encodes a value for a model to read, without HTML escapes.
func encodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(buf.Bytes()), nil
}

// blockContent converts a block to MCP content. Blocks that have no equivalent in MCP
// become their JSON.
func blockContent(b wire.Block) mcp.Content {
	switch b := b.(type) {
	case nil:
		return nil
	case *wire.TextBlock:
		if b != nil {
			return &mcp.TextContent{Text: b.Text}
		}
		return nil
	case *wire.ImageBlock:
		if b == nil {
			return nil
		}
		if s := b.Source; s != nil && s.Type == "base64" {
			if data, err := base64.StdEncoding.DecodeString(s.Data); err == nil {
				return &mcp.ImageContent{Data: data, MIMEType: s.MediaType}
			}
		}
	}
	data, err := encodeJSON(b)
	if err != nil {
		return &mcp.TextContent{Text: fmt.Sprintf("a block that cannot be encoded: %v", err)}
	}
	return &mcp.TextContent{Text: string(data)}
}

const noReason = "the tool failed and gave no reason"

func errorResult(err error) *mcp.CallToolResult {
	text := err.Error()
	if _, ok := err.(*CallbackError); ok {
		text = strings.TrimPrefix(text, "parley: ")
	}
	if strings.TrimSpace(text) == "" {
		text = noReason // an error result must not be empty
	}
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// protect calls a function of the host. It returns a panic as a [*CallbackError], and
// also an end of the goroutine, such as by t.FailNow in a test.
func protect[T any](name string, f func() (T, error)) (v T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned := false
		defer func() {
			if returned {
				return
			}
			if p := recover(); p != nil {
				err = &CallbackError{Callback: name, Panic: p, Stack: debug.Stack()}
			} else {
				err = &CallbackError{Callback: name, Err: errors.New("it ended its goroutine")}
			}
		}()
		v, err = f()
		returned = true
	}()
	<-done
	return v, err
}

// reportPanic reports a panic to the session that serves the tool, if any.
func reportPanic(ctx context.Context, err error) {
	if _, ok := err.(*CallbackError); !ok {
		return
	}
	if s, ok := ctx.Value(sessionKey{}).(*session); ok {
		s.warn(err)
	}
}

// Context keys of tool calls.
type (
	requestKey struct{} // the *mcp.CallToolRequest
	sessionKey struct{} // the *session that serves it
)

// ToolRequest returns the request that a tool made by [NewTool] handles, or nil if ctx
// is not the context of one. Its Session can report progress; its Params.Meta has the
// id of the model's call as "claudecode/toolUseId".
func ToolRequest(ctx context.Context) *mcp.CallToolRequest {
	req, _ := ctx.Value(requestKey{}).(*mcp.CallToolRequest)
	return req
}

// ToolServer makes an MCP server from tools. It can be one of [Options.ToolServers],
// for several agents at once, or be served over any transport of the MCP SDK.
//
// A call that cannot be served, for example of an unknown tool, gets a result with
// IsError set, for the model to read.
//
// ToolServer panics if two tools have the same name, or if a schema is invalid.
func ToolServer(name string, tools ...*Tool) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: name, Version: Version}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}},
	})
	server.AddReceivingMiddleware(answerCalls)
	seen := map[string]bool{}
	for _, t := range tools {
		if seen[t.Name] {
			panic(fmt.Sprintf("parley: ToolServer %s: there are two tools with the name %q", name, t.Name))
		}
		seen[t.Name] = true
		t.AddTo(server)
	}
	return server
}

const methodCallTool = "tools/call"

// answerCalls turns the errors of tool calls into results.
func answerCalls(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if err == nil || method != methodCallTool {
			return res, err
		}
		var rpc *jsonrpc.Error
		if errors.As(err, &rpc) && rpc.Code == mcp.CodeURLElicitationRequired {
			return nil, err // it requests something from the client
		}
		return errorResult(err), nil
	}
}
