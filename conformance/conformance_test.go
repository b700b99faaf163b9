package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/conformance"
	"github.com/parley-go/parley/parleytest/peer"
)

func TestMain(m *testing.M) { peer.TestMain(m) }

// parrot is a CLI that follows its prompts, and little else.
func parrot(t testing.TB) *conformance.Program {
	cli, err := peer.AgentCommand(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &conformance.Program{Side: conformance.CLI, Command: []string{cli.Path}, Environ: append(os.Environ(), cli.Env...), Timeout: 2 * time.Second}
}

// Every rule is valid, and has a unique name and title.
func TestRules(t *testing.T) {
	for _, side := range []conformance.Side{conformance.CLI, conformance.SDK} {
		rules, err := conformance.Rules(side)
		if err != nil {
			t.Fatal(err)
		}
		titles := map[string]string{}
		for _, r := range rules {
			if other := titles[r.Title]; other != "" {
				t.Errorf("%s and %s say the same", r.Name, other)
			}
			titles[r.Title] = r.Name
			if !strings.HasSuffix(r.Title, ".") || strings.Contains(r.Title, "\n") {
				t.Errorf("%s: %q is no sentence", r.Name, r.Title)
			}
		}
		if len(rules) < 30 {
			t.Errorf("%s has %d rules", side, len(rules))
		}
	}
}

// A broken rule is distinguished from one that holds, and its problem is shown.
func TestCheck(t *testing.T) {
	p := parrot(t)
	parse := func(text string) *conformance.Rule {
		t.Helper()
		r, err := conformance.Parse(conformance.CLI, "cli/x", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const head = "It answers.\n\narea turn\n"
	for name, c := range map[string]struct {
		rule    string
		status  conformance.Status
		reading string
		problem string
	}{
		"holds":   {head + "-- steps --\nhello\nprompt echo hi\ndone hi\nbye\n", conformance.Holds, "", ""},
		"broken":  {head + "-- steps --\nhello\nprompt echo hi\ndone ho\nbye\n", conformance.Broken, "", "no frame within"},
		"other":   {head + "-- steps as written --\nprompt echo hi\ndone ho\nbye\n-- steps as done --\nprompt echo hi\ndone hi\nbye\n", conformance.Holds, "as done", ""},
		"after":   {head + "-- steps --\nprompt echo hi\ndone hi\nbye\n-- after --\nexists made\n", conformance.Broken, "", "made is not there"},
		"absent":  {head + "-- steps --\nprompt echo hi\ndone hi\nbye\n-- file note --\nx\n-- after --\nabsent note\n", conformance.Broken, "", "must not be"},
		"content": {head + "-- steps --\nprompt echo hi\ndone hi\nbye\n-- file note --\nx\n-- after --\nholds note y\n", conformance.Broken, "", "does not hold"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := p.Check(t.Context(), parse(c.rule))
			if err != nil {
				t.Fatal(err)
			}
			if o.Status != c.status || o.Reading != c.reading || !strings.Contains(o.Problem, c.problem) || len(o.Frames) < 2 {
				t.Errorf("%+v", o)
			}
			if o.Frames[0][0] != '>' {
				t.Errorf("the first frame is not ours: %s", o.Frames[0])
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":               "a sentence and an area",
		"A.\n\narea x\n": "no steps",
		"A.\n\narea x\nfoo bar\n-- steps --\nbye\n":               "no setting",
		"A.\n\narea x\n-- other --\n-- steps --\nbye\n":           "no section",
		"A.\n\narea x\n-- steps --\n< {\n":                        "cli/x",
		"A.\n\narea x\n-- model --\nnonsense\n-- steps --\nbye\n": "nonsense",
		"A.\n\narea x\n-- steps --\nbye\n-- after --\nwonder x\n": "exists, absent or holds",
		"A.\n\narea x\n-- steps --\nbye\n-- job --\n{}\n":         "for programs with an SDK",
	} {
		if _, err := conformance.Parse(conformance.CLI, "cli/x", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestReports(t *testing.T) {
	p := parrot(t)
	report := &conformance.Report{Program: "parrot", Side: conformance.CLI}
	for _, done := range []string{"hi", "ho | <b>"} {
		r, err := conformance.Parse(conformance.CLI, "cli/x", []byte("It answers.\n\narea turn\n-- steps --\ntimeout 300ms\nprompt echo hi\ndone "+done+"\nbye\n"))
		if err != nil {
			t.Fatal(err)
		}
		o, err := p.Check(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		report.Outcomes = append(report.Outcomes, o)
	}
	var text, js, junit, md bytes.Buffer
	for _, err := range []error{report.WriteText(&text, true), report.WriteJSON(&js), report.WriteJUnit(&junit), report.WriteMarkdown(&md)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"✓ cli/x", "✗ cli/x", "no frame within", `> {"type":"user"`, "1 of 2 rules hold for parrot."} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	var doc struct {
		Holds, Rules int
		Results      []struct{ Status, Problem string }
	}
	if err := json.Unmarshal(js.Bytes(), &doc); err != nil || doc.Holds != 1 || doc.Rules != 2 || doc.Results[1].Problem == "" {
		t.Errorf("%v: %s", err, js.String())
	}
	var suite struct {
		Failures int        `xml:"failures,attr"`
		Cases    []struct{} `xml:"testcase"`
	}
	if err := xml.Unmarshal(junit.Bytes(), &suite); err != nil || suite.Failures != 1 || len(suite.Cases) != 2 {
		t.Errorf("%v: %s", err, junit.String())
	}
	if strings.Count(md.String(), "\n") != 4 || !strings.Contains(md.String(), "**broken**") {
		t.Error(md.String())
	}
}

// TestAgentOfAnEditorNeedNotExit checks that an agent that continues after the end of its input breaks
// no rule: the protocol does not require that it exits.
func TestAgentOfAnEditorNeedNotExit(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the agent is a shell")
	}
	t.Parallel()
	r, err := conformance.Parse(conformance.ACP, "acp/x", []byte("It answers.\n\narea x\n-- model --\nturn\n\tsay Hello.\n-- steps --\nhello\nbye\n"))
	if err != nil {
		t.Fatal(err)
	}
	agent := `read -r line; echo '{"jsonrpc":"2.0","id":"hello","result":{"protocolVersion":1}}'; exec sleep 1000`
	p := &conformance.Program{Side: conformance.ACP, Command: []string{"sh", "-c", agent}, Environ: os.Environ(), Timeout: time.Minute}
	o, err := p.Check(t.Context(), r)
	if err != nil || o.Status != conformance.Holds {
		t.Errorf("%+v, %v, want a rule that holds", o, err)
	}
}

func TestCannotStart(t *testing.T) {
	rules, err := conformance.Rules(conformance.CLI)
	if err != nil {
		t.Fatal(err)
	}
	p := &conformance.Program{Side: conformance.CLI, Command: []string{"./not-there"}}
	if _, err := p.Check(t.Context(), rules[0]); err == nil || !strings.Contains(err.Error(), "cannot be started") {
		t.Error(err)
	}
	p.Side = conformance.SDK
	if _, err := p.Check(t.Context(), rules[0]); err == nil {
		t.Error("a rule of the other side was tried")
	}
}

func Example() {
	cli, err := peer.AgentCommand(nil)
	if err != nil {
		log.Fatal(err)
	}
	rules, err := conformance.Rules(conformance.CLI)
	if err != nil {
		log.Fatal(err)
	}
	program := &conformance.Program{Side: conformance.CLI, Command: []string{cli.Path}, Environ: append(os.Environ(), cli.Env...), Timeout: time.Second}
	for _, r := range rules {
		if r.Area != "initialize" || r.Name == "cli/initialize-system-prompt" {
			continue
		}
		o, err := program.Check(context.Background(), r)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(o.Status, r.Title)
	}
	// Output:
	// holds The response to initialize lists commands, models, an account and output styles.
	// broken A prompt needs no initialize before it.
}
