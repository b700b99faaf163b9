package engine

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/tool/tasklist"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// exitPlanName is the tool that ends plan mode.
const exitPlanName = "ExitPlanMode"

// told is what the model was told beside prompts and results, and is part of the conversation.
type told struct {
	context bool   // what the user and the project say
	skills  string // the list of skills
	plan    bool   // that plan mode is on
	tasks   string // the list of TaskCreate, as the log has it
}

// tasksType is the record of the list of TaskCreate.
const tasksType = "parley-tasks"

// taskRecord is the record of the list of TaskCreate; nil if the log has it as it is.
func taskRecord(c *Conversation) *session.Entry {
	list := tasklist.Of(c.env)
	raw := string(mustJSON(list))
	if raw == c.told.tasks || len(list) == 0 && c.told.tasks == "" {
		return nil
	}
	c.told.tasks = raw
	return &session.Entry{Type: tasksType, Fields: fields("tasks", list)}
}

// restoreTasks brings the list of TaskCreate back.
func restoreTasks(c *Conversation, e *session.Entry) {
	var list []tasklist.Task
	if e == nil || json.Unmarshal(e.Fields["tasks"], &list) != nil {
		return
	}
	tasklist.Restore(c.env, list)
	c.told.tasks = string(mustJSON(list))
}

//go:embed plan_mode.md
var planModeText string

//go:embed suggest.md
var suggestText string

// tellMode tells the model that plan mode is on, or that it is over.
func tellMode(c *Conversation, t *turn) error {
	on := c.mode == wire.ModePlan
	if c.sub != nil || on == c.told.plan {
		return nil
	}
	c.told.plan = on
	text := "Plan mode is over. Changes are possible again, as far as the permissions allow them."
	if on {
		text = strings.TrimSpace(planModeText)
		if own := c.set.tuning.PlanInstructions; own != "" {
			text = "Plan mode is on: change nothing until the user has approved a plan.\n\n" + own
		}
		if c.findTool(exitPlanName) != nil {
			text += "\n\nWhen the plan is ready, call " + exitPlanName + " to have it approved. Do not ask for approval in any other way."
		}
	}
	return c.inform(t, history.Reminder(text))
}

// suggestPrompt proposes the user's next prompt once a turn has ended, unless another turn begins
// before. There is nothing to build on in the first turn, and in plan mode the next step is the
// plan.
func suggestPrompt(c *Conversation, end *ending) {
	if !c.set.tuning.Suggestions || c.sub != nil || c.results < 2 || end.isError || end.noTurns || c.mode == wire.ModePlan || len(c.inbox) > 0 || c.spent() {
		return
	}
	of := c.hist.Clone()
	of.Add("user", mustJSON(&wire.TextBlock{Text: history.Reminder(strings.TrimSpace(suggestText))}))
	req, name, turns := model.Request{Body: c.body(&of, true), Header: c.header()}, c.model.ID, c.results
	ctx, cancel := context.WithCancel(c.base)
	done := make(chan struct{})
	c.env.OnClose(func() { cancel(); <-done })
	go func() {
		defer close(done)
		defer cancel()
		a, err := c.readAnswer(ctx, req)
		// It must not wait: a conversation that ends waits for this goroutine.
		go c.Do(func() {
			c.book(a, name, "suggestion")
			text := answerText(a)
			if err != nil || c.results != turns || c.turn != nil || text == "" || len(strings.Fields(text)) > 20 || strings.Contains(text, "\n") {
				return
			}
			c.rec.Emit(&wire.PromptSuggestion{Suggestion: text})
		})
	}()
}
