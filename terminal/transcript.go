package terminal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-go/parley/wire"
)

// A transcript converts the messages of a conversation to lines to print, and to the state
// that the live region shows. It must be used by one goroutine.
type transcript struct {
	theme
	width func() int
	cwd   string // file names are shown relative to it
	more  string // the key that shows omitted text; empty if there is none

	out   []string // lines to print
	fresh bool     // nothing was printed yet
	last  string   // the kind of the last printed section: "text", "tool" …

	text     markdown
	streamed string // the text of the current block that was shown while it streamed
	thought  *thinking

	calls   []*toolCall // calls without a result, in order
	agents  []*subagent // running subagents, also in the background
	todos   []todo
	tasks   []*wire.BackgroundTask
	ended   []string // tasks whose end was printed
	details []detail // the content of the pager
	size    int      // bytes in details

	busy    bool // a turn is running
	doing   string
	since   time.Time
	retry   string
	model   string
	mode    wire.PermissionMode
	session string
	tokens  int64   // in the context
	window  int64   // of the model
	cost    float64 // of the session
	costOK  bool    // the cost is known

	noted []string // warnings from the agent's standard error that are shown
}

// A thinking is a thought of the model while it streams.
type thinking struct {
	text  string
	since time.Time
}

// A toolCall is a running tool call.
type toolCall struct {
	id, name, arg string
	input         json.RawMessage
	since         time.Time
	output        []string // the last lines of its output
}

// A subagent is a running subagent.
type subagent struct {
	call       string // the id of the tool call that started it
	task       string // its id as a task
	name       string // its description
	kind       string
	depth      int
	background bool
	since      time.Time
	tools      int    // number of calls so far
	note       string // the last call
}

// A todo is an item of the model's todo list.
type todo struct {
	Content    string `json:"content"`
	Status     string `json:"status"`
	ActiveForm string `json:"activeForm"`
}

// A detail is a text that the pager shows in full.
type detail struct {
	title string
	body  string
}

// maxDetails is how many bytes of details are kept.
const maxDetails = 8 << 20

func newTranscript(t theme, width func() int, cwd string) *transcript {
	return &transcript{theme: t, width: width, cwd: cwd, more: "Ctrl-O", fresh: true, costOK: true, text: markdown{theme: t, width: width}}
}

// print adds lines.
func (s *transcript) print(lines ...string) {
	if len(lines) > 0 {
		s.fresh = false
		s.out = append(s.out, lines...)
	}
}

// section starts another kind of output: an empty line comes before it, but not between tool
// calls.
func (s *transcript) section(kind string) {
	if !s.fresh && (kind != "tool" || s.last != "tool") && s.last != "gap" {
		s.out = append(s.out, "")
	}
	s.last = kind
}

// notice prints a line that is not part of the conversation.
func (s *transcript) notice(text string) {
	s.endText()
	s.section("note")
	s.paragraph(dim, "· ", text)
}

// link prints an address.
func (s *transcript) link(address string) {
	s.print(s.wrap([]span{{text: Visible(address), link: Visible(address)}}, s.width(), nil, nil)...)
}

// paragraph prints text with a style, wrapped, after a mark.
func (s *transcript) paragraph(look, mark, text string) {
	indent := []span{{text: strings.Repeat(" ", columns(mark))}}
	first := []span{{look: look, text: mark}}
	for l := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		s.print(s.wrap([]span{{look: look, text: expandTabs(Readable(l))}}, s.width(), first, indent)...)
		first = indent
	}
}

// prompt prints a prompt of a person.
func (s *transcript) prompt(text string) {
	s.section("prompt")
	first, rest := []span{{look: cyan + ";" + bold, text: "> "}}, []span{{text: "  "}}
	for l := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		s.print(s.wrap([]span{{look: bold, text: expandTabs(Readable(l))}}, s.width(), first, rest)...)
		first = rest
	}
	s.keep("> "+text, "")
}

