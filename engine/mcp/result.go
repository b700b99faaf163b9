package mcp

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/wire"
)

// A content is one content block of an MCP result.
type content struct {
	Type        string    `json:"type"`
	Text        string    `json:"text"`
	Data        string    `json:"data"` // base64
	MIMEType    string    `json:"mimeType"`
	URI         string    `json:"uri"`
	Name        string    `json:"name"`
	Description string    `json:"description"`
	Resource    *resource `json:"resource"`
}

type resource struct {
	URI      string `json:"uri"`
	MIMEType string `json:"mimeType"`
	Text     string `json:"text"`
	Blob     string `json:"blob"` // base64
}

// structured is the structured result for programs, if a result is more than blocks.
type structured struct {
	Content           any             `json:"content"`
	StructuredContent json.RawMessage `json:"structuredContent,omitzero"`
	Meta              json.RawMessage `json:"_meta,omitzero"`
	ResourceLinks     []resourceLink  `json:"resourceLinks,omitzero"`
}

type resourceLink struct {
	URI         string `json:"uri"`
	Name        string `json:"name"`
	Description string `json:"description,omitzero"`
	MIMEType    string `json:"mimeType,omitzero"`
}

// result converts the response of a server to a result.
func (t *Tool) result(call *tool.Call, raw json.RawMessage) (*tool.Result, error) {
	var r struct {
		Content           []json.RawMessage `json:"content"`
		StructuredContent json.RawMessage   `json:"structuredContent"`
		IsError           bool              `json:"isError"`
		Meta              json.RawMessage   `json:"_meta"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("The answer of the MCP server %s cannot be read: %v", t.server.name, err)
	}
	spill := &spill{server: t.server.name, name: t.spec.Name, max: t.limit, call: call}
	if spill.max == 0 {
		spill.max = t.server.m.opts.MaxResult
	}
	blocks := []wire.Block{}
	var texts []string
	var more []wire.Block // blocks other than plain text
	for _, part := range r.Content {
		made, plain := spill.block(part)
		blocks = append(blocks, made...)
		if !plain {
			more = append(more, made...)
		}
		for _, b := range made {
			if b, ok := b.(*wire.TextBlock); ok {
				texts = append(texts, b.Text)
			}
		}
	}
	if r.IsError {
		text := strings.Join(texts, "\n")
		if strings.TrimSpace(text) == "" {
			text = "The tool failed without an error message."
		}
		return nil, errors.New(spill.text(text))
	}
	if len(r.StructuredContent) > 0 && string(r.StructuredContent) != "null" {
		var compact bytes.Buffer
		if err := json.Compact(&compact, r.StructuredContent); err != nil {
			return nil, fmt.Errorf("The answer of the MCP server %s cannot be read: %v", t.server.name, err)
		}
		whole := compact.String()
		text := spill.text(whole)
		if text != whole {
			return tool.Text(text, wire.Blocks(&wire.TextBlock{Text: text})), nil
		}
		// The plain texts repeat the value; pictures and resources do not.
		c := wire.Text(text)
		if len(more) > 0 {
			c = wire.Blocks(append(more, &wire.TextBlock{Text: text})...)
		}
		return &tool.Result{Content: c, Structured: structured{Content: c, StructuredContent: r.StructuredContent, ResourceLinks: spill.links}}, nil
	}
	size := 0
	for _, s := range texts {
		size += utf8.RuneCountInString(s)
	}
	c := wire.Blocks(blocks...)
	var programs any = c // programs get the blocks alone
	switch {
	case len(r.Meta) > 0 && string(r.Meta) != "null" && string(r.Meta) != "{}":
		programs = structured{Content: c, Meta: r.Meta, ResourceLinks: spill.links}
	case spill.links != nil:
		programs = structured{Content: c, ResourceLinks: spill.links}
	}
	switch {
	case size > spill.max:
		text := spill.text(strings.Join(texts, "\n"))
		kept := []wire.Block{&wire.TextBlock{Text: text}}
		for _, b := range blocks {
			if _, ok := b.(*wire.TextBlock); !ok {
				kept = append(kept, b)
			}
		}
		if c = wire.Blocks(kept...); len(kept) == 1 {
			c = wire.Text(text)
		}
	case len(blocks) == 0:
		c = wire.Text(fmt.Sprintf("(%s completed with no output)", t.spec.Name))
	}
	return &tool.Result{Content: c, Structured: programs}, nil
}

// A spill writes content that is too large for the model to files.
type spill struct {
	server string
	name   string // of the tool
	max    int    // maximum number of characters
	call   *tool.Call
	links  []resourceLink // in the result
}

// file writes data to a file of the session.
func (s *spill) file(data []byte, suffix string) (string, error) {
	file := files.InSession(s.call.Env, "tool-results/"+s.name+"-"+rand.Text()[:10]+suffix)
	if file == nil {
		return "", errors.New("the session has no place for files")
	}
	f, err := file.Create()
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	return file.Path(), errors.Join(err, f.Close())
}

// text returns a text, or a replacement for one that is too long.
func (s *spill) text(text string) string {
	if utf8.RuneCountInString(text) <= s.max {
		return text
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<persisted-output>\nOutput too large (%s).", files.Size(int64(len(text))))
	if path, err := s.file([]byte(text), ".txt"); err != nil {
		fmt.Fprintf(&b, " It could not be saved: %v.", err)
	} else {
		fmt.Fprintf(&b, " Full output saved to: %s", path)
	}
	const preview = 2 << 10
	first := strings.ToValidUTF8(text[:min(preview, len(text))], "")
	fmt.Fprintf(&b, "\n\nPreview (first %s):\n%s\n…\n</persisted-output>", files.Size(int64(len(first))), first)
	return b.String()
}

// block converts one item of a result to blocks for the model. plain reports whether it is
// only text.
func (s *spill) block(raw json.RawMessage) (blocks []wire.Block, plain bool) {
	var c content
	if err := json.Unmarshal(raw, &c); err != nil || c.Type == "" {
		return text(string(raw)), false
	}
	switch c.Type {
	case "text":
		return text(c.Text), true
	case "image", "audio":
		return s.binary(c.Type, c.MIMEType, c.Data, ""), false
	case "resource_link":
		s.links = append(s.links, resourceLink{c.URI, c.Name, c.Description, c.MIMEType})
		about := fmt.Sprintf("[Resource link: %s] %s", c.Name, c.URI)
		if c.Description != "" {
			about += " (" + c.Description + ")"
		}
		return text(about), false
	case "resource":
		if r := c.Resource; r != nil {
			if r.Blob != "" {
				return s.binary("resource", r.MIMEType, r.Blob, r.URI), false
			}
			return text(fmt.Sprintf("[Resource from %s at %s] %s", s.server, r.URI, r.Text)), false
		}
	}
	return text(string(raw)), false // of an unknown type
}

// text returns a text block; the API rejects empty ones.
func text(s string) []wire.Block {
	if s == "" {
		return nil
	}
	return []wire.Block{&wire.TextBlock{Text: strings.ToValidUTF8(s, "\ufffd")}}
}

func notEmpty(list ...string) []string {
	var kept []string
	for _, s := range list {
		if s != "" {
			kept = append(kept, s)
		}
	}
	return kept
}

// maxImage is the maximum size of a picture that the API accepts, in base64.
const maxImage = 5 << 20

// picture reports whether models accept pictures of a media type.
func picture(mediaType string) bool {
	return slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, mediaType)
}

// binary returns a picture as a block, and writes anything else to a file.
func (s *spill) binary(kind, mediaType, encoded, uri string) []wire.Block {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return text(fmt.Sprintf("[The tool returned %s data that is not base64.]", kind))
	}
	if picture(mediaType) && len(encoded) <= maxImage && len(data) > 0 {
		blocks := []wire.Block{&wire.ImageBlock{Source: &wire.Source{Type: "base64", MediaType: mediaType, Data: encoded}}}
		if path, err := s.file(data, "."+strings.TrimPrefix(mediaType, "image/")); err == nil {
			blocks = append(blocks, &wire.TextBlock{Text: "[Image: source: " + path + "]"})
		}
		return blocks
	}
	suffix := ".bin"
	if list, err := mime.ExtensionsByType(mediaType); err == nil && len(list) > 0 {
		suffix = list[0]
	}
	about := strings.Join(notEmpty(uri, mediaType, files.Size(int64(len(data)))), ", ")
	path, err := s.file(data, suffix)
	if err != nil {
		return text(fmt.Sprintf("[The tool returned %s data (%s) that could not be saved: %v.]", kind, about, err))
	}
	return text(fmt.Sprintf("[The tool returned %s data (%s). Saved to: %s]", kind, about, path))
}
