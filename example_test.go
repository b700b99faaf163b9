package parley_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/parleytest/parrot"
	"github.com/parley-go/parley/parleytest/peer"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// The agents of these examples run in memory, so that the examples run anywhere: echo
// repeats its prompt, the others make requests to their host. Without a Dialer the claude
// command of this machine answers.
var (
	echo = peer.AgentDialer(parrot.Agent{})

	wantsTools = script(`
		> {"type":"control_request","request_id":"1","request":{"subtype":"can_use_tool","tool_name":"Read","input":{"file_path":"notes.txt"}}}
		< {"type":"control_response","response":{"response":{"behavior":"allow","updatedInput":{"file_path":"$path"}}}}
		> {"type":"control_request","request_id":"2","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"rm -rf /"}}}
		< {"type":"control_response","response":{"response":{"behavior":"deny","message":"$why"}}}
		> {"type":"result","subtype":"success","is_error":false,"result":"I read ${path}; ${why}."}`)

	wantsAnswer = script(`
		> {"type":"control_request","request_id":"1","request":{"subtype":"can_use_tool","tool_name":"AskUserQuestion","input":{"questions":[{"question":"Tabs or spaces?","header":"Style","options":[{"label":"Tabs","description":"as gofmt has it"},{"label":"Spaces","description":"as others do"}],"multiSelect":false}]}}}
		< {"type":"control_response","response":{"response":{"behavior":"allow","updatedInput":{"answers":{"Tabs or spaces?":"$answer"}}}}}
		> {"type":"result","subtype":"success","is_error":false,"result":"${answer} it is."}`)

	wantsToRemove = script(`
		> {"type":"control_request","request_id":"1","request":{"subtype":"hook_callback","callback_id":"hook_0","input":{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"rm -rf build"}}}}
		< {"type":"control_response","response":{"response":{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"$why"}}}}
		> {"type":"result","subtype":"success","is_error":false,"result":"I could not: ${why}."}`)

	asksForWeather = script(`
		> {"type":"control_request","request_id":"1","request":{"subtype":"get_weather","city":"Bern"}}
		< {"type":"control_response","response":{"response":{"weather":"$weather"}}}
		> {"type":"result","subtype":"success","is_error":false,"result":"It is ${weather}."}`)

	speaks = script(`
		> {"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Sphinx of black quartz, "}}}
		> {"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"judge my vow."}}}
		> {"type":"result","subtype":"success","is_error":false,"result":"Sphinx of black quartz, judge my vow."}`)
)

func script(steps string) transport.Dialer {
	return &peer.Dialer{Script: peer.MustParse("example", "-- steps --\n"+hello+"< {\"type\":\"user\"}\n"+steps+"\n< eof\n")}
}

func Example() {
	ctx := context.Background()
	for msg, err := range parley.Query(ctx, "Hello!", &parley.Options{Dialer: echo}) {
		if err != nil {
			log.Fatal(err)
		}
		switch m := msg.(type) {
		case *wire.Init:
			fmt.Println("model: ", m.Model)
		case *wire.Assistant:
			fmt.Println("answer:", m.Message.Content)
		case *wire.Result:
			fmt.Println("result:", m.Outcome())
		}
	}
	// Output:
	// model:  claude-fake-1
	// answer: Hello!
	// result: completed
}

// A picture is sent along with the prompt.
func ExampleQuery() {
	picture := &wire.ImageBlock{Source: wire.Base64("image/png", []byte("\x89PNG"))}
	for msg, err := range parley.Query(context.Background(), "What is this?", &parley.Options{Dialer: echo}, picture) {
		if err != nil {
			log.Fatal(err)
		}
		if m, ok := msg.(*wire.Assistant); ok {
			fmt.Println(m.Message.Content)
		}
	}
	// Output: What is this?
}

