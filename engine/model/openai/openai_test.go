package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/parleytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ask = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"go"}]}`

func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func served(t *testing.T, cfg Config, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	cfg.BaseURL = s.URL
	return newClient(t, cfg)
}

func bodyOf(body string) model.Request { return model.Request{Body: []byte(body)} }

// fold reads events like a strict consumer, and returns the resulting message in a
// short form. Blocks must follow each other, and each must be opened and closed.
func fold(events func(func(model.Event, error) bool)) (string, error) {
	var b strings.Builder
	var last error
	open, next, state := -1, 0, ""
	for ev, err := range events {
		if err != nil {
			last = err
			continue
		}
		if last != nil {
			return "", errors.New("an event after an error")
		}
		var e struct {
			Type    string
			Index   int
			Message struct {
				ID, Role, Type string
				Content        []any
			}
			ContentBlock struct {
				Type, ID, Name string
				Input          map[string]any
			} `json:"content_block"`
			Delta struct {
				Type, Text, Thinking string
				PartialJSON          string  `json:"partial_json"`
				StopReason           string  `json:"stop_reason"`
				StopSequence         *string `json:"stop_sequence"`
			}
			Usage struct {
				Input    int `json:"input_tokens"`
				Output   int `json:"output_tokens"`
				Read     int `json:"cache_read_input_tokens"`
				Thinking struct {
					N int `json:"thinking_tokens"`
				} `json:"output_tokens_details"`
			}
		}
		if err := json.Unmarshal(ev.Data, &e); err != nil || e.Type != ev.Type {
			return "", fmt.Errorf("event %q %s: %v", ev.Type, ev.Data, err)
		}
		bad := false
		switch e.Type {
		case "message_start":
			bad = state != "" || e.Message.ID == "" || e.Message.Role != "assistant" || e.Message.Type != "message" || e.Message.Content == nil
			state = "message"
		case "content_block_start":
			bad = state != "message" || open >= 0 || e.Index != next
			open, next = e.Index, next+1
			b.WriteString(e.ContentBlock.Type)
			if e.ContentBlock.Type == "tool_use" {
				bad = bad || e.ContentBlock.ID == "" || e.ContentBlock.Input == nil
				id := e.ContentBlock.ID
				if len(id) > 20 {
					id = "made-up"
				}
				fmt.Fprintf(&b, ":%s:%s", id, e.ContentBlock.Name)
			}
			b.WriteString("(")
		case "content_block_delta":
			bad = open != e.Index
			b.WriteString(e.Delta.Text + e.Delta.Thinking + e.Delta.PartialJSON)
		case "content_block_stop":
			bad = open != e.Index
			open = -1
			b.WriteString(") ")
		case "message_delta":
			bad = state != "message" || open >= 0
			state = "end"
			fmt.Fprintf(&b, "%s", e.Delta.StopReason)
			if e.Delta.StopSequence != nil {
				fmt.Fprintf(&b, " %q", *e.Delta.StopSequence)
			}
			fmt.Fprintf(&b, " %d+%d>%d/%d", e.Usage.Input, e.Usage.Read, e.Usage.Output, e.Usage.Thinking.N)
		case "message_stop":
			bad = state != "end"
			state = "over"
		}
		if bad {
			return "", fmt.Errorf("%s out of order: %s", e.Type, ev.Data)
		}
	}
	if last == nil && state != "over" {
		return "", errors.New("no message_stop and no error")
	}
	return b.String(), last
}

// A script results in the same conversation over this API, in one piece and streamed.
func TestConversation(t *testing.T) {
	turn := func() *parleytest.Turn {
		return parleytest.Think("Hm, \u2028 first.").Ping().Say("I look at ", "it <first> ☺.").
			CallID("c1", "Read", `{"file_path": "a.txt", "n": [1, {"x": "\""}]}`).CallID("c2", "Empty", `{}`).
			Usage(parleytest.Usage{Input: 10, Output: 2, CacheRead: 4})
	}
	for _, stream := range []bool{true, false} {
		api := parleytest.NewAPI(t, parleytest.Script(turn().Expect(parleytest.LastUser("go")), parleytest.Expect(parleytest.ToolResult("the file")).Say("Done.")), nil)
		c := newClient(t, Config{BaseURL: api.URL, APIKey: "k"})
		run := c.Stream
		if !stream {
			run = c.Complete
		}
		var seen model.Response
		req := bodyOf(ask)
		req.OnResponse = func(r model.Response) { seen = r }
		got, err := fold(run(t.Context(), req))
		want := "thinking(Hm, \u2028 first.) text(I look at it <first> ☺.) " +
			`tool_use:c1:Read({"file_path": "a.txt", "n": [1, {"x": "\""}]}) tool_use:c2:Empty({}) tool_use 10+4>2/0`
		if got != want || err != nil {
			t.Errorf("got %s %v\nwant %s", got, err, want)
		}
		if seen.Status != 200 {
			t.Errorf("response %+v", seen)
		}
		got, err = fold(run(t.Context(), bodyOf(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"go"},
			{"role":"assistant","content":[{"type":"thinking","thinking":"Hm","signature":"x"},{"type":"text","text":"I look."},{"type":"tool_use","id":"c1","name":"Read","input":{"a":1}},{"type":"tool_use","id":"c2","name":"Empty","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"the file"},{"type":"tool_result","tool_use_id":"c2","content":[]}]}]}`)))
		if err != nil || !strings.HasPrefix(got, "text(Done.) end_turn ") {
			t.Errorf("got %s %v", got, err)
		}
	}
}

