package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/wire"
)

func newCommands() *commands {
	c := newPreface()
	c.project = &project.Context{Commands: []*project.Command{{Name: "deploy", Description: "Deploys.", Source: "project"}, {Name: "only-model", Skill: true, NoPerson: true}}}
	return &commands{preface: c}
}

func TestPromptBecomesACommand(t *testing.T) {
	c := newCommands()
	c.cfg.PromptCommands = func() []*PromptCommand { return []*PromptCommand{{Name: "mcp__s__ask"}, {Name: "deploy"}} }
	typed := func(text string) *slashCommand { return c.slash(&prompt{m: wire.Prompt(wire.Text(text))}) }
	if s := typed("/deploy to staging"); s == nil || s.file == nil || s.args != "to staging" || s.local != nil {
		t.Errorf("a file: got %+v", s)
	}
	if s := typed("/mcp__s__ask"); s == nil || s.from == nil {
		t.Errorf("a prompt of a server: got %+v", s)
	}
	if s := typed("/reset"); s == nil || s.local == nil {
		t.Errorf("an alias of a built-in command: got %+v", s)
	}
	if s := typed("/only-model"); s == nil || s.local == nil {
		t.Errorf("a skill for the model: got %+v", s)
	}
	for _, text := range []string{"deploy", "/no-such-command", "/usr/bin/env", ""} {
		if s := typed(text); s != nil {
			t.Errorf("%q: got %+v", text, s)
		}
	}
	if s := c.slash(&prompt{m: wire.Prompt(wire.Text("/deploy")), origin: &wire.Origin{Kind: "hook"}}); s != nil {
		t.Errorf("not from a person: got %+v", s)
	}
	if c.cfg.NoSlashCommands = true; typed("/clear") != nil || len(c.Commands()) != 0 {
		t.Error("there are commands although they are off")
	}
}

func TestListedCommandsHaveOneSource(t *testing.T) {
	c := newCommands()
	c.project.Commands = append(c.project.Commands, &project.Command{Name: "review", Description: "Ours.", Source: "project"})
	var names []string
	for _, cmd := range c.Commands() {
		names = append(names, cmd.Name)
		if cmd.Name == "review" && (cmd.Builtin || !strings.HasPrefix(cmd.Description, "Ours.")) {
			t.Errorf("the built-in command hides that of the project: %+v", cmd)
		}
	}
	if slices.Contains(names, "only-model") || !slices.Contains(names, "deploy") || !slices.Contains(names, "clear") {
		t.Errorf("got %q", names)
	}
	sorted := slices.Sorted(slices.Values(names))
	if len(slices.Compact(sorted)) != len(names) {
		t.Errorf("a name is listed twice: %q", names)
	}
	if all := c.listCommands(true); len(all) <= len(names) {
		t.Errorf("/help lists %d commands, hosts receive %d", len(all), len(names))
	}
}

func TestLocalCommandIsAnswered(t *testing.T) {
	c := newCommands()
	w, _, emitted := newWriter()
	c.rec = w.rec
	end := c.failCommand(&turn{prompts: []*prompt{{m: userPrompt("u1", "")}}}, "model", "model", "x", "Error: no")
	m, ok := emitted()[0].(*wire.Assistant)
	if !ok || m.UserMessageUUID != "u1" || !strings.Contains(m.LocalCommandSource, "<local-command-stderr>Error: no<") || end.localCommand != "model" || !end.noTurns {
		t.Errorf("got %+v and %+v", emitted()[0], end)
	}
}
