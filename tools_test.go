package parley_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/wire"
)

// callTool calls a tool with JSON arguments and returns the result as JSON.
func callTool(t *testing.T, tool *parley.Tool, args string) string {
	t.Helper()
	data, err := json.Marshal(tool.Call(t.Context(), json.RawMessage(args)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func textResult(text string) string {
	data, _ := json.Marshal(text)
	return `{"content":[{"type":"text","text":` + string(data) + `}]}`
}

func TestToolOutput(t *testing.T) {
	type point struct {
		X int     `json:"x"`
		S string  `json:"s,omitempty"`
		F float64 `json:"f,omitempty"`
	}
	var noImage *mcp.ImageContent
	tests := []struct {
		name string
		out  any
		want string
	}{
		{"nil", nil, `{"content":[]}`},
		{"string", "a <b>", `{"content":[{"type":"text","text":"a \u003cb\u003e"}]}`},
		{"empty string", "", textResult("")},
		{"struct", point{X: 1, S: "<"}, `{"content":[{"type":"text","text":"{\"x\":1,\"s\":\"\u003c\"}"}],"structuredContent":{"x":1,"s":"\u003c"}}`},
		{"pointer", &point{X: 1}, `{"content":[{"type":"text","text":"{\"x\":1}"}],"structuredContent":{"x":1}}`},
		{"nil pointer", (*point)(nil), textResult("null")},
		{"map", map[string]int{"a": 1}, `{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}`},
		{"slice", []int{1, 2}, textResult("[1,2]")},
		{"number", 7, textResult("7")},
		{"raw JSON", json.RawMessage(`{"a": 1}`), `{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}`},
		{"NaN", math.NaN(), `{"content":[{"type":"text","text":"the result cannot be encoded: json: unsupported value: NaN"}],"isError":true}`},
		{"content", &mcp.ImageContent{Data: []byte("x"), MIMEType: "image/png"}, `{"content":[{"type":"image","mimeType":"image/png","data":"eA=="}]}`},
		{"nil content", noImage, `{"content":[]}`},
		{"contents", []mcp.Content{&mcp.TextContent{Text: "a"}, nil, noImage, &mcp.TextContent{Text: "b"}}, `{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`},
		{"block", &wire.TextBlock{Text: "a"}, textResult("a")},
		{"blocks", []wire.Block{&wire.TextBlock{Text: "a"}, &wire.ImageBlock{Source: wire.Base64("image/png", []byte("x"))}, nil}, `{"content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"eA=="}]}`},
		{"block that MCP does not know", &wire.ImageBlock{Source: &wire.Source{Type: "url", URL: "http://x/y.png"}}, textResult(`{"type":"image","source":{"type":"url","url":"http://x/y.png"}}`)},
		{"wire content", wire.Text("a"), textResult("a")},
		{"result", &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "a"}}, StructuredContent: point{X: 1}}, `{"content":[{"type":"text","text":"a"}],"structuredContent":{"x":1}}`},
		{"nil result", (*mcp.CallToolResult)(nil), `{"content":[]}`},
		{"error result without a word", &mcp.CallToolResult{IsError: true}, `{"content":[{"type":"text","text":"the tool failed and gave no reason"}],"isError":true}`},
		{"result that cannot be encoded", &mcp.CallToolResult{StructuredContent: math.Inf(1)}, `{"content":[{"type":"text","text":"the structured content of the result cannot be encoded: json: unsupported value: +Inf"}],"isError":true}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tool := parley.NewTool("t", "", func(context.Context, struct{}) (any, error) { return test.out, nil })
			if got := callTool(t, tool, `{}`); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestToolInput(t *testing.T) {
	type input struct {
		N     int64          `json:"n"`
		U     uint64         `json:"u,omitzero"`
		List  []int          `json:"list,omitempty"`
		Unit  string         `json:"unit,omitempty"`
		Extra map[string]any `json:"extra,omitempty"`
	}
	tool := parley.NewTool("t", "", func(_ context.Context, in input) (string, error) {
		return fmt.Sprintf("%+v", in), nil
	})
	tool.InputSchema.Properties["unit"].Enum = []any{"cm", "in"}
	tool.InputSchema.Properties["unit"].Default = json.RawMessage(`"cm"`)
	tests := []struct{ name, args, want string }{
		{"plain", `{"n":1,"unit":"in"}`, textResult("{N:1 U:0 List:[] Unit:in Extra:map[]}")},
		{"default", `{"n":1}`, textResult("{N:1 U:0 List:[] Unit:cm Extra:map[]}")},
		{"exact numbers", `{"n":9007199254740993,"u":18446744073709551615}`, textResult("{N:9007199254740993 U:18446744073709551615 List:[] Unit:cm Extra:map[]}")},
		{"whole numbers", `{"n":2.0,"list":[1e3,-0.0]}`, textResult("{N:2 U:0 List:[1000 0] Unit:cm Extra:map[]}")},
		{"deep", `{"n":1,"extra":{"a":[{"b":1.5}]}}`, textResult("{N:1 U:0 List:[] Unit:cm Extra:map[a:[map[b:1.5]]]}")},
		{"missing", `{}`, "invalid arguments: required: missing properties: "},
		{"nothing", ``, "invalid arguments: required: missing properties: "},
		{"null", `null`, "invalid arguments: required: missing properties: "},
		{"unknown", `{"n":1,"m":2}`, `unexpected additional properties [\"m\"]`},
		{"other case", `{"N":1}`, "invalid arguments: "},
		{"other type", `{"n":"1"}`, `has type \"string\", want \"integer\"`},
		{"fraction", `{"n":1.5}`, `has type \"number\", want \"integer\"`},
		{"not in the enumeration", `{"n":1,"unit":"ft"}`, "enum: ft does not equal any of: [cm in]"},
		{"too large", `{"n":1e300}`, "invalid arguments: json: cannot unmarshal number"},
		{"no object", `[1]`, "invalid arguments: "},
		{"no JSON", `{`, "invalid arguments: "},
		{"two values", `{"n":1}{"n":2}`, "more than one JSON value"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := callTool(t, tool, test.args)
			if !strings.Contains(got, test.want) {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if failed := strings.Contains(got, `"isError":true`); failed != !strings.HasPrefix(test.want, "{") {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestToolInputTypes(t *testing.T) {
	type input struct {
		A int `json:"a"`
	}
	tests := []struct {
		name string
		tool *parley.Tool
	}{
		{"pointer", parley.NewTool("t", "", func(_ context.Context, in *input) (int, error) { return in.A, nil })},
		{"map", parley.NewTool("t", "", func(_ context.Context, in map[string]int) (int, error) { return in["a"], nil })},
		{"any", parley.NewTool("t", "", func(_ context.Context, in any) (any, error) { return in.(map[string]any)["a"], nil })},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := callTool(t, test.tool, `{"a":3}`); got != textResult("3") {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestToolFails(t *testing.T) {
	tests := []struct {
		name string
		f    func() (string, error)
		want string
	}{
		{"error", func() (string, error) { return "x", errors.New("no such city") }, "no such city"},
		{"empty error", func() (string, error) { return "", errors.New("") }, "the tool failed and gave no reason"},
		{"panic", func() (string, error) { panic("boom") }, "tool t panicked: boom"},
		{"error as panic", func() (string, error) { panic(errors.New("boom")) }, "tool t panicked: boom"},
		{"goexit", func() (string, error) { runtime.Goexit(); return "", nil }, "tool t failed: it ended its goroutine"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tool := parley.NewTool("t", "", func(context.Context, struct{}) (string, error) { return test.f() })
			res := tool.Call(t.Context(), nil)
			if !res.IsError || res.Content[0].(*mcp.TextContent).Text != test.want {
				t.Errorf("got %+v", res)
			}
		})
	}
	t.Run("panic while encoding", func(t *testing.T) {
		tool := parley.NewTool("t", "", func(context.Context, struct{}) (badJSON, error) { return badJSON{}, nil })
		if got := callTool(t, tool, `{}`); !strings.Contains(got, "tool t panicked") {
			t.Errorf("got %s", got)
		}
	})
}

type badJSON struct{}

func (badJSON) MarshalJSON() ([]byte, error) { panic("boom") }

func TestToolOutputSchema(t *testing.T) {
	out := map[string]any{"n": 1}
	tool := parley.NewTool("t", "", func(context.Context, struct{}) (any, error) { return out, nil })
	tool.OutputSchema = &jsonschema.Schema{
		Type:       "object",
		Properties: map[string]*jsonschema.Schema{"n": {Type: "integer"}},
	}
	if got := callTool(t, tool, `{}`); !strings.Contains(got, `"structuredContent":{"n":1}`) {
		t.Errorf("got %s", got)
	}
	out["n"] = "x"
	if got := callTool(t, tool, `{}`); !strings.Contains(got, "the result does not fit the output schema") {
		t.Errorf("got %s", got)
	}
}

func TestToolMistakes(t *testing.T) {
	f := func(context.Context, struct{}) (string, error) { return "", nil }
	noSchema := parley.NewTool("t", "", f)
	noSchema.InputSchema = nil
	badSchema := parley.NewTool("t", "", f)
	badSchema.InputSchema.Ref = "#/nowhere"
	tests := []struct {
		name string
		do   func()
		want string
	}{
		{"no name", func() { parley.NewTool("", "", f) }, "needs a name"},
		{"no function", func() { parley.NewTool[any, any]("t", "", nil) }, "the function is nil"},
		{"no object", func() {
			parley.NewTool("t", "", func(context.Context, []int) (string, error) { return "", nil })
		}, "use a struct"},
		{"no schema", func() {
			parley.NewTool("t", "", func(context.Context, struct{ C chan int }) (string, error) { return "", nil })
		}, "there is no schema"},
		{"same name", func() { parley.ToolServer("s", parley.NewTool("t", "", f), parley.NewTool("t", "", f)) }, "two tools"},
		{"schema taken away", func() { parley.ToolServer("s", noSchema) }, "InputSchema is not"},
		{"schema broken", func() { parley.ToolServer("s", badSchema) }, "InputSchema: "},
		{"zero tool", func() { parley.ToolServer("s", &parley.Tool{Name: "t"}) }, "not made by NewTool"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.Contains(p, test.want) {
					t.Errorf("panicked with %s, want %s", p, test.want)
				}
			}()
			test.do()
		})
	}
	if res := (&parley.Tool{Name: "t"}).Call(t.Context(), nil); !res.IsError {
		t.Error("a zero tool can be called")
	}
}

// TestToolServerElsewhere checks that the server works with the MCP SDK's own client
// and transports.
func TestToolServerElsewhere(t *testing.T) {
	tool := parley.NewTool("greet", "Greets.", func(ctx context.Context, in struct {
		Name string `json:"name"`
	}) (string, error) {
		if parley.ToolRequest(ctx).Params.Name != "greet" {
			return "", errors.New("not my request")
		}
		return "Hello, " + in.Name, nil
	})
	tool.Meta = map[string]any{"x/y": "z"}
	server := parley.ToolServer("s", tool)
	there, here := mcp.NewInMemoryTransports()
	serving, err := server.Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "c"}, nil).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer serving.Wait()
	defer client.Close()
	list, err := client.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 1 || list.Tools[0].Meta["x/y"] != "z" {
		t.Errorf("tools: %+v, %v", list, err)
	}
	for name, want := range map[string]string{"greet": "Hello, Bo", "bye": `unknown tool "bye"`} {
		res, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: map[string]any{"name": "Bo"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Content[0].(*mcp.TextContent).Text; got != want || res.IsError != (name == "bye") {
			t.Errorf("%s: %q, %v", name, got, res.IsError)
		}
	}
	if parley.ToolRequest(t.Context()) != nil {
		t.Error("there is a request where there is no tool")
	}
}
