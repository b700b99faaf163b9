package serve

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/hub"
)

// openAPI returns the OpenAPI description, generated from the table of routes and their
// Go types.
func (s *Server) openAPI() []byte {
	type object = map[string]any
	schemas := object{}
	ref := func(t reflect.Type) object {
		name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
		if schemas[name] == nil {
			schemas[name] = schemaOf(t)
		}
		return object{"$ref": "#/components/schemas/" + name}
	}
	failure := object{"description": "The request failed.", "content": object{"application/json": object{"schema": ref(reflect.TypeFor[apiError]())}}}
	paths := object{}
	for _, r := range s.routes {
		ok := object{"description": "The request succeeded."}
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
	data, err := json.MarshalIndent(object{
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

// schemaOf returns the JSON Schema of a type. It accepts unknown members, because later
// versions have more.
func schemaOf(t reflect.Type) map[string]any {
	type object = map[string]any
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return object{}
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[Scope]():
		return object{"type": "string", "enum": scopes}
	case reflect.TypeFor[hub.Phase]():
		return object{"type": "string", "enum": []hub.Phase{hub.Idle, hub.Running, hub.RequiresAction}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Struct:
		properties, required := object{}, []string{}
		for _, f := range reflect.VisibleFields(t) {
			name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous || name == "-" || name == "" {
				continue
			}
			if properties[name] = schemaOf(f.Type); rest == "" {
				required = append(required, name)
			}
		}
		return object{"type": "object", "properties": properties, "required": required}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float64:
		return object{"type": "number"}
	}
	return object{"type": "integer"}
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

var pathName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{(\w+)\}`) })

// parameters returns the parameters of a route, in the path and in the query.
func parameters(r route) (all []map[string]any) {
	for _, m := range pathName().FindAllStringSubmatch(r.path, -1) {
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
