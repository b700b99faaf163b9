package wire

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzDelta compares the fast path for stream events with the slow one: if the fast path
// returns a message, the slow one returns the same.
func FuzzDelta(f *testing.F) {
	const event = `{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`
	for _, rest := range []string{
		`,"parent_tool_use_id":null,"uuid":"u","session_id":"s","api_message_id":"m"}`,
		`,"session_id":"s","parent_tool_use_id":null,"uuid":"u"}`,
		`,"parent_tool_use_id":null}`,
		`,"uuid":"u"}`,
		`,"parent_tool_use_id":null,"uuid":"u","uuid":"v"}`,
		`,"parent_tool_use_id":null,"parent_tool_use_id":"p"}`,
		`,"parent_tool_use_id":null,"uuid":"","session_id":null}`,
		`,"parent_tool_use_id":null,"uuid":"\u0041","ttft_ms":3}`,
		`,"parent_tool_use_id":null,"type":"result"}`,
		`,"parent_tool_use_id":null}}`,
		`,"parent_tool_use_id":null,}`,
		`,"parent_tool_use_id":null,"uuid":"é","timestamp":"` + "\xff" + `"}`,
	} {
		f.Add([]byte(event + rest))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		short := new(Decoder).delta(line, 0)
		if short == nil {
			return
		}
		if !utf8.Valid(line) {
			t.Fatalf("a stream event was read from %q, which is not UTF-8", line)
		}
		var d Decoder
		for more := 2; more >= 0; more-- { // in shared memory
			if m := d.delta(line, more); !reflect.DeepEqual(m, short) {
				t.Fatalf("%q\n alone %#v\n in shared memory %#v", line, short, m)
			}
		}
		parts, err := scan(line)
		if err != nil {
			t.Fatalf("a stream event was read from %q: %v", line, err)
		}
		defer parts.release()
		if usual := decodeMessage(parts.root()); !reflect.DeepEqual(usual, Message(short)) {
			t.Fatalf("%q\n fast %#v\n slow %#v", line, short, usual)
		}
	})
}

// An event that shares memory does not change when others are decoded, changed in place or
// appended to.
func TestDecoderKeepsEventsApart(t *testing.T) {
	line := func(i int) []byte {
		session, message := "s", "m"
		if i%5 == 0 {
			session, message = "another", ""
		}
		return fmt.Appendf(nil, `{"type":"stream_event","event":{"n":%d},"session_id":"%s","parent_tool_use_id":null,"uuid":"u%d","api_message_id":"m%s","timestamp":"t%d"}`, i, session, i, message, i)
	}
	var d Decoder
	var got []*StreamEvent
	for i := range 100 {
		m, err := d.Decode(line(i), 99-i)
		if err != nil {
			t.Fatal(err)
		}
		e := m.(*StreamEvent)
		got = append(got, e)
		_ = append(e.Event, "and more"...)
	}
	got[3].Event[1] = '?'
	for i, e := range got {
		if i == 3 {
			continue
		}
		if want, _ := Decode(line(i)); !reflect.DeepEqual(e, want) {
			t.Errorf("event %d is %#v, want %#v", i, e, want)
		}
	}
}

// Decoding a backlog of stream events allocates much less than once for each event.
func TestDecoderSharesMemory(t *testing.T) {
	line := []byte(`{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"é"}},"session_id":"s","parent_tool_use_id":null,"uuid":"a35c3d0c"}`)
	var d Decoder
	if n := testing.AllocsPerRun(1000, func() { d.Decode(line, 100) }); n > 0.5 {
		t.Errorf("%v allocations for an event of many", n)
	}
	if n := testing.AllocsPerRun(1000, func() { d.Decode(line, 0) }); n > 3 {
		t.Errorf("%v allocations for one event", n)
	}
}

