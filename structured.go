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

// RunAs asks an agent for an answer of type T. It is as [Run], with a schema that
// is inferred from T as [NewTool] does it from its In: the agent makes the model
// answer in that form, RunAs checks that it did and decodes the answer.
//
//	type Bug struct {
//		File     string `json:"file" jsonschema:"the path of the file"`
//		Line     int    `json:"line"`
//		Severity string `json:"severity,omitempty"`
//	}
//	bugs, res, err := parley.RunAs[[]Bug](ctx, "What is wrong with this code?", opts)
//
// T may be any type that there is a schema for. An answer in plain text that is
// JSON and fits the schema is accepted, too. If nothing that came fits, the error
// is an [*OutputError]. The result is returned whenever there is one.
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
	if err != nil {
		return zero, res, err
	}
	if res == nil {
		return zero, nil, &OutputError{Schema: form.schema, Err: ErrNoResult}
	}
	var v T
	if err := form.decode(res, &v); err != nil {
		return zero, res, err
	}
	return v, res, nil
}

// An OutputError says that an answer does not have the form that was asked for.
type OutputError struct {
	Schema json.RawMessage // what was asked for
	Got    string          // what came: JSON, or the text of the answer
	Err    error           // what does not fit
}

// Error says what does not fit.
func (e *OutputError) Error() string {
	got := e.Got
	if r := []rune(got); len(r) > 200 {
		got = string(r[:200]) + "…"
	}
	return fmt.Sprintf("parley: the answer does not fit the schema: %v; it is %q", e.Err, got)
}

// Unwrap returns Err.
func (e *OutputError) Unwrap() error { return e.Err }

// An outputForm is the form that an answer is to have.
type outputForm struct {
	schema  json.RawMessage      // of an object
	whole   *jsonschema.Resolved // the same
	inner   *jsonschema.Resolved // of the member "value", if the type is not an object
	wrapped bool
}

// newOutputForm makes the form of a type. The protocol knows objects only: any
// other type is the member "value" of one.
func newOutputForm(t reflect.Type) (*outputForm, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem() // the answer is not null
	}
	schema, err := jsonschema.ForType(t, nil)
	if err != nil {
		return nil, fmt.Errorf("parley: RunAs: there is no schema for %v: %w", t, err)
	}
	form := &outputForm{}
	if schema.Type != "object" {
		if t.Kind() == reflect.Slice && len(schema.Types) > 0 {
			schema.Type, schema.Types = "array", nil
		}
		form.wrapped = true
		if form.inner, err = schema.CloneSchemas().Resolve(nil); err != nil {
			return nil, fmt.Errorf("parley: RunAs: the schema of %v: %w", t, err)
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
		return nil, fmt.Errorf("parley: RunAs: the schema of %v: %w", t, err)
	}
	return form, nil
}

// decode takes the answer out of a result.
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

// fit checks an answer and decodes it.
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
			err = nil // it came without the wrapping
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
