package house

import (
	"path"
	"regexp"
	"slices"
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
	{"is what a hook is told", "is the input of a hook"},
	{"at the begin", "at the start"},
	{"also if", "even if"},
	{"is to run", "runs, would run"},
}

// docPhrases must not come back in documents that people read first.
var docPhrases = [][2]string{
	{"is told", "receives, is sent, is reported"},
	{"are told", "receive, are sent, are reported"},
	{"was told", "received, was sent"},
	{"be told", "receive, be reported"},
	{"made again", "retried, repeated"},
	{"tried again", "retried"},
	{"taken back", "cancelled"},
	{"taken apart", "decoded, parsed"},
	{"takes apart", "decodes, parses"},
	{"those that are", "name the things"},
	{"those there are", "name the things"},
	{"what was said", "name the thing: the prompt, the answer, the message"},
	{"what is asked", "name the thing: the question, the request"},
	{"what is held", "name the guarantee"},
	{"behind the end", "after the end"},
	{"is wanted", "is needed, is requested"},
	{"if wanted", "on request, optionally"},
	{"nothing but", "only, alone"},
	{"that is spent by", "name who spends it"},
	{"held against", "validated against, compared with"},
	{"those that there", "name the things"},
	{"what became of", "name the thing: the outcome, the state"},
	{"what came of", "the outcome of"},
	{"spoken to", "contacted"},
	{"outside of", "outside"},
	{"also when", "even when"},
	{"also after", "even after"},
	{"also during", "even during"},
	{"goes on", "continues"},
	{"is to be", "name the action: the file is removed, the file must be removed"},
	{"says so", "reports it"},
	{"if that is meant", "if that is intended"},
}

// docSubject matches a sentence whose subject is a clause, such as "What a project brings has no effect."
var docSubject = regexp.MustCompile(`(?:^|[.!:] |\| |- )(?:What|Who|Whoever|Whatever|Where) [a-z]`)

// commentPhrases must not come back in comments of Go code: they say who learns something, not who
// does what, or begin a sentence with a clause as its subject.
var commentPhrases = regexp.MustCompile(`//.*\b(?:is|are|was|were|be|been) told\b|// (?:What|Who|Whoever|Whatever) [a-z][^?]*$|//.*[.;:] (?:What|Who|Whoever|Whatever) [a-z][^?]*$`)

// firstPages are those that people read first, besides docs.
var firstPages = map[string]bool{
	"README.md": true, "CONTRIBUTING.md": true, "SECURITY.md": true, "interop/README.md": true, "interop/accepted.txt": true,
	"interop/testdata/acp/accepted.txt": true,
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
		text := string(read(t, name))
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			n := 0
			for line := range strings.Lines(text) {
				n++
				if strings.Contains(line, "//") && commentPhrases.MatchString(strings.TrimSpace(line)) {
					t.Errorf("%s:%d: write who does what: %s", name, n, strings.TrimSpace(line))
				}
			}
		}
		text = strings.ToLower(text)
		list := phrases
		if first := firstPages[name]; first || path.Dir(name) == "docs" {
			list = slices.Concat(phrases, docPhrases)
			_, prose, err := split(name, read(t, name))
			if err != nil {
				t.Error(err)
			}
			for i, line := range prose {
				if !strings.HasPrefix(line, "#") && !strings.Contains(line, "?") && docSubject.MatchString(line) {
					t.Errorf("%s:%d: begin the sentence with its subject: %s", name, i+1, line)
				}
			}
		}
		for _, p := range list {
			if !strings.Contains(text, p[0]) {
				continue
			}
			for _, at := range regexp.MustCompile(`\b`+p[0]+`\b`).FindAllStringIndex(text, -1) {
				t.Errorf("%s:%d: %q: write %s", name, 1+strings.Count(text[:at[0]], "\n"), p[0], p[1])
			}
		}
	}
}
