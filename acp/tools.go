package acp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/parley-go/parley/acp/internal/v1"
	"github.com/parley-go/parley/wire"
)

// toolInput has the members of built-in tool inputs that editors show.
type toolInput struct {
	FilePath     string      `json:"file_path"`
	NotebookPath string      `json:"notebook_path"`
	Path         string      `json:"path"`
	Pattern      string      `json:"pattern"`
	Glob         string      `json:"glob"`
	OutputMode   string      `json:"output_mode"`
	Command      string      `json:"command"`
	Description  string      `json:"description"`
	Content      *string     `json:"content"`
	NewSource    *string     `json:"new_source"`
	OldString    *string     `json:"old_string"`
	NewString    *string     `json:"new_string"`
	Offset       json.Number `json:"offset"`
	Limit        json.Number `json:"limit"`
	URL          string      `json:"url"`
	Query        string      `json:"query"`
	Prompt       string      `json:"prompt"`
	Plan         string      `json:"plan"`
	Skill        string      `json:"skill"`
	Subject      string      `json:"subject"`
	TaskID       string      `json:"task_id"`
	Todos        []todo      `json:"todos"`
	Questions    []question  `json:"questions"`
	Edits        []struct {
		OldString string `json:"old_string"`
		NewString string `json:"new_string"`
	} `json:"edits"`
}

// question returns the first question of a call of AskUserQuestion.
func (in *toolInput) question() string {
	if len(in.Questions) == 0 {
		return ""
	}
	return in.Questions[0].Question
}

type todo struct {
	Content string `json:"content"`
	Status  string `json:"status"`
}

// A tool describes how calls of a tool are shown.
type tool struct {
	kind v1.ToolKind
	// before is the title while the input is unknown.
	before string
	// title returns the title of a call; rel shortens paths.
	title func(in *toolInput, rel func(string) string) string
	// located means that calls have locations, and so an empty list before the input is
	// known.
	located bool
	// console means that the result is the output of a command, fenced that it is text to
	// show verbatim, report that it is the report of a subagent, silent that the earlier content shows it
	// already.
	console, fenced, report, silent bool
}

// tools has a row for each built-in tool. A tool without a row, such as one of an MCP
// server, is shown by its name.
var tools = map[string]*tool{
	"Read": {kind: v1.ToolKindRead, before: "Read File", located: true, fenced: true, title: func(in *toolInput, rel func(string) string) string {
		offset, _ := in.Offset.Int64()
		limit, _ := in.Limit.Int64()
		switch path := rel(in.FilePath); {
		case path == "":
			return "Read File"
		case limit > 0:
			return fmt.Sprintf("Read %s (%d - %d)", path, max(1, offset), max(1, offset)+limit-1)
		case offset > 0:
			return fmt.Sprintf("Read %s (from line %d)", path, offset)
		default:
			return "Read " + path
		}
	}},
	"Write":        {kind: v1.ToolKindEdit, before: "Preparing file…", located: true, silent: true, title: pathTitle("Write")},
	"Edit":         {kind: v1.ToolKindEdit, before: "Edit", located: true, silent: true, title: pathTitle("Edit")},
	"MultiEdit":    {kind: v1.ToolKindEdit, before: "Edit", located: true, silent: true, title: pathTitle("Edit")},
	"NotebookEdit": {kind: v1.ToolKindEdit, before: "Edit Notebook", located: true, silent: true, title: pathTitle("Edit")},
	"Bash":         {kind: v1.ToolKindExecute, before: "Terminal", console: true, title: func(in *toolInput, _ func(string) string) string { return in.Command }},
	"BashOutput":   {kind: v1.ToolKindExecute, before: "Tail Logs", console: true},
	"TaskOutput":   {kind: v1.ToolKindExecute, before: "Tail Logs", console: true},
	"Monitor":      {kind: v1.ToolKindExecute, before: "Monitor", title: func(in *toolInput, _ func(string) string) string { return in.Command }},
	"KillShell":    {kind: v1.ToolKindExecute, before: "Kill Process"},
	"TaskStop":     {kind: v1.ToolKindExecute, before: "Stop task"},
	"Glob": {kind: v1.ToolKindSearch, before: "Find", located: true, title: func(in *toolInput, rel func(string) string) string {
		return join("Find", quote(rel(in.Path)), quote(in.Pattern))
	}},
	"Grep": {kind: v1.ToolKindSearch, before: "grep", title: func(in *toolInput, rel func(string) string) string {
		return join("grep", flag(" -l", in.OutputMode == "" || in.OutputMode == "files_with_matches"), flag(" -c", in.OutputMode == "count"),
			flag(fmt.Sprintf(" --include=%q", in.Glob), in.Glob != ""), fmt.Sprintf(" %q", in.Pattern), flag(" "+rel(in.Path), in.Path != ""))
	}},
	"WebFetch":        {kind: v1.ToolKindFetch, before: "Fetch", title: func(in *toolInput, _ func(string) string) string { return "Fetch " + in.URL }},
	"WebSearch":       {kind: v1.ToolKindFetch, before: "Web search", title: func(in *toolInput, _ func(string) string) string { return fmt.Sprintf("%q", in.Query) }},
	"Task":            {kind: v1.ToolKindThink, before: "Task", report: true, title: func(in *toolInput, _ func(string) string) string { return in.Description }},
	"Agent":           {kind: v1.ToolKindThink, before: "Task", report: true, title: func(in *toolInput, _ func(string) string) string { return in.Description }},
	"TaskCreate":      {kind: v1.ToolKindThink, before: "Update tasks"},
	"TaskUpdate":      {kind: v1.ToolKindThink, before: "Update tasks"},
	"TaskGet":         {kind: v1.ToolKindThink, before: "Get task"},
	"TaskList":        {kind: v1.ToolKindThink, before: "List tasks"},
	"TodoWrite":       {kind: v1.ToolKindThink, before: "Update TODOs"},
	"Skill":           {kind: v1.ToolKindOther, before: "Skill", title: func(in *toolInput, _ func(string) string) string { return "Skill: " + in.Skill }},
	"AskUserQuestion": {kind: v1.ToolKindOther, before: "Question", title: func(in *toolInput, _ func(string) string) string { return in.question() }},
	"EnterPlanMode":   {kind: v1.ToolKindSwitchMode, before: "Plan"},
	"ExitPlanMode":    {kind: v1.ToolKindSwitchMode, before: "Approve Plan"},
	"ToolSearch":      {kind: v1.ToolKindSearch, before: "Search tools"},
}

