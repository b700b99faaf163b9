// Package read implements the tool Read, which shows a file to the model: text, a
// picture, a PDF or a notebook.
//
// Text is read as a stream: memory holds what is shown, not the whole file. The read is
// recorded for the tools that write.
package read

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/parley-go/parley/engine/internal/picture"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
)

//go:embed read.md
var description string

const schema = `{
	"type": "object",
	"additionalProperties": false,
	"properties": {
		"file_path": {"type": "string", "minLength": 1, "description": "The file to read, preferably as an absolute path"},
		"offset": {"type": "integer", "description": "The first line to read, counted from 1. For files that are too long to read at once"},
		"limit": {"type": "integer", "description": "How many lines to read. For files that are too long to read at once"},
		"pages": {"type": "string", "description": "The pages of a PDF file to read, such as \"1-5\" or \"3\". At most 20 at a time"},
		"allow_large": {"type": "boolean", "description": "Read up to ten times as much text at once as usual"}
	},
	"required": ["file_path"]
}`

// Limits of what is shown at once.
const (
	maxSkim     = 64 << 20 // bytes of one line of a large file that are read
	maxLines    = 2000
	startOfLine = 2000      // characters of a line that is longer than maxBytes
	maxBytes    = 100 << 10 // of text; about 25,000 tokens
	largeBy     = 10        // factor for allow_large
)

// Tool is the tool Read.
type Tool struct{ spec tool.Spec }

// New returns the tool.
func New() *Tool {
	return &Tool{spec: tool.Spec{Name: "Read", Description: description, Schema: json.RawMessage(schema), ReadOnly: true}}
}

// Input is the input of the tool.
type Input struct {
	FilePath   string    `json:"file_path"`
	Offset     tool.Int  `json:"offset"`
	Limit      tool.Int  `json:"limit"`
	Pages      string    `json:"pages"`
	AllowLarge tool.Bool `json:"allow_large"`
}

// Output is the structured result.
type Output struct {
	Type string `json:"type"` // "text", "image", "notebook" or "pdf"
	File any    `json:"file"` // [*TextFile], [*ImageFile], [*NotebookFile], [*PDFFile]
}

// TextFile is text, as a structured result.
type TextFile struct {
	FilePath            string `json:"filePath"`
	Content             string `json:"content"`
	NumLines            int    `json:"numLines"`
	StartLine           int    `json:"startLine"`
	TotalLines          int    `json:"totalLines"`
	TruncatedByTokenCap bool   `json:"truncatedByTokenCap,omitempty"` // there is more than is shown at once
	TotalLinesAtLeast   bool   `json:"totalLinesAtLeast,omitempty"`   // the file is too large to count all its lines
}

// Spec implements [tool.Tool].
func (t *Tool) Spec() *tool.Spec { return &t.spec }

// Absolute implements [tool.PathTool].
func (t *Tool) Absolute(env *tool.Env, input json.RawMessage) (json.RawMessage, error) {
	return files.Absolute(env, input, "file_path", files.Named)
}

// Access returns a read of the file.
func (t *Tool) Access(env *tool.Env, input json.RawMessage) ([]tool.Access, error) {
	return files.Access(env, input, tool.Read, func(in *Input) string { return in.FilePath })
}

// Run reads the file.
func (t *Tool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	var in Input
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	path := files.Abs(call.Env, in.FilePath)
	place, err := files.Open(call, path)
	if err != nil {
		return nil, err
	}
	defer place.Close()
	f, info, err := place.Read()
	if err != nil {
		return nil, t.missing(call.Env, place, err)
	}
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { f.Close() })
	defer stop()

	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	head = head[:n]
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	kind := http.DetectContentType(head)
	var result *tool.Result
	switch {
	case picture.TypeOf(head) != "":
		result, err = readImage(place)
	case kind == "application/pdf":
		result, err = readPDF(place, in.Pages)
	case strings.EqualFold(filepath.Ext(path), ".ipynb"):
		result, err = readNotebook(place)
	case files.Binary(head):
		err = fmt.Errorf("%s is a binary file (%s, %s), which Read does not show. Look at it with a command, such as file, strings or xxd", path, kind, files.Size(info.Size()))
	default:
		result, err = readText(ctx, place, f, info, &in)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return result, err
}

// missing returns an error for a missing file, with a suggestion.
func (t *Tool) missing(env *tool.Env, place *files.Place, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text := "File does not exist. Note: your current working directory is " + env.Cwd() + "."
	if similar := place.Similar(); similar != "" {
		text += " Did you mean " + similar + "?"
	}
	return errors.New(text)
}

