package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/parley-go/parley/terminal"
	"github.com/parley-go/parley/wire"
)

// A screen shows a conversation to a person: the text while it arrives, a line for each
// finished tool call, a progress indicator, and a closing line for each turn. Text of
// models and tools cannot move the cursor or colour anything: control characters are
// made visible. It is safe for concurrent use.
type screen struct {
	w     io.Writer
	width func() int // columns
	color bool
	live  bool   // there is a progress indicator
	cwd   string // file names are shown relative to it

	mu       sync.Mutex
	fresh    bool               // nothing was written yet
	last     string             // the kind of the last output: "text", "tool" …
	open     bool               // the cursor is after text
	spaced   bool               // the last line is empty
	streamed bool               // the text of the block was shown while it arrived
	markdown *terminal.Markdown // renders it; nil if this is not a terminal
	calls    []*toolLine        // calls without a result, in order
	doing    string             // the text of the indicator; empty for none
	since    time.Time
	drawn    bool // the indicator is on the screen
	asking   bool // a question is on the screen: everything else waits
	held     []wire.Message
	begun    map[string]chan struct{} // closed when a tool call was shown
	frame    int
	stop     chan struct{}
	stopped  sync.WaitGroup
}

// A toolLine is a running tool call.
type toolLine struct {
	id, name, arg string
}

// newScreen returns a screen for standard output. It is plain if that is not a
// terminal.
func newScreen(p *process, cwd string) *screen {
	s := &screen{w: p.stdout, cwd: cwd, fresh: true, width: func() int { return 80 }}
	if f, ok := p.stdout.(*os.File); ok {
		if _, ok := ttyWidth(f); ok {
			dumb := p.getenv("TERM") == "dumb"
			s.live, s.color = !dumb, !dumb && p.getenv("NO_COLOR") == ""
			s.width = func() int {
				if w, ok := ttyWidth(f); ok && w >= 20 {
					return w
				}
				return 80
			}
			s.markdown = terminal.NewMarkdown(s.color, s.width)
		}
	}
	return s
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, ok = ttyWidth(f)
	return ok
}

// explainWait explains to a person who typed a command for other programs what it waits for.
func explainWait(p *process, name, who string) {
	if isTerminal(p.stdin) {
		fmt.Fprintf(p.stderr, "parley %s: waiting for %s on standard input. \"parley help %s\" explains its use; Ctrl-C ends it\n", name, who, firstWord(name))
	}
}

// The styles of text.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (s *screen) paint(look, text string) string {
	if !s.color || text == "" {
		return text
	}
	return "\x1b[" + look + "m" + text + "\x1b[0m"
}

// begin starts the indicator at the start of a turn.
func (s *screen) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.streamed, s.begun = nil, false, map[string]chan struct{}{}
	s.do("Thinking")
	if !s.live || s.stop != nil {
		return
	}
	s.stop = make(chan struct{})
	s.stopped.Add(1)
	go func(stop chan struct{}) {
		defer s.stopped.Done()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				s.mu.Lock()
				s.spin()
				s.mu.Unlock()
			}
		}
	}(s.stop)
}

// end removes the indicator and ends the line.
func (s *screen) end() {
	s.mu.Lock()
	s.doing = ""
	s.endLine()
	stop := s.stop
	s.stop = nil
	s.mu.Unlock()
	if stop != nil {
		close(stop)
		s.stopped.Wait()
	}
}

// do sets the text of the indicator. The caller holds mu.
func (s *screen) do(what string) {
	if s.doing != what {
		s.doing, s.since = what, time.Now()
	}
}

var frames = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// spin draws the indicator. The caller holds mu.
func (s *screen) spin() {
	if s.doing == "" || s.open || s.asking {
		return
	}
	s.frame++
	seconds := fmt.Sprintf(" %ds", int(time.Since(s.since).Seconds()))
	what := clip(s.doing, s.width()-len(seconds)-4)
	fmt.Fprintf(s.w, "\r\x1b[K%s %s%s", s.paint(cyan, string(frames[s.frame%len(frames)])), what, s.paint(dim, seconds))
	s.drawn = true
}