// warn prints a warning.
func (s *transcript) warn(text string) {
	if slices.Contains(s.noted, text) {
		return
	}
	s.endText()
	s.section("note")
	s.paragraph(yellow, "! ", text)
}

// keep stores something for the pager.
func (s *transcript) keep(title, body string) {
	s.details = append(s.details, detail{title, body})
	s.size += len(title) + len(body)
	for s.size > maxDetails && len(s.details) > 1 {
		s.size -= len(s.details[0].title) + len(s.details[0].body)
		s.details = slices.Delete(s.details, 0, 1)
	}
}

func (s *transcript) do(what string) {
	if s.doing != what {
		s.doing, s.since = what, time.Now()
	}
}

// begin records that a turn started.
func (s *transcript) begin() {
	if !s.busy {
		s.busy = true
		s.doing = ""
		s.do("Thinking")
	}
}

// end records that no turn is running.
func (s *transcript) end() {
	s.endText()
	s.busy, s.retry, s.doing, s.calls = false, "", "", nil
}

// message processes a message.
func (s *transcript) message(m wire.Message) {
	switch m := m.(type) {
	case *wire.StreamEvent:
		if m.ParentToolUseID == "" {
			s.stream(m)
		}
	case *wire.Init:
		s.model, s.mode, s.session = m.Model, m.PermissionMode, m.SessionID
		for _, e := range m.PluginErrors {
			s.warn("plugin: " + fmt.Sprint(e.Plugin, ": ", e.Message))
		}
	case *wire.Assistant:
		s.retry = ""
		for _, b := range m.Message.Content.All() {
			s.block(b, m.ParentToolUseID)
		}
		if u := m.Message.Usage; u != nil && m.ParentToolUseID == "" {
			if n := u.InputTokens + u.CacheCreationInputTokens + u.CacheReadInputTokens + u.OutputTokens; n > 0 {
				s.tokens = n
			}
		}
	case *wire.User:
		for _, b := range m.Message.Content.All() {
			if r, ok := b.(*wire.ToolResultBlock); ok {
				s.result(r, m.ToolUseResult, m.ParentToolUseID)
			}
		}
	case *wire.ToolProgress:
		s.progress(m)
	case *wire.TaskStarted:
		s.startAgent(m)
	case *wire.TaskNotification:
		s.notified(m, s.endAgent(m.ToolUseID))
	case *wire.BackgroundTasksChanged:
		s.tasks = m.Tasks
	case *wire.Status:
		if m.Status == "compacting" {
			s.begin()
			s.do("Compacting the conversation")
		}
		if m.PermissionMode != "" {
			s.mode = m.PermissionMode
		}
	case *wire.CompactBoundary:
		s.endText()
		s.section("note")
		s.print(s.paint(dim, "── the conversation was compacted ──"))
	case *wire.APIRetry:
		what := "The API could not be reached"
		if m.ErrorStatus != 0 {
			what = fmt.Sprintf("The API answered with status %d (%s)", m.ErrorStatus, m.Error)
		}
		s.warn(fmt.Sprintf("%s. Retrying in %.1f s (%d of %d).", what, float64(m.RetryDelayMS)/1000, m.Attempt, m.MaxRetries))
		s.do("Waiting")
	case *wire.Informational:
		switch {
		case m.Tag == "session_index":
			s.do(Visible(m.Content))
		case m.Level == "warning":
			s.warn(m.Content)
		default:
			s.notice(m.Content)
		}
	case *wire.Notification:
		s.notice(m.Text)
	case *wire.LocalCommandOutput:
		s.endText()
		s.section("text")
		s.print(s.text.write(m.Content)...)
		s.print(s.text.close()...)
	case *wire.ModelFallback:
		s.warn(m.Content)
	case *wire.Result:
		s.closing(m)
	}
}

