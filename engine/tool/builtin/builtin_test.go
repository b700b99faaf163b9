package builtin_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/parley-go/parley/engine/tool/builtin"
)

// Every tool has a unique name, a description and a schema that describes every
// parameter.
func TestSpecs(t *testing.T) {
	seen := map[string]bool{}
	for _, to := range builtin.All(nil) {
		spec := to.Spec()
		for _, name := range append([]string{spec.Name}, spec.Aliases...) {
			if seen[name] || name == "" {
				t.Errorf("%q is there twice", name)
			}
			seen[name] = true
		}
		if len(spec.Description) < 40 || strings.Contains(spec.Description, "\t") {
			t.Errorf("%s is described by %q", spec.Name, spec.Description)
		}
		var s jsonschema.Schema
		if err := json.Unmarshal(spec.Schema, &s); err != nil || s.Type != "object" {
			t.Fatalf("%s: %v", spec.Name, err)
		}
		if _, err := s.Resolve(nil); err != nil {
			t.Errorf("%s: %v", spec.Name, err)
		}
		for name, p := range s.Properties {
			if p.Description == "" {
				t.Errorf("%s: %s is not described", spec.Name, name)
			}
		}
		if to.Spec() != spec {
			t.Errorf("%s has another spec each time", spec.Name)
		}
	}
}