// put writes text verbatim. The caller holds mu.
func (s *screen) put(text string) {
	if s.drawn {
		io.WriteString(s.w, "\r\x1b[K")
		s.drawn = false
	}
	if text != "" {
		io.WriteString(s.w, text)
		s.fresh, s.spaced = false, false
	}
}

func (s *screen) endLine() {
	if s.put(""); s.open {
		s.put("\n")
		s.open = false
	}
}

// space adds an empty line before the next output. The caller holds mu.
func (s *screen) space() {
	s.endLine()
	if !s.fresh && !s.spaced {
		s.put("\n")
		s.spaced = true
	}
}

// section is space, except between tool calls. The caller holds mu.
func (s *screen) section(kind string) {
	s.endText()
	if kind != "tool" || s.last != "tool" {
		s.space()
	}
	s.last = kind
}

// line writes a line. The caller holds mu.
func (s *screen) line(text string) {
	s.endLine()
	s.put(text + "\n")
}

// print writes lines after the current output.
func (s *screen) print(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range lines {
		if l == "" {
			s.space()
			continue
		}
		s.line(l)
	}
}

// Write implements [io.Writer] for others that print: each write is whole lines.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLine()
	return s.w.Write(p)
}

// show shows a message, once no question is on the screen.
func (s *screen) show(m wire.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asking {
		s.held = append(s.held, m)
		return
	}
	s.message(m)
}

// ask makes room for a question about a tool call: earlier messages are shown first,
// later ones afterwards. The returned function ends the question.
func (s *screen) ask(ctx context.Context, id string) (done func()) {
	s.mu.Lock()
	begun := s.call(id)
	s.mu.Unlock()
	select {
	case <-begun:
	case <-ctx.Done():
	case <-time.After(time.Second): // the model's message has not arrived
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLine()
	s.asking = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asking, s.since = false, time.Now()
		s.endLine()
		for _, m := range s.held {
			s.message(m)
		}
		s.held = nil
	}
}

// call returns a channel that is closed when a call was shown. The caller holds mu.
func (s *screen) call(id string) chan struct{} {
	if s.begun[id] == nil {
		s.begun[id] = make(chan struct{})
	}
	return s.begun[id]
}

// message shows a message. The caller holds mu.
func (s *screen) message(m wire.Message) {
	switch m := m.(type) {
	case *wire.StreamEvent:
		if m.ParentToolUseID == "" {
			s.stream(m)
		}
	case *wire.Assistant:
		if m.ParentToolUseID == "" && !m.IsReplay {
			for _, b := range m.Message.Content.All() {
				s.block(b)
			}
		}
	case *wire.User:
		if m.ParentToolUseID == "" && !m.IsReplay {
			for _, b := range m.Message.Content.All() {
				if r, ok := b.(*wire.ToolResultBlock); ok {
					s.result(r, m.ToolUseResult)
				}
			}
		}
	case *wire.APIRetry:
		what := "The API could not be reached"
		if m.ErrorStatus != 0 {
			what = fmt.Sprintf("The API answered with status %d (%s)", m.ErrorStatus, terminal.Visible(string(m.Error)))
		}
		s.line(s.paint(yellow, fmt.Sprintf("! %s; retrying in %.1f s (%d of %d)", what, float64(m.RetryDelayMS)/1000, m.Attempt, m.MaxRetries)))
		s.do("Waiting")
	case *wire.Informational:
		if m.Tag == "session_index" {
			s.do(terminal.Visible(m.Content))
		}
	case *wire.ModelFallback:
		s.line(s.paint(yellow, "! "+clip(terminal.Visible(m.Content), s.width()-2)))
	case *wire.Result:
		s.closing(m)
	}
}

