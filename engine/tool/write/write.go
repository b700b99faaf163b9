// Package write implements the tool Write, which creates a file or replaces its
// content.
//
// The content is written as given; a file in UTF-16 or with a byte order mark keeps its
// encoding. An existing file is replaced only if the conversation has read it.
package write

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
)

//go:embed write.md
var description string

const schema = `{
	"type": "object",
	"additionalProperties": false,
	"properties": {
		"file_path": {"type": "string", "minLength": 1, "description": "The file to write, preferably as an absolute path"},
		"content": {"type": "string", "description": "The whole new content of the file"}
	},
	"required": ["file_path", "content"]
}`

// Tool is the tool Write.
type Tool struct{ *files.Change }

// New returns the tool.
func New() *Tool {
	return &Tool{files.NewChange(&tool.Spec{Name: "Write", Description: description, Schema: json.RawMessage(schema)}, "file_path", run)}
}

// Input is the input of the tool.
type Input struct {
	FilePath string `json:"file_path"`
	Content  string `json:"content"`
}

// Output is the structured result.
type Output struct {
	Type            string       `json:"type"` // "create" or "update"
	FilePath        string       `json:"filePath"`
	Content         string       `json:"content"`
	StructuredPatch []files.Hunk `json:"structuredPatch"`
	OriginalFile    *string      `json:"originalFile"`
	UserModified    bool         `json:"userModified"`
}

// CurrentNote follows the result of a write, for the model: the write counts as a read
// of the file.
const CurrentNote = " (file state is current in your context — no need to Read it back)"

// run writes the file, or only checks that it can.
func run(ctx context.Context, call *tool.Call, check bool) (*tool.Result, error) {
	var in Input
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	place, err := files.Open(call, files.Abs(call.Env, in.FilePath))
	if err != nil {
		return nil, err
	}
	defer place.Close()
	out := &Output{Type: "create", FilePath: place.Given, Content: in.Content, StructuredPatch: []files.Hunk{}}
	bytes := []byte(in.Content)
	data, before, err := place.ReadAll(files.MaxSize)
	var unsaved []byte
	switch {
	case errors.Is(err, fs.ErrNotExist):
		before = nil
	case errors.Is(err, files.ErrDirectory):
		return nil, tool.Misuse("%s is a directory, not a file. Give the path of a file in it.", place.Path)
	case err != nil:
		return nil, err
	default:
		if unsaved = place.Unsaved(ctx, data); unsaved != nil {
			data = unsaved
		}
		if err := place.Current(before, data); err != nil {
			return nil, err
		}
		old := files.Decode(data)
		// The encoding is kept; line endings are as given.
		text := files.Text{Content: strings.TrimPrefix(in.Content, "\ufeff"), Encoding: old.Encoding, BOM: old.BOM || strings.HasPrefix(in.Content, "\ufeff")}
		if bytes, err = text.Encode(); err != nil {
			return nil, err
		}
		out.Type, out.OriginalFile = "update", files.Original(old.Content)
		out.StructuredPatch = files.Patch(old.Content, strings.ReplaceAll(text.Content, "\r\n", "\n"))
	}
	if check {
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if unsaved != nil {
		if before, err = place.Save(ctx, unsaved); err != nil {
			return nil, err
		}
	}
	if err := place.Replace(bytes, before); err != nil {
		return nil, err
	}
	if before == nil {
		return tool.Text("File created successfully at: "+place.Given+CurrentNote, out), nil
	}
	return tool.Text("The file "+place.Given+" has been updated successfully."+files.LinksNote(before)+CurrentNote, out), nil
}
