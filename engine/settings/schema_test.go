package settings

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/parley-go/parley/engine/sandbox"
)

var update = flag.Bool("update", false, "rewrite the schema and the reference in docs")

// A schemaWriter generates the schema, and the rows of the reference in the same order.
type schemaWriter struct {
	t     *testing.T
	about map[string]string
	used  map[string]bool
	rows  []string
}

func (w *schemaWriter) describe(path string, s *jsonschema.Schema) *jsonschema.Schema {
	s.Description = w.about[path]
	if s.Description == "" {
		w.t.Errorf("testdata/settings.txt does not describe %s", path)
	}
	w.used[path] = true
	for _, c := range choices[path] {
		s.Enum = append(s.Enum, c)
	}
	kind := s.Type
	if s.Items != nil && s.Items.Type == "string" {
		kind = "list of strings"
	} else if kind == "array" {
		kind = "list"
	} else if kind == "" {
		kind = "any"
	}
	w.rows = append(w.rows, fmt.Sprintf("| `%s` | %s | %s |", path, kind, strings.ReplaceAll(s.Description, "|", `\|`)))
	return s
}

func (w *schemaWriter) table(prefix string, known map[string]shape) *jsonschema.Schema {
	all := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		path := prefix + name
		s := &jsonschema.Schema{Type: map[shape]string{text: "string", truth: "boolean", number: "number", texts: "array", object: "object", list: "array"}[known[name]]}
		if known[name] == texts {
			s.Items = &jsonschema.Schema{Type: "string"}
		}
		w.describe(path, s)
		switch path {
		case "permissions":
			s.Properties = w.table("permissions.", knownPermissions).Properties
		case "sandbox":
			s.Properties = w.fields("sandbox.", reflect.TypeFor[sandbox.Settings]()).Properties
		case "env":
			s.AdditionalProperties = &jsonschema.Schema{Types: []string{"string", "number", "boolean", "null"}}
		case "hooks":
			s.AdditionalProperties = &jsonschema.Schema{Type: "array", Items: w.hooks()}
		}
		all.Properties[name] = s
	}
	return all
}

// hooks returns the schema of an entry of an event: a matcher and hooks.
func (w *schemaWriter) hooks() *jsonschema.Schema {
	matcher := w.describe("hooks.matcher", &jsonschema.Schema{Type: "string"})
	hooks := w.describe("hooks.hooks", &jsonschema.Schema{Type: "array"})
	hook := w.fields("hooks.hooks.", reflect.TypeFor[hookFields]())
	maps.Copy(hook.Properties, w.fields("hooks.hooks.", reflect.TypeFor[Spec]()).Properties)
	for _, name := range []string{"type", "if"} {
		hook.Properties[name] = w.describe("hooks.hooks."+name, &jsonschema.Schema{Type: "string"})
	}
	hooks.Items = hook
	return &jsonschema.Schema{Type: "object", Required: []string{"hooks"}, Properties: map[string]*jsonschema.Schema{"matcher": matcher, "hooks": hooks}}
}

// fields returns the schema of a struct.
func (w *schemaWriter) fields(prefix string, t reflect.Type) *jsonschema.Schema {
	all := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		typ := f.Type
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		s := &jsonschema.Schema{}
		switch {
		case typ == reflect.TypeFor[json.RawMessage]():
		case typ.Kind() == reflect.Bool:
			s.Type = "boolean"
		case typ.Kind() == reflect.Int || typ.Kind() == reflect.Float64:
			s.Type = "number"
		case typ.Kind() == reflect.String:
			s.Type = "string"
		case typ.Kind() == reflect.Map:
			s.Type, s.AdditionalProperties = "object", &jsonschema.Schema{Type: "string"}
		case typ.Kind() == reflect.Slice:
			s.Type, s.Items = "array", &jsonschema.Schema{Type: "string"} // netip.Prefix is text, too
		case typ.Kind() == reflect.Struct:
			s.Type = "object"
		default:
			w.t.Errorf("%s%s is a %v, for which there is no schema", prefix, name, typ)
		}
		record := typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Struct && typ.Elem().PkgPath() != "net/netip"
		if record {
			s.Items = nil
		}
		w.describe(prefix+name, s)
		if typ.Kind() == reflect.Struct {
			s.Properties = w.fields(prefix+name+".", typ).Properties
		} else if record {
			s.Items = w.fields(prefix+name+".", typ.Elem())
		}
		all.Properties[name] = s
	}
	return all
}

