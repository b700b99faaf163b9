package wire

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A Spec describes the protocol by the Go source of this package: its types by reflection,
// and their comments. The JSON Schema and the tables of docs/protocol.md are generated
// from it.
type Spec struct {
	Objects []*SpecObject // sorted by name
	Enums   []*SpecEnum   // sorted by name
	base    *SpecObject   // HookBase
	docs    map[string]string
}

// A SpecObject is a struct that embeds Open.
type SpecObject struct {
	Name    string
	Doc     string
	Consts  [][2]string // members that determine its kind, such as type and subtype
	Fields  []*SpecField
	Answer  string // of a control request: the type of the response
	typ     reflect.Type
	goNames map[string]string // Go names of fields → names on the wire
}

// A SpecField is a member of an object.
type SpecField struct {
	Name     string
	Doc      string
	Group    string // describes the fields from this one on
	Required bool   // it is always present
	Null     bool   // the zero value is written as null
	As       string
	typ      reflect.Type
}

// A SpecEnum is a named string with constants. Other values may occur.
type SpecEnum struct {
	Name   string
	Doc    string
	Values []SpecValue
}

// A SpecValue is one value of an enumeration.
type SpecValue struct{ Value, Doc string }

// common describes members that occur in many objects.
var common = map[string]string{
	"session_id":          "the session",
	"uuid":                "the id of this frame",
	"timestamp":           "the time, in ISO 8601",
	"tool_use_id":         "the call, by the id of its tool_use block",
	"tool_name":           "the tool",
	"tool_input":          "the input of the call",
	"parent_tool_use_id":  "the call that started the subagent; null in the main conversation",
	"task_id":             "the task",
	"run_id":              "this run of the task",
	"agent_id":            "the subagent",
	"agent_type":          "the kind of subagent",
	"subagent_type":       "the kind of subagent",
	"task_description":    "the description of the task",
	"permission_mode":     "the mode in force",
	"permissionMode":      "the mode in force",
	"user_message_uuid":   "the uuid of the prompt, if it has one",
	"user_message_uuids":  "the uuids of the prompts, if they have one",
	"serverName":          "the MCP server",
	"server_name":         "the MCP server",
	"mcp_server_name":     "the MCP server",
	"request_id":          "the request",
	"duration_ms":         "the duration, in milliseconds",
	"cache_control":       "the API may cache the prompt up to here",
	"additionalContext":   "text for the model",
	"model":               "the model",
	"cwd":                 "the working directory",
	"hook_name":           "the hook, such as \"PreToolUse:Bash\"",
	"hook_event":          "the event",
	"hook_id":             "this run of the hook",
	"permission_decision": "the decision about the call",
	"is_error":            "true if it failed",
	"name":                "its name",
	"description":         "its description",
	"summary":             "the outcome, as text",
	"fast_mode_state":     "\"off\", \"cooldown\" or \"on\"",
	"message_id":          "the message",
	"path":                "the file or directory",
	"title":               "the title",
	"transcript_path":     "the file that stores the conversation",
	"prompt_id":           "the current prompt",
	"effort":              "the reasoning effort of the model",
	"tokens":              "the number of tokens",
	"capabilities":        "features that not every agent has",
}

// Members that are kept as raw text but have a type of their own.
var rawAs = map[string]string{"StreamEvent.event": "APIEvent"}

