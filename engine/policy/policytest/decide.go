package policytest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/builtin"
)

//go:embed pending.txt
var pendingRows string

// Pending returns the lines of pending.txt: rows of the table, verbatim, that are not
// stopped yet.
func Pending() map[string]bool {
	lines := map[string]bool{}
	for line := range strings.Lines(pendingRows) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines[strings.Join(strings.Fields(line), " ")] = true
		}
	}
	return lines
}

// IsPending reports whether a row is among the lines of [Pending].
func (r *Row) IsPending(pending map[string]bool) bool {
	return pending[strings.Join(strings.Fields(r.line), " ")]
}

// Input returns the model's input for a row.
func (w *World) Input(r *Row) json.RawMessage {
	arg := w.Fill(r.Arg)
	path := arg
	if !filepath.IsAbs(arg) && !strings.HasPrefix(arg, "~") {
		path = w.Workspace() + "/" + arg // not cleaned
	}
	var in map[string]string
	switch r.Tool {
	case "Bash":
		in = map[string]string{"command": arg}
	case "Read":
		in = map[string]string{"file_path": path}
	case "Write":
		in = map[string]string{"file_path": path, "content": "written"}
	case "Edit":
		in = map[string]string{"file_path": path, "old_string": "a", "new_string": "b", "replace_all": "true"}
	case "NotebookEdit":
		in = map[string]string{"notebook_path": path, "new_source": "x"}
	case "Glob":
		in = map[string]string{"pattern": arg}
	case "Grep":
		in = map[string]string{"pattern": ".", "path": path, "output_mode": "content"}
	case "WebFetch":
		in = map[string]string{"url": arg, "prompt": "x"}
	default: // of an MCP server
		return json.RawMessage(arg)
	}
	data, err := json.Marshal(in)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return data
}

// Request returns the policy request for a row. It returns an error if the tool rejects
// the input.
func (w *World) Request(r *Row, s *Setting) (*policy.Request, error) {
	req := &policy.Request{Input: w.Input(r), Mode: s.Mode, Roots: []string{w.Workspace()}, Home: w.Home()}
	if strings.HasPrefix(r.Tool, "mcp__") {
		req.Tool, req.Access = &tool.Spec{Name: r.Tool}, []tool.Access{{Kind: tool.Other}}
		return req, nil
	}
	for _, t := range builtin.All(nil) {
		if t.Spec().Name == r.Tool {
			var err error
			req.Tool = t.Spec()
			req.Access, err = t.Access(&tool.Env{Roots: req.Roots, Home: req.Home}, req.Input)
			return req, err
		}
	}
	return nil, fmt.Errorf("%s: there is no tool %s", r.Where(), r.Tool)
}