func ExampleQueryStream() {
	prompts := func(yield func(*wire.User) bool) {
		for _, prompt := range []string{"one", "two"} {
			if !yield(wire.Prompt(wire.Text(prompt))) {
				return
			}
		}
	}
	for msg, err := range parley.QueryStream(context.Background(), prompts, &parley.Options{Dialer: echo}) {
		if err != nil {
			log.Fatal(err)
		}
		if m, ok := msg.(*wire.Result); ok {
			fmt.Println(m.Result)
		}
	}
	// Output:
	// one
	// two
}

func ExampleRun() {
	res, err := parley.Run(context.Background(), "Hello!", &parley.Options{Dialer: echo})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Result)
	// Output: Hello!
}

// The result comes with the error, which describes what failed.
func ExampleRun_errors() {
	res, err := parley.Run(context.Background(), "error the model is overloaded", &parley.Options{Dialer: echo})

	var (
		failed *parley.ResultError
		exited *parley.ExitError
	)
	switch {
	case errors.As(err, &failed):
		fmt.Println("the turn failed:", failed.Outcome(), res == failed.Result)
	case errors.As(err, &exited):
		fmt.Println("the agent is gone:", exited.Code, exited.Stderr)
	case errors.Is(err, context.DeadlineExceeded):
		fmt.Println("it took too long")
	}
	// Output: the turn failed: model error true
}

// A conversation has several turns on one connection.
func ExampleConnect() {
	ctx := context.Background()
	c, err := parley.Connect(ctx, &parley.Options{Dialer: echo})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	for _, prompt := range []string{"Find the bug.", "Now fix it."} {
		for msg, err := range c.Turn(ctx, prompt) {
			if err != nil {
				log.Fatal(err)
			}
			if m, ok := msg.(*wire.Assistant); ok {
				fmt.Println(m.Message.Content)
			}
		}
	}
	// Output:
	// Find the bug.
	// Now fix it.
}

// The host decides which tools run, and with which input.
func ExampleCanUseTool() {
	decide := func(ctx context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
		fmt.Printf("%s %s\n", req.ToolName, req.Input)
		switch req.ToolName {
		case "Read":
			return parley.AllowInput(map[string]string{"file_path": "/safe/notes.txt"}), nil
		case "Glob", "Grep":
			return parley.Allow(), nil
		}
		return parley.Deny("only reading is allowed"), nil
	}
	res, err := parley.Run(context.Background(), "Tidy up.", &parley.Options{Dialer: wantsTools, CanUseTool: decide})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Result)
	// Output:
	// Read {"file_path":"notes.txt"}
	// Bash {"command":"rm -rf /"}
	// I read /safe/notes.txt; only reading is allowed.
}

// The model may ask the user a question.
func ExampleQuestions() {
	decide := func(ctx context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
		questions, ok := parley.Questions(req)
		if !ok {
			return parley.Deny("questions only"), nil
		}
		answers := map[string][]string{}
		for _, q := range questions {
			fmt.Println(q.Question)
			answers[q.Question] = []string{q.Options[0].Label}
		}
		return parley.Answer(req, answers), nil
	}
	res, err := parley.Run(context.Background(), "Format it.", &parley.Options{Dialer: wantsAnswer, CanUseTool: decide})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Result)
	// Output:
	// Tabs or spaces?
	// Tabs it is.
}

// A hook keeps commands from running. The type of its input determines its event.
func ExampleOn() {
	keep := parley.On("Bash", func(ctx context.Context, in *wire.PreToolUseInput) (*wire.HookOutput, error) {
		if bytes.Contains(in.ToolInput, []byte("rm -rf")) {
			return parley.HookDeny("nothing is removed here"), nil
		}
		return nil, nil
	})
	res, err := parley.Run(context.Background(), "Clean the build.", &parley.Options{Dialer: wantsToRemove, Hooks: []parley.Hook{keep}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Result)
	// Output: I could not: nothing is removed here.
}

// A host can respond to any request of the agent itself, also to one that this package
// does not know.
func ExampleOptions_onRequest() {
	opts := &parley.Options{Dialer: asksForWeather}
	opts.OnRequest = func(ctx context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
		unknown, ok := req.Request.(*wire.UnknownRequest)
		if !ok {
			return nil, parley.ErrNotHandled // the other callbacks respond
		}
		fmt.Println(string(unknown.Raw))
		return json.RawMessage(`{"weather":"sunny"}`), nil
	}
	res, err := parley.Run(context.Background(), "How is the weather?", opts)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Result)
	// Output:
	// {"subtype":"get_weather","city":"Bern"}
	// It is sunny.
}

