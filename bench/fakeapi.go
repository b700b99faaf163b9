package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
)

// A dialect is how an API for models speaks: how a request shows the results of tools, and how a
// response calls a tool or answers.
type dialect struct {
	path   string // what the path of its requests contains
	result string // in a request, once for each result of a tool
	call   string // the events of a response that calls tool NAME with ID and ARGS, ARGS as JSON and QUOTED as a string of it
	answer string // the events of a response that says Done.
}

const (
	claudeStart = `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":BLOCK}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":DELTA}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"REASON","stop_sequence":null},"usage":{"output_tokens":5}}

event: message_stop
data: {"type":"message_stop"}

`
	responsesStart = `event: response.created
data: {"type":"response.created","response":{"id":"resp_1"}}

event: response.output_item.added
data: {"type":"response.output_item.added","output_index":0,"item":ITEM}

event: response.output_item.done
data: {"type":"response.output_item.done","output_index":0,"item":ITEM}

event: response.completed
data: {"type":"response.completed","response":{"id":"resp_1","output":[ITEM],"usage":{"input_tokens":10,"input_tokens_details":null,"output_tokens":5,"output_tokens_details":null,"total_tokens":15}}}

`
	chatStart = `data: {"id":"chat_1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":DELTA,"finish_reason":null}]}

data: {"id":"chat_1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"REASON"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}

data: [DONE]

`
	geminiStart = `data: {"candidates":[{"index":0,"content":{"role":"model","parts":[PART]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":5,"totalTokenCount":15},"modelVersion":"m","responseId":"r_1"}

`
)

func fill(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }

// dialects are those of the agents that are compared.
var dialects = []dialect{
	{
		"/messages", `"type":"tool_result"`,
		fill(claudeStart, "BLOCK", `{"type":"tool_use","id":"ID","name":"NAME","input":{}}`, "DELTA", `{"type":"input_json_delta","partial_json":QUOTED}`, "REASON", "tool_use"),
		fill(claudeStart, "BLOCK", `{"type":"text","text":""}`, "DELTA", `{"type":"text_delta","text":"Done."}`, "REASON", "end_turn"),
	},
	{
		"/responses", `"type":"function_call_output"`,
		fill(responsesStart, "ITEM", `{"type":"function_call","id":"fc_ID","call_id":"ID","name":"NAME","arguments":QUOTED,"status":"completed"}`),
		fill(responsesStart, "ITEM", `{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Done.","annotations":[]}]}`),
	},
	{
		"/chat/completions", `"role":"tool"`,
		fill(chatStart, "DELTA", `{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"ID","type":"function","function":{"name":"NAME","arguments":QUOTED}}]}`, "REASON", "tool_calls"),
		fill(chatStart, "DELTA", `{"role":"assistant","content":"Done."}`, "REASON", "stop"),
	},
	{
		"GenerateContent", `"functionResponse"`,
		fill(geminiStart, "PART", `{"functionCall":{"id":"ID","name":"NAME","args":ARGS}}`),
		fill(geminiStart, "PART", `{"text":"Done."}`),
	},
}

// A fakeAPI answers agents in all dialects at once: with a call of a tool while the request has
// fewer results than rounds, and then with "Done.". A request that does not offer the tool, such
// as one for a title, is answered too.
type fakeAPI struct {
	tool, args string
	rounds     int
	done       atomic.Int64 // the most results that a request had
	last       func()       // is called before an answer without a call, unless it is nil
	log        io.Writer    // what was asked, unless it is nil
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if f.log != nil {
		fmt.Fprintf(f.log, "%s %s %v %.100000s\n", r.Method, r.URL, r.Header, body)
	}
	for _, d := range dialects {
		if !strings.Contains(strings.Replace(r.URL.Path, "generateContent", "GenerateContent", 1), d.path) {
			continue
		}
		results := bytes.Count(body, []byte(d.result))
		f.done.Store(max(f.done.Load(), int64(results)))
		text := d.answer
		if results < f.rounds && bytes.Contains(body, []byte(`"name":"`+f.tool+`"`)) {
			args := strings.ReplaceAll(f.args, "ROUND", strconv.Itoa(results+1)) // some agents stop when a call is repeated
			quoted, _ := json.Marshal(args)
			text = fill(d.call, "ID", fmt.Sprintf("call_%d", results+1), "NAME", f.tool, "QUOTED", string(quoted), "ARGS", args)
		} else if f.last != nil {
			f.last()
		}
		w.Header().Set("Content-Type", "text/event-stream")
		if strings.HasSuffix(r.URL.Path, ":generateContent") { // one response, no events
			w.Header().Set("Content-Type", "application/json")
			text = strings.TrimPrefix(strings.TrimSpace(text), "data: ")
		}
		io.WriteString(w, text)
		return
	}
	http.NotFound(w, r)
}
