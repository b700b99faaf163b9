package engine

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/internal/ask"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/read"
	"github.com/parley-go/parley/engine/tool/tasklist"
	"github.com/parley-go/parley/engine/tool/todowrite"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A conversation that outgrows the model's window is made smaller in two steps. Old
// results of tools are taken out first, if that is enough. Otherwise the model is asked
// for a summary, on the request that it has seen before and one message more, so that
// nearly all of it is read from the cache; the summary takes the place of what it is of.
// What the user said and nobody answered yet is kept as it is behind the summary.

//go:embed compact.md
var compactPrompt string

// Compaction says when a conversation is replaced by a summary of it. The zero value is
// what is usual: when less than 33,000 tokens of the model's window are left, and when
// it is asked for.
type Compaction struct {
	Off     bool  // never, not even if it is asked for
	AutoOff bool  // only if it is asked for
	Window  int64 // tokens that count as the window if the model's is larger; 0 means the model's
	// WindowFrom says where Window is from, for hosts: "env", "settings" or "model-default".
	WindowFrom string
	Percent    int // of the window that may be filled, if that is less than usual; 0 means what is usual
}

const (
	compactFails = 3 // failures in a row after which it is not tried by itself any more
	compactVain  = 3 // times in a row that it made no room for more than one answer
	shrinkMost   = 6 // times that a request for a summary is made smaller
	recoverMost  = 3 // times in one turn that room is made because the API said so

	attachedFiles = 5        // files that are shown again behind a summary
	attachedFile  = 20 << 10 // bytes of each
)

// compactState is what a conversation knows of its compactions.
type compactState struct {
	trail   []trailing // what the user said since the last answer
	dropped int64      // tokens that compactions saved
	made    bool       // there was one
	answers int        // since then
	vain    int        // that made no room for long, in a row
	failed  int        // that failed, in a row
	given   bool       // it is not tried by itself any more
}

// A trailing is a record of the user's side behind the last answer.
type trailing struct {
	uuid   string
	blocks int // that the record has
}

var errNothingToCompact = errors.New("there is nothing to compact: the conversation is a single exchange")

// follow keeps which records are behind the last answer. It is called with each record
// of the conversation.
func (s *compactState) follow(e *session.Entry) {
	switch {
	case e.Type == "assistant":
		if string(e.Fields["isApiErrorMessage"]) != "true" { // that the model never sees
			s.trail = nil
		}
	case e.Type == "user":
		_, blocks, err := history.MessageBlocks(e.Message)
		if err != nil || slices.ContainsFunc(blocks, history.IsResult) {
			s.trail = nil
			return
		}
		s.trail = append(s.trail, trailing{e.UUID, len(blocks)})
	}
}

// parts returns what a compaction summarizes, and what it keeps.
func (c *Conversation) parts() (head history.Transcript, tail []json.RawMessage, kept []string) {
	n := 0
	for _, r := range c.compaction.trail {
		n += r.blocks
		kept = append(kept, r.uuid)
	}
	head, tail = c.hist.Split(n)
	if len(tail) == 0 {
		kept = nil
	}
	return head, tail, kept
}

// Window returns how many tokens count as the model's window: those that it has, or
// fewer if the conversation is to be compacted sooner. It is 0 if nobody knows.
func (c *Conversation) Window() int64 {
	window := c.model.ContextWindow
	if w := c.cfg.Compaction.Window; w > 0 {
		window = min(window, w)
	}
	return window
}

// WindowFrom says where the size of the window is from, as hosts are told it.
func (c *Conversation) WindowFrom() string {
	switch cfg := c.cfg.Compaction; {
	case cfg.Off || cfg.AutoOff:
		return "auto"
	case cfg.WindowFrom != "":
		return cfg.WindowFrom
	}
	return "model-default"
}

// CompactsAt returns how many tokens a conversation may have before it is compacted,
// and whether that happens by itself.
func (c *Conversation) CompactsAt() (tokens int64, auto bool) {
	cfg, window := c.cfg.Compaction, c.Window()
	if window <= 0 {
		return 0, false
	}
	at := max(window-roomReserve, window/2)
	if cfg.Percent > 0 && cfg.Percent < 100 {
		at = min(at, window*int64(cfg.Percent)/100)
	}
	return at, !cfg.Off && !cfg.AutoOff
}