// stream shows text while it arrives.
func (s *transcript) stream(m *wire.StreamEvent) {
	ev, err := m.Parse()
	if err != nil {
		return
	}
	switch ev.Type {
	case "message_start":
		s.begin()
		s.do("Thinking")
	case "content_block_start":
		s.endText()
	case "content_block_delta":
		switch d := ev.Delta; {
		case d == nil:
		case d.Text != "":
			s.begin()
			s.write(d.Text)
		case d.Thinking != "":
			s.begin()
			if s.thought == nil {
				s.thought = &thinking{since: time.Now()}
			}
			s.thought.text += d.Thinking
		case d.PartialJSON != "" && len(s.calls) == 0:
			s.do("Writing")
		}
	}
}

// write shows text of the model.
func (s *transcript) write(text string) {
	s.endThought()
	if s.streamed == "" {
		if text = strings.TrimLeft(text, "\n"); text == "" {
			return
		}
		s.section("text")
	}
	s.streamed += text
	s.print(s.text.write(text)...)
}

// endText prints the rest of the text and the thought.
func (s *transcript) endText() {
	s.endThought()
	if lines := s.text.close(); len(lines) > 0 {
		s.print(lines...)
	}
}

// thoughtLines is how many lines of a thought are printed.
const thoughtLines = 6

func (s *transcript) endThought() {
	if s.thought == nil {
		return
	}
	text, took := strings.TrimSpace(s.thought.text), time.Since(s.thought.since)
	s.thought = nil
	s.think(text, took)
}

// think prints a thought, dimmed and shortened; the pager shows all of it.
func (s *transcript) think(text string, took time.Duration) {
	if text == "" {
		return
	}
	s.section("thought")
	lines := s.thoughtLines(text)
	if more := len(lines) - thoughtLines; more > 1 {
		lines = append(lines[:thoughtLines], fmt.Sprintf(s.omitted(), more))
	}
	s.print(lines...)
	title := "Thinking"
	if took >= time.Second {
		title += " for " + Seconds(took)
	}
	s.keep(title, text)
}

func (s *transcript) thoughtLines(text string) (out []string) {
	first, rest := []span{{look: dim, text: "∴ "}}, []span{{text: "  "}}
	for l := range strings.SplitSeq(text, "\n") {
		out = append(out, s.wrap([]span{{look: dim + ";" + italic, text: expandTabs(Readable(l))}}, s.width(), first, rest)...)
		first = rest
	}
	return out
}

// block processes a complete block of a message.
func (s *transcript) block(b wire.Block, parent string) {
	switch b := b.(type) {
	case *wire.TextBlock:
		if parent != "" {
			return
		}
		text := b.Text
		if s.streamed != "" && strings.HasPrefix(strings.TrimLeft(text, "\n"), s.streamed) {
			text = strings.TrimLeft(text, "\n")[len(s.streamed):] // chunks may have been lost
		} else if s.streamed != "" {
			s.endText()
			s.streamed = ""
		}
		if s.write(text); s.streamed != "" {
			s.endText()
			s.keep("", b.Text)
		}
		s.streamed = ""
	case *wire.ThinkingBlock:
		if parent != "" {
			return
		}
		if s.thought != nil {
			s.thought.text = b.Thinking
			s.endThought()
		} else if s.last != "thought" {
			s.think(strings.TrimSpace(b.Thinking), 0)
		}
	case *wire.ToolUseBlock:
		if parent != "" { // shown in the line of the subagent
			if a := s.agent(parent); a != nil {
				a.tools++
				a.note = Visible(b.Name) + " " + s.essence(b.Input)
			}
			return
		}
		s.endText()
		s.streamed = ""
		s.begin()
		if b.Name == "TodoWrite" {
			s.setTodos(b.Input)
		}
		s.calls = append(s.calls, &toolCall{id: b.ID, name: b.Name, arg: s.essence(b.Input), input: b.Input, since: time.Now()})
	}
}

func (s *transcript) setTodos(input json.RawMessage) {
	var in struct{ Todos []todo }
	if json.Unmarshal(input, &in) == nil {
		s.todos = in.Todos
	}
}

