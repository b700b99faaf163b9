package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/internal/testwait"
	"go.uber.org/goleak"
)

// role is the environment variable that makes the test binary act as a server.
const role = "PARLEY_MCP_TEST_ROLE"

func TestMain(m *testing.M) {
	if r := os.Getenv(role); r != "" {
		play(r)
		return
	}
	maxLine = 4 << 20
	promptWait = time.Hour
	pauses = []time.Duration{0, 10 * time.Millisecond, 20 * time.Millisecond}
	goleak.VerifyTestMain(m)
}

type addInput struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

// newServer returns a well-behaved server.
func newServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "calc", Version: "1.0.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Adds.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *mcp.CallToolRequest, in addInput) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(in.A + in.B)}}}, nil, nil
		})
	anything := json.RawMessage(`{"type":"object"}`)
	raw := func(name, result string) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: anything}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			r := new(mcp.CallToolResult)
			return r, json.Unmarshal([]byte(result), r)
		})
	}
	raw("fail", `{"isError":true,"content":[{"type":"text","text":"out of numbers"}]}`)
	raw("fails", `{"isError":true,"content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}`)
	raw("seen", `{"content":[{"type":"text","text":"x"},{"type":"image","mimeType":"image/png","data":"aGVsbG8="}],"structuredContent":{"z":1}}`)
	raw("both", `{"content":[{"type":"text","text":"x"}],"structuredContent":{"z":1,"a":[1,2]}}`)
	raw("many", `{"content":[{"type":"text","text":"one"},{"type":"image","mimeType":"image/png","data":"aGVsbG8="},
		{"type":"resource","resource":{"uri":"file:///a","text":"two"}},{"type":"resource_link","uri":"file:///b","name":"b"},
		{"type":"resource","resource":{"uri":"file:///c","mimeType":"application/x-odd","blob":"aGVsbG8="}},{"type":"text","text":""}]}`)
	raw("none", `{"content":[]}`)
	s.AddTool(&mcp.Tool{Name: "big", InputSchema: anything}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("0123456789", 20_000)}}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "meta", InputSchema: anything}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		b, _ := json.Marshal(r.Params.Meta)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(b)}}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "environ", InputSchema: anything}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Join(os.Environ(), "\n")}}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "wait", InputSchema: anything}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in struct {
			MS       int
			Progress bool
		}
		json.Unmarshal(r.Params.Arguments, &in)
		length := time.Duration(in.MS) * time.Millisecond
		end := time.After(length)
		tick := time.NewTicker(max(length/20, 20*time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				select {
				case cancelled <- struct{}{}:
				default:
				}
				return nil, ctx.Err()
			case <-tick.C:
				if in.Progress {
					r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken()})
				}
			case <-end:
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "waited"}}}, nil
			}
		}
	})
	s.AddTool(&mcp.Tool{Name: "ask", InputSchema: anything}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Your name?",
			RequestedSchema: json.RawMessage(`{"type":"object","properties":{"surname":{"type":"string"},"name":{"type":"string"}},"required":["name"]}`)})
		if err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(answer.Action, " ", answer.Content["name"])}}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "grow", InputSchema: anything}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		raw("grown", `{"content":[{"type":"text","text":"new"}]}`)
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "die", InputSchema: anything}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		fmt.Fprintln(os.Stderr, "I die.")
		os.Exit(7)
		return nil, nil
	})
	s.AddTool(&mcp.Tool{Name: "spawn", InputSchema: anything}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(c.Process.Pid)}}}, nil
	})
	return s
}

// rich adds resources and prompts to a server.
func rich(s *mcp.Server) *mcp.Server {
	s.AddPrompt(&mcp.Prompt{Name: "greet", Description: "Greets\nsomebody.", Arguments: []*mcp.PromptArgument{{Name: "name", Required: true}, {Name: "how"}}},
		func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{
				{Role: "user", Content: &mcp.TextContent{Text: "Greet " + r.Params.Arguments["name"] + " " + r.Params.Arguments["how"]}},
				{Role: "assistant", Content: &mcp.TextContent{Text: "I will."}},
			}}, nil
		})
	s.AddPrompt(&mcp.Prompt{Name: "more"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		s.AddPrompt(&mcp.Prompt{Name: "new"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{}, nil
		})
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "More."}}}}, nil
	})
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		c := &mcp.ResourceContents{URI: r.Params.URI, MIMEType: "text/plain", Text: "a <note>"}
		switch r.Params.URI {
		case "mem://picture":
			c = &mcp.ResourceContents{URI: r.Params.URI, MIMEType: "image/png", Blob: []byte("hello")}
		case "mem://big":
			c.Text = strings.Repeat("0123456789", 20_000)
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{c}}, nil
	}
	for _, uri := range []string{"mem://note", "mem://picture", "mem://big", "ui://card"} {
		s.AddResource(&mcp.Resource{URI: uri, Name: "n", MIMEType: "text/plain", Description: "d"}, read)
	}
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "mem://user/{name}", Name: "user"}, read)
	return s
}

