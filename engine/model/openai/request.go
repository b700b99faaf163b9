package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// A request is a request of the Messages API, as far as it can be translated.
type request struct {
	Model       string          `json:"model"`
	System      json.RawMessage `json:"system"`
	Messages    []message       `json:"messages"`
	MaxTokens   int64           `json:"max_tokens"`
	Temperature json.RawMessage `json:"temperature"`
	TopP        json.RawMessage `json:"top_p"`
	Stop        []string        `json:"stop_sequences"`
	Tools       []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"input_schema"`
	} `json:"tools"`
	ToolChoice *struct {
		Type            string `json:"type"`
		Name            string `json:"name"`
		DisableParallel bool   `json:"disable_parallel_tool_use"`
	} `json:"tool_choice"`
	OutputConfig struct {
		Effort string  `json:"effort"`
		Format *format `json:"format"`
	} `json:"output_config"`
	OutputFormat *format `json:"output_format"`
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type format struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

// A block is any content block.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
	Title     string          `json:"title"`
	Source    struct {
		Type      string          `json:"type"`
		MediaType string          `json:"media_type"`
		Data      string          `json:"data"`
		URL       string          `json:"url"`
		Content   json.RawMessage `json:"content"`
	} `json:"source"`
}

// A chatRequest is a request of the chat completions API. The order of the fields is
// that of the bytes; members that change from turn to turn come last.
type chatRequest struct {
	Model               string          `json:"model"`
	Tools               []chatTool      `json:"tools,omitempty"`
	ToolChoice          any             `json:"tool_choice,omitempty"`
	ParallelToolCalls   *bool           `json:"parallel_tool_calls,omitempty"`
	MaxTokens           int64           `json:"max_tokens,omitempty"`
	MaxCompletionTokens int64           `json:"max_completion_tokens,omitempty"`
	Temperature         json.RawMessage `json:"temperature,omitempty"`
	TopP                json.RawMessage `json:"top_p,omitempty"`
	Stop                []string        `json:"stop,omitempty"`
	ReasoningEffort     string          `json:"reasoning_effort,omitempty"`
	ResponseFormat      any             `json:"response_format,omitempty"`
	Stream              bool            `json:"stream"`
	StreamOptions       *streamOptions  `json:"stream_options,omitempty"`
	Messages            []chatMessage   `json:"messages"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type chatTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

type chatMessage struct {
	Role       string     `json:"role"`
	Content    any        `json:"content"` // a string or []part
	Reasoning  string     `json:"reasoning_content,omitempty"`
	ToolCalls  []chatCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type chatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type part struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

// translate translates the body of a Messages API request to that of a chat completions
// request. The same body always results in the same bytes.
func (c *Client) translate(body []byte, stream, usage bool) ([]byte, error) {
	var in request
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("the request: %w", err)
	}
	out := chatRequest{
		Model: in.Model, Temperature: in.Temperature, TopP: in.TopP, Stream: stream,
		Stop: in.Stop[:min(len(in.Stop), 4)], // the API rejects more
	}
	if c.newer {
		out.MaxCompletionTokens = in.MaxTokens
	} else {
		out.MaxTokens = in.MaxTokens
	}
	if usage {
		out.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	for _, t := range in.Tools {
		if t.Type != "" && t.Type != "custom" { // a tool that the API would run itself
			continue
		}
		tool := chatTool{Type: "function"}
		tool.Function.Name, tool.Function.Description, tool.Function.Parameters = t.Name, t.Description, t.InputSchema
		if tool.Function.Parameters == nil {
			tool.Function.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		out.Tools = append(out.Tools, tool)
	}
	if tc := in.ToolChoice; tc != nil && len(out.Tools) > 0 {
		switch tc.Type {
		case "auto", "none":
			out.ToolChoice = tc.Type
		case "any":
			out.ToolChoice = "required"
		case "tool":
			out.ToolChoice = map[string]any{"type": "function", "function": map[string]string{"name": tc.Name}}
		}
		if tc.DisableParallel {
			out.ParallelToolCalls = new(bool)
		}
	}
	switch e := in.OutputConfig.Effort; e {
	case "xhigh", "max": // most servers do not support these
		out.ReasoningEffort = "high"
	default:
		out.ReasoningEffort = e
	}
	f := in.OutputConfig.Format
	if f == nil {
		f = in.OutputFormat
	}
	if f != nil && f.Type == "json_schema" {
		out.ResponseFormat = map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "output", "schema": f.Schema, "strict": true}}
	}

	system, err := blocks(in.System)
	if err != nil {
		return nil, fmt.Errorf("the system prompt: %w", err)
	}
	if text := plain(parts(system)); text != "" {
		out.Messages = append(out.Messages, chatMessage{Role: "system", Content: text})
	}
	for i, m := range in.Messages {
		list, err := blocks(m.Content)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i+1, err)
		}
		if m.Role == "assistant" {
			out.Messages = append(out.Messages, c.assistant(list))
		} else { // including system messages in between, which few servers accept there
			out.Messages = append(out.Messages, user(list)...)
		}
	}
	return json.Marshal(out)
}