func TestTranslate(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", `{"model":"m","system":"be good","max_tokens":7,"temperature":0.50,"top_p":1,"top_k":3,"stop_sequences":["a","b","c","d","e"],"metadata":{},"messages":[{"role":"user","content":"hi"}]}`,
			`{"model":"m","max_tokens":7,"temperature":0.50,"top_p":1,"stop":["a","b","c","d"],"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"system","content":"be good"},{"role":"user","content":"hi"}]}`},
		{"tools", `{"model":"m","tools":[{"name":"a","description":"d","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}},{"type":"web_search_20250305","name":"web_search"},{"type":"custom","name":"b"}],"tool_choice":{"type":"any","disable_parallel_tool_use":true},"messages":[]}`,
			`{"model":"m","tools":[{"type":"function","function":{"name":"a","description":"d","parameters":{"type":"object"}}},{"type":"function","function":{"name":"b","parameters":{"type":"object","properties":{}}}}],"tool_choice":"required","parallel_tool_calls":false,"stream":true,"stream_options":{"include_usage":true},"messages":null}`},
		{"choice", `{"model":"m","tools":[{"name":"a","input_schema":{}}],"tool_choice":{"type":"tool","name":"a"},"messages":[]}`,
			`{"model":"m","tools":[{"type":"function","function":{"name":"a","parameters":{}}}],"tool_choice":{"function":{"name":"a"},"type":"function"},"stream":true,"stream_options":{"include_usage":true},"messages":null}`},
		{"no tools", `{"model":"m","tool_choice":{"type":"none"},"output_config":{"effort":"max","format":{"type":"json_schema","schema":{"type":"object"}}},"messages":[]}`,
			`{"model":"m","reasoning_effort":"high","response_format":{"json_schema":{"name":"output","schema":{"type":"object"},"strict":true},"type":"json_schema"},"stream":true,"stream_options":{"include_usage":true},"messages":null}`},
		{"blocks", `{"model":"m","system":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{}}],"messages":[
			{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},{"type":"image","source":{"type":"url","url":"http://x/y.png"}}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"tool_use","id":"c1","name":"a","input":{"x": 1}}]},
			{"role":"user","content":[{"type":"text","text":"and?"},{"type":"tool_result","tool_use_id":"c1","is_error":true,"content":[{"type":"text","text":"no"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"BBBB"}}]}]},
			{"role":"system","content":"it is late"},
			{"role":"assistant","content":[{"type":"text","text":"one"},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"two"}]},
			{"role":"user","content":[{"type":"document","title":"T","source":{"type":"text","data":"body"}},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"x"}},{"type":"new_thing"}]}]}`,
			`{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"system","content":"a\nb"},` +
				`{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},{"type":"image_url","image_url":{"url":"http://x/y.png"}}]},` +
				`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"a","arguments":"{\"x\": 1}"}}]},` +
				`{"role":"tool","content":"Error: no\n[the image follows in the next message]","tool_call_id":"c1"},` +
				`{"role":"user","content":[{"type":"text","text":"and?"},{"type":"text","text":"[the image of tool call c1]"},{"type":"image_url","image_url":{"url":"data:image/png;base64,BBBB"}}]},` +
				`{"role":"user","content":"it is late"},{"role":"assistant","content":"one\ntwo"},` +
				`{"role":"user","content":"T\nbody\n[a document that this model cannot be shown:  application/pdf]\n[new_thing, which this model cannot be shown]"}]}`},
	} {
		cl := newClient(t, Config{BaseURL: "http://h/v1"})
		for range 2 {
			got, err := cl.translate([]byte(c.in), true, true)
			if err != nil || string(got) != c.want {
				t.Errorf("%s: %v\ngot  %s\nwant %s", c.name, err, got, c.want)
			}
		}
	}
	cl := newClient(t, Config{Reasoning: true})
	got, err := cl.translate([]byte(`{"model":"m","max_tokens":5,"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"x"}]}]}`), false, false)
	if want := `{"model":"m","max_completion_tokens":5,"stream":false,"messages":[{"role":"assistant","content":"x","reasoning_content":"hm"}]}`; string(got) != want || err != nil {
		t.Errorf("got %s %v, want %s", got, err, want)
	}
	for _, bad := range []string{``, `[]`, `{"messages":[{"content":1}]}`, `{"system":5}`} {
		if _, err := fold(cl.Stream(t.Context(), bodyOf(bad))); err == nil || !strings.HasPrefix(err.Error(), "openai: ") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}

