// Package notebookedit implements the tool NotebookEdit, which changes a cell of a
// Jupyter notebook. Everything else in the file stays as it is, in its order.
package notebookedit

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
)

//go:embed notebookedit.md
var description string

const schema = `{
	"type": "object",
	"additionalProperties": false,
	"properties": {
		"notebook_path": {"type": "string", "minLength": 1, "description": "The notebook to change, preferably as an absolute path"},
		"cell_id": {"type": "string", "description": "The id of the cell to change, or after which to insert one"},
		"new_source": {"type": "string", "description": "The new source of the cell"},
		"cell_type": {"type": "string", "enum": ["code", "markdown"], "description": "The type of the cell; required for insert, otherwise unchanged by default"},
		"edit_mode": {"type": "string", "enum": ["replace", "insert", "delete"], "description": "What to do; default replace"}
	},
	"required": ["notebook_path", "new_source"]
}`

// maxSize is the maximum size of a notebook in bytes.
const maxSize = 32 << 20

// Tool is the tool NotebookEdit.
type Tool struct{ *files.Change }

// New returns the tool.
func New() *Tool {
	return &Tool{files.NewChange(&tool.Spec{Name: "NotebookEdit", Description: description, Schema: json.RawMessage(schema)}, "notebook_path", run)}
}

// Input is the input of the tool.
type Input struct {
	NotebookPath string `json:"notebook_path"`
	CellID       string `json:"cell_id"`
	NewSource    string `json:"new_source"`
	CellType     string `json:"cell_type"`
	EditMode     string `json:"edit_mode"`
}

// Output is the structured result.
type Output struct {
	NewSource    string `json:"new_source"`
	OldSource    string `json:"old_source,omitempty"`
	CellType     string `json:"cell_type"`
	Language     string `json:"language"`
	EditMode     string `json:"edit_mode"`
	CellID       string `json:"cell_id,omitempty"`
	Error        string `json:"error"`
	NotebookPath string `json:"notebook_path"`
	OriginalFile string `json:"original_file"`
	UpdatedFile  string `json:"updated_file"`
}

// run changes the notebook, or only checks that it can.
func run(ctx context.Context, call *tool.Call, check bool) (*tool.Result, error) {
	var in Input
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	if in.EditMode == "" {
		in.EditMode = "replace"
	}
	path := files.Abs(call.Env, in.NotebookPath)
	switch {
	case !strings.EqualFold(filepath.Ext(path), ".ipynb"):
		return nil, tool.Misuse("%s is not a Jupyter notebook (.ipynb). Use Edit for other files.", path)
	case in.EditMode != "insert" && in.CellID == "":
		return nil, tool.Misuse("`cell_id` is needed to %s a cell. Read shows the ids.", in.EditMode)
	case in.EditMode == "insert" && in.CellType == "":
		return nil, tool.Misuse("`cell_type` is needed to insert a cell: \"code\" or \"markdown\".")
	}
	place, err := files.Open(call, path)
	if err != nil {
		return nil, err
	}
	defer place.Close()
	data, before, err := place.ReadAll(maxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, tool.Misuse("Notebook file does not exist. Note: your current working directory is %s.", call.Env.Cwd())
	}
	if err != nil {
		return nil, err
	}
	if err := place.Current(before, data); err != nil {
		return nil, err
	}
	text := files.Decode(data)
	nb, err := parse(text.Content)
	if err != nil {
		return nil, fmt.Errorf("%s is not a notebook: %w", place.Path, err)
	}
	out := &Output{NewSource: in.NewSource, EditMode: in.EditMode, Language: nb.language(), NotebookPath: place.Given, OriginalFile: text.Content}
	said, err := nb.change(&in, out)
	if err != nil {
		return nil, err
	}
	out.UpdatedFile = nb.format(text.Content)
	bytes, err := text.With(out.UpdatedFile).Encode()
	if err != nil {
		return nil, err
	}
	if check {
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := place.Replace(bytes, before); err != nil {
		return nil, err
	}
	return tool.Text(said, out), nil
}

// A member is a member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// An object is a JSON object that keeps the order of its members.
type object []member

func parseObject(data []byte) (object, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(err, errors.New("no object"))
	}
	o := object{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		o = append(o, member{name.(string), value})
	}
	_, err := dec.Token()
	return o, err
}