// stream shows text while it arrives.
func (s *screen) stream(m *wire.StreamEvent) {
	ev, err := m.Parse()
	if err != nil {
		return
	}
	switch ev.Type {
	case "message_start":
		s.do("Thinking")
	case "content_block_start":
		if _, ok := ev.ContentBlock.(*wire.TextBlock); ok {
			s.streamed = false
		}
	case "content_block_delta":
		switch {
		case ev.Delta == nil:
		case ev.Delta.Text != "":
			if !s.streamed {
				s.section("text")
			}
			s.streamed = true
			s.text(ev.Delta.Text)
		case ev.Delta.PartialJSON != "" && len(s.calls) == 0:
			s.do("Writing")
		}
	case "content_block_stop":
		s.endText()
		s.endLine()
	}
}

// text writes text of the model.
func (s *screen) text(text string) {
	if s.markdown != nil {
		s.do("Writing")
		s.lines(s.markdown.Write(text))
		return
	}
	text = terminal.Readable(strings.ReplaceAll(text, "\r\n", "\n"))
	if text == "" {
		return
	}
	s.put(text)
	s.open = !strings.HasSuffix(text, "\n")
}

// endText writes incomplete text.
func (s *screen) endText() {
	if s.markdown != nil {
		s.lines(s.markdown.Close())
	}
}

func (s *screen) lines(all []string) {
	for _, l := range all {
		s.line(l)
	}
}

func (s *screen) block(b wire.Block) {
	switch b := b.(type) {
	case *wire.TextBlock:
		if !s.streamed && strings.TrimSpace(b.Text) != "" {
			s.section("text")
			s.text(b.Text)
		}
		s.streamed = false
		s.endText()
		s.endLine()
	case *wire.ToolUseBlock:
		s.endLine()
		s.calls = append(s.calls, &toolLine{b.ID, b.Name, s.essence(b.Name, b.Input)})
		s.doCalls()
		if ch := s.call(b.ID); !closed(ch) {
			close(ch)
		}
	}
}

func closed(ch chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// doCalls shows the first of the running calls in the indicator. The caller holds mu.
func (s *screen) doCalls() {
	if len(s.calls) == 0 {
		s.do("Thinking")
		return
	}
	c := s.calls[0]
	s.do(terminal.Visible(c.name) + " " + c.arg)
}

// result shows a finished call.
func (s *screen) result(r *wire.ToolResultBlock, structured json.RawMessage) {
	call := &toolLine{name: "?"}
	for i, c := range s.calls {
		if c.id == r.ToolUseID {
			call = c
			s.calls = append(s.calls[:i:i], s.calls[i+1:]...)
			break
		}
	}
	mark := s.paint(green, "✓")
	if r.IsError {
		mark = s.paint(red, "✗")
	}
	name := terminal.Visible(call.name)
	room := s.width() - columns("✓  · ") - columns(name) - 1
	outcome := clip(outcomeOf(r, structured), max(room-columns(call.arg), s.width()/3))
	arg := clip(call.arg, max(10, room-columns(outcome)))
	text := mark + " " + s.paint(bold, name)
	if arg != "" {
		text += " " + arg
	}
	if outcome != "" {
		text += s.paint(dim, " · "+outcome)
	}
	s.section("tool")
	s.line(text)
	s.doCalls()
}

// essence returns the most informative argument of a call.
func (s *screen) essence(tool string, input json.RawMessage) string {
	var in map[string]json.RawMessage
	if json.Unmarshal(input, &in) != nil {
		return clip(terminal.Visible(string(input)), 200)
	}
	str := func(name string) string {
		var text string
		json.Unmarshal(in[name], &text)
		return text
	}
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
	default:
		for _, name := range []string{"url", "query", "description", "prompt", "task_id", "shell_id", "skill", "plan"} {
			if what = str(name); what != "" {
				break
			}
		}
		if what == "" && len(in) > 0 {
			what = string(input)
		}
	}
	return clip(terminal.Visible(strings.TrimSpace(what)), 200)
}

