package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// structuredOutput is the tool by which the model gives an answer that fits a
// schema.
type structuredOutput struct {
	spec   *tool.Spec
	schema *jsonschema.Resolved
}

// maxMisfits is how many values that do not fit are taken.
const maxMisfits = 5

func newStructuredOutput(schema json.RawMessage) (*structuredOutput, error) {
	schema, err := objectSchema(schema)
	if err != nil {
		return nil, err
	}
	spec := &tool.Spec{
		Name:        "StructuredOutput",
		Description: "Gives the final answer. Call it once, when the work is done, with a value that fits the schema.",
		Schema:      schema,
		ReadOnly:    true,
	}
	var parsed jsonschema.Schema
	if err := json.Unmarshal(schema, &parsed); err != nil {
		return nil, fmt.Errorf("the JSON schema cannot be read: %w", err)
	}
	resolved, err := parsed.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("the JSON schema cannot be used: %w", err)
	}
	return &structuredOutput{spec, resolved}, nil
}

// objectSchema returns a schema of objects, which is all that the input of a tool
// can be.
func objectSchema(schema json.RawMessage) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(schema, &members); err != nil || members == nil {
		return nil, errors.New("the JSON schema cannot be read: it must be an object")
	}
	if typ := members["type"]; typ != nil && string(typ) != `"object"` {
		return nil, fmt.Errorf("the JSON schema cannot be used: what it describes must be an object, and is %s", typ)
	} else if typ != nil {
		return schema, nil
	}
	out := json.RawMessage(`{"type":"object"`)
	if len(members) > 0 {
		out = append(out, ',')
	}
	return append(out, bytes.TrimPrefix(bytes.TrimSpace(schema), []byte("{"))...), nil
}

func (s *structuredOutput) Spec() *tool.Spec { return s.spec }

func (s *structuredOutput) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

func (s *structuredOutput) Run(context.Context, *tool.Call) (*tool.Result, error) {
	return nil, errors.New("engine: StructuredOutput is not run")
}

// check tells what is wrong with a value.
func (s *structuredOutput) check(value json.RawMessage) error {
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return err
	}
	if err := s.schema.Validate(v); err != nil {
		return tool.Misuse("InputValidationError: StructuredOutput failed: the value does not fit the schema: %v", err)
	}
	return nil
}

// accept ends the turn with a value that fits.
func (s *structuredOutput) accept(c *Conversation, t *turn, call *toolCall, value json.RawMessage) *outcome {
	c.Do(func() { t.structured = value })
	const text = "Structured output provided successfully"
	return &outcome{
		result:   &tool.Result{Content: wire.Text(text), Structured: text},
		meta:     configAccepts(call),
		finished: true,
		end:      &ending{reason: "completed", text: string(value)},
	}
}

// configAccepts says that a call needs nobody's permission.
func configAccepts(call *toolCall) *wire.ToolResultMeta {
	return &wire.ToolResultMeta{ID: call.block.id, PermissionDecision: &wire.PermissionDecision{Decision: "accept", Source: "config"}}
}

// misfit tells the model what is wrong, and gives up after some tries.
func (s *structuredOutput) misfit(c *Conversation, t *turn, call *toolCall, err error) *outcome {
	out := failed(call, err)
	out.meta = configAccepts(call)
	c.Do(func() {
		if t.schemaFails++; t.schemaFails >= maxMisfits {
			out.end = &ending{subtype: "error_max_structured_output_retries", reason: "structured_output_retry_exhausted", isError: true,
				errors: []string{fmt.Sprintf("Failed to provide valid structured output after %d attempts — last StructuredOutput error: %v", maxMisfits, err)}}
		}
	})
	return out
}