func (o object) get(name string) json.RawMessage {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

func (o object) text(name string) string {
	var s string
	json.Unmarshal(o.get(name), &s)
	return s
}

// source returns the source of a cell, which is a string or a list of lines.
func (o object) source() string {
	var lines []string
	if json.Unmarshal(o.get("source"), &lines) == nil {
		return strings.Join(lines, "")
	}
	return o.text("source")
}

func (o *object) set(name string, value any) {
	for i := range *o {
		if (*o)[i].name == name {
			(*o)[i].value = encode(value)
			return
		}
	}
	*o = append(*o, member{name, encode(value)})
}

func (o *object) drop(name string) {
	*o = slices.DeleteFunc(*o, func(m member) bool { return m.name == name })
}

func (o object) encode() json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(encode(m.name))
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// encode encodes a value as notebooks do, without escaping < and &.
func encode(v any) json.RawMessage {
	if raw, ok := v.(json.RawMessage); ok {
		return raw
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// A notebook is a notebook that is being changed.
type notebook struct {
	top   object
	cells []json.RawMessage
}

func parse(content string) (*notebook, error) {
	top, err := parseObject([]byte(content))
	if err != nil {
		return nil, err
	}
	nb := &notebook{top: top}
	if err := json.Unmarshal(top.get("cells"), &nb.cells); err != nil {
		return nil, errors.New("it has no cells")
	}
	return nb, nil
}

func (nb *notebook) language() string {
	var metadata struct {
		LanguageInfo struct {
			Name string `json:"name"`
		} `json:"language_info"`
	}
	json.Unmarshal(nb.top.get("metadata"), &metadata)
	if metadata.LanguageInfo.Name == "" {
		return "python"
	}
	return metadata.LanguageInfo.Name
}

// find returns the cell with an id, or with the number in "cell-3".
func (nb *notebook) find(id string) (int, object, error) {
	for i, raw := range nb.cells {
		cell, err := parseObject(raw)
		if err != nil {
			return 0, nil, err
		}
		if cell.text("id") == id {
			return i, cell, nil
		}
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(id, "cell-")); err == nil && n >= 0 && n < len(nb.cells) {
		cell, err := parseObject(nb.cells[n])
		return n, cell, err
	}
	return 0, nil, tool.Misuse("Cell with ID %q not found in notebook. Read it to see the ids.", id)
}

// change applies the requested change and returns a description of it.
func (nb *notebook) change(in *Input, out *Output) (string, error) {
	at, cell, err := -1, object(nil), error(nil)
	if in.CellID != "" {
		if at, cell, err = nb.find(in.CellID); err != nil {
			return "", err
		}
	}
	switch in.EditMode {
	case "insert":
		cell = object{{"cell_type", encode(in.CellType)}}
		if nb.hasIDs() {
			var random [4]byte
			rand.Read(random[:])
			out.CellID = hex.EncodeToString(random[:])
			cell.set("id", out.CellID)
		}
		cell.set("source", in.NewSource)
		cell.set("metadata", json.RawMessage("{}"))
		if in.CellType == "code" {
			cell.set("execution_count", nil)
			cell.set("outputs", json.RawMessage("[]"))
		}
		nb.cells = slices.Insert(nb.cells, at+1, cell.encode())
		out.CellType = in.CellType
		if out.CellID == "" {
			out.CellID = fmt.Sprintf("cell-%d", at+1)
		}
		return fmt.Sprintf("Inserted cell %s with %s", out.CellID, in.NewSource), nil
	case "delete":
		out.OldSource, out.CellType, out.CellID = cell.source(), cell.text("cell_type"), in.CellID
		nb.cells = slices.Delete(nb.cells, at, at+1)
		return "Deleted cell " + in.CellID, nil
	}
	out.OldSource, out.CellID = cell.source(), in.CellID
	out.CellType = cell.text("cell_type")
	cell.set("source", in.NewSource)
	if in.CellType != "" && in.CellType != out.CellType {
		out.CellType = in.CellType
		cell.set("cell_type", in.CellType)
		if in.CellType == "markdown" {
			cell.drop("outputs")
			cell.drop("execution_count")
		}
	}
	if out.CellType == "code" {
		cell.set("outputs", json.RawMessage("[]"))
		cell.set("execution_count", nil)
	}
	nb.cells[at] = cell.encode()
	return fmt.Sprintf("Updated cell %s with %s", in.CellID, in.NewSource), nil
}

// hasIDs reports whether cells of the notebook have ids, which format 4.5 introduced.
func (nb *notebook) hasIDs() bool {
	var major, minor int
	json.Unmarshal(nb.top.get("nbformat"), &major)
	json.Unmarshal(nb.top.get("nbformat_minor"), &minor)
	return major > 4 || major == 4 && minor >= 5
}

// format encodes the notebook with the indentation of the original.
func (nb *notebook) format(original string) string {
	indent := " "
	if _, rest, ok := strings.Cut(original, "{\n"); ok {
		if n := len(rest) - len(strings.TrimLeft(rest, " \t")); n > 0 {
			indent = rest[:n]
		}
	}
	nb.top.set("cells", encodeList(nb.cells))
	var b bytes.Buffer
	if err := json.Indent(&b, nb.top.encode(), "", indent); err != nil {
		return original
	}
	if strings.HasSuffix(original, "\n") {
		b.WriteByte('\n')
	}
	return b.String()
}

func encodeList(list []json.RawMessage) json.RawMessage {
	return slices.Concat([]byte("["), bytes.Join(toBytes(list), []byte(",")), []byte("]"))
}

func toBytes(list []json.RawMessage) [][]byte {
	out := make([][]byte, len(list))
	for i, raw := range list {
		out[i] = raw
	}
	return out
}