// prune takes old results of tools out of the conversation, if that is enough; see
// [history.History.Prune]. It reports whether it did.
func (c *Conversation) prune(below int64) bool {
	saved, err := c.hist.Prune(c.model.ContextWindow, below, func(e *session.Entry) error { return c.rec.Record(e) })
	if err != nil {
		c.runner.Log.Error("that results were taken out could not be recorded", "error", err)
	}
	if saved > 0 {
		c.runner.Log.Info("old results of tools were taken out of the conversation", "tokens", saved)
	}
	return saved > 0
}

// makeRoom compacts the conversation if its next request comes near the limit. That it
// fails ends nothing: there is some room left.
func (c *Conversation) makeRoom(t *turn) *ending {
	s := &c.compaction
	at, auto := c.CompactsAt()
	if !auto || s.given || s.made && s.answers == 0 || c.hist.Tokens(&c.hist.Transcript) < at {
		return nil
	}
	head, _, _ := c.parts()
	if len(head.Messages) == 0 || c.hist.LastRole() != "user" {
		return nil // there is nothing to win, or an answer is to be gone on with
	}
	if c.prune(at) {
		return nil
	}
	if s.made && s.answers <= 1 {
		s.vain++
	} else {
		s.vain = 0
	}
	if s.vain >= compactVain {
		s.given = true
		c.rec.Emit(&wire.Informational{Content: "The conversation is not compacted by itself any more: each time it was full again at once. Use /compact, or /clear to begin a new one.",
			Level: "warning"})
		return nil
	}
	return c.compactEnding(t, c.replace(t, "auto", "", false))
}

// compactEnding returns the ending that a failed compaction leads to; nil if the turn
// goes on.
func (c *Conversation) compactEnding(t *turn, err error) *ending {
	switch cause := context.Cause(t.ctx); {
	case cause != nil:
		return c.interrupted(t, "[Request interrupted by user]", "aborted_streaming", cause)
	case errors.Is(err, recorder.ErrUnwritten):
		return c.broken(err)
	case errors.Is(err, ask.ErrSpent):
		return c.overBudget()
	case err != nil:
		c.runner.Log.Warn("the conversation could not be compacted", "error", err)
	}
	return nil
}

// recoverRoom makes room after a request did not fit. The error is nil if there is some
// now; otherwise it is what is told.
func (c *Conversation) recoverRoom(t *turn, err error) (*ending, error) {
	over := overflowed(err)
	if over == nil {
		return nil, err
	}
	_, auto := c.CompactsAt()
	switch head, _, _ := c.parts(); {
	case !auto:
		return nil, err
	case len(head.Messages) == 0:
		if over.local {
			c.compacting("auto")
			c.compacted("too_few_groups")
		}
		over.why = errNothingToCompact
		return nil, over
	}
	if t.recovered++; t.recovered > recoverMost {
		over.why = errors.New("it was compacted, and is too long again")
		return nil, over
	}
	if t.recovered == 1 && c.prune(0) {
		return nil, nil
	}
	failed := c.replace(t, "auto", "", true)
	if failed == nil {
		return nil, nil
	}
	if end := c.compactEnding(t, failed); end != nil {
		return end, err
	}
	over.why = failed
	return nil, over
}

// compactCommand replaces the conversation by a summary because the user wants it.
func (c *Conversation) compactCommand(t *turn, p *prompt, args string) *ending {
	fail := func(text string) *ending {
		c.rec.Emit(c.init(t))
		end := c.complained(t, "compact", "compact", args, text)
		end.text = ""
		return end
	}
	if c.cfg.Compaction.Off {
		return fail("Error: compaction is turned off. Use /clear to begin a new conversation.")
	}
	if len(c.hist.Messages) == 0 {
		return fail("Error: No messages to compact")
	}
	if c.spent() {
		c.rec.Emit(c.init(t))
		return c.overBudget()
	}
	err := c.replace(t, "manual", args, false)
	switch {
	case context.Cause(t.ctx) != nil, errors.Is(err, recorder.ErrUnwritten), errors.Is(err, ask.ErrSpent):
		c.rec.Emit(c.init(t))
		end := c.compactEnding(t, err)
		end.noTurns, end.localCommand = true, "compact"
		return end
	case err != nil:
		return fail("Error during compaction: " + sentence(err))
	}
	c.tellPrompts(t)
	c.rec.Emit(&wire.User{Message: wire.UserMessage{Role: "user", Content: wire.Text("<local-command-stdout>Compacted </local-command-stdout>")}, IsReplay: true})
	return &ending{noTurns: true, localCommand: "compact"}
}

