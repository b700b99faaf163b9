package engine

import (
	_ "embed"
	"strings"

	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/wire"
)

// exitPlanName is the name of the tool that ends plan mode.
const exitPlanName = "ExitPlanMode"

// notices records what was sent to the model beside prompts and results, and is part of the
// conversation.
type notices struct {
	context bool     // the context of the user and the project
	loaded  bool     // hooks know the instructions in it
	again   bool     // a summary has replaced it
	skills  string   // the list of skills
	servers []string // MCP servers whose instructions were sent
	plan    bool     // plan mode is on
	tasks   string   // the list of TaskCreate, as recorded
}

// tasksType is the type of the record with the list of TaskCreate.
const tasksType = "parley-tasks"

//go:embed plan_mode.md
var planModeText string

//go:embed suggest.md
var suggestText string

// suggestPrompt proposes the user's next prompt after a turn, unless another turn starts first.
// It does nothing after the first turn, which is too little to build on, or in plan mode, where
// the plan is the next step.
func suggestPrompt(c *Conversation, end *ending) {
	if !c.suggests || c.sub != nil || c.results < 2 || end.isError || end.noTurns || c.mode == wire.ModePlan || len(c.inbox) > 0 || c.budgetSpent() {
		return
	}
	of := c.hist.Clone()
	of.Add("user", mustJSON(&wire.TextBlock{Text: history.Reminder(strings.TrimSpace(suggestText))}))
	req, name, turns := model.Request{Body: c.body(&of, true), Header: c.header()}, c.model.ID, c.results
	ctx := c.idle
	c.suggesting.Go(func() {
		a, err := c.readAnswer(ctx, req)
		c.Do(func() {
			c.bookUsage(a, name, "suggestion")
			text := answerText(a)
			if err != nil || c.results != turns || c.turn != nil || text == "" || len(strings.Fields(text)) > 20 || strings.Contains(text, "\n") {
				return
			}
			c.rec.Emit(&wire.PromptSuggestion{Suggestion: text})
		})
	})
}
