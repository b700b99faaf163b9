package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/crew"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/tool"
)

func newPreface() *preface {
	b := newBriefing()
	b.runner, b.prefix = &call.Runner{Now: time.Now}, &b.hist.Prefix
	b.view.Store(&call.View{Env: &tool.Env{Roots: []string{"/work"}}})
	return &preface{briefing: b, choice: &choice{}, subagents: &subagents{}}
}

func TestSystemPromptHasOneSource(t *testing.T) {
	role := &agents.Definition{Name: "reviewer", Prompt: "You review.", Reminder: "Be brief."}
	for _, test := range []struct {
		name  string
		set   func(*preface)
		first string
		last  string
	}{
		{"built in", func(*preface) {}, basePrompt, "# Where you work"},
		{"agent", func(c *preface) { c.role = role }, "You review.", "Be brief."},
		{"host", func(c *preface) { c.given = []string{" ", "Mine."} }, "Mine.", "# Where you work"},
		{"host before agent", func(c *preface) { c.given, c.role = []string{"Mine."}, role }, "Mine.", "# Where you work"},
		{"subagent", func(c *preface) { c.given, c.sub = []string{"Mine."}, &crew.Subagent{} }, "Mine.", "Mine."},
		{"addition", func(c *preface) { c.appended = "And this." }, basePrompt, "And this."},
	} {
		c := newPreface()
		before := c.keyOfPrompt()
		test.set(c)
		got := c.text()
		if got[0] != test.first || !strings.HasPrefix(got[len(got)-1], test.last) {
			t.Errorf("%s: got %q", test.name, got)
		}
		if same := c.keyOfPrompt() == before; same != (test.name == "built in") {
			t.Errorf("%s: the key is the same: %v", test.name, same)
		}
	}
}

func TestPrefixIsKeptUntilItsSourcesChange(t *testing.T) {
	c := newPreface()
	c.keepPrompt()
	first := string(c.hist.Prefix.System)
	c.project = &project.Context{Styles: []*project.Style{{Name: "short", Text: "In one sentence."}}}
	if c.keepPrompt(); string(c.hist.Prefix.System) != first {
		t.Errorf("got another prefix: %s", c.hist.Prefix.System)
	}
	c.outputStyle = "short"
	if c.keepPrompt(); !strings.Contains(string(c.hist.Prefix.System), "In one sentence.") {
		t.Errorf("got %s", c.hist.Prefix.System)
	}
}