func (s *transcript) call(id string) *toolCall {
	for _, c := range s.calls {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (s *transcript) progress(m *wire.ToolProgress) {
	id := m.ToolUseID
	if m.Heartbeat || strings.Contains(id, "-heartbeat-") {
		id = m.ParentToolUseID
	}
	if c := s.call(id); c != nil {
		if began := time.Now().Add(-time.Duration(m.ElapsedTimeSeconds * float64(time.Second))); began.Before(c.since) {
			c.since = began
		}
		if m.Output != "" {
			c.output = lastLines(m.Output, 3)
		}
	}
}

// lastLines returns the last lines of some output as a terminal would show them: a carriage
// return restarts the line.
func lastLines(output string, n int) (lines []string) {
	all := strings.Split(strings.TrimSpace(output), "\n")
	for _, line := range all[max(0, len(all)-n):] {
		line = strings.TrimRight(line, "\r")
		line = line[strings.LastIndexByte(line, '\r')+1:]
		lines = append(lines, Visible(strings.ReplaceAll(line, "\t", "    ")))
	}
	return lines
}

// startAgent records that a subagent started.
func (s *transcript) startAgent(m *wire.TaskStarted) {
	if m.SubagentType == "" || m.ToolUseID == "" || s.agent(m.ToolUseID) != nil {
		return
	}
	a := &subagent{call: m.ToolUseID, task: m.TaskID, name: Visible(m.Description), kind: Visible(m.SubagentType), since: time.Now()}
	if m.IsBackgrounded != nil {
		a.background = *m.IsBackgrounded
	}
	at := len(s.agents)
	for i, p := range s.agents { // below the one that started it
		if p.task == m.ParentTaskID && p.task != "" {
			a.depth, at = p.depth+1, i+1
		}
	}
	s.agents = slices.Insert(s.agents, at, a)
}

func (s *transcript) agent(call string) *subagent {
	for _, a := range s.agents {
		if a.call == call {
			return a
		}
	}
	return nil
}

// endAgent records that a subagent ended, and returns it.
func (s *transcript) endAgent(call string) *subagent {
	a := s.agent(call)
	s.agents = slices.DeleteFunc(s.agents, func(x *subagent) bool { return x == a })
	return a
}

// notified prints that a background task ended, which may be a subagent.
func (s *transcript) notified(m *wire.TaskNotification, a *subagent) {
	if m.SkipTranscript || m.Ambient {
		return
	}
	if s.call(m.ToolUseID) != nil {
		return // its result follows
	}
	mark := s.paint(green, "✓ ")
	if m.Status != "completed" {
		mark = s.paint(red, "✗ ")
	}
	s.ended = append(s.ended, m.TaskID)
	s.endText()
	s.section("tool")
	text := "background " + m.Status
	if a != nil && a.name != "" && !strings.Contains(m.Summary, a.name) {
		text += ": " + a.name
	}
	if m.Summary != "" {
		text += ": " + m.Summary
	}
	s.print(mark + clip(Visible(text), s.width()-2))
}

// showed reports whether the end of the task in a notice to the model is on the screen.
func (s *transcript) showed(notice string) bool {
	return slices.ContainsFunc(s.ended, func(id string) bool { return strings.Contains(notice, id) })
}

// result shows a finished call.
func (s *transcript) result(r *wire.ToolResultBlock, structured json.RawMessage, parent string) {
	if parent != "" {
		return // counted in the line of the subagent
	}
	c := s.call(r.ToolUseID)
	if c != nil {
		s.calls = slices.DeleteFunc(s.calls, func(x *toolCall) bool { return x == c })
	} else {
		c = &toolCall{name: "?", since: time.Now()}
	}
	if len(s.calls) == 0 {
		s.doing = ""
		s.do("Thinking")
	}
	s.endText()
	mark, look := s.paint(green, "✓"), ""
	if r.IsError {
		mark, look = s.paint(red, "✗"), red
	}
	name, outcome := Visible(c.name), s.outcome(r, structured)
	if a := s.agent(r.ToolUseID); a != nil && !a.background {
		s.endAgent(r.ToolUseID)
		outcome = strings.TrimSuffix(count(a.tools, "call", "calls")+" · "+outcome, " · ")
	}
	if c.name == "TodoWrite" && !r.IsError {
		outcome = ""
	}
	if took := time.Since(c.since); took >= 3*time.Second {
		outcome = strings.TrimSuffix(Seconds(took)+" · "+outcome, " · ")
	}
	room := s.width() - columns("✓   · ") - columns(name)
	outcome = clip(outcome, max(room-columns(c.arg), s.width()/3))
	arg := clip(c.arg, max(10, room-columns(outcome)))
	text := mark + " " + s.paint(bold, name)
	if arg != "" {
		text += " " + arg
	}
	if outcome != "" {
		if look == "" {
			look = dim
		}
		text += s.paint(look, " · "+outcome)
	}
	s.section("tool")
	s.print(text)
	diff := s.patch(structured)
	s.print(limit(diff, 24, s.omitted())...)
	if len(diff) > 0 {
		s.last = "diff"
	}
	body := indented(c.input)
	if cmd := stringMember(c.input, "command"); cmd != "" {
		body = "$ " + cmd
	}
	s.keep(mark+" "+c.name, body+"\n\n"+resultText(r))
}

// omitted is the format of a line for lines that are left out.
func (s *transcript) omitted() string {
	note := "  … %d more lines"
	if s.more != "" {
		note += " (" + s.more + ")"
	}
	return s.paint(dim, note)
}

// limit shortens lines; note is the format for how many are left out.
func limit(lines []string, most int, note string) []string {
	if len(lines) <= most+1 {
		return lines
	}
	return append(slices.Clip(lines[:most]), fmt.Sprintf(note, len(lines)-most))
}

func resultText(r *wire.ToolResultBlock) string {
	text := strings.TrimSpace(r.Content.String())
	for _, tag := range []string{"<tool_use_error>", "</tool_use_error>"} {
		text = strings.ReplaceAll(text, tag, "")
	}
	return strings.TrimSpace(text)
}

func indented(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return string(raw)
	}
	return string(text)
}

// essence returns the most informative argument of a call.
func (s *transcript) essence(input json.RawMessage) string {
	var in map[string]json.RawMessage
	if json.Unmarshal(input, &in) != nil {
		return clip(Visible(string(input)), 200)
	}
	str := func(name string) string { return rawString(in[name]) }
	var what string
	switch {
	case str("command") != "":
		what = str("command")
		if first, rest, more := strings.Cut(strings.TrimSpace(what), "\n"); more && strings.TrimSpace(rest) != "" {
			what = first + " …"
		}
	case str("file_path") != "" || str("notebook_path") != "":
		what = s.relative(str("file_path") + str("notebook_path"))
	case str("pattern") != "":
		what = str("pattern")
		if path := str("path"); path != "" {
			what += " in " + s.relative(path)
		}
	case in["questions"] != nil:
		var list []struct{ Header, Question string }
		json.Unmarshal(in["questions"], &list)
		var names []string
		for _, q := range list {
			names = append(names, cmp.Or(q.Header, q.Question))
		}
		what = strings.Join(names, ", ")
	case in["todos"] != nil:
		var list []todo
		json.Unmarshal(in["todos"], &list)
		done := 0
		for _, t := range list {
			if t.Status == "completed" {
				done++
			}
		}
		what = fmt.Sprintf("%d of %d done", done, len(list))
	default:
		for _, name := range []string{"url", "query", "description", "subject", "prompt", "path", "task_id", "taskId", "shell_id", "skill", "plan", "message"} {
			if what = str(name); what != "" {
				break
			}
		}
		if what == "" && len(in) > 0 {
			what = string(input)
		}
	}
	return clip(Visible(strings.TrimSpace(what)), 200)
}

func rawString(raw json.RawMessage) string {
	var text string
	json.Unmarshal(raw, &text)
	return text
}

func stringMember(input json.RawMessage, name string) string {
	var in map[string]json.RawMessage
	json.Unmarshal(input, &in)
	return rawString(in[name])
}

// relative returns a path relative to the working directory, if it is below it.
func (s *transcript) relative(path string) string {
	if s.cwd == "" || !filepath.IsAbs(path) {
		return path
	}
	if rel, err := filepath.Rel(s.cwd, path); err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return rel
	}
	return path
}