// relative returns a path relative to the working directory, if it is below it.
func (s *screen) relative(path string) string {
	if s.cwd == "" || !filepath.IsAbs(path) {
		return path
	}
	if rel, err := filepath.Rel(s.cwd, path); err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return rel
	}
	return path
}

// outcomeOf summarizes the result of a call in a few words.
func outcomeOf(r *wire.ToolResultBlock, structured json.RawMessage) string {
	var out struct {
		Stdout *string
		File   struct{ NumLines int }
		Type   string

		StructuredPatch []struct{ Lines []string }
		Content         json.RawMessage
		NumFiles        *int
		NumLines        *int
		NumMatches      *int

		BackgroundTaskID string `json:"backgroundTaskId"`
	}
	if json.Unmarshal(structured, &out) != nil {
		out.Stdout = nil // it is a string
	}
	text := strings.TrimSpace(r.Content.String())
	count := func(n int, one, many string) string {
		if n == 1 {
			return "1 " + one
		}
		return strconv.Itoa(n) + " " + many
	}
	switch {
	case r.IsError:
		for _, tag := range []string{"<tool_use_error>", "</tool_use_error>"} {
			text = strings.ReplaceAll(text, tag, "")
		}
		first, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
		if code, ok := strings.CutPrefix(first, "Exit code "); ok {
			first = "exit " + code
			if last := lastLine(rest); last != "" {
				first += " · " + last
			}
		}
		return terminal.Visible(strings.TrimPrefix(first, "Error: "))
	case out.BackgroundTaskID != "":
		return "in the background as " + terminal.Visible(out.BackgroundTaskID)
	case out.Stdout != nil:
		return terminal.Visible(lastLine(*out.Stdout))
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
		var content string
		json.Unmarshal(out.Content, &content)
		return "new, " + count(strings.Count(strings.TrimSuffix(content, "\n"), "\n")+1, "line", "lines")
	case out.NumMatches != nil && *out.NumMatches > 0:
		return count(*out.NumMatches, "match", "matches")
	case out.NumLines != nil && *out.NumLines > 0:
		return count(*out.NumLines, "line", "lines")
	case out.NumFiles != nil:
		return count(*out.NumFiles, "file", "files")
	}
	first, _, _ := strings.Cut(text, "\n")
	return terminal.Visible(first)
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// closing ends a turn with its costs.
func (s *screen) closing(r *wire.Result) {
	if len(r.StructuredOutput) > 0 {
		s.space()
		s.line(terminal.VisibleLines(string(r.StructuredOutput)))
	}
	s.section("end")
	mark := s.paint(green, "✓ ")
	if out := r.Outcome(); out != wire.OutcomeCompleted {
		mark = s.paint(red, "✗ ")
		why := out.String()
		if reason := r.Reason(); reason != "" && out != wire.OutcomeInterrupted && !strings.Contains(r.Result, reason) {
			why += ": " + reason
		}
		mark += s.paint(red, terminal.Visible(why)+" · ")
	}
	s.line(mark + s.paint(dim, terminal.Costs(r)))
}

// columns returns the width of text in columns.
func columns(text string) int {
	n := 0
	for _, r := range text {
		n += runeColumns(r)
	}
	return n
}

func runeColumns(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && r <= 0x115F, r >= 0x2E80 && r <= 0xA4CF, r >= 0xAC00 && r <= 0xD7A3, r >= 0xF900 && r <= 0xFAFF,
		r >= 0xFE30 && r <= 0xFE6F, r >= 0xFF00 && r <= 0xFF60, r >= 0xFFE0 && r <= 0xFFE6, r >= 0x1F300 && r <= 0x1FAFF, r >= 0x20000 && r <= 0x3FFFD:
		return 2
	}
	return 1
}

// clip shortens text to a number of columns.
func clip(text string, wide int) string {
	if columns(text) <= wide {
		return text
	}
	n := 0
	for i, r := range text {
		if n += runeColumns(r); n > wide-1 {
			return text[:i] + "…"
		}
	}
	return text
}
