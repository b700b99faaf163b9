package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"

	"github.com/parley-go/parley/wire"
)

// A type switch distinguishes the messages.
func ExampleDecode() {
	for _, line := range []string{
		`{"type":"system","subtype":"init","model":"claude-opus-4-5","tools":["Read","Bash"]}`,
		`{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"Let me look."},{"type":"tool_use","id":"t1","name":"Read","input":{"file_path":"go.mod"}}]}}`,
		`{"type":"control_request","request_id":"1","request":{"subtype":"can_use_tool","tool_name":"Read","input":{"file_path":"go.mod"}}}`,
		`{"type":"result","subtype":"success","result":"It is Go 1.26.","num_turns":2,"total_cost_usd":0.01}`,
	} {
		m, err := wire.Decode([]byte(line))
		if err != nil {
			log.Fatal(err)
		}
		switch m := m.(type) {
		case *wire.Init:
			fmt.Println(m.Model, "has", m.Tools)
		case *wire.Assistant:
			for _, block := range m.Message.Content.All() {
				switch b := block.(type) {
				case *wire.TextBlock:
					fmt.Println("says", b.Text)
				case *wire.ToolUseBlock:
					fmt.Println("calls", b.Name, string(b.Input))
				}
			}
		case *wire.ControlRequest:
			if ask, ok := m.Request.(*wire.CanUseTool); ok {
				fmt.Println("asks to use", ask.ToolName)
			}
		case *wire.Result:
			fmt.Println(m.Outcome(), "after", m.NumTurns, "turns")
		}
	}
	// Output:
	// claude-opus-4-5 has [Read Bash]
	// says Let me look.
	// calls Read {"file_path":"go.mod"}
	// asks to use Read
	// completed after 2 turns
}

// A line that is not JSON is an error. In a stream it is a message.
func ExampleDecode_badLine() {
	_, err := wire.Decode([]byte("Segmentation fault"))
	var bad *wire.BadLine
	if errors.As(err, &bad) {
		fmt.Printf("%s (%d bytes)\n", bad.Text, bad.Size)
	}
	// Output:
	// Segmentation fault (18 bytes)
}

func ExampleEncode() {
	allow, err := json.Marshal(wire.PermissionResult{Behavior: wire.BehaviorAllow})
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range []wire.Message{
		&wire.ControlRequest{RequestID: "1", Request: &wire.SetModel{Model: "sonnet"}},
		&wire.ControlResponse{Response: wire.Response{Subtype: "success", RequestID: "2", Response: allow}},
		wire.Prompt(wire.Text("Two lines\nare one line on the wire.")),
	} {
		line, err := wire.Encode(m)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", line)
	}
	// Output:
	// {"type":"control_request","request_id":"1","request":{"subtype":"set_model","model":"sonnet"}}
	// {"type":"control_response","response":{"subtype":"success","request_id":"2","response":{"behavior":"allow"}}}
	// {"type":"user","message":{"role":"user","content":"Two lines\nare one line on the wire."},"parent_tool_use_id":null}
}

// A stream may have lines that are not messages. It continues after them.
func ExampleReader() {
	stdout := strings.NewReader(`{"type":"assistant","message":{"role":"assistant","content":"Good morning."}}
warning: the disk is nearly full
{"type":"result","subtype":"success","result":"Good morning."}
`)
	r := wire.NewReader(stdout, &wire.ReaderOptions{MaxLine: 1 << 20})
	for {
		m, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		switch m := m.(type) {
		case *wire.Assistant:
			fmt.Println(m.Message.Content)
		case *wire.BadLine:
			fmt.Printf("not a message: %s\n", m.Text)
		case *wire.Result:
			fmt.Println(m.Outcome())
		}
	}
	// Output:
	// Good morning.
	// not a message: warning: the disk is nearly full
	// completed
}

// All iterates over the messages. An error other than io.EOF is in the last pair.
func ExampleReader_All() {
	stdout := strings.NewReader("{\"type\":\"keep_alive\"}\n{\"type\":\"system\",\"subtype\":\"status\",\"status\":\"compacting\"}\n")
	for m, err := range wire.NewReader(stdout, nil).All() {
		if err != nil {
			log.Fatal(err)
		}
		typ, subtype := wire.TypeOf(m)
		fmt.Printf("%q %q\n", typ, subtype)
	}
	// Output:
	// "keep_alive" ""
	// "system" "status"
}

