package serve

import (
	stdjson "encoding/json"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/parley-go/parley/hub"
)

// openAPI returns the description of the API, made from the table of routes and the Go
// types in it.
func (s *Server) openAPI() []byte {
	type object = map[string]any
	any := &jsonschema.Schema{}
	schemas := object{}
	ref := func(t reflect.Type) object {
		name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
		if schemas[name] == nil {
			schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
				reflect.TypeFor[stdjson.RawMessage](): any,
				reflect.TypeFor[time.Time]():          {Type: "string", Format: "date-time"},
				reflect.TypeFor[Scope]():              {Type: "string", Enum: []interface{}{ScopeView, ScopeApprove, ScopeDrive, ScopeAdmin}},
				reflect.TypeFor[hub.Phase]():          {Type: "string", Enum: []interface{}{hub.Idle, hub.Running, hub.RequiresAction}},
			}})
			if err != nil {
				panic("serve: " + t.String() + " has no schema: " + err.Error())
			}
			schemas[name] = open(schema)
		}
		return object{"$ref": "#/components/schemas/" + name}
	}
	failure := object{"description": "It failed.", "content": object{"application/json": object{"schema": ref(reflect.TypeFor[apiError]())}}}
	paths := object{}
	for _, r := range s.routes {
		ok := object{"description": "It is done."}
		if r.media != "" {
			ok["content"] = object{r.media: object{}}
		} else {
			ok["content"] = object{"application/json": object{"schema": ref(r.out)}}
		}
		op := object{"operationId": r.id, "summary": r.summary, "responses": object{"200": ok, "default": failure}}
		if r.scope == "" {
			op["security"] = []object{{}}
		} else {
			op["description"] = "Needs a token with the scope " + string(r.scope) + "."
		}
		if params := parameters(r); len(params) > 0 {
			op["parameters"] = params
		}
		if r.method != "GET" && hasBody(r.in) {
			op["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": ref(r.in)}}}
		}
		at, _ := paths[r.path].(object)
		if at == nil {
			at = object{}
			paths[r.path] = at
		}
		at[strings.ToLower(r.method)] = op
	}
	data, err := stdjson.MarshalIndent(object{
		"openapi":  "3.1.0",
		"info":     object{"title": "parley serve", "version": "1", "description": "Sessions that outlive their connections. GET changes nothing."},
		"paths":    paths,
		"security": []object{{"token": []string{}}},
		"components": object{
			"schemas":         schemas,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		},
	}, "", "  ")
	if err != nil {
		panic("serve: the description cannot be encoded: " + err.Error())
	}
	return append(data, '\n')
}

// open lets a schema accept members that it does not name: later versions have more.
func open(s *jsonschema.Schema) *jsonschema.Schema {
	s.AdditionalProperties = nil
	for _, p := range s.Properties {
		open(p)
	}
	if s.Items != nil {
		open(s.Items)
	}
	return s
}

// hasBody reports whether a type has members that come from the body.
func hasBody(t reflect.Type) bool {
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous || f.Tag.Get("json") != "-" {
			return true
		}
	}
	return false
}

var pathName = regexp.MustCompile(`\{(\w+)\}`)

// parameters returns the parameters of a route, in the path and in the query.
func parameters(r route) (all []map[string]any) {
	for _, m := range pathName.FindAllStringSubmatch(r.path, -1) {
		all = append(all, map[string]any{"name": m[1], "in": "path", "required": true, "schema": map[string]string{"type": "string"}})
	}
	if r.in == nil {
		return all
	}
	for i := range r.in.NumField() {
		f := r.in.Field(i)
		name := f.Tag.Get("query")
		if name == "" {
			continue
		}
		kind := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Uint64: "integer"}[f.Type.Kind()]
		all = append(all, map[string]any{"name": name, "in": "query", "schema": map[string]string{"type": kind}})
	}
	return all
}