// A hunk is a part of a structured patch.
type hunk struct {
	OldStart int
	NewStart int
	Lines    []string
}

// outcome summarizes the result of a call in a few words.
func (s *transcript) outcome(r *wire.ToolResultBlock, structured json.RawMessage) string {
	var out struct {
		Stdout *string
		File   struct{ NumLines int }
		Type   string

		StructuredPatch []hunk
		Content         json.RawMessage
		NumFiles        *int
		NumLines        *int
		NumMatches      *int

		BackgroundTaskID string `json:"backgroundTaskId"`
	}
	if json.Unmarshal(structured, &out) != nil {
		out.Stdout = nil // it is a string
	}
	text := resultText(r)
	switch {
	case r.IsError:
		first, rest, _ := strings.Cut(text, "\n")
		if code, ok := strings.CutPrefix(first, "Exit code "); ok {
			first = "exit " + code
			if last := lastLine(rest); last != "" {
				first += " · " + last
			}
		}
		return Visible(strings.TrimPrefix(first, "Error: "))
	case out.BackgroundTaskID != "":
		return "in the background as " + Visible(out.BackgroundTaskID)
	case out.Stdout != nil:
		return Visible(lastLine(*out.Stdout))
	case out.File.NumLines > 0:
		return count(out.File.NumLines, "line", "lines")
	case len(out.StructuredPatch) > 0:
		added, removed := 0, 0
		for _, h := range out.StructuredPatch {
			for _, l := range h.Lines {
				switch {
				case strings.HasPrefix(l, "+"):
					added++
				case strings.HasPrefix(l, "-"):
					removed++
				}
			}
		}
		return fmt.Sprintf("+%d −%d", added, removed)
	case out.Type == "create":
		content := rawString(out.Content)
		return "new, " + count(strings.Count(strings.TrimSuffix(content, "\n"), "\n")+1, "line", "lines")
	case out.NumMatches != nil && *out.NumMatches > 0:
		return count(*out.NumMatches, "match", "matches")
	case out.NumLines != nil && *out.NumLines > 0:
		return count(*out.NumLines, "line", "lines")
	case out.NumFiles != nil:
		return count(*out.NumFiles, "file", "files")
	}
	first, _, _ := strings.Cut(text, "\n")
	return Visible(first)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexAny(text, "\r\n")+1:])
}