// choiceOf returns a chunk with one choice.
func choiceOf(delta, finish string) string {
	if finish != "null" {
		finish = `"` + finish + `"`
	}
	return `data: {"id":"x","model":"m","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + "}]}\n\n"
}

// Deviations of servers from OpenAI's own.
func TestDeviants(t *testing.T) {
	const done = "data: [DONE]\n\n"
	tool := func(rest string) string { return choiceOf(`{"tool_calls":[`+rest+`]}`, "null") }
	for _, c := range []struct{ name, in, want, err string }{
		{"no id, no role", `data: {"choices":[{"delta":{"content":"hi"}}]}` + "\n\n" + `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n" + done, "text(hi) end_turn 0+0>0/0", ""},
		{"no end", choiceOf(`{"content":"hi"}`, "stop"), "text(hi) end_turn 0+0>0/0", ""},
		{"no finish_reason", choiceOf(`{"content":"hi"}`, "null") + done, "text(hi) end_turn 0+0>0/0", ""},
		{"cut", choiceOf(`{"content":"hi"}`, "null"), "text(hi", "unexpected EOF"},
		{"cut inside", choiceOf(`{"content":"hi"}`, "null") + `data: {"choi`, "text(hi", "unexpected EOF"},
		{"nothing", "", "", "unexpected EOF"},
		{"only done", done, "", "unexpected EOF"},
		{"empty choices", `data: {"choices":[]}` + "\n\n" + choiceOf(`{"content":"hi"}`, "stop") + `data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6,"completion_tokens_details":{"reasoning_tokens":3}}}` + "\n\n" + done, "text(hi) end_turn 5+0>6/3", ""},
		{"azure filter first", `data: {"choices":[],"prompt_filter_results":[{}]}` + "\n\n" + choiceOf(`{"content":"hi","role":"assistant"}`, "stop") + done, "text(hi) end_turn 0+0>0/0", ""},
		{"usage in each chunk", strings.ReplaceAll(choiceOf(`{"content":"hi"}`, "null"), `"id"`, `"usage":{"prompt_tokens":5,"completion_tokens":1},"id"`) + strings.ReplaceAll(choiceOf(`{}`, "stop"), `"id"`, `"usage":{"prompt_tokens":5,"completion_tokens":2},"id"`) + done, "text(hi) end_turn 5+0>2/0", ""},
		{"groq", strings.ReplaceAll(choiceOf(`{"content":"hi"}`, "stop"), `"id"`, `"x_groq":{"usage":{"prompt_tokens":5,"completion_tokens":2}},"id"`) + done, "text(hi) end_turn 5+0>2/0", ""},
		{"deepseek", choiceOf(`{"reasoning_content":"hm","content":null}`, "null") + choiceOf(`{"content":"hi","reasoning_content":null}`, "stop") + `data: {"choices":[],"usage":{"prompt_tokens":5,"prompt_cache_hit_tokens":4,"completion_tokens":1}}` + "\n\n" + done, "thinking(hm) text(hi) end_turn 1+4>1/0", ""},
		{"reasoning", choiceOf(`{"reasoning":"h"}`, "null") + choiceOf(`{"reasoning":"m","content":""}`, "null") + choiceOf(`{"content":"hi"}`, "stop") + done, "thinking(hm) text(hi) end_turn 0+0>0/0", ""},
		{"mistral parts", choiceOf(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"hi"}]}`, "stop") + done, "thinking(hm) text(hi) end_turn 0+0>0/0", ""},
		{"ollama", tool(`{"id":"call_1","index":0,"type":"function","function":{"name":"a","arguments":"{\"x\":1}"}}`) + choiceOf(`{"content":""}`, "stop") + done, `tool_use:call_1:a({"x":1}) tool_use 0+0>0/0`, ""},
		{"two in one chunk", tool(`{"id":"c1","index":0,"function":{"name":"a","arguments":"{}"}},{"id":"c2","index":1,"function":{"name":"b","arguments":"{}"}}`) + choiceOf(`{}`, "tool_calls") + done, "tool_use:c1:a({}) tool_use:c2:b({}) tool_use 0+0>0/0", ""},
		{"same index", tool(`{"id":"c1","index":0,"function":{"name":"a","arguments":"{}"}}`) + tool(`{"id":"c2","index":0,"function":{"name":"b","arguments":"{}"}}`) + choiceOf(`{}`, "stop") + done, "tool_use:c1:a({}) tool_use:c2:b({}) tool_use 0+0>0/0", ""},
		{"same index, no ids", tool(`{"index":0,"function":{"name":"a","arguments":"{}"}}`) + tool(`{"index":0,"function":{"name":"a","arguments":"{}"}}`) + choiceOf(`{}`, "stop") + done, "tool_use:made-up:a({}) tool_use:made-up:a({}) tool_use 0+0>0/0", ""},
		{"no index, no id", tool(`{"function":{"name":"a","arguments":{"x": [1]}}},{"function":{"name":"b"}}`) + choiceOf(`{}`, "stop") + done, `tool_use:made-up:a({"x": [1]}) tool_use:made-up:b() tool_use 0+0>0/0`, ""},
		{"no index, in pieces", tool(`{"id":"c1","function":{"name":"a","arguments":""}}`) + tool(`{"function":{"arguments":"{\"x\":"}}`) + tool(`{"function":{"arguments":"1}"}}`) + choiceOf(`{}`, "tool_calls") + done, `tool_use:c1:a({"x":1}) tool_use 0+0>0/0`, ""},
		{"interleaved", tool(`{"id":"c1","index":0,"function":{"name":"a","arguments":"{\"x\""}}`) + tool(`{"id":"c2","index":1,"function":{"name":"b","arguments":"{\"y\""}}`) + tool(`{"index":0,"function":{"arguments":":1}"}}`) + tool(`{"index":1,"function":{"arguments":":2}"}}`) + choiceOf(`{}`, "tool_calls") + done, `tool_use:c1:a({"x":1}) tool_use:c2:b({"y":2}) tool_use 0+0>0/0`, ""},
		{"name in every chunk", tool(`{"id":"c1","index":0,"function":{"name":"a","arguments":"{\"x\""}}`) + tool(`{"id":"c1","index":0,"function":{"name":"a","arguments":":1}"}}`) + choiceOf(`{}`, "tool_calls") + done, `tool_use:c1:a({"x":1}) tool_use 0+0>0/0`, ""},
		{"id later", tool(`{"index":0,"function":{"name":""}}`) + tool(`{"id":"c1","index":0,"function":{"name":"a","arguments":"{}"}}`) + choiceOf(`{}`, "tool_calls") + done, `tool_use:c1:a({}) tool_use 0+0>0/0`, ""},
		{"blank after the end", tool(`{"id":"c1","index":0,"function":{"name":"a","arguments":"{}"}}`) + choiceOf(`{"content":"and"}`, "null") + tool(`{"index":0,"function":{"arguments":"\n"}}`) + choiceOf(`{}`, "tool_calls") + done, `tool_use:c1:a({}) text(and) tool_use 0+0>0/0`, ""},
		{"more after the end", tool(`{"id":"c1","index":0,"function":{"name":"a","arguments":"{}"}}`) + choiceOf(`{"content":"and"}`, "null") + tool(`{"index":0,"function":{"arguments":"{}"}}`), `tool_use:c1:a({}) text(and`, "adds to a call that was complete"},
		{"no name", tool(`{"id":"c1","index":0,"function":{"arguments":"{}"}}`) + choiceOf(`{}`, "tool_calls") + done, "", "a call names no tool"},
		{"broken input", tool(`{"id":"c1","index":0,"function":{"name":"a","arguments":"{\"x"}}`) + choiceOf(`{}`, "length") + done, `tool_use:c1:a({"x) max_tokens 0+0>0/0`, ""},
		{"function_call", choiceOf(`{"function_call":{"name":"a","arguments":"{"}}`, "null") + choiceOf(`{"function_call":{"arguments":"}"}}`, "function_call") + done, "tool_use:made-up:a({}) tool_use 0+0>0/0", ""},
		{"text after a call", tool(`{"id":"c1","index":0,"function":{"name":"a","arguments":"{}"}}`) + choiceOf(`{"content":"so"}`, "stop") + done, "tool_use:c1:a({}) text(so) tool_use 0+0>0/0", ""},
		{"eos", choiceOf(`{"content":"hi"}`, "eos") + done, "text(hi) end_turn 0+0>0/0", ""},
		{"calls that are none", choiceOf(`{"content":"hi"}`, "tool_calls") + done, "text(hi) end_turn 0+0>0/0", ""},
		{"length", choiceOf(`{"content":"hi"}`, "MAX_TOKENS") + done, "text(hi) max_tokens 0+0>0/0", ""},
		{"filter", choiceOf(`{"content":"hi"}`, "content_filter") + done, "text(hi) refusal 0+0>0/0", ""},
		{"refusal", choiceOf(`{"refusal":"no"}`, "stop") + done, "text(no) refusal 0+0>0/0", ""},
		{"vllm stop", strings.Replace(choiceOf(`{"content":"hi"}`, "stop"), `"finish_reason"`, `"stop_reason":"END","finish_reason"`, 1) + done, `text(hi) stop_sequence "END" 0+0>0/0`, ""},
		{"vllm token", strings.Replace(choiceOf(`{"content":"hi"}`, "stop"), `"finish_reason"`, `"stop_reason":128001,"finish_reason"`, 1) + done, `text(hi) end_turn 0+0>0/0`, ""},
		{"other choice", `data: {"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}` + "\n\n" + done, "text(hi) end_turn 0+0>0/0", ""},
		{"error", choiceOf(`{"content":"hi"}`, "null") + `data: {"error":{"message":"out of memory","type":"server_error","code":500}}` + "\n\n", "text(hi", "model: server_error: out of memory"},
		{"error text", `data: {"error":"model not found"}` + "\n\n", "", "model: api_error: model not found"},
		{"vllm error", `data: {"object":"error","message":"bad","type":"BadRequestError","code":400}` + "\n\n", "", "model: api_error: bad"},
		{"error event", "event: error\ndata: oh no\n\n", "", "model: api_error: oh no"},
		{"finish error", choiceOf(`{"content":"hi"}`, "error") + done, "text(hi", "ended the answer with an error"},
		{"malformed", choiceOf(`{"content":"hi"}`, "null") + "data: {oops}\n\n", "text(hi", "malformed event: it is not JSON"},
		{"wrong kind", "data: {\"choices\":5}\n\n", "", "malformed event"},
		{"comments", ": OPENROUTER PROCESSING\n\n" + choiceOf(`{"content":"hi"}`, "stop") + "data:\n\n" + done, "text(hi) end_turn 0+0>0/0", ""},
		{"bad utf-8", choiceOf("{\"content\":\"h\xffi\"}", "stop") + done, "text(h\ufffdi) end_turn 0+0>0/0", ""},
		{"surrogate", choiceOf(`{"content":"h\ud800i"}`, "stop") + done, "text(h\ufffdi) end_turn 0+0>0/0", ""},
		{"crlf", strings.ReplaceAll(choiceOf(`{"content":"hi"}`, "stop")+done, "\n", "\r\n"), "text(hi) end_turn 0+0>0/0", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := served(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, c.in)
			})
			got, err := fold(cl.Stream(t.Context(), bodyOf(ask)))
			if got != c.want || c.err == "" && err != nil || !strings.Contains(fmt.Sprint(err), c.err) {
				t.Errorf("got %s, error %v\nwant %s, error %s", got, err, c.want, c.err)
			}
		})
	}
}