// types returns every Go type that the tables of methods.go and the responses refer to,
// by name.
func types() map[string]reflect.Type {
	found := map[string]reflect.Type{}
	var visit func(t reflect.Type)
	visit = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			visit(t.Elem())
			if t.Kind() == reflect.Map {
				visit(t.Key())
			}
		}
		if t.PkgPath() != openType.PkgPath() || found[t.Name()] != nil || t == openType {
			return
		}
		found[t.Name()] = t
		if t.Kind() == reflect.Struct {
			for i := range t.NumField() {
				if f := t.Field(i); f.IsExported() && f.Type.Kind() != reflect.Interface {
					visit(f.Type)
				}
			}
		}
	}
	for _, table := range []map[string]reflect.Type{messageTypes, blockTypes, requestTypes, hookTypes, outputTypes} {
		for _, t := range table {
			visit(t)
		}
	}
	for _, t := range []reflect.Type{
		reflect.TypeFor[ServerToolResultBlock](), reflect.TypeFor[APIEvent](), reflect.TypeFor[HookOutput](), reflect.TypeFor[PermissionResult](),
		reflect.TypeFor[ElicitResult](), reflect.TypeFor[SandboxSettings](), reflect.TypeFor[MCPStatusResponse](), reflect.TypeFor[InitializeResponse](),
		reflect.TypeFor[InterruptResponse](), reflect.TypeFor[SetPermissionModeResponse](), reflect.TypeFor[SetModelResponse](),
		reflect.TypeFor[MCPSetServersResponse](), reflect.TypeFor[MCPMessageResponse](), reflect.TypeFor[MCPReadResourceResponse](), reflect.TypeFor[MCPAuthenticateResponse](),
		reflect.TypeFor[MCPCallResponse](), reflect.TypeFor[RewindFilesResponse](), reflect.TypeFor[GetSettingsResponse](),
		reflect.TypeFor[GetSessionCostResponse](), reflect.TypeFor[GetUsageResponse](), reflect.TypeFor[ListModelsResponse](),
		reflect.TypeFor[GetBinaryVersionResponse](), reflect.TypeFor[GetHooksListingResponse](), reflect.TypeFor[ListPermissionRulesResponse](),
		reflect.TypeFor[ReadFileResponse](), reflect.TypeFor[SetMCPPermissionModeOverrideResponse](), reflect.TypeFor[FileSuggestionsResponse](), reflect.TypeFor[RegisterRepoRootResponse](),
		reflect.TypeFor[ReloadPluginsResponse](), reflect.TypeFor[ReloadSkillsResponse](), reflect.TypeFor[ReloadOutputStylesResponse](),
		reflect.TypeFor[GetTaskOutputResponse](), reflect.TypeFor[CancelAsyncMessageResponse](), reflect.TypeFor[GenerateSessionTitleResponse](),
		reflect.TypeFor[SideQuestionResponse](), reflect.TypeFor[RequestUserDialogResponse](), reflect.TypeFor[GetContextUsageResponse](),
	} {
		visit(t)
	}
	return found
}

var answered = regexp.MustCompile(`response is an? \[(\w+)\]`)

// ReadSpec reads the source of this package.
func ReadSpec(t testing.TB) *Spec {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	s := &Spec{docs: map[string]string{}}
	structs := map[string]*ast.StructType{}
	enums := map[string]*SpecEnum{}
	consts := map[string]string{} // Go name → value
	fset := token.NewFileSet()
	for _, name := range files {
		if name == "gen.go" || name == "methods.go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					s.docs[spec.Name.Name] = text(g.Doc)
					if st, ok := spec.Type.(*ast.StructType); ok {
						structs[spec.Name.Name] = st
					}
				case *ast.ValueSpec:
					id, ok := spec.Type.(*ast.Ident)
					if !ok || len(spec.Values) != 1 {
						continue
					}
					lit, ok := spec.Values[0].(*ast.BasicLit)
					if !ok || lit.Kind != token.STRING {
						continue
					}
					value, _ := strconv.Unquote(lit.Value)
					if enums[id.Name] == nil {
						enums[id.Name] = &SpecEnum{Name: id.Name}
					}
					enums[id.Name].Values = append(enums[id.Name].Values, SpecValue{value, text(spec.Comment)})
					consts[spec.Names[0].Name] = value
				}
			}
		}
	}
	all := types()
	for _, name := range Objects(t.(*testing.T)) {
		if all[name] == nil {
			t.Errorf("no message refers to %s: name it in types", name)
		}
	}
	for name, typ := range all {
		if e := enums[name]; e != nil {
			e.Doc = inWords(s.docs[name], consts, nil)
			for i := range e.Values {
				e.Values[i].Doc = inWords(e.Values[i].Doc, consts, nil)
			}
			s.Enums = append(s.Enums, e)
			continue
		}
		if typ.Kind() != reflect.Struct || !reflect.PointerTo(typ).Implements(objectType) {
			continue
		}
		o := &SpecObject{Name: name, typ: typ, goNames: map[string]string{}}
		for _, f := range reflect.VisibleFields(typ) {
			if n, _, _ := strings.Cut(f.Tag.Get("json"), ","); n != "" {
				o.goNames[f.Name] = n
			}
		}
		doc := strings.Join(strings.Fields(s.docs[name]), " ")
		if m := answered.FindStringSubmatch(doc); m != nil && reflect.PointerTo(typ).Implements(requestType) {
			o.Answer = m[1]
		}
		// The comment starts with the name, which may also be that of a field.
		o.Doc = name + " " + inWords(strings.TrimPrefix(s.docs[name], name), consts, o.goNames)
		o.fields(fset, structs, name, consts)
		s.Objects = append(s.Objects, o)
	}
	// The part that the inputs of all hooks have in common.
	base := &SpecObject{Name: "HookBase", typ: reflect.TypeFor[HookBase](), Doc: inWords(s.docs["HookBase"], nil, nil)}
	base.fields(fset, structs, "HookBase", consts)
	s.base = base
	slices.SortFunc(s.Objects, func(a, b *SpecObject) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Enums, func(a, b *SpecEnum) int { return strings.Compare(a.Name, b.Name) })
	return s
}

