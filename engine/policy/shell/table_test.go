package shell

import (
	"strings"
	"testing"
)

// The table can be parsed, and its lines are short enough to review.
func TestTable(t *testing.T) {
	table, err := parseTable(programsText)
	if err != nil {
		t.Fatal(err)
	}
	for name, line := range table.lines {
		if _, err := table.parse(line); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"a -x +y\n", "programs.txt:1: there is no line +y"},
		{"b reads\n\n# more\na as=c\n", "programs.txt:4: there is no line c"},
		{"a pass=c\n", "there is no line c"},
		{"a as=a\n", "there is no line a"},
	} {
		table, err := parseTable(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := table.parse(table.lines["a"]); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
	if _, err := parseTable("a,b reads\nb edits\n"); err == nil {
		t.Error("two lines have a name in common")
	}
	for name, text := range map[string]string{"programs.txt": programsText, "variables.txt": variablesText} {
		for i, line := range strings.Split(text, "\n") {
			if len(line) > 160 {
				t.Errorf("%s:%d: the line has %d columns, 160 are the limit", name, i+1, len(line))
			}
		}
	}
}
