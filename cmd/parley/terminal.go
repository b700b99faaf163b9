package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/terminal"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// runInTerminal answers one prompt for a person who watches. It returns the exit
// status.
func runInTerminal(ctx context.Context, p *process, cfg agent.Config, flags *agent.Flags, args []string) int {
	s := newScreen(p, cfg.Cwd)
	s.begin()
	defer s.end()
	cfg.OnIndexing = nil // the screen tells it
	first := true
	out := &messageWriter{show: func(m wire.Message) {
		// A conversation that did not even begin has said why on standard error.
		if r, ok := m.(*wire.Result); !first || !ok || !r.IsError {
			s.show(m)
		}
		first = false
	}}
	args = withFlags(args, "--output-format=stream-json", "--verbose")
	if !shownByHooks(cfg, flags) {
		args = withFlags(args, "--include-partial-messages")
	}
	return agent.Run(ctx, cfg, args, p.stdin, out, &between{s, p.stderr})
}

// withFlags adds flags to a command line, before what is no flag any more.
func withFlags(args []string, flags ...string) []string {
	for i, arg := range args {
		if arg == "--" {
			// It may be the value of a flag.
			if _, err := agent.ParseFlags(args[:i]); err == nil {
				return slices.Concat(args[:i], flags, args[i:])
			}
		}
	}
	return slices.Concat(args, flags)
}

// A messageWriter takes lines apart that are written to it.
type messageWriter struct {
	rest []byte
	show func(wire.Message)
}

// Write implements [io.Writer].
func (w *messageWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		line, rest, ok := strings.Cut(string(w.rest), "\n")
		if !ok {
			return len(p), nil
		}
		w.rest = []byte(rest)
		m, err := wire.Decode([]byte(line))
		if err != nil {
			return len(p), err
		}
		w.show(m)
	}
}

// between writes past the indicator of a screen.
type between struct {
	s *screen
	w io.Writer
}

// Write implements [io.Writer].
func (b *between) Write(p []byte) (int, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.s.endLine()
	return b.w.Write(p)
}

// A lineReader holds a conversation with a person.
type lineReader struct {
	p       *process
	screen  *screen
	client  *parley.Client
	in      *typist
	signals chan os.Signal
	asking  sync.Mutex // one question at a time
	session string

	interrupted time.Time // the last Ctrl-C
}

// again is how soon a second Ctrl-C ends the conversation.
const again = 2 * time.Second

// shownByHooks reports whether hooks say how texts of the model are shown: then a text is
// shown when they have said so, and not as it comes.
func shownByHooks(cfg agent.Config, flags *agent.Flags) bool {
	prefs, err := agent.ReadSettings(cfg, flags)
	return err == nil && slices.ContainsFunc(prefs.Hooks(), func(h settings.Hook) bool { return h.Event == wire.EventMessageDisplay })
}

