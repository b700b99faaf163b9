package settings_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/parley-go/parley/engine/settings"
)

// Deny rules of a project apply at once; its allow rules wait for a person.
func Example() {
	dir, _ := os.MkdirTemp("", "")
	defer os.RemoveAll(dir)
	os.Mkdir(filepath.Join(dir, ".claude"), 0o700)
	os.WriteFile(filepath.Join(dir, ".claude", "settings.json"), []byte(`{
	  "permissions": {
	    "deny":  ["Read(.env)"],
	    "allow": ["Bash(make:*)"]
	  }
	}`), 0o600)

	s, err := settings.Load(settings.Options{Dir: dir, Sources: settings.Sources{Project: true}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range s.Rules() {
		fmt.Println(r.Behavior, r.Text, "line", r.Line)
	}
	for _, it := range s.Untrusted() {
		fmt.Println("inert:", it.Kind, it.Name, "line", it.Line)
	}
	// Output:
	// deny Read(.env) line 3
	// inert: allow Bash(make:*) line 4
}