// sentence says what an error is, to people.
func sentence(err error) string {
	var e *model.Error
	if errors.As(err, &e) && e.Status != 0 {
		return fmt.Sprintf("API Error: %d %s", e.Status, e.Message)
	}
	return err.Error()
}

// compacting tells that a compaction begins.
func (c *Conversation) compacting(trigger string) {
	m := &wire.Status{Status: "compacting"}
	if trigger == "auto" {
		m.CompactOutputChars = new(int64)
	}
	c.rec.Emit(m)
}

// compacted tells how it ended; an empty problem means well.
func (c *Conversation) compacted(problem string) {
	m := &wire.Status{CompactResult: "success"}
	if problem != "" {
		m.CompactResult, m.CompactError = "failed", problem
	}
	c.rec.Emit(m)
}

// replace puts a summary in the place of the conversation. If it fails the conversation
// is what it was. tight says that the conversation does not fit into a request.
func (c *Conversation) replace(t *turn, trigger, instructions string, tight bool) (err error) {
	s, began := &c.compaction, c.runner.Now()
	head, tail, kept := c.parts()
	if trigger == "manual" { // nothing is to be answered
		head, tail, kept = c.hist.Clone(), nil, nil
	}
	before := c.hist.Tokens(&c.hist.Transcript)
	more, err := c.preCompact(t, trigger, instructions)
	if err != nil {
		if context.Cause(t.ctx) == nil {
			s.fail(c, trigger)
		}
		return err
	}
	instructions = strings.TrimSpace(strings.Join(append([]string{instructions}, more...), "\n\n"))

	c.compacting(trigger)
	defer func() {
		switch {
		case err == nil:
		case context.Cause(t.ctx) != nil:
			c.compacted("Compaction was interrupted.")
		default:
			c.compacted("Error during compaction: " + sentence(err))
			s.fail(c, trigger)
		}
	}()
	summary, err := c.summarize(t, head, instructions, tight)
	if err != nil {
		return err
	}
	if err := context.Cause(t.ctx); err != nil {
		return err
	}

	next := history.Transcript{}
	text := c.summaryText(summary, toolsUsed(head), len(tail) > 0)
	next.Add("user", mustJSON(&wire.TextBlock{Text: text}))
	said := &session.Entry{Type: "user", Fields: fields("isCompactSummary", true, "isVisibleInTranscriptOnly", true),
		Message: mustJSON(map[string]any{"role": "user", "content": text})}
	if todos := todowrite.Of(c.env); len(todos) > 0 {
		said.Fields[todosField] = mustJSON(todos)
	}
	boundary := &session.Entry{Type: "system", Fields: fields("subtype", "compact_boundary", "content", "Conversation compacted", "level", "info")}
	entries := []*session.Entry{boundary, said}
	for _, text := range c.shownAgain(t, head) {
		raw := mustJSON(&wire.TextBlock{Text: reminder(text)})
		next.Add("user", raw)
		entries = append(entries, &session.Entry{Type: "user", Fields: fields("isMeta", true),
			Message: mustJSON(map[string]any{"role": "user", "content": []json.RawMessage{raw}})})
	}
	if err := context.Cause(t.ctx); err != nil {
		return err
	}
	next.Add("user", tail...)
	c.rec.Identify(entries...)

	after := int64(c.hist.Bytes(&next)) / 4
	dropped := s.dropped + max(0, before-after)
	took := c.runner.Now().Sub(began).Milliseconds()
	meta := wire.CompactMetadata{Trigger: trigger, PreTokens: before, PostTokens: &after, CumulativeDroppedTokens: &dropped, DurationMS: &took}
	recorded := map[string]any{"trigger": trigger, "preTokens": before, "postTokens": after, "cumulativeDroppedTokens": dropped, "durationMs": took}
	if len(kept) > 0 {
		first, last, anchor := kept[0], kept[len(kept)-1], entries[len(entries)-1].UUID
		meta.PreservedSegment = mustJSON(map[string]string{"head_uuid": first, "anchor_uuid": anchor, "tail_uuid": last})
		meta.PreservedMessages = mustJSON(map[string]any{"anchor_uuid": anchor, "uuids": kept, "all_uuids": kept})
		recorded["preservedSegment"] = map[string]string{"headUuid": first, "anchorUuid": anchor, "tailUuid": last}
		recorded["preservedMessages"] = map[string]any{"anchorUuid": anchor, "uuids": kept, "allUuids": kept}
	}
	boundary.Fields["compactMetadata"] = mustJSON(recorded)
	was, trail := c.rec.Parent(), s.trail
	if was != "" {
		boundary.Fields["logicalParentUuid"] = mustJSON(was)
	}
	s.trail = nil
	if err := c.rec.Replace(entries...); err != nil {
		s.trail = trail
		return err
	}
	if len(kept) > 0 {
		s.trail = append(s.trail, trail...)
	}
	c.hist.SetMessages(next)
	c.room = 0
	s.dropped, s.made, s.answers, s.failed = dropped, true, 0, 0
	c.loseContext()

	c.compacted("")
	if trigger == "manual" {
		c.rec.Emit(c.init(t))
	}
	c.rec.Emit(&wire.CompactBoundary{Metadata: meta, LogicalParentUUID: was, UUID: boundary.UUID})
	m := &wire.User{Message: wire.UserMessage{Role: "user", Content: wire.Blocks(&wire.TextBlock{Text: text})},
		UUID: said.UUID, IsSynthetic: true}
	if trigger == "manual" {
		m.Message.Content = wire.Text(text)
		m.Extra = map[string]json.RawMessage{"isReplay": json.RawMessage("false")}
	}
	t.userLines++
	c.rec.Emit(m)
	return c.afterCompact(t, trigger, summary)
}