// blocks decodes content that is a string or a list of blocks.
func blocks(raw json.RawMessage) ([]block, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if raw[0] == '"' {
		b := block{Type: "text"}
		err := json.Unmarshal(raw, &b.Text)
		return []block{b}, err
	}
	var list []block
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, errors.New("the content is neither a text nor a list of blocks")
	}
	return list, nil
}

// assistant translates an assistant message.
func (c *Client) assistant(list []block) chatMessage {
	m := chatMessage{Role: "assistant"}
	var text, thinking []string
	for _, b := range list {
		switch b.Type {
		case "text":
			text = append(text, b.Text)
		case "thinking":
			thinking = append(thinking, b.Thinking)
		case "tool_use":
			call := chatCall{ID: b.ID, Type: "function"}
			call.Function.Name, call.Function.Arguments = b.Name, string(b.Input)
			if len(b.Input) == 0 {
				call.Function.Arguments = "{}"
			}
			m.ToolCalls = append(m.ToolCalls, call)
		}
	}
	if c.cfg.Reasoning {
		m.Reasoning = strings.Join(thinking, "\n")
	}
	if m.Content = strings.Join(text, "\n"); m.Content == "" && m.ToolCalls != nil {
		m.Content = nil
	}
	return m
}

// user translates a user message, after the results of tools, each of which becomes a
// separate message. Pictures in results follow as a user message, since the message of
// a tool is text.
func user(list []block) []chatMessage {
	var out []chatMessage
	var said []part
	for _, b := range list {
		if b.Type != "tool_result" {
			said = append(said, parts([]block{b})...)
			continue
		}
		inner, err := blocks(b.Content)
		if err != nil {
			inner = []block{{Type: "text", Text: string(b.Content)}}
		}
		var texts, pictures []part
		for _, p := range parts(inner) {
			if p.Type == "text" {
				texts = append(texts, p)
			} else {
				pictures = append(pictures, p)
			}
		}
		if pictures != nil {
			texts = append(texts, part{Type: "text", Text: "[the image follows in the next message]"})
			said = append(said, part{Type: "text", Text: "[the image of tool call " + b.ToolUseID + "]"})
			said = append(said, pictures...)
		}
		text := plain(texts)
		if b.IsError {
			text = "Error: " + text
		}
		out = append(out, chatMessage{Role: "tool", ToolCallID: b.ToolUseID, Content: text})
	}
	if said == nil && out != nil {
		return out
	}
	m := chatMessage{Role: "user", Content: plain(said)}
	for _, p := range said {
		if p.Type != "text" {
			m.Content = said
		}
	}
	return append(out, m)
}

// parts translates blocks of a user message.
func parts(list []block) []part {
	var out []part
	text := func(s string) { out = append(out, part{Type: "text", Text: s}) }
	for _, b := range list {
		switch b.Type {
		case "text":
			if b.Text != "" {
				text(b.Text)
			}
		case "image":
			switch b.Source.Type {
			case "base64":
				out = append(out, part{Type: "image_url", ImageURL: &imageURL{"data:" + b.Source.MediaType + ";base64," + b.Source.Data}})
			case "url":
				out = append(out, part{Type: "image_url", ImageURL: &imageURL{b.Source.URL}})
			default:
				text("[an image that this model cannot be shown]")
			}
		case "document":
			inner, err := blocks(b.Source.Content)
			switch {
			case b.Source.Type == "text":
				text(strings.TrimSpace(b.Title + "\n" + b.Source.Data))
			case b.Source.Type == "content" && err == nil:
				out = append(out, parts(inner)...)
			default:
				text(strings.TrimSpace("[a document that this model cannot be shown: " + b.Title + " " + b.Source.MediaType + "]"))
			}
		case "search_result":
			text(b.Title)
			if inner, err := blocks(b.Content); err == nil {
				out = append(out, parts(inner)...)
			}
		default:
			text("[" + b.Type + ", which this model cannot be shown]")
		}
	}
	return out
}

// plain joins the texts of parts.
func plain(list []part) string {
	var texts []string
	for _, p := range list {
		if p.Type == "text" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}
