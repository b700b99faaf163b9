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
	"sync"
	"time"

	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/internal/markdown"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

//go:embed judge.md
var judgeCriteria string

// Limits of one judgement. A call that exceeds them needs permission.
const (
	judgeTime    = 30 * time.Second
	judgeTokens  = 400
	judgeBytes   = 48 << 10 // size of a call
	judgePrompts = 12       // number of the newest prompts
	judgePrompt  = 4000     // characters of each
)

// An asker sends a question to a model.
type asker = func(context.Context, tool.Question) (*tool.Reply, error)

// A brief holds the prompts of the user, for the model that judges calls in mode auto. Subagents
// share that of the topmost conversation, because a model wrote their prompts.
type brief struct {
	mu      sync.Mutex
	prompts []string
	foreign map[string]bool // prompts that a model scheduled
}

// markScheduled marks a prompt as written by a model. It arrives when a job is due, possibly through the
// host.
func (b *brief) markScheduled(text string) {
	text = strings.TrimSpace(text)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.foreign == nil {
		b.foreign = map[string]bool{}
	}
	b.foreign[text] = true
	b.prompts = slices.DeleteFunc(b.prompts, func(p string) bool { return p == text })
}

// add adds a prompt, unless its origin is not a person.
func (b *brief) add(text string, origin *wire.Origin) {
	if text = strings.TrimSpace(text); text == "" || origin != nil && origin.Kind != "human" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.foreign[text] {
		return
	}
	if r := []rune(text); len(r) > judgePrompt {
		text = string(r[:judgePrompt]) + "…"
	}
	b.prompts = append(b.prompts, text)
	if n := len(b.prompts) - judgePrompts; n > 0 {
		b.prompts = slices.Delete(b.prompts, 0, n)
	}
}

// restore adds the prompt of a record, and disowns prompts that its calls schedule.
func (b *brief) restore(e *session.Entry) {
	if e.Type == "assistant" && (bytes.Contains(e.Message, []byte(`"CronCreate"`)) || bytes.Contains(e.Message, []byte(`"ScheduleWakeup"`))) {
		_, blocks, _ := history.MessageBlocks(e.Message)
		for _, raw := range blocks {
			var call struct{ Input struct{ Prompt string } }
			if json.Unmarshal(raw, &call) == nil && call.Input.Prompt != "" {
				b.markScheduled(call.Input.Prompt)
			}
		}
	}
	if e.Type != "user" || e.Fields["promptId"] == nil || e.Fields["sourceToolAssistantUUID"] != nil || e.Fields["isMeta"] != nil {
		return
	}
	var origin *wire.Origin
	if raw := e.Fields["origin"]; raw != nil && json.Unmarshal(raw, &origin) != nil {
		return
	}
	_, blocks, _ := history.MessageBlocks(e.Message)
	for _, raw := range blocks {
		var text wire.TextBlock
		if history.BlockType(raw) == "text" && json.Unmarshal(raw, &text) == nil {
			b.add(text.Text, origin)
		}
	}
}

func (b *brief) clearPrompts() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prompts = nil
}

// judgeCall lets a small model decide whether a call may run without asking for permission. That
// model sees the call and the prompts of the user, and nothing that was read, fetched or written
// by a model. A failure or a malformed answer means no.
func (b *brief) judgeCall(ctx context.Context, ask asker, roots []string, spec *tool.Spec, input json.RawMessage) *policy.Judgement {
	j := &policy.Judgement{Behavior: wire.BehaviorAsk}
	fail := func(err error) *policy.Judgement {
		j.Error = err.Error()
		j.Reason = "the call could not be judged: " + j.Error
		return j
	}
	var members map[string]json.RawMessage
	if len(input) > judgeBytes || json.Unmarshal(input, &members) != nil {
		return fail(fmt.Errorf("its input is longer than %d bytes", judgeBytes))
	}
	if spec.Name == "Bash" || spec.Name == "Monitor" {
		delete(members, "description") // the model's claim about the call, not its effect
	}
	b.mu.Lock()
	facts := mustJSON(map[string]any{"user_prompts": slices.Clone(b.prompts), "call": map[string]any{"tool": spec.Name, "input": members}, "directories": roots})
	b.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, judgeTime, errors.New("the model took too long"))
	defer cancel()
	reply, err := ask(ctx, tool.Question{Small: true, System: strings.TrimSpace(judgeCriteria), Prompt: string(facts), MaxTokens: judgeTokens})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fail(err)
	}
	j.Model = reply.Model
	var answer struct {
		Allow  *bool  `json:"allow"`
		Reason string `json:"reason"`
	}
	d := json.NewDecoder(bytes.NewReader([]byte(markdown.Unfenced(reply.Text))))
	d.DisallowUnknownFields()
	if err := d.Decode(&answer); err != nil || answer.Allow == nil {
		return fail(fmt.Errorf("the model answered %.80q", reply.Text))
	}
	if _, err := d.Token(); err != io.EOF {
		return fail(fmt.Errorf("the model answered %.80q", reply.Text))
	}
	j.Reason = history.Clip(answer.Reason, 300)
	if *answer.Allow {
		j.Behavior = wire.BehaviorAllow
	}
	return j
}