// TestReceivedUsageIsSent checks that the first event of an answer in one piece has its usage, and
// that usage is not lost if the connection breaks right after it.
func TestReceivedUsageIsSent(t *testing.T) {
	const usage = `"usage":{"prompt_tokens":5,"completion_tokens":6}`
	whole := served(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"choices":[{"message":{"content":"hi"}}],`+usage+`}`)
	})
	for ev, err := range whole.Complete(t.Context(), bodyOf(ask)) {
		if err != nil || ev.Type != "message_start" || !strings.Contains(string(ev.Data), `"input_tokens":5,`) || !strings.Contains(string(ev.Data), `"output_tokens":6,`) {
			t.Errorf("got %s, error %v, want a start with 5 and 6 tokens", ev.Data, err)
		}
		break
	}
	lost := served(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, choiceOf(`{"content":"hi"}`, "stop")+`data: {"choices":[],`+usage+"}\n\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	if got, err := fold(lost.Stream(t.Context(), bodyOf(ask))); got != "text(hi) end_turn 5+0>6/0" || err != nil {
		t.Errorf("got %s, error %v, want the whole answer", got, err)
	}
}

// Answers in one piece, requested or not.
func TestWhole(t *testing.T) {
	for _, c := range []struct{ in, want, err string }{
		{`{"choices":[{"message":{"content":"hi","reasoning":"hm","tool_calls":[{"id":"c1","function":{"name":"a","arguments":"{}"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
			"thinking(hm) text(hi) tool_use:c1:a({}) tool_use 1+0>2/0", ""},
		{`{"choices":[{"message":{"content":"hi"}}]}`, "text(hi) end_turn 0+0>0/0", ""},
		{`{"choices":[]}`, "", "it has no choices"},
		{`{"error":{"message":"no"}}`, "", "model: api_error: no"},
		{`{`, "", "it is not JSON"},
	} {
		cl := served(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, c.in)
		})
		for _, run := range []func(context.Context, model.Request) func(func(model.Event, error) bool){
			func(ctx context.Context, r model.Request) func(func(model.Event, error) bool) {
				return cl.Stream(ctx, r)
			},
			func(ctx context.Context, r model.Request) func(func(model.Event, error) bool) {
				return cl.Complete(ctx, r)
			},
		} {
			got, err := fold(run(t.Context(), bodyOf(ask)))
			if got != c.want || c.err == "" && err != nil || !strings.Contains(fmt.Sprint(err), c.err) {
				t.Errorf("%s: got %s, error %v", c.in, got, err)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		status     int
		body, want string
	}{
		{401, `{"error":{"message":"Incorrect API key","type":"invalid_request_error","code":"invalid_api_key"}}`, "model: 401 authentication_error: Incorrect API key"},
		{429, `{"error":{"message":"slow"}}`, "model: 429 rate_limit_error: slow"},
		{404, `{"error":"model \"x\" not found"}`, `model: 404 not_found_error: model "x" not found`},
		{400, `{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}`, "model: 400 invalid_request_error: prompt is too long: This model's maximum context length is 8192 tokens."},
		{500, `{"error":{"code":500,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error"}}`, "model: 500 invalid_request_error: prompt is too long: the request exceeds the available context size, try increasing it"},
		{503, `<html>`, "model: 503 api_error: Service Unavailable"},
	} {
		cl := served(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(c.status)
			io.WriteString(w, c.body)
		})
		if _, err := fold(cl.Stream(t.Context(), bodyOf(ask))); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// If a server does not support stream_options, the request is repeated without it.
func TestNoStreamOptions(t *testing.T) {
	n := 0
	cl := served(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		n++
		if b, _ := io.ReadAll(r.Body); strings.Contains(string(b), "stream_options") {
			w.WriteHeader(422)
			io.WriteString(w, `{"detail":[{"loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}`)
			return
		}
		io.WriteString(w, choiceOf(`{"content":"hi"}`, "stop"))
	})
	answers := 0
	req := bodyOf(ask)
	req.OnResponse = func(model.Response) { answers++ }
	if got, err := fold(cl.Stream(t.Context(), req)); got != "text(hi) end_turn 0+0>0/0" || err != nil || n != 2 || answers != 1 {
		t.Errorf("got %s %v after %d requests", got, err, n)
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		turn *parleytest.Turn
		is   func(error) bool
	}{
		{"cut", parleytest.Say("hello").Cut().After(3), func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"clean", parleytest.Say("hello").CutClean().After(3), func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"reset", parleytest.Say("hello").Reset().After(3), func(err error) bool { return errors.Is(err, syscall.ECONNRESET) }},
		{"malformed", parleytest.Say("hello").Malformed("{").After(3), func(err error) bool { _, ok := errors.AsType[*model.EventError](err); return ok }},
		{"error", parleytest.Say("hello").StreamError("server_error", "Too much").After(3), func(err error) bool {
			e, ok := errors.AsType[*model.Error](err)
			return ok && e.Status == 0 && e.Message == "Too much"
		}},
		{"refused", parleytest.Fail(529).RetryAfter(3 * time.Second), func(err error) bool {
			e, ok := errors.AsType[*model.Error](err)
			return ok && e.Status == 529 && e.Type == "overloaded_error" && e.RetryAfter == 3*time.Second
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := parleytest.NewAPI(t, parleytest.Script(c.turn), nil)
			cl := newClient(t, Config{BaseURL: api.URL, APIKey: "k", IdleTimeout: time.Hour})
			if _, err := fold(cl.Stream(t.Context(), bodyOf(ask))); !c.is(err) {
				t.Errorf("error %T %v", err, err)
			}
		})
	}
}

// A roundTripper answers without a network, in the time of a bubble.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A stream that stops in the middle of an answer is idle.
func TestIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newClient(t, Config{IdleTimeout: time.Minute, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			pr, pw := io.Pipe()
			go func() {
				time.Sleep(59 * time.Second)
				io.WriteString(pw, `data: {"choices":[{"index":0,"delta":{"content":"hello"}}]}`+"\n\n")
				<-r.Context().Done()
				pw.CloseWithError(r.Context().Err())
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: pr}, nil
		})})
		start := time.Now()
		_, err := fold(cl.Stream(t.Context(), bodyOf(ask)))
		if e, ok := errors.AsType[*model.IdleError](err); !ok || e.After != time.Minute || time.Since(start) != 119*time.Second {
			t.Errorf("error %v after %v", err, time.Since(start))
		}
	})
}

func TestAddress(t *testing.T) {
	for base, want := range map[string]string{
		"":                                  "https://api.openai.com/v1/chat/completions",
		"http://localhost:11434":            "http://localhost:11434/v1/chat/completions",
		"http://localhost:11434/":           "http://localhost:11434/v1/chat/completions",
		"http://h/api/v3/":                  "http://h/api/v3/chat/completions",
		"http://h/v1/chat/completions":      "http://h/v1/chat/completions",
		"https://h/openai/x?api-version=24": "https://h/openai/x/chat/completions?api-version=24",
	} {
		if c := newClient(t, Config{BaseURL: base}); c.to != want {
			t.Errorf("%s: %s, want %s", base, c.to, want)
		}
	}
	if _, err := New(Config{BaseURL: "localhost:1"}); err == nil {
		t.Error("an address without a scheme is taken")
	}
}

func TestHeaders(t *testing.T) {
	cl := served(t, Config{APIKey: "k", Header: http.Header{"api-key": {"a"}}, UserAgent: "parley/1"}, func(w http.ResponseWriter, r *http.Request) {
		for k, v := range map[string]string{"Authorization": "Bearer k", "Api-Key": "a", "User-Agent": "parley/1", "Anthropic-Beta": "", "X-Mine": "1"} {
			if r.Header.Get(k) != v {
				t.Errorf("%s: %q", k, r.Header.Get(k))
			}
		}
		io.WriteString(w, choiceOf(`{}`, "stop"))
	})
	if _, err := fold(cl.Stream(t.Context(), model.Request{Body: []byte(ask), Header: http.Header{"Anthropic-Beta": {"x"}, "X-Mine": {"1"}}})); err != nil {
		t.Error(err)
	}
}

// A consumer always receives a well-formed message or an error.
func FuzzStream(f *testing.F) {
	f.Add(choiceOf(`{"content":"hi"}`, "stop"))
	f.Add(choiceOf(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"b","arguments":"{"}},{"index":1,"function":{"name":"c","arguments":{}}}]}`, "null") + "data: [DONE]\n\n")
	f.Add(choiceOf(`{"content":[{"text":"x"},{"thinking":"y"}],"function_call":{"name":"z"}}`, "length"))
	f.Fuzz(func(t *testing.T, in string) {
		w := &writer{}
		_, err := fold(func(yield func(model.Event, error) bool) {
			w.yield = yield
			for block := range strings.SplitSeq(in, "\n\n") {
				ch, err := parse([]byte(strings.TrimPrefix(block, "data: ")))
				if err != nil || ch.failed() {
					continue
				}
				if err := w.writeChunk(ch); err != nil {
					yield(model.Event{}, err)
					return
				}
			}
			if err := w.finish(); err != nil {
				yield(model.Event{}, err)
			}
		})
		if err != nil && (strings.Contains(err.Error(), "out of order") || strings.Contains(err.Error(), "no message_stop") || strings.HasPrefix(err.Error(), "event ")) {
			t.Error(err)
		}
	})
}

func BenchmarkStream(b *testing.B) {
	one := []byte(strings.TrimPrefix(strings.TrimSpace(choiceOf(`{"content":"some words of an answer, "}`, "null")), "data: "))
	w := &writer{yield: func(model.Event, error) bool { return true }}
	b.ReportAllocs()
	for b.Loop() {
		ch, err := parse(one)
		if err == nil {
			err = w.writeChunk(ch)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