// patch returns the diff of a finished edit.
func (s *transcript) patch(structured json.RawMessage) (out []string) {
	var in struct{ StructuredPatch []hunk }
	if json.Unmarshal(structured, &in) != nil {
		return nil
	}
	for i, h := range in.StructuredPatch {
		if i > 0 {
			out = append(out, s.paint(dim, "     ⋮"))
		}
		before, after := h.OldStart, h.NewStart
		for _, l := range h.Lines {
			if l == "" {
				l = " "
			}
			out = append(out, s.diffLine(l[0], &before, &after, l[1:])...)
		}
	}
	return out
}

// diffLine returns one line of a diff with its number, and advances the numbers.
func (s *transcript) diffLine(sign byte, before, after *int, text string) []string {
	look, n := dim, *after
	switch sign {
	case '+':
		look = green
		*after++
	case '-':
		look, n = red, *before
		*before++
	case ' ':
		*before++
		*after++
	default:
		return []string{s.paint(dim, "       "+Visible(string(sign)+text))} // no newline at the end
	}
	number := fmt.Sprintf("%5d ", n)
	first := []span{{look: dim, text: number}, {look: look, text: string(sign) + " "}}
	rest := []span{{text: strings.Repeat(" ", columns(number)+2)}}
	if look == dim {
		look = ""
	}
	return s.wrap([]span{{look: look, text: expandTabs(strings.ReplaceAll(VisibleLines(text), "\n", `\n`))}}, s.width(), first, rest)
}