func pathTitle(verb string) func(*toolInput, func(string) string) string {
	return func(in *toolInput, rel func(string) string) string {
		path := rel(firstOf(in.FilePath, in.NotebookPath))
		if path == "" {
			return ""
		}
		return verb + " " + path
	}
}

func firstOf(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

func join(parts ...string) string { return strings.Join(parts, "") }

func flag(s string, on bool) string {
	if on {
		return s
	}
	return ""
}

func quote(s string) string { return flag(" `"+s+"`", s != "") }

// A shownCall is the presentation of a call in an editor.
type shownCall struct {
	title     string
	kind      v1.ToolKind
	content   []v1.ToolCallContent
	locations []v1.ToolCallLocation
}

// toolOf returns the row of a tool.
func toolOf(name string) *tool {
	if t := tools[name]; t != nil {
		return t
	}
	return &tool{kind: v1.ToolKindOther, before: name}
}

// show returns the presentation of a call. Its input may be incomplete.
func show(name string, input json.RawMessage, cwd string) shownCall {
	t := toolOf(name)
	s := shownCall{title: t.before, kind: t.kind, content: []v1.ToolCallContent{}}
	if t.located {
		s.locations = []v1.ToolCallLocation{}
	}
	var in toolInput
	if json.Unmarshal(input, &in) != nil || len(bytes.TrimSpace(input)) <= 2 {
		return s
	}
	if t.title != nil {
		if title := t.title(&in, func(path string) string { return relative(cwd, path) }); strings.TrimSpace(title) != "" {
			s.title = title
		}
	}
	path := firstOf(in.FilePath, in.NotebookPath)
	switch name {
	case "Read":
		line, _ := in.Offset.Int64()
		s.locations = located(path, max(1, line))
	case "Write", "Edit", "MultiEdit", "NotebookEdit":
		s.locations = located(path, 0)
		s.content = diffs(path, &in)
	case "Glob":
		s.locations = located(in.Path, 0)
	case "Bash":
		s.content = textContent(in.Description)
	case "Task", "Agent", "WebFetch":
		s.content = textContent(in.Prompt)
	case "ExitPlanMode":
		s.content = textContent(in.Plan)
	case "AskUserQuestion":
		s.content = textContent(in.question())
	}
	return s
}

func located(path string, line int64) []v1.ToolCallLocation {
	if path == "" {
		return []v1.ToolCallLocation{}
	}
	return []v1.ToolCallLocation{{Path: path, Line: line}}
}

// diffs returns the changes that a call would make to a file.
func diffs(path string, in *toolInput) []v1.ToolCallContent {
	list := []v1.ToolCallContent{}
	add := func(before *string, after string) {
		list = append(list, v1.ToolCallContent{Diff: &v1.Diff{Path: path, OldText: before, NewText: after}})
	}
	switch {
	case path == "":
	case in.Content != nil:
		add(nil, *in.Content)
	case in.NewString != nil && in.OldString != nil:
		if *in.OldString == "" {
			add(nil, *in.NewString)
		} else {
			add(in.OldString, *in.NewString)
		}
	case in.NewSource != nil:
		add(nil, *in.NewSource)
	}
	for _, e := range in.Edits {
		add(&e.OldString, e.NewString)
	}
	return list
}

func text(s string) v1.ContentBlock { return v1.ContentBlock{Text: &v1.TextContent{Text: s}} }

func textContent(s string) []v1.ToolCallContent {
	if s == "" {
		return []v1.ToolCallContent{}
	}
	return []v1.ToolCallContent{{Content: &v1.Content{Content: text(s)}}}
}

// relative returns a path relative to the working directory, if it is below it.
func relative(cwd, path string) string {
	if !filepath.IsAbs(path) || cwd == "" {
		return path
	}
	rel, err := filepath.Rel(cwd, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return path
	}
	return rel
}

// emptyLine matches the number of an empty last line, as Read writes it.
var emptyLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\n\s*\d+\t$`) })

// result returns the content that shows the result of a call; nil keeps the current content.
func (t *tool) result(r *wire.ToolResultBlock, structured json.RawMessage) []v1.ToolCallContent {
	if t.silent && !r.IsError {
		return nil
	}
	plain := strings.Trim(resultText(r), "\n")
	switch {
	case hasPictures(r):
	case r.IsError && plain != "":
		return textContent(fence("", plain))
	case t.console:
		var out struct{ Stdout, Stderr *string }
		if json.Unmarshal(structured, &out) == nil && out.Stdout != nil && out.Stderr != nil && *out.Stdout+*out.Stderr == "" {
			plain = "" // the text is for the model
		}
		if plain == "" {
			return nil
		}
		return textContent(fence("console", plain))
	case t.report:
		var out struct {
			Status  string
			Content []struct{ Text string }
		}
		if json.Unmarshal(structured, &out) == nil && out.Status == "completed" && len(out.Content) > 0 {
			plain = "" // the text is for the model
			for _, c := range out.Content {
				plain += c.Text
			}
		}
		return textContent(plain)
	case t.fenced && plain != "":
		return textContent(fence("", emptyLine().ReplaceAllString(plain, "")))
	}
	var list []v1.ToolCallContent
	for _, b := range r.Content.All() {
		if c, ok := blockOf(b); ok {
			list = append(list, v1.ToolCallContent{Content: &v1.Content{Content: c}})
		}
	}
	return list
}

// blockOf converts a block of a message to the protocol.
func blockOf(b wire.Block) (v1.ContentBlock, bool) {
	switch b := b.(type) {
	case *wire.TextBlock:
		return text(b.Text), b.Text != ""
	case *wire.ImageBlock:
		if b.Source != nil && b.Source.Type == "base64" {
			return v1.ContentBlock{Image: &v1.ImageContent{Data: b.Source.Data, MimeType: b.Source.MediaType}}, true
		}
	}
	return v1.ContentBlock{}, false
}

func hasPictures(r *wire.ToolResultBlock) bool {
	for _, b := range r.Content.All() {
		if _, ok := b.(*wire.ImageBlock); ok {
			return true
		}
	}
	return false
}

// resultText returns the text of a result.
func resultText(r *wire.ToolResultBlock) string {
	var b strings.Builder
	for _, x := range r.Content.All() {
		if t, ok := x.(*wire.TextBlock); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

// fence returns text as a code block of Markdown, whatever the text contains.
func fence(language, s string) string {
	ticks := "```"
	for strings.Contains(s, ticks) {
		ticks += "`"
	}
	return ticks + language + "\n" + s + "\n" + ticks
}

// planOf returns the plan for a list of tasks.
func planOf(todos []todo) *v1.Plan {
	p := &v1.Plan{Entries: []v1.PlanEntry{}}
	for _, t := range todos {
		status := v1.PlanEntryStatus(t.Status)
		switch status {
		case v1.PlanEntryStatusPending, v1.PlanEntryStatusInProgress, v1.PlanEntryStatusCompleted:
		default:
			status = v1.PlanEntryStatusPending
		}
		p.Entries = append(p.Entries, v1.PlanEntry{Content: t.Content, Priority: v1.PlanEntryPriorityMedium, Status: status})
	}
	return p
}

// completeMembers returns the complete members of a JSON object whose end may be missing.
func completeMembers(partial []byte) map[string]json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(partial))
	members := map[string]json.RawMessage{}
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return members
	}
	for d.More() {
		key, err := d.Token()
		name, ok := key.(string)
		var value json.RawMessage
		if err != nil || !ok || d.Decode(&value) != nil {
			break
		}
		// A number at the end of the input so far may continue.
		if d.InputOffset() == int64(len(partial)) && value[len(value)-1] != '"' && value[len(value)-1] != '}' && value[len(value)-1] != ']' {
			break
		}
		members[name] = value
	}
	return members
}