// todosField holds the list of what is to be done in the record of a summary.
const todosField = "parleyTodos"

// restoreTodos brings back the list of what is to be done, from a record that changed it.
func (c *Conversation) restoreTodos(e *session.Entry) {
	set := func(todos []todowrite.Todo) {
		if !slices.ContainsFunc(todos, func(t todowrite.Todo) bool { return t.Status != "completed" }) {
			todos = nil // a list that is done is put away
		}
		todowrite.Set(c.env, todos)
	}
	if raw := e.Fields[todosField]; raw != nil {
		var todos []todowrite.Todo
		json.Unmarshal(raw, &todos)
		set(todos)
	}
	if e.Type != "user" || e.Fields["toolUseResult"] == nil || !bytes.Contains(e.Fields["toolUseResult"], []byte(`"newTodos"`)) {
		return
	}
	var out todowrite.Output
	if json.Unmarshal(e.Fields["toolUseResult"], &out) == nil && out.NewTodos != nil {
		set(out.NewTodos)
	}
}

// fail counts a compaction that came to nothing.
func (s *compactState) fail(c *Conversation, trigger string) {
	if s.failed++; trigger == "auto" && s.failed >= compactFails && !s.given {
		s.given = true
		c.rec.Emit(&wire.Informational{Content: fmt.Sprintf("The conversation could not be compacted %d times, and that is not tried by itself any more. Use /compact, or /clear to begin a new one.", s.failed),
			Level: "warning"})
	}
}

// preCompact runs the hooks before a compaction. They add to what is to be kept in mind,
// or say no.
func (c *Conversation) preCompact(t *turn, trigger, instructions string) (more []string, err error) {
	v := c.runHooks(t, &wire.PreCompactInput{Trigger: trigger, CustomInstructions: instructions}, trigger)
	if cause := context.Cause(t.ctx); cause != nil {
		return nil, cause
	}
	if v.Failed != nil {
		return nil, fmt.Errorf("a PreCompact hook failed, so nothing was compacted: %w", v.Failed)
	}
	if reason, blocked := v.Blocked(); blocked {
		return nil, fmt.Errorf("a PreCompact hook does not let it: %s", reason)
	}
	return v.Context, nil
}

// afterCompact runs the hooks after a compaction, and tells the model again what it was
// told when the session began.
func (c *Conversation) afterCompact(t *turn, trigger, summary string) error {
	if trigger == "auto" {
		if err := c.tellContext(t); err != nil {
			return err
		}
	}
	more := c.runHooks(t, &wire.PostCompactInput{Trigger: trigger, CompactSummary: summary}, trigger).ForModel(aboveHooks)
	if c.sub == nil {
		more = append(more, c.sessionHooks(t, "compact")...)
	}
	for _, text := range more {
		if err := c.inform(t, text); err != nil {
			return err
		}
	}
	return nil
}

// summaryText is what the model is told in the place of the conversation.
func (c *Conversation) summaryText(summary string, tools []string, kept bool) string {
	var b strings.Builder
	b.WriteString("This conversation goes on from an earlier part that was too long to be kept. This is a summary of that part:\n\n")
	b.WriteString(summary)
	if len(tools) > 0 {
		b.WriteString("\n\nTools that were used in it: " + strings.Join(tools, ", ") + ".")
	}
	if path := c.runner.Top.Path(); path != "" {
		b.WriteString("\n\nThe earlier part is on record in " + path + ", a JSON object a line. Look there for details that the summary lacks.")
	}
	b.WriteString("\n\nGo on where it stopped. Do not mention the summary, do not repeat what was done, and ask the user nothing that was answered already.")
	if kept {
		b.WriteString(" What follows was said after the part that is summarized; whoever wrote the summary has not seen it.")
	}
	return b.String()
}

