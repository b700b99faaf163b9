package engine

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// The tools of this file are questions to the person in front of the host. The
// host is asked as about any call; what it answers is what the tool returns.

//go:embed questions_ask.md
var askDescription string

//go:embed questions_exitplan.md
var exitPlanDescription string

//go:embed questions_enterplan.md
var enterPlanDescription string

// QuestionTools names the tools by which the model asks the user, or plans with
// them.
func QuestionTools() []string { return []string{"AskUserQuestion", "EnterPlanMode", "ExitPlanMode"} }

// questionTools returns those of them that the conversation has.
func (c *Conversation) questionTools() []tool.Tool {
	all := []tool.Tool{&askUser{}, &enterPlan{set: func() { c.Do(func() { c.SetMode(wire.ModePlan) }) }}, &exitPlan{set: func() { c.Do(c.leavePlan) }}}
	return slices.DeleteFunc(all, func(t tool.Tool) bool { return !slices.Contains(c.set.questions, t.Spec().Name) })
}

type askUser struct{}

var askSpec = &tool.Spec{
	Name: "AskUserQuestion", Description: askDescription, ReadOnly: true,
	Schema: json.RawMessage(`{"type":"object","required":["questions"],"properties":{
		"questions":{"type":"array","minItems":1,"maxItems":4,"description":"What to ask","items":{"type":"object","required":["question","options"],"properties":{
			"question":{"type":"string","description":"The question, complete"},
			"header":{"type":"string","description":"One or two words that name it"},
			"multiSelect":{"type":"boolean","description":"Whether several options may be chosen"},
			"options":{"type":"array","minItems":2,"maxItems":4,"description":"What can be chosen","items":{"type":"object","required":["label"],"properties":{
				"label":{"type":"string","description":"The choice in a few words"},
				"description":{"type":"string","description":"What it means"},
				"preview":{"type":"string","description":"What it would look like"}}}}}}},
		"answers":{"type":"object","description":"Filled in by the user"}}}`),
}

func (*askUser) Spec() *tool.Spec { return askSpec }

func (*askUser) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) {
	return []tool.Access{{Kind: tool.Other}}, nil
}

// Run returns the answers that the host put into the input.
func (*askUser) Run(_ context.Context, call *tool.Call) (*tool.Result, error) {
	var in struct {
		Questions []struct {
			Question string `json:"question"`
		} `json:"questions"`
		Answers map[string]json.RawMessage `json:"answers"`
	}
	if err := json.Unmarshal(call.Input, &in); err != nil {
		return nil, err
	}
	if len(in.Answers) == 0 {
		return nil, fmt.Errorf("The user gave no answer. Decide by yourself, and say what you decided.")
	}
	var parts []string
	for _, q := range in.Questions {
		if a, ok := in.Answers[q.Question]; ok {
			parts = append(parts, fmt.Sprintf("%q=%s", q.Question, a))
		}
	}
	var structured struct {
		Questions json.RawMessage `json:"questions"`
		Answers   json.RawMessage `json:"answers"`
	}
	json.Unmarshal(call.Input, &structured)
	return tool.Text("The user answered: "+strings.Join(parts, ", ")+". Go on with that.", structured), nil
}

type enterPlan struct{ set func() } // which sets the mode

var enterPlanSpec = &tool.Spec{Name: "EnterPlanMode", Description: enterPlanDescription, ReadOnly: true,
	Schema: json.RawMessage(`{"type":"object","properties":{}}`)}

func (*enterPlan) Spec() *tool.Spec { return enterPlanSpec }

func (*enterPlan) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

func (e *enterPlan) Run(context.Context, *tool.Call) (*tool.Result, error) {
	e.set()
	const text = "You are in plan mode: look and think, change nothing. Present the plan with ExitPlanMode."
	return tool.Text(text, map[string]string{"message": text}), nil
}

type exitPlan struct{ set func() } // which sets the mode

var exitPlanSpec = &tool.Spec{Name: "ExitPlanMode", Description: exitPlanDescription, ReadOnly: true,
	Schema: json.RawMessage(`{"type":"object","properties":{"plan":{"type":"string","description":"The plan, in Markdown"}}}`)}

func (*exitPlan) Spec() *tool.Spec { return exitPlanSpec }

func (*exitPlan) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) {
	return []tool.Access{{Kind: tool.Other}}, nil
}

// Run leaves plan mode: the user has approved.
func (e *exitPlan) Run(_ context.Context, call *tool.Call) (*tool.Result, error) {
	var in struct {
		Plan *string `json:"plan"`
	}
	json.Unmarshal(call.Input, &in)
	e.set()
	text := "The user has approved the plan. You may carry it out now."
	if in.Plan != nil && *in.Plan != "" { // it may have been edited
		text += "\n\nThe approved plan:\n\n" + *in.Plan
	}
	return tool.Text(text,
		map[string]any{"plan": in.Plan, "isAgent": false}), nil
}

// leavePlan sets the mode that was before plan mode.
func (c *Conversation) leavePlan() {
	if c.mode != wire.ModePlan {
		return
	}
	back := c.modeBefore
	if back == "" || back == wire.ModePlan {
		back = wire.ModeDefault
	}
	c.SetMode(back)
}