func (o *SpecObject) fields(fset *token.FileSet, structs map[string]*ast.StructType, name string, consts map[string]string) {
	group, last := "", -1 // the comment above a run of fields, and its last line
	for _, f := range structs[name].Fields.List {
		line := fset.Position(f.Pos()).Line
		own := text(f.Comment)
		switch doc := text(f.Doc); {
		case doc != "" && len(f.Names) == 1 && strings.HasPrefix(doc, f.Names[0].Name+" "):
			own, group = doc, ""
		case doc != "":
			group = doc
		case line != last+1:
			group = ""
		}
		last = line
		if id, ok := f.Type.(*ast.Ident); ok && len(f.Names) == 0 && id.Name != "Open" {
			o.fields(fset, structs, id.Name, consts)
			continue
		}
		if len(f.Names) == 0 {
			sf, _ := o.typ.FieldByName("Open")
			for c := range strings.SplitSeq(sf.Tag.Get("wire"), ",") {
				if name, val, ok := strings.Cut(c, "="); ok {
					o.Consts = append(o.Consts, [2]string{name, val})
				}
			}
			continue
		}
		sf, _ := o.typ.FieldByName(f.Names[0].Name)
		name, opts, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		tags := strings.Split(sf.Tag.Get("wire"), ",")
		field := &SpecField{Name: name, typ: sf.Type, As: rawAs[o.Name+"."+name]}
		field.Null = slices.Contains(tags, "null")
		field.Required = !strings.Contains(opts, "omitzero") && !field.Null && !slices.Contains(tags, "optional")
		if text(f.Doc) != "" && group != "" {
			field.Group = inWords(group, consts, o.goNames)
		}
		if own == "" {
			own = common[name]
		}
		field.Doc = inWords(own, consts, o.goNames)
		o.Fields = append(o.Fields, field)
	}
}

func text(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	return strings.TrimSpace(c.Text())
}

var (
	goLink = regexp.MustCompile(`\[\*?([A-Z]\w*(?:\.\w+)?)\]`)
	goWord = regexp.MustCompile(`"[^"]*"|\b\w+\b`)
)

// inWords translates a comment to the words of the protocol: it replaces names of Go fields
// and constants by those on the wire.
func inWords(doc string, consts, fields map[string]string) string {
	doc = strings.Join(strings.Fields(doc), " ")
	doc = strings.TrimSuffix(goLink.ReplaceAllString(doc, "$1"), "; see Outcome")
	return goWord.ReplaceAllStringFunc(doc, func(w string) string {
		if v, ok := consts[w]; ok {
			return strconv.Quote(v)
		}
		if v, ok := fields[w]; ok {
			return v
		}
		if w == "nil" {
			return "absent"
		}
		return w
	})
}

// Object returns the object of that name.
func (s *Spec) Object(name string) *SpecObject {
	if name == "HookBase" {
		return s.base
	}
	for _, o := range s.Objects {
		if o.Name == name {
			return o
		}
	}
	return nil
}