// FuzzAssistant is FuzzDelta for assistant messages.
func FuzzAssistant(f *testing.F) {
	const (
		message = `{"model":"m","id":"i","type":"message","role":"assistant","content":[{"type":"text","text":"a"}],"stop_reason":null,"stop_sequence":null,`
		usage   = `"usage":{"input_tokens":1,"cache_creation_input_tokens":0,"cache_read_input_tokens":30,"output_tokens":1,"service_tier":"standard"}}`
		rest    = `,"parent_tool_use_id":null,"session_id":"s","uuid":"u","request_id":"r"}`
	)
	usual := `{"type":"assistant","message":` + message + usage + rest
	f.Add([]byte(usual))
	for _, change := range [][2]string{
		{`"a"`, `"\u00e9\n\ud83d\ude00"`},
		{`"a"`, `"\ud800"`},
		{`"a"}`, `"a","citations":null}`},
		{`"a"}]`, `"a"},{"type":"tool_use","id":"t","name":"Bash","input":{"command":"ls"}}]`},
		{`[{"type":"text","text":"a"}]`, `"a"`},
		{`[{"type":"text","text":"a"}]`, `[]`},
		{`[{"type":"text","text":"a"}]`, `null`},
		{`[{"type":"text","text":"a"}]`, `[{"type":"thinking","thinking":"t","signature":""},null,1]`},
		{`"stop_reason":null`, `"stop_reason":"end_turn"`},
		{`"stop_reason":null,`, ``},
		{`"stop_reason":null`, `"stop_reason":""`},
		{`:30,`, `:1.0,`},
		{`:30,`, `:030,`},
		{`:30,`, `:-3,`},
		{`:30,`, `:null,`},
		{`:30,`, `:3e1,`},
		{`:30,`, `:12345678901234567890,`},
		{`:30,`, `:30,"cache_creation":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":2},`},
		{`:30,`, `:30,"cache_creation":{"ephemeral_5m_input_tokens":1},"server_tool_use":{"web_search_requests":1},`},
		{`"standard"`, `"standard","service_tier":"x"`},
		{`"standard"`, `""`},
		{`"input_tokens":1,`, ``},
		{`"cache_creation_input_tokens":0,`, ``},
		{`"cache_read_input_tokens":30,`, ``},
		{`"output_tokens":1,`, ``},
		{`"usage":{`, `"usage":null,"other":{`},
		{`"usage":{`, `"context_management":null,"container":{"id":"c"},"usage":{`},
		{`"usage":{`, `"error":"rate_limit","usage":{`},
		{`"role":"assistant"`, `"role":"user"`},
		{`null,"session_id"`, `"toolu_1","session_id"`},
		{`null,"session_id"`, `"","session_id"`},
		{`"uuid":"u"`, `"uuid":"u","timestamp":"2026","error":"overloaded"`},
		{`"uuid":"u"`, `"uuid":""`},
		{`"uuid":"u"`, `"uuid":"u","uuid":"v"`},
		{`"r"}`, `"r"} `},
		{`"r"}`, `"r"}}`},
		{`"r"}`, `"r",}`},
	} {
		f.Add([]byte(strings.Replace(usual, change[0], change[1], 1)))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		short := decodeAssistant(line)
		if short == nil {
			return
		}
		d, err := scan(line)
		if err != nil {
			t.Fatalf("an assistant message was read from %q: %v", line, err)
		}
		defer d.release()
		if usual := decodeMessage(d.root()); !reflect.DeepEqual(usual, Message(short)) {
			t.Fatalf("%q\n fast %#v\n slow %#v", line, short, usual)
		}
	})
}

