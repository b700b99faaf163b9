package parley

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/parley-go/parley/internal/markdown"
	"github.com/parley-go/parley/wire"
)

// RunAs asks an agent for an answer of type T. It is like [Run], with a schema that is
// inferred from T as [NewTool] infers one from In: the agent makes the model answer in
// that form, and RunAs validates and decodes the answer.
//
//	type Bug struct {
//		File     string `json:"file" jsonschema:"the path of the file"`
//		Line     int    `json:"line"`
//		Severity string `json:"severity,omitempty"`
//	}
//	bugs, res, err := parley.RunAs[[]Bug](ctx, "What is wrong with this code?", opts)
//
// T may be any type that has a schema. RunAs also accepts an answer in plain text that
// is JSON and matches the schema. If no answer matches, the error is an [*OutputError].
// The result is returned whenever there is one.
func RunAs[T any](ctx context.Context, prompt string, opts *Options, attach ...wire.Block) (T, *wire.Result, error) {
	var zero T
	form, err := newOutputForm(reflect.TypeFor[T]())
	if err != nil {
		return zero, nil, err
	}
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if len(o.OutputSchema) > 0 {
		return zero, nil, &OptionError{"OutputSchema", "cannot be combined with RunAs, which makes it from the type"}
	}
	o.OutputSchema = form.schema
	res, err := Run(ctx, prompt, &o, attach...)
	return decodeAs[T](form, res, err)
}

// TurnAs is [Client.Run] for an answer of type T. The client must have been connected
// with an [Options.OutputSchema], usually that of [SchemaOf] for the same type. TurnAs
// validates and decodes the answer like [RunAs].
func TurnAs[T any](ctx context.Context, c *Client, prompt string, attach ...wire.Block) (T, *wire.Result, error) {
	var zero T
	form, err := newOutputForm(reflect.TypeFor[T]())
	if err != nil {
		return zero, nil, err
	}
	if len(c.s.cfg.initialize.JSONSchema) == 0 {
		return zero, nil, &OptionError{"OutputSchema", "TurnAs needs a client that was connected with it; SchemaOf makes it from the type"}
	}
	res, err := c.Run(ctx, prompt, attach...)
	return decodeAs[T](form, res, err)
}

// SchemaOf returns the JSON Schema that [RunAs] and [TurnAs] use for an answer of type
// T, for [Options.OutputSchema]. It is always that of an object: a type that is not an
// object becomes its member "value". The tags of fields are as for [NewTool].
func SchemaOf[T any]() (json.RawMessage, error) {
	form, err := newOutputForm(reflect.TypeFor[T]())
	if err != nil {
		return nil, err
	}
	return form.schema, nil
}

// decodeAs decodes the answer of a turn.
func decodeAs[T any](form *outputForm, res *wire.Result, err error) (T, *wire.Result, error) {
	var v, zero T
	if err == nil && res == nil {
		err = &OutputError{Schema: form.schema, Err: ErrNoResult}
	}
	if err == nil {
		err = form.decode(res, &v)
	}
	if err != nil {
		return zero, res, err
	}
	return v, res, nil
}

// An OutputError means that an answer does not match the schema.
type OutputError struct {
	Schema json.RawMessage // the required schema
	Got    string          // the answer: JSON or text
	Err    error           // describes the mismatch
}

// Error describes the mismatch.
func (e *OutputError) Error() string {
	got := e.Got
	if r := []rune(got); len(r) > 200 {
		got = string(r[:200]) + "…"
	}
	return fmt.Sprintf("parley: the answer does not fit the schema: %v; it is %q", e.Err, got)
}

// Unwrap returns Err.
func (e *OutputError) Unwrap() error { return e.Err }

// An outputForm is the required form of an answer.
type outputForm struct {
	schema  json.RawMessage      // of an object
	whole   *jsonschema.Resolved // the resolved schema
	inner   *jsonschema.Resolved // of the member "value", if the type is not an object
	wrapped bool
}

// newOutputForm returns the form for a type. The protocol allows only objects: any other
// type is the member "value" of one.
func newOutputForm(t reflect.Type) (*outputForm, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem() // the answer is never null
	}
	schema, err := jsonschema.ForType(t, nil)
	if err != nil {
		return nil, fmt.Errorf("parley: there is no schema for %v: %w", t, err)
	}
	form := &outputForm{}
	if schema.Type != "object" {
		if t.Kind() == reflect.Slice && len(schema.Types) > 0 {
			schema.Type, schema.Types = "array", nil
		}
		form.wrapped = true
		if form.inner, err = schema.CloneSchemas().Resolve(nil); err != nil {
			return nil, fmt.Errorf("parley: the schema of %v: %w", t, err)
		}
		schema = &jsonschema.Schema{
			Type:                 "object",
			Properties:           map[string]*jsonschema.Schema{"value": schema},
			Required:             []string{"value"},
			AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
		}
	}
	if form.schema, err = json.Marshal(schema); err == nil {
		form.whole, err = schema.Resolve(nil)
	}
	if err != nil {
		return nil, fmt.Errorf("parley: the schema of %v: %w", t, err)
	}
	return form, nil
}

// decode decodes the answer of a result.
func (f *outputForm) decode(res *wire.Result, v any) error {
	fail := func(got string, err error) error {
		return &OutputError{Schema: f.schema, Got: got, Err: err}
	}
	if out := res.StructuredOutput; len(out) > 0 && string(out) != "null" {
		if err := f.fit(out, v); err != nil {
			return fail(string(out), err)
		}
		return nil
	}
	text := []byte(markdown.Unfenced(res.Result))
	if !json.Valid(text) {
		return fail(res.Result, errors.New("there is no structured output, and the text is not JSON"))
	}
	if err := f.fit(text, v); err != nil {
		return fail(res.Result, err)
	}
	return nil
}

// fit validates an answer and decodes it.
func (f *outputForm) fit(data []byte, v any) error {
	tree, err := jsonTree(data)
	if err != nil {
		return err
	}
	err = f.whole.Validate(tree)
	if f.wrapped {
		switch object, ok := tree.(map[string]any); {
		case err == nil && ok:
			tree = object["value"]
		case f.inner.Validate(tree) == nil:
			err = nil // it arrived without the wrapper
		}
	}
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "validating root: "))
	}
	plain, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, v)
}
