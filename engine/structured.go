package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/internal/markdown"
	"github.com/parley-go/parley/wire"
)

// structuredOutput is the tool with which the model returns an answer that matches a schema.
type structuredOutput struct {
	spec   *tool.Spec
	form   *jsonschema.Schema
	schema *jsonschema.Resolved
}

// maxMisfits is how many values that do not match the schema are accepted.
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
	return &structuredOutput{spec, &parsed, resolved}, nil
}

// objectSchema returns a schema for objects, because the input of a tool must be one.
func objectSchema(schema json.RawMessage) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(schema, &members); err != nil || members == nil {
		return nil, errors.New("the JSON schema cannot be read: it must be an object")
	}
	if typ := members["type"]; typ != nil && string(typ) != `"object"` {
		return nil, fmt.Errorf("the JSON schema cannot be used: it must describe an object, not %s", typ)
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

// Fit returns the value that the model meant, if it matches the schema. It tries the given
// value, that value without a member around it, and with strings of JSON decoded. Otherwise
// the error describes why the given value does not match.
func (s *structuredOutput) Fit(given json.RawMessage) (json.RawMessage, error) {
	err := s.check(given)
	if err == nil {
		return given, nil
	}
	for _, v := range interpretations(given, 3) {
		for _, v := range []json.RawMessage{v, unquote(s.form, v)} {
			if s.check(v) == nil {
				return v, nil
			}
		}
	}
	return nil, err
}

// check returns an error if a value does not match the schema.
func (s *structuredOutput) check(value json.RawMessage) error {
	var v any
	if !jsontext.Value(value).IsValid() { // this includes duplicate members, which decoders treat differently
		return tool.Misuse("InputValidationError: StructuredOutput failed: the value is not JSON, or has a member twice")
	}
	if err := json.Unmarshal(value, &v); err != nil {
		return tool.Misuse("InputValidationError: StructuredOutput failed: the value is not JSON: %v", err)
	}
	if err := s.schema.Validate(v); err != nil {
		return fmt.Errorf("The value does not fit the schema: %w", err)
	}
	return nil
}

// interpretations returns the values that a value may stand for, itself first: the JSON that it is a
// string of, and the value of its only member, down to the given depth.
func interpretations(given json.RawMessage, depth int) []json.RawMessage {
	all := []json.RawMessage{given}
	if depth == 0 {
		return all
	}
	var text string
	if json.Unmarshal(given, &text) == nil {
		return append(all, interpretations(json.RawMessage(markdown.Unfenced(text)), depth-1)...)
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(given, &members) == nil && len(members) == 1 {
		for _, v := range members {
			all = append(all, interpretations(v, depth-1)...)
		}
	}
	return all
}

// unquote decodes the parts of a value that are strings of JSON where the schema requires
// another type.
func unquote(s *jsonschema.Schema, v json.RawMessage) json.RawMessage {
	if s == nil {
		return v
	}
	var text string
	if isText := json.Unmarshal(v, &text) == nil; isText && (s.Type != "" && s.Type != "string" || len(s.Types) > 0 && !slices.Contains(s.Types, "string")) {
		if inner := json.RawMessage(markdown.Unfenced(text)); json.Valid(inner) {
			v = inner
		}
	}
	var members map[string]json.RawMessage
	var items []json.RawMessage
	switch {
	case json.Unmarshal(v, &members) == nil && members != nil && len(s.Properties) > 0:
		for name, m := range members {
			members[name] = unquote(s.Properties[name], m)
		}
		return mustJSON(members)
	case json.Unmarshal(v, &items) == nil && items != nil && s.Items != nil:
		for i := range items {
			items[i] = unquote(s.Items, items[i])
		}
		return mustJSON(items)
	}
	return v
}

// inText returns the value in a plain text answer, or nil if there is none that matches the
// schema.
func (s *structuredOutput) inText(text string) json.RawMessage {
	given := json.RawMessage(markdown.Unfenced(text))
	if !json.Valid(given) {
		return nil
	}
	v, err := s.Fit(given)
	if err != nil {
		return nil
	}
	return v
}

// compactJSON returns a JSON value without spaces.
func compactJSON(value json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return string(value)
	}
	return b.String()
}

// outcomeEnding returns the ending that follows from the outcome of a call, or nil.
func (t *turn) outcomeEnding(tc *call.Call, out *call.Outcome) *ending {
	switch {
	case out.Deferred:
		t.stopReason = "tool_deferred"
		t.deferred = &wire.DeferredToolUse{ID: tc.ID, Name: tc.Name, Input: out.Input}
		return &ending{reason: "tool_deferred"}
	case out.Value != nil:
		t.structured = out.Value
		return &ending{reason: "completed", text: compactJSON(out.Value)}
	case out.Misfit != nil:
		if t.schemaFails++; t.schemaFails >= maxMisfits {
			return &ending{subtype: "error_max_structured_output_retries", reason: "structured_output_retry_exhausted", isError: true,
				errors: []string{fmt.Sprintf("Failed to provide valid structured output after %d attempts — last StructuredOutput error: %v", maxMisfits, out.Misfit)}}
		}
	}
	return nil
}