// unified returns a unified diff with line numbers.
func (s *transcript) unified(diff string) (out []string) {
	before, after := 0, 0
	for i, l := range strings.Split(strings.TrimSuffix(diff, "\n"), "\n") {
		switch {
		case i < 2 && (strings.HasPrefix(l, "--- ") || strings.HasPrefix(l, "+++ ")):
		case strings.HasPrefix(l, "@@"):
			if len(out) > 0 {
				out = append(out, s.paint(dim, "     ⋮"))
			}
			fmt.Sscanf(l, "@@ -%d", &before)
			if _, plus, ok := strings.Cut(l, "+"); ok {
				fmt.Sscanf(plus, "%d", &after)
			}
		case l == "":
			out = append(out, s.diffLine(' ', &before, &after, "")...)
		default:
			out = append(out, s.diffLine(l[0], &before, &after, l[1:])...)
		}
	}
	return out
}

// closing ends a turn with its costs.
func (s *transcript) closing(r *wire.Result) {
	s.endText()
	s.streamed = ""
	if len(r.StructuredOutput) > 0 {
		s.section("text")
		s.paragraph("", "", indented(r.StructuredOutput))
	}
	for _, u := range r.ModelUsage {
		s.window = max(s.window, u.ContextWindow)
		s.costOK = s.costOK && u.CostBasis != "unknown"
	}
	s.cost = r.TotalCostUSD
	out := r.Outcome()
	if u := r.Usage; out == wire.OutcomeCompleted && r.NumTurns == 0 && (u == nil || u.OutputTokens == 0) {
		s.end() // a command that the agent answered without the model
		return
	}
	s.section("end")
	mark := s.paint(green, "✓ ")
	if out != wire.OutcomeCompleted {
		why := out.String()
		if reason := r.Reason(); reason != "" && out != wire.OutcomeInterrupted && !strings.Contains(r.Result, reason) {
			why += ": " + reason
		}
		s.paragraph(red, "✗ ", why)
		mark = "  "
	}
	s.print(mark + s.paint(dim, clip(Costs(r), s.width()-2)))
	s.todos = slices.DeleteFunc(s.todos, func(t todo) bool { return t.Status == "completed" })
	s.end()
}

// Costs describes the cost of a turn: turns, tokens, money and time.
func Costs(r *wire.Result) string {
	parts := []string{count(r.NumTurns, "turn", "turns")}
	if u := r.Usage; u != nil {
		in := u.InputTokens + u.CacheCreationInputTokens + u.CacheReadInputTokens
		parts = append(parts, fmt.Sprintf("%s tokens in, %s out", Grouped(in), Grouped(u.OutputTokens)))
	}
	usd, known := r.TotalCostUSD, true
	if r.ModelUsageSinceLastResult != nil {
		usd = 0
		for _, m := range r.ModelUsageSinceLastResult {
			usd += m.CostUSD
			known = known && m.CostBasis != "unknown"
		}
	}
	if known {
		parts = append(parts, fmt.Sprintf("$%.4f", usd))
	} else {
		parts = append(parts, "cost unknown")
	}
	return strings.Join(append(parts, Seconds(time.Duration(r.DurationMS)*time.Millisecond)), " · ")
}

// Seconds formats a duration for people.
func Seconds(d time.Duration) string {
	if d < 100*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// Grouped formats a number with commas.
func Grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
