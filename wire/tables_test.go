package wire

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ProtocolFile is the specification in prose. Between a comment that names a table and the
// next <!-- end --> it has a table that is generated from the Go types:
//
//	<!-- fields: User -->       the members of an object
//	<!-- values: HookEvent -->  the values of an enumeration
//	<!-- messages -->           all messages
//	<!-- blocks -->             all content blocks
//	<!-- requests: host -->     all control requests of a host, or of an agent
//	<!-- hooks -->              all events with their inputs and outputs
//	<!-- rest -->               every object that no other table describes
const ProtocolFile = "../docs/protocol.md"

// ReferenceFile has the tables that ProtocolFile does not have.
const ReferenceFile = "../docs/protocol-reference.md"

// Messages that hosts send; "both" if agents also send them. Agents send all others.
var Senders = map[string]string{
	"user": "both", "assistant": "both", "control_request": "both", "control_response": "both",
	"control_cancel_request": "both", "keep_alive": "both", "update_environment_variables": "host",
}

// Control requests of agents; "both" if hosts also send them. Hosts send all others.
var RequestSenders = map[string]string{
	"can_use_tool": "agent", "hook_callback": "agent", "elicitation": "agent", "request_user_dialog": "agent",
	"sdk_control_interrupt": "agent", "mcp_message": "both",
}

// Unrecorded are messages and control requests that published types describe, but that
// no recorded transcript contains.
var Unrecorded = map[string]bool{
	"active_goal": true, "auth_status": true, "rate_limit_event": true, "tool_use_summary": true, "transcript_mirror": true,
	"system/elicitation_complete": true, "system/files_persisted": true, "system/hook_progress": true,
	"system/local_command_output": true, "system/memory_recall": true, "system/mirror_error": true,
	"system/model_refusal_fallback": true, "system/model_refusal_no_fallback": true, "system/plugin_install": true,
	"system/session_writes_lost": true, "system/worker_shutting_down": true,
	"request_user_dialog": true, "set_color": true,
}

// Older are messages and control requests of older descriptions, which current agents do
// not send.
var Older = map[string]bool{
	"error": true, "system/error": true, "system/hook_execution": true, "system/permission_request": true, "sdk_control_interrupt": true,
}

func level(name string) string {
	switch {
	case Older[name]:
		return "older"
	case Unrecorded[name]:
		return "described"
	}
	return "seen"
}

func sender(table map[string]string, name, usual string) string {
	if s := table[name]; s != "" {
		return s
	}
	return usual
}

// TypeOfName returns the Go type of a name of the specification.
func TypeOfName(name string) reflect.Type { return types()[name] }

var marker = regexp.MustCompile(`(?ms)^<!-- (fields|values|messages|blocks|requests|hooks|rest)(?:: (\w+))? -->\n.*?^<!-- end -->$`)

// TestTablesAreUpToDate compares the tables of docs/protocol.md and its reference with
// the types.
func TestTablesAreUpToDate(t *testing.T) {
	s := ReadSpec(t)
	placed := map[string]bool{}
	files := []string{ProtocolFile, ReferenceFile}
	var texts []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))))
		for _, m := range marker.FindAllStringSubmatch(texts[len(texts)-1], -1) {
			if name := m[1] + " " + m[2]; placed[name] {
				t.Errorf("the table %s occurs twice", name)
			} else {
				placed[name] = true
			}
		}
	}
	for _, name := range []string{"messages ", "blocks ", "requests host", "requests agent", "hooks ", "rest ", "fields HookBase"} {
		if !placed[name] {
			t.Errorf("docs/protocol.md has no table %s", name)
		}
	}
	for i, file := range files {
		want := s.fill(t, texts[i], placed)
		switch {
		case want == texts[i]:
		case *update:
			if err := os.WriteFile(file, []byte(want), 0o666); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("the tables of %s do not match the Go types: run go test ./wire -run 'TestSchema|TestTables' -update", file[3:])
		}
	}
}

// fill writes the tables between the comments of a text that name them.
func (s *Spec) fill(t *testing.T, text string, placed map[string]bool) string {
	return marker.ReplaceAllStringFunc(text, func(old string) string {
		m := marker.FindStringSubmatch(old)
		var b strings.Builder
		b.WriteString(old[:strings.Index(old, "\n")+1] + "\n")
		switch m[1] {
		case "fields":
			o := s.Object(m[2])
			if o == nil {
				t.Errorf("there is no object %s", m[2])
				return old
			}
			fmt.Fprintf(&b, "**%s**\n\n", o.Name)
			o.table(&b)
		case "values":
			s.values(t, &b, m[2])
		case "messages":
			s.messages(&b)
		case "blocks":
			s.blocks(&b)
		case "requests":
			s.requests(&b, m[2])
		case "hooks":
			s.hooks(&b)
		case "rest":
			for _, e := range s.Enums {
				if !placed["values "+e.Name] {
					fmt.Fprintf(&b, "## %s\n\n%s\n\n", e.Name, cell(e.Doc))
					s.values(t, &b, e.Name)
					b.WriteString("\n")
				}
			}
			for _, o := range s.Objects {
				if !placed["fields "+o.Name] {
					fmt.Fprintf(&b, "## %s\n\n%s\n\n", o.Name, cell(o.Doc))
					o.table(&b)
					b.WriteString("\n")
				}
			}
		}
		return strings.TrimRight(b.String(), "\n") + "\n\n<!-- end -->"
	})
}