// Text is the quick way to show an answer while it is written.
func ExampleStreamEvent_Text() {
	stream := `{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}}
{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Good "}}}
{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"morning."}}}
`
	for m := range wire.NewReader(strings.NewReader(stream), nil).All() {
		if e, ok := m.(*wire.StreamEvent); ok {
			fmt.Print(e.Text())
		}
	}
	fmt.Println()
	// Output:
	// Good morning.
}

// Parse decodes an event.
func ExampleStreamEvent_Parse() {
	m, err := wire.Decode([]byte(`{"type":"stream_event","event":{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"Bash","input":{}}}}`))
	if err != nil {
		log.Fatal(err)
	}
	event, err := m.(*wire.StreamEvent).Parse()
	if err != nil {
		log.Fatal(err)
	}
	if call, ok := event.ContentBlock.(*wire.ToolUseBlock); ok {
		fmt.Println("block", *event.Index, "is a call of", call.Name)
	}
	// Output:
	// block 1 is a call of Bash
}

// Agents report the end of a turn in different ways. Outcome is the same for all.
func ExampleResult_Outcome() {
	for _, line := range []string{
		`{"type":"result","subtype":"success","is_error":false,"result":"Done."}`,
		`{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error","api_error_status":529,"result":"Overloaded."}`,
		`{"type":"result","subtype":"error_max_turns","is_error":true,"errors":["Three turns were allowed."]}`,
		`{"type":"result","subtype":"max_turns_reached"}`,
		`{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_streaming"}`,
	} {
		m, err := wire.Decode([]byte(line))
		if err != nil {
			log.Fatal(err)
		}
		r := m.(*wire.Result)
		switch o := r.Outcome(); o {
		case wire.OutcomeCompleted:
			fmt.Println(r.Result)
		default:
			fmt.Printf("%v: %q\n", o, r.Reason())
		}
	}
	// Output:
	// Done.
	// model error: "Overloaded."
	// max turns: "Three turns were allowed."
	// max turns: ""
	// interrupted: ""
}

// Unknown messages are kept unchanged.
func ExampleUnknown() {
	m, err := wire.Decode([]byte(`{"type":"hologram","beam":{"angle":1.50}}`))
	if err != nil {
		log.Fatal(err)
	}
	if u, ok := m.(*wire.Unknown); ok {
		fmt.Println("a", u.Type)
	}
	line, err := wire.Encode(m)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", line)
	// Output:
	// a hologram
	// {"type":"hologram","beam":{"angle":1.50}}
}

// A message can be changed and forwarded: fields are encoded with their present values,
// members without a field unchanged.
func ExampleOpen() {
	m, err := wire.Decode([]byte(`{"type":"user","message":{"role":"user","content":"my password is hunter2"},"mood":"careless"}`))
	if err != nil {
		log.Fatal(err)
	}
	u := m.(*wire.User)
	fmt.Printf("mood: %s\n", u.Extra["mood"])

	u.Message.Content = wire.Text(strings.ReplaceAll(u.Message.Content.String(), "hunter2", "*******"))
	u.Extra["mood"] = json.RawMessage(`"careful"`)
	line, err := wire.Encode(u)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", line)
	// Output:
	// mood: "careless"
	// {"type":"user","message":{"role":"user","content":"my password is *******"},"mood":"careful"}
}

// A prompt is text, or several blocks.
func ExamplePrompt() {
	png := []byte("\x89PNG\r\n\x1a\n")
	prompt := wire.Prompt(wire.Blocks(
		&wire.TextBlock{Text: "What is on this picture?"},
		&wire.ImageBlock{Source: wire.Base64("image/png", png)},
	))
	prompt.UUID = "6b0f2a52-9d9f-4b4e-8a50-2f8f5f6f8f10"
	line, err := wire.Encode(prompt)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", line)
	// Output:
	// {"type":"user","message":{"role":"user","content":[{"type":"text","text":"What is on this picture?"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}]},"parent_tool_use_id":null,"uuid":"6b0f2a52-9d9f-4b4e-8a50-2f8f5f6f8f10"}
}

// The payload of a response is decoded into the type that the request documents.
func ExampleResponse_Decode() {
	m, err := wire.Decode([]byte(`{"type":"control_response","response":{"subtype":"success","request_id":"1","response":{"mcpServers":[{"name":"weather","status":"connected"}]}}}`))
	if err != nil {
		log.Fatal(err)
	}
	var status wire.MCPStatusResponse
	if err := m.(*wire.ControlResponse).Response.Decode(&status); err != nil {
		log.Fatal(err)
	}
	for _, server := range status.MCPServers {
		fmt.Println(server.Name, server.Status)
	}
	// Output:
	// weather connected
}
