// Package findings implements the tool ReportFindings, which passes the findings of a
// review to programs.
package findings

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/parley-go/parley/engine/tool"
)

//go:embed findings.md
var description string

const schema = `{
	"type": "object",
	"properties": {
		"level": {"type": "string", "enum": ["low", "medium", "high", "xhigh", "max"], "description": "How thorough the review was"},
		"findings": {
			"type": "array",
			"maxItems": 32,
			"description": "What was found and checked, the worst first",
			"items": {
				"type": "object",
				"properties": {
					"file": {"type": "string", "description": "The file, relative to the root of the repository"},
					"line": {"type": "integer", "description": "The line, from 1"},
					"summary": {"type": "string", "description": "What is wrong, in one sentence"},
					"short_summary": {"type": "string", "maxLength": 60, "description": "The same in at most 60 characters"},
					"failure_scenario": {"type": "string", "description": "What input or state leads to which wrong result"},
					"category": {"type": "string", "maxLength": 40, "description": "What kind of finding it is, such as correctness"},
					"verdict": {"type": "string", "enum": ["CONFIRMED", "PLAUSIBLE"], "description": "Whether it was confirmed"},
					"outcome": {"type": "string", "enum": ["fixed", "skipped", "no_change_needed"], "description": "Its outcome, when reported again after fixes"}
				},
				"required": ["file", "summary", "failure_scenario"]
			}
		}
	},
	"required": ["findings"]
}`

// Tool is the tool ReportFindings.
type Tool struct{ spec tool.Spec }

// New returns the tool.
func New() *Tool {
	return &Tool{spec: tool.Spec{Name: "ReportFindings", Description: description, Schema: json.RawMessage(schema), ReadOnly: true}}
}

// Output is the structured result.
type Output struct {
	Count    int               `json:"count"`
	Level    string            `json:"level,omitempty"`
	Findings []json.RawMessage `json:"findings"` // verbatim from the model
}

// Spec implements [tool.Tool].
func (t *Tool) Spec() *tool.Spec { return &t.spec }

// Access returns nothing: the tool only reports.
func (t *Tool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

// Run reports the findings.
func (t *Tool) Run(_ context.Context, call *tool.Call) (*tool.Result, error) {
	var in struct {
		Level    string            `json:"level"`
		Findings []json.RawMessage `json:"findings"`
	}
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	if in.Findings == nil {
		in.Findings = []json.RawMessage{}
	}
	text := fmt.Sprintf("%d findings reported.", len(in.Findings))
	switch len(in.Findings) {
	case 0:
		text = "No findings reported."
	case 1:
		text = "1 finding reported."
	}
	return tool.Text(text, &Output{len(in.Findings), in.Level, in.Findings}), nil
}
