package messages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/internal/rawjson"
)

// Split returns the events that a stream would have sent for a message. Unknown members
// stay in message_start and content_block_start.
func Split(message []byte) ([]model.Event, error) {
	var m struct {
		Type         string            `json:"type"`
		Content      []json.RawMessage `json:"content"`
		StopReason   json.RawMessage   `json:"stop_reason"`
		StopSequence json.RawMessage   `json:"stop_sequence"`
		StopDetails  json.RawMessage   `json:"stop_details"`
		Container    json.RawMessage   `json:"container"`
		Context      json.RawMessage   `json:"context_management"`
		Usage        json.RawMessage   `json:"usage"`
	}
	value := jsontext.Value(bytes.ToValidUTF8(message, []byte("\ufffd")))
	if err := value.Compact(jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, errors.New("the answer is not JSON")
	}
	// The code below looks up the same names with rawjson, in exactly this case.
	if err := json.Unmarshal(value, &m); err != nil {
		return nil, fmt.Errorf("the answer is not a message: %w", err)
	}
	if m.Type != "message" {
		return nil, fmt.Errorf("the answer is of type %q, not a message", m.Type)
	}
	s := splitter{}
	start := rawjson.Set(value, "content", "[]")
	start = rawjson.Set(start, "stop_reason", "null")
	start = rawjson.Set(start, "stop_sequence", "null")
	for _, name := range []string{"stop_details", "context_management"} {
		start = rawjson.Delete(start, name)
	}
	s.add("message_start", `"message":%s`, start)
	for i, block := range m.Content {
		s.block(i, block)
	}
	delta := fmt.Sprintf(`"stop_reason":%s,"stop_sequence":%s`, orNull(m.StopReason), orNull(m.StopSequence))
	if m.StopDetails != nil {
		delta += `,"stop_details":` + string(m.StopDetails)
	}
	if m.Container != nil {
		delta += `,"container":` + string(m.Container)
	}
	rest := ""
	if m.Usage != nil {
		rest += `,"usage":` + string(m.Usage)
	}
	if m.Context != nil {
		rest += `,"context_management":` + string(m.Context)
	}
	s.add("message_delta", `"delta":{%s}%s`, delta, rest)
	s = append(s, model.Event{Type: "message_stop", Data: []byte(`{"type":"message_stop"}`)})
	return s, nil
}

type splitter []model.Event

func (s *splitter) add(typ, format string, args ...any) {
	*s = append(*s, model.Event{Type: typ, Data: fmt.Appendf(nil, `{"type":%q,`+format+`}`, append([]any{typ}, args...)...)})
}

// block adds the events of one content block.
func (s *splitter) block(index int, block []byte) {
	start := block
	var deltas []string
	// part moves a member from the block to a delta.
	part := func(name, empty, delta, as string) {
		v := rawjson.Get(block, name)
		if v == nil {
			return
		}
		start = rawjson.Set(start, name, empty)
		if string(v) != empty {
			deltas = append(deltas, fmt.Sprintf(`{"type":%q,%q:%s}`, delta, as, v))
		}
	}
	switch rawjson.String(block, "type") {
	case "text":
		part("text", `""`, "text_delta", "text")
		var citations []json.RawMessage
		if json.Unmarshal(rawjson.Get(block, "citations"), &citations) == nil && len(citations) > 0 {
			start = rawjson.Set(start, "citations", "[]")
			for _, c := range citations {
				deltas = append(deltas, `{"type":"citations_delta","citation":`+string(c)+`}`)
			}
		}
	case "thinking":
		part("thinking", `""`, "thinking_delta", "thinking")
		part("signature", `""`, "signature_delta", "signature")
	case "tool_use", "server_tool_use", "mcp_tool_use":
		if v := rawjson.Get(block, "input"); v != nil && string(v) != "{}" {
			start = rawjson.Set(start, "input", "{}")
			quoted, err := jsontext.AppendQuote(nil, v)
			if err == nil {
				deltas = append(deltas, `{"type":"input_json_delta","partial_json":`+string(quoted)+`}`)
			}
		}
	}
	s.add("content_block_start", `"index":%d,"content_block":%s`, index, start)
	for _, d := range deltas {
		s.add("content_block_delta", `"index":%d,"delta":%s`, index, d)
	}
	s.add("content_block_stop", `"index":%d`, index)
}

func orNull(raw json.RawMessage) string {
	if raw == nil {
		return "null"
	}
	return string(raw)
}