// toolsUsed returns the tools that a conversation used, each once.
func toolsUsed(t history.Transcript) []string {
	var names []string
	t.EachCall(func(_, name string, _ json.RawMessage) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	})
	return names
}

// shownAgain returns what is put behind a summary because it is likely to be needed:
// files that were worked on, the list of what is to be done, tasks that run.
func (c *Conversation) shownAgain(t *turn, head history.Transcript) []string {
	var parts []string
	var paths []string
	head.EachCall(func(_, name string, input json.RawMessage) {
		var in struct {
			FilePath string `json:"file_path"`
		}
		if slices.Contains([]string{"Read", "Edit", "Write"}, name) && json.Unmarshal(input, &in) == nil && in.FilePath != "" {
			path := files.Abs(c.env, in.FilePath)
			paths = append(slices.DeleteFunc(paths, func(p string) bool { return p == path }), path)
		}
	})
	slices.Reverse(paths) // the newest first
	left := attachedFiles
	if at, _ := c.CompactsAt(); at < 200_000/2 {
		left = 1
	}
	var others []string
	for _, path := range paths {
		text, ok := "", false
		if left > 0 {
			text, ok = c.readAgain(t, path)
		}
		if !ok {
			others = append(others, path)
			continue
		}
		left--
		parts = append(parts, "You worked on "+path+" before the summary. This is what it holds now, as Read shows it:\n"+text)
	}
	if n := min(len(others), 20); n > 0 {
		parts = append(parts, "You worked on these, too; read them if you need them:\n"+strings.Join(others[:n], "\n"))
	}
	if tasks := tasklist.Of(c.env); len(tasks) > 0 {
		var b strings.Builder
		b.WriteString("Your tasks, as TaskList shows them:")
		for _, task := range tasks {
			fmt.Fprintf(&b, "\n- #%s [%s] %s", task.ID, task.Status, task.Subject)
		}
		parts = append(parts, b.String())
	}
	if todos := todowrite.Of(c.env); len(todos) > 0 {
		var b strings.Builder
		b.WriteString("Your list of what is to be done:")
		for _, todo := range todos {
			fmt.Fprintf(&b, "\n- [%s] %s", todo.Status, todo.Content)
		}
		parts = append(parts, b.String())
	}
	if running := c.env.Tasks().RunningOf(c.env.Agent); len(running) > 0 {
		var b strings.Builder
		b.WriteString("These tasks run in the background:")
		for _, info := range running {
			fmt.Fprintf(&b, "\n- %s: %s", info.ID, info.Description)
		}
		parts = append(parts, b.String())
	}
	return parts
}

// readAgain reads a file for the model, if it is small and the rules allow it without a
// question.
func (c *Conversation) readAgain(t *turn, path string) (text string, ok bool) {
	if c.findTool("Read") == nil {
		return "", false
	}
	tl, input := read.New(), mustJSON(map[string]string{"file_path": path})
	c.runWhileServing(func() {
		v := c.view.Load()
		req := v.Request(c.env, tl, input, []tool.Access{{Kind: tool.Read, Path: path}}, nil)
		target := req.Resolved[path]
		if target.Info == nil || !target.Info.Mode().IsRegular() || target.Info.Size() > attachedFile {
			return
		}
		if v.Policy.Decide(req).Behavior != wire.BehaviorAllow || c.env.Hidden != nil && c.env.Hidden(path, &target) {
			return
		}
		r, err := tl.Run(t.ctx, &tool.Call{ID: "compact_" + session.NewID(), Input: input, Env: v.Env, Resolved: req.Resolved})
		if err == nil && !r.IsError && !slices.ContainsFunc(r.Content.Blocks, func(b wire.Block) bool { _, is := b.(*wire.TextBlock); return !is }) {
			text, ok = r.Content.String(), true
		}
	})
	return text, ok && len(text) <= 2*attachedFile
}

