package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
)

// compiledSchema is a schema that is compiled once.
type compiledSchema struct {
	once     sync.Once
	schema   *jsonschema.Schema
	resolved *jsonschema.Resolved
	err      error
}

// Validate validates an input against the schema of a tool. It accepts unknown members unless the schema
// forbids them, and numbers and booleans given as strings, which [Decode] converts. A valid input is
// unambiguous: it is valid UTF-8, no name occurs twice in an object, and none differs from another, or from
// that of a parameter, only in case. An invalid input is a [UseError] that explains what to change; an
// invalid schema is another error.
func Validate(spec *Spec, input json.RawMessage) error {
	c := spec.compile()
	if c.err != nil {
		return c.err
	}
	if len(bytes.TrimSpace(input)) == 0 {
		input = json.RawMessage("{}")
	}
	var value any
	// Decoders disagree about the value of a duplicate name.
	err := strict(input)
	if err == nil {
		err = json.Unmarshal(input, &value)
	}
	if err != nil {
		const shown = 200
		return Misuse("InputValidationError: %s was called with input that is not JSON (%v).\nYou sent (first %d of %d bytes): %s\nCall it again with a JSON object; escape backslashes, quotes and control characters inside strings.",
			spec.Name, err, min(shown, len(input)), len(input), strings.ToValidUTF8(string(input[:min(shown, len(input))]), "\ufffd"))
	}
	w := walker{}
	value = w.walk(c.schema, value, place{})
	w.names(c.schema, value, place{})
	if spec.Others != nil {
		for _, issue := range w.unknown {
			if len(issue.Path) == 0 && !slices.Contains(spec.Others, issue.Keys[0]) {
				w.issues = append(w.issues, issue)
			}
		}
		w.unknown = nil
	}
	if len(w.issues) == 0 {
		err := c.resolved.Validate(value)
		if err == nil {
			return nil
		}
		w.add(place{}, Issue{Code: "custom"}, "%v", err)
	}
	w.issues = append(w.issues, w.unknown...)
	return Invalid(spec, w.issues...)
}

// Invalid returns the error for an input that does not match the schema of a tool.
func Invalid(spec *Spec, issues ...Issue) error {
	word, text := "issues", make([]string, len(issues))
	if len(issues) == 1 {
		word = "issue"
	}
	for i, issue := range issues {
		text[i] = issue.Message
	}
	return &UseError{Message: fmt.Sprintf("InputValidationError: %s failed due to the following %s:\n%s", spec.Name, word, strings.Join(text, "\n")), Issues: issues}
}

func (spec *Spec) compile() *compiledSchema {
	c := &spec.compiled
	c.once.Do(func() {
		c.schema = new(jsonschema.Schema)
		if c.err = json.Unmarshal(spec.Schema, c.schema); c.err == nil {
			c.resolved, c.err = c.schema.Resolve(nil)
		}
		if c.err != nil {
			c.err = fmt.Errorf("tool: the schema of %s: %w", spec.Name, c.err)
		}
	})
	return c
}

// Complete returns an input with the defaults of its schema for missing members, and with numbers and booleans in place of
// strings that contain them, as hosts and hooks expect them. An invalid input is returned unchanged.
func Complete(spec *Spec, input json.RawMessage) json.RawMessage {
	c := spec.compile()
	var given map[string]json.RawMessage
	if c.err != nil || json.Unmarshal(input, &given) != nil {
		return input
	}
	var missing []string
	converted := input
	for _, name := range slices.Sorted(maps.Keys(c.schema.Properties)) {
		s := c.schema.Properties[name]
		var text string
		if raw, ok := given[name]; !ok && s.Default != nil {
			missing = append(missing, name)
		} else if ok && raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
			if v, ok := fromString(s.Type, text); ok {
				value, _ := json.Marshal(v)
				if set, err := setMember(converted, name, value); err == nil {
					converted = set
				}
			}
		}
	}
	if len(missing) == 0 && bytes.Equal(converted, input) || Validate(spec, input) != nil {
		return input
	}
	input = converted
	out := bytes.TrimSuffix(bytes.TrimSpace(input), []byte("}"))
	for i, name := range missing {
		if i > 0 || len(given) > 0 {
			out = append(out[:len(out):len(out)], ',')
		}
		key, _ := json.Marshal(name)
		out = slices.Concat(out, key, []byte(":"), c.schema.Properties[name].Default)
	}
	return append(out[:len(out):len(out)], '}')
}

