package wire

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

var update = flag.Bool("update", false, "rewrite docs/protocol.schema.json and the tables of docs/protocol.md")

// SchemaFile is the JSON Schema of the protocol.
const SchemaFile = "../docs/protocol.schema.json"

const schemaComment = "Made from the Go types of package wire: go test ./wire -run 'TestSchema|TestTables' -update"

// Schema returns the JSON Schema of all frames.
func (s *Spec) Schema() *jsonschema.Schema {
	root := &jsonschema.Schema{
		Schema:      "https://json-schema.org/draft/2020-12/schema",
		Title:       "A frame of the Claude Agent SDK protocol",
		Description: "One line in either direction. Members that are not described here may occur anywhere, and so may types, subtypes and values that are not: readers let them pass. A member that is not required may be null, which is as if it were absent. What a control_response carries is described by the type that x-answer of its request names.",
		Comment:     schemaComment,
		Ref:         ref("Message"),
		Defs:        map[string]*jsonschema.Schema{},
	}
	for _, e := range s.Enums {
		d := &jsonschema.Schema{Type: "string", Description: e.Doc}
		var values []string
		for _, v := range e.Values {
			d.Examples = append(d.Examples, v.Value)
			values = append(values, fmt.Sprintf("%q", v.Value))
			if v.Doc != "" {
				values[len(values)-1] += ": " + v.Doc
			}
		}
		d.Description += " Known values: " + strings.Join(values, "; ") + "."
		if e.Name == "Effort" {
			d.Type, d.Types = "", []string{"string", "integer"}
		}
		root.Defs[e.Name] = d
	}
	for _, o := range s.Objects {
		root.Defs[o.Name] = o.schema()
	}
	// An object that some agents send as an array.
	status := root.Defs["MCPStatusResponse"]
	root.Defs["MCPStatusResponse"] = &jsonschema.Schema{Description: status.Description,
		AnyOf: []*jsonschema.Schema{status, {Type: "array", Items: &jsonschema.Schema{Ref: ref("MCPServerStatus")}}}}
	status.Description = ""

	text := func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string"} }
	root.Defs["Content"] = &jsonschema.Schema{Description: s.doc("Content"),
		AnyOf: []*jsonschema.Schema{text(), {Type: "array", Items: &jsonschema.Schema{Ref: ref("Block")}}}}
	root.Defs["Names"] = &jsonschema.Schema{Description: s.doc("Names"), Type: "array",
		Items: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{text(), {Type: "object", Required: []string{"name"},
			Properties: map[string]*jsonschema.Schema{"name": text()}}}}}
	root.Defs["SystemPrompt"] = &jsonschema.Schema{Description: s.doc("SystemPrompt"),
		AnyOf: []*jsonschema.Schema{text(), {Type: "array", Items: text()}}}
	root.Defs["MCPServerRef"] = &jsonschema.Schema{Description: s.doc("MCPServerRef"),
		AnyOf: []*jsonschema.Schema{text(), {Type: "object", AdditionalProperties: &jsonschema.Schema{Ref: ref("MCPServerConfig")}}}}

	root.Defs["Message"] = s.union("Message", messageTypes, "type", "subtype")
	root.Defs["Block"] = s.union("Block", blockTypes, "type")
	root.Defs["Block"].AllOf = append(root.Defs["Block"].AllOf, &jsonschema.Schema{
		If: &jsonschema.Schema{Required: []string{"type"},
			Properties: map[string]*jsonschema.Schema{"type": {Type: "string", Pattern: "_tool_result$"}}},
		Then: &jsonschema.Schema{Ref: ref("ServerToolResultBlock")},
	})
	root.Defs["Request"] = s.union("Request", requestTypes, "subtype")
	root.Defs["HookInput"] = s.union("HookInput", hookTypes, "hook_event_name")
	root.Defs["HookInput"].Required = nil // a hook that is called by name has its event beside the input
	root.Defs["HookSpecificOutput"] = s.union("HookSpecificOutput", outputTypes, "hookEventName")
	return root
}

func (s *Spec) doc(name string) string { return inWords(s.docs[name], nil, nil) }

func ref(name string) string { return "#/$defs/" + name }

func constOf(v string) *jsonschema.Schema {
	var c any = v
	return &jsonschema.Schema{Const: &c}
}