// summarize has the model summarize a conversation. If that does not fit into a request
// either, results of tools are left out, and then the oldest messages.
func (c *Conversation) summarize(t *turn, of history.Transcript, instructions string, tight bool) (string, error) {
	if tight {
		of, _ = of.WithoutResults(nil)
	}
	for n := 0; ; n++ {
		text, err := c.askSummary(t, of, instructions)
		if overflowed(err) == nil || n == shrinkMost {
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

// askSummary asks for a summary once, and again if that failed in a way that may pass.
func (c *Conversation) askSummary(t *turn, of history.Transcript, instructions string) (string, error) {
	words := strings.TrimSpace(compactPrompt)
	if instructions != "" {
		words += "\n\nThe user wants this to be kept in mind for the summary:\n" + instructions
	}
	of = of.Clone()
	of.Add("user", mustJSON(&wire.TextBlock{Text: words}))
	for _, noTools := range []bool{false, true} {
		var a *answer
		loop := c.loop(t)
		loop.Report = func(attempt int, delay time.Duration, failure *model.Error) error {
			c.rec.Emit(&wire.APIRetry{Attempt: attempt, MaxRetries: loop.MaxRetries, RetryDelayMS: delay.Milliseconds(), ErrorStatus: failure.Status, Error: ask.Code(failure)})
			return nil
		}
		err := loop.Do(t.ctx, func() (err error) {
			if a, err = c.askAside(t, of, noTools); overflowed(err) != nil {
				return ask.Final(err)
			}
			return err
		})
		if cause := context.Cause(t.ctx); cause != nil {
			return "", cause
		}
		if err != nil {
			return "", err
		}
		text, problem := summaryOf(a)
		if problem == nil || noTools || len(a.calls()) == 0 {
			return text, problem
		}
		// It went on instead. This time it cannot.
	}
	panic("unreachable")
}

// summaryOf takes the summary out of an answer.
func summaryOf(a *answer) (string, error) {
	if a.stopReason == "refusal" {
		return "", errors.New("the model declined to write a summary")
	}
	var b strings.Builder
	for _, block := range a.blocks {
		if block.kind == "text" {
			b.WriteString(block.text.String())
		}
	}
	text := b.String()
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

// askAside sends a conversation and returns the answer, of which nothing is told. The
// turn's own usage is without it.
func (c *Conversation) askAside(t *turn, of history.Transcript, noTools bool) (*answer, error) {
	began := c.runner.Now()
	req := model.Request{Body: c.body(&of, noTools), Header: c.header()}
	if err := c.measure(t, req, &of); err != nil {
		return nil, err
	}
	if c.room > 0 {
		req.Body = c.body(&of, noTools)
	}
	parent, span := c.runner.Telemetry.Chat(t.ctx, c.cfg.Provider, c.model.ID, c.rec.ID())
	type end struct {
		a   *answer
		err error
	}
	ends := make(chan end, 1)
	go func() {
		a, err := c.readAnswer(parent, req)
		ends <- end{a, err}
	}()
	e, _ := await(context.Background(), c, ends) // which ends soon after the turn
	e.a.endSpan(span, e.err)
	c.ledger.AddAPITime(c.runner.Now().Sub(began))
	c.book(e.a, c.model.ID, "summary")
	return e.a, e.err
}

// readAnswer reads an answer to its end. It may be called from anywhere.
func (c *Conversation) readAnswer(ctx context.Context, req model.Request) (*answer, error) {
	a := &answer{}
	stream := ask.Open(ctx, c.cfg.Model, req, c.cfg.IdleTimeout, false, c.runner.Log)
	defer stream.Close()
	for {
		var it ask.Item
		select {
		case it = <-stream.Items:
		case <-stream.Ctx.Done():
			return a, stream.Err(context.Cause(stream.Ctx))
		}
		switch {
		case it.Err != nil:
			return a, stream.Err(it.Err)
		case it.Response != nil:
			a.requestID = it.Response.RequestID
		case it.Event == nil && a.complete:
			return a, nil
		case it.Event == nil:
			return a, stream.Err(io.ErrUnexpectedEOF)
		default:
			if err := ask.Failed(it.Event); err != nil {
				return a, err
			}
			if _, err := a.add(it.Event); err != nil {
				return a, err
			}
		}
	}
}

// restore takes in what the record of a compaction says.
func (s *compactState) restore(e *session.Entry) {
	var subtype string
	if json.Unmarshal(e.Fields["subtype"], &subtype); subtype != "compact_boundary" {
		return
	}
	var meta struct {
		Dropped int64 `json:"cumulativeDroppedTokens"`
	}
	json.Unmarshal(e.Fields["compactMetadata"], &meta)
	s.made, s.answers, s.dropped = true, 0, meta.Dropped
}