// cell formats text for a table, or as a line of prose.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(s)
}

func (o *SpecObject) table(b *strings.Builder) {
	fields := o.own()
	if len(o.Consts)+len(fields) == 0 {
		b.WriteString("It has no members of its own.\n")
		return
	}
	b.WriteString("| member | kind | meaning |\n|---|---|---|\n")
	for _, c := range o.Consts {
		fmt.Fprintf(b, "| `%s` | `%q` | |\n", c[0], c[1])
	}
	for _, f := range fields {
		kind := kindOf(f.typ)
		if f.As != "" {
			kind = f.As
		}
		switch {
		case f.Null:
			kind += " or null"
		case !f.Required:
			kind += ", optional"
		}
		doc := f.Doc
		if f.Group != "" {
			doc = strings.TrimSpace("*" + strings.TrimSuffix(f.Group, ".") + ":* " + doc)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", f.Name, kind, cell(doc))
	}
}

// own returns the fields of an object. For inputs of hooks it leaves out those of HookBase.
func (o *SpecObject) own() []*SpecField {
	if reflect.PointerTo(o.typ).Implements(hookType) {
		return o.Fields[reflect.TypeFor[HookBase]().NumField():]
	}
	return o.Fields
}

// kindOf returns the name of the JSON type for a Go type.
func kindOf(t reflect.Type) string {
	switch {
	case t == rawType:
		return "anything"
	case t.PkgPath() == openType.PkgPath() && t.Name() != "":
		return t.Name()
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.Slice:
		return "list of " + kindOf(t.Elem())
	case reflect.Map:
		return "map to " + kindOf(t.Elem())
	}
	return schemaOf(t).Type
}

func (s *Spec) values(t *testing.T, b *strings.Builder, name string) {
	for _, e := range s.Enums {
		if e.Name != name {
			continue
		}
		b.WriteString("| value | meaning |\n|---|---|\n")
		for _, v := range e.Values {
			fmt.Fprintf(b, "| `%s` | %s |\n", v.Value, cell(v.Doc))
		}
		return
	}
	t.Errorf("there is no enumeration %s", name)
}

var lead = regexp.MustCompile(`^\w+ (?:is|are) (?:(?:a|the) (?:message|request) (?:that |to )?)?`)

// gist returns the first sentence of a comment without the name at its start.
func gist(doc string) string {
	first, _, _ := strings.Cut(doc, ". ")
	return cell(strings.TrimSuffix(lead.ReplaceAllString(first, ""), "."))
}

func (s *Spec) messages(b *strings.Builder) {
	b.WriteString("| type | from | level | meaning |\n|---|---|---|---|\n")
	for _, key := range slices.Sorted(maps.Keys(messageTypes)) {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", key, sender(Senders, key, "agent"), level(key), gist(s.Object(messageTypes[key].Name()).Doc))
	}
}

func (s *Spec) blocks(b *strings.Builder) {
	b.WriteString("| type | members | meaning |\n|---|---|---|\n")
	table := maps.Clone(blockTypes)
	table["…_tool_result"] = reflect.TypeFor[ServerToolResultBlock]()
	for _, key := range slices.Sorted(maps.Keys(table)) {
		o := s.Object(table[key].Name())
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", key, list(o.own()), gist(o.Doc))
	}
}

func (s *Spec) requests(b *strings.Builder, from string) {
	b.WriteString("| subtype | level | members | response | effect |\n|---|---|---|---|---|\n")
	for _, key := range slices.Sorted(maps.Keys(requestTypes)) {
		if by := sender(RequestSenders, key, "host"); by != from && by != "both" {
			continue
		}
		o := s.Object(requestTypes[key].Name())
		answer := o.Answer
		if answer == "" || key == "mcp_message" && from == "host" {
			answer = "empty"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", key, level(key), list(o.own()), answer, gist(o.Doc))
	}
}

func (s *Spec) hooks(b *strings.Builder) {
	b.WriteString("| event | it occurs | input, besides the common members | hookSpecificOutput |\n|---|---|---|---|\n")
	when := map[string]string{}
	for _, e := range s.Enums {
		if e.Name == "HookEvent" {
			for _, v := range e.Values {
				when[v.Value] = v.Doc
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(hookTypes)) {
		output := "none"
		if t := outputTypes[key]; t != nil {
			output = list(s.Object(t.Name()).own())
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", key, cell(when[key]), list(s.Object(hookTypes[key].Name()).own()), output)
	}
}

// list returns the names of members, with a question mark after optional ones.
func list(fields []*SpecField) string {
	var names []string
	for _, f := range fields {
		mark := ""
		if !f.Required {
			mark = "?"
		}
		names = append(names, "`"+f.Name+"`"+mark)
	}
	switch {
	case names == nil:
		return "none"
	case len(names) > 9:
		return fmt.Sprintf("%d, see its table", len(names))
	}
	return strings.Join(names, " ")
}
