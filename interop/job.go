// Package interop tests the official SDKs and CLI together with ours.
//
// [Scenarios] is one list of conversations: what the model answers, what the host does,
// and what the host must see. A [Driver] is an SDK that a host is written with: ours,
// the official one for TypeScript, the official one for Python. [Play] runs a scenario
// with a driver and any CLI, and reports the deviations from the scenario; [Compare]
// lists how the output of two CLIs differs in a scenario.
//
// The package is for tests. It starts official peers, which must run with loopback
// only: scripts/offline ensures that, and the tests check it.
package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// A Job describes what a host does with a CLI: the form of a scenario for a driver in
// any language. README.md in this directory has the format.
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

// A Rule describes what a callback of the host does.
type Rule struct {
	Tool  string `json:"tool,omitzero"`  // for a permission: only for this tool
	Times *int   `json:"times,omitzero"` // for a permission or a hook: only this many times

	Matcher *string  `json:"matcher,omitzero"` // for a hook
	Timeout *float64 `json:"timeout,omitzero"` // for a hook, in seconds

	Name        string            `json:"name,omitzero"` // for a tool
	Description string            `json:"description,omitzero"`
	Input       map[string]string `json:"input,omitzero"` // the types of a tool's arguments
	Annotations json.RawMessage   `json:"annotations,omitzero"`

	Mark  string `json:"mark,omitzero"`  // a file to which each call appends a byte
	Await int    `json:"await,omitzero"` // the call returns once the file has this many bytes
	Throw string `json:"throw,omitzero"`
	Hang  bool   `json:"hang,omitzero"`

	Answer json.RawMessage `json:"answer,omitzero"` // for a permission or an elicitation
	Output json.RawMessage `json:"output,omitzero"` // for a hook
	Result json.RawMessage `json:"result,omitzero"` // for a tool
}

// A Step is one action of a host in a conversation.
type Step struct {
	Send   json.RawMessage            `json:"send,omitzero"`   // a prompt: a string, or content blocks
	Fields map[string]json.RawMessage `json:"fields,omitzero"` // more members of the prompt's message

	Until json.RawMessage `json:"until,omitzero"` // wait for a message with these members

	Call       string            `json:"call,omitzero"` // a method of the SDK
	Args       []json.RawMessage `json:"args,omitzero"`
	Background bool              `json:"background,omitzero"`

	Mark  string `json:"mark,omitzero"`  // append a byte to a file
	Await string `json:"await,omitzero"` // wait until a file is not empty
}

// An Event is one line of a driver's report; README.md lists them.
type Event map[string]any

// Kind returns the kind of the event, such as "message".
func (e Event) Kind() string { return text(e["event"]) }

// Message returns the message of an event that has one, in the form of the wire.
func (e Event) Message() map[string]any {
	m, _ := e["message"].(map[string]any)
	return m
}

// parseJob parses a job in JSON and rejects unknown members. It replaces words such as
// ${dir} with their values in vars.
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

// text returns a value if it is a string.
func text(v any) string {
	s, _ := v.(string)
	return s
}
