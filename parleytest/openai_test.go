package parleytest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func chatHeader() http.Header {
	return http.Header{"Authorization": {"Bearer sk-test-12345678"}, "Content-Type": {"application/json"}}
}

func TestChat(t *testing.T) {
	api := NewAPI(t, Script(
		Expect(LastUser("hi"), SystemPrompt("be kind"), Tools("Read")).Think("hm").Say("hel", "lo").Call("Read", `{"a":1}`).Call("Read", `{}`).Usage(Usage{Input: 3, Output: 4, CacheRead: 5}),
		Expect(ToolResult("contents")).Say("bye").Stop("max_tokens"),
	), nil)
	const tools = `"tools":[{"type":"function","function":{"name":"Read","parameters":{"type":"object"}}}]`
	resp, body := postHeader(t, api.URL+"/v1/chat/completions", chatHeader(),
		`{"model":"gpt","stream":true,"stream_options":{"include_usage":true},`+tools+`,"messages":[{"role":"system","content":"be kind"},{"role":"user","content":[{"type":"text","text":"hi"}]}]}`)
	if resp.StatusCode != 200 || !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	var text, args, finish string
	var ids []string
	var usage *chatUsage
	for line := range strings.SplitSeq(body, "\n") {
		data, ok := strings.CutPrefix(line, "data: {")
		if !ok {
			continue
		}
		var c struct {
			ID, Object string
			Choices    []struct {
				Delta        chatDelta
				FinishReason string `json:"finish_reason"`
			}
			Usage *chatUsage
		}
		if err := json.Unmarshal([]byte("{"+data), &c); err != nil {
			t.Fatal(err)
		}
		if c.ID != "chatcmpl-main_1" || c.Object != "chat.completion.chunk" {
			t.Errorf("chunk %s", line)
		}
		if c.Usage != nil {
			usage = c.Usage
		}
		for _, ch := range c.Choices {
			if ch.Delta.Content != nil {
				text += *ch.Delta.Content
			}
			for _, call := range ch.Delta.ToolCalls {
				if call.ID != "" {
					ids = append(ids, call.ID)
				}
				args += call.Function.Arguments
			}
			finish += ch.FinishReason
		}
	}
	if text != "hello" || args != `{"a":1}{}` || finish != "tool_calls" || strings.Join(ids, " ") != "toolu_main_1_1 toolu_main_1_2" {
		t.Errorf("text %q, arguments %q, ids %q, finish %q", text, args, ids, finish)
	}
	if usage == nil || usage.Prompt != 8 || usage.Completion != 4 || usage.Total != 12 || usage.Details.Cached != 5 {
		t.Errorf("usage %+v", usage)
	}

	_, body = postHeader(t, api.URL+"/v1/chat/completions", chatHeader(),
		`{"model":"gpt",`+tools+`,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"Read","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"contents"}]}`)
	var whole struct {
		Object  string
		Choices []struct {
			Message      struct{ Role, Content string }
			FinishReason string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal([]byte(body), &whole); err != nil || whole.Object != "chat.completion" || whole.Choices[0].Message.Content != "bye" || whole.Choices[0].FinishReason != "length" {
		t.Errorf("%v: %s", err, body)
	}
}

func TestChatRules(t *testing.T) {
	for _, rule := range ChatRules() {
		t.Run(rule.Name, func(t *testing.T) {
			api := NewHandler(Script(), nil)
			if err := api.Listen("127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			defer api.Close()
			header, body := rule.Breaks()
			resp, got := postHeader(t, api.URL+"/v1/chat/completions", header, string(body))
			var e struct {
				Error struct {
					Message, Type string
					Param, Code   *string
				}
			}
			if err := json.Unmarshal([]byte(got), &e); err != nil {
				t.Fatalf("%v: %s", err, got)
			}
			if resp.StatusCode != rule.Status || e.Error.Type != rule.Type || e.Error.Message != rule.Message {
				t.Errorf("got  %d %s\nwant %d %s", resp.StatusCode, got, rule.Status, rule.Message)
			}
			if ref, ok := api.Requests()[0].Err.(*Refusal); !ok || ref.Rule != rule.Name {
				t.Errorf("refused by %v, want %s", api.Requests()[0].Err, rule.Name)
			}
		})
	}
}

func TestChatFaults(t *testing.T) {
	api := NewAPI(t, Script(Fail(429), Say("x").StreamError("server_error", "oops"), Say("x").Malformed("{bad").After(1), Say("x").Cut().After(2)), nil)
	send := func() (*http.Response, string, error) {
		return tryPost(t, api.URL+"/v1/chat/completions", chatHeader(), `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	}
	if resp, body, _ := send(); resp.StatusCode != 429 || !strings.Contains(body, `"type":"rate_limit_error"`) {
		t.Errorf("fail: %s", body)
	}
	if _, body, err := send(); err != nil || !strings.Contains(body, `data: {"error":{`) || strings.Contains(body, "[DONE]") {
		t.Errorf("error: %v %s", err, body)
	}
	if _, body, err := send(); err != nil || !strings.Contains(body, "data: {bad\n\n") {
		t.Errorf("malformed: %v %s", err, body)
	}
	if _, body, err := send(); err == nil {
		t.Errorf("cut: %s", body)
	}
}

func TestModels(t *testing.T) {
	api := NewAPI(t, Script(), nil)
	resp, err := http.Get(api.URL + "/v1/models")
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("%v %v", resp, err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp, body := postHeader(t, api.URL+"/v1/chat/none", chatHeader(), "{}"); resp.StatusCode != 404 || !strings.Contains(body, "Invalid URL") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}
