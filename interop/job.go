// Package interop has the official SDKs and CLI meet ours.
//
// [Scenarios] is one list of conversations: what the model answers, what the
// host does, and what the host must see. A [Driver] is an SDK that a host is
// written with: ours, the official one for TypeScript, the official one for
// Python. [Play] has a driver put a scenario to a CLI, any CLI, and reports
// what was not as the scenario says; [Compare] plays a scenario with two CLIs
// and lists how what they wrote differs.
//
// The package is for tests. It starts official peers, which are to run with
// loopback only: scripts/offline sees to that, and the tests look for it.
package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// A Job is what a host does with a CLI: the form in which a scenario is given to
// a driver in any language. README.md in this directory has the format.
type Job struct {
	CLI     string                     `json:"cli,omitzero"`
	Env     map[string]string          `json:"env,omitzero"`
	Stderr  bool                       `json:"stderr,omitzero"`
	Options map[string]json.RawMessage `json:"options,omitzero"` // by their names in the TypeScript SDK

	CanUseTool  []Rule            `json:"canUseTool,omitzero"`
	Hooks       map[string][]Rule `json:"hooks,omitzero"`
	Tools       map[string][]Rule `json:"tools,omitzero"` // servers that run in the host
	Elicitation *Rule             `json:"elicitation,omitzero"`

	Prompt string `json:"prompt,omitzero"`
	Steps  []Step `json:"steps,omitzero"`
}

// A Rule says what a callback of the host does.
type Rule struct {
	Tool  string `json:"tool,omitzero"`  // of a permission: for this tool only
	Times *int   `json:"times,omitzero"` // of a permission or a hook: so many times

	Matcher *string  `json:"matcher,omitzero"` // of a hook
	Timeout *float64 `json:"timeout,omitzero"` // of a hook, in seconds

	Name        string            `json:"name,omitzero"` // of a tool
	Description string            `json:"description,omitzero"`
	Input       map[string]string `json:"input,omitzero"` // the types of a tool's arguments
	Annotations json.RawMessage   `json:"annotations,omitzero"`

	Mark  string `json:"mark,omitzero"`  // a file that each call makes one byte longer
	Await int    `json:"await,omitzero"` // the call returns once the file has so many bytes
	Throw string `json:"throw,omitzero"`
	Hang  bool   `json:"hang,omitzero"`

	Answer json.RawMessage `json:"answer,omitzero"` // of a permission or an elicitation
	Output json.RawMessage `json:"output,omitzero"` // of a hook
	Result json.RawMessage `json:"result,omitzero"` // of a tool
}

// A Step is one thing that a host does in a conversation.
type Step struct {
	Send   json.RawMessage            `json:"send,omitzero"`   // a prompt: a string, or content blocks
	Fields map[string]json.RawMessage `json:"fields,omitzero"` // more members of the prompt's message

	Until json.RawMessage `json:"until,omitzero"` // wait for a message with these members

	Call       string            `json:"call,omitzero"` // a method of the SDK
	Args       []json.RawMessage `json:"args,omitzero"`
	Background bool              `json:"background,omitzero"`

	Mark  string `json:"mark,omitzero"`  // make a file one byte longer
	Await string `json:"await,omitzero"` // wait until a file is not empty
}

// An Event is one line of what a driver reports; README.md lists them.
type Event map[string]any

// Kind is what the event is about, such as "message".
func (e Event) Kind() string { return text(e["event"]) }

// Message is the message of an event that has one, in the form of the wire.
func (e Event) Message() map[string]any {
	m, _ := e["message"].(map[string]any)
	return m
}

// parseJob reads a job from its JSON, in which nothing may be misspelt. Words such
// as ${dir} are replaced by what vars has for them.
func parseJob(js string, vars map[string]string) (*Job, error) {
	js, err := expand(js, vars)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(strings.NewReader(js))
	d.DisallowUnknownFields()
	var j Job
	if err := d.Decode(&j); err != nil {
		return nil, fmt.Errorf("the job is wrong: %w\n%s", err, js)
	}
	return &j, nil
}

// expand replaces ${name} in JSON text.
func expand(js string, vars map[string]string) (string, error) {
	for name, value := range vars {
		quoted, err := json.Marshal(value)
		if err != nil {
			return "", err
		}
		js = strings.ReplaceAll(js, "${"+name+"}", string(bytes.Trim(quoted, `"`)))
	}
	if i := strings.Index(js, "${"); i >= 0 {
		return "", fmt.Errorf("nothing is known for %.20q", js[i:])
	}
	return js, nil
}

// text is a value if it is a string.
func text(v any) string {
	s, _ := v.(string)
	return s
}