// cancelled receives a value when a waiting call of a server in this process was cancelled.
var cancelled = make(chan struct{}, 1)

// play runs the test binary as a server.
func play(role string) {
	switch role {
	case "good":
		newServer().Run(context.Background(), &mcp.StdioTransport{})
	case "talkative":
		fmt.Println("Welcome to the server!")
		fmt.Println(`{"level":"info"}`)
		newServer().Run(context.Background(), &mcp.StdioTransport{})
	case "rich":
		rich(newServer()).Run(context.Background(), &mcp.StdioTransport{})
	case "mute": // it declares prompts and resources, and never lists them
		serve(func(method string, id json.RawMessage) {
			switch method {
			case "initialize":
				reply(id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"mute","version":"0"}}`)
			case "tools/list":
				reply(id, `{"tools":[{"name":"t"}]}`)
			}
		})
	case "fibber": // nothing is correct
		serve(func(method string, id json.RawMessage) {
			switch method {
			case "initialize":
				reply(id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"fibber","version":"0"}}`)
			case "tools/list":
				reply("99", `{"tools":[{"name":"wrong"}]}`) // an unused id
				reply(id, `{"tools":[{"name":"t"}]}`)
				reply(id, `{"tools":[{"name":"twice"}]}`)
			case "tools/call":
				fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":\"a word\"}\n", id)
				fmt.Println(`{"jsonrpc":"2.0","id":{},"result":{}}`)
				fmt.Println(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{"a":1},"progress":"much"}}`)
				fmt.Println(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":7}`)
				reply(id, `{"content":[{"type":"text","text":"first"}]}`)
				reply(id, `{"content":[{"type":"text","text":"second"}]}`)
			case "prompts/list":
				reply(id, `{"prompts":[null,7,{"name":""},{"name":7},{"name":"p","arguments":"x"},{"name":"ok","description":"two\nlines"},{"name":"ok"}]}`)
			case "prompts/get":
				reply(id, `{"messages":"none"}`)
			case "resources/list":
				reply(id, `{"resources":{"a":1}}`)
			case "resources/read":
				reply(id, `{"contents":[{"uri":"x:y","blob":"***"}]}`)
			}
		})
	case "library": // it has directories
		serve(func(method string, id json.RawMessage) {
			switch method {
			case "initialize":
				reply(id, `{"protocolVersion":"2025-11-25","capabilities":{"resources":{}},"serverInfo":{"name":"library","version":"0"}}`)
			case "resources/directory/read":
				reply(id, `{"resources":[{"uri":"lib://shelf/a","name":"a"},{"uri":"lib://shelf/b/","name":"b","mimeType":"inode/directory"},{"name":"nowhere"}]}`)
			}
		})
	case "page": // it sends the user to a page, and reports when that is done
		var call json.RawMessage
		serve(func(method string, id json.RawMessage) {
			switch {
			case method == "initialize":
				reply(id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"page","version":"0"}}`)
			case method == "tools/list":
				reply(id, `{"tools":[{"name":"t"}]}`)
			case method == "tools/call":
				call = id
				fmt.Println(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"never-asked"}}`)
				fmt.Println(`{"jsonrpc":"2.0","id":900,"method":"elicitation/create","params":{"mode":"url","message":"Log in.","url":"https://example.com/x","elicitationId":"E1"}}`)
			case string(id) == "900":
				for range 2 { // reported once
					fmt.Println(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"E1"}}`)
				}
				reply(call, `{"content":[{"type":"text","text":"done"}]}`)
			}
		})
	case "hollow": // its messages lack their params
		serve(func(method string, id json.RawMessage) {
			switch method {
			case "initialize":
				reply(id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"hollow","version":"0"}}`)
			case "tools/list":
				reply(id, `{"tools":[{"name":"t"}]}`)
			case "tools/call":
				for _, m := range hollow() {
					fmt.Println(m)
				}
				reply(id, `{"content":[{"type":"text","text":"alive"}]}`)
			}
		})
	case "storm": // a million messages before the answer
		serve(func(method string, id json.RawMessage) {
			switch method {
			case "initialize":
				reply(id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"storm","version":"0"}}`)
			case "tools/list":
				reply(id, `{"tools":[{"name":"t"}]}`)
			case "tools/call":
				w := bufio.NewWriterSize(os.Stdout, 1<<16)
				for i := range 1_000_000 {
					if i%2 == 0 {
						w.WriteString(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n")
					} else {
						w.WriteString(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}` + "\n")
					}
				}
				w.Flush()
				reply(id, `{"content":[]}`)
			}
		})
	case "gossip": // it keeps writing to stderr
		go func() {
			line := []byte(strings.Repeat("x", 1023) + "\n")
			for {
				if _, err := os.Stderr.Write(line); err != nil {
					return
				}
			}
		}()
		newServer().Run(context.Background(), &mcp.StdioTransport{})
	case "giant": // a result that is larger than a message may be, and one that never ends
		serve(func(method string, id json.RawMessage) {
			switch method {
			case "initialize":
				reply(id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"giant","version":"0"}}`)
			case "tools/list":
				reply(id, `{"tools":[{"name":"t"}]}`)
			case "tools/call":
				fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"", id)
				for {
					if _, err := os.Stdout.WriteString(strings.Repeat("x", 1<<16)); err != nil {
						os.Exit(0)
					}
				}
			}
		})
	case "bomb": // malicious names and schemas
		deep := strings.Repeat(`{"type":"object","properties":{"a":`, 400) + `{}` + strings.Repeat(`}}`, 400)
		wide := `{"type":"object","$defs":{"d0":{"type":"string"}`
		for i := range 40 { // each is twice as large as the previous one
			wide += fmt.Sprintf(`,"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i+1, i, i)
		}
		wide += `},"properties":{"a":{"$ref":"#/$defs/d40"}}}`
		tools := fmt.Sprintf(`{"tools":[{"name":"ok"},{"name":%q},{"name":"a\u0000b\u001b[31m\u202ec"},{"name":"deep","inputSchema":%s},{"name":"quoted","inputSchema":{"type":"object","description":"%s\\\""}},{"name":"wide","inputSchema":%s},
			{"name":"self","inputSchema":{"type":"object","properties":{"a":{"$ref":"#"}}}},{"name":"circle","inputSchema":{"type":"object","$ref":"#"}},
			{"name":"pattern","inputSchema":{"type":"object","properties":{"a":{"type":"string","pattern":"(a+)+$"}}}},
			{"name":"huge","inputSchema":{"type":"object","description":%q}}]}`, strings.Repeat("n", 10_000), deep, strings.Repeat("[{", 200), wide, strings.Repeat("h", 200_000))
		answers(map[string]string{
			"initialize": `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"bomb\u001b[2J","version":"0"}}`,
			"tools/list": tools,
			"tools/call": `{"content":[{"type":"text","text":"boom"}]}`,
		})
	case "crash":
		fmt.Fprintln(os.Stderr, "no licence found")
		os.Exit(3)
	case "silent":
		r, w, _ := os.Pipe() // select {} would be reported as a deadlock, unless the program uses cgo
		r.Read(make([]byte, 1))
		w.Close()
	case "deaf": // it never reads
		fmt.Println(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"deaf","version":"0"}}}`)
		testwait.Pause(300 * time.Millisecond)
		fmt.Println(`{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"t"}]}}`)
		testwait.Hang()
	case "old":
		answers(map[string]string{
			"initialize": `{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"0"}}`,
			"tools/list": `{"tools":[{"name":"hello","inputSchema":{"type":"object"}}]}`,
			"tools/call": `{"content":[{"type":"text","text":"hello"}]}`,
		})
	case "modern": // it does not support initialize
		answers(map[string]string{
			"server/discover": `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"modern","version":"9"}}}`,
			"tools/list":      `{"resultType":"complete","tools":[{"name":"hello","inputSchema":{"type":"object"}}]}`,
			"tools/call":      `{"resultType":"complete","content":[{"type":"text","text":"hello"}]}`,
		})
	case "liar":
		answers(map[string]string{
			"initialize": `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"liar","version":"0"}}`,
			"tools/list": `{"tools":[null,5,{"name":""},{"name":7},{"name":"same"},{"name":"same"},{"name":"sa.me"},{"name":"sa me"},
				{"name":"string","inputSchema":{"type":"string"}},{"name":"nonsense","inputSchema":"x"},{"name":"broken","inputSchema":{"type":"object","properties":7}},
				{"name":"badname","inputSchema":{"type":"object","properties":{"a b":{}}}},{"name":"ref","inputSchema":{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:1/x"}}}},
				{"name":"top","inputSchema":{"anyOf":[{"required":["a"]}],"properties":{"a":{"type":"string"}}}}]}`,
			"tools/call": `{"content":"not a list"}`,
		})
	case "nolist":
		answers(map[string]string{
			"initialize": `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"0"}}`,
			"tools/list": `[]`,
		})
	case "endless":
		page := 0
		serve(func(method string, id json.RawMessage) {
			switch method {
			case "initialize":
				reply(id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"0"}}`)
			case "tools/list":
				var tools []string
				for i := range 100 {
					tools = append(tools, fmt.Sprintf(`{"name":"t%d","description":%q}`, page*100+i, strings.Repeat("x", 9_000)))
				}
				page++
				reply(id, fmt.Sprintf(`{"tools":[%s],"nextCursor":"%d"}`, strings.Join(tools, ","), page))
			}
		})
	case "flood":
		serve(func(method string, id json.RawMessage) {
			switch method {
			case "initialize":
				reply(id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"0"}}`)
			case "tools/list":
				reply(id, `{"tools":[{"name":"t"}]}`)
			case "tools/call":
				for {
					fmt.Println(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("x", 500) + `"}}`)
				}
			}
		})
	case "beggar": // it sends requests and never reads the responses
		fmt.Println(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"x","version":"0"}}}`)
		for i := range 1_000_000 {
			fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"ping\",\"params\":{\"_meta\":{\"x\":%q}}}\n", i+2, strings.Repeat("x", 200))
		}
		select {}
	case "longline":
		serve(func(method string, id json.RawMessage) {
			w := bufio.NewWriter(os.Stdout)
			for {
				if _, err := w.WriteString(strings.Repeat("x", 1<<16)); err != nil {
					return
				}
			}
		})
	}
}

// hollow returns messages of servers without their params, or with wrong ones.
func hollow() (list []string) {
	for _, method := range []string{"notifications/progress", "notifications/cancelled", "notifications/elicitation/complete", "notifications/tools/list_changed",
		"notifications/prompts/list_changed", "notifications/resources/updated", "notifications/message", "notifications/nothing", "elicitation/create", "roots/list", "ping", "sampling/createMessage", "nothing"} {
		for i, params := range []string{"", `,"params":null`, `,"params":[]`, `,"params":7`, `,"params":{}`, `,"params":{"elicitationId":null,"progressToken":null,"requestId":null,"message":null,"requestedSchema":{"type":7}}`} {
			id := ""
			if !strings.HasPrefix(method, "notifications/") {
				id = fmt.Sprintf(`,"id":"%s-%d"`, method, i)
			}
			list = append(list, fmt.Sprintf(`{"jsonrpc":"2.0"%s,"method":%q%s}`, id, method, params))
		}
	}
	return list
}

// answers serves fixed results.
func answers(results map[string]string) {
	serve(func(method string, id json.RawMessage) {
		if r, ok := results[method]; ok {
			reply(id, r)
		} else if id != nil {
			fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":-32601,\"message\":\"no such method\"}}\n", id)
		}
	})
}

func reply[ID json.RawMessage | string](id ID, result string) {
	fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n", id, strings.ReplaceAll(result, "\n", " "))
}

func serve(f func(method string, id json.RawMessage)) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var m struct {
			Method string          `json:"method"`
			ID     json.RawMessage `json:"id"`
		}
		if json.Unmarshal(in.Bytes(), &m) == nil {
			f(m.Method, m.ID)
		}
	}
}