// readText reads lines of text.
func readText(ctx context.Context, place *files.Place, f *os.File, info fs.FileInfo, in *Input) (*tool.Result, error) {
	v := view{first: max(1, int(in.Offset)), lines: maxLines, bytes: maxBytes, path: place.Given}
	if in.AllowLarge {
		v.lines *= largeBy
		v.bytes *= largeBy
	}
	if in.Limit > 0 {
		v.lines = int(in.Limit)
		v.asked = true
	}
	var source io.Reader = f
	big := info.Size() > files.MaxSize
	hash := sha256.New()
	if big {
		v.stopEarly = true
	} else if unsaved := place.UnsavedOf(ctx, f, info); unsaved != nil {
		source = io.TeeReader(bytes.NewReader(unsaved), hash)
	} else {
		// Stop at the present size, in case another process keeps writing.
		source = io.TeeReader(io.LimitReader(f, info.Size()), hash)
	}
	buffered := bufio.NewReaderSize(source, 64<<10)
	if start, _ := buffered.Peek(2); len(start) == 2 && (start[0] == 0xff && start[1] == 0xfe || start[0] == 0xfe && start[1] == 0xff) {
		if big {
			return nil, &files.TooBigError{Path: place.Path, Size: info.Size(), Limit: files.MaxSize}
		}
		data, err := io.ReadAll(buffered)
		if err != nil {
			return nil, fmt.Errorf("%s cannot be read: %w", place.Path, err)
		}
		buffered = bufio.NewReaderSize(strings.NewReader(files.Decode(data).Content), 64<<10)
	}
	if err := v.scan(ctx, buffered); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", place.Path, err)
	}
	// A file that changed meanwhile is shown, but the read is not recorded.
	if after, err := f.Stat(); err == nil && files.StampOf(after) == files.StampOf(info) {
		if big {
			place.Remember(info, nil)
		} else {
			place.RememberHash(info, [sha256.Size]byte(hash.Sum(nil)))
		}
	}
	return v.result(), nil
}

// A view is the part of a text that is shown.
type view struct {
	path      string
	first     int  // first line to show
	lines     int  // maximum number of lines
	bytes     int  // maximum size in bytes
	asked     bool // the number of lines was requested
	stopEarly bool // stop reading once enough was read

	shown   []string
	size    int  // bytes shown
	full    bool // there was no room for a line
	total   int  // number of lines read
	more    bool // there may be lines that were not counted
	invalid bool // some bytes are not UTF-8
	empty   bool
	endless bool // the last line was not read to its end
}

// scan reads all lines, or as many as needed.
func (v *view) scan(ctx context.Context, r *bufio.Reader) error {
	v.empty = true
	if start, _ := r.Peek(3); string(start) == "\ufeff" {
		r.Discard(3)
	}
	var line []byte // the beginning of the line
	length := 0     // of the line
	keep := func(part []byte) {
		length += len(part)
		if room := v.bytes - len(line); room > 0 && v.shows(v.total+1) {
			line = append(line, part[:min(room, len(part))]...)
		}
	}
	for n := 0; ; n++ {
		part, err := r.ReadSlice('\n')
		if len(part) > 0 {
			v.empty = false
		}
		switch err {
		case bufio.ErrBufferFull:
			if keep(part); v.stopEarly && length > maxSkim {
				v.end(line, length)
				v.more, v.endless = true, true
				return nil
			}
		case nil:
			keep(part[:len(part)-1])
			v.end(line, length)
			line, length = line[:0], 0
		case io.EOF:
			// The text after the last line ending is a line, too, even if it is empty.
			keep(part)
			v.end(line, length)
			return nil
		default:
			return err
		}
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if v.stopEarly && (v.full || v.total >= v.first-1+v.lines) {
			v.more = true
			return nil
		}
	}
}

// shows reports whether a line is shown.
func (v *view) shows(n int) bool { return n >= v.first && n-v.first < v.lines && !v.full }

// end handles a line of which the beginning is given.
func (v *view) end(line []byte, length int) {
	v.total++
	if !v.shows(v.total) {
		return
	}
	if length == len(line) && length > 0 && line[length-1] == '\r' {
		line = line[:length-1]
	}
	text := string(line)
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\ufffd")
		v.invalid = v.invalid || length <= v.bytes
	}
	if length > v.bytes { // it cannot be shown at once
		runes := []rune(text)
		text = string(runes[:min(startOfLine, len(runes))]) + fmt.Sprintf("… [cut; the line has %s]", files.Size(int64(length)))
	}
	if v.size+len(text)+1 > v.bytes && len(v.shown) > 0 {
		v.full = true
		return
	}
	v.size += len(text) + 1
	v.shown = append(v.shown, text)
}

// result formats the lines that are shown.
func (v *view) result() *tool.Result {
	file := &TextFile{FilePath: v.path, Content: strings.Join(v.shown, "\n"), NumLines: len(v.shown), StartLine: v.first, TotalLines: v.total,
		TruncatedByTokenCap: v.full, TotalLinesAtLeast: v.more}
	var b strings.Builder
	for i, line := range v.shown {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(strconv.Itoa(v.first + i))
		b.WriteByte('\t')
		b.WriteString(line)
	}
	last := v.first + len(v.shown) - 1
	switch {
	case v.empty:
		b.Reset()
		b.WriteString("(The file exists and is empty.)")
	case v.endless:
		fmt.Fprintf(&b, "\n\n(Line %d does not end within %s, and the file was not read any further. Look at the rest with a command, such as tail -c or dd.)", v.total, files.Size(maxSkim))
	case len(v.shown) == 0:
		fmt.Fprintf(&b, "(The file has %d lines; there is nothing at line %d.)", v.total, v.first)
	case v.full || (v.more || last < v.total) && !v.asked:
		of := strconv.Itoa(v.total)
		if v.more {
			of = "more than " + of
		}
		fmt.Fprintf(&b, "\n\n(Lines %d to %d of %s. The file continues: read on with offset %d.)", v.first, last, of, last+1)
	}
	if v.invalid {
		b.WriteString("\n\n(The file is not valid UTF-8; bytes that are no text are shown as \ufffd.)")
	}
	return tool.Text(b.String(), &Output{Type: "text", File: file})
}
