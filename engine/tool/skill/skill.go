// Package skill implements the tool Skill: the model loads the text of a skill when it
// needs it, so that only names and descriptions take up space in every request.
//
// A [Library] provides the skills and runs the shell commands in their texts.
package skill

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"
	"sync"

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

// A Skill is a skill of a [Library].
type Skill struct {
	Name         string
	Description  string
	Dir          string   // directory of its files; empty if it has none
	AllowedTools []string // tools that it may use without permission; empty if it is not trusted
	Plain        bool     // it allows no tools and has no hooks, so it needs no permission
	Model        string   // the model that its file names, for hosts
	Fork         bool     // it runs in a subagent
	Agent        string   // the agent that runs it then; empty means the default one
}

// A Library provides skills. It is safe for concurrent use.
type Library interface {
	// Find returns a skill that the model may load, or nil.
	Find(name string) *Skill
	// Names returns the names of the skills that the model may load.
	Names() []string
	// Text returns the text of a skill, with the arguments filled in.
	Text(ctx context.Context, name, args string) (string, error)
	// Fork runs a skill with this text in a subagent, and returns the id and the report of the subagent.
	Fork(ctx context.Context, call *tool.Call, s *Skill, text string) (id, report string, err error)
}

// Tool is the tool Skill.
type Tool struct {
	spec tool.Spec
	lib  Library

	mu     sync.Mutex
	loaded map[string]bool // names of the skills that were loaded before
}

// New returns the tool.
func New(lib Library) *Tool {
	return &Tool{lib: lib, spec: tool.Spec{Name: "Skill", Description: description, Schema: json.RawMessage(schema), ReadOnly: true}}
}

// Input is the input of the tool.
type Input struct {
	Skill string `json:"skill"`
	Args  string `json:"args"`
}

// Output is the structured result.
type Output struct {
	Success      bool     `json:"success"`
	CommandName  string   `json:"commandName"`
	AllowedTools []string `json:"allowedTools,omitempty"`
	Model        string   `json:"model,omitempty"`
}

// Forked is the structured result of a skill that ran in a subagent.
type Forked struct {
	Success     bool   `json:"success"`
	CommandName string `json:"commandName"`
	Status      string `json:"status"`
	AgentID     string `json:"agentId"`
	Result      string `json:"result"`
}

// Spec implements [tool.Tool].
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

// About returns the description of the skill that a call loads.
func (t *Tool) About(input json.RawMessage) string {
	s, _, err := t.find(input)
	if err != nil {
		return ""
	}
	return s.Description
}

// Access returns the use of the skill, by its name.
func (t *Tool) Access(_ *tool.Env, input json.RawMessage) ([]tool.Access, error) {
	s, _, err := t.find(input)
	if err != nil {
		return nil, err // no permission is requested for a skill that does not exist
	}
	return []tool.Access{{Kind: tool.Skill, Name: s.Name, Plain: s.Plain}}, nil
}

// Check implements [tool.Checker]: Access finds all mistakes.
func (t *Tool) Check(context.Context, *tool.Call) error { return nil }

// Located returns the text of a skill with the directory of its files, if it has one.
func Located(dir, text string) string {
	if dir == "" {
		return text
	}
	return "Base directory for this skill: " + dir + "\n\n" + text
}

// Run loads the skill, or runs it in a subagent.
func (t *Tool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	s, in, err := t.find(call.Input)
	if err != nil {
		return nil, err
	}
	text, err := t.lib.Text(ctx, s.Name, in.Args)
	if err != nil {
		return nil, err
	}
	text = Located(s.Dir, text)
	if s.Fork {
		id, report, err := t.lib.Fork(ctx, call, s, text)
		if err != nil {
			return nil, err
		}
		return &tool.Result{Content: wire.Text("The skill " + s.Name + " ran in a subagent (forked execution).\n\nResult:\n" + report),
			Structured: &Forked{Success: true, CommandName: s.Name, Status: "forked", AgentID: id, Result: report}}, nil
	}
	follow := []string{text}
	t.mu.Lock()
	if t.loaded[s.Name] {
		follow = []string{"You loaded the skill " + s.Name + " before. What follows has new arguments, and new output of its commands.", text}
	}
	if t.loaded == nil {
		t.loaded = map[string]bool{}
	}
	t.loaded[s.Name] = true
	t.mu.Unlock()
	return &tool.Result{Content: wire.Text("The skill " + s.Name + " is loaded; its text follows."), Follow: follow,
		Structured: &Output{Success: true, CommandName: s.Name, AllowedTools: s.AllowedTools, Model: s.Model}}, nil
}
