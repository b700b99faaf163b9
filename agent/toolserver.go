package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/wire"
)

// ToolServer returns an MCP server with the tools of the agent. The rules, modes, hooks
// and the sandbox of the command line and the settings decide each call as they do for
// a model's. Nobody can be asked, so calls that need permission are denied. There is no
// conversation: no model, no session, no other MCP servers.
//
// The function that it returns stops everything that calls have left running.
func ToolServer(ctx context.Context, cfg Config, args []string, stderr io.Writer) (*sdk.Server, func(), error) {
	flags, err := cli.Parse(args)
	if err != nil {
		return nil, nil, err
	}
	if flags.HasPrompt {
		return nil, nil, errors.New("Error: parley mcp serve takes no prompt. Remove it.")
	}
	f := *flags
	f.DisallowedTools = append(slices.Clone(f.DisallowedTools), "ListAgents") // there are no agents
	f.NoPersist, f.NoSlashCommands, f.PromptTool, f.JSONSchema = true, true, "", nil
	f.Resume, f.Continue, f.MCPConfig, f.StrictMCP, f.PluginDirs, f.PluginDirsNoMCP = "", false, nil, true, nil, nil
	cfg.Model = noModel{}
	set, err := newSetup(&cfg, &f)
	if err != nil {
		return nil, nil, err
	}
	set.warn(stderr)
	s := newServer(set, newOutbox(io.Discard), stderr)
	conv, err := set.conversation(s, nil)
	if err != nil {
		s.out.close()
		set.close()
		return nil, nil, startError(err)
	}
	s.conv = conv
	if err := s.startHooks(); err != nil {
		set.env.Close()
		s.out.close()
		set.close()
		return nil, nil, err
	}
	run, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conv.Run(run)
	}()
	end := func() {
		cancel()
		<-ended
		s.out.close()
		set.close()
	}

	version := cfg.OwnVersion
	if version == "" {
		version = "dev"
	}
	server := sdk.NewServer(&sdk.Implementation{Name: "parley", Version: version}, &sdk.ServerOptions{
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
	})
	known := map[string]bool{}
	for _, t := range set.tools() {
		spec := t.Spec()
		known[spec.Name] = true
		server.AddTool(&sdk.Tool{Name: spec.Name, Description: spec.Description, InputSchema: spec.Schema,
			Annotations: &sdk.ToolAnnotations{ReadOnlyHint: spec.ReadOnly}},
			func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				input := req.Params.Arguments
				if len(input) == 0 || string(input) == "null" {
					input = json.RawMessage("{}")
				}
				return callResult(conv.Call(ctx, spec.Name, input)), nil
			})
	}
	// An unknown tool is an error for the model behind the client.
	server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			if call, ok := req.(*sdk.CallToolRequest); ok && !known[call.Params.Name] {
				return callResult(tool.Failed(tool.Misuse("Error: No such tool available: %s", call.Params.Name))), nil
			}
			return next(ctx, method, req)
		}
	})
	return server, end, nil
}

// callResult converts the result of a call to that of MCP.
func callResult(r *tool.Result) *sdk.CallToolResult {
	out := &sdk.CallToolResult{Content: []sdk.Content{}, IsError: r.IsError}
	add := func(text string) {
		if text != "" {
			out.Content = append(out.Content, &sdk.TextContent{Text: text})
		}
	}
	for _, b := range r.Content.All() {
		switch b := b.(type) {
		case *wire.TextBlock:
			add(b.Text)
		case *wire.ImageBlock:
			if b.Source != nil && b.Source.Type == "base64" {
				if data, err := base64.StdEncoding.DecodeString(b.Source.Data); err == nil {
					out.Content = append(out.Content, &sdk.ImageContent{Data: data, MIMEType: b.Source.MediaType})
				}
			}
		default:
			raw, _ := json.Marshal(b)
			add(string(raw))
		}
	}
	add(strings.Join(r.Follow, "\n"))
	if r.IsError && len(out.Content) == 0 {
		add("The tool failed without an error message.")
	}
	return out
}

// noModel is a model that always fails.
type noModel struct{}

// Stream returns an error.
func (noModel) Stream(context.Context, model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		yield(model.Event{}, &model.Error{Status: 400, Type: "invalid_request_error", Message: "this server has no model"})
	}
}