// A walker describes the errors in a value, and converts numbers and booleans that were given as strings.
type walker struct {
	issues  []Issue
	unknown []Issue
}

func (w *walker) add(at place, issue Issue, format string, args ...any) {
	issue.Path, issue.Message = append([]any{}, at...), fmt.Sprintf(format, args...)
	w.issues = append(w.issues, issue)
}

// A place is the position of a value in an input: names and indexes.
type place []any

func (p place) with(step any) place { return append(p[:len(p):len(p)], step) }

// String formats the place for people, such as todos[0].status.
func (p place) String() string {
	var b strings.Builder
	for _, step := range p {
		if name, ok := step.(string); !ok {
			fmt.Fprintf(&b, "[%v]", step)
		} else if b.Len() > 0 {
			b.WriteString("." + name)
		} else {
			b.WriteString(name)
		}
	}
	return b.String()
}

func (w *walker) walk(s *jsonschema.Schema, value any, at place) any {
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	if len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return isType(t, value) }) {
		text, isString := value.(string)
		for _, t := range types {
			if v, ok := fromString(t, text); isString && ok {
				return v
			}
		}
		what := "The input"
		if len(at) > 0 {
			what = fmt.Sprintf("The parameter `%s`", at)
		}
		w.add(at, wrongType(types), "%s must be %s, but %s was given", what, article(types), kindOf(value))
		return value
	}
	if len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(e any) bool { return e == value }) {
		var names []string
		for _, e := range s.Enum {
			b, _ := json.Marshal(e)
			names = append(names, string(b))
		}
		b, _ := json.Marshal(value)
		w.add(at, Issue{Code: "invalid_value", Values: s.Enum}, "The parameter `%s` must be one of %s, but %s was given", at, strings.Join(names, ", "), clip(string(b), 60))
		return value
	}
	switch v := value.(type) {
	case map[string]any:
		w.object(s, v, at)
	case []any:
		for i := range v {
			if s.Items != nil {
				v[i] = w.walk(s.Items, v[i], at.with(i))
			}
		}
	}
	w.bounds(s, value, at)
	return value
}

