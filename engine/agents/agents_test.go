package agents_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/wire"
)

func TestBuiltIn(t *testing.T) {
	var names []string
	for _, d := range agents.BuiltIn() {
		names = append(names, d.Name)
		if d.Source != agents.Builtin || len(d.Prompt) < 200 {
			t.Errorf("%s: %+v", d.Name, d)
		}
		looks := d.Name == "Explore" || d.Name == "Plan"
		if d.ReadOnly != looks {
			t.Errorf("%s only looks: %v", d.Name, d.ReadOnly)
		}
		for _, writes := range []string{"Write", "Edit", "NotebookEdit", "Agent", "Task"} {
			if looks && slices.Contains(d.Tools, writes) {
				t.Errorf("%s has %s", d.Name, writes)
			}
		}
	}
	if !slices.Equal(names, []string{agents.Default, "Explore", "Plan", "Bash"}) {
		t.Error(names)
	}
}

func TestReadDir(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("tester.md", "---\nname: tester\ndescription: Tests: all of it\ntools: Read, Bash(go test:*)\ndisallowedTools: [Write]\nmodel: haiku\npermissionMode: plan\nmaxTurns: 3\nmcpServers: [files, {own: {command: x}}]\ncolor: red\n---\nYou test.")
	write("below/other.md", "---\nname: other\ndescription: d\ntools: '*'\nmcpServers: files\n---\nYou are other.")
	write("README.md", "no agent")
	write("empty.md", "---\nname: empty\ndescription: d\n---\n")
	write("mode.md", "---\nname: mode\ndescription: d\npermissionMode: everything\n---\np")
	write("notes.txt", "---\nname: text\ndescription: d\n---\np")
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link.md")); err != nil {
		t.Log(err)
	}
	list, problems := agents.ReadDir(dir, agents.Project, nil)
	if len(list) != 2 || len(problems) < 3 {
		t.Fatalf("%d agents, problems %v", len(list), problems)
	}
	other, tester := list[0], list[1]
	if other.Name != "other" || other.Tools != nil || len(other.MCPServers) != 1 || other.MCPServers[0].Name != "files" {
		t.Errorf("%+v", other)
	}
	if tester.Mode != wire.ModePlan || tester.MaxTurns != 3 || tester.Model != "haiku" || tester.Description != "Tests: all of it" ||
		!slices.Equal(tester.Tools, []string{"Read", "Bash(go test:*)"}) || len(tester.MCPServers) != 2 || tester.MCPServers[1].Configs["own"] == nil ||
		tester.Path != filepath.Join(dir, "tester.md") || tester.Source != agents.Project {
		t.Errorf("%+v", tester)
	}
	if list, problems := agents.ReadDir(filepath.Join(dir, "none"), agents.User, nil); list != nil || problems != nil {
		t.Error(list, problems)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                           "not a JSON object",
		`{"a":null}`:                   "no definition",
		`{"a":{"prompt":"p"}}`:         "no description",
		`{"a":{"description":"d"}}`:    "no prompt",
		`{"":{"description":"d"}}`:     "no name",
		`{"a\nb":{"description":"d"}}`: "invalid name",
		`{"a":{"description":"d","prompt":"p","permissionMode":"x"}}`: "unknown permission mode",
		`{"a":{"description":"d","prompt":"p","maxTurns":-1}}`:        "less than zero",
	} {
		if _, err := agents.Parse(text, agents.Flag); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func ExampleMerge() {
	own, _ := agents.Parse(`{"Explore":{"description":"Looks.","prompt":"You look."}}`, agents.Flag)
	for _, d := range agents.Merge(agents.BuiltIn(), own) {
		fmt.Println(d.Name, d.Source)
	}
	// Output:
	// Bash built-in
	// Explore flagSettings
	// general-purpose built-in
	// Plan built-in
}