const reference = `# Settings reference

<!-- Generated: go test ./engine/settings -run TestSchema -update -->

Settings are JSON files. Parley merges objects and joins lists. For other values, a later file in this table wins:

| file | applies to |
|---|---|
| ` + "`~/.claude/settings.json`" + ` | you, everywhere; ` + "`CLAUDE_CONFIG_DIR`" + ` moves the directory |
| ` + "`.claude/settings.json`" + ` | everybody who works on the project. Its allow rules, hooks and servers apply after ` + "`parley trust`" + ` |
| ` + "`.claude/settings.local.json`" + ` | you, in this project |
| ` + "`--settings`" + ` | one run: a file or JSON |
| managed settings | the machine, by its [administrator](administrators.md) |

` + "`parley init`" + ` writes a first file, ` + "`parley config`" + ` reads and changes yours, and ` + "`parley doctor`" + ` reports files and unknown settings. With [settings.schema.json](settings.schema.json), an editor can complete and check settings.
A malformed file is an error: it can hold deny rules, so Parley never skips it.

| setting | type | description |
|---|---|---|
`

// TestSchema compares the schema and the reference of the settings in docs with the Go code,
// and checks the schema with examples. -update rewrites both.
func TestSchema(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "settings.txt"))
	if err != nil {
		t.Fatal(err)
	}
	w := &schemaWriter{t: t, about: map[string]string{}, used: map[string]bool{}}
	for line := range strings.Lines(string(data)) {
		if name, about, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && line[0] != '#' {
			w.about[name] = about
		}
	}
	schema := w.table("", known)
	schema.Schema = "https://json-schema.org/draft/2020-12/schema"
	schema.ID = "https://raw.githubusercontent.com/parley-go/parley/main/docs/settings.schema.json"
	schema.Title = "Settings of parley"
	for name := range w.about {
		if !w.used[name] {
			t.Errorf("testdata/settings.txt describes %s, which is not a setting", name)
		}
	}
	text, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{
		"settings.schema.json": append(text, '\n'),
		"settings.md":          []byte(reference + strings.Join(w.rows, "\n") + "\n"),
	} {
		file := filepath.Join("..", "..", "docs", name)
		if *update {
			if err := os.WriteFile(file, want, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s does not fit the code (%v): go test ./engine/settings -run TestSchema -update", file, err)
		}
	}
	checks, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		settings string
		valid    bool
	}{
		{`{}`, true},
		{`{"model": "sonnet", "permissions": {"deny": ["Read(.env)"], "defaultMode": "plan"}, "of another program": 1}`, true},
		{`{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh", "timeout": 10}]}]}}`, true},
		{`{"sandbox": {"enabled": true, "network": {"allowedDomains": ["github.com"], "allowedAddresses": ["10.0.0.0/8"]}}}`, true},
		{`{"model": 5}`, false},
		{`{"permissions": {"deny": "Read(.env)"}}`, false},
		{`{"permissions": {"defaultMode": "yolo"}}`, false},
		{`{"hooks": {"PreToolUse": [{"matcher": "Bash"}]}}`, false},
		{`{"sandbox": {"network": {"allowedDomains": "github.com"}}}`, false},
	} {
		var v any
		if err := json.Unmarshal([]byte(c.settings), &v); err != nil {
			t.Fatal(err)
		}
		if err := checks.Validate(v); (err == nil) != c.valid {
			t.Errorf("the schema says %v about %s, want valid %v", err, c.settings, c.valid)
		}
		// Load agrees with the schema. The sandbox is parsed elsewhere.
		_, err := Load(Options{Flag: c.settings})
		if !strings.Contains(c.settings, "sandbox") && (err == nil) != c.valid {
			t.Errorf("Load says %v about %s, want valid %v", err, c.settings, c.valid)
		}
	}
}
