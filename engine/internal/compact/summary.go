package compact

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/internal/ask"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/read"
	"github.com/parley-go/parley/engine/tool/tasklist"
	"github.com/parley-go/parley/engine/tool/todowrite"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

//go:embed summary.md
var summaryPrompt string

const (
	attachedFiles = 5        // number of files repeated after a summary
	attachedFile  = 20 << 10 // limit of each, in bytes
)

// todosField holds the list of TodoWrite in the record of a summary.
const todosField = "parleyTodos"

// RestoreTodos restores the list of TodoWrite from a record that changed it.
func (c *Compactor) RestoreTodos(e *session.Entry) {
	set := func(todos []todowrite.Todo) {
		if !slices.ContainsFunc(todos, func(t todowrite.Todo) bool { return t.Status != "completed" }) {
			todos = nil // a completed list is cleared
		}
		todowrite.Set(c.Env, todos)
	}
	if raw := e.Fields[todosField]; raw != nil {
		var todos []todowrite.Todo
		json.Unmarshal(raw, &todos)
		set(todos)
	}
	if e.Type != "user" || !bytes.Contains(e.Fields["toolUseResult"], []byte(`"newTodos"`)) {
		return
	}
	var out todowrite.Output
	if json.Unmarshal(e.Fields["toolUseResult"], &out) == nil && out.NewTodos != nil {
		set(out.NewTodos)
	}
}

// summaryText returns the message that replaces the conversation.
func summaryText(summary string, tools []string, path string, kept bool) string {
	var b strings.Builder
	b.WriteString("This conversation continues an earlier one that was too long to keep. This is a summary of the earlier part:\n\n")
	b.WriteString(summary)
	if len(tools) > 0 {
		b.WriteString("\n\nTools that were used in it: " + strings.Join(tools, ", ") + ".")
	}
	if path != "" {
		b.WriteString("\n\nThe earlier part is on record in " + path + ", a JSON object a line. Look there for details that the summary lacks.")
	}
	b.WriteString("\n\nGo on where it stopped. Do not mention the summary, do not repeat what was done, and ask the user nothing that was answered already.")
	if kept {
		b.WriteString(" What follows was said after the part that is summarized; whoever wrote the summary has not seen it.")
	}
	return b.String()
}

// toolsUsed returns the tools that a conversation used, without duplicates.
func toolsUsed(t history.Transcript) []string {
	var names []string
	t.EachCall(func(_, name string, _ json.RawMessage) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	})
	return names
}

// shownAgain returns texts to add after a summary because the model is likely to need them:
// files that it worked on, the task lists, and running tasks.
func (c *Compactor) shownAgain(t Turn, head history.Transcript) []string {
	parts := c.filesAgain(t, head)
	list := func(title string, lines []string) {
		if len(lines) > 0 {
			parts = append(parts, title+"\n- "+strings.Join(lines, "\n- "))
		}
	}
	var tasks, todos, running []string
	for _, task := range tasklist.Of(c.Env) {
		tasks = append(tasks, fmt.Sprintf("#%s [%s] %s", task.ID, task.Status, task.Subject))
	}
	for _, todo := range todowrite.Of(c.Env) {
		todos = append(todos, fmt.Sprintf("[%s] %s", todo.Status, todo.Content))
	}
	for _, info := range c.Env.Tasks().RunningOf(c.Env.Agent) {
		running = append(running, info.ID+": "+info.Description)
	}
	list("Your tasks, as TaskList shows them:", tasks)
	list("Your list of tasks:", todos)
	list("These tasks run in the background:", running)
	return parts
}