// object checks the members of an object, and converts them.
func (w *walker) object(s *jsonschema.Schema, v map[string]any, at place) {
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			w.add(at.with(name), missing(s.Properties[name]), "The required parameter `%s` is missing%s", at.with(name), about(s.Properties[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if p := s.Properties[name]; p != nil {
			v[name] = w.walk(p, v[name], at.with(name))
		} else if s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil {
			w.add(at, Issue{Code: "unrecognized_keys", Keys: []string{name}}, "The parameter `%s` is unknown; the known ones are: %s", at.with(name), strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", "))
		} else if len(s.Properties) > 0 && s.AdditionalProperties == nil {
			w.unknown = append(w.unknown, Issue{Code: "unrecognized_keys", Keys: []string{name}, Path: append([]any{}, at...), Message: fmt.Sprintf("The parameter `%s` is unknown", at.with(name))})
		}
	}
}

// bounds checks the limits of a value.
func (w *walker) bounds(s *jsonschema.Schema, value any, at place) {
	switch v := value.(type) {
	case []any:
		if s.MinItems != nil && len(v) < *s.MinItems {
			w.add(at, least("array", float64(*s.MinItems)), "The parameter `%s` needs at least %d items", at, *s.MinItems)
		}
		if s.MaxItems != nil && len(v) > *s.MaxItems {
			w.add(at, most("array", float64(*s.MaxItems)), "The parameter `%s` takes at most %d items, but %d were given", at, *s.MaxItems, len(v))
		}
	case float64:
		if s.Minimum != nil && v < *s.Minimum {
			w.add(at, least("number", *s.Minimum), "The parameter `%s` must be at least %v, but %v was given", at, *s.Minimum, v)
		}
		if s.Maximum != nil && v > *s.Maximum {
			w.add(at, most("number", *s.Maximum), "The parameter `%s` must be at most %v, but %v was given", at, *s.Maximum, v)
		}
	case string:
		if s.MinLength != nil && len([]rune(v)) < *s.MinLength {
			w.add(at, least("string", float64(*s.MinLength)), "The parameter `%s` must not be %s", at, map[bool]string{true: "empty", false: "that short"}[v == ""])
		}
	}
}

// names finds members whose names differ only in case from another member, or from a parameter. Some
// decoders confuse them, so a person could see another value than the one that the tool uses. The schema
// may be nil.
func (w *walker) names(s *jsonschema.Schema, value any, at place) {
	if s == nil {
		s = new(jsonschema.Schema)
	}
	switch v := value.(type) {
	case []any:
		for i := range v {
			w.names(s.Items, v[i], at.with(i))
		}
	case map[string]any:
		folded := map[string][]string{}
		for name := range v {
			key := strings.ToLower(strings.ToUpper(name)) // as decoders do that ignore case
			folded[key] = append(folded[key], name)
		}
		for name := range s.Properties {
			key := strings.ToLower(strings.ToUpper(name))
			if names, ok := folded[key]; ok && !slices.Contains(names, name) {
				folded[key] = append(names, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			w.names(s.Properties[name], v[name], at.with(name))
			names := folded[strings.ToLower(strings.ToUpper(name))]
			if len(names) > 1 && s.Properties[name] == nil {
				other := slices.MinFunc(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name }), strings.Compare)
				w.add(at, Issue{Code: "unrecognized_keys", Keys: []string{name}}, "The parameter `%s` differs from `%s` only in case", at.with(name), at.with(other))
			}
		}
	}
}

// wrongType returns the issue for a value that has none of the given types.
func wrongType(types []string) Issue {
	var names []string
	for _, t := range types {
		if t == "integer" {
			t = "number"
		}
		names = append(names, t)
	}
	return Issue{Code: "invalid_type", Expected: strings.Join(names, " or ")}
}

// missing returns the issue for a missing value.
func missing(s *jsonschema.Schema) Issue {
	switch {
	case s == nil:
		return Issue{Code: "invalid_type"}
	case len(s.Enum) > 0:
		return Issue{Code: "invalid_value", Values: s.Enum}
	case s.Type != "":
		return wrongType([]string{s.Type})
	}
	return wrongType(s.Types)
}

func least(origin string, n float64) Issue {
	return Issue{Code: "too_small", Origin: origin, Minimum: &n, Inclusive: true}
}

func most(origin string, n float64) Issue {
	return Issue{Code: "too_big", Origin: origin, Maximum: &n, Inclusive: true}
}

func about(s *jsonschema.Schema) string {
	if s == nil || s.Description == "" {
		return ""
	}
	first, _, _ := strings.Cut(s.Description, ". ")
	return " (" + strings.TrimSuffix(first, ".") + ")"
}

func isType(t string, value any) bool {
	switch v := value.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case float64:
		return t == "number" || t == "integer" && v == math.Trunc(v)
	case []any:
		return t == "array"
	case map[string]any:
		return t == "object"
	}
	return false
}

// fromString converts a string to a value of a type, if that is unambiguous.
func fromString(t, text string) (any, bool) {
	switch text = strings.TrimSpace(text); t {
	case "boolean":
		if text == "true" || text == "false" {
			return text == "true", true
		}
	case "integer", "number":
		f, err := strconv.ParseFloat(text, 64)
		if err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) && isType(t, f) {
			return f, true
		}
	}
	return nil, false
}

func article(types []string) string {
	var words []string
	for _, t := range types {
		switch t {
		case "array", "object", "integer":
			t = "an " + t
		case "null":
		default:
			t = "a " + t
		}
		words = append(words, t)
	}
	return strings.Join(words, " or ")
}

