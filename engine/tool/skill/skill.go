// Package skill is the tool Skill: the model loads the text of a skill when it needs
// it, so that only names and descriptions take room in every request.
//
// The skills and the commands of the shell in their texts are somebody else's
// matter: the tool asks a [Library].
package skill

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

//go:embed skill.md
var description string

const schema = `{
	"type": "object",
	"properties": {
		"skill": {"type": "string", "minLength": 1, "description": "The name of the skill in the list"},
		"args": {"type": "string", "description": "The input of the skill"}
	},
	"required": ["skill"]
}`

// A Skill is one that was found.
type Skill struct {
	Name         string
	Description  string
	Dir          string   // where its files are; empty if it has none
	AllowedTools []string // that it may use without a question; empty if it is not trusted
}

// A Library has skills. It is safe for concurrent use.
type Library interface {
	// Find returns a skill that the model may load, nil if there is none.
	Find(name string) *Skill
	// Names returns the names of the skills that the model may load.
	Names() []string
	// Text returns the text of a skill, with arguments in it.
	Text(ctx context.Context, name, args string) (string, error)
}

// Tool is Skill.
type Tool struct {
	spec tool.Spec
	lib  Library
}

// New returns the tool.
func New(lib Library) *Tool {
	return &Tool{lib: lib, spec: tool.Spec{Name: "Skill", Description: description, Schema: json.RawMessage(schema), ReadOnly: true}}
}

// Input is what the model gives.
type Input struct {
	Skill string `json:"skill"`
	Args  string `json:"args"`
}

// Output is what programs get.
type Output struct {
	Success      bool     `json:"success"`
	CommandName  string   `json:"commandName"`
	AllowedTools []string `json:"allowedTools,omitempty"`
}

// Spec says what the tool is.
func (t *Tool) Spec() *tool.Spec { return &t.spec }

// find returns the skill that an input names.
func (t *Tool) find(input json.RawMessage) (*Skill, Input, error) {
	var in Input
	if err := tool.Decode(input, &in); err != nil {
		return nil, in, err
	}
	in.Skill = strings.TrimPrefix(strings.TrimSpace(in.Skill), "/")
	s := t.lib.Find(in.Skill)
	if s == nil {
		known := "There are none."
		if names := t.lib.Names(); len(names) > 0 {
			known = "Known skills: " + strings.Join(names, ", ") + "."
		}
		return nil, in, tool.Misuse("There is no skill %q that can be loaded. %s", in.Skill, known)
	}
	return s, in, nil
}

// Access is to the skill by its name.
func (t *Tool) Access(_ *tool.Env, input json.RawMessage) ([]tool.Access, error) {
	s, _, err := t.find(input)
	if err != nil {
		return nil, err // nobody is asked about a skill that does not exist
	}
	return []tool.Access{{Kind: tool.Skill, Name: s.Name}}, nil
}

// Run loads the skill.
func (t *Tool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	s, in, err := t.find(call.Input)
	if err != nil {
		return nil, err
	}
	text, err := t.lib.Text(ctx, s.Name, in.Args)
	if err != nil {
		return nil, err
	}
	if s.Dir != "" {
		text = "Base directory for this skill: " + s.Dir + "\n\n" + text
	}
	return &tool.Result{Content: wire.Text("The skill " + s.Name + " is loaded; its text follows."), Follow: []string{text},
		Structured: &Output{Success: true, CommandName: s.Name, AllowedTools: s.AllowedTools}}, nil
}