// filesAgain returns the files that the model worked on, newest first.
func (c *Compactor) filesAgain(t Turn, head history.Transcript) (parts []string) {
	var paths []string
	head.EachCall(func(_, name string, input json.RawMessage) {
		var in struct {
			FilePath string `json:"file_path"`
		}
		if slices.Contains([]string{"Read", "Edit", "Write"}, name) && json.Unmarshal(input, &in) == nil && in.FilePath != "" {
			path := files.Abs(c.Env, in.FilePath)
			paths = append(slices.DeleteFunc(paths, func(p string) bool { return p == path }), path)
		}
	})
	slices.Reverse(paths)
	left := attachedFiles
	if c.Limits().At < 200_000/2 {
		left = 1
	}
	var others []string
	for _, path := range paths {
		text, ok := "", false
		if left > 0 {
			text, ok = c.readAgain(t.Ctx, path)
		}
		if !ok {
			others = append(others, path)
			continue
		}
		left--
		parts = append(parts, "You worked on "+path+" before the summary. This is its present content, as Read shows it:\n"+text)
	}
	if n := min(len(others), 20); n > 0 {
		parts = append(parts, "You also worked on these files; read them if you need them:\n"+strings.Join(others[:n], "\n"))
	}
	return parts
}

// readAgain reads a file for the model, if it is small and reading it needs no permission.
func (c *Compactor) readAgain(ctx context.Context, path string) (text string, ok bool) {
	if !c.HasTool("Read") {
		return "", false
	}
	tl, input := read.New(), recorder.JSON(map[string]string{"file_path": path})
	c.Serve(func() {
		v := c.View()
		req := v.Request(c.Env, tl, input, []tool.Access{{Kind: tool.Read, Path: path}}, nil)
		target := req.Resolved[path]
		if target.Info == nil || !target.Info.Mode().IsRegular() || target.Info.Size() > attachedFile {
			return
		}
		if v.Rules().Decide(req).Behavior != wire.BehaviorAllow || c.Env.Hidden != nil && c.Env.Hidden(path, &target) {
			return
		}
		r, err := tl.Run(ctx, &tool.Call{ID: "compact_" + session.NewID(), Input: input, Env: v.Env, Resolved: req.Resolved})
		if err == nil && !r.IsError && !slices.ContainsFunc(r.Content.Blocks, func(b wire.Block) bool { _, is := b.(*wire.TextBlock); return !is }) {
			text, ok = r.Content.String(), true
		}
	})
	return text, ok && len(text) <= 2*attachedFile
}

// summarize lets the model summarize a conversation. If that does not fit into a request
// either, results of tools are left out, and then the oldest messages.
func summarize(t Turn, of history.Transcript, instructions string, tight bool) (string, error) {
	if tight {
		of, _ = of.WithoutResults(nil)
	}
	for n := 0; ; n++ {
		text, err := askSummary(t, of, instructions)
		if ask.Overflowed(err) == nil || n == maxShrinks {
			return text, err
		}
		if !tight {
			tight = true
			of, _ = of.WithoutResults(nil)
			continue
		}
		var ok bool
		if of, ok = of.WithoutOldest(); !ok {
			return "", err
		}
	}
}

// askSummary requests a summary. If the model calls tools instead, it is asked once more
// without being able to call any.
func askSummary(t Turn, of history.Transcript, instructions string) (text string, err error) {
	words := strings.TrimSpace(summaryPrompt)
	if instructions != "" {
		words += "\n\nThe user wants this to be kept in mind for the summary:\n" + instructions
	}
	of = of.Clone()
	of.Add("user", recorder.JSON(&wire.TextBlock{Text: words}))
	for _, noTools := range []bool{false, true} {
		reply, failed := t.Ask(of, noTools)
		if cause := context.Cause(t.Ctx); cause != nil {
			return "", cause
		}
		if failed != nil {
			return "", failed
		}
		if text, err = reply.summary(); err == nil || !reply.Called {
			return text, err
		}
	}
	return "", err
}

// summary returns the summary in a reply.
func (r Reply) summary() (string, error) {
	if r.Refused {
		return "", errors.New("the model declined to write a summary")
	}
	text := r.Text
	if _, in, ok := strings.Cut(text, "<summary>"); ok {
		text = in
		if i := strings.LastIndex(text, "</summary>"); i >= 0 {
			text = text[:i]
		}
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", errors.New("the model wrote no summary")
	}
	return text, nil
}
