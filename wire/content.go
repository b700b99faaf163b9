package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strings"
)

// A Block is one piece of the content of a message: [*TextBlock],
// [*ThinkingBlock], [*RedactedThinkingBlock], [*ToolUseBlock],
// [*ToolResultBlock], [*ImageBlock], [*DocumentBlock], [*ServerToolUseBlock],
// [*ServerToolResultBlock] or, for one of another kind, [*UnknownBlock].
type Block interface{ block() }

// TextBlock is text.
type TextBlock struct {
	Text         string          `json:"text"`
	Citations    json.RawMessage `json:"citations,omitzero"`
	CacheControl *CacheControl   `json:"cache_control,omitzero"`
	Open         `wire:"type=text"`
}

// ThinkingBlock is the model's reasoning, signed so that it can be sent back to the
// API.
type ThinkingBlock struct {
	Thinking  string `json:"thinking"`
	Signature string `json:"signature,omitzero"`
	Open      `wire:"type=thinking"`
}

// RedactedThinkingBlock is reasoning that only the API can read.
type RedactedThinkingBlock struct {
	Data string `json:"data"`
	Open `wire:"type=redacted_thinking"`
}

// ToolUseBlock is a tool call by the model.
type ToolUseBlock struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Input        json.RawMessage `json:"input"`
	CacheControl *CacheControl   `json:"cache_control,omitzero"`
	Open         `wire:"type=tool_use"`
}

// ToolResultBlock is the result of a tool call.
type ToolResultBlock struct {
	ToolUseID    string        `json:"tool_use_id"`
	Content      Content       `json:"content,omitzero"`
	IsError      bool          `json:"is_error,omitzero"`
	CacheControl *CacheControl `json:"cache_control,omitzero"`
	Open         `wire:"type=tool_result"`
}

// ImageBlock is a picture.
type ImageBlock struct {
	Source       *Source       `json:"source"`
	CacheControl *CacheControl `json:"cache_control,omitzero"`
	Open         `wire:"type=image"`
}

// DocumentBlock is a document, such as a PDF file.
type DocumentBlock struct {
	Source       *Source         `json:"source"`
	Title        string          `json:"title,omitzero"`
	Context      string          `json:"context,omitzero"`
	Citations    json.RawMessage `json:"citations,omitzero"`
	CacheControl *CacheControl   `json:"cache_control,omitzero"`
	Open         `wire:"type=document"`
}

// ServerToolUseBlock is a call of a tool that the API runs itself.
type ServerToolUseBlock struct {
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
	Open  `wire:"type=server_tool_use"`
}

// ServerToolResultBlock is the result of a tool that the API runs. Its Type ends in
// "_tool_result", such as "web_search_tool_result".
type ServerToolResultBlock struct {
	Type      string          `json:"type"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content,omitzero"`
	Open
}

// UnknownBlock is a block of a kind that this package does not know.
type UnknownBlock struct {
	Type string          // its type member, empty if it has none
	Raw  json.RawMessage // the whole block
}

func (*UnknownBlock) block() {}

func (u *UnknownBlock) decodeWire(x item) (bool, error) {
	*u = UnknownBlock{Type: x.lookup("type"), Raw: x.raw()}
	return true, nil
}

func (u *UnknownBlock) encodeWire(dst []byte) ([]byte, error) { return appendRaw(dst, u.Raw) }

// CacheControl marks the end of a prefix that the API may cache.
type CacheControl struct {
	Type string `json:"type"` // "ephemeral"
	TTL  string `json:"ttl,omitzero"`
	Open
}

// Source is the source of the bytes of an image or a document.
type Source struct {
	Type      string `json:"type"` // "base64", "url", "text", "file" or "content"
	MediaType string `json:"media_type,omitzero"`
	Data      string `json:"data,omitzero"`
	URL       string `json:"url,omitzero"`
	FileID    string `json:"file_id,omitzero"`
	Open
}

// Base64 returns a source that carries its bytes.
func Base64(mediaType string, data []byte) *Source {
	return &Source{Type: "base64", MediaType: mediaType, Data: base64.StdEncoding.EncodeToString(data)}
}

// decodeBlock reads any value.
func decodeBlock(x item) Block {
	var t reflect.Type
	if typ, ok := x.get("type"); ok {
		t = typ.among(blockTypes)
		if t == nil && bytes.HasSuffix(typ.text(), []byte(`_tool_result"`)) {
			t = reflect.TypeFor[ServerToolResultBlock]()
		}
	}
	if t != nil {
		v := reflect.New(t)
		if err := decodeObject(x, v.Elem()); err == nil {
			return v.Interface().(Block)
		}
	}
	u := new(UnknownBlock)
	u.decodeWire(x)
	return u
}

// Content is the content of a message or a tool result: text, or a list of blocks.
type Content struct {
	Text   string  // the text, if Blocks is nil
	Blocks []Block // the blocks; an empty list is not nil
}

// Text returns content that is plain text.
func Text(s string) Content { return Content{Text: s} }

// Blocks returns content that is a list of blocks.
func Blocks(blocks ...Block) Content {
	if blocks == nil {
		blocks = []Block{}
	}
	return Content{Blocks: blocks}
}

// All returns the content as blocks: plain text is one [TextBlock].
func (c Content) All() []Block {
	if c.Blocks == nil && c.Text != "" {
		return []Block{&TextBlock{Text: c.Text}}
	}
	return c.Blocks
}

// String returns the text of the content; that of several blocks is joined.
func (c Content) String() string {
	if c.Blocks == nil {
		return c.Text
	}
	if len(c.Blocks) == 1 {
		if t, ok := c.Blocks[0].(*TextBlock); ok {
			return t.Text
		}
	}
	var b strings.Builder
	for _, block := range c.Blocks {
		if t, ok := block.(*TextBlock); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

func (c *Content) decodeWire(x item) (faithful bool, err error) {
	switch x.kind() {
	case '"':
		c.Text, faithful = x.string()
		return faithful, nil
	case '[':
		c.Blocks = make([]Block, 0, x.length())
		x.elements(func(x item) bool {
			c.Blocks = append(c.Blocks, decodeBlock(x))
			return true
		})
		return true, nil
	}
	return false, errShape
}

func (c *Content) encodeWire(dst []byte) (_ []byte, err error) {
	if c.Blocks == nil {
		return appendString(dst, c.Text), nil
	}
	dst = append(dst, '[')
	for i, b := range c.Blocks {
		if i > 0 {
			dst = append(dst, ',')
		}
		v := reflect.ValueOf(b)
		if b == nil || v.IsNil() {
			dst = append(dst, "null"...)
			continue
		}
		if dst, err = codecOf(v.Type().Elem()).enc(dst, v.Elem()); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

// Names is a list of names. Some peers send objects with a name instead of names; an
// object is decoded to its name.
type Names []string

func (n *Names) decodeWire(x item) (faithful bool, err error) {
	if x.kind() != '[' {
		return false, errShape
	}
	*n = make(Names, 0, x.length())
	faithful = true
	x.elements(func(x item) bool {
		switch x.kind() {
		case '"':
			s, exact := x.string()
			faithful = faithful && exact
			*n = append(*n, s)
		case '{':
			faithful = false
			*n = append(*n, x.lookup("name"))
		default:
			err = errShape
		}
		return err == nil
	})
	return faithful, err
}

func (n *Names) encodeWire(dst []byte) ([]byte, error) {
	dst = append(dst, '[')
	for i, s := range *n {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, s)
	}
	return append(dst, ']'), nil
}