// The answer can be shown while it is written.
func ExampleOptions_partialMessages() {
	opts := &parley.Options{Dialer: speaks, PartialMessages: true}
	for msg, err := range parley.Query(context.Background(), "Say something.", opts) {
		if err != nil {
			log.Fatal(err)
		}
		if m, ok := msg.(*wire.StreamEvent); ok {
			fmt.Print(m.Text())
		}
	}
	fmt.Println()
	// Output: Sphinx of black quartz, judge my vow.
}

// A running turn can be interrupted from anywhere, also from its own loop.
func ExampleClient_Interrupt() {
	ctx := context.Background()
	c, err := parley.Connect(ctx, &parley.Options{Dialer: echo})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	for msg, err := range c.Turn(ctx, "sleep 1h") {
		if _, ok := msg.(*wire.Init); ok {
			c.Interrupt(ctx)
		}
		var failed *parley.ResultError
		if errors.As(err, &failed) {
			fmt.Println(failed.Outcome())
		}
	}
	// Output: interrupted
}

func ExampleClient_SetModel() {
	ctx := context.Background()
	c, err := parley.Connect(ctx, &parley.Options{Dialer: echo})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	model, err := c.SetModel(ctx, "claude-fake-2")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(model.Model)

	_, err = c.SetPermissionMode(ctx, "as-you-like")
	var refused *parley.ControlError
	if errors.As(err, &refused) {
		fmt.Println(refused.Subtype, refused.Code)
	}
	// Output:
	// claude-fake-2
	// set_permission_mode invalid_mode
}

// Run is for callers that need only the result.
func ExampleClient_Run() {
	ctx := context.Background()
	c, err := parley.Connect(ctx, &parley.Options{Dialer: echo})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for _, prompt := range []string{"One.", "Two."} {
		res, err := c.Run(ctx, prompt)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Result)
	}
	// Output:
	// One.
	// Two.
}

// The schema of a type is always an object; any other type is its member value.
func ExampleSchemaOf() {
	schema, err := parley.SchemaOf[[]string]()
	if err != nil {
		log.Fatal(err)
	}
	var object struct {
		Type     string   `json:"type"`
		Required []string `json:"required"`
	}
	if err := json.Unmarshal(schema, &object); err != nil {
		log.Fatal(err)
	}
	fmt.Println(object.Type, object.Required)
	// Output: object [value]
}

// An agent that is already running is reached through any reader and writer.
func ExampleOptions_attach() {
	requests, toAgent := io.Pipe()
	fromAgent, answers := io.Pipe()
	go func() {
		(parrot.Agent{}).Serve(context.Background(), requests, answers)
		answers.Close()
	}()
	opts := &parley.Options{Dialer: transport.Attach(transport.NewConn(fromAgent, toAgent))}
	res, err := parley.Run(context.Background(), "Are you there?", opts)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Result)
	// Output: Are you there?
}

// A dialer determines where the agent runs: in this process, on another machine, or,
// without one, in a process of this machine.
func ExampleOptions_dialer() {
	inProcess := transport.DialerFunc(func(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
		conn, far := transport.Pipe()
		go func() {
			if _, err := (parrot.Agent{}).Serve(context.Background(), far, far); err != nil {
				far.Exit(1, err.Error())
			}
			far.Exit(0, "")
		}()
		return conn, nil
	})
	res, err := parley.Run(context.Background(), "Are you here?", &parley.Options{Dialer: inProcess})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Result)
	// Output: Are you here?
}