// converse holds a conversation in the terminal. It returns the exit status.
func converse(ctx context.Context, p *process, cfg agent.Config, flags *agent.Flags, args []string) int {
	t := &lineReader{p: p, screen: newScreen(p, cfg.Cwd), in: newTypist(p.stdin), signals: make(chan os.Signal, 4)}
	signal.Notify(t.signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(t.signals)

	var said []string // on standard error
	inProcess := agent.InProcess(cfg)
	client, err := parley.Connect(ctx, &parley.Options{
		KeepSystemPrompt: true,
		PartialMessages:  !shownByHooks(cfg, flags),
		CanUseTool:       t.question,
		Stderr: func(line string) {
			said = append(said, line)
		},
		IdleTimeout: -1,
		Dialer: transport.DialerFunc(func(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
			spec.Args = withFlags(args, spec.Args...)
			return inProcess.Dial(ctx, spec)
		}),
	})
	if err != nil {
		if len(said) > 0 {
			err = errors.New(strings.Join(said, "\n"))
		}
		fmt.Fprintln(p.stderr, err)
		return exitFailure
	}
	defer client.Close()
	t.client = client

	t.screen.print(t.screen.paint(bold, "parley "+parley.Version)+t.screen.paint(dim, " · "+terminal.Visible(cfg.Cwd)),
		t.screen.paint(dim, `A \ at the end goes on in the next line. Ctrl-C interrupts, Ctrl-D ends.`))
	code := exitOK
	prompt, typed := flags.Prompt, !flags.HasPrompt
	for ok := true; ; typed = true {
		if typed {
			if prompt, ok = t.readPrompt(ctx); !ok {
				break
			}
		}
		if strings.TrimSpace(prompt) == "" {
			continue
		}
		if word := strings.TrimSpace(prompt); word == "exit" || word == "/exit" || word == "/quit" {
			break
		}
		if more, status := t.turn(ctx, prompt); !more {
			code = status
			break
		}
	}
	if t.session != "" && !flags.NoPersist {
		t.screen.print(t.screen.paint(dim, "parley --continue goes on; so does parley --resume "+t.session))
	}
	return code
}

// readPrompt reads what is typed, until Ctrl-D.
func (t *lineReader) readPrompt(ctx context.Context) (prompt string, ok bool) {
	s := t.screen
	s.print("")
	mark := "> "
	for {
		s.mu.Lock()
		s.put(s.paint(cyan, mark))
		s.open = true
		s.mu.Unlock()
		select {
		case <-t.in.ready:
			line, ok := t.in.next()
			if !ok {
				s.print("")
				return "", false
			}
			s.mu.Lock()
			s.open, s.last = false, "prompt" // Enter ended the line
			s.mu.Unlock()
			t.interrupted = time.Time{}
			if more, found := strings.CutSuffix(line, `\`); found {
				prompt, mark = prompt+more+"\n", "… "
				continue
			}
			return prompt + line, true
		case sig := <-t.signals:
			s.print("")
			if sig != os.Interrupt || t.twice() {
				return "", false
			}
			prompt, mark = "", "> "
			s.print(s.paint(dim, "Ctrl-C again ends, so does Ctrl-D."))
		case <-ctx.Done():
			return "", false
		}
	}
}

// twice notes a Ctrl-C and reports whether another came just before. It is called by
// whoever takes signals at the time.
func (t *lineReader) twice() bool {
	last := t.interrupted
	t.interrupted = time.Now()
	return time.Since(last) < again
}

// turn sends a prompt and shows what comes of it. It reports whether the
// conversation goes on, and the exit status if it does not.
func (t *lineReader) turn(ctx context.Context, prompt string) (more bool, status int) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	stop := make(chan int, 1)
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case sig := <-t.signals:
				if sig != os.Interrupt || t.twice() {
					status := 130
					if sig == syscall.SIGTERM {
						status = 143
					}
					stop <- status
					cancel()
					return
				}
				t.screen.mu.Lock()
				t.screen.do("Interrupting (Ctrl-C again ends)")
				t.screen.mu.Unlock()
				watching.Go(func() { t.client.Interrupt(ctx) })
			case <-ended:
				return
			}
		}
	})
	defer func() {
		close(ended)
		cancel()
		watching.Wait()
	}()

	t.screen.begin()
	defer t.screen.end()
	for m, err := range t.client.Turn(ctx, prompt) {
		var failed *parley.ResultError
		switch {
		case err == nil:
			if init, ok := m.(*wire.Init); ok {
				t.session = init.SessionID
			}
			t.screen.show(m)
		case errors.As(err, &failed):
			// It was shown.
		default:
			select {
			case status := <-stop:
				return false, status
			default:
			}
			t.screen.print(t.screen.paint(red, "✗ "+terminal.VisibleLines(err.Error())))
			return false, exitFailure
		}
	}
	select {
	case status := <-stop:
		return false, status
	default:
		return true, 0
	}
}

// question asks about a tool call.
func (t *lineReader) question(ctx context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
	t.asking.Lock()
	defer t.asking.Unlock()
	defer t.screen.ask(ctx, req.ToolUseID)()
	if questions, ok := parley.Questions(req); ok {
		return t.questions(ctx, req, questions)
	}
	t.screen.request(req, 40)
	always := t.screen.always(req)
	for {
		keys := "y = yes, n = no (or n and why)"
		if always != nil {
			keys = "y = once, a = always in this session, n = no (or n and why)"
		}
		line, err := t.answer(ctx, keys+" ")
		if err != nil {
			return nil, err
		}
		word, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch strings.ToLower(strings.TrimRight(word, ",:;")) {
		case "y", "yes":
			return parley.Allow(), nil
		case "a", "always":
			if always != nil {
				res := parley.Allow()
				res.UpdatedPermissions = always
				return res, nil
			}
		case "n", "no":
			if reason = strings.TrimSpace(reason); reason == "" {
				reason = "The user said no."
			}
			return parley.Deny(reason), nil
		case "v", "view":
			t.screen.request(req, 0)
		}
	}
}

// answer reads the answer to a question: a line that is typed from now on.
func (t *lineReader) answer(ctx context.Context, label string) (string, error) {
	s := t.screen
	wait := t.in.answer()
	s.mu.Lock()
	s.put(s.paint(yellow, "  "+label+"> "))
	s.open = true
	s.mu.Unlock()
	line, err := wait(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.open = false // Enter ended the line
	}
	s.endLine()
	return line, err
}

// questions asks what the model wants to know.
func (t *lineReader) questions(ctx context.Context, req *wire.CanUseTool, questions []parley.Question) (*wire.PermissionResult, error) {
	s, answers := t.screen, map[string][]string{}
	for _, q := range questions {
		s.print("", s.paint(yellow, "? ")+s.paint(bold, terminal.Visible(q.Question)))
		for i, o := range q.Options {
			s.print(fmt.Sprintf("  %d %s", i+1, terminal.Visible(o.Label)) + s.paint(dim, " "+terminal.Visible(o.Description)))
		}
		hint := "a number, or an answer "
		if q.MultiSelect {
			hint = "numbers with commas, or an answer "
		}
		line, err := t.answer(ctx, hint)
		if err != nil {
			return nil, err
		}
		line = strings.TrimSpace(line)
		if line == "" {
			return parley.Deny("The user did not answer."), nil
		}
		var chosen []string
		for word := range strings.SplitSeq(line, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(word))
			if err != nil || n < 1 || n > len(q.Options) || len(chosen) > 0 && !q.MultiSelect {
				chosen = []string{line}
				break
			}
			chosen = append(chosen, q.Options[n-1].Label)
		}
		answers[q.Question] = chosen
	}
	return parley.Answer(req, answers), nil
}

// request shows what a tool is about to do: commands whole, files up to a number
// of lines, with 0 to the end.
func (s *screen) request(req *wire.CanUseTool, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var in struct {
		Command   string  `json:"command"`
		FilePath  string  `json:"file_path"`
		Content   *string `json:"content"`
		OldString *string `json:"old_string"`
		NewString string  `json:"new_string"`
		All       bool    `json:"replace_all"`
	}
	json.Unmarshal(req.Input, &in)
	path := terminal.Visible(s.relative(in.FilePath))
	title, body := "run "+terminal.Visible(req.ToolName), terminal.VisibleLines(indented(req.Input))
	switch plan, isPlan := parley.Plan(req); {
	case isPlan:
		title, body, limit = "carry out this plan", terminal.Readable(plan), 0
	case req.ToolName == "Bash":
		title, body, limit = "run this command", terminal.VisibleLines(in.Command), 0
	case req.ToolName == "Edit" && in.OldString != nil:
		title, body = "edit "+path, s.diff(*in.OldString, in.NewString)
		if in.All {
			title += " everywhere"
		}
	case req.ToolName == "Write" && in.Content != nil:
		title, body = "write "+path, s.paintLines(green, "+ ", terminal.VisibleLines(*in.Content))
	case req.ToolName == "Read":
		title, body = "read "+terminal.Visible(in.FilePath), ""
	}
	s.section("ask")
	s.line(s.paint(yellow, "? ") + s.paint(bold, "May it "+title+"?"))
	lines := strings.Split(strings.TrimRight(body, "\n"), "\n")
	for i, l := range lines {
		if limit > 0 && i == limit && len(lines) > limit+1 {
			s.line(s.paint(dim, fmt.Sprintf("    … %d more lines; v shows them all", len(lines)-limit)))
			break
		}
		if l != "" || len(lines) > 1 {
			s.line("    " + l)
		}
	}
	if req.DecisionReason != "" && req.DecisionReasonType != "mode" {
		s.line(s.paint(dim, "  "+terminal.Visible(req.DecisionReason)))
	}
	for _, u := range s.always(req) {
		s.line(s.paint(dim, "  always would mean: "+terminal.Describe(u)))
	}
	s.last = "tool" // the call's own line follows at once
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

// diff shows what an edit takes away and puts in its place, with the lines around
// it that stay.
func (s *screen) diff(before, after string) string {
	if strings.HasSuffix(before, "\n") && strings.HasSuffix(after, "\n") {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	a, b := strings.Split(terminal.VisibleLines(before), "\n"), strings.Split(terminal.VisibleLines(after), "\n")
	if before == "" {
		a = nil
	}
	if after == "" {
		b = nil
	}
	if n := len(b) - 1; len(a) == 0 && n > 0 && b[n] == "" {
		b = b[:n] // what is new ends its last line
	}
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var out []string
	add := func(look, sign string, lines []string) {
		for _, l := range lines {
			out = append(out, s.paint(look, sign+l))
		}
	}
	add(dim, "  ", a[:head])
	add(red, "- ", a[head:len(a)-tail])
	add(green, "+ ", b[head:len(b)-tail])
	add(dim, "  ", a[len(a)-tail:])
	return strings.Join(out, "\n")
}

func (s *screen) paintLines(look, sign, text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, l := range lines {
		lines[i] = s.paint(look, sign+l)
	}
	return strings.Join(lines, "\n")
}

// always returns the changes that make a question unnecessary in this session, nil
// if there are none.
func (s *screen) always(req *wire.CanUseTool) []*wire.PermissionUpdate {
	if req.SuppressAlwaysAllowRule || req.RequiresUserInteraction {
		return nil
	}
	var updates []*wire.PermissionUpdate
	for _, u := range req.PermissionSuggestions {
		if u.Type == wire.UpdateAddDirectories && !slices.ContainsFunc(u.Directories, func(dir string) bool { return filepath.IsAbs(s.relative(dir)) }) {
			continue // it works there already
		}
		here := *u
		here.Destination = wire.DestinationSession
		updates = append(updates, &here)
	}
	return updates
}

// A typist reads lines from a keyboard. What is typed while a turn runs is kept
// for the next prompt; only a line that ends after a question was put answers it.
type typist struct {
	ready chan struct{} // has something while there is a line, or the end

	mu      sync.Mutex
	lines   []string
	ended   bool
	waiting chan string // a question; closed at the end
}

func newTypist(r io.Reader) *typist {
	t := &typist{ready: make(chan struct{}, 1)}
	go func() {
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadString('\n')
			if line != "" {
				t.typed(strings.TrimRight(line, "\r\n"))
			}
			if err != nil {
				t.end()
				return
			}
		}
	}()
	return t
}

func (t *typist) typed(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting != nil {
		t.waiting <- line
		t.waiting = nil
		return
	}
	t.lines = append(t.lines, line)
	t.signal()
}

func (t *typist) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.waiting != nil {
		close(t.waiting)
		t.waiting = nil
	}
	t.signal()
}

// signal fills ready. The caller holds mu.
func (t *typist) signal() {
	if len(t.lines) == 0 && !t.ended {
		return
	}
	select {
	case t.ready <- struct{}{}:
	default:
	}
}

// next returns the next line; false at the end.
func (t *typist) next() (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.signal()
	if len(t.lines) == 0 {
		return "", false
	}
	line := t.lines[0]
	t.lines = t.lines[1:]
	return line, true
}

var errNobody = errors.New("nobody is there to answer")

// answer takes the next line that is typed. The function that it returns waits for
// it.
func (t *typist) answer() func(context.Context) (string, error) {
	ch := make(chan string, 1)
	t.mu.Lock()
	if t.ended {
		close(ch)
	} else {
		t.waiting = ch
	}
	t.mu.Unlock()
	return func(ctx context.Context) (string, error) {
		select {
		case line, ok := <-ch:
			if !ok {
				return "", errNobody
			}
			return line, nil
		case <-ctx.Done():
			t.mu.Lock()
			if t.waiting == ch {
				t.waiting = nil
			}
			t.mu.Unlock()
			return "", context.Cause(ctx)
		}
	}
}
