package parleytest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/parleytest"
)

// A model in process: it answers with the script.
func ExampleScenario_Model() {
	m := parleytest.Script(
		parleytest.Say("Hello."),
	).Model()
	req := model.Request{Body: []byte(`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"Hi!"}]}`)}
	for ev, err := range m.Stream(context.Background(), req) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(ev.Type)
	}
	// Output:
	// message_start
	// content_block_start
	// content_block_delta
	// content_block_stop
	// message_delta
	// message_stop
}

// A request that does not match the script fails with the expected and the
// received text.
func ExampleExpect() {
	m := parleytest.Script(
		parleytest.Expect(parleytest.LastUser("apples")).Say("They are red."),
	).Model()
	req := model.Request{Body: []byte(`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"Tell me about pears."}]}`)}
	for _, err := range m.Stream(context.Background(), req) {
		fmt.Println(err)
	}
	// Output:
	// parleytest: script main, turn 1: the request is not what the turn expects
	// - expect user apples
	// + got Tell me about pears.
}

// The answer depends on the result of the tool.
func ExampleFirstOf() {
	s := parleytest.Script(
		parleytest.Call("Read", `{"file_path":"a.txt"}`),
		parleytest.FirstOf(
			parleytest.Expect(parleytest.ToolError("")).Say("I cannot read it."),
			parleytest.Expect(parleytest.ToolResult("TODO")).Say("There is work left."),
			parleytest.Say("All done."),
		),
	)
	text, _ := parleytest.Format(s)
	fmt.Printf("%s", text)
	// Output:
	// turn
	// 	call Read {"file_path":"a.txt"}
	//
	// turn
	// 	expect tool-error
	// 	say I cannot read it.
	//
	// or
	// 	expect result TODO
	// 	say There is work left.
	//
	// or
	// 	say All done.
}

// A script file, and the error of a bad one.
func ExampleParseScript() {
	_, err := parleytest.ParseScript("greet.script", []byte(`
turn
	expect user hello
	say Good morning.
	stopp end_turn
`))
	fmt.Println(err)
	var pe *parleytest.ParseError
	fmt.Println(errors.As(err, &pe), pe.Line)
	// Output:
	// greet.script:5: unknown word "stopp" (did you mean stop?)
	// true 5
}

// post sends a request as any client of the API would.
func post(url, body string) string {
	req, _ := http.NewRequest("POST", url, strings.NewReader(body))
	req.Header.Set("x-api-key", "no-key-needed")
	req.Header.Set("anthropic-version", "2023-06-01")
	req.Header.Set("content-type", "application/json")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, bytes.TrimSpace(b))
}

// The fake API is strict: this request has a tool call without its result. In a
// test, NewAPI(t, …) serves it and fails the test for that.
func ExampleAPI() {
	api := parleytest.NewHandler(parleytest.Script(parleytest.Say("Hello.")), nil)
	if err := api.Listen("127.0.0.1:0"); err != nil {
		fmt.Println(err)
		return
	}
	defer api.Close()
	fmt.Println(post(api.URL+"/v1/messages", `{"model":"m","max_tokens":100,"messages":[
		{"role":"user","content":"Hi!"},
		{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Read","input":{}}]},
		{"role":"user","content":"What did it say?"}]}`))
	fmt.Println(api.Requests()[0].LastUser())
	// Output:
	// 400 {"error":{"message":"messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t1. Each `tool_use` block must have a corresponding `tool_result` block in the next message.","type":"invalid_request_error"},"request_id":"req_1","type":"error"}
	// What did it say?
}

// A client's retry is tested by a script that fails first.
func ExampleFail() {
	api := parleytest.NewHandler(parleytest.Script(
		parleytest.Fail(529).Times(2),
		parleytest.Say("At last."),
	), nil)
	if err := api.Listen("127.0.0.1:0"); err != nil {
		fmt.Println(err)
		return
	}
	defer api.Close()
	for range 3 {
		status, _, _ := strings.Cut(post(api.URL+"/v1/messages", `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"Hi!"}]}`), " ")
		fmt.Println(status)
	}
	fmt.Println(api.Done())
	// Output:
	// 529
	// 529
	// 200
	// <nil>
}

// The same scenario as a chat completion.
func ExampleAPI_openAI() {
	api := parleytest.NewHandler(parleytest.Script(parleytest.Call("add", `{"a":1,"b":2}`)), nil)
	if err := api.Listen("127.0.0.1:0"); err != nil {
		fmt.Println(err)
		return
	}
	defer api.Close()
	req, _ := http.NewRequest("POST", api.URL+"/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"1+2?"}]}`))
	req.Header.Set("authorization", "Bearer no-key-needed")
	req.Header.Set("content-type", "application/json")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	var answer struct {
		Choices []struct {
			Message struct {
				ToolCalls []struct {
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
		}
	}
	json.NewDecoder(resp.Body).Decode(&answer)
	fmt.Println(answer.Choices[0].Message.ToolCalls[0].Function)
	// Output:
	// {add {"a":1,"b":2}}
}

// A cassette is recorded once, here from the fake API, and replayed without it.
func ExampleCassette() {
	const body = `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"Hi!"}]}`
	dir, _ := os.MkdirTemp("", "cassette")
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "hello.jsonl")

	api := parleytest.NewHandler(parleytest.Script(parleytest.Say("Hello.")), nil)
	api.Listen("127.0.0.1:0")
	rec, err := parleytest.NewRecorder(file, api.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	rec.Listen("127.0.0.1:0")
	recorded := post(rec.URL+"/v1/messages", body)
	rec.Close()
	api.Close()

	player, err := parleytest.NewPlayer(file, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	player.Listen("127.0.0.1:0")
	defer player.Close()
	fmt.Println(post(player.URL+"/v1/messages", body) == recorded)
	post(player.URL+"/v1/messages", strings.Replace(body, "Hi!", "Good evening!", 1))
	fmt.Println(player.Err())
	// Output:
	// true
	// parleytest: replay: request 2, POST /v1/messages, is not in the cassette. The nearest is number 1 of 1 (- recorded, + now):
	//   … 3 equal lines
	//     "messages": [
	//       {
	// -       "content": "Hi!",
	// +       "content": "Good evening!",
	//         "role": "user"
	//       }
}

// A model of a test fails it if the agent does not follow the scenario to its end.
func ExampleNewModel() {
	var t parleytest.TB = printer{} // the *testing.T of a test
	m := parleytest.NewModel(t, parleytest.Script(parleytest.Say("Hello.")))
	_ = m // agent.InProcess(agent.Config{Model: m})
	// Output: a turn was never requested: true
}

// A printer ends the test at once, and prints what failed.
type printer struct{}

func (printer) Helper()                           {}
func (printer) Cleanup(f func())                  { defer f() }
func (printer) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (printer) Errorf(format string, args ...any) {
	fmt.Println("a turn was never requested:", strings.Contains(fmt.Sprintf(format, args...), "never"))
}
