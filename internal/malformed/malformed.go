// Package malformed returns JSON that a peer may send by mistake or on purpose, for tests.
package malformed

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Values returns values for a Go type: of other types, empty, with null where an object belongs. It
// goes into members and elements down to a depth.
func Values(t reflect.Type, depth int) []string {
	values := []string{`null`, `"\u0000../x"`, `""`, `{}`, `[]`, `[null]`, `[[]]`, `{"":null}`, `{"a":[null]}`, `-1`, `1e300`, `true`, `"` + strings.Repeat("x", 5000) + `"`}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if depth == 0 {
		return values
	}
	switch t.Kind() {
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || name == "-" {
				continue
			}
			for _, v := range Values(f.Type, depth-1) {
				values = append(values, fmt.Sprintf(`{%q:%s}`, name, v))
			}
		}
	case reflect.Slice:
		for _, v := range Values(t.Elem(), depth-1) {
			values = append(values, "["+v+"]")
		}
	case reflect.Map:
		for _, v := range Values(t.Elem(), depth-1) {
			values = append(values, `{"PreToolUse":`+v+`}`)
		}
	}
	return values
}

// Objects returns the values for a Go type that are objects, with the given members first. Each
// object occurs once.
func Objects(t reflect.Type, depth int, members string) []string {
	var objects []string
	for _, v := range Values(t, depth) {
		if v[0] != '{' {
			continue
		}
		switch {
		case members != "" && v == "{}":
			v = "{" + members + "}"
		case members != "":
			v = "{" + members + "," + v[1:]
		}
		objects = append(objects, v)
	}
	slices.Sort(objects)
	return slices.Compact(objects)
}