// TestUsualLinesTakeTheFastPath checks that the fast path reads the lines of the official CLI, and leaves
// unusual ones to decodeMessage. The fuzz targets accept a fast path that reads nothing.
func TestUsualLinesTakeTheFastPath(t *testing.T) {
	const (
		delta = `{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}},` +
			`"session_id":"s","parent_tool_use_id":null,"uuid":"u","api_message_id":"m","timestamp":"2026"}`
		answer = `{"type":"assistant","message":{"model":"m","id":"i","type":"message","role":"assistant","content":[{"type":"text","text":"a"}],` +
			`"stop_reason":"end_turn","stop_sequence":null,"stop_details":null,"usage":{"input_tokens":1,"cache_creation_input_tokens":0,` +
			`"cache_read_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":4,"ephemeral_1h_input_tokens":5},"output_tokens":7,` +
			`"service_tier":"standard","inference_geo":"eu"},"context_management":null,"container":{"id":"c"},"diagnostics":null},` +
			`"parent_tool_use_id":null,"session_id":"s","uuid":"u","request_id":"r","timestamp":"2026"}`
	)
	for _, c := range []struct {
		line, old, new string
		fast           bool
	}{
		{delta, ``, ``, true},
		{delta, `"index":0`, `"index":12`, true},
		{delta, `{"type":"text_delta","text":"a"}`, `{"type":"input_json_delta","partial_json":"{"}`, true},
		{delta, `"session_id":"s","parent_tool_use_id":null,"uuid":"u"`, `"uuid":"u","parent_tool_use_id":null,"session_id":"s"`, true},
		{delta, `,"timestamp":"2026"`, ``, true},
		{delta, `"parent_tool_use_id":null,`, ``, false},
		{delta, `"uuid":"u"`, `"uuid":"u","uuid":"u"`, false},
		{delta, `"uuid":"u"`, `"uuid":""`, false},
		{delta, `"uuid":"u"`, `"uuid":"\u0041"`, false},
		{delta, `"uuid":"u"`, `"other":"u"`, false},
		{delta, `"uuid":"u"`, `"uuid":7`, false},
		{delta, `"2026"}`, `"2026"} `, false},
		{delta, `"2026"}`, `"2026"`, false},
		{delta, `"2026"}`, `"2026`, false},
		{delta, `"2026"}`, ``, false},
		{answer, ``, ``, true},
		{answer, `"a"`, `"\u00e9"`, true},
		{answer, `"a"`, `""`, true},
		{answer, `{"type":"text","text":"a"}`, `{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"Bash","input":{}}`, true},
		{answer, `:30,`, `:123456789012345678,`, true},
		{answer, `"parent_tool_use_id":null`, `"parent_tool_use_id":"toolu_1"`, true},
		{answer, `"standard"`, `"batch"`, true},
		{answer, `"stop_reason":"end_turn"`, `"stop_reason":null`, true},
		{answer, `"stop_reason":"end_turn",`, ``, false},
		{answer, `"stop_sequence":null,`, ``, false},
		{answer, `"role":"assistant",`, ``, false},
		{answer, `"parent_tool_use_id":null,`, ``, false},
		{answer, `"2026"}`, `"2026"}}`, false},
	} {
		line := strings.Replace(c.line, c.old, c.new, 1)
		var got Message
		if d := new(Decoder).delta([]byte(line), 0); d != nil {
			got = d
		}
		if a := decodeAssistant([]byte(line)); a != nil {
			got = a
		}
		if (got != nil) != c.fast {
			t.Errorf("%s\ntakes the fast path: %v, want %v", line, got != nil, c.fast)
		}
		if d, err := scan([]byte(line)); got != nil && err == nil {
			if slow := decodeMessage(d.root()); !reflect.DeepEqual(slow, got) {
				t.Errorf("%s\n fast %#v\n slow %#v", line, got, slow)
			}
			d.release()
		}
	}
}

// TestUsualUsageTakesTheFastPath checks that the fast path reads usual numbers and rejects all others.
func TestUsualUsageTakesTheFastPath(t *testing.T) {
	for text, want := range map[string]bool{
		"0,": true, "7}": true, "10,": true, "123456789012345678,": true,
		"": false, ",": false, "7": false, "07,": false, "1234567890123456789,": false, "1.0,": false, "1e3,": false, "-1,": false, "1]": false, "1 ,": false,
	} {
		c := cursor{line: []byte(text)}
		if n, ok := c.count(); ok != want || ok && strconv.FormatInt(n, 10) != strings.TrimRight(text, ",}") {
			t.Errorf("%q: got %d, %v, want %v", text, n, ok, want)
		}
	}
	c := cursor{line: []byte(`{"ephemeral_1h_input_tokens":5,"ephemeral_5m_input_tokens":4}`)}
	var got CacheCreation
	if ok := c.cache(&got); !ok || got.Ephemeral5mInputTokens != 4 || got.Ephemeral1hInputTokens != 5 {
		t.Errorf("got %+v, %v, want 4 and 5", got, ok)
	}
	c = cursor{line: []byte(`{"ephemeral_1h_input_tokens":5}`)}
	if c.cache(&got) {
		t.Error("cache accepted an object without ephemeral_5m_input_tokens")
	}
}
