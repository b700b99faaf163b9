package parley_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/parleytest/peer"
)

// A function becomes a tool; its schema comes from the type of its input.
func ExampleNewTool() {
	type Input struct {
		City string `json:"city" jsonschema:"the name of the city"`
		Days int    `json:"days,omitempty" jsonschema:"how far to look ahead"`
	}
	type Forecast struct {
		Sky     string  `json:"sky"`
		Celsius float64 `json:"celsius"`
	}
	weather := parley.NewTool("weather", "Returns the weather in a city.",
		func(ctx context.Context, in Input) (Forecast, error) {
			if in.City != "Oslo" {
				return Forecast{}, fmt.Errorf("nothing is known about %s", in.City)
			}
			return Forecast{Sky: "clear", Celsius: 4.5}, nil
		})
	weather.Annotations = &mcp.ToolAnnotations{ReadOnlyHint: true}

	for _, args := range []string{`{"city":"Oslo"}`, `{"city":"Atlantis"}`, `{"town":"Oslo"}`} {
		res := weather.Call(context.Background(), json.RawMessage(args))
		fmt.Println(res.IsError, res.Content[0].(*mcp.TextContent).Text)
	}
	// Output:
	// false {"sky":"clear","celsius":4.5}
	// true nothing is known about Atlantis
	// true invalid arguments: unexpected additional properties ["town"]
}

// Constraints that Go types cannot express can be added to the schema.
func ExampleTool() {
	type Input struct {
		Unit string `json:"unit,omitempty"`
	}
	tool := parley.NewTool("convert", "Converts.", func(ctx context.Context, in Input) (string, error) {
		return "in " + in.Unit, nil
	})
	unit := tool.InputSchema.Properties["unit"]
	unit.Enum = []any{"metre", "foot"}
	unit.Default = json.RawMessage(`"metre"`)
	tool.AlwaysLoad = true

	for _, args := range []string{`{}`, `{"unit":"mile"}`} {
		res := tool.Call(context.Background(), json.RawMessage(args))
		fmt.Println(res.Content[0].(*mcp.TextContent).Text)
	}
	// Output:
	// in metre
	// invalid arguments: validating /properties/unit: enum: mile does not equal any of: [metre foot]
}

// An agent calls tools of this process. The agent here follows a script: it calls the tool and
// answers with its result.
func ExampleToolServer() {
	type Input struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	add := parley.NewTool("add", "Adds two numbers.", func(ctx context.Context, in Input) (string, error) {
		return fmt.Sprint(in.A + in.B), nil
	})
	opts := &parley.Options{
		ToolServers:  map[string]*mcp.Server{"calc": parley.ToolServer("calc", add)},
		AllowedTools: []string{"mcp__calc__add"},
		Dialer:       &peer.Dialer{Script: calculator},
	}
	res, err := parley.Run(context.Background(), "What is 17 and 25?", opts)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Result)
	// Output: It is 42.
}

var calculator = peer.MustParse("calculator.txtar", `An agent that calls a tool of the host.

-- steps --
< {"type":"control_request","request_id":"$init","request":{"subtype":"initialize","sdkMcpServers":["calc"]}}
> {"type":"control_response","response":{"subtype":"success","request_id":"$init","response":{}}}
< {"type":"user"}
> {"type":"control_request","request_id":"m1","request":{"subtype":"mcp_message","server_name":"calc","message":{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":17,"b":25}}}}}
< {"type":"control_response","response":{"request_id":"m1","response":{"mcp_response":{"result":{"content":[{"type":"text","text":"$sum"}]}}}}}
> {"type":"result","subtype":"success","is_error":false,"session_id":"s","result":"It is ${sum}."}
< eof
`)

// A tool can access the request that it handles, and report its progress.
func ExampleToolRequest() {
	index := parley.NewTool("index", "Indexes the files.", func(ctx context.Context, _ struct{}) (string, error) {
		req := parley.ToolRequest(ctx)
		if req == nil {
			return "", errors.New("not called by an agent")
		}
		if token := req.Params.GetProgressToken(); token != nil {
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Total: 2})
			if err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("done for %v", req.Params.Meta["claudecode/toolUseId"]), nil
	})
	res := index.Call(context.Background(), nil)
	fmt.Println(res.Content[0].(*mcp.TextContent).Text)
	// Output: not called by an agent
}

// A program can be an MCP server.
func ExampleServeTools() {
	type Input struct {
		Name string `json:"name"`
	}
	greet := parley.NewTool("greet", "Greets somebody.", func(ctx context.Context, in Input) (string, error) {
		return "Hello, " + in.Name + "!", nil
	})
	if err := parley.ServeTools(context.Background(), greet); err != nil {
		log.Fatal(err)
	}
}

// The answer is a Go value. The agent here follows a script.
func ExampleRunAs() {
	type Bug struct {
		File string `json:"file"`
		Line int    `json:"line"`
		Why  string `json:"why" jsonschema:"one sentence"`
	}
	opts := &parley.Options{Dialer: &peer.Dialer{Script: reviewer}}
	bugs, res, err := parley.RunAs[[]Bug](context.Background(), "What is wrong with this code?", opts)
	if err != nil {
		log.Fatal(err)
	}
	for _, bug := range bugs {
		fmt.Printf("%s:%d: %s\n", bug.File, bug.Line, bug.Why)
	}
	fmt.Printf("%d turns\n", res.NumTurns)
	// Output:
	// main.go:12: The error is not checked.
	// 2 turns
}

var reviewer = peer.MustParse("reviewer.txtar", `An agent that answers in the form it is asked for.

-- steps --
< {"type":"control_request","request_id":"$init","request":{"subtype":"initialize","jsonSchema":{"type":"object","required":["value"]}}}
> {"type":"control_response","response":{"subtype":"success","request_id":"$init","response":{}}}
< {"type":"user"}
> {"type":"result","subtype":"success","is_error":false,"session_id":"s","num_turns":2,"structured_output":{"value":[{"file":"main.go","line":12,"why":"The error is not checked."}]}}
< eof
`)
