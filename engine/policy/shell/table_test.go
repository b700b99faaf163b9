package shell

import (
	"strings"
	"testing"
)

// The table can be parsed, and its lines are short enough to review.
func TestTable(t *testing.T) {
	if _, err := parseTable(programsText); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"programs.txt": programsText, "variables.txt": variablesText} {
		for i, line := range strings.Split(text, "\n") {
			if len(line) > 160 {
				t.Errorf("%s:%d: the line has %d columns, 160 are the limit", name, i+1, len(line))
			}
		}
	}
}
