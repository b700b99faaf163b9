package frontmatter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/internal/frontmatter"
)

func parse(t testing.TB, text string) *frontmatter.Document {
	t.Helper()
	d, err := frontmatter.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestParse(t *testing.T) {
	d := parse(t, "\ufeff---\r\nname: tester\r\ndescription: >-\r\n  Tests\r\n  things.\r\ntools: Read, Bash(git diff:*, x), Grep\r\nskills:\r\n  - a\r\n  - b\r\nmaxTurns: 5\r\nbackground: true\r\nhooks:\r\n  Stop:\r\n    - hooks: [{type: command, command: ls}]\r\n---\r\n\r\nYou test.\r\n")
	if d.String("name") != "tester" || d.String("description") != "Tests things." || d.Body != "You test." || d.Loose {
		t.Errorf("%+v", d)
	}
	if got := d.List("tools"); !slices.Equal(got, []string{"Read", "Bash(git diff:*, x)", "Grep"}) {
		t.Errorf("tools %q", got)
	}
	if got := d.List("skills"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("skills %q", got)
	}
	if n, ok := d.Int("maxTurns"); n != 5 || !ok {
		t.Error("maxTurns", n, ok)
	}
	if v, ok := d.Bool("background"); !v || !ok {
		t.Error("background", v, ok)
	}
	if got := string(d.JSON("hooks")); got != `{"Stop":[{"hooks":[{"command":"ls","type":"command"}]}]}` {
		t.Error(got)
	}
	if d.List("none") != nil || d.Has("none") || d.JSON("none") != nil {
		t.Error("a field that is not there")
	}
}

// A header that is not YAML is read as far as possible.
func TestLoose(t *testing.T) {
	d := parse(t, "---\nname: reviewer\ndescription: Use when: code changed. Examples: <example>user: \"hi\"</example>\n  more of it\ntools:\n- Read\n- \"Grep\"\nmodel: haiku\n---\nBody\n---\nmore")
	if !d.Loose || d.String("name") != "reviewer" || d.String("model") != "haiku" || d.Body != "Body\n---\nmore" {
		t.Errorf("%+v", d)
	}
	if got := d.String("description"); got != "Use when: code changed. Examples: <example>user: \"hi\"</example>\nmore of it" {
		t.Errorf("%q", got)
	}
	if got := d.List("tools"); !slices.Equal(got, []string{"Read", "Grep"}) {
		t.Errorf("%q", got)
	}
}

// A quote or a bracket that is not closed is reported, and the rest of the header is read.
func TestUnclosedValuesAreReported(t *testing.T) {
	for value, want := range map[string]string{
		`"Reviews code`: "line 3: the header is not valid YAML: the value of description starts with \" and does not end",
		`'Reviews code`: "line 3: the header is not valid YAML: the value of description starts with ' and does not end",
		`[Read, Grep`:   "line 3: the header is not valid YAML: the value of description starts with [ and does not end",
		`it's: fine`:    "",
	} {
		d := parse(t, "---\nname: a\ndescription: "+value+"\nmodel: haiku\n---\nBody")
		if d.String("model") != "haiku" || d.Body != "Body" || !strings.HasPrefix(d.Problem, want) || (want == "") != (d.Problem == "") {
			t.Errorf("%s: %+v, want the problem %q", value, d, want)
		}
	}
}

// An empty list differs from a missing one.
func TestEmptyList(t *testing.T) {
	for _, text := range []string{"tools: []", "tools: ''", "tools:  \"\""} {
		if got := parse(t, "---\n"+text+"\n---\n").List("tools"); got == nil || len(got) > 0 {
			t.Errorf("%s is %q", text, got)
		}
	}
}

func TestNoHead(t *testing.T) {
	for _, text := range []string{"", "just text", "---\nnever closed", "-- -\na: b\n---\n", "text\n---\na: b\n---"} {
		if d := parse(t, text); len(d.Fields) > 0 || d.Body != strings.TrimSpace(text) {
			t.Errorf("%q: %+v", text, d)
		}
	}
	if _, err := frontmatter.Parse(make([]byte, frontmatter.MaxSize+1)); err == nil {
		t.Error("a file that is too big is read")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("---\na: b\n---\nc")
	f.Add("---\na: &a [*a]\nb: !!binary x\nc: .nan\n1: 2\n---\n")
	f.Add("---\n- a\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := frontmatter.Parse([]byte(text))
		if err != nil {
			return
		}
		if d.Fields == nil {
			t.Fatal("no fields")
		}
		for name := range d.Fields {
			d.String(name)
			d.List(name)
			d.Bool(name)
			d.Int(name)
			if d.Has(name) && d.JSON(name) == nil {
				t.Errorf("%s of %q has no JSON", name, text)
			}
		}
	})
}

func ExampleParse() {
	d, _ := frontmatter.Parse([]byte("---\nname: greeter\ntools: Read, Grep\n---\nYou greet."))
	fmt.Println(d.String("name"), d.List("tools"), d.Body)
	// Output: greeter [Read Grep] You greet.
}
