package frontmatter

import (
	"reflect"
	"testing"

	"go.yaml.in/yaml/v3"
)

var heads = []string{
	"name: x\ndescription: a few words\n",
	"name: \"x: y\"\nother: 'it''s'\nesc: \"a\\tb\\n\\u00e9 \\\"q\\\"\"\n",
	"tools: Read, Grep\nmodel: opus # the big one\n# a comment\ncolor: blue\n",
	"tools: [Read, \"Bash(git diff:*)\", 'x', 3, true, null]\n",
	"tools:\n  - Read\n  - Bash(git diff *)\n  - \"a: b\"\nmaxTurns: 12\n",
	"tools:\n- Read\n- Grep\nmodel: x\n",
	"a: 1\nb: -2\nc: 1.5\nd: true\ne: false\nf: null\ng: ~\nh:\ni: 'true'\nj: 1e3\nl: 1.2.3\nn: v1.0\n",
	"hooks:\n  PreToolUse:\n    - matcher: Bash\n      hooks:\n        - type: command\n          command: ./check.sh\n          timeout: 5\n    - matcher: Write\n",
	"mcpServers:\n  - files\n  - calc:\n      command: calc\n      args: [\"-v\", \"x\"]\n      env: {A: b, C: 'd, e'}\n",
	"description: |\n  One line.\n  Another line.\n\n  After a gap.\nname: x\n",
	"description: >\n  Folded over\n  two lines.\n\n  A paragraph.\nname: x\n",
	"description: >-\n  Folded over\n  two lines.\n",
	"description: |-\n  Kept.\n    More.\n  Less.\n",
	"description: Words that go on\n  on the next line\n  and another.\nname: x\n",
	"paths: [\n  \"src/**\",\n  \"docs/**\"\n]\nname: x\n",
	"\"quoted key\": 1\n'other': 2\n",
	"a:\n  b:\n    c: d\n  e: f\n",
	"url: http://example.com/x?y=1#z\n",
	"empty: []\nmap: {}\n",
	"",
	"# only a comment\n",
}

// TestYAML compares the parser with a library on typical headers.
func TestYAML(t *testing.T) {
	for _, head := range heads {
		var want map[string]any
		if err := yaml.Unmarshal([]byte(head), &want); err != nil {
			t.Fatalf("%q: %v", head, err)
		}
		got, err := readYAML(head)
		if err != nil || !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
			t.Errorf("%s\n got %#v, %v\nwant %#v", head, got, err, want)
		}
	}
}

// Unsupported syntax is rejected, not guessed.
func TestNotYAML(t *testing.T) {
	for _, head := range []string{
		"a: b: c\n", "- a\n- b\n", "a: &x 1\nb: *x\n", "a: !!str 1\n", "a: [1, 2\n", "a: \"open\n", "a: 1\na: 2\n", "a: 1\n  b: 2\n", "\ta: 1\n",
		"just words\n", "? a\n: b\n", "a: {b: c\n", "a: 'x' y\n", "a: @b\n",
	} {
		if got, err := readYAML(head); err == nil {
			t.Errorf("%q is %#v", head, got)
		}
	}
}

// FuzzYAML checks that no header makes the parser panic.
func FuzzYAML(f *testing.F) {
	for _, head := range heads {
		f.Add(head)
	}
	f.Fuzz(func(t *testing.T, head string) { readYAML(head) })
}