func kindOf(value any) string {
	for _, t := range []string{"null", "boolean", "string", "number", "array", "object"} {
		if isType(t, value) {
			return article([]string{t})
		}
	}
	return "something else"
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// Decode decodes an input that is valid according to its schema, including numbers and booleans that were
// given as strings. For those the target has fields of the types [Int] and [Bool]. Names must match those
// of the fields exactly: the tool must read what the policy saw.
func Decode(input json.RawMessage, target any) error {
	if len(bytes.TrimSpace(input)) == 0 {
		return nil
	}
	if err := strict(input); err != nil {
		return Misuse("InputValidationError: %v", err)
	}
	if t := reflect.TypeOf(target); t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
		var err error
		if input, err = exactly(input, t.Elem()); err != nil {
			return Misuse("InputValidationError: %v", err)
		}
	}
	if err := json.Unmarshal(input, target); err != nil {
		return Misuse("InputValidationError: %v", err)
	}
	return nil
}

// SetMember returns an input, which is an object, with one member set to a string. Everything else stays as
// it is, byte for byte; a new member comes last.
func SetMember(input json.RawMessage, name, value string) (json.RawMessage, error) {
	quoted, err := jsontext.AppendQuote(nil, value)
	if err != nil {
		return nil, Misuse("InputValidationError: `%s`: %v", name, err)
	}
	return setMember(input, name, quoted)
}

// setMember is like [SetMember], for a value that is JSON.
func setMember(input json.RawMessage, name string, value []byte) (json.RawMessage, error) {
	d := jsontext.NewDecoder(bytes.NewReader(input))
	if _, err := d.ReadToken(); err != nil {
		return nil, Misuse("InputValidationError: %v", err)
	}
	empty := true
	for ; d.PeekKind() == '"'; empty = false {
		key, err := d.ReadToken()
		if err != nil {
			return nil, Misuse("InputValidationError: %v", err)
		}
		found := key.String() == name
		old, err := d.ReadValue()
		if err != nil {
			return nil, Misuse("InputValidationError: %v", err)
		}
		if end := d.InputOffset(); found {
			return slices.Concat(input[:end-int64(len(old))], value, input[end:]), nil
		}
	}
	out := bytes.TrimSuffix(bytes.TrimSpace(input), []byte("}"))
	key, _ := jsontext.AppendQuote(nil, name)
	comma := ","
	if empty {
		comma = ""
	}
	return slices.Concat(out, []byte(comma), key, []byte(":"), value, []byte("}")), nil
}

// strict returns an error for invalid JSON, including duplicate names.
func strict(input []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(input))
	if err := d.SkipValue(); err != nil {
		return err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return errors.New("there is text after the value")
	}
	return nil
}

// exactly removes members whose names do not match the fields of a struct exactly: package json would
// accept others that differ in case.
func exactly(input json.RawMessage, t reflect.Type) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(input, &members); err != nil || members == nil {
		return input, err
	}
	known := map[string]bool{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" {
			name = t.Field(i).Name
		}
		known[name] = true
	}
	strange := false
	for name := range members {
		if !known[name] {
			delete(members, name)
			strange = true
		}
	}
	if !strange {
		return input, nil
	}
	return json.Marshal(members)
}

// An Int is an integer in an input that may be given as a string or as a number with a zero fraction.
type Int int64

// UnmarshalJSON decodes a number or a string with one; null leaves it unchanged.
func (i *Int) UnmarshalJSON(data []byte) error {
	text := strings.TrimSpace(strings.Trim(string(data), `"`))
	if text == "null" || text == "" {
		return nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return fmt.Errorf("%s is not an integer", clip(string(data), 60))
	}
	*i = Int(f)
	return nil
}

// A Float is a number in an input that may be given as a string.
type Float float64

// UnmarshalJSON decodes a number or a string with one; null leaves it unchanged.
func (f *Float) UnmarshalJSON(data []byte) error {
	text := strings.TrimSpace(strings.Trim(string(data), `"`))
	if text == "null" || text == "" {
		return nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) {
		return fmt.Errorf("%s is not a number", clip(string(data), 60))
	}
	*f = Float(v)
	return nil
}

// A Bool is a boolean in an input that may be given as a string.
type Bool bool

// UnmarshalJSON decodes a boolean or a string with one; null leaves it unchanged.
func (b *Bool) UnmarshalJSON(data []byte) error {
	switch strings.TrimSpace(strings.Trim(string(data), `"`)) {
	case "true":
		*b = true
	case "false":
		*b = false
	case "null", "":
	default:
		return fmt.Errorf("%s is not true or false", clip(string(data), 60))
	}
	return nil
}
