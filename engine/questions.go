package engine

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// The tools in this file ask the person in front of the host. The host receives a
// permission request as for any call; its answer becomes the result of the tool.

//go:embed questions_ask.md
var askDescription string

//go:embed questions_exitplan.md
var exitPlanDescription string

//go:embed questions_enterplan.md
var enterPlanDescription string

// QuestionTools returns the names of the tools with which the model asks the user or
// plans with them.
func QuestionTools() []string { return []string{"AskUserQuestion", "EnterPlanMode", "ExitPlanMode"} }

// questionTools returns those of the question tools that names lists. previews is the format of previews.
func questionTools(names []string, previews string, o *owner, p *permissions) []tool.Tool {
	all := []tool.Tool{newAskUser(previews), &enterPlan{set: func() { o.Do(func() { p.SetMode(wire.ModePlan) }) }}, &exitPlan{set: func() { o.Do(p.leavePlan) }}}
	return slices.DeleteFunc(all, func(t tool.Tool) bool { return !slices.Contains(names, t.Spec().Name) })
}

type askUser struct {
	previews string // their format: "markdown", "html" or empty
	spec     *tool.Spec
}

// newAskUser returns the tool with previews in the given format.
func newAskUser(previews string) *askUser {
	text := previewTexts[previews]
	if text == "" {
		return &askUser{spec: askSpec}
	}
	text = askDescription + "\nAn option can have a preview of what choosing it leads to, if seeing it helps to decide. Write it " + text + " Questions with multiSelect have no previews.\n"
	return &askUser{previews, &tool.Spec{Name: askSpec.Name, Description: text, ReadOnly: true, Schema: askSpec.Schema}}
}

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
		"answers":{"type":"object","description":"Filled in by the user"},
		"annotations":{"type":"object","description":"Filled in by the user"}}}`),
}

// previewTexts explain previews to the model, by format.
var previewTexts = map[string]string{
	"markdown": "as Markdown, shown in a box with letters of one width: a sketch of a page in plain characters, a piece of code, a configuration.",
	"html":     "as a fragment of HTML that needs nothing else: style attributes only, and no html, head, body, script or style element.",
}

func (a *askUser) Spec() *tool.Spec { return a.spec }

// notFragment matches elements that a fragment of HTML must not have.
var notFragment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)<\s*(!doctype|html|head|body|script|style)\b`) })

// Access checks that answers are unambiguous, and the previews: a page that shows them must not run what the model writes.
func (a *askUser) Access(_ *tool.Env, input json.RawMessage) ([]tool.Access, error) {
	var in struct {
		Questions []struct {
			Question string `json:"question"`
			Options  []struct {
				Label   string `json:"label"`
				Preview string `json:"preview"`
			} `json:"options"`
		} `json:"questions"`
	}
	if json.Unmarshal(input, &in) == nil {
		seen := map[[2]string]bool{} // a question, or a question and a label
		for _, q := range in.Questions {
			again := seen[[2]string{q.Question}]
			seen[[2]string{q.Question}] = true
			for _, o := range q.Options {
				choice := [2]string{q.Question, "=" + o.Label}
				again = again || seen[choice]
				seen[choice] = true
			}
			if again {
				return nil, tool.Invalid(a.spec, tool.Issue{Code: "custom", Path: []any{}, Message: "Two questions, or two labels of one question, are the same"})
			}
			for _, o := range q.Options {
				if found := notFragment().FindString(o.Preview); found != "" && a.previews == "html" {
					return nil, fmt.Errorf("A preview has %q. Write a fragment of HTML with style attributes, without html, head, body, script and style elements.", found)
				}
			}
		}
	}
	return []tool.Access{{Kind: tool.Other}}, nil
}

// Run returns the answers that the host put into the input.
func (*askUser) Run(_ context.Context, call *tool.Call) (*tool.Result, error) {
	var in struct {
		Questions []struct {
			Question string `json:"question"`
		} `json:"questions"`
		Answers     map[string]json.RawMessage `json:"answers"`
		Annotations map[string]struct {
			Notes string `json:"notes"`
		} `json:"annotations"`
	}
	if err := json.Unmarshal(call.Input, &in); err != nil {
		return nil, err
	}
	structured := struct {
		Questions   json.RawMessage `json:"questions"`
		Answers     json.RawMessage `json:"answers"`
		Annotations json.RawMessage `json:"annotations,omitempty"`
	}{Answers: json.RawMessage("{}")}
	json.Unmarshal(call.Input, &structured)
	var parts []string
	for _, q := range in.Questions {
		if a, ok := in.Answers[q.Question]; ok {
			part := fmt.Sprintf("%q=%s", q.Question, a)
			if notes := in.Annotations[q.Question].Notes; notes != "" {
				part += " notes: " + notes
			}
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return tool.Text("The user gave no answer. Decide yourself, and state your decision.", structured), nil
	}
	return tool.Text("The user answered: "+strings.Join(parts, ", ")+". Continue with that.", structured), nil
}

type enterPlan struct{ set func() } // sets the mode

var enterPlanSpec = &tool.Spec{Name: "EnterPlanMode", Description: enterPlanDescription, ReadOnly: true,
	Schema: json.RawMessage(`{"type":"object","properties":{}}`)}

func (*enterPlan) Spec() *tool.Spec { return enterPlanSpec }

func (*enterPlan) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

func (e *enterPlan) Run(context.Context, *tool.Call) (*tool.Result, error) {
	e.set()
	const text = "You are in plan mode: read and think, and change nothing. Present the plan with ExitPlanMode."
	return tool.Text(text, map[string]string{"message": text}), nil
}

type exitPlan struct{ set func() } // sets the mode

var exitPlanSpec = &tool.Spec{Name: "ExitPlanMode", Description: exitPlanDescription, ReadOnly: true,
	Schema: json.RawMessage(`{"type":"object","properties":{"plan":{"type":"string","description":"The plan, in Markdown"}}}`)}

func (*exitPlan) Spec() *tool.Spec { return exitPlanSpec }

func (*exitPlan) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) {
	return []tool.Access{{Kind: tool.Other}}, nil
}

// Run leaves plan mode, because the user has approved the plan.
func (e *exitPlan) Run(_ context.Context, call *tool.Call) (*tool.Result, error) {
	var in struct {
		Plan *string `json:"plan"`
	}
	json.Unmarshal(call.Input, &in)
	e.set()
	text := "The user has approved the plan. You may carry it out now."
	if in.Plan != nil && *in.Plan != "" { // the user may have edited it
		text += "\n\nThe approved plan:\n\n" + *in.Plan
	}
	return tool.Text(text,
		map[string]any{"plan": in.Plan, "isAgent": false}), nil
}
