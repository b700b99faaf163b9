// Package edit implements the tool Edit, which replaces text in a file.
//
// It never guesses. The text to replace is found exactly; or exactly except for line
// endings, a byte order mark and typographic quotes; or as whole lines that differ only
// in white space, if there is exactly one such place. The result reports an inexact
// match to the model. Encoding, line endings, permissions and the rest of the file do
// not change.
package edit

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/write"
)

//go:embed edit.md
var description string

const schema = `{
	"type": "object",
	"additionalProperties": false,
	"properties": {
		"file_path": {"type": "string", "minLength": 1, "description": "The file to change, preferably as an absolute path"},
		"old_string": {"type": "string", "description": "The text to replace, exactly as it is in the file"},
		"new_string": {"type": "string", "description": "The replacement; must differ from old_string"},
		"replace_all": {"type": "boolean", "default": false, "description": "Replace every occurrence instead of the only one"}
	},
	"required": ["file_path", "old_string", "new_string"]
}`

// Options configure the tool. The zero value is the default.
type Options struct {
	// Unread allows changing files that were not read before, as the official CLI does;
	// one that was read and has changed since is still rejected.
	Unread bool
	// ExactOnly rejects inexact matches.
	ExactOnly bool
}

// Tool is the tool Edit.
type Tool struct {
	*files.Change
	opts Options
}

// New returns the tool. opts may be nil.
func New(opts *Options) *Tool {
	t := new(Tool)
	t.Change = files.NewChange(&tool.Spec{Name: "Edit", Description: description, Schema: json.RawMessage(schema)}, "file_path", t.run)
	if opts != nil {
		t.opts = *opts
	}
	return t
}

// Input is the input of the tool.
type Input struct {
	FilePath   string    `json:"file_path"`
	OldString  string    `json:"old_string"`
	NewString  string    `json:"new_string"`
	ReplaceAll tool.Bool `json:"replace_all"`
}

// Output is the structured result.
type Output struct {
	FilePath                 string       `json:"filePath"`
	OldString                string       `json:"oldString"`
	NewString                string       `json:"newString"`
	OriginalFile             *string      `json:"originalFile"`
	StructuredPatch          []files.Hunk `json:"structuredPatch"`
	UserModified             bool         `json:"userModified"`
	ReplaceAll               bool         `json:"replaceAll"`
	ContentNotInModelContext bool         `json:"contentNotInModelContext,omitempty"` // the file was not read before
	Inexact                  string       `json:"inexact,omitempty"`                  // why the match was inexact: "quotes", "line endings", "white space"
}

// run changes the file, or only checks that it can.
func (t *Tool) run(ctx context.Context, call *tool.Call, check bool) (*tool.Result, error) {
	var in Input
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	path := files.Abs(call.Env, in.FilePath)
	if in.OldString == in.NewString {
		return nil, tool.Misuse("No changes to make: old_string and new_string are exactly the same.")
	}
	place, err := files.Open(call, path)
	if err != nil {
		return nil, err
	}
	defer place.Close()
	out := &Output{FilePath: place.Given, OldString: in.OldString, NewString: in.NewString, ReplaceAll: bool(in.ReplaceAll)}

	data, before, err := place.ReadAll(files.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return t.create(ctx, call.Env, place, &in, out, check)
	}
	if err == nil && strings.EqualFold(filepath.Ext(path), ".ipynb") {
		return nil, tool.Misuse("%s is a Jupyter notebook. Use NotebookEdit to change its cells.", path)
	}
	if err != nil {
		return nil, err
	}
	unsaved := place.Unsaved(ctx, data)
	if unsaved != nil {
		data = unsaved
	}
	if err := place.Current(before, data); err != nil {
		if place.Seen() || !t.opts.Unread {
			return nil, err
		}
		out.ContentNotInModelContext = true
	}
	if files.Binary(data[:min(len(data), 8000)]) {
		return nil, fmt.Errorf("%s is a binary file, which Edit does not change", place.Path)
	}
	text := files.Decode(data)
	if in.OldString == "" && strings.TrimSpace(text.Content) != "" {
		return nil, tool.Misuse("%s exists and is not empty: old_string must be the text to replace. To replace all of it use Write.", place.Path)
	}
	change, err := t.apply(text, &in)
	if err != nil {
		return nil, err
	}
	bytes, err := text.With(change.content).Encode()
	if err != nil {
		return nil, err
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
	out.OriginalFile, out.Inexact = files.Original(text.Content), change.inexact
	if change.was != "" {
		out.OldString = strings.ToValidUTF8(change.was, "\ufffd")
	}
	out.StructuredPatch = files.Patch(text.Content, change.content)

	said := "The file " + place.Given + " has been updated successfully."
	if in.ReplaceAll && change.count > 1 {
		said = fmt.Sprintf("The file %s has been updated successfully: %d occurrences were replaced.", place.Given, change.count)
	}
	if change.note != "" {
		said += " " + change.note
	}
	said += files.LinksNote(before)
	if !out.ContentNotInModelContext {
		said += write.CurrentNote
	}
	return tool.Text(said, out), nil
}

// create writes a new file.
func (t *Tool) create(ctx context.Context, env *tool.Env, place *files.Place, in *Input, out *Output, check bool) (*tool.Result, error) {
	if in.OldString != "" {
		said := "File does not exist. Note: your current working directory is " + env.Cwd() + "."
		if similar := place.Similar(); similar != "" {
			said += " Did you mean " + similar + "?"
		}
		return nil, tool.Misuse("%s", said)
	}
	if check {
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := place.Replace([]byte(in.NewString), nil); err != nil {
		return nil, err
	}
	empty := ""
	out.OriginalFile = &empty
	out.StructuredPatch = files.Patch("", in.NewString)
	return tool.Text("File created successfully at: "+place.Given+write.CurrentNote, out), nil
}