// union describes a value whose type is determined by the member of the first name, or of
// both.
func (s *Spec) union(name string, table map[string]reflect.Type, members ...string) *jsonschema.Schema {
	u := &jsonschema.Schema{Description: s.doc(name), Type: "object", Required: members[:1],
		Properties: map[string]*jsonschema.Schema{members[0]: {Type: "string"}}}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		cond := &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{}}
		for i, value := range strings.SplitN(key, "/", len(members)) {
			cond.Properties[members[i]] = constOf(value)
			cond.Required = append(cond.Required, members[i])
		}
		u.AllOf = append(u.AllOf, &jsonschema.Schema{If: cond, Then: &jsonschema.Schema{Ref: ref(table[key].Name())}})
	}
	return u
}

func (o *SpecObject) schema() *jsonschema.Schema {
	d := &jsonschema.Schema{Description: o.Doc, Type: "object", Properties: map[string]*jsonschema.Schema{}}
	for _, c := range o.Consts {
		d.Properties[c[0]] = constOf(c[1])
		d.PropertyOrder = append(d.PropertyOrder, c[0])
		if !strings.HasPrefix(c[0], "hook") { // the dialect that names hooks leaves it out
			d.Required = append(d.Required, c[0])
		}
	}
	for _, f := range o.Fields {
		p := schemaOf(f.typ)
		if f.As != "" {
			p = &jsonschema.Schema{Ref: ref(f.As)}
		}
		if textToo[o.Name+"."+f.Name] {
			p = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{p, {Type: "string"}}}
		}
		if !f.Required {
			p = orNull(p)
		}
		if f.Required {
			d.Required = append(d.Required, f.Name)
		}
		p.Description = strings.TrimSpace(f.Group + " " + f.Doc)
		d.Properties[f.Name] = p
		d.PropertyOrder = append(d.PropertyOrder, f.Name)
	}
	if o.Answer != "" {
		d.Extra = map[string]any{"x-answer": ref(o.Answer)}
	}
	return d
}

// Members that some agents send as plain text.
var textToo = map[string]bool{"Result.errors": true, "SystemError.error": true, "ErrorLine.error": true}

// schemaOf describes a Go type.
func schemaOf(t reflect.Type) *jsonschema.Schema {
	if t == rawType {
		return &jsonschema.Schema{}
	}
	if t.PkgPath() == openType.PkgPath() && t.Name() != "" {
		return &jsonschema.Schema{Ref: ref(t.Name())}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Slice:
		return &jsonschema.Schema{Type: "array", Items: schemaOf(t.Elem())}
	case reflect.Map:
		return &jsonschema.Schema{Type: "object", AdditionalProperties: schemaOf(t.Elem())}
	case reflect.Bool:
		return &jsonschema.Schema{Type: "boolean"}
	case reflect.String:
		return &jsonschema.Schema{Type: "string"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return &jsonschema.Schema{Type: "integer"}
	case reflect.Float64:
		return &jsonschema.Schema{Type: "number"}
	}
	panic("no schema for " + t.String())
}

func orNull(s *jsonschema.Schema) *jsonschema.Schema {
	switch {
	case s.Type != "":
		s.Types, s.Type = []string{s.Type, "null"}, ""
		return s
	case s.AnyOf != nil:
		s.AnyOf = append(s.AnyOf, &jsonschema.Schema{Type: "null"})
	case s.Ref != "":
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{s, {Type: "null"}}}
	}
	return s // anything
}

// TestSchemaIsUpToDate compares the committed schema with the Go types.
func TestSchemaIsUpToDate(t *testing.T) {
	text, err := json.Marshal(ReadSpec(t).Schema())
	if err != nil {
		t.Fatal(err)
	}
	want := append(layout(nil, text, ""), '\n')
	if *update {
		if err := os.WriteFile(SchemaFile, want, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(SchemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.ReplaceAll(got, []byte("\r\n"), []byte("\n")), want) {
		t.Error("docs/protocol.schema.json does not match the Go types: run go test ./wire -run 'TestSchema|TestTables' -update")
	}
}

// layout formats JSON text: a value that fits on a line of 120 bytes stays on one line.
func layout(dst, text []byte, indent string) []byte {
	if len(text)+len(indent) <= 120 || text[0] != '{' && text[0] != '[' {
		return append(dst, text...)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.Token() // the bracket
	dst = append(dst, text[0])
	for first := true; d.More(); first = false {
		if !first {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '\n'), indent...), '\t')
		var name, value json.RawMessage
		if text[0] == '{' {
			key, _ := d.Token()
			name, _ = json.Marshal(key)
			dst = append(append(dst, name...), ": "...)
		}
		if d.Decode(&value) != nil {
			panic("not JSON")
		}
		dst = layout(dst, value, indent+"\t")
	}
	dst = append(append(dst, '\n'), indent...)
	return append(dst, text[len(text)-1])
}
