package house

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// phrases must not come back: each reads like a translation. The second column is what to write
// instead; the glossary in CONTRIBUTING.md has the words of the field. All are in lower case.
var phrases = [][2]string{
	{"mend", "fix, repair, correct"},
	{"mends", "fixes"},
	{"mended", "fixed, repaired"},
	{"passed over", "skipped, ignored"},
	{"what is said", "name the thing: the prompt, the answer, the message"},
	{"makes no sense", "is malformed, is not valid"},
	{"make no sense", "are malformed, are not valid"},
	{"the begin of", "the start of"},
	{"that there is not", "that does not exist, unknown"},
	{"that there are not", "that do not exist, unknown"},
	{"what there is", "name the thing"},
	{"counts when you have", "applies after you run"},
	{"says more of one", "describes it"},
	{"is no valid", "is not valid"},
	{"are no valid", "are not valid"},
}

// TestPhrases reads documentation, help, comments and messages.
func TestPhrases(t *testing.T) {
	for _, name := range files(t) {
		switch path.Ext(name) {
		case ".go", ".md", ".txt", ".txtar", ".yml", ".yaml":
		default:
			continue
		}
		// The past is past; commands that are tried out are not ours to word.
		if name == "CHANGELOG.md" || name == "internal/house/phrases_test.go" || strings.Contains(name, "policytest") {
			continue
		}
		text := strings.ToLower(string(read(t, name)))
		for _, p := range phrases {
			if !strings.Contains(text, p[0]) {
				continue
			}
			for _, at := range regexp.MustCompile(`\b`+p[0]+`\b`).FindAllStringIndex(text, -1) {
				t.Errorf("%s:%d: %q: write %s", name, 1+strings.Count(text[:at[0]], "\n"), p[0], p[1])
			}
		}
	}
}
